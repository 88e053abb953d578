//! The contract of every policy in the registry. `bad_input.rs` has what must be refused.

mod life;

use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub::{
    Change, Error, List, LoadError, Observation, Partitions, Policy, Preset, Range, Sequential,
    Setup, Shown, Spec, Users, Value, Workers, load_policy, registry,
};

use life::*;

#[test]
fn a_malformed_spec_is_not_registered() {
    static NAMED: Spec = Spec {
        name: "Bad, Name",
        ..BAD
    };
    static COLORED: Spec = Spec {
        name: "badly-colored",
        colors: ["red", ""],
        ..BAD
    };
    static WITHOUT_PRESETS: Spec = Spec {
        name: "without-presets",
        presets: &[],
        ..BAD
    };
    static RESERVED: Spec = Spec {
        name: "random",
        ..BAD
    };
    const BAD: Spec = Spec {
        name: "bad",
        title: "Bad",
        summary: "For a test",
        citation: "none",
        colors: ["#000000", "#FFFFFF"],
        revision: 1,
        presets: &[Preset::Default],
        constants: &[],
        can: sclub::Abilities::NONE,
        new: |_, _| Err(Error::NoUsers),
        load: None,
        gather: None,
    };
    for (spec, fault) in [
        (&NAMED, "lower-case"),
        (&COLORED, "#RRGGBB"),
        (&WITHOUT_PRESETS, "preset"),
        (&RESERVED, "taken"),
    ] {
        let error = sclub::register(spec).unwrap_err();
        assert!(error.contains(fault), "{error}");
    }
}

#[test]
fn a_spec_is_well_formed() {
    let all = registry();
    for (place, spec) in all.iter().enumerate() {
        let name = spec.name;
        assert!(
            all[..place].iter().all(|other| other.name != name),
            "{name} is there twice"
        );
        assert_eq!(spec.check(), Ok(()));
        for constant in spec.constants {
            if let Some(other) = constant.instead_of {
                let other = spec.constant(other).unwrap();
                assert_eq!(other.instead_of, Some(constant.name));
            }
        }
        for &preset in spec.presets {
            let values = values(spec, preset, &[]);
            for (constant, value) in values.iter() {
                constant.check_value(value).unwrap();
                if value != Value::Unset {
                    let text = constant.format(value);
                    assert_eq!(constant.parse(&text), Ok(value), "{}", constant.name);
                }
            }
            let policy = values.make(&setup(4)).unwrap();
            assert_eq!((policy.dim(), policy.rounds()), (4, 0));
        }
    }
}

#[test]
fn a_policy_can_do_what_its_spec_says() {
    for spec in registry() {
        let mut policy = made(spec, 3);
        let can = spec.can;
        assert_eq!(policy.as_inspect().is_some(), can.inspect, "{spec}");
        assert_eq!(policy.as_persist().is_some(), can.save, "{spec}");
        assert_eq!(policy.as_forget().is_some(), can.forget, "{spec}");
        assert_eq!(policy.as_correct().is_some(), can.correct, "{spec}");
        let is_gathered = can.partitions == Partitions::Gathered;
        let takes_fits = can.fit || is_gathered;
        assert_eq!(policy.as_fit().is_some(), takes_fits, "{spec}");
        assert_eq!(policy.as_fit_mut().is_some(), takes_fits, "{spec}");
        assert_eq!(policy.as_partitioned_fit().is_some(), is_gathered, "{spec}");
    }
}

#[test]
fn changes_of_clusters_are_reported_by_policies_that_regroup() {
    for spec in registry().into_iter().filter(|spec| !spec.can.needs_truth) {
        let mut policy = made(spec, 4);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(4);
        let mut is_changed = false;
        // Each user likes one feature, and is seen often: alone, in a list of three, and with another one.
        for round in 0..1000u64 {
            let users = match round % 3 {
                0 => vec![round % 4],
                1 => vec![round % 4; 3],
                _ => vec![round % 4, (round + 1) % 4],
            };
            let item: Vec<f64> = (0..4).map(|_| random.random_range(0.0..1.0)).collect();
            let seen: Vec<Observation<'_>> = users
                .iter()
                .map(|&user| Observation::new(user, &item, item[user as usize]))
                .collect();
            let mut changes = Vec::new();
            policy.learn_round(&seen, &mut changes).unwrap();
            is_changed |= !changes.is_empty();
            for change in changes {
                let (Change::Split { user, .. } | Change::Merge { user, .. }) = change;
                assert!(users.contains(&user), "{spec}: {change:?}");
            }
        }
        assert_eq!(is_changed, spec.can.regroups, "{spec}");
    }
}

