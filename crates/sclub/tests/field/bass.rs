//! BASS.

#![allow(clippy::needless_range_loop, reason = "matrices read as in a textbook")]

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub::{Observation, Users, Value};

use crate::common::{DIM, USERS, assert_same, make, make_for, number, regrets, rounds};
use crate::graphs::{self, Naive, dot, inverse, times};

/// Every edge is tested after each observation.
const EXACT: (&str, Value) = ("retest", Value::Number(0.0));
const NOISE: (&str, Value) = ("noise", Value::Number(0.1));

#[test]
fn it_learns() {
    graphs::learns("bass", &[NOISE], 0.3);
}

#[test]
fn names_do_not_matter() {
    graphs::ignores_names("bass", &[NOISE, ("radius_scale", number(0.3))]);
}

/// r² M⁻¹ of a user with δ = 0.001, R = 0.1, S = 1, and the scale given.
fn spread(naive: &Naive, user: usize, scale: f64) -> [[f64; DIM]; DIM] {
    let (inverse, _) = naive.pool(1.0, &[user]);
    let log_determinant = -determinant(inverse).ln();
    let radius = scale * (1.0 + 0.1 * (2.0 * 1000f64.ln() + log_determinant).sqrt());
    inverse.map(|row| row.map(|x| radius * radius * x))
}

/// By elimination; the matrix is positive definite.
fn determinant(mut matrix: [[f64; DIM]; DIM]) -> f64 {
    let mut product = 1.0;
    for k in 0..DIM {
        product *= matrix[k][k];
        for i in k + 1..DIM {
            let weight = matrix[i][k] / matrix[k][k];
            for m in k..DIM {
                matrix[i][m] -= weight * matrix[k][m];
            }
        }
    }
    product
}

/// The maximum of s(1 − s) Δᵀ((1 − s)A + sB)⁻¹Δ over a grid of s.
fn separation(naive: &Naive, i: usize, j: usize, scale: f64) -> f64 {
    let (a, b) = (spread(naive, i, scale), spread(naive, j, scale));
    let (x, y) = (naive.estimate(1.0, &[i]), naive.estimate(1.0, &[j]));
    let gap: [f64; DIM] = std::array::from_fn(|k| x[k] - y[k]);
    let at = |s: f64| {
        let matrix =
            std::array::from_fn(|i| std::array::from_fn(|k| (1.0 - s) * a[i][k] + s * b[i][k]));
        s * (1.0 - s) * dot(&times(&inverse(matrix), &gap), &gap)
    };
    (1..200)
        .map(|step| at(f64::from(step) / 200.0))
        .fold(0.0, f64::max)
}

