//! RCLUMB.

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub::{Club, Graph, ItemSet, Observation, Params, Policy, Score, Users, Value, radius};

use crate::common::{DIM, USERS, assert_same, make, make_for, number, rounds};
use crate::graphs::{self, Naive, dot, times};

#[test]
fn it_learns() {
    graphs::learns("rclumb", &[], 0.3);
}

#[test]
fn names_do_not_matter() {
    graphs::ignores_names("rclumb", &[]);
}

/// True if each user is connected to all users of their component.
fn is_union_of_cliques(club: &Club) -> bool {
    let size = |user| (0..USERS).filter(move |&u| club.cluster_of(u) == club.cluster_of(user));
    (0..USERS).all(|user| club.neighbours(user).len() + 1 == size(user).count())
}

/// Without an error, where the graph is a union of cliques, it is CLUB.
#[test]
fn without_error_on_cliques_it_is_club() {
    let mut parted = 0;
    for seed in 0..16 {
        let alpha = 0.3 + 0.05 * seed as f64;
        let given = [("alpha_theta", number(alpha)), ("error", number(0.0))];
        let mut policy = make("rclumb", &given);
        let params = Params {
            alpha_theta: alpha,
            ..Params::tuned()
        };
        let mut club = Club::new(DIM, Users::Declared(USERS), Graph::Complete, &params).unwrap();
        for round in rounds(seed, 1 + seed % 3, 800) {
            let shown = club.recommend(round.user, &round.items).unwrap();
            if is_union_of_cliques(&club) {
                let other = policy.recommend(round.user, &round.items).unwrap();
                assert_eq!(other.index, shown.index);
                assert!((other.score.score - shown.score.score).abs() < 1e-9);
                parted += u32::from(club.clusters() > 1);
            }
            let (item, reward) = (round.features(shown.index), round.reward(shown.index));
            club.learn(round.user, &item, reward).unwrap();
            policy.learn(round.user, &item, reward).unwrap();
        }
    }
    assert!(parted > 100, "{parted}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_large_radius_makes_it_linucb_one(seed: u64, clusters in 1u64..4) {
        let given = [("alpha_theta", number(1e9)), ("error", number(0.0))];
        let one = &mut *make("linucb-one", &[]);
        assert_same(&mut *make("rclumb", &given), one, &rounds(seed, clusters, 400), 1e-9);
    }

    #[test]
    fn no_radius_makes_it_linucb_ind(seed: u64, clusters in 1u64..4) {
        let given = [("alpha_theta", number(0.0)), ("error", number(0.0))];
        let ind = &mut *make("linucb-ind", &[]);
        assert_same(&mut *make("rclumb", &given), ind, &rounds(seed, clusters, 400), 1e-9);
    }

    /// Neighbours, estimate and both forms of the bonus are those of a plain transcription; the bonus is at
    /// most its bound, which is at most error √N ‖x‖.
    #[test]
    fn scores_are_those_of_a_plain_transcription(seed: u64, clusters in 1u64..4, error in 0.01f64..0.5, alpha in 0.1f64..1.0) {
        const ITEMS: usize = 9;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let rows: Vec<f64> = (0..ITEMS * DIM).map(|_| rng.random_range(-1.0..1.0)).collect();
        let mut items = ItemSet::from_rows(DIM, &rows).unwrap();
        let ids: Vec<u64> = (0..ITEMS as u64).map(|id| id * id + 40).collect();
        items.set_ids(&ids).unwrap();
        let with = |history| {
            let given = [
                ("error", number(error)), ("alpha_error", number(0.3)), ("alpha_theta", number(alpha)),
                ("beta", number(0.7)), ("history", Value::Choice(history)),
            ];
            make_for("rclumb", DIM, Users::Appear, &given)
        };
        let (mut exact, mut bound, mut naive) = (with("items"), with("bound"), Naive::new());
        let mut history: Vec<(usize, usize)> = Vec::new();
        for _ in 0..rng.random_range(0..300) {
            let (user, index) = (rng.random_range(0..USERS), rng.random_range(0..ITEMS));
            let item: Vec<f64> = items.item(index).collect();
            let reward = item[(user % clusters) as usize] + rng.random_range(-0.1..0.1);
            let observation = Observation { id: Some(ids[index]), ..Observation::new(user, &item, reward) };
            exact.learn_round(&[observation], &mut Vec::new()).unwrap();
            bound.learn_round(&[observation], &mut Vec::new()).unwrap();
            naive.observe(user, &item, reward);
            naive.set_edges(user, |naive, i, j| {
                let (a, b) = (naive.estimate(1.0, &[i]), naive.estimate(1.0, &[j]));
                let gap: f64 = a.iter().zip(&b).map(|(a, b)| (a - b) * (a - b)).sum();
                let reach = radius(naive.counts[i]) + radius(naive.counts[j]);
                naive.edges[i][j] && gap.sqrt() <= alpha * reach + 0.3 * error
            });
            history.push((user as usize, index));
        }
        let all = |policy: &dyn Policy, user| -> Vec<Score> {
            let mut scores = Vec::new();
            policy.explain(user, &items, &mut scores).unwrap();
            scores
        };
        for user in 0..USERS + 1 {
            let members = naive.members(user);
            let past = || history.iter().filter(|(u, _)| members.contains(u)).map(|&(_, i)| &rows[i * DIM..][..DIM]);
            let (inverse, moment) = naive.pool(1.0, &members);
            let estimate = times(&inverse, &moment);
            let (exact, bound) = (all(&*exact, user), all(&*bound, user));
            for (i, x) in rows.chunks_exact(DIM).enumerate() {
                let image = times(&inverse, x);
                let norm = dot(&image, x).sqrt();
                prop_assert!((exact[i].mean - dot(&estimate, x)).abs() < 1e-9);
                let sum: f64 = past().map(|e| dot(&image, e).abs()).sum();
                let squares: f64 = past().map(|e| dot(&image, e).powi(2)).sum();
                let count = past().count() as f64;
                let (one, other) = (exact[i].width - 0.7 * norm, bound[i].width - 0.7 * norm);
                prop_assert!((one - error * sum).abs() < 1e-8, "{} {}", one, error * sum);
                prop_assert!((other - error * (count * squares).sqrt()).abs() < 1e-6, "{other}");
                prop_assert!(one <= other + 1e-6 && other <= error * count.sqrt() * norm + 1e-6);
            }
        }
    }
}

/// After an observation without an id the bound is used.
#[test]
fn an_item_without_an_id_makes_it_use_the_bound() {
    let history = |name| make("rclumb", &[("history", Value::Choice(name))]);
    let (mut exact, mut bound) = (history("items"), history("bound"));
    let items = ItemSet::from_rows(DIM, &[1.0, 0.0, 0.0, 0.0, 0.0, 0.6, 0.8, 0.0]).unwrap();
    let mut learn = |id| {
        for policy in [&mut exact, &mut bound] {
            let observation = Observation {
                id,
                ..Observation::new(3, &[0.6, 0.8, 0.0, 0.0], 1.0)
            };
            policy.learn_round(&[observation], &mut Vec::new()).unwrap();
        }
        let width = |policy: &dyn Policy| {
            let mut scores = Vec::new();
            policy.explain(3, &items, &mut scores).unwrap();
            scores[0].width
        };
        (width(&*exact), width(&*bound))
    };
    learn(Some(1));
    let (exact, bound) = learn(Some(2));
    assert!(exact <= bound + 1e-12, "{exact} {bound}");
    let (exact, bound) = learn(None);
    assert_eq!(exact, bound);
}
