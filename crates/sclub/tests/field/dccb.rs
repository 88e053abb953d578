//! `dccb`: one agent, agents that never part, and agents that do.

use proptest::prelude::*;
use sclub::{Users, Value};

use crate::common::*;

fn alpha(value: f64) -> [(&'static str, Value); 1] {
    [("alpha_theta", number(value))]
}

/// The smallest k with 2^k ≥ count^4.
fn limit(count: usize) -> usize {
    (0..)
        .find(|&k| (1u128 << k) >= (count as u128).pow(4))
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..Default::default() })]

    /// A single agent has everything but the last 4 log2 T observations.
    #[test]
    fn one_agent_is_linucb_delayed(seed: u64) {
        let mut policy = make_for("dccb", DIM, Users::Appear, &[]);
        let (mut seen, mut known) = (Vec::new(), 0);
        for round in rounds_of(seed, 1, DIM, 1, 120) {
            let index = round.play(&mut *policy).index;
            seen.push((round.features(index), round.reward(index)));
            // An entry that has left the buffer does not come back when the limit grows.
            known = known.max(seen.len().saturating_sub(limit(seen.len())));
            let expected = ridge(DIM, seen[..known].iter().map(|(item, reward)| (item.as_slice(), *reward)));
            for (a, b) in policy.estimate(0).unwrap().iter().zip(&expected) {
                prop_assert!((a - b).abs() < 1e-9);
            }
        }
        prop_assert_eq!(policy.messages().unwrap().sent, 0);
    }

    /// Agents that part from all they meet are LinUCB on their own observations in the end.
    #[test]
    fn agents_apart_know_their_own(seed: u64) {
        let mut policy = make("dccb", &alpha(1e-12));
        let mut seen = Vec::new();
        let rounds = rounds(seed, 3, 400);
        for round in &rounds {
            let index = round.play(&mut *policy).index;
            seen.push((round.user, round.features(index), round.reward(index)));
        }
        prop_assert_eq!(policy.clusters(), USERS as usize);
        for user in 0..USERS {
            let own: Vec<_> = seen.iter().filter(|(u, ..)| *u == user).collect();
            // All but those that are still in the buffer.
            let late = limit(own.len());
            let got = policy.estimate(user).unwrap();
            let is_some = (own.len().saturating_sub(late)..=own.len()).any(|known| {
                let expected = ridge(DIM, own[..known].iter().map(|(_, item, reward)| (item.as_slice(), *reward)));
                got.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-9)
            });
            prop_assert!(is_some, "user {}", user);
        }
    }
}

/// Agents that never part come to the same estimate, that of one model for all.
#[test]
fn agents_together_agree() {
    let mut policy = make("dccb", &alpha(1e9));
    let mut one = make("linucb-one", &[]);
    for round in rounds(3, 1, 6000) {
        let index = round.play(&mut *policy).index;
        one.learn(round.user, &round.features(index), round.reward(index))
            .unwrap();
    }
    let expected = one.estimate(0).unwrap();
    for user in 0..USERS {
        for (a, b) in policy.estimate(user).unwrap().iter().zip(&expected) {
            assert!((a - b).abs() < 0.02, "user {user}: {a} {b}");
        }
    }
    assert_eq!(policy.clusters(), 1);
    // Two short messages a round, and two with the buffers.
    assert_eq!(policy.messages().unwrap().sent, 4 * 5999);
}

#[test]
fn it_learns_and_replays() {
    let rounds = rounds(2, 3, 3000);
    let (mut policy, mut again) = (make("dccb", &[]), make("dccb", &[]));
    let (regret, random) = regrets(&mut *policy, &rounds);
    assert!(
        regret > 0.0 && regret < random / 3.0,
        "{regret} of {random}"
    );
    regrets(&mut *again, &rounds);
    assert_eq!(policy.digest(), again.digest());
}