/// A reward that is replaced later leaves the statistics of each user as if it had come at once.
#[test]
fn a_corrected_reward_is_as_if_it_had_come_at_once() {
    let specs = registry().into_iter().filter(|spec| spec.can.correct);
    let mut checked = Vec::new();
    for spec in specs {
        let (mut late, mut at_once) = (made(spec, 3), made(spec, 3));
        let mut random = Xoshiro256PlusPlus::seed_from_u64(8);
        let mut waiting: Vec<(u64, Vec<f64>, f64, f64)> = Vec::new();
        // Fewer rounds than the first fit needs: after it the estimates are not those of a user alone.
        for round in 0..30u64 {
            let user = round % 4;
            let item: Vec<f64> = (0..3).map(|_| random.random_range(-1.0..1.0)).collect();
            let reward = random.random_range(0.0..1.0);
            let assumed = if round % 3 == 0 { 0.25 } else { reward };
            late.learn(user, &item, assumed).unwrap();
            at_once.learn(user, &item, reward).unwrap();
            if round % 3 == 0 {
                waiting.push((user, item, assumed, reward));
            }
            if round % 7 == 6
                && let Some((user, item, from, to)) = waiting.pop()
            {
                assert_eq!(
                    late.as_correct().unwrap().correct(user, &item, from, to),
                    Ok(true)
                );
            }
        }
        for (user, item, from, to) in waiting {
            assert_eq!(
                late.as_correct().unwrap().correct(user, &item, from, to),
                Ok(true)
            );
        }
        let unknown = late.as_correct().unwrap().correct(99, &[0.0; 3], 0.0, 1.0);
        assert_eq!(unknown, Ok(false), "{spec}");
        let bad = late.as_correct().unwrap().correct(1, &[0.0; 2], 0.0, 1.0);
        assert!(bad.is_err(), "{spec}");
        assert_eq!(late.rounds(), at_once.rounds());
        let (late, at_once) = (late.as_inspect().unwrap(), at_once.as_inspect().unwrap());
        for user in 0..4 {
            assert_eq!(late.count(user), at_once.count(user));
            let pairs = [
                (late.own_estimate(user), at_once.own_estimate(user)),
                (late.estimate(user), at_once.estimate(user)),
            ];
            // Splits of SCLUB depend on the rewards at the time of the round.
            for (late, at_once) in pairs
                .into_iter()
                .take(2 - usize::from(spec.name == "sclub"))
            {
                let (late, at_once) = (late.unwrap(), at_once.unwrap());
                let is_near = late
                    .iter()
                    .zip(&at_once)
                    .all(|(a, b)| (a - b).abs() < 1e-10);
                assert!(is_near, "{spec}, user {user}: {late:?} and {at_once:?}");
            }
        }
        checked.push(spec.name);
    }
    for name in [
        "sclub",
        "sclub-soft",
        "gaussian",
        "linucb-ind",
        "linucb-one",
        "lints",
    ] {
        assert!(checked.contains(&name), "{name}");
    }
}

#[test]
fn a_constant_out_of_range_is_named() {
    for spec in registry() {
        for constant in spec.constants {
            let Range::Number { low, high, .. } = constant.range else {
                continue;
            };
            for bad in [low - 1.0, f64::NAN, f64::INFINITY, high * 2.0] {
                let given = [(constant.name, Value::Number(bad))];
                let refused = spec.values(spec.presets[0], &given, &setup(4)).unwrap_err();
                assert_eq!(refused.name, constant.name, "{bad}");
            }
        }
        let given = [("no_such_constant", Value::Number(1.0))];
        let refused = spec.values(spec.presets[0], &given, &setup(4)).unwrap_err();
        assert!(refused.why.contains(spec.name), "{refused}");
    }
}

