//! The confidence sequences of experiments, on simulated experiments whose truth is known. The figures of
//! `docs/experiments.md` are printed by
//! `SCLUB_EXPERIMENTS=2000 cargo test -p sclub-server --test false_alarms -- --nocapture --test-threads 1`.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub_server::experiment::{MIN_USERS, Sums, UserSums, difference, rate};

/// The number of experiments of each kind, unless `SCLUB_EXPERIMENTS` is set: with even arms and clicks that are not
/// rare, and with small arms or rare clicks.
const EXPERIMENTS: [u64; 2] = [1000, 100];

/// How users come and go.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// Nobody comes back.
    Newcomers,
    /// As `Newcomers`; the reward of a click is a sum of money, exponentially distributed with mean 1.
    Spenders,
    /// 300 users come again and again. The click rates of users differ.
    Regulars,
    /// A third of the visits are of new users. Others are by a user of an earlier visit, so few users have many visits.
    HeavyTail,
    /// As `HeavyTail`; a user clicks on most items or on none for some visits in a row, and rates fall with time.
    Moods,
}

/// A simulated experiment.
#[derive(Debug, Clone, Copy)]
struct Setup {
    kind: Kind,
    /// The share of the users in the test arm.
    share: f64,
    /// The mean click rate of the control.
    mean: f64,
    /// The number of times as many clicks that the test arm has.
    lift: f64,
    /// The number of visits. A look comes after every 20.
    visits: usize,
    /// The number of items shown in a visit.
    shown: usize,
}

/// Even arms, clicks that are not rare.
const EVEN: Setup = Setup {
    kind: Kind::Newcomers,
    share: 0.5,
    mean: 0.1,
    lift: 1.0,
    visits: 3000,
    shown: 5,
};

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
    /// True if an ordinary 95% interval with the arms' own variances excluded 0 at some look.
    ordinary_excludes_zero: bool,
    /// True if the sequence excluded the true difference at some look.
    misses_truth: bool,
    /// True if the sequence of the test arm's rate excluded its true rate at some look.
    misses_rate: bool,
    /// The last estimate.
    last: f64,
}

impl Outcome {
    fn look(&mut self, [control, test]: &[Sums; 2], setup: &Setup) {
        let truth = setup.mean * setup.lift;
        if let Some(interval) = rate(test, &test.join(control)) {
            self.misses_rate |= !interval.contains(truth);
        }
        if test.users.min(control.users) >= MIN_USERS {
            let variance = test.rate_variance().unwrap() + control.rate_variance().unwrap();
            let value = test.rate().unwrap() - control.rate().unwrap();
            self.ordinary_excludes_zero |= value.abs() > 1.96 * variance.sqrt();
        }
        if let Some(interval) = difference(test, control, 1) {
            self.excludes_zero |= !interval.contains(0.0);
            self.misses_truth |= !interval.contains(truth - setup.mean);
            self.last = interval.value;
        }
    }
}

/// Plays an experiment.
fn play(setup: &Setup, seed: u64) -> Outcome {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut users: Vec<Visitor> = Vec::new();
    let mut visits: Vec<usize> = Vec::new();
    let mut arms = [Sums::default(); 2];
    let mut outcome = Outcome::default();
    for visit in 0..setup.visits {
        let is_new = match setup.kind {
            Kind::Newcomers | Kind::Spenders => {
                users.clear();
                true
            }
            Kind::Regulars => users.len() < 300 && random.random::<f64>() < 0.5,
            Kind::HeavyTail | Kind::Moods => random.random::<f64>() < 0.33,
        };
        let user = if is_new || users.is_empty() {
            // The mean of 3x² is 1.
            let level = 3.0 * random.random::<f64>().powi(2);
            users.push(Visitor {
                is_test: random.random::<f64>() < setup.share,
                rate: setup.mean * level,
                mood: 1.0,
                sums: UserSums::default(),
            });
            users.len() - 1
        } else if let Kind::Regulars = setup.kind {
            random.random_range(0..users.len())
        } else {
            visits[random.random_range(0..visits.len())]
        };
        visits.push(user);
        let user = &mut users[user];
        let mut rate = user.rate * if user.is_test { setup.lift } else { 1.0 };
        if let Kind::Moods = setup.kind {
            if random.random::<f64>() < 0.2 {
                user.mood = if random.random::<bool>() { 2.0 } else { 0.0 };
            }
            rate *= user.mood * (1.5 - visit as f64 / setup.visits as f64);
        }
        let before = user.sums;
        for _ in 0..setup.shown {
            let is_click = random.random::<f64>() < rate;
            user.sums.add(match (is_click, setup.kind) {
                (false, _) => 0.0,
                (true, Kind::Spenders) => -random.random::<f64>().max(1e-300).ln(),
                (true, _) => 1.0,
            });
        }
        arms[usize::from(user.is_test)].update(&before, &user.sums);
        if visit % 20 == 19 {
            outcome.look(&arms, setup);
        }
    }
    outcome
}

