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
#[path = "../common/seeds.rs"]
mod seeds;
mod serve;
mod subject;
mod world;

use plan::Plan;
use run::run;
use seeds::{Outcome, asked, run_range, run_seeds};

/// The number of operations of a run.
pub const OPS: u64 = 400;

/// The plan of a seed.
fn planned(seed: u64) -> Plan {
    Plan::new(seed, OPS)
}

/// Runs a plan. Returns the counts of what happened.
fn counted(plan: Plan) -> Outcome<Plan> {
    run(plan, false).map(|passed| passed.counts)
}

#[test]
fn three_hundred_seeds() {
    let counts =
        run_seeds(0, 300, planned, counted, |_| {}).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{counts:#?}");
    // A broken simulation would no longer do each of these.
    for what in [
        "applied",
        "assumed",
        "backups",
        "compactions",
        "copies",
        "corrected",
        "decisions",
        "ended experiments",
        "expired",
        "exports",
        "failed opens",
        "forgotten",
        "kills",
        "other copy",
        "others",
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
            plan.settings.explore_share = 0.2;
            if policy == by_id::NAME {
                // It cannot correct a reward.
                plan.settings.unanswered = None;
            }
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
    run_range(planned, counted);
}

#[test]
fn one_seed() {
    let Some((seed, ops, without)) = asked::<Plan>(OPS) else {
        return;
    };
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
