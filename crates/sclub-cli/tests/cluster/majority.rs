//! Two of three NATS servers are lost: reads go on, writes are refused, nothing is lost.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use sclub_server::cluster::TTL;
use sclub_server::cluster::members::partition_of;

use crate::audit::Recorder;
use crate::client::Answer;
use crate::load::{Load, SentReward};
use crate::metrics::metric;
use crate::nodes::{SOON, TestCluster};

const PARTITIONS: usize = 4;

/// The reward of a decision.
fn reward_of(shown: &Answer) -> SentReward {
    assert_eq!(shown.status, 200, "{shown:?}");
    SentReward {
        decision: shown.body["decision"].as_str().unwrap().to_owned(),
        reward: 1.0,
    }
}

#[test]
fn reads_go_on_and_writes_are_refused_without_a_majority_of_nats() {
    let Some(cluster) = TestCluster::start(3, PARTITIONS, &["--snapshot-every", "300"]) else {
        return;
    };
    let recorder = Recorder::start(&cluster);
    let load = Load {
        patience: SOON,
        ..Load::default()
    };
    load.run(&cluster, 3, || {
        thread::sleep(Duration::from_secs(2));
        load.wait_for_rewards(101);
    });
    // A user of each partition.
    let users = (0..40).map(|number| format!("u{number}"));
    let users: BTreeMap<usize, String> = users
        .map(|user| (partition_of(&user, PARTITIONS), user))
        .collect();
    assert_eq!(users.len(), PARTITIONS);
    let recommend = |node: usize, user: &str| {
        let question = json!({"user": user, "candidates": ["i1", "i2", "i3"]}).to_string();
        let shown = cluster
            .client(node)
            .call("POST", "/v1/recommend", &question);
        shown.unwrap()
    };

    cluster.nats.kill(0);
    cluster.nats.kill(1);
    let lost = Instant::now();
    let slowest_read = Mutex::new(Duration::ZERO);
    let slowest_write = Mutex::new(Duration::ZERO);
    let note = |slowest: &Mutex<Duration>, took: Duration| {
        let mut slowest = slowest.lock().unwrap();
        *slowest = took.max(*slowest);
    };
    // At once, after the leases have ended, and after the time for which a node keeps a group that it does not need.
    while lost.elapsed() < Duration::from_millis(5 * TTL) {
        thread::scope(|scope| {
            for user in users.values() {
                for node in 0..cluster.count() {
                    let asked = Instant::now();
                    let shown = recommend(node, user);
                    note(&slowest_read, asked.elapsed());
                    let sent = reward_of(&shown);
                    let body = json!({"decision": sent.decision, "reward": 1.0}).to_string();
                    load.unanswered.lock().unwrap().push(sent);
                    let (cluster, slowest_write, note) = (&cluster, &slowest_write, &note);
                    scope.spawn(move || {
                        let asked = Instant::now();
                        let given = cluster.client(node).call("POST", "/v1/feedback", &body);
                        let given = given.unwrap();
                        assert_eq!(given.status, 503, "{given:?}");
                        assert!(given.retry_after.is_some(), "{given:?}");
                        note(slowest_write, asked.elapsed());
                    });
                }
            }
        });
    }
    let read = slowest_read.into_inner().unwrap();
    let write = slowest_write.into_inner().unwrap();
    eprintln!("without a majority, reads took at most {read:.2?}, writes {write:.2?}");
    assert!(read < Duration::from_secs(30));
    assert!(write < Duration::from_secs(30));
    // The nodes run: it is NATS that does not answer.
    for node in 0..cluster.count() {
        assert!(metric(&cluster, node, "sclub_missing_nodes").is_nan());
        assert_eq!(metric(&cluster, node, "sclub_writable"), 0.0);
        let lines =
            cluster.lines_of_log(node, "the log cannot be written; the server is read-only");
        assert!(lines > 0);
    }

    cluster.nats.restart(0);
    cluster.nats.restart(1);
    let restarted = Instant::now();
    // Writes work again by themselves.
    for user in users.values() {
        loop {
            let sent = reward_of(&recommend(0, user));
            let body = json!({"decision": sent.decision, "reward": 1.0}).to_string();
            let given = cluster.client(1).call("POST", "/v1/feedback", &body);
            if given.unwrap().status == 200 {
                load.acknowledged.lock().unwrap().push(sent);
                break;
            }
            load.unanswered.lock().unwrap().push(sent);
            assert!(restarted.elapsed() < SOON, "{user} cannot be written");
        }
    }
    eprintln!("writes work {:.1?} after the restart", restarted.elapsed());
    let audit = recorder.check(&cluster, &load, 1);
    eprintln!("{audit:?}");
    assert!(audit.rewards > 100, "there was hardly any load: {audit:?}");
}
