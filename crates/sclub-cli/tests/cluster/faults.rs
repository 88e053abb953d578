//! `kill -9` and pauses of nodes and NATS servers under load.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::audit::Recorder;
use crate::load::{Dice, Load};
use crate::nodes::TestCluster;

const NODES: usize = 4;
const CLIENTS: u64 = 4;
/// The batches between snapshots. The recorder may be behind by some hundred while NATS elects leaders, and needs what
/// is purged after that.
const ENOUGH: &str = "150";

/// A process that a fault hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Node(usize),
    Nats(usize),
}

/// A fault, and the milliseconds after which it is repaired.
#[derive(Debug, Clone, Copy)]
struct Fault {
    target: Target,
    is_pause: bool,
    repair_after: u64,
}

impl Fault {
    fn draw(dice: &mut Dice) -> Self {
        let node = Target::Node(dice.below(NODES as u64) as usize);
        match dice.below(10) {
            0..=3 => Self {
                target: node,
                is_pause: false,
                repair_after: dice.below(4_000),
            },
            // Longer than a lease.
            4..=6 => Self {
                target: node,
                is_pause: true,
                repair_after: 3_100 + dice.below(3_000),
            },
            _ => Self {
                target: Target::Nats(dice.below(3) as usize),
                is_pause: false,
                repair_after: dice.below(4_000),
            },
        }
    }

    fn inflict(self, cluster: &TestCluster) {
        match self.target {
            Target::Node(i) if self.is_pause => cluster.signal(i, "-STOP"),
            Target::Node(i) => cluster.kill(i),
            Target::Nats(i) => cluster.nats.kill(i),
        }
    }

    fn repair(self, cluster: &TestCluster) {
        match self.target {
            Target::Node(i) if self.is_pause => cluster.signal(i, "-CONT"),
            Target::Node(i) => cluster.spawn(i),
            Target::Nats(i) => cluster.nats.restart(i),
        }
    }
}

/// Returns true if a fault would leave too little: at most two nodes and one NATS server are faulty at a time.
fn is_too_much(faulty: &[Target], target: Target) -> bool {
    let nodes = faulty.iter().filter(|t| matches!(t, Target::Node(_)));
    match target {
        _ if faulty.contains(&target) => true,
        Target::Node(_) => nodes.count() >= 2,
        Target::Nats(_) => faulty.iter().any(|t| matches!(t, Target::Nats(_))),
    }
}

/// Waits until clients have got further rewards acknowledged, but not longer than a takeover takes: the next fault may
/// come while the last one is not overcome.
fn wait_for_rewards(load: &Load, more: usize) {
    let count = || load.acknowledged.lock().unwrap().len();
    let (begun, before) = (Instant::now(), count());
    while count() < before + more && begun.elapsed() < Duration::from_secs(5) {
        thread::sleep(Duration::from_millis(20));
    }
}

fn faults_under_load(faults: usize, seed: u64, snapshot_every: &str) {
    let flags = ["--snapshot-every", snapshot_every];
    let Some(cluster) = TestCluster::start(NODES, 8, &flags) else {
        return;
    };
    let cluster = &cluster;
    let recorder = Recorder::start(cluster);
    let load = Load {
        // A paused node does not answer, and may execute the request when it goes on.
        patience: Duration::from_millis(2_500),
        ..Load::default()
    };
    let begun = Instant::now();
    load.run(cluster, CLIENTS, || {
        let mut dice = Dice(seed);
        let faulty = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for number in 0..faults {
                wait_for_rewards(&load, 50);
                thread::sleep(Duration::from_millis(dice.below(1_000)));
                let fault = loop {
                    let fault = Fault::draw(&mut dice);
                    let mut faulty = faulty.lock().unwrap();
                    if !is_too_much(&faulty, fault.target) {
                        faulty.push(fault.target);
                        break fault;
                    }
                    drop(faulty);
                    thread::sleep(Duration::from_millis(50));
                };
                eprintln!("{:.1?}: fault {number}: {fault:?}", begun.elapsed());
                fault.inflict(cluster);
                let faulty = &faulty;
                scope.spawn(move || {
                    thread::sleep(Duration::from_millis(fault.repair_after));
                    fault.repair(cluster);
                    faulty.lock().unwrap().retain(|t| *t != fault.target);
                });
            }
        });
        cluster.wait_until_ready();
        load.wait_for_rewards(50 * faults + 1);
        recorder.wait_for_a_purge_and_a_fit();
    });
    eprintln!("{:.1?}: {}", begun.elapsed(), load.summary());
    let audit = recorder.check(cluster, &load, 1);
    eprintln!("{:.1?}: {audit:?}", begun.elapsed());
    assert!(
        audit.rewards > 50 * faults,
        "there was hardly any load: {audit:?}"
    );
    assert!(audit.purged > 0, "nothing was purged: {audit:?}");
    assert!(audit.fits > 0, "there was no fit: {audit:?}");
}

#[test]
fn nothing_is_lost_or_doubled_when_nodes_and_nats_servers_fail() {
    faults_under_load(6, 17, ENOUGH);
}

/// The long form: `SCLUB_KILLS=100 cargo test -p sclub-cli --test cluster -- --ignored --nocapture 100_faults`.
#[test]
#[ignore = "takes several minutes"]
fn nothing_is_lost_or_doubled_by_100_faults() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let faults = number("SCLUB_KILLS").unwrap_or(100);
    let seed = number("SCLUB_SEED").unwrap_or(7);
    faults_under_load(faults as usize, seed, ENOUGH);
}
