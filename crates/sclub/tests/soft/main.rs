//! The soft policy as a whole: the same rounds give the same bits, fits can be made beside it, what is
//! kept comes back, and nothing that may be observed upsets it.

mod extremes;

use std::sync::Mutex;

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub::{
    BackgroundFit, Decision, Error, Explore, Forget, Inspect, ItemSet, LoadError, Observation,
    Persist, Policy, SclubSoft, Sequential, SoftParams, Workers, load_policy,
};

/// Seven threads that begin with the last piece.
struct Crowd;

impl Workers for Crowd {
    fn each(&self, pieces: usize, work: &(dyn Fn(usize) + Sync)) {
        let left = Mutex::new((0..pieces).collect::<Vec<usize>>());
        std::thread::scope(|scope| {
            for _ in 0..7 {
                scope.spawn(|| {
                    loop {
                        let next = left.lock().unwrap().pop();
                        let Some(piece) = next else { return };
                        work(piece);
                    }
                });
            }
        });
    }
}

/// Users with one of three tastes.
#[derive(Debug, Clone)]
struct Life {
    rng: Xoshiro256PlusPlus,
    dim: usize,
    users: u64,
}

type Round = Vec<(u64, Vec<f64>, f64)>;

impl Life {
    fn new(seed: u64, dim: usize, users: u64) -> Self {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { rng, dim, users }
    }

    fn vector(&mut self) -> Vec<f64> {
        (0..self.dim)
            .map(|_| self.rng.random_range(-1.0..1.0))
            .collect()
    }

    fn reward(&mut self, user: u64, item: &[f64]) -> f64 {
        item[user as usize % 3 % self.dim] + self.rng.random_range(-0.2..0.2)
    }

    fn round(&mut self, count: usize) -> Round {
        (0..count)
            .map(|_| {
                let user = self.rng.random_range(0..self.users);
                let item = self.vector();
                let reward = self.reward(user, &item);
                (user, item, reward)
            })
            .collect()
    }

    fn items(&mut self) -> ItemSet {
        let rows: Vec<f64> = (0..9).flat_map(|_| self.vector()).collect();
        ItemSet::from_rows(self.dim, &rows).unwrap()
    }
}

fn learn(policy: &mut (impl Policy + ?Sized), round: &Round) {
    let round: Vec<Observation<'_>> = round
        .iter()
        .map(|(user, item, reward)| Observation::new(*user, item, *reward))
        .collect();
    policy.learn_round(&round, &mut Vec::new()).unwrap();
}

/// Many fits in few rounds.
fn quick() -> SoftParams {
    SoftParams {
        first: 60,
        growth: 1.3,
        cold_from: 3.0,
        ..SoftParams::default()
    }
}

fn beside() -> SoftParams {
    SoftParams {
        inline: false,
        ..quick()
    }
}

fn lived(seed: u64, dim: usize, users: u64, rounds: usize, params: &SoftParams) -> SclubSoft {
    let mut life = Life::new(seed, dim, users);
    let mut policy = SclubSoft::new(dim, params).unwrap();
    for _ in 0..rounds {
        let round = life.round(1);
        learn(&mut policy, &round);
        if let Some(fit) = policy.refit() {
            policy.take_fit(&fit.compute(&Sequential)).unwrap();
        }
    }
    policy
}

fn saved(policy: &dyn Persist) -> Vec<u8> {
    let mut bytes = Vec::new();
    policy.save_to(&mut bytes).unwrap();
    bytes
}

