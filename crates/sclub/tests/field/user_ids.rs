//! In the tests' worlds and the lab's, the cluster of a user is the id modulo a number. No policy may gain by that.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub::{UserId, Users};

use super::common::{Round, make_for, regrets, rounds_of};

const USERS: u64 = 40;
const FEATURES: usize = 4;
const CLUSTERS: u64 = 5;

/// The rounds with users shuffled among the declared ids.
fn shuffled(rounds: &[Round], seed: u64) -> Vec<Round> {
    let mut ids: Vec<UserId> = (0..USERS).collect();
    ids.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    let rename = |round: &Round| Round {
        user: ids[round.user as usize],
        ..round.clone()
    };
    rounds.iter().map(rename).collect()
}

/// Regret may differ a little: sums are in another order, and draws are of other users.
#[test]
fn ids_of_declared_users_tell_no_policy_their_clusters() {
    for spec in sclub::registry() {
        let (mut plain, mut other) = (0.0, 0.0);
        for seed in 1..=4 {
            let rounds = rounds_of(seed, USERS, FEATURES, CLUSTERS, 1000);
            let regret = |rounds: &[Round]| {
                let mut policy = make_for(spec.name, FEATURES, Users::Declared(USERS), &[]);
                regrets(&mut *policy, rounds).0
            };
            plain += regret(&rounds);
            other += regret(&shuffled(&rounds, seed));
        }
        let ratio = plain / other;
        assert!(
            (0.99..1.01).contains(&ratio),
            "{}: {plain} and {other}",
            spec.name
        );
    }
}
