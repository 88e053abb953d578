//! Estimates against sums by hand, and intervals against worlds whose truth is known.

mod coverage;
mod reading;

use rand::RngExt;
use sclub::{ItemSet, UserId};

use super::estimate::Term;
use super::pass::{dot, make};
use super::*;
use crate::streams::{Purpose, mix, stream};

const DIM: usize = 4;
const ITEMS: usize = 10;

/// What is varied between worlds.
#[derive(Clone, Copy)]
struct Shape {
    rounds: usize,
    slots: usize,
    /// The share of decisions that show a uniform list.
    uniform: f64,
    /// Mean rewards are about a quarter of this.
    rewards: f64,
    /// The factor of the mean reward at each position but the first, and whether estimates are by position.
    later: Option<f64>,
}

const PLAIN: Shape = Shape {
    rounds: 2000,
    slots: 1,
    uniform: 0.5,
    rewards: 1.0,
    later: None,
};

/// A world with fixed items and users of two tastes, and a log as a service with `--explore-share` makes it: mostly the
/// same list, else a uniform one.
struct Known {
    means: Vec<[f64; ITEMS]>,
    shape: Shape,
    log: Log,
}

impl Known {
    fn mean(&self, user: u32, item: usize, position: usize) -> f64 {
        let later = if position == 0 {
            None
        } else {
            self.shape.later
        };
        self.means[user as usize % 2][item] * later.unwrap_or(1.0)
    }
}

fn known(seed: u64, shape: Shape) -> Known {
    let mut rng = stream(seed, Purpose::Tastes, 0);
    let rows: Vec<f64> = (0..ITEMS * DIM)
        .map(|_| rng.random_range(0.0..0.5))
        .collect();
    let tastes: Vec<[f64; DIM]> = (0..2)
        .map(|_| std::array::from_fn(|_| shape.rewards * rng.random_range(0.0..0.5)))
        .collect();
    let means: Vec<[f64; ITEMS]> = tastes
        .iter()
        .map(|taste| std::array::from_fn(|item| dot(taste, &rows[item * DIM..][..DIM])))
        .collect();
    let (users, favourite) = (20u32, rng.random_range(0..ITEMS));
    let mut known = Known {
        means,
        shape,
        log: Log {
            items: ItemSet::from_rows(DIM, &rows).unwrap(),
            rounds: Vec::new(),
            shown: Vec::new(),
            candidates: Vec::new(),
            excluded: Vec::new(),
            by_position: shape.later.is_some(),
            users: u64::from(users),
            notes: Vec::new(),
        },
    };
    for _ in 0..shape.rounds {
        let user = rng.random_range(0..users);
        let first = known.log.shown.len();
        let own: Vec<usize> = (favourite..).take(shape.slots).map(|i| i % ITEMS).collect();
        let mut list = own.clone();
        if rng.random_bool(shape.uniform) {
            list = (0..ITEMS).collect();
            for slot in 0..shape.slots {
                list.swap(slot, rng.random_range(slot..ITEMS));
            }
        }
        for (position, &item) in list[..shape.slots].iter().enumerate() {
            let (is_own, places) = match known.log.by_position {
                true => (own[position] == item, 1.0),
                false => (own.contains(&item), shape.slots as f64),
            };
            let reward = f64::from(rng.random_bool(known.mean(user, item, position)));
            known.log.shown.push(ShownItem {
                item: item as u32,
                position: position as u32,
                propensity: shape.uniform * places / ITEMS as f64
                    + if is_own { 1.0 - shape.uniform } else { 0.0 },
                reward,
            });
        }
        known.log.rounds.push(Round {
            user,
            slots: shape.slots as u32,
            shown: first..known.log.shown.len(),
            candidates: 0..0,
            excluded: 0..0,
        });
    }
    known
}

/// Replay is unbiased for a policy that learns from its own choices.
#[test]
fn replay_earns_what_the_policy_earns_online() {
    let (mut off, mut squares) = (0.0, 0.0);
    let logs = 60;
    for seed in 0..logs {
        let known = known(
            1000 + seed,
            Shape {
                rounds: 4000,
                ..PLAIN
            },
        );
        let all = evaluate(&known.log, &[Name::LINUCB_ONE], 1, 1, &())
            .unwrap()
            .unwrap();
        let replay = all[0].replay.unwrap();
        let accepted = all[0].accepted as usize;
        // As many rounds of the same policy in the same world, with its own choices.
        let mut rng = stream(seed, Purpose::Noise, 7);
        let mut policy = make(&known.log, Name::LINUCB_ONE, 1).unwrap();
        let mut total = 0.0;
        for _ in 0..accepted {
            let user = rng.random_range(0..20u64);
            let index = policy.recommend(user, &known.log.items).unwrap().index;
            let reward = f64::from(rng.random_bool(known.means[user as usize % 2][index]));
            let item: Vec<f64> = known.log.items.item(index).collect();
            policy.learn(user, &item, reward).unwrap();
            total += reward;
        }
        let difference = replay.value - total / accepted as f64;
        off += difference;
        squares += difference * difference;
    }
    let logs = logs as f64;
    let mean = off / logs;
    let error = ((squares / logs - mean * mean) / logs).sqrt();
    assert!(mean.abs() < 4.0 * error, "{mean} ± {error}");
}