#[test]
fn every_constant_matters_to_the_key_of_a_result() {
    for spec in registry() {
        let usual = values(spec, spec.presets[0], &[]);
        for (constant, value) in usual.iter() {
            let other = match (constant.range, value) {
                (Range::Number { low, .. }, Value::Number(number)) if number != low + 1.0 => {
                    Value::Number(low + 1.0)
                }
                (Range::Number { low, .. }, _) => Value::Number(low + 2.0),
                (Range::Flag, value) => Value::Flag(value != Value::Flag(true)),
                (Range::OneOf(known), Value::Choice(choice)) => {
                    let other = known.iter().find(|&&other| other != choice);
                    Value::Choice(other.unwrap())
                }
                (Range::OneOf(known), _) => Value::Choice(known[0]),
                (Range::AnyOf(_), Value::Set(set)) => Value::Set(set ^ 1),
                (Range::AnyOf(_), _) => Value::Set(1),
            };
            let changed = values(spec, spec.presets[0], &[(constant.name, other)]);
            assert_ne!(changed.to_string(), usual.to_string(), "{}", constant.name);
        }
    }
}

#[test]
fn asking_changes_nothing_and_all_ways_to_ask_agree() {
    for spec in registry() {
        let mut life = Life::new(2, 4, 12);
        let mut policy = made(spec, 4);
        for rounds in [0, 20, 150] {
            life.live(&mut *policy, rounds);
            let before = policy.digest();
            let items = life.items(40);
            for user in [0, 3, 1_000] {
                let (mut scores, mut best, mut list) = (Vec::new(), Vec::new(), Vec::new());
                let shown = policy.recommend(user, &items).unwrap();
                policy.explain(user, &items, &mut scores).unwrap();
                policy
                    .best(user, &items, 7, &|i| i == 2, &mut best)
                    .unwrap();
                assert_eq!(scores.len(), 40);
                assert_eq!(scores[shown.index], shown.score, "{spec}");
                assert!(scores.iter().all(|s| s.score <= shown.score.score));
                assert_eq!(best.len(), 7);
                assert!(
                    best.iter()
                        .all(|b| b.index != 2 && scores[b.index] == b.score)
                );
                assert!(best.is_sorted_by(|a, b| a.score.score >= b.score.score));
                policy
                    .recommend_list(user, &items, 7, &|i| i == 2, &mut list)
                    .unwrap();
                assert_eq!(list.len(), 7);
                if !spec.can.lists {
                    assert_eq!(list, best);
                }
            }
            assert_eq!(policy.digest(), before, "{spec}");
        }
    }
}

/// Decisions with random numbers of their own: the same number gives the same decision, and only policies that draw
/// look at it.
#[test]
fn draws_are_fixed_by_their_number() {
    for spec in registry() {
        let mut life = Life::new(3, 4, 12);
        let mut policy = made(spec, 4);
        for rounds in [0, 150] {
            life.live(&mut *policy, rounds);
            let before = policy.digest();
            let items = life.items(40);
            for user in [0, 3, 1_000] {
                let mut shown = Vec::new();
                for draw in 0..30 {
                    let one = policy.recommend_drawn(draw, user, &items).unwrap();
                    assert_eq!(one, policy.recommend_drawn(draw, user, &items).unwrap());
                    let (mut scores, mut list) = (Vec::new(), Vec::new());
                    policy
                        .explain_drawn(draw, user, &items, &mut scores)
                        .unwrap();
                    assert_eq!(scores[one.index], one.score, "{spec}");
                    assert!(scores.iter().all(|s| s.score <= one.score.score));
                    policy
                        .recommend_list_drawn(draw, user, &items, 5, &|i| i == 2, &mut list)
                        .unwrap();
                    assert_eq!(list.len(), 5);
                    assert!(list.iter().all(|d| d.index != 2));
                    if !spec.can.lists {
                        assert!(list.iter().all(|d| scores[d.index] == d.score), "{spec}");
                        assert!(list.is_sorted_by(|a, b| a.score.score >= b.score.score));
                    }
                    shown.push(one);
                }
                if spec.can.draws {
                    assert!(
                        shown.iter().any(|one| one.score != shown[0].score),
                        "{spec}"
                    );
                } else {
                    let plain = policy.recommend(user, &items).unwrap();
                    assert!(shown.iter().all(|one| *one == plain), "{spec}");
                }
            }
            assert_eq!(policy.digest(), before, "{spec}");
        }
    }
}

