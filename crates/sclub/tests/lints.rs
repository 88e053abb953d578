//! LinTS against independent answers: greedy LinUCB, and the covariance of the posterior.

use proptest::prelude::*;
use sclub::{ItemSet, Policy, Preset, Setup, Value, find_policy};

const DIM: usize = 3;

fn make(name: &str, seed: u64, given: &[(&str, Value)]) -> Box<dyn Policy> {
    let spec = find_policy(name).expect("it is in the registry");
    let setup = Setup {
        seed,
        ..Setup::new(DIM)
    };
    let preset = spec.presets.first().copied().unwrap_or(Preset::Default);
    let values = spec.values(preset, given, &setup).expect("good values");
    values.make(&setup).expect("good values")
}

proptest! {
    /// Draws of scale 0 are the estimates: LinTS chooses as LinUCB without a bonus does.
    #[test]
    fn without_noise_it_is_greedy_linucb(
        rows in prop::collection::vec(-1.0f64..1.0, DIM * 5),
        rounds in prop::collection::vec((0u64..4, 0.0f64..1.0), 1..60),
        is_shared: bool,
    ) {
        let items = ItemSet::from_rows(DIM, &rows).unwrap();
        let twin = if is_shared { "linucb-one" } else { "linucb-ind" };
        let mut lints = make(&format!("ts:{twin}"), 1, &[("draw_scale", Value::Number(0.0))]);
        let mut linucb = make(twin, 1, &[("beta", Value::Number(0.0))]);
        for (user, reward) in rounds {
            let shown = lints.recommend(user, &items).unwrap();
            prop_assert_eq!(shown.index, linucb.recommend(user, &items).unwrap().index);
            let features: Vec<f64> = items.item(shown.index).collect();
            lints.learn(user, &features, reward).unwrap();
            linucb.learn(user, &features, reward).unwrap();
            prop_assert_eq!(lints.estimate(user), linucb.estimate(user));
        }
    }
}

/// S⁻¹ by Gauss-Jordan elimination.
fn inverse(mut s: [[f64; DIM]; DIM]) -> [[f64; DIM]; DIM] {
    let mut inverse = [[0.0; DIM]; DIM];
    for (row, unit) in inverse.iter_mut().enumerate() {
        unit[row] = 1.0;
    }
    for pivot in 0..DIM {
        let scale = s[pivot][pivot];
        for column in 0..DIM {
            s[pivot][column] /= scale;
            inverse[pivot][column] /= scale;
        }
        for row in (0..DIM).filter(|&row| row != pivot) {
            let factor = s[row][pivot];
            for column in 0..DIM {
                s[row][column] -= factor * s[pivot][column];
                inverse[row][column] -= factor * inverse[pivot][column];
            }
        }
    }
    inverse
}

/// The draws of many seeds have mean θ̂ and covariance v² S⁻¹.
#[test]
fn draws_come_from_the_posterior() {
    const DRAWS: u64 = 40_000;
    let history = [
        [0.9, 0.1, 0.0],
        [0.2, -0.7, 0.4],
        [0.5, 0.5, -0.5],
        [1.0, 0.8, 0.1],
    ];
    let scale = 0.5;
    let mut s = [[0.0; DIM]; DIM];
    for (row, line) in s.iter_mut().enumerate() {
        line[row] = 1.0;
        for item in &history {
            for column in 0..DIM {
                line[column] += item[row] * item[column];
            }
        }
    }
    let expected = inverse(s);
    // The score of a unit vector is a coordinate of the draw; its width is the distance to the estimate.
    let units = ItemSet::from_rows(DIM, &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]).unwrap();
    let (mut sums, mut products) = ([0.0; DIM], [[0.0; DIM]; DIM]);
    let mut scores = Vec::new();
    for seed in 0..DRAWS {
        let mut policy = make("lints", seed, &[("draw_scale", Value::Number(scale))]);
        for item in &history {
            policy.learn(7, item, 1.0).unwrap();
        }
        policy.explain(7, &units, &mut scores).unwrap();
        let widths: Vec<f64> = scores.iter().map(|score| score.width).collect();
        for row in 0..DIM {
            sums[row] += widths[row];
            for column in 0..DIM {
                products[row][column] += widths[row] * widths[column];
            }
        }
    }
    let draws = DRAWS as f64;
    for row in 0..DIM {
        let deviation = scale * expected[row][row].sqrt();
        assert!(
            (sums[row] / draws).abs() < 5.0 * deviation / draws.sqrt(),
            "{sums:?}"
        );
        for column in 0..DIM {
            let wanted = scale * scale * expected[row][column];
            let error = 8.0 * scale * scale / draws.sqrt();
            assert!(
                (products[row][column] / draws - wanted).abs() < error,
                "{products:?}"
            );
        }
    }
}

