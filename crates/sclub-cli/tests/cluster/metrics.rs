//! The metrics of a node: sums over the partitions that it owns.

use serde_json::json;

use crate::nodes::TestCluster;

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

#[test]
fn a_node_tells_that_all_rewards_are_equal_and_what_its_fits_found() {
    let Some(cluster) = TestCluster::start(1, 2, &[]) else {
        return;
    };
    let value = |name: &str| -> f64 {
        let answer = cluster.client(0).call("GET", "/metrics", "").unwrap();
        let text = answer.body.as_str().unwrap();
        let name = format!("{name}{{space=\"default\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap_or_else(|| panic!("no {name}in {text}"))
            .parse()
            .unwrap()
    };
    assert_eq!(value("sclub_ready"), 1.0);
    assert_eq!(value("sclub_rewards_equal"), 0.0);
    assert!(value("sclub_clustering_gain").is_nan());
    // More than 100 in one partition at least.
    learn(&cluster, 210, |_| 1);
    assert_eq!(value("sclub_rewards_equal"), 1.0);
    assert!(value("sclub_clustering_gain").is_finite());
    assert!(value("sclub_fit_seconds") > 0.0);
    learn(&cluster, 20, |round| round % 2);
    assert_eq!(value("sclub_rewards_equal"), 0.0);
}