#[test]
fn lists_are_learned_item_by_item_by_default() {
    for spec in registry().into_iter().filter(|spec| !spec.can.lists) {
        let (mut by_list, mut by_item) = (made(spec, 2), made(spec, 2));
        let items = [[0.6, 0.8], [1.0, 0.0], [0.0, 1.0]];
        let rewards = [Some(0.0), None, Some(1.0)];
        let shown: Vec<Shown<'_>> = items
            .iter()
            .zip(rewards)
            .map(|(item, reward)| Shown {
                item,
                id: None,
                reward,
            })
            .collect();
        let list = |looked_at| List {
            user: 3,
            items: &shown,
            looked_at,
        };
        let round = [list(None), list(Some(2))];
        by_list.learn_lists(&round, &mut Vec::new()).unwrap();
        let expected = [
            Observation::new(3, &items[0], 0.0),
            Observation::new(3, &items[2], 1.0),
            Observation::new(3, &items[0], 0.0),
        ];
        by_item.learn_round(&expected, &mut Vec::new()).unwrap();
        assert_eq!(by_list.digest(), by_item.digest(), "{spec}");
    }
}

/// Another id for a user: neither the order of ids nor their residues are kept.
fn hashed(user: u64) -> u64 {
    user.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 7
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_loaded_policy_goes_on_as_if_never_stopped(seed: u64, dim in 1usize..8, users in 1u64..30, before in 0usize..200, after in 1usize..60) {
        for (spec, values) in savable_variants() {
            let mut life = Life::new(seed, dim, users);
            let mut policy = values.make(&setup(dim)).unwrap();
            life.live(&mut *policy, before);
            let mut bytes = saved(&*policy);
            let length = bytes.len();
            bytes.extend([7; 5]);
            let mut input = bytes.as_slice();
            let mut twin = load_policy(&mut input).unwrap();
            prop_assert_eq!(input, &[7; 5][..], "more was read than was written");
            prop_assert_eq!(&saved(&*twin), &bytes[..length]);
            for _ in 0..after {
                let (round, items) = (life.round(), life.items(9));
                learn(&mut *policy, &round);
                learn(&mut *twin, &round);
                let user = life.rng.random_range(0..users + 2);
                prop_assert_eq!(twin.recommend(user, &items), policy.recommend(user, &items));
                prop_assert_eq!(twin.digest(), policy.digest(), "{}", spec);
            }
            if let (Some(one), Some(other)) = (policy.as_forget(), twin.as_forget()) {
                prop_assert_eq!(one.forget(0), other.forget(0));
                prop_assert_eq!(one.digest(), other.digest(), "{}", spec);
            }
        }
    }

    #[test]
    fn renaming_users_changes_nothing(seed: u64, users in 1u64..20, rounds in 40usize..200) {
        for spec in registry() {
            let mut life = Life::new(seed, 3, users);
            let mut renamed = Life { rename: hashed, ..life.clone() };
            let (mut one, mut other) = (made(spec, 3), made(spec, 3));
            life.live(&mut *one, rounds);
            renamed.live(&mut *other, rounds);
            // Before its first fit a policy may spread its trials by user.
            if spec.can.fit && one.rounds() < 40 {
                continue;
            }
            let items = life.items(12);
            for user in 0..users {
                let to = (renamed.rename)(user);
                prop_assert_eq!(one.estimate(user), other.estimate(to), "{}", spec);
                prop_assert_eq!(one.cluster_of(user), other.cluster_of(to), "{}", spec);
                if one.estimate(user).is_some_and(|e| e.iter().any(|&x| x != 0.0)) {
                    prop_assert_eq!(one.recommend(user, &items), other.recommend(to, &items), "{}", spec);
                }
            }
        }
    }

    /// The others keep what they alone have brought, to the bit, and a forgotten user is as unknown as
    /// one who never came.
    #[test]
    fn forgetting_leaves_what_the_others_brought(seed: u64, users in 2u64..20, rounds in 1usize..150) {
        for (spec, values) in savable_variants() {
            if !spec.can.forget {
                continue;
            }
            let gone = seed % users;
            let mut life = Life::new(seed, 3, users);
            let make = || values.make(&setup(3)).unwrap();
            let (mut with, mut without) = (make(), make());
            for _ in 0..rounds {
                let mut round = life.round();
                learn(&mut *with, &round);
                round.retain(|&(user, ..)| user != gone);
                learn(&mut *without, &round);
            }
            let known = with.as_inspect().unwrap().count(gone).is_some();
            prop_assert_eq!(with.as_forget().unwrap().forget(gone), known);
            prop_assert!(!with.as_forget().unwrap().forget(gone), "twice");
            let (with, without) = (with.as_inspect().unwrap(), without.as_inspect().unwrap());
            prop_assert_eq!(with.users(), without.users(), "{}", spec);
            for user in 0..users {
                prop_assert_eq!(with.count(user), without.count(user), "{}", spec);
                // A fit made while the user was known holds until the next.
                if !spec.can.fit {
                    prop_assert_eq!(with.own_estimate(user), without.own_estimate(user), "{}", spec);
                }
            }
            // Where all are one cluster, the others' sums are all that is left.
            if !spec.can.fit && (with.clusters(), without.clusters()) == (1, 1) {
                let newcomer = users + 1;
                let (left, expected) = (with.estimate(newcomer), without.estimate(newcomer));
                let (left, expected) = (left.unwrap_or_default(), expected.unwrap_or_default());
                for (a, b) in left.iter().zip(&expected) {
                    prop_assert!((a - b).abs() < 1e-9, "{} {:?} {:?}", spec, left, expected);
                }
            }
        }
    }

    /// Whatever a state with a right checksum holds, loading it ends, and so does everything after.
    #[test]
    fn a_hostile_state_is_refused_or_harmless(seed: u64, rounds in 0usize..60) {
        const NASTY: [u64; 10] = [
            0, 1, 2, u64::MAX, u64::MAX / 2, u32::MAX as u64, 1 << 31,
            f64::NAN.to_bits(), f64::INFINITY.to_bits(), (-1e300f64).to_bits(),
        ];
        for (spec, values) in savable_variants() {
            let mut life = Life::new(seed, 2, 6);
            let mut policy = values.make(&setup(2)).unwrap();
            life.live(&mut *policy, rounds);
            let all = words(&saved(&*policy));
            let body = all[3..all.len() - 1].to_vec();
            for _ in 0..40 {
                let mut hostile = body.clone();
                for _ in 0..life.rng.random_range(1..4) {
                    let at = life.rng.random_range(0..hostile.len());
                    let nasty = NASTY[life.rng.random_range(0..NASTY.len())];
                    hostile[at] = match life.rng.random_range(0..3) {
                        0 => hostile[at] ^ (1 << life.rng.random_range(0..64)),
                        1 => hostile[at].wrapping_add(1),
                        _ => nasty,
                    };
                }
                let mut bytes = Vec::new();
                sclub::bytes::seal(all[0], &hostile, &mut bytes).unwrap();
                let outcome = catch_unwind(AssertUnwindSafe(|| {
                    let Ok(mut loaded) = load_policy(&mut bytes.as_slice()) else {
                        return;
                    };
                    live_on(&mut *loaded, &mut life.clone());
                }));
                let changed: Vec<usize> = (0..body.len()).filter(|&at| body[at] != hostile[at]).collect();
                prop_assert!(outcome.is_ok(), "{} words {:?} of {}", spec, changed, body.len());
            }
        }
    }

    #[test]
    fn the_digest_sees_every_word(seed: u64, rounds in 1usize..80) {
        for spec in savable() {
            let mut life = Life::new(seed, 2, 6);
            let mut policy = made(spec, 2);
            life.live(&mut *policy, rounds);
            let all = words(&saved(&*policy));
            let body = &all[3..all.len() - 1];
            for at in 0..body.len() {
                let mut changed = body.to_vec();
                changed[at] ^= 1;
                let mut bytes = Vec::new();
                sclub::bytes::seal(all[0], &changed, &mut bytes).unwrap();
                if let Ok(loaded) = load_policy(&mut bytes.as_slice()) {
                    prop_assert_ne!(loaded.digest(), policy.digest(), "{} word {}", spec, at);
                }
            }
        }
    }
}

