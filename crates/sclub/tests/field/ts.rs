//! Thompson sampling in clusters against the base policies, LinTS, and the covariance of the posterior.

use proptest::prelude::*;
use sclub::{ItemSet, Value, find_policy};

use crate::common::*;

const PAIRS: [(&str, &str); 3] = [
    ("ts:club", "club"),
    ("ts:sclub", "sclub"),
    ("ts:dynucb", "dynucb"),
];

/// Constants with which all users are one cluster.
fn together(name: &str) -> Vec<(&'static str, Value)> {
    match name {
        "ts:club" => vec![
            ("alpha_theta", number(1e9)),
            ("graph", Value::Choice("complete")),
        ],
        "ts:sclub" => vec![("alpha_theta", number(1e9)), ("alpha_p", number(1e9))],
        _ => vec![("clusters", number(1.0))],
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..Default::default() })]

    #[test]
    fn without_noise_it_is_the_greedy_base(seed: u64, clusters in 1u64..4) {
        let rounds = rounds(seed, clusters, 300);
        for (name, base) in PAIRS {
            let mut one = make(name, &[("draw_scale", number(0.0))]);
            let mut base = make(base, &[("beta", number(0.0))]);
            assert_same(&mut *one, &mut *base, &rounds, 1e-12);
            for user in 0..USERS {
                prop_assert_eq!(one.cluster_of(user), base.cluster_of(user));
            }
        }
    }

    /// In one cluster it draws as LinTS for all users, alone as LinTS for each user.
    #[test]
    fn with_one_cluster_or_each_user_alone_it_is_lints(seed: u64, scale in 0.05f64..1.0) {
        let v = ("draw_scale", number(scale));
        let alone = vec![("alpha_theta", number(1e-300)), ("graph", Value::Choice("complete"))];
        for (name, mut given, twin) in [
            ("ts:club", together("ts:club"), "ts:linucb-one"),
            ("ts:sclub", together("ts:sclub"), "ts:linucb-one"),
            ("ts:dynucb", together("ts:dynucb"), "ts:linucb-one"),
            ("ts:club", alone, "ts:linucb-ind"),
            ("ts:dynucb", vec![("clusters", number(USERS as f64))], "ts:linucb-ind"),
        ] {
            given.push(v);
            let (mut one, mut other) = (make(name, &given), make(twin, &[v]));
            for (draw, round) in rounds(seed, 3, 150).iter().enumerate() {
                let draw = draw as u64;
                let shown = one.recommend_drawn(draw, round.user, &round.items).unwrap();
                let expected = other.recommend_drawn(draw, round.user, &round.items).unwrap();
                prop_assert_eq!(shown.index, expected.index, "{} {}", name, draw);
                prop_assert!((shown.score.score - expected.score.score).abs() < 1e-9);
                for policy in [&mut one, &mut other] {
                    policy.learn(round.user, &round.features(shown.index), round.reward(shown.index)).unwrap();
                }
            }
        }
    }
}

#[test]
fn draws_have_the_covariance_of_the_posterior() {
    const DRAWS: u64 = 20_000;
    const SCALE: f64 = 0.3;
    let mut axes = vec![0.0; DIM * DIM];
    axes.iter_mut().step_by(DIM + 1).for_each(|x| *x = 1.0);
    let axes = ItemSet::from_rows(DIM, &axes).unwrap();
    for (name, _) in PAIRS {
        let mut given = together(name);
        given.push(("draw_scale", number(SCALE)));
        let mut policy = make(name, &given);
        let mut history = Vec::new();
        for round in rounds(9, 2, 15) {
            history.push(round.features(0));
            policy
                .learn(round.user, &round.features(0), round.reward(0))
                .unwrap();
        }
        let estimate = policy.estimate(0).unwrap();
        let (mut sums, mut scores) = ([[0.0; DIM]; DIM], Vec::new());
        for draw in 0..DRAWS {
            policy.explain_drawn(draw, 0, &axes, &mut scores).unwrap();
            let off: Vec<f64> = scores
                .iter()
                .zip(&estimate)
                .map(|(s, e)| s.score - e)
                .collect();
            for (row, a) in sums.iter_mut().zip(&off) {
                for (sum, b) in row.iter_mut().zip(&off) {
                    *sum += a * b / DRAWS as f64;
                }
            }
        }
        let unit = |i| {
            (0..DIM)
                .map(|j| f64::from(u8::from(i == j)))
                .collect::<Vec<_>>()
        };
        let expected: Vec<Vec<f64>> = (0..DIM).map(|i| solve(1.0, &history, &unit(i))).collect();
        for (i, j) in (0..DIM * DIM).map(|at| (at / DIM, at % DIM)) {
            let square = SCALE * SCALE;
            let product = expected[i][i] * expected[j][j] + expected[i][j].powi(2);
            let error = square * (product / DRAWS as f64).sqrt();
            let difference = (sums[i][j] - square * expected[i][j]).abs();
            assert!(
                difference < 5.0 * error,
                "{name} {i} {j}: {difference} of {error}"
            );
        }
    }
}

#[test]
fn names_are_those_of_the_bases() {
    for base in ["linucb-ind", "linucb-one", "club", "sclub", "dynucb"] {
        let spec = find_policy(&format!("ts:{base}")).unwrap();
        assert!(
            spec.can.draws && spec.constant("draw_scale").is_some(),
            "{base}"
        );
    }
    assert_eq!(find_policy("ts:linucb-ind"), find_policy("lints"));
    assert_eq!(find_policy("ts:random"), None);
}

#[test]
fn it_is_sound() {
    for (name, _) in PAIRS {
        assert_sound(name, &[]);
    }
}