#[test]
fn estimates_are_the_formulas() {
    let weights = [0.0, 2.0, 4.0, 0.0, 1.0];
    let rewards = [1.0, 0.5, 1.0, 0.0, 0.25];
    let robust = [0.5, 0.25, 2.0, 0.5, 0.1];
    let terms: Vec<Term> = (0..5)
        .map(|t| Term {
            rewards: weights[t] * rewards[t],
            weights: weights[t],
            doubly_robust: robust[t],
        })
        .collect();
    let Weighted {
        ips,
        snips,
        dr,
        effective,
        deciding,
        mean_weight,
        ..
    } = Weighted::new(&terms, 2.0);
    assert!((ips.unwrap().value - 5.25 / 5.0).abs() < 1e-15);
    assert!((snips.unwrap().value - 5.25 / 7.0).abs() < 1e-15);
    assert!((dr.unwrap().value - 3.35 / 5.0).abs() < 1e-15);
    assert!((effective - 49.0 / 21.0).abs() < 1e-15);
    assert_eq!(mean_weight, 1.4);
    // 2, 4 and 1: 21² / (16 + 256 + 1), over the kurtosis.
    assert!((deciding - 441.0 / 273.0 / 2.0).abs() < 1e-12);
    // The standard error of a mean: 0, 1, 4, 0, 0.25 have the variance 2.8875 (n − 1).
    let expected = (2.8875f64 / 5.0).sqrt();
    assert!(
        (ips.unwrap().error - expected).abs() < 1e-12,
        "{}",
        ips.unwrap().error
    );
    // The interval is moved by the skewness of the terms, here by hand.
    let deviations = [-1.05, -0.05, 2.95, -1.05, -0.8f64];
    let power = |n: i32| deviations.iter().map(|x| x.powi(n)).sum::<f64>() / 5.0;
    let skewness = power(3) / power(2).powf(1.5);
    let moved = skewness / 5f64.sqrt() * (1.0 + 2.0 * 1.96 * 1.96) / 6.0;
    let ips = ips.unwrap();
    assert!((ips.high - ips.value - (moved + 1.96) * expected).abs() < 1e-3);
    assert!((ips.value - ips.low - (1.96 - moved) * expected).abs() < 1e-3);
    // Clicks with the share m have the kurtosis 1/(m(1 − m)) − 3.
    let clicks = [1.0, 0.0, 0.0, 0.0, 0.0];
    assert!((estimate::kurtosis(&clicks) - (1.0 / 0.16 - 3.0)).abs() < 1e-12);
    assert_eq!(estimate::kurtosis(&[0.5; 3]), f64::INFINITY);
}

#[test]
fn a_log_that_cannot_tell_says_so() {
    let evaluated = |known: &Known, name: Name| {
        let all = evaluate(&known.log, &[name], 1, 1, &());
        all.unwrap().unwrap().remove(0)
    };
    let says = |one: &Evaluation, text: &str| one.warnings.iter().any(|own| own.contains(text));
    let good = known(1, PLAIN);
    assert_eq!(evaluated(&good, Name::RANDOM).warnings, [""; 0]);

    let mut sure = known(1, PLAIN);
    let shown = sure.log.shown.iter_mut();
    shown.for_each(|shown| shown.propensity = 1.0);
    let one = evaluated(&sure, Name::LINUCB_ONE);
    assert!(says(&one, "no off-policy estimate can be had"));
    let Weighted { ips, snips, dr, .. } = one.weighted;
    assert_eq!([ips, snips, dr, one.replay], [None; 4]);

    let few = known(
        1,
        Shape {
            rounds: 60,
            ..PLAIN
        },
    );
    let one = evaluated(&few, Name::RANDOM);
    assert!(says(&one, "rewards decide the estimates"), "{one:?}");
    assert!(says(&one, "replay cannot tell"), "{one:?}");

    // Rewards are rare: there are enough rounds, and not enough rewards.
    let shape = Shape {
        rewards: 0.05,
        ..PLAIN
    };
    let one = evaluated(&known(1, shape), Name::RANDOM);
    assert!(one.weighted.effective > 100.0);
    assert!(says(&one, "rewards decide the estimates"), "{one:?}");

    // An item is never shown.
    let shape = Shape {
        rounds: 100_000,
        ..PLAIN
    };
    let mut blind = known(1, shape);
    let (shown, rounds) = (&blind.log.shown, &mut blind.log.rounds);
    let rare = shown.iter().find(|shown| shown.propensity < 0.5).unwrap();
    rounds.retain(|round| shown[round.shown.start].item != rare.item);
    let one = evaluated(&blind, Name::RANDOM);
    assert!(says(&one, "the mean weight is 0.9"), "{one:?}");

    let mut equal = known(1, PLAIN);
    let shown = equal.log.shown.iter_mut();
    shown.for_each(|shown| shown.reward = 1.0);
    let one = evaluated(&equal, Name::RANDOM);
    assert!(says(&one, "all its rewards are equal"));

    let twice = evaluate(&good.log, &[Name::RANDOM, Name::RANDOM], 1, 1, &());
    assert!(matches!(twice, Err(EvaluateError::Twice(_))));
}