/// The minimum over x of the larger of q_i and q_j, by steps in random directions.
fn smallest_maximum(
    rng: &mut Xoshiro256PlusPlus,
    naive: &Naive,
    i: usize,
    j: usize,
    scale: f64,
) -> f64 {
    let forms = [i, j].map(|user| {
        let precision = inverse(spread(naive, user, scale));
        (precision, naive.estimate(1.0, &[user]))
    });
    let value = |x: &[f64; DIM]| {
        let q = forms.map(|(precision, centre)| {
            let gap: [f64; DIM] = std::array::from_fn(|k| x[k] - centre[k]);
            dot(&times(&precision, &gap), &gap)
        });
        q[0].max(q[1])
    };
    let mut x: [f64; DIM] = std::array::from_fn(|k| 0.5 * (forms[0].1[k] + forms[1].1[k]));
    let (mut best, mut step) = (value(&x), 0.5);
    while step > 1e-7 {
        let mut is_better = false;
        for _ in 0..60 {
            let other: [f64; DIM] =
                std::array::from_fn(|k| x[k] + step * rng.random_range(-1.0..1.0));
            let at = value(&other);
            if at < best {
                (x, best, is_better) = (other, at, true);
            }
        }
        step *= if is_better { 1.0 } else { 0.5 };
    }
    best
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..Default::default() })]

    #[test]
    fn large_ellipsoids_make_it_linucb_one(seed: u64, clusters in 1u64..4) {
        let beta = ("beta", number(0.3));
        let one = &mut *make("linucb-one", &[beta]);
        let given = [EXACT, beta, ("delta", number(1e-300)), ("radius_scale", number(10.0))];
        assert_same(&mut *make("bass", &given), one, &rounds(seed, clusters, 400), 1e-9);
    }

    #[test]
    fn points_make_it_linucb_ind(seed: u64, clusters in 1u64..4) {
        let beta = ("beta", number(0.3));
        let ind = &mut *make("linucb-ind", &[beta]);
        let given = [EXACT, beta, ("radius_scale", number(0.0))];
        assert_same(&mut *make("bass", &given), ind, &rounds(seed, clusters, 400), 1e-9);
    }

    /// Estimates of the pooled neighbours are those of a plain transcription of the published test.
    #[test]
    fn estimates_are_those_of_a_plain_transcription(seed: u64, clusters in 1u64..4, scale in 0.1f64..0.5) {
        let given = [EXACT, NOISE, ("radius_scale", number(scale))];
        let (mut policy, mut naive) = (make("bass", &given), Naive::new());
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        for round in rounds(seed, clusters, 120) {
            let index = rng.random_range(0..round.means.len());
            let (item, reward) = (round.features(index), round.reward(index));
            policy.learn(round.user, &item, reward).unwrap();
            naive.observe(round.user, &item, reward);
            let mut is_close = false;
            for other in 0..USERS as usize + 1 {
                let found = separation(&naive, round.user as usize, other, scale);
                is_close |= (found - 1.0).abs() < 1e-3;
            }
            if is_close {
                // The grid cannot tell.
                return Ok(());
            }
            naive.set_edges(round.user, |naive, i, j| {
                naive.edges[i][j] && separation(naive, i, j, scale) <= 1.0
            });
            let user = rng.random_range(0..USERS + 1);
            let (got, expected) = (policy.estimate(user).unwrap(), naive.estimate(1.0, &naive.members(user)));
            for (a, b) in got.iter().zip(&expected) {
                prop_assert!((a - b).abs() < 1e-9, "{:?} {:?}", got, expected);
            }
        }
    }

    /// Two users are told apart exactly if no point is in both ellipsoids, whichever comes first.
    #[test]
    fn it_agrees_with_a_search_for_a_common_point(seed: u64, scale in 0.02f64..0.6, shares in 0.1f64..0.9) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut naive = Naive::new();
        let mut items = Vec::new();
        for _ in 0..rng.random_range(2..40) {
            let user = u64::from(rng.random_bool(shares));
            let item: Vec<f64> = (0..DIM).map(|_| rng.random_range(-1.0..1.0)).collect();
            let reward = item[user as usize] + rng.random_range(-0.1..0.1);
            naive.observe(user, &item, reward);
            items.push((user, item, reward));
        }
        prop_assume!(naive.counts[0] > 0 && naive.counts[1] > 0);
        let expected = smallest_maximum(&mut rng, &naive, 0, 1, scale);
        prop_assume!((expected - 1.0).abs() > 0.02);
        for other_first in [false, true] {
            items.sort_by_key(|&(user, ..)| (user == 0) == other_first);
            let given = [EXACT, NOISE, ("radius_scale", number(scale))];
            let mut policy = make_for("bass", DIM, Users::Appear, &given);
            // In one round: the test is made when all is learned.
            let round: Vec<Observation<'_>> = items.iter().map(|(user, item, reward)| Observation::new(*user, item, *reward)).collect();
            policy.learn_round(&round, &mut Vec::new()).unwrap();
            prop_assert_eq!(policy.clusters(), if expected > 1.0 { 2 } else { 1 }, "{}", expected);
        }
    }
}

/// Lazy tests: fewer than 2% of the choices differ from those with all tests, and the regret is the same within 5%.
#[test]
fn lazy_tests_change_little() {
    let (mut same, mut all, mut regret) = (0, 0, [0.0, 0.0]);
    for seed in 0..6 {
        let rounds = rounds(seed, 3, 1500);
        let make = |exact: bool| make("bass", if exact { &[NOISE, EXACT] } else { &[NOISE] });
        let (mut lazy, mut exact) = (make(false), make(true));
        regret[0] += regrets(&mut *make(false), &rounds).0;
        regret[1] += regrets(&mut *make(true), &rounds).0;
        for round in &rounds {
            let shown = lazy.recommend(round.user, &round.items).unwrap().index;
            all += 1;
            same += u32::from(exact.recommend(round.user, &round.items).unwrap().index == shown);
            let (item, reward) = (round.features(shown), round.reward(shown));
            lazy.learn(round.user, &item, reward).unwrap();
            exact.learn(round.user, &item, reward).unwrap();
        }
    }
    println!("{same} of {all} choices agree; regrets {regret:?}");
    assert!(f64::from(same) > 0.98 * f64::from(all), "{same} of {all}");
    assert!(
        (regret[0] - regret[1]).abs() < 0.05 * regret[1],
        "{regret:?}"
    );
}