/// Uses every ability of a policy.
fn live_on(policy: &mut dyn Policy, life: &mut Life) {
    if policy.dim() != life.dim {
        return;
    }
    for _ in 0..20 {
        let round: Round = life.round();
        let round: Vec<Observation<'_>> = round
            .iter()
            .map(|(user, item, reward)| Observation::new(*user, item, *reward))
            .collect();
        let _ = policy.learn_round(&round, &mut Vec::new());
        let items = life.items(5);
        let (mut scores, mut best) = (Vec::new(), Vec::new());
        for user in 0..8 {
            let _ = policy.recommend(user, &items);
            let _ = policy.explain(user, &items, &mut scores);
            let _ = policy.best(user, &items, 3, &|_| false, &mut best);
            let _ = (policy.estimate(user), policy.cluster_of(user));
        }
    }
    if let Some(inspect) = policy.as_inspect() {
        let mut labels = Vec::new();
        inspect.each_cluster(&mut |view| labels.push(view.label));
        for label in labels {
            let _ = (inspect.cluster(label), inspect.members(label, 9));
        }
        let _ = (inspect.users(), inspect.singletons(), inspect.outlook());
        let _ = (inspect.placement(1), inspect.cluster_users(2));
    }
    if let Some(fit) = policy.as_fit()
        && let Some(refit) = fit.refit()
    {
        let bytes = refit.compute(&Sequential);
        let _ = policy.as_fit_mut().unwrap().take_fit(&bytes);
    }
    if let Some(forget) = policy.as_forget() {
        for user in 0..8 {
            forget.forget(user);
        }
    }
    let _ = policy.digest();
}

