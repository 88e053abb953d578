//! UniCLUB and UniSCLUB against CLUB and SCLUB on the same history.

use proptest::prelude::*;
use sclub::{Policy, Users, Value};

use crate::common::*;

const PAIRS: [(&str, &str); 2] = [("uniclub", "club"), ("unisclub", "sclub")];

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..Default::default() })]

    #[test]
    fn without_exploring_it_is_the_base(seed: u64, clusters in 1u64..4, is_declared: bool, is_global: bool) {
        let rounds = rounds(seed, clusters, 300);
        let users = if is_declared { Users::Declared(USERS) } else { Users::Appear };
        for (name, base) in PAIRS {
            let explore = if is_global { "explore_global" } else { "explore_rounds" };
            let mut one = make_for(name, DIM, users, &[(explore, number(0.0))]);
            let mut base = make_for(base, DIM, users, &[]);
            assert_same(&mut *one, &mut *base, &rounds, 0.0);
            for user in 0..=USERS {
                prop_assert_eq!(one.estimate(user), base.estimate(user));
                prop_assert_eq!(one.cluster_of(user), base.cluster_of(user));
            }
        }
    }

    /// Random rounds are learned too: afterwards the policy is the base, fed with the same history.
    #[test]
    fn after_exploring_it_is_the_base_on_the_same_history(seed: u64, explore in 1u64..8, is_global: bool) {
        for (name, base) in PAIRS {
            let constant = if is_global { "explore_global" } else { "explore_rounds" };
            let mut one = make(name, &[(constant, number(explore as f64))]);
            let mut base = make(base, &[]);
            let (mut seen, mut random, mut differ) = ([0; USERS as usize], 0, 0);
            for (at, round) in rounds(seed, 3, 200).iter().enumerate() {
                let shown = one.recommend(round.user, &round.items).unwrap();
                let expected = base.recommend(round.user, &round.items).unwrap();
                let count = &mut seen[round.user as usize];
                let is_random = if is_global { (at as u64) < explore } else { *count < explore };
                random += u64::from(is_random);
                match is_random {
                    true => differ += u64::from(shown != expected),
                    false => prop_assert_eq!(shown, expected),
                }
                *count += 1;
                let (item, reward) = (round.features(shown.index), round.reward(shown.index));
                let changes = one.learn(round.user, &item, reward).unwrap();
                prop_assert_eq!(changes, base.learn(round.user, &item, reward).unwrap());
            }
            prop_assert_eq!(differ, random, "every random round has random scores");
        }
    }
}

#[test]
fn exploring_for_ever_is_uniform() {
    for (name, _) in PAIRS {
        let mut policy = make(name, &[("explore_rounds", number(1e15))]);
        let mut shown = [0.0; CANDIDATES];
        const ROUNDS: usize = 6000;
        for round in rounds(7, 3, ROUNDS) {
            shown[round.play(&mut *policy).index] += 1.0;
        }
        // χ² with 5 degrees of freedom is above 25.7 in one of 10,000 cases.
        let expected = ROUNDS as f64 / CANDIDATES as f64;
        let chi = shown.map(|n: f64| (n - expected) * (n - expected) / expected);
        assert!(chi.iter().sum::<f64>() < 25.7, "{name} {shown:?}");
    }
}

/// A user who comes late explores too, and a list is in order of the random scores.
#[test]
fn a_newcomer_explores() {
    for (name, base) in PAIRS {
        let given = [("explore_rounds", number(2.0))];
        let mut policy = make_for(name, DIM, Users::Appear, &given);
        let mut plain = make_for(base, DIM, Users::Appear, &[]);
        let all = rounds(3, 2, 100);
        for round in &all {
            let item = round.features(0);
            for policy in [&mut policy, &mut plain] {
                policy.learn(round.user, &item, round.reward(0)).unwrap();
            }
        }
        let items = &all[0].items;
        for visit in 0..4 {
            let shown = policy.recommend(99, items).unwrap();
            let is_random = shown != plain.recommend(99, items).unwrap();
            assert_eq!(is_random, visit < 2, "{name} {visit}");
            let mut list = Vec::new();
            policy.best(99, items, 3, &|_| false, &mut list).unwrap();
            assert_eq!(list[0], shown);
            for policy in [&mut policy, &mut plain] {
                policy
                    .learn(99, &all[0].features(shown.index), 0.5)
                    .unwrap();
            }
        }
    }
}

#[test]
fn draws_depend_on_seed_visit_and_user() {
    let choices = |policy: &dyn Policy, user| -> Vec<usize> {
        let all = rounds(1, 1, 30);
        all.iter()
            .map(|round| policy.recommend(user, &round.items).unwrap().index)
            .collect()
    };
    let mut policy = make("uniclub", &[]);
    let first = choices(&*policy, 1);
    // One user's choice is the same position in every set: a key gives the same numbers.
    assert!(first.iter().all(|&index| index == first[0]));
    let mut seen = vec![first[0]];
    for _ in 0..4 {
        policy.learn(1, &[0.5; DIM], 0.5).unwrap();
        seen.push(choices(&*policy, 1)[0]);
    }
    assert!(seen.iter().any(|&index| index != seen[0]), "{seen:?}");
    let others: Vec<usize> = (2..8)
        .map(|user| {
            let index = choices(&*policy, user)[0];
            policy.learn(user, &[0.5; DIM], 0.5).unwrap();
            index
        })
        .collect();
    assert!(others.iter().any(|&index| index != others[0]), "{others:?}");
}

#[test]
fn only_one_form_of_exploring_is_given() {
    let spec = sclub::find_policy("uniclub").unwrap();
    let given = [
        ("explore_rounds", Value::Number(1.0)),
        ("explore_global", Value::Number(1.0)),
    ];
    let setup = sclub::Setup::new(DIM);
    assert!(spec.values(spec.presets[0], &given, &setup).is_err());
}

#[test]
fn it_is_sound() {
    for (name, _) in PAIRS {
        assert_sound(name, &[]);
    }
}
