//! What the page shows of users and items, on every node of a cluster.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::nodes::TestCluster;

fn get(cluster: &TestCluster, i: usize, path: &str) -> Value {
    let answer = cluster.client(i).call("GET", path, "").unwrap();
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.body
}

/// Repeats a request to a node until its answer passes a test.
fn until(cluster: &TestCluster, i: usize, path: &str, passes: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let answer = get(cluster, i, path);
        if passes(&answer) {
            return answer;
        }
        let waited = begun.elapsed();
        assert!(waited < Duration::from_secs(60), "{path}: {answer}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The counts of each item that was shown: times shown, rewards, and their mean.
type Counts = BTreeMap<String, (u64, u64, f64)>;

fn counts(answer: &Value) -> Counts {
    let ids = answer["items"].as_array().unwrap().iter();
    let counts = answer["counts"].as_array().unwrap().iter();
    let all = ids.zip(counts).map(|(item, count)| {
        let id = item["id"].as_str().unwrap().to_owned();
        let number = |name: &str| count[name].as_u64().unwrap();
        let mean = count["reward_rate"].as_f64().unwrap_or(0.0);
        (id, (number("shown"), number("rewards"), mean))
    });
    all.filter(|(_, (shown, ..))| *shown > 0).collect()
}

/// A decision for each of some users through a node, with a reward of 1 for its first item and 0 for the others.
fn serve(cluster: &TestCluster, i: usize, users: &[String], expected: &mut Counts) {
    let mut client = cluster.client(i);
    for user in users {
        let asked = json!({"user": user, "k": 3}).to_string();
        let answer = client.call("POST", "/v1/recommend", &asked).unwrap().body;
        let given = json!({"decision": answer["decision"], "rewards": [1, 0, 0]}).to_string();
        let status = client.call("POST", "/v1/feedback", &given).unwrap().status;
        assert_eq!(status, 200);
        for (place, item) in answer["items"].as_array().unwrap().iter().enumerate() {
            let id = item["id"].as_str().unwrap().to_owned();
            let (shown, rewards, mean) = expected.entry(id).or_default();
            let sum = *mean * *rewards as f64 + f64::from(u8::from(place == 0));
            *shown += 1;
            *rewards += 1;
            *mean = sum / *rewards as f64;
        }
    }
}

fn is_close(found: &Counts, expected: &Counts) -> bool {
    found.len() == expected.len()
        && found.iter().zip(expected).all(|((id, a), (other, b))| {
            id == other && (a.0, a.1) == (b.0, b.1) && (a.2 - b.2).abs() < 1e-9
        })
}

#[test]
fn every_node_shows_counts_of_items_and_decisions_of_users_also_after_they_have_moved() {
    let Some(cluster) = TestCluster::start(2, 4, &[]) else {
        return;
    };
    let users: Vec<String> = (0..12).map(|n| format!("user/{n}%")).collect();
    let mut expected = Counts::new();
    serve(&cluster, 0, &users, &mut expected);
    serve(&cluster, 1, &users, &mut expected);
    let path = "/v1/items?counts=true&limit=100";
    for i in 0..2 {
        until(&cluster, i, path, |answer| {
            is_close(&counts(answer), &expected)
        });
    }
    let recent = |user: &str| {
        let user = user.replace('%', "%25").replace('/', "%2F");
        format!("/v1/users/{user}/recent")
    };
    let rewards = |answer: &Value, n: usize| -> Vec<Value> {
        let items = answer["decisions"][n]["items"].as_array().unwrap().iter();
        items.map(|item| item["reward"].clone()).collect()
    };
    let given = [json!(1.0), json!(0.0), json!(0.0)];
    for user in &users {
        let [one, other] = [0, 1].map(|i| get(&cluster, i, &recent(user)));
        assert_eq!(one, other, "{user}");
        assert_eq!(one["decisions"].as_array().unwrap().len(), 2, "{user}");
        assert_eq!(rewards(&one, 0), given, "{user}");
        assert_eq!(rewards(&one, 1), given, "{user}");
    }

    // All partitions move to one node. The other one still has what it did.
    let drained = cluster.command(&["drain", cluster.name(0)]);
    assert!(drained.status.success(), "{drained:?}");
    serve(&cluster, 0, &users, &mut expected);
    for i in 0..2 {
        until(&cluster, i, path, |answer| {
            is_close(&counts(answer), &expected)
        });
        let answer = get(&cluster, i, &recent(&users[3]));
        assert_eq!(answer["decisions"].as_array().unwrap().len(), 3);
        assert_eq!(rewards(&answer, 0), given);
    }

    // A forgotten user is gone from every node.
    let gone = recent(&users[3]).replace("/recent", "");
    let forgot = cluster.client(1).call("DELETE", &gone, "").unwrap();
    assert_eq!(forgot.status, 200);
    for i in 0..2 {
        until(&cluster, i, &recent(&users[3]), |answer| {
            answer["decisions"] == json!([])
        });
    }

    // A node that was stopped goes on counting. While it is away, its part is missing, and it is named.
    assert!(cluster.stop(0).success());
    let away = until(&cluster, 1, path, |answer| {
        answer["missing_nodes"] == json!([cluster.name(0)])
    });
    assert!(!is_close(&counts(&away), &expected));
    cluster.spawn(0);
    cluster.wait_until_ready();
    for i in 0..2 {
        let back = until(&cluster, i, path, |answer| {
            answer["missing_nodes"].is_null()
        });
        assert!(is_close(&counts(&back), &expected), "{back}");
    }
}