/// So many threads.
struct Threads(usize);

impl Workers for Threads {
    fn each(&self, pieces: usize, work: &(dyn Fn(usize) + Sync)) {
        let next = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..self.0 {
                scope.spawn(|| {
                    loop {
                        let piece = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        if piece >= pieces {
                            return;
                        }
                        work(piece);
                    }
                });
            }
        });
    }
}

#[test]
fn a_fit_has_the_same_bits_on_any_number_of_threads() {
    for spec in registry().into_iter().filter(|spec| spec.can.fit) {
        let setup = Setup {
            fits_inline: false,
            ..setup(4)
        };
        let mut policy = quick(spec).make(&setup).unwrap();
        let mut life = Life::new(3, 4, 200);
        for _ in 0..3 {
            life.live(&mut *policy, 400);
            let fit = |workers: &dyn Workers| {
                let refit = policy.as_fit().unwrap().refit().expect("it is due");
                refit.compute(workers)
            };
            let one = fit(&Sequential);
            assert_eq!(fit(&Threads(2)), one, "{spec}");
            assert_eq!(fit(&Threads(7)), one, "{spec}");
            policy.as_fit_mut().unwrap().take_fit(&one).unwrap();
        }
    }
}

#[test]
fn users_can_be_declared_or_appear() {
    for spec in registry() {
        let declared = Setup {
            users: Users::Declared(6),
            ..setup(2)
        };
        let mut policy = quick(spec).make(&declared).unwrap();
        let mut life = Life::new(4, 2, 12);
        life.live(&mut *policy, 60);
        if let Some(inspect) = policy.as_inspect() {
            let appeared = (0..12).filter(|&user| inspect.count(user).is_some());
            assert_eq!(inspect.users(), appeared.count() as u64, "{spec}");
        }
    }
}

/// Damage is found, and no number in a damaged state makes memory ready for so many.
#[test]
fn a_damaged_state_is_refused() {
    for spec in savable() {
        let mut policy = made(spec, 2);
        Life::new(6, 2, 4).live(&mut *policy, 50);
        let bytes = saved(&*policy);
        let refused = |mut damaged: &[u8]| {
            matches!(
                load_policy(&mut damaged),
                Err(LoadError::State(
                    Error::BadSnapshot { .. }
                        | Error::BadParameter { .. }
                        | Error::Dimension { .. }
                ))
            )
        };
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(refused(&damaged), "{spec} byte {at}");
            assert!(refused(&bytes[..at]), "{spec} cut at {at}");
        }
        for at in (0..bytes.len()).step_by(8) {
            for large in [u64::MAX, u64::from(u32::MAX), 1 << 40] {
                let mut damaged = bytes.clone();
                damaged[at..at + 8].copy_from_slice(&large.to_le_bytes());
                damaged[16..24].copy_from_slice(&(u64::MAX / 8).to_le_bytes());
                assert!(refused(&damaged), "{spec} word {}", at / 8);
            }
        }
    }
}
