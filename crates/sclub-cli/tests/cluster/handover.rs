//! Partitions that change hands on purpose, under load: no request fails.

use std::thread;
use std::time::{Duration, Instant};

use crate::audit::Recorder;
use crate::load::Load;
use crate::nodes::{SOON, TestCluster};

const CLIENTS: u64 = 4;

fn strict() -> Load {
    Load {
        is_strict: true,
        patience: Duration::from_secs(15),
        ..Load::default()
    }
}

/// Checks that no request was refused. If the nodes' logs tell of leases that were lost meanwhile, the machine was too
/// slow: then a request may take longer than a node waits, and clients had to send it again.
fn check_refusals(cluster: &TestCluster, load: &Load, stalls_before: usize) {
    let refusals = load.refusals.lock().unwrap();
    if !refusals.is_empty() {
        let stalls = cluster.stalls().split_off(stalls_before);
        assert!(!stalls.is_empty(), "{refusals:#?}");
        eprintln!("refused: {refusals:#?}, because of {stalls:#?}");
    }
}

#[test]
fn no_request_fails_during_a_rolling_restart() {
    let Some(cluster) = TestCluster::start(3, 8, &["--snapshot-every", "300"]) else {
        return;
    };
    let recorder = Recorder::start(&cluster);
    let stalls = cluster.stalls().len();
    let load = strict();
    load.run(&cluster, CLIENTS, || {
        thread::sleep(Duration::from_millis(500));
        load.wait_for_rewards(100);
        for i in 0..cluster.count() {
            let begun = Instant::now();
            let status = cluster.stop(i);
            assert!(status.success(), "{status}");
            let stopped = begun.elapsed();
            cluster.spawn(i);
            cluster.wait_until_ready();
            let ready = begun.elapsed();
            eprintln!(
                "{} was down after {stopped:.1?}, ready after {ready:.1?}",
                cluster.name(i)
            );
            load.wait_for_rewards(100 * (i + 2));
        }
        thread::sleep(Duration::from_millis(500));
        load.wait_for_rewards(501);
    });
    eprintln!("{}", load.summary());
    check_refusals(&cluster, &load, stalls);
    let audit = recorder.check(&cluster, &load, 1);
    eprintln!("{audit:?}");
    assert!(audit.rewards > 500, "there was hardly any load: {audit:?}");
}

#[test]
fn no_request_fails_while_partitions_are_moved_and_a_node_is_drained() {
    let Some(cluster) = TestCluster::start(3, 8, &["--snapshot-every", "300"]) else {
        return;
    };
    let recorder = Recorder::start(&cluster);
    let stalls = cluster.stalls().len();
    let load = strict();
    let run = |args: &[&str]| {
        let begun = Instant::now();
        let output = cluster.command(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        eprintln!("{args:?} took {:.1?}", begun.elapsed());
    };
    // A node hears of a new owner a moment after the command.
    let wait_until = |what: &str, is_done: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !is_done() {
            assert!(begun.elapsed() < SOON, "never: {what}");
            thread::sleep(Duration::from_millis(20));
        }
    };
    load.run(&cluster, CLIENTS, || {
        thread::sleep(Duration::from_millis(500));
        for (number, group) in ["p0", "p1", "p2", "catalogue"].into_iter().enumerate() {
            load.wait_for_rewards(100 * (number + 1));
            // None while a lease that was lost is free.
            wait_until(group, &|| cluster.owner(0, group).is_some());
            let owner = cluster.owner(0, group).unwrap();
            for step in 1..=2 {
                let next = (owner + step) % cluster.count();
                run(&["move", group, cluster.name(next)]);
                wait_until(group, &|| cluster.owner(0, group) == Some(next));
            }
            run(&["move", group]);
        }
        run(&["drain", cluster.name(0)]);
        for group in cluster.groups() {
            wait_until(&group, &|| cluster.owner(1, &group) != Some(0));
        }
        thread::sleep(Duration::from_millis(500));
        run(&["drain", cluster.name(0), "--undo"]);
        cluster.wait_until_ready();
        thread::sleep(Duration::from_millis(500));
        load.wait_for_rewards(501);
    });
    eprintln!("{}", load.summary());
    check_refusals(&cluster, &load, stalls);
    let audit = recorder.check(&cluster, &load, 1);
    eprintln!("{audit:?}");
    assert!(audit.rewards > 500, "there was hardly any load: {audit:?}");
}
