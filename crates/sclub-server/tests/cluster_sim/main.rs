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
//! [`clients`] and [`operators`] act; [`requests`] has scripts in place of a seed's choices; [`model`] keeps account of what was acknowledged; [`finish`] compares.
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
mod requests;
mod run;
#[path = "../simulation/seed.rs"]
mod seed;
#[path = "../common/seeds.rs"]
mod seeds;
mod world;

use nats::Broken;
use plan::Plan;
use run::run;
use seeds::{Outcome, asked, run_range, run_seeds};

/// The number of operations of a run.
pub const OPS: u64 = 150;

/// The plan of a seed.
fn planned(seed: u64) -> Plan {
    Plan::new(seed, OPS)
}

/// Runs a plan. Returns the counts of what happened.
fn counted(plan: Plan) -> Outcome<Plan> {
    run(plan, false).map(|passed| passed.counts)
}

#[test]
fn a_hundred_seeds() {
    let counts =
        run_seeds(0, 100, planned, counted, |_| {}).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{counts:#?}");
    // A broken simulation would no longer do each of these.
    for what in [
        "applied",
        "closes",
        "compactions",
        "cuts",
        "decisions",
        "deduplicated",
        "doubled",
        "drains",
        "expired or forgotten",
        "forgets",
        "items changed",
        "kills",
        "late",
        "lost",
        "lost majorities",
        "moves",
        "pauses",
        "power losses",
        "purges",
        "refused feedback",
        "refused keys",
        "repeated",
        "unanswered",
    ] {
        let count = counts.get(what).copied().unwrap_or(0);
        assert!(count >= 50, "{count} {what}");
    }
    for what in ["broken channels", "conflicts"] {
        let count = counts.get(what).copied().unwrap_or(0);
        assert!(count >= 10, "{count} {what}");
    }
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
fn a_stream_with_two_writers_is_found_out() {
    assert!(is_found(Broken::ExpectedLast));
}

#[test]
fn a_stream_that_takes_a_message_twice_is_found_out() {
    assert!(is_found(Broken::Dedup));
}

#[test]
#[ignore = "runs until told to stop"]
fn seeds_until_told_to_stop() {
    run_range(planned, counted);
}

#[test]
fn one_seed() {
    let Some((seed, ops, without)) = asked::<Plan>(OPS) else {
        return;
    };
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
