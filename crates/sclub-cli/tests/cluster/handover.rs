//! Partitions that change hands on purpose, under load: no request fails.

use std::thread;
use std::time::{Duration, Instant};

use crate::audit::Recorder;
use crate::load::Load;
use crate::nodes::TestCluster;

const CLIENTS: u64 = 4;

fn strict() -> Load {
    Load {
        is_strict: true,
        patience: Duration::from_secs(15),
        ..Load::default()
    }
}

#[test]
fn no_request_fails_during_a_rolling_restart() {
    let Some(cluster) = TestCluster::start(3, 8, &["--snapshot-every", "300"]) else {
        return;
    };
    let recorder = Recorder::start(&cluster);
    let load = strict();
    load.run(&cluster, CLIENTS, || {
        thread::sleep(Duration::from_millis(500));
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
        }
        thread::sleep(Duration::from_millis(500));
    });
    eprintln!("{}", load.summary());
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
    let load = strict();
    let run = |args: &[&str]| {
        let begun = Instant::now();
        let output = cluster.command(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        eprintln!("{args:?} took {:.1?}", begun.elapsed());
    };
    load.run(&cluster, CLIENTS, || {
        thread::sleep(Duration::from_millis(500));
        for group in ["p0", "p1", "p2", "catalogue"] {
            let owner = cluster.owner(0, group).unwrap();
            for step in 1..=2 {
                let next = (owner + step) % cluster.count();
                run(&["move", group, cluster.name(next)]);
                assert_eq!(cluster.owner(0, group), Some(next), "{group}");
            }
            run(&["move", group]);
        }
        run(&["drain", cluster.name(0)]);
        for group in cluster.groups() {
            assert_ne!(cluster.owner(1, &group), Some(0), "{group}");
        }
        thread::sleep(Duration::from_millis(500));
        run(&["drain", cluster.name(0), "--undo"]);
        cluster.wait_until_ready();
        thread::sleep(Duration::from_millis(500));
    });
    eprintln!("{}", load.summary());
    let audit = recorder.check(&cluster, &load, 1);
    eprintln!("{audit:?}");
    assert!(audit.rewards > 500, "there was hardly any load: {audit:?}");
}
