//! The confidence sequences of experiments, on simulated experiments whose truth is known. The figures are printed by
//! `cargo test -p sclub-server --test false_alarms -- --nocapture`.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub_server::experiment::{Sums, UserSums, difference};

/// The number of experiments of each kind.
const EXPERIMENTS: u64 = 2000;
/// The number of visits in an experiment. A look comes after every 20 visits.
const VISITS: usize = 3000;
/// The number of items shown in a visit.
const SHOWN: usize = 5;

/// How users come and go.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Nobody comes back.
    Newcomers,
    /// 300 users come again and again. The click rates of users differ.
    Regulars,
    /// A third of the visits are of new users. Others are by a user of an earlier visit, so few users have many visits.
    HeavyTail,
    /// As `HeavyTail`; a user clicks on most items or on none for some visits in a row, and rates fall with time.
    Moods,
}

const KINDS: [Kind; 4] = [
    Kind::Newcomers,
    Kind::Regulars,
    Kind::HeavyTail,
    Kind::Moods,
];

struct Visitor {
    is_test: bool,
    rate: f64,
    mood: f64,
    sums: UserSums,
}

/// The outcome of an experiment.
#[derive(Default)]
struct Outcome {
    /// True if the sequence excluded 0 at some look.
    excludes_zero: bool,
    /// True if an ordinary 95% interval with the same variance excluded 0 at some look.
    ordinary_excludes_zero: bool,
    /// True if the sequence excluded the true difference at some look.
    misses_truth: bool,
    /// The last estimate.
    last: f64,
}

/// The mean click rate of the control.
const MEAN: f64 = 0.1;

/// Plays an experiment in which the test arm has `lift` times as many clicks.
fn play(kind: Kind, share: f64, lift: f64, seed: u64) -> Outcome {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut users: Vec<Visitor> = Vec::new();
    let mut visits: Vec<usize> = Vec::new();
    let mut arms = [Sums::default(); 2];
    let mut outcome = Outcome::default();
    let truth = MEAN * (lift - 1.0);
    for visit in 0..VISITS {
        let is_new = match kind {
            Kind::Newcomers => true,
            Kind::Regulars => users.len() < 300 && random.random::<f64>() < 0.5,
            Kind::HeavyTail | Kind::Moods => random.random::<f64>() < 0.33,
        };
        let user = if is_new || users.is_empty() {
            // The mean of 3x² is 1.
            let level = 3.0 * random.random::<f64>().powi(2);
            users.push(Visitor {
                is_test: random.random::<f64>() < share,
                rate: MEAN * level,
                mood: 1.0,
                sums: UserSums::default(),
            });
            users.len() - 1
        } else if let Kind::Regulars = kind {
            random.random_range(0..users.len())
        } else {
            visits[random.random_range(0..visits.len())]
        };
        visits.push(user);
        let user = &mut users[user];
        let mut rate = user.rate * if user.is_test { lift } else { 1.0 };
        if let Kind::Moods = kind {
            if random.random::<f64>() < 0.2 {
                user.mood = if random.random::<bool>() { 2.0 } else { 0.0 };
            }
            rate *= user.mood * (1.5 - visit as f64 / VISITS as f64);
        }
        let before = user.sums;
        for _ in 0..SHOWN {
            let is_click = random.random::<f64>() < rate;
            user.sums.add(f64::from(u8::from(is_click)));
        }
        arms[usize::from(user.is_test)].update(&before, &user.sums);
        if visit % 20 == 19
            && let Some(interval) = difference(&arms[1], &arms[0], 1)
        {
            let variances = arms.map(|arm| arm.rate_variance().unwrap());
            let ordinary = 1.96 * variances.iter().sum::<f64>().sqrt();
            outcome.ordinary_excludes_zero |= interval.value.abs() > ordinary;
            outcome.excludes_zero |= !interval.contains(0.0);
            outcome.misses_truth |= !interval.contains(truth);
            outcome.last = interval.value;
        }
    }
    outcome
}

fn share_of(outcomes: &[Outcome], is_counted: fn(&Outcome) -> bool) -> f64 {
    let count = outcomes
        .iter()
        .filter(|outcome| is_counted(outcome))
        .count();
    count as f64 / outcomes.len() as f64
}

#[test]
fn at_most_one_null_experiment_in_twenty_ever_excludes_zero() {
    for kind in KINDS {
        // The test arm has half of the users, or 80%.
        let shares = [0.5, 0.8].into_iter().cycle();
        let outcomes: Vec<Outcome> = (0..EXPERIMENTS)
            .zip(shares)
            .map(|(seed, share)| play(kind, share, 1.0, seed))
            .collect();
        let alarms = share_of(&outcomes, |outcome| outcome.excludes_zero);
        let ordinary = share_of(&outcomes, |outcome| outcome.ordinary_excludes_zero);
        println!(
            "{kind:?}: {:.2}% of {EXPERIMENTS} null experiments raise a false alarm; with ordinary intervals {:.1}%",
            100.0 * alarms,
            100.0 * ordinary
        );
        assert!(alarms <= 0.05, "{kind:?}: {alarms}");
        assert!(
            ordinary > 0.1,
            "{kind:?}: looking often would be harmless, {ordinary}"
        );
    }
}

#[test]
fn a_true_difference_is_found_and_covered_at_every_look() {
    for kind in [Kind::Newcomers, Kind::Regulars] {
        let outcomes: Vec<Outcome> = (0..300).map(|seed| play(kind, 0.5, 1.4, seed)).collect();
        let found = share_of(&outcomes, |outcome| outcome.excludes_zero);
        let missed = share_of(&outcomes, |outcome| outcome.misses_truth);
        let mean = outcomes.iter().map(|o| o.last).sum::<f64>() / outcomes.len() as f64;
        println!(
            "{kind:?}, 0.14 against 0.1: found in {:.1}%, truth missed in {:.1}%, mean estimate {mean:.4}",
            100.0 * found,
            100.0 * missed
        );
        assert!((mean - 0.4 * MEAN).abs() < 0.005, "{kind:?}: {mean}");
        assert!(missed <= 0.05, "{kind:?}: {missed}");
        // 300 users who differ tell less than 3,000.
        let least = if let Kind::Newcomers = kind {
            0.95
        } else {
            0.3
        };
        assert!(found >= least, "{kind:?}: {found}");
    }
}