/// Plays many experiments; `few` if a test that is always run need not be exact.
fn play_all(setup: &Setup, few: bool) -> Vec<Outcome> {
    let chosen = std::env::var("SCLUB_EXPERIMENTS").ok();
    let chosen = chosen.map(|chosen| chosen.parse().unwrap());
    let count = chosen.unwrap_or(EXPERIMENTS[usize::from(few)]);
    (0..count).map(|seed| play(setup, seed)).collect()
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
    for kind in [
        Kind::Newcomers,
        Kind::Regulars,
        Kind::HeavyTail,
        Kind::Moods,
    ] {
        let mut outcomes = Vec::new();
        for share in [0.5, 0.8] {
            let setup = Setup {
                kind,
                share,
                ..EVEN
            };
            outcomes.extend(play_all(&setup, false));
        }
        let alarms = share_of(&outcomes, |outcome| outcome.excludes_zero);
        let ordinary = share_of(&outcomes, |outcome| outcome.ordinary_excludes_zero);
        println!(
            "{kind:?}: {:.2}% of {} null experiments raise a false alarm; with ordinary intervals {:.1}%",
            100.0 * alarms,
            outcomes.len(),
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
fn small_arms_and_rare_clicks_raise_no_more_false_alarms() {
    let mut wrong = Vec::new();
    for (kind, visits, shown) in [
        (Kind::Newcomers, 20_000, 1),
        (Kind::Spenders, 20_000, 1),
        (Kind::Regulars, 4000, 5),
        (Kind::HeavyTail, 4000, 5),
        (Kind::Moods, 4000, 5),
    ] {
        println!(
            "{kind:?}, {visits} visits, {shown} item(s) each: false alarms by the share of the test arm"
        );
        for mean in [0.005, 0.01, 0.02, 0.05] {
            let mut line = format!("  click rate {mean:<5}");
            for share in [0.2, 0.05, 0.01] {
                let setup = Setup {
                    kind,
                    share,
                    mean,
                    visits,
                    shown,
                    ..EVEN
                };
                let outcomes = play_all(&setup, true);
                let alarms = share_of(&outcomes, |outcome| outcome.excludes_zero);
                let misses = share_of(&outcomes, |outcome| outcome.misses_rate);
                line += &format!("  {share}: {:5.2}%", 100.0 * alarms);
                // The mean over the time so far falls with the rates.
                if alarms > 0.05 || misses > 0.05 && kind != Kind::Moods {
                    wrong.push(format!("{setup:?}: {alarms}, own rate missed {misses}"));
                }
            }
            println!("{line}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_true_difference_is_found_and_covered_at_every_look() {
    let small = Setup {
        mean: 0.01,
        share: 0.2,
        lift: 2.0,
        visits: 20_000,
        shown: 1,
        ..EVEN
    };
    let cases = [
        (Setup { lift: 1.4, ..EVEN }, 0.95),
        (
            // 300 users who differ tell less than 3,000.
            Setup {
                lift: 1.4,
                kind: Kind::Regulars,
                ..EVEN
            },
            0.3,
        ),
        (small, 0.9),
        (Setup { lift: 0.2, ..small }, 0.9),
    ];
    for (setup, least) in cases {
        let outcomes: Vec<Outcome> = (0..300).map(|seed| play(&setup, seed)).collect();
        let found = share_of(&outcomes, |outcome| outcome.excludes_zero);
        let missed = share_of(&outcomes, |outcome| outcome.misses_truth);
        let mean = outcomes.iter().map(|o| o.last).sum::<f64>() / outcomes.len() as f64;
        let rate = setup.mean * setup.lift;
        println!(
            "{:?}, {rate:.3} against {}, {} visits of {} item(s), share {}: found in {:.1}%, truth missed in {:.1}%, mean estimate {mean:.4}",
            setup.kind,
            setup.mean,
            setup.visits,
            setup.shown,
            setup.share,
            100.0 * found,
            100.0 * missed
        );
        let error = (mean - (rate - setup.mean)).abs();
        assert!(error < 0.05 * setup.mean, "{setup:?}: {mean}");
        assert!(missed <= 0.05, "{setup:?}: {missed}");
        assert!(found >= least, "{setup:?}: {found}");
    }
}
