//! Deterministic simulation of the server: disk, clock, network, clients and scheduler are simulated,
//! and one seed is one run.
//!
//! | | |
//! |---|---|
//! | `SCLUB_SIM_SEED=7 cargo test … one_seed -- --nocapture` | one seed, every operation shown |
//! | `SCLUB_SIM_SEEDS=1000..2000 cargo test … seeds_until_told_to_stop -- --ignored --nocapture` | many |
//!
//! [`disk`], [`clock`] and [`executor`] are the simulated machine; [`world`] has the folders and the
//! processes on it; [`clients`] and [`operators`] act; [`model`] keeps account of what was
//! acknowledged; [`finish`] compares.

mod bounds;
#[path = "../common/by_id.rs"]
mod by_id;
mod clients;
mod clock;
mod crash_points;
mod disk;
mod executor;
mod export;
mod finish;
mod gone;
mod model;
mod operators;
mod plan;
mod run;
mod seed;
mod serve;
mod subject;
mod world;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use plan::{Kind, Plan};
use run::{Failure, run, shrink};
use world::Counts;

/// The number of operations of a run.
pub const OPS: u64 = 400;

/// Runs seeds on two threads. Returns the counts of what happened, or the first failure, minimized.
fn run_seeds(from: u64, to: u64, watch: impl Fn(u64) + Sync) -> Result<Counts, String> {
    let next = AtomicU64::new(from);
    let failed: Mutex<Option<String>> = Mutex::default();
    let counts: Mutex<Counts> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while failed.lock().unwrap().is_none() {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= to {
                        return;
                    }
                    watch(seed);
                    match run(Plan::new(seed, OPS), false) {
                        Ok(passed) => {
                            let mut counts = counts.lock().unwrap();
                            for (what, count) in passed.counts {
                                *counts.entry(what).or_default() += count;
                            }
                        }
                        Err(failure) => {
                            let report = report(failure);
                            failed.lock().unwrap().get_or_insert(report);
                        }
                    }
                }
            });
        }
    });
    match failed.into_inner().unwrap() {
        Some(failure) => Err(failure),
        None => Ok(counts.into_inner().unwrap()),
    }
}

/// The report of a failure and of its minimized form.
fn report(failure: Box<Failure>) -> String {
    let first = failure.to_string();
    format!("{first}\n\nsmaller: {}", shrink(failure))
}

#[test]
fn three_hundred_seeds() {
    let counts = run_seeds(0, 300, |_| {}).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{counts:#?}");
    // A broken simulation would no longer do each of these.
    for what in [
        "applied",
        "backups",
        "compactions",
        "copies",
        "decisions",
        "expired",
        "exports",
        "failed opens",
        "forgotten",
        "kills",
        "other copy",
        "power losses",
        "refused",
        "repeated",
    ] {
        let count = counts.get(what).copied().unwrap_or(0);
        assert!(count >= 100, "{count} {what}");
    }
    // Rare: only an outage of ten seconds ends with it.
    assert!(
        counts.get("unknown").is_some_and(|&count| count >= 5),
        "{counts:?}"
    );
}

/// Also with a policy that learns from lists, and with one that draws at random. Their journals have propensities.
#[test]
fn other_policies_under_the_same_faults() {
    by_id::register();
    for policy in [by_id::NAME, "lints"] {
        for seed in 0..20 {
            let mut plan = Plan::new(seed, OPS);
            plan.settings.policy = Some(policy.to_owned());
            plan.settings.propensities = 3;
            if let Err(failure) = run(plan, false) {
                panic!("{policy}: {failure}");
            }
        }
    }
}

#[test]
fn a_disk_that_lies_is_found_out() {
    let is_found = (0..10).any(|seed| {
        let plan = Plan {
            disk_lies: true,
            ..Plan::new(seed, OPS)
        };
        run(plan, false).is_err()
    });
    assert!(is_found);
}

#[test]
#[ignore = "runs until told to stop"]
fn seeds_until_told_to_stop() {
    let range = std::env::var("SCLUB_SIM_SEEDS").unwrap_or_default();
    let (from, to) = range.split_once("..").unwrap_or(("", ""));
    let from = from.parse().unwrap_or(0);
    let to = to.parse().unwrap_or(u64::MAX);
    let ended = run_seeds(from, to, |seed| {
        if seed % 100 == 0 {
            eprintln!("seed {seed}");
        }
    });
    match ended {
        Ok(counts) => eprintln!("{counts:#?}"),
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn one_seed() {
    let Ok(seed) = std::env::var("SCLUB_SIM_SEED") else {
        return;
    };
    let seed = seed.parse().expect("SCLUB_SIM_SEED is a number");
    let ops = std::env::var("SCLUB_SIM_OPS").ok();
    let ops = ops.map_or(OPS, |ops| ops.parse().expect("SCLUB_SIM_OPS is a number"));
    let without = std::env::var("SCLUB_SIM_WITHOUT").unwrap_or_default();
    let names = without.split(',').filter(|name| !name.is_empty());
    let without: BTreeSet<Kind> = names.map(|name| name.parse().unwrap()).collect();
    match run(Plan::new(seed, ops).leave_out(&without), true) {
        Ok(passed) => eprintln!("{passed:#?}"),
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn a_seed_is_a_run() {
    for seed in [1, 2] {
        let once = || run(Plan::new(seed, OPS), false).map_err(|failure| failure.to_string());
        assert_eq!(once(), once());
    }
}
