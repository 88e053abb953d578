//! DynUCB.

use proptest::prelude::*;
use sclub::{Observation, Users, Value};

use crate::common::*;
use crate::naive::{Sums, assert_close, distance};

const BETA: (&str, Value) = ("beta", Value::Number(0.4));
const NORM: (&str, Value) = ("index", Value::Choice("norm"));

fn with_clusters(clusters: f64) -> [(&'static str, Value); 3] {
    [BETA, NORM, ("clusters", number(clusters))]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]

    #[test]
    fn one_cluster_is_linucb_one(seed: u64, index in prop::sample::select(vec!["norm", "squared"])) {
        let index = ("index", Value::Choice(index));
        let mut policy = make("dynucb", &[BETA, index, ("clusters", number(1.0))]);
        let mut one = make("linucb-one", &[BETA, index]);
        assert_same(&mut *policy, &mut *one, &rounds(seed, 3, 300), 0.0);
    }

    #[test]
    fn as_many_clusters_as_users_is_linucb_ind(seed: u64, more in 0u64..3) {
        let mut policy = make("dynucb", &with_clusters((USERS + more) as f64));
        let mut ind = make("linucb-ind", &[BETA, NORM]);
        let mut rounds = rounds(seed, 3, 300);
        // Equal estimates of 0 at first: a tie between many users.
        for round in &mut rounds[..60] {
            round.means.fill(0.0);
            round.noise = 0.0;
        }
        assert_same(&mut *policy, &mut *ind, &rounds, 0.0);
        prop_assert_eq!(policy.clusters() as u64, USERS);
    }

    /// A transcription that keeps the history only: sums and centroids are made anew in every round.
    #[test]
    fn users_move_as_in_a_naive_transcription(seed: u64, clusters in 2usize..5, is_stale: bool) {
        let users = if seed % 2 == 0 { Users::Appear } else { Users::Declared(USERS) };
        let mut constants = with_clusters(clusters as f64).to_vec();
        constants.push(("centroids", Value::Choice(if is_stale { "stale" } else { "fresh" })));
        let mut policy = make_for("dynucb", DIM, users, &constants);
        let mut history: Vec<(u64, Vec<f64>, f64)> = Vec::new();
        let mut labels = vec![None; USERS as usize];
        let mut centroids: Vec<Vec<f64>> = Vec::new();
        let mut moves = 0;
        for round in rounds(seed, 3, 200) {
            let decision = round.play(&mut *policy);
            history.push((round.user, round.features(decision.index), round.reward(decision.index)));
            let of = |chosen: &dyn Fn(u64) -> bool| {
                let some = history.iter().filter(|(user, ..)| chosen(*user));
                Sums::of(DIM, some.map(|(_, item, reward)| (item.as_slice(), *reward))).estimate()
            };
            let user = round.user as usize;
            let founded = centroids.len();
            if labels[user].is_none() {
                // Where a newcomer begins cannot be known from outside once the clusters are founded, so they
                // are found by the next comparison.
                if centroids.len() < clusters {
                    labels[user] = Some(centroids.len());
                    centroids.push(vec![0.0; DIM]);
                } else {
                    labels[user] = Some(policy.cluster_of(round.user).unwrap() as usize - 1);
                }
            }
            let recentre = |labels: &[Option<usize>], centroids: &mut [Vec<f64>]| {
                for (label, centroid) in centroids.iter_mut().enumerate() {
                    let members: Vec<u64> = (0..USERS).filter(|&u| labels[u as usize] == Some(label)).collect();
                    if members.is_empty() { continue; }
                    centroid.fill(0.0);
                    for &member in &members {
                        let estimate = of(&|user| user == member);
                        for (sum, x) in centroid.iter_mut().zip(estimate) { *sum += x / members.len() as f64; }
                    }
                }
            };
            if !is_stale || centroids.len() > founded {
                recentre(&labels, &mut centroids);
            }
            let own = of(&|user| user == round.user);
            let from = labels[user].unwrap();
            let mut nearest = from;
            for label in 0..centroids.len() {
                if distance(&own, &centroids[label]) < distance(&own, &centroids[nearest]) - 1e-12 { nearest = label; }
            }
            prop_assert_eq!(policy.cluster_of(round.user), Some(nearest as u64 + 1));
            moves += usize::from(nearest != from);
            labels[user] = Some(nearest);
            recentre(&labels, &mut centroids);
            // The sums of a cluster are those of its users, whoever has come and gone.
            for label in 0..centroids.len() {
                if let Some(member) = (0..USERS).find(|&u| labels[u as usize] == Some(label)) {
                    let all = of(&|user| labels[user as usize] == Some(label));
                    assert_close(&policy.estimate(member).unwrap(), &all);
                }
            }
        }
        // Of two clusters both may suit their users from the start.
        prop_assert!(moves > 0 || clusters == 2);
    }

    #[test]
    fn the_same_history_gives_the_same_state(seed: u64) {
        let rounds = rounds(seed, 3, 150);
        let (mut one, mut other) = (make("dynucb", &[]), make("dynucb", &[]));
        for (number, round) in rounds.iter().enumerate() {
            let (a, b) = (one.digest(), round.play(&mut *one));
            prop_assert_eq!((a, b), (other.digest(), round.play(&mut *other)), "round {}", number);
            prop_assert_ne!(one.digest(), a);
        }
    }
}

#[test]
fn it_learns() {
    let (regret, random) = regrets(
        &mut *make("dynucb", &with_clusters(3.0)),
        &rounds(1, 3, 2000),
    );
    assert!(
        (0.0..random / 4.0).contains(&regret),
        "{regret} of {random}"
    );
}

#[test]
fn several_users_of_one_round_are_moved_after_all_are_learned() {
    let mut policy = make("dynucb", &with_clusters(2.0));
    let rounds = rounds(3, 2, 40);
    for pair in rounds.chunks_exact(2) {
        let items: Vec<Vec<f64>> = pair.iter().map(|round| round.features(0)).collect();
        let both: Vec<Observation<'_>> = pair
            .iter()
            .zip(&items)
            .map(|(round, item)| Observation::new(round.user, item, round.reward(0)))
            .collect();
        policy.learn_round(&both, &mut Vec::new()).expect("valid");
    }
    assert_eq!(policy.rounds(), 20);
    assert!((0..USERS).all(|user| {
        policy
            .cluster_of(user)
            .is_none_or(|id| (1..=2).contains(&id))
    }));
}
