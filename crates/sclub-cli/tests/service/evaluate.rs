//! `sclub evaluate` on the export of a real server.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::server::{Server, sclub};

const ITEMS: usize = 12;
const USERS: usize = 100;

/// The first half of the items is red; the last one cannot be had.
fn catalogue() -> String {
    let mut lines = String::new();
    for item in 0..ITEMS {
        let number = |step: usize| ((item * step + 1) % 7) as f64 / 7.0 - 0.4;
        let line = json!({
            "id": format!("i{item}"),
            "features": [number(3), number(5), 0.5 + 0.01 * item as f64],
            "tags": [if item < ITEMS / 2 { "red" } else { "blue" }],
            "available": item + 1 < ITEMS,
            "data": {"price": item},
        });
        writeln!(lines, "{line}").unwrap();
    }
    lines
}

/// The true mean reward of an item.
fn mean(item: usize) -> f64 {
    0.2 + 0.05 * item as f64
}

/// The request of a round for a user, and its candidates.
fn request(round: usize, user: usize) -> (Value, Vec<usize>) {
    let user_id = format!("u{user}");
    match (round + user) % 4 {
        0 => (json!({"user": user_id}), (0..ITEMS - 1).collect()),
        1 => (
            json!({"user": user_id, "k": 3, "filter": {"tags": ["red"]}}),
            (0..ITEMS / 2).collect(),
        ),
        2 => (
            json!({"user": user_id, "k": 2, "filter": {"price": {"min": 4}}, "exclude": ["i5"]}),
            (4..ITEMS - 1).filter(|item| *item != 5).collect(),
        ),
        _ => (
            json!({"user": user_id, "candidates": ["i9", "i2", "i4"]}),
            vec![9, 2, 4],
        ),
    }
}

/// Numbers from 0 to 1 that look random.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / 2f64.powi(31)
    }
}

/// Serves users for some rounds. Returns the true value of showing candidates at random.
fn serve(server: &Server, rounds: usize) -> f64 {
    let mut draws = Draws(1);
    let (mut total, mut decisions) = (0.0, 0.0);
    server.ok("PUT", "/v1/items", &catalogue());
    for round in 0..rounds {
        let asked: Vec<(Value, Vec<usize>)> = (0..USERS).map(|user| request(round, user)).collect();
        let requests: Vec<&Value> = asked.iter().map(|(request, _)| request).collect();
        let answer = server.ok(
            "POST",
            "/v1/recommend/batch",
            &json!({"requests": requests}).to_string(),
        );
        let mut feedback = Vec::new();
        for (answer, (_, candidates)) in answer["decisions"].as_array().unwrap().iter().zip(&asked)
        {
            let means = candidates.iter().map(|item| mean(*item));
            total += means.sum::<f64>() / candidates.len() as f64;
            decisions += 1.0;
            let reward = |item: &Value| {
                let item: usize = item["id"].as_str().unwrap()[1..].parse().unwrap();
                assert!(candidates.contains(&item), "{item} {candidates:?}");
                f64::from(u8::from(draws.next() < mean(item)))
            };
            let rewards: Vec<f64> = answer["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(reward)
                .collect();
            feedback.push(json!({"decision": answer["decision"], "rewards": rewards}));
        }
        server.ok(
            "POST",
            "/v1/feedback/batch",
            &json!({"feedback": feedback}).to_string(),
        );
    }
    total / decisions
}

/// Exports the log and evaluates it. Returns the output and the report.
fn evaluated(server: &Server, folder: &Path, more: &[&str]) -> (String, Value) {
    let run = |args: &[&str]| {
        let output = sclub().current_dir(folder).args(args).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    };
    run(&[
        "export",
        "--url",
        &server.url,
        "--out",
        "log.jsonl",
        "--items",
        "items.jsonl",
        "--quiet",
    ]);
    let policies = ["--policies", "random,linucb-one,sclub-soft"];
    let output = [
        "evaluate",
        "--log",
        "log.jsonl",
        "--json",
        "report.json",
        "--quiet",
    ];
    let printed = run(&[&output[..], &policies, more].concat());
    let report = fs::read_to_string(folder.join("report.json")).unwrap();
    (printed, serde_json::from_str(&report).unwrap())
}

#[test]
fn an_export_with_lists_filters_and_candidates_tells_the_value_of_other_policies() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data, &["--policy", "linucb-one", "--explore-share", "0.5"]);
    let truth = serve(&server, 40);
    let with_items = ["--items", "items.jsonl"];
    for more in [
        &with_items[..],
        &["--items", "items.jsonl", "--by-position"],
    ] {
        let (printed, report) = evaluated(&server, folder.path(), more);
        assert_eq!(report["decisions"], json!(40 * USERS), "{printed}");
        assert_eq!(report["notes"], json!([]), "{printed}");
        let random = &report["policies"][0];
        assert_eq!(random["warnings"], json!([]), "{printed}");
        // With the wrong candidates the mean weight is far from 1: half of the decisions have a filter.
        let (weight, error) = (&random["mean_weight"], &random["weight_error"]);
        let off = (weight.as_f64().unwrap() - 1.0).abs();
        assert!(
            off < 4.0 * error.as_f64().unwrap() && off < 0.2,
            "{printed}"
        );
        for estimator in ["ips", "snips", "dr"] {
            let estimate = &random[estimator];
            let (value, error) = (&estimate["value"], &estimate["error"]);
            let off = (value.as_f64().unwrap() - truth).abs();
            assert!(
                off < 4.0 * error.as_f64().unwrap(),
                "{estimator} {truth}: {printed}"
            );
        }
        // Policies that learn find better items than chance.
        for policy in [1, 2] {
            let value = &report["policies"][policy]["snips"]["value"];
            assert!(value.as_f64().unwrap() > truth, "{printed}");
        }
    }
    // Without the catalogue nobody knows what a filter leaves.
    let (printed, report) = evaluated(&server, folder.path(), &[]);
    assert_eq!(report["decisions"], json!(40 * USERS / 2), "{printed}");
    assert!(
        printed.contains("2000 decisions have a filter and are left out"),
        "{printed}"
    );
}

#[test]
fn the_export_of_a_policy_that_does_not_draw_tells_nothing_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data, &["--policy", "linucb-one", "--propensities", "1"]);
    serve(&server, 3);
    let (printed, report) = evaluated(&server, folder.path(), &[]);
    for policy in report["policies"].as_array().unwrap() {
        assert_eq!(policy["snips"], Value::Null, "{printed}");
        let warning = policy["warnings"][0].as_str().unwrap();
        assert!(
            warning.contains("no off-policy estimate can be had"),
            "{printed}"
        );
    }
    assert!(printed.contains("serve with --explore-share"), "{printed}");
}