fn params() -> impl Strategy<Value = SoftParams> {
    let switch = any::<bool>;
    (switch(), switch(), switch(), switch()).prop_map(|(inline, clusters, fades, draws)| {
        SoftParams {
            inline,
            clusters,
            half_life: fades.then_some(20.0),
            explore: if draws { Explore::Draw } else { Explore::Bonus },
            ..quick()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_same_rounds_give_the_same_digest(
        dim in 1usize..7, users in 1u64..30, rounds in 1usize..250, seed: u64, params in params(),
    ) {
        let one = lived(seed, dim, users, rounds, &params);
        let other = lived(seed, dim, users, rounds, &params);
        prop_assert_eq!(one.digest(), other.digest());
        prop_assert_eq!(saved(&one), saved(&other));
        prop_assert_eq!(one.rounds(), rounds as u64);
        let mut more = one.clone();
        learn(&mut more, &vec![]);
        prop_assert_ne!(more.digest(), one.digest());
    }

    #[test]
    fn what_is_recommended_is_what_is_explained(
        dim in 1usize..7, users in 1u64..30, rounds in 0usize..250, seed: u64, params in params(),
    ) {
        let policy = lived(seed, dim, users, rounds, &params);
        let before = policy.digest();
        let mut life = Life::new(!seed, dim, users);
        for user in [0, 1, users, 1 << 60] {
            let items = life.items();
            let mut scores = Vec::new();
            policy.explain(user, &items, &mut scores).unwrap();
            prop_assert_eq!(scores.len(), items.len());
            let top = scores.iter().map(|s| s.score).fold(f64::NEG_INFINITY, f64::max);
            let first = scores.iter().position(|s| s.score == top).unwrap();
            let expected = Decision { index: first, score: scores[first] };
            prop_assert_eq!(policy.recommend(user, &items).unwrap(), expected);
            let mut best = Vec::new();
            policy.best(user, &items, 3, &|index| index == first, &mut best).unwrap();
            let mut order: Vec<usize> = (0..scores.len()).filter(|&i| i != first).collect();
            order.sort_by(|&a, &b| scores[b].score.total_cmp(&scores[a].score));
            prop_assert_eq!(best.iter().map(|d| d.index).collect::<Vec<_>>(), &order[..3]);
            // The mean is that of the estimate.
            if policy.outlook().is_some() {
                let estimate = policy.estimate(user).unwrap();
                for (index, score) in scores.iter().enumerate() {
                    let mean: f64 = items.item(index).zip(&estimate).map(|(x, m)| x * m).sum();
                    prop_assert!((score.mean - mean).abs() < 1e-3);
                    let size = score.score.abs().max(score.mean.abs());
                    prop_assert!((score.score - score.mean - score.width).abs() <= 1e-15 * size);
                    prop_assert!(params.explore == Explore::Draw || score.width >= 0.0);
                }
            }
        }
        prop_assert_eq!(policy.digest(), before, "looking changes nothing");
    }

    #[test]
    fn what_is_saved_lives_on_to_the_bit(
        dim in 1usize..7, users in 1u64..30, before in 0usize..250, after in 1usize..120, seed: u64,
        params in params(),
    ) {
        let mut policy = lived(seed, dim, users, before, &params);
        let mut bytes = saved(&policy);
        let length = bytes.len();
        bytes.extend([7; 5]);
        let mut input = bytes.as_slice();
        let _any: Box<dyn Policy> = load_policy(&mut bytes.as_slice()).unwrap();
        let mut twin = SclubSoft::load_from(&mut input).unwrap();
        prop_assert_eq!(input, &[7; 5][..], "more was read than was written");
        prop_assert_eq!(twin.digest(), policy.digest());
        prop_assert_eq!(&saved(&twin), &bytes[..length]);
        let mut life = Life::new(!seed, dim, users + 2);
        for n in 0..after {
            let round = life.round(n % 3);
            learn(&mut policy, &round);
            learn(&mut twin, &round);
            let fits = [policy.refit(), twin.refit()].map(|fit| fit.map(|fit| fit.compute(&Sequential)));
            prop_assert_eq!(&fits[0], &fits[1]);
            if let Some(fit) = &fits[0] {
                policy.take_fit(fit).unwrap();
                twin.take_fit(fit).unwrap();
            }
            let items = life.items();
            let user = life.rng.random_range(0..users + 3);
            prop_assert_eq!(twin.recommend(user, &items), policy.recommend(user, &items));
            prop_assert_eq!(twin.digest(), policy.digest());
        }
        prop_assert_eq!(twin.forget(0), policy.forget(0));
        prop_assert_eq!(saved(&twin), saved(&policy));
    }

    #[test]
    fn beliefs_made_late_are_those_made_at_once(
        dim in 1usize..7, users in 1u64..40, seed: u64, clusters: bool,
    ) {
        let mut eager = SclubSoft::new(dim, &SoftParams { clusters, ..quick() }).unwrap();
        let mut lazy = SclubSoft::new(dim, &SoftParams { clusters, ..beside() }).unwrap();
        let mut life = Life::new(seed, dim, users);
        for _ in 0..200 {
            let round = life.round(1);
            learn(&mut eager, &round);
            learn(&mut lazy, &round);
            prop_assert!(eager.refit().is_none());
            if let Some(fit) = lazy.refit() {
                prop_assert_eq!(fit.rounds(), lazy.rounds());
                lazy.take_fit(&fit.compute(&Sequential)).unwrap();
            }
            prop_assert_eq!(lazy.outlook(), eager.outlook());
            let items = life.items();
            for user in [0, users / 2, users] {
                prop_assert_eq!(lazy.recommend(user, &items), eager.recommend(user, &items));
                prop_assert_eq!(lazy.estimate(user).unwrap(), eager.estimate(user).unwrap());
                prop_assert_eq!(lazy.placement(user), eager.placement(user));
                prop_assert_eq!(lazy.cluster_of(user), eager.cluster_of(user));
            }
        }
    }

    #[test]
    fn a_fit_taken_later_is_the_same_whoever_worked_and_can_be_replayed(
        dim in 1usize..5, users in 1u64..40, seed: u64, late in 0usize..40,
    ) {
        let mut life = Life::new(seed, dim, users);
        let mut policy = SclubSoft::new(dim, &beside()).unwrap();
        // The rounds, and the fits with the number of rounds before each was taken.
        let (mut rounds, mut fits) = (Vec::new(), Vec::new());
        let mut making = None;
        for n in 0..260 {
            let round = life.round(1 + n % 2);
            learn(&mut policy, &round);
            rounds.push(round);
            match making.take() {
                None => {
                    making = policy.refit().map(|job| {
                        let again = policy.refit().unwrap();
                        (n, job, again)
                    });
                }
                Some((since, job, again)) if n >= since + late => {
                    // What was learned meanwhile is not in it.
                    prop_assert_eq!(job.rounds(), since as u64 + 1);
                    let bytes = job.compute(&Crowd);
                    prop_assert_eq!(&again.compute(&Sequential), &bytes);
                    policy.take_fit(&bytes).unwrap();
                    prop_assert_eq!(policy.outlook().unwrap().fitted_at, since as u64 + 1);
                    fits.push((rounds.len(), bytes));
                }
                waiting => making = waiting,
            }
        }
        prop_assert!(!fits.is_empty());
        let mut replayed = SclubSoft::new(dim, &beside()).unwrap();
        let mut fits = fits.into_iter().peekable();
        for (n, round) in rounds.iter().enumerate() {
            learn(&mut replayed, round);
            if let Some((_, fit)) = fits.next_if(|(at, _)| *at == n + 1) {
                replayed.take_fit(&fit).unwrap();
            }
        }
        prop_assert_eq!(replayed.digest(), policy.digest());
        prop_assert_eq!(saved(&replayed), saved(&policy));
    }

    #[test]
    fn who_is_forgotten_is_gone_and_the_others_are_as_they_were(
        dim in 1usize..6, users in 3u64..30, rounds in 30usize..200, seed: u64, params in params(),
    ) {
        let mut policy = lived(seed, dim, users, rounds, &params);
        // One who said a single thing, which is then in the state as it is.
        let (item, reward) = (Life::new(!seed, dim, 1).vector(), 0.123_456);
        policy.learn(999, &item, reward).unwrap();
        // And one who moves into the forgotten user's slot.
        policy.learn(998, &vec![0.3; dim], 0.5).unwrap();
        let words: Vec<[u8; 8]> = item.iter().map(|x| (reward * x).to_le_bytes()).collect();
        let holds = |policy: &SclubSoft| {
            let bytes = saved(policy);
            words.iter().any(|word| bytes.chunks(8).any(|chunk| chunk == word))
        };
        prop_assert!(holds(&policy));
        let items = Life::new(seed ^ 1, dim, 1).items();
        let all = |policy: &SclubSoft| -> Vec<_> {
            (0..users)
                .chain([998])
                .map(|user| {
                    let estimate = (policy.estimate(user).unwrap(), policy.own_estimate(user));
                    (policy.count(user), estimate, policy.recommend_drawn(3, user, &items))
                })
                .collect()
        };
        let (before, number) = (all(&policy), policy.users());
        prop_assert!(policy.forget(999));
        prop_assert!(!policy.forget(999));
        prop_assert_eq!(policy.users(), number - 1);
        prop_assert_eq!(policy.count(999), None);
        prop_assert_eq!(policy.own_estimate(999), None);
        prop_assert_eq!(policy.estimate(999), policy.estimate(12_345), "as a user never seen");
        prop_assert!(!holds(&policy));
        // Before the first fit the estimate for all users is computed without the forgotten user at once.
        prop_assert!(policy.outlook().is_none() || all(&policy) == before);
        // A fit without the forgotten user is due from now on.
        if let Some(outlook) = policy.outlook() {
            if params.inline {
                learn(&mut policy, &vec![]);
                prop_assert_eq!(policy.outlook().unwrap().fits, outlook.fits + 1);
            } else {
                let fit = policy.refit().expect("due").compute(&Sequential);
                policy.take_fit(&fit).unwrap();
                prop_assert!(policy.refit().is_none());
            }
        }
        prop_assert_eq!(load_policy(&mut saved(&policy).as_slice()).unwrap().digest(), policy.digest());
    }

    #[test]
    fn a_bad_round_is_refused_whole(dim in 1usize..6, seed: u64, bad in 0usize..5, params in params()) {
        let mut policy = lived(seed, dim, 8, 80, &params);
        let before = policy.digest();
        let good = vec![0.2; dim];
        let mut item = good.clone();
        let mut reward = 0.5;
        match bad {
            0 => item[0] = f64::NAN,
            1 => item[dim - 1] = 1e13,
            2 => item.push(0.0),
            3 => reward = f64::INFINITY,
            _ => { item.pop(); }
        }
        let round = [
            Observation::new(77, &good, 1.0),
            Observation::new(1, &item, reward),
        ];
        prop_assert!(policy.learn_round(&round, &mut Vec::new()).is_err());
        prop_assert_eq!(policy.digest(), before);
        prop_assert_eq!(policy.count(77), None);
        let other = ItemSet::from_rows(dim + 1, &vec![0.1; dim + 1]).unwrap();
        let mismatch = Error::DimensionMismatch { expected: dim, got: dim + 1 };
        prop_assert_eq!(policy.recommend(1, &other), Err(mismatch));
        prop_assert_eq!(policy.recommend(1, &ItemSet::new(dim).unwrap()), Err(Error::NoCandidates));
    }
}

#[test]
fn a_fit_in_the_making_does_not_bring_the_forgotten_back() {
    // With no fit in force, and with one.
    for rounds in [0, 100] {
        let mut policy = lived(3, 3, 12, rounds, &beside());
        let mut life = Life::new(4, 3, 12);
        while policy.refit().is_none() {
            learn(&mut policy, &life.round(1));
        }
        let job = policy.refit().expect("due");
        assert!((0..12).any(|user| policy.forget(user)));
        // Refused, or taken with the next one due at once.
        if policy.take_fit(&job.compute(&Sequential)).is_ok() {
            assert!(policy.refit().is_some());
        }
    }
}

#[test]
fn when_all_are_forgotten_nothing_of_them_is_left() {
    let mut policy = lived(5, 2, 6, 200, &quick());
    for user in 0..6 {
        policy.forget(user);
    }
    assert_eq!(policy.users(), 0);
    assert_eq!(policy.estimate(3).unwrap(), [0.0, 0.0]);
    assert_eq!(policy.clusters(), 0);
}

#[test]
fn clusters_are_found_and_what_is_said_of_them_is_one_story() {
    let policy = lived(1, 4, 45, 3000, &quick());
    assert_eq!(policy.clusters(), 3);
    let outlook = policy.outlook().unwrap();
    assert!(outlook.used && outlook.gain > 0.0 && outlook.warning.is_none());
    assert_eq!(outlook.clusters, 3);
    assert_eq!(outlook.unplaced, 0.0);
    assert!(
        (outlook.noise - 0.4 * 0.4 / 12.0).abs() < 0.01,
        "{}",
        outlook.noise
    );
    let mut views = Vec::new();
    policy.each_cluster(&mut |view| views.push((view.label, view.users, view.count)));
    assert_eq!(views.iter().map(|view| view.1).sum::<u64>(), 45);
    for &(label, users, count) in &views {
        let members = policy.members(label, 100).unwrap();
        assert_eq!(members.len() as u64, users);
        assert!(members.iter().all(|user| user % 3 == members[0] % 3));
        assert_eq!(policy.members(label, 2).unwrap(), members[..2]);
        let counts: u64 = members
            .iter()
            .map(|&user| policy.count(user).unwrap())
            .sum();
        assert!(count <= counts && count > counts / 2);
        let view = policy.cluster(label).unwrap();
        let kind = (members[0] % 3) as usize;
        for (i, m) in view.estimate.iter().enumerate() {
            assert!((m - f64::from(u8::from(i == kind))).abs() < 0.05);
        }
        for &user in &members {
            assert_eq!(policy.cluster_of(user), Some(label));
            assert_eq!(policy.cluster_users(user), users);
            let placement = policy.placement(user).unwrap();
            assert_eq!(placement.places[0].label, label);
            let whole: f64 = placement.places.iter().map(|place| place.probability).sum();
            assert!((whole + placement.none - 1.0).abs() < 1e-9);
            // Posterior odds are prior odds times the likelihood ratio.
            let share: f64 = placement.places.iter().map(|place| place.share).sum();
            for place in &placement.places {
                let odds = place.share / (1.0 - share) * place.evidence.exp();
                let found = place.probability / placement.none;
                assert!(!odds.is_finite() || (found / odds - 1.0).abs() < 1e-6 || odds < 1e-290);
            }
        }
    }
    assert_eq!(policy.cluster(0), None);
    assert_eq!(policy.members(1 << 40, 3), None);
    assert_eq!(policy.cluster_of(1 << 40), policy.cluster_of(1 << 41));
}

#[test]
fn damaged_fits_and_states_are_refused_and_change_nothing() {
    let mut policy = lived(1, 2, 9, 300, &beside());
    let bytes = saved(&policy);
    let refused = |damaged: &[u8]| {
        matches!(
            load_policy(&mut &*damaged),
            Err(LoadError::State(
                Error::BadSnapshot { .. } | Error::BadParameter { .. } | Error::Dimension { .. }
            ))
        )
    };
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        assert!(refused(&damaged), "byte {at}");
        assert!(refused(&bytes[..at]), "cut at {at}");
    }
    for at in (0..bytes.len()).step_by(8) {
        for large in [u64::MAX, u64::from(u32::MAX), 1 << 40] {
            let mut damaged = bytes.clone();
            damaged[at..at + 8].copy_from_slice(&large.to_le_bytes());
            damaged[16..24].copy_from_slice(&(u64::MAX / 8).to_le_bytes());
            assert!(refused(&damaged), "word {}", at / 8);
        }
    }
    policy.forget(0);
    let fit = policy.refit().expect("due").compute(&Sequential);
    let before = policy.digest();
    let bad = |result| matches!(result, Err(Error::BadSnapshot { .. }));
    for at in 0..fit.len() {
        for bit in 0..8 {
            let mut damaged = fit.clone();
            damaged[at] ^= 1 << bit;
            assert!(bad(policy.take_fit(&damaged)), "byte {at}, bit {bit}");
        }
        assert!(bad(policy.take_fit(&fit[..at])), "cut at {at}");
    }
    assert!(bad(policy.take_fit(&[fit.as_slice(), &[0; 8]].concat())));
    assert!(bad(policy.take_fit(&bytes)), "a state is no fit");
    assert_eq!(policy.digest(), before);
    let mut other = SclubSoft::new(3, &beside()).unwrap();
    assert!(bad(other.take_fit(&fit)), "of another dimension");
    policy.take_fit(&fit).unwrap();
    assert!(SclubSoft::load_from(&mut fit.as_slice()).is_err());
}

#[test]
fn rounds_of_many_observations_are_all_learned() {
    let params = SoftParams {
        clusters: false,
        ..beside()
    };
    let mut together = SclubSoft::new(3, &params).unwrap();
    let mut apart = SclubSoft::new(3, &params).unwrap();
    let mut life = Life::new(2, 3, 7);
    for _ in 0..100 {
        // The same user may be there twice; a round may be empty.
        let count = life.rng.random_range(0..5);
        let round = life.round(count);
        learn(&mut together, &round);
        for one in round {
            learn(&mut apart, &vec![one]);
        }
    }
    assert_eq!(together.rounds(), 100);
    for policy in [&mut together, &mut apart] {
        let fit = policy.refit().unwrap().compute(&Sequential);
        policy.take_fit(&fit).unwrap();
    }
    for user in 0..8 {
        assert_eq!(together.count(user), apart.count(user));
        assert_eq!(
            together.estimate(user).unwrap(),
            apart.estimate(user).unwrap()
        );
    }
}
