//! The metrics of a node: sums over the partitions that it owns.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::nodes::{SOON, TestCluster};

/// Sends a reward for each of some users.
fn learn(cluster: &TestCluster, rounds: usize, reward: impl Fn(usize) -> usize) {
    let mut client = cluster.client(0);
    for round in 0..rounds {
        let request = json!({"user": format!("u{}", round % 7)}).to_string();
        let shown = client.call("POST", "/v1/recommend", &request).unwrap();
        let feedback = json!({"decision": shown.body["decision"], "reward": reward(round)});
        let taken = client.call("POST", "/v1/feedback", &feedback.to_string());
        assert_eq!(taken.unwrap().status, 200);
    }
}

/// The value of a metric of a node.
pub fn metric(cluster: &TestCluster, node: usize, name: &str) -> f64 {
    let answer = cluster.client(node).call("GET", "/metrics", "").unwrap();
    let text = answer.body.as_str().unwrap();
    let name = format!("{name}{{space=\"default\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap_or_else(|| panic!("no {name}in {text}"))
        .parse()
        .unwrap()
}

#[test]
fn a_node_that_takes_over_knows_that_earlier_rewards_differed() {
    let Some(cluster) = TestCluster::start(2, 1, &[]) else {
        return;
    };
    learn(&cluster, 60, |round| round % 2);
    let owned = |node| metric(&cluster, node, "sclub_owned_partitions");
    // The owner of the partition. The catalogue is no partition.
    let owner = (0..2).find(|&node| owned(node) > 0.0).unwrap();
    let drained = cluster.command(&["drain", cluster.name(owner)]);
    assert!(drained.status.success(), "{drained:?}");
    learn(&cluster, 110, |_| 0);
    assert!(owned(1 - owner) > 0.0);
    assert_eq!(metric(&cluster, 1 - owner, "sclub_rewards_equal"), 0.0);
    let state = cluster.client(0).call("GET", "/v1/state", "").unwrap().body;
    assert_eq!(state["rewards"], 170);
    assert!(state["reward_warning"].is_null(), "{state}");
}

#[test]
fn a_node_tells_that_all_rewards_are_equal_and_what_its_fits_found() {
    let Some(cluster) = TestCluster::start(1, 2, &[]) else {
        return;
    };
    let value = |name: &str| metric(&cluster, 0, name);
    assert_eq!(value("sclub_ready"), 1.0);
    assert_eq!(value("sclub_rewards_equal"), 0.0);
    assert!(value("sclub_clustering_gain").is_nan());
    // More than 100 in one partition at least.
    learn(&cluster, 210, |_| 1);
    assert_eq!(value("sclub_rewards_equal"), 1.0);
    let begun = Instant::now();
    while !value("sclub_clustering_gain").is_finite() {
        assert!(begun.elapsed() < SOON, "no fit");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(value("sclub_fit_seconds") > 0.0);
    learn(&cluster, 20, |round| round % 2);
    assert_eq!(value("sclub_rewards_equal"), 0.0);
}
