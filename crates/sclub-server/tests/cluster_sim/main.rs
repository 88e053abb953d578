//! Deterministic simulation of a cluster: nodes, NATS, network, disks, clocks, clients and scheduler are
//! simulated, and one seed is one run.
//!
//! | | |
//! |---|---|
//! | `SCLUB_SIM_SEED=7 cargo test … one_seed -- --nocapture` | one seed, every operation shown |
//! | `SCLUB_SIM_SEEDS=1000..2000 cargo test … seeds_until_told_to_stop -- --ignored --nocapture` | many |
//!
//! With `SCLUB_SIM_ALL=1` a run of many seeds does not stop at the first one that fails.
//!
//! [`nats`] and [`bus`] are the simulated messaging system; [`world`] has the machines and their processes;
//! [`clients`] and [`operators`] act; [`model`] keeps account of what was acknowledged; [`finish`] compares.
//! Disk, clock and scheduler are those of the simulation of a single server.

mod bus;
mod clients;
#[path = "../simulation/clock.rs"]
#[allow(dead_code, reason = "shared with the simulation of a single server")]
mod clock;
#[path = "../simulation/disk/mod.rs"]
#[allow(dead_code, reason = "shared with the simulation of a single server")]
mod disk;
#[path = "../simulation/executor/mod.rs"]
#[allow(dead_code, reason = "shared with the simulation of a single server")]
mod executor;
mod finish;
mod model;
mod nats;
mod operators;
mod plan;
mod run;
#[path = "../simulation/seed.rs"]
mod seed;
mod world;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use nats::Broken;
use plan::{Kind, Plan};
use run::{Failure, run, shrink};
use world::Counts;

/// The number of operations of a run.
pub const OPS: u64 = 150;

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
                        Err(failure) if std::env::var("SCLUB_SIM_ALL").is_ok() => {
                            eprintln!("seed {seed}: {}", failure.what);
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
fn a_hundred_seeds() {
    let counts = run_seeds(0, 100, |_| {}).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{counts:#?}");
}

/// Returns true if a run fails when a rule of the bus is broken.
fn is_found(broken: Broken) -> bool {
    (0..40).any(|seed| {
        let plan = Plan {
            broken,
            ..Plan::new(seed, OPS)
        };
        let failed = run(plan, false).err();
        if let Some(failure) = &failed {
            println!("{broken:?}: seed {seed}: {}", failure.what);
        }
        failed.is_some()
    })
}

#[test]
fn appends_that_are_not_checked_are_found_out() {
    assert!(is_found(Broken::ExpectedLast));
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
        Ok(counts) => eprintln!("{counts:?}"),
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
    tracing_subscriber::fmt()
        .without_time()
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(std::io::stderr)
        .init();
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
