//! CAB.

use proptest::prelude::*;
use sclub::{ItemSet, Users, Value};

use crate::common::*;
use crate::naive::{Sums, assert_close, distance, dot};

const BETA: (&str, Value) = ("beta", Value::Number(0.4));
const NORM: (&str, Value) = ("index", Value::Choice("norm"));

/// Opinions of other users are in single precision: about items and estimates of length 1 they are right up to this.
const SINGLE: f64 = 1e-6;

fn assert_close_in_single(a: &[f64], b: &[f64]) {
    assert!(distance(a, b) < SINGLE, "{a:?} and {b:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]

    #[test]
    fn one_user_is_linucb_ind(seed: u64, gamma in 0.0f64..4.0, index in prop::sample::select(vec!["norm", "squared"])) {
        let index = ("index", Value::Choice(index));
        let mut policy = make_for("cab", DIM, Users::Declared(1), &[BETA, index, ("gamma", number(gamma))]);
        let mut ind = make("linucb-ind", &[BETA, index]);
        assert_same(&mut *policy, &mut *ind, &rounds_of(seed, 1, DIM, 1, 200), 0.0);
    }

    #[test]
    fn without_gamma_users_learn_alone(seed: u64) {
        let mut policy = make("cab", &[("gamma", number(0.0))]);
        let mut ind = make("linucb-ind", &[]);
        for round in rounds(seed, 3, 200) {
            let shown = round.play(&mut *policy).index;
            ind.learn(round.user, &round.features(shown), round.reward(shown)).unwrap();
            prop_assert_eq!(policy.estimate(round.user), ind.estimate(round.user));
        }
        for user in 0..USERS {
            prop_assert_eq!(policy.estimate(user), ind.estimate(user));
        }
    }

    #[test]
    fn without_limits_all_learn_everything(seed: u64) {
        let mut policy = make("cab", &[("beta", number(1e6)), ("gamma", number(1e12))]);
        let mut one = make("linucb-one", &[]);
        for round in rounds(seed, 3, 200) {
            let shown = round.play(&mut *policy).index;
            one.learn(round.user, &round.features(shown), round.reward(shown)).unwrap();
            for user in 0..USERS {
                prop_assert_eq!(policy.estimate(user), one.estimate(user));
            }
        }
    }

    /// The steps one by one, on sums that are solved anew each time.
    #[test]
    fn scores_are_those_of_a_naive_transcription(seed: u64, gamma in prop::sample::select(vec![0.0, 0.5, 1.0, 2.0]), alpha in prop::sample::select(vec![0.1, 0.3])) {
        let declares = seed % 2 == 0;
        let users = if declares { Users::Declared(USERS) } else { Users::Appear };
        let mut policy = make_for("cab", DIM, users, &[("alpha", number(alpha)), NORM, ("gamma", number(gamma))]);
        let mut sums: Vec<Option<Sums>> = vec![declares.then(|| Sums::new(DIM)); USERS as usize];
        let (mut strangers, mut pupils) = (0, 0);
        for (number, round) in rounds(seed, 3, 150).iter().enumerate() {
            let weight = alpha * (number as f64 + 2.0).ln().sqrt();
            let user = round.user as usize;
            let judge = |sums: &Sums, item: &[f64]| (dot(&sums.estimate(), item), weight * sums.norm(item));
            // Neighbours with their means and widths.
            let neighbours = |sums: &[Option<Sums>], item: &[f64]| {
                let (mean, width) = judge(&sums[user].clone().unwrap_or_else(|| Sums::new(DIM)), item);
                let mut found = vec![(user, mean, width)];
                for (other, theirs) in sums.iter().enumerate().filter(|(other, _)| *other != user) {
                    let Some(theirs) = theirs else { continue };
                    let (their_mean, their_width) = judge(theirs, item);
                    if (mean - their_mean).abs() <= width + their_width {
                        found.push((other, their_mean, their_width));
                    }
                }
                found
            };
            // In double precision it cannot be told whether such a user is a neighbour.
            let is_borderline = |sums: &[Option<Sums>], item: &[f64]| {
                let (mean, width) = judge(&sums[user].clone().unwrap_or_else(|| Sums::new(DIM)), item);
                sums.iter().flatten().any(|theirs| {
                    let (their_mean, their_width) = judge(theirs, item);
                    let gap = (mean - their_mean).abs();
                    (gap - width - their_width).abs() < SINGLE || (their_width - gamma / 4.0).abs() < SINGLE
                })
            };
            if (0..CANDIDATES).any(|index| is_borderline(&sums, &round.features(index))) {
                return Ok(());
            }
            let known = sums.iter().flatten().count();
            let expected: Vec<f64> = (0..CANDIDATES)
                .map(|index| {
                    let found = neighbours(&sums, &round.features(index));
                    strangers += usize::from(found.len() < known);
                    found.iter().map(|(_, mean, width)| mean + width).sum::<f64>() / found.len() as f64
                })
                .collect();
            let mut scores = Vec::new();
            policy.explain(round.user, &round.items, &mut scores).unwrap();
            let scores: Vec<f64> = scores.iter().map(|score| score.score).collect();
            assert_close_in_single(&scores, &expected);

            let shown = round.play(&mut *policy).index;
            let (item, reward) = (round.features(shown), round.reward(shown));
            let found = neighbours(&sums, &item);
            sums[user].get_or_insert_with(|| Sums::new(DIM)).observe(&item, reward);
            if found[0].2 < gamma / 4.0 {
                for &(other, _, width) in &found[1..] {
                    if width < gamma / 4.0 {
                        pupils += 1;
                        sums[other].as_mut().unwrap().observe(&item, reward);
                    }
                }
            }
        }
        // With a large γ all users are sure from the start, learn the first reward together and stay alike.
        prop_assert!(strangers > 0 || gamma > 0.0 || alpha > 0.1, "all are neighbours for ever");
        prop_assert!(pupils > 0 || gamma < 2.0, "users learn alone");
        for (user, sums) in sums.iter().enumerate() {
            if let Some(sums) = sums {
                assert_close(&policy.estimate(user as u64).unwrap(), &sums.estimate());
            }
        }
    }

    #[test]
    fn widths_only_fall(seed: u64, gamma in 0.0f64..4.0) {
        // Widths of one user: no other exists.
        let mut policy = make_for("cab", DIM, Users::Declared(1), &[BETA, NORM, ("gamma", number(gamma))]);
        let rounds = rounds_of(seed, 1, DIM, 1, 100);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        policy.explain(0, &rounds[0].items, &mut before).unwrap();
        for round in &rounds {
            round.play(&mut *policy);
            policy.explain(0, &rounds[0].items, &mut after).unwrap();
            prop_assert!(before.iter().zip(&after).all(|(b, a)| a.width <= b.width + 1e-12));
            std::mem::swap(&mut before, &mut after);
        }
    }

    /// Two users with the same history have the score of either alone: each is the other's neighbour for every item.
    #[test]
    fn identical_users_are_neighbours(seed: u64) {
        let given = [BETA, NORM, ("gamma", number(0.0))];
        let mut policy = make_for("cab", DIM, Users::Declared(2), &given);
        let mut ind = make("linucb-ind", &[BETA, NORM]);
        for round in rounds_of(seed, 1, DIM, 1, 60) {
            let own = ind.recommend(0, &round.items).unwrap();
            let mut scores = Vec::new();
            for user in 0..2 {
                policy.explain(user, &round.items, &mut scores).unwrap();
                let shown = scores[own.index];
                assert_close_in_single(&[shown.mean, shown.width], &[own.score.mean, own.score.width]);
            }
            let (item, reward) = (round.features(own.index), round.reward(own.index));
            ind.learn(0, &item, reward).unwrap();
            for user in 0..2 {
                policy.learn(user, &item, reward).unwrap();
            }
        }
    }

    #[test]
    fn names_of_users_do_not_matter(seed: u64) {
        let (mut one, mut other) = (make("cab", &[("gamma", number(1.0))]), make("cab", &[("gamma", number(1.0))]));
        for mut round in rounds(seed, 3, 150) {
            let shown = round.play(&mut *one);
            round.user = USERS - 1 - round.user;
            let again = round.play(&mut *other);
            prop_assert_eq!(shown.index, again.index);
            prop_assert!((shown.score.score - again.score.score).abs() < 1e-12);
        }
    }

    #[test]
    fn the_same_history_gives_the_same_state(seed: u64) {
        let rounds = rounds(seed, 3, 150);
        let (mut one, mut other) = (make("cab", &[]), make("cab", &[]));
        for (number, round) in rounds.iter().enumerate() {
            let (a, b) = (one.digest(), round.play(&mut *one));
            prop_assert_eq!((a, b), (other.digest(), round.play(&mut *other)), "round {}", number);
            prop_assert_ne!(one.digest(), a);
        }
    }

    /// Items are ruled out by a bound: the choice must be that of the full scan.
    #[test]
    fn the_choice_is_that_of_all_scores(seed: u64, count in 1usize..90) {
        let mut policy = make("cab", &[("gamma", number(1.0))]);
        let rounds = rounds(seed, 3, 120);
        let rows: Vec<f64> = rounds.iter().flat_map(|round| round.features(0)).take(count * DIM).collect();
        let items = ItemSet::from_rows(DIM, &rows).unwrap();
        for round in rounds {
            round.play(&mut *policy);
            let mut scores = Vec::new();
            policy.explain(round.user, &items, &mut scores).unwrap();
            let shown = policy.recommend(round.user, &items).unwrap();
            prop_assert_eq!(shown.score, scores[shown.index]);
            let best = scores.iter().position(|score| score.score >= shown.score.score);
            prop_assert_eq!(best, Some(shown.index));
        }
    }
}

#[test]
fn it_learns() {
    let (regret, random) = regrets(&mut *make("cab", &[]), &rounds(1, 3, 2000));
    assert!(
        (0.0..random / 4.0).contains(&regret),
        "{regret} of {random}"
    );
}

/// Items are ruled out by bounds on the widths of all users. Here every width of every user is solved anew.
#[test]
fn choices_are_those_of_a_plain_version() {
    const MANY: u64 = 70;
    let mut strangers = 0;
    for (seed, index, gamma) in [
        (1, "norm", 0.0),
        (2, "norm", 0.6),
        (3, "squared", 0.0),
        (4, "squared", 0.2),
    ] {
        let given = [
            ("alpha", number(0.1)),
            ("index", Value::Choice(index)),
            ("gamma", number(gamma)),
        ];
        let mut policy = make_for("cab", DIM, Users::Declared(MANY), &given);
        let mut sums = vec![Sums::new(DIM); MANY as usize];
        for (number, round) in rounds_of(seed, MANY, DIM, 3, 500).iter().enumerate() {
            let (user, weight) = (round.user as usize, 0.1 * (number as f64 + 2.0).ln().sqrt());
            let opinions = |item: &[f64]| -> Vec<(f64, f64)> {
                let width = |sums: &Sums| match index {
                    "norm" => weight * sums.norm(item),
                    _ => weight * sums.norm(item).powi(2),
                };
                let all = sums.iter();
                all.map(|sums| (dot(&sums.estimate(), item), width(sums)))
                    .collect()
            };
            let is_neighbour = |all: &[(f64, f64)], other: usize| {
                (all[user].0 - all[other].0).abs() <= all[user].1 + all[other].1
            };
            let scores: Vec<f64> = (0..CANDIDATES)
                .map(|candidate| {
                    let all = opinions(&round.features(candidate));
                    let found = (0..all.len()).filter(|&other| is_neighbour(&all, other));
                    let found: Vec<f64> = found.map(|other| all[other].0 + all[other].1).collect();
                    strangers += all.len() - found.len();
                    found.iter().sum::<f64>() / found.len() as f64
                })
                .collect();
            let mut order: Vec<usize> = (0..CANDIDATES).filter(|&item| item != 1).collect();
            order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
            let mut best = Vec::new();
            policy
                .best(round.user, &round.items, 3, &|item| item == 1, &mut best)
                .unwrap();
            let chosen: Vec<f64> = best.iter().map(|decision| scores[decision.index]).collect();
            let expected: Vec<f64> = order[..3].iter().map(|&item| scores[item]).collect();
            assert_close_in_single(&chosen, &expected);
            let reported: Vec<f64> = best.iter().map(|decision| decision.score.score).collect();
            assert_close_in_single(&reported, &expected);

            let best = scores.iter().copied().fold(f64::MIN, f64::max);
            let shown = round.play(&mut *policy).index;
            assert_close_in_single(&[scores[shown]], &[best]);
            let (item, reward) = (round.features(shown), round.reward(shown));
            let all = opinions(&item);
            let sure = gamma / 4.0;
            for other in 0..all.len() {
                let shares = all[user].1 < sure && all[other].1 < sure && is_neighbour(&all, other);
                if other == user || shares {
                    sums[other].observe(&item, reward);
                }
            }
        }
        for (user, sums) in sums.iter().enumerate() {
            assert_close(&policy.estimate(user as u64).unwrap(), &sums.estimate());
        }
    }
    assert!(strangers > 0, "all are neighbours for ever");
}

/// Users of several groups of the kernels, a last group that is not full, items that are not of length 1.
#[test]
fn in_every_round_the_best_are_those_of_all_scores() {
    const MANY: u64 = 70;
    const WIDE: usize = 20;
    for (seed, index, scale, alpha, users) in [
        (1, "norm", 1.0, 0.05, Users::Declared(MANY)),
        (2, "norm", 30.0, 0.2, Users::Appear),
        (3, "squared", 1.0, 0.2, Users::Declared(MANY)),
        (4, "squared", 0.1, 0.2, Users::Appear),
    ] {
        let given = [
            ("alpha", number(alpha)),
            ("index", Value::Choice(index)),
            ("gamma", number(0.3)),
        ];
        let mut policy = make_for("cab", WIDE, users, &given);
        let (mut scores, mut best) = (Vec::new(), Vec::new());
        // 18 candidates: three rounds at a time.
        for (number, some) in rounds_of(seed, MANY, WIDE, 3, 2400).chunks(3).enumerate() {
            let all = some
                .iter()
                .flat_map(|round| (0..CANDIDATES).map(|item| round.features(item)));
            let rows: Vec<Vec<f64>> = all
                .map(|row| row.iter().map(|x| scale * x).collect())
                .collect();
            let items = ItemSet::from_rows(WIDE, &rows.concat()).unwrap();
            let round = &some[0];
            policy.explain(round.user, &items, &mut scores).unwrap();
            let mut order: Vec<usize> = (0..rows.len()).filter(|&item| item != 1).collect();
            order.sort_by(|&a, &b| scores[b].score.total_cmp(&scores[a].score));
            for k in [1, 3] {
                policy
                    .best(round.user, &items, k, &|item| item == 1, &mut best)
                    .unwrap();
                let found: Vec<_> = best
                    .iter()
                    .map(|decision| (decision.index, decision.score))
                    .collect();
                let expected: Vec<_> = order[..k]
                    .iter()
                    .map(|&item| (item, scores[item]))
                    .collect();
                assert_eq!(found, expected, "round {number}, {index}");
            }
            let shown = order[0];
            let reward = if shown < CANDIDATES {
                round.reward(shown)
            } else {
                0.5
            };
            policy.learn(round.user, &rows[shown], reward).unwrap();
        }
    }
}