#[test]
fn other_seeds_rounds_and_users_have_other_draws() {
    let items = ItemSet::from_rows(DIM, &[1.0, 0.0, 0.0]).unwrap();
    let score = |policy: &dyn Policy, user| policy.recommend(user, &items).unwrap().score.score;
    let mut policy = make("lints", 1, &[]);
    policy.learn(1, &[1.0, 0.0, 0.0], 0.5).unwrap();
    policy.learn(2, &[1.0, 0.0, 0.0], 0.5).unwrap();
    let first = score(&*policy, 1);
    assert_eq!(first, score(&*policy, 1));
    assert_ne!(first, score(&*policy, 2));
    assert_ne!(first, score(&*make("lints", 2, &[]), 1));
    policy.learn_round(&[], &mut Vec::new()).unwrap();
    assert_ne!(first, score(&*policy, 1));
    // Decisions with numbers of their own differ without a round between them, also for a newcomer.
    let drawn = |draw| policy.recommend_drawn(draw, 9, &items).unwrap().score.score;
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
}

/// Two items whose difference is normal: the probability of the first is known.
#[test]
fn propensities_are_the_probabilities_of_the_draws() {
    let scale = 0.5;
    let mut policy = make("lints", 1, &[("draw_scale", Value::Number(scale))]);
    policy.learn(1, &[1.0, 0.0, 0.0], 0.4).unwrap();
    let items = ItemSet::from_rows(DIM, &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0]).unwrap();
    // θ̃₁ − θ̃₂ ~ N(0.2, v²(1/2 + 1)), so P(θ̃₁ > θ̃₂) = Φ(0.2/(v √1.5)) = Φ(0.3266) = 0.6280.
    let mut out = Vec::new();
    policy
        .propensities(9, 1, &items, 1, &|_| false, &[0, 1], 40_000, &mut out)
        .unwrap();
    let error = 5.0 * (0.25f64 / 40_000.0).sqrt();
    assert!((out[0].list - 0.6280).abs() < error, "{out:?}");
    assert!((out[0].list + out[1].list - 1.0).abs() < 1e-3, "{out:?}");
    // 1/p̂ over decisions that show the first item has the mean 1/p, up to (1 − p)^(draws + 1)/p.
    let (mut sum, mut count) = (0.0, 0);
    for draw in 0..20_000 {
        if policy.recommend_drawn(draw, 1, &items).unwrap().index == 0 {
            let exclude = |_: usize| false;
            policy
                .propensities(draw, 1, &items, 1, &exclude, &[0], 7, &mut out)
                .unwrap();
            sum += 1.0 / out[0].list;
            count += 1;
        }
    }
    let expected = (1.0 - 0.372f64.powi(8)) / 0.628;
    assert!(
        (sum / f64::from(count) - expected).abs() < 0.03,
        "{sum} {count}"
    );
    // A policy that does not draw always shows its choice.
    let fixed = make("linucb-ind", 1, &[]);
    let choice = fixed.recommend(1, &items).unwrap().index;
    fixed
        .propensities(9, 1, &items, 1, &|_| false, &[choice], 5, &mut out)
        .unwrap();
    assert_eq!(out, [sclub::Propensity::CERTAIN]);
}
