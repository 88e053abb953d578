//! Figures of the page: over time, of items, and of what a user was shown. They survive a restart.

use std::fs::File;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::{Server, items, sclub};

/// Repeats a request until its answer passes a test.
fn until(server: &Server, path: &str, passes: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let answer = server.ok("GET", path, "");
        if passes(&answer) {
            return answer;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{path}: {answer}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The sum of a figure over all steps.
fn sum(timeline: &Value, figure: &str) -> u64 {
    let steps = timeline["steps"].as_array().unwrap().iter();
    steps.map(|step| step[figure].as_u64().unwrap()).sum()
}

/// Three decisions of two items each, in one batch, and the rewards of both items of the first two, in another.
fn two_batches(server: &Server) {
    let requests: Vec<Value> = (0..3)
        .map(|n| json!({"user": format!("u{n}"), "k": 2, "ties": "order"}))
        .collect();
    let asked = json!({"requests": requests}).to_string();
    let answer = server.ok("POST", "/v1/recommend/batch", &asked);
    let feedback: Vec<Value> = (0..2)
        .map(|n| json!({"decision": answer["decisions"][n]["decision"], "rewards": [1, 0]}))
        .collect();
    let feedback = json!({"feedback": feedback}).to_string();
    server.ok("POST", "/v1/feedback/batch", &feedback);
}

#[test]
fn batches_are_counted_and_all_figures_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data, &[]);
    server.ok("PUT", "/v1/items", &items(4, 3));
    two_batches(&server);
    let counts = "/v1/items?counts=true";
    let shown = |answer: &Value| -> u64 {
        let counts = answer["counts"].as_array().unwrap().iter();
        counts.map(|count| count["shown"].as_u64().unwrap()).sum()
    };
    let rewards = |answer: &Value| sum(&json!({"steps": answer["counts"]}), "rewards");
    // The journal is written, and the second is over.
    let counted = until(&server, counts, |answer| {
        shown(answer) == 6 && rewards(answer) == 4
    });
    let figures = ["recommends", "feedbacks", "rewards"];
    for range in ["10m", "24h", "60d"] {
        let path = format!("/v1/timeline?range={range}");
        let sums = |answer: &Value| figures.map(|figure| sum(answer, figure));
        let timeline = until(&server, &path, |answer| sums(answer) == [3, 2, 4]);
        let rates: Vec<f64> = timeline["steps"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|step| step["reward_rate"].as_f64())
            .collect();
        assert_eq!(rates, [0.5]);
        // A step has the seconds that were counted, not those of its length.
        let seconds = sum(&timeline, "seconds");
        assert!((1..60).contains(&seconds), "{timeline}");
    }
    let recent = until(&server, "/v1/users/u0/recent", |answer| {
        answer["decisions"][0]["items"][1]["reward"] == 0.0
    });
    assert_eq!(recent["decisions"][0]["items"][0]["reward"], 1.0);
    let unanswered = server.ok("GET", "/v1/users/u2/recent", "");
    assert_eq!(
        unanswered["decisions"][0]["items"][0]["reward"],
        Value::Null
    );
    server.settle();
    let hash = server.hash();
    assert!(server.stop().success());

    let server = Server::start(&data, &[]);
    assert_eq!(server.hash(), hash);
    for range in ["10m", "24h", "60d"] {
        let timeline = server.ok("GET", &format!("/v1/timeline?range={range}"), "");
        let sums = figures.map(|figure| sum(&timeline, figure));
        assert_eq!(sums, [3, 2, 4], "{timeline}");
    }
    let again = server.ok("GET", counts, "");
    for part in ["items", "counts", "counted_since"] {
        assert_eq!(again[part], counted[part]);
    }
    assert_eq!(server.ok("GET", "/v1/users/u0/recent", ""), recent);
    // And they go on.
    two_batches(&server);
    until(&server, "/v1/timeline?range=60d", |answer| {
        sum(answer, "rewards") == 8
    });
    until(&server, counts, |answer| shown(answer) == 12);
    // A stop keeps those of the last second too.
    two_batches(&server);
    assert!(server.stop().success());
    let server = Server::start(&data, &[]);
    let timeline = server.ok("GET", "/v1/timeline?range=24h", "");
    assert_eq!(sum(&timeline, "recommends"), 9, "{timeline}");
    assert_eq!(sum(&timeline, "rewards"), 12, "{timeline}");
}

/// The number of times that items were shown, and of their rewards.
fn totals(answer: &Value) -> (u64, u64) {
    let counts = json!({"steps": answer["counts"]});
    (sum(&counts, "shown"), sum(&counts, "rewards"))
}

#[test]
fn a_kill_loses_no_counts_of_items_and_no_rewards_of_a_user() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let counts = "/v1/items?counts=true";
    let server = Server::start(&data, &[]);
    server.ok("PUT", "/v1/items", &items(4, 3));
    two_batches(&server);
    let all = until(&server, counts, |answer| totals(answer) == (6, 4));
    server.kill();
    // Nothing of it was in the file of counts.
    let server = Server::start(&data, &[]);
    let answer = server.ok("GET", counts, "");
    assert_eq!(answer["counts"], all["counts"]);
    assert_eq!(answer["counted_since"], all["counted_since"]);
    assert!(server.stop().success());
    // Some of it is, and counts once.
    let server = Server::start(&data, &[]);
    two_batches(&server);
    until(&server, counts, |answer| totals(answer) == (12, 8));
    server.kill();
    let server = Server::start(&data, &[]);
    assert_eq!(totals(&server.ok("GET", counts, "")), (12, 8));
    let recent = server.ok("GET", "/v1/users/u0/recent", "");
    assert_eq!(recent["decisions"].as_array().unwrap().len(), 2, "{recent}");
    assert_eq!(recent["decisions"][0]["items"][0]["reward"], 1.0);
}

#[test]
fn a_forgotten_user_is_in_no_figure_of_a_user_or_an_item() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data, &[]);
    server.ok("PUT", "/v1/items", &items(4, 3));
    two_batches(&server);
    let counts = "/v1/items?counts=true";
    until(&server, counts, |answer| totals(answer) == (6, 4));
    server.ok("DELETE", "/v1/users/u0", "");
    let recent = server.ok("GET", "/v1/users/u0/recent", "");
    assert_eq!(recent["decisions"], json!([]));
    server.ok("POST", "/v1/admin/compact", "");
    until(&server, counts, |answer| totals(answer) == (4, 2));
    server.kill();
    // Neither the journal nor the file of counts brings it back.
    let server = Server::start(&data, &[]);
    assert_eq!(totals(&server.ok("GET", counts, "")), (4, 2));
    let recent = server.ok("GET", "/v1/users/u0/recent", "");
    assert_eq!(recent["decisions"], json!([]));
    assert_eq!(
        server.ok("GET", "/v1/users/u1/recent", "")["decisions"][0]["items"][0]["reward"],
        1.0
    );
}

#[test]
fn without_a_journal_rewards_of_a_user_are_known_and_nothing_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &["--journal-days", "0"]);
    server.ok("PUT", "/v1/items", &items(4, 3));
    two_batches(&server);
    let recent = server.ok("GET", "/v1/users/u0/recent", "");
    let rewards = [0, 1].map(|n| recent["decisions"][0]["items"][n]["reward"].clone());
    assert_eq!(rewards, [1.0, 0.0]);
    let answer = server.ok("GET", "/v1/items?counts=true", "");
    assert_eq!(answer["counts"], Value::Null);
}

#[test]
fn a_preview_is_drawn_as_the_next_decision_and_changes_no_later_one() {
    let folder = tempfile::tempdir().unwrap();
    for policy in ["lints", "sclub-soft", "ts:linucb-one"] {
        let data = folder.path().join(policy.replace(':', "-"));
        let server = Server::start(&data, &["--policy", policy]);
        server.ok("PUT", "/v1/items", &items(30, 3));
        for _ in 0..10 {
            two_batches(&server);
        }
        server.settle();
        let of = |answer: &Value| -> Vec<(Value, Value)> {
            let items = answer["items"].as_array().unwrap().iter();
            items
                .map(|i| (i["id"].clone(), i["score"].clone()))
                .collect()
        };
        let mut drawn = Vec::new();
        for user in ["u0", "nobody"] {
            let path = format!("/v1/users/{user}/preview?k=4");
            let preview = server.ok("GET", &path, "");
            assert_eq!(preview["random"], true, "{policy}");
            for _ in 0..3 {
                assert_eq!(server.ok("GET", &path, ""), preview, "{policy}");
            }
            let asked = json!({"user": user, "k": 4}).to_string();
            let made = server.ok("POST", "/v1/recommend", &asked);
            assert_eq!(of(&made), of(&preview), "{policy}, {user}");
            drawn.push(of(&server.ok("GET", &path, "")) == of(&preview));
        }
        assert!(
            !drawn.contains(&true),
            "{policy} draws anew for each decision"
        );
    }
}

#[test]
fn a_preview_does_not_explore() {
    let folder = tempfile::tempdir().unwrap();
    let flags = [
        "--policy",
        "sclub",
        "--explore-share",
        "0.9",
        "--propensities",
        "20",
    ];
    let server = Server::start(&folder.path().join("data"), &flags);
    server.ok("PUT", "/v1/items", &items(30, 3));
    for _ in 0..10 {
        two_batches(&server);
        let preview = server.ok("GET", "/v1/users/u0/preview?k=5", "");
        let items = preview["items"].as_array().unwrap().iter();
        let scores: Vec<f64> = items.map(|item| item["score"].as_f64().unwrap()).collect();
        assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
        assert_eq!(preview["explore_share"], 0.9);
        assert_eq!(preview["random"], false);
    }
}

#[test]
fn a_damaged_file_of_figures_is_ignored_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data, &[]);
    server.ok("PUT", "/v1/items", &items(4, 3));
    two_batches(&server);
    until(&server, "/v1/timeline", |answer| {
        sum(answer, "rewards") == 4
    });
    assert!(server.stop().success());
    let file = data.join("figures");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, &bytes).unwrap();

    let log = folder.path().join("log");
    let mut command = sclub();
    command.args(["serve", "--addr", "127.0.0.1:0", "--log", "warn", "--data"]);
    command
        .arg(&data)
        .stderr(Stdio::from(File::create(&log).unwrap()));
    let server = Server::from_logged(command);
    let timeline = server.ok("GET", "/v1/timeline?range=60d", "");
    assert_eq!(sum(&timeline, "rewards"), 0, "{timeline}");
    assert_eq!(server.state()["rewards"], 4);
    assert!(server.stop().success());
    let log = std::fs::read_to_string(log).unwrap();
    assert!(
        log.contains("the figures of the page cannot be read"),
        "{log}"
    );
    // It was written anew.
    assert_ne!(std::fs::read(&file).unwrap(), bytes);
}

#[test]
fn a_preview_is_what_a_recommendation_would_be_and_records_nothing() {
    let folder = tempfile::tempdir().unwrap();
    // A policy that draws nothing.
    let server = Server::start(&folder.path().join("data"), &["--policy", "linucb-one"]);
    let (status, answer) = server.call("GET", "/v1/users/u0/preview", "");
    assert_eq!(
        (status, &answer["error"]["code"]),
        (404, &json!("no_candidates"))
    );
    server.ok("PUT", "/v1/items", &items(6, 3));
    for _ in 0..20 {
        two_batches(&server);
    }
    let state = |server: &Server| {
        let state = server.hashed();
        (state["hash"].clone(), state["decisions"].clone())
    };
    let before = state(&server);
    let preview = server.ok("GET", "/v1/users/u0/preview?k=4", "");
    assert_eq!(preview["random"], false);
    let recent = server.ok("GET", "/v1/users/u9/recent", "");
    assert_eq!(recent["decisions"], json!([]));
    assert_eq!(state(&server), before);
    let asked = json!({"user": "u0", "k": 4}).to_string();
    let made = server.ok("POST", "/v1/recommend", &asked);
    let of = |answer: &Value, name: &str| -> Vec<Value> {
        let items = answer["items"].as_array().unwrap().iter();
        items.map(|item| item[name].clone()).collect()
    };
    for name in ["id", "score", "mean", "width"] {
        assert_eq!(of(&preview, name), of(&made, name), "{name}");
    }
    // LinUCB's expected reward is the features times the only estimate.
    for item in preview["items"].as_array().unwrap() {
        let id = item["id"].as_str().unwrap();
        let features = server.ok("GET", &format!("/v1/items/{id}"), "")["features"].clone();
        let card = server.ok("GET", "/v1/users/u0", "");
        let product: f64 = (0..3)
            .map(|n| features[n].as_f64().unwrap() * card["cluster_estimate"][n].as_f64().unwrap())
            .sum();
        assert!((item["cluster_mean"].as_f64().unwrap() - product).abs() < 1e-12);
        assert!(
            (item["mean"].as_f64().unwrap() - product).abs() < 1e-9,
            "{item}"
        );
    }
    let (status, answer) = server.call("GET", "/v1/users/u0/preview?k=0", "");
    assert_eq!((status, &answer["error"]["field"]), (422, &json!("k")));
}

#[test]
fn items_are_found_by_id_title_tag_and_the_texts_of_data() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &[]);
    let mut lines = items(30, 2);
    lines +=
        "{\"id\": \"x1\", \"features\": [1, 0], \"title\": \"Grüner TEE\", \"tags\": [\"Hot\"]}\n";
    lines += "{\"id\": \"x2\", \"features\": [1, 0], \"title\": \"Kaffee\", \"tags\": [\"hot\"], \"available\": false, \
        \"data\": {\"maker\": {\"name\": [\"The \\\"Süd\\\" Mill\"]}, \"price\": 34}}\n";
    server.ok("PUT", "/v1/items", &lines);
    let find = |query: &str| -> (u64, Vec<String>, Value) {
        let answer = server.ok("GET", &format!("/v1/items?{query}"), "");
        let ids = answer["items"].as_array().unwrap().iter();
        let ids = ids.map(|item| item["id"].as_str().unwrap().to_owned());
        (
            answer["total"].as_u64().unwrap(),
            ids.collect(),
            answer["next"].clone(),
        )
    };
    assert_eq!(find("search=gr%C3%9CNER").1, ["x1"]);
    assert_eq!(find("search=HOT").1, ["x1", "x2"]);
    // Texts of data, with quotation marks, but not the names of its fields.
    assert_eq!(find("search=%22S%C3%9CD%22+mill").1, ["x2"]);
    assert_eq!(find("search=maker").0, 0);
    // All words, in any order and place, without accents.
    assert_eq!(find("search=tee+gruner").1, ["x1"]);
    assert_eq!(find("search=hot++k%C3%A1ff").1, ["x2"]);
    assert_eq!(find("search=tee+kaffee").0, 0);
    assert_eq!(find("search=sud%22+mill+x2").1, ["x2"]);
    assert_eq!(
        find("search=i2&limit=2"),
        (11, vec!["i2".into(), "i20".into()], json!("i20"))
    );
    // Pages of a search go on where the last one ended, and the total stays.
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let (total, ids, next) = find(&format!("search=i2&limit=4{after}"));
        assert_eq!(total, 11);
        all.extend(ids);
        match next.as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    let expected = (0..30)
        .map(|n| format!("i{n}"))
        .filter(|id| id.contains("i2"));
    assert_eq!(all, expected.collect::<Vec<_>>());
    assert_eq!(find("search=nothing").0, 0);
    assert_eq!(find("limit=2").0, 32);
    let long = "a".repeat(201);
    assert_eq!(
        server
            .call("GET", &format!("/v1/items?search={long}"), "")
            .0,
        422
    );
}

#[test]
fn items_are_sorted_by_what_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &[]);
    server.ok("PUT", "/v1/items", &items(20, 2));
    // Item n is shown n mod 4 times, and rewarded each second time.
    let shows = (0..20usize).flat_map(|n| std::iter::repeat_n(n, n % 4));
    for (turn, n) in shows.enumerate() {
        let asked = json!({"user": "u", "k": 1, "candidates": [format!("i{n}")]}).to_string();
        let answer = server.ok("POST", "/v1/recommend", &asked);
        if turn % 2 == 0 {
            let reward = (n % 3) as f64 / 2.0;
            let given = json!({"decision": answer["decision"], "reward": reward}).to_string();
            server.ok("POST", "/v1/feedback", &given);
        }
    }
    let all = until(&server, "/v1/items?counts=true", |answer| {
        totals(answer) == (30, 15)
    });
    let counts = all["counts"].as_array().unwrap();
    for by in ["shown", "rewards", "reward_rate"] {
        for is_ascending in [false, true] {
            // Those without a number are last, and equal ones are in the order of the catalogue.
            let mut expected: Vec<usize> = (0..20).collect();
            expected.sort_by(
                |&a, &b| match (counts[a][by].as_f64(), counts[b][by].as_f64()) {
                    (Some(a), Some(b)) if is_ascending => a.total_cmp(&b),
                    (Some(a), Some(b)) => b.total_cmp(&a),
                    (a, b) => b.is_some().cmp(&a.is_some()),
                },
            );
            for (search, expected) in [
                ("", expected.clone()),
                (
                    "&search=i1",
                    expected.into_iter().filter(|n| *n == 1 || *n > 9).collect(),
                ),
            ] {
                let (mut listed, mut after) = (Vec::new(), String::new());
                loop {
                    let path = format!(
                        "/v1/items?limit=3&counts=true&sort={by}&ascending={is_ascending}{search}{after}"
                    );
                    let page = server.ok("GET", &path, "");
                    assert_eq!(page["total"], expected.len());
                    for (item, count) in std::iter::zip(
                        page["items"].as_array().unwrap(),
                        page["counts"].as_array().unwrap(),
                    ) {
                        let n: usize = item["id"].as_str().unwrap()[1..].parse().unwrap();
                        assert_eq!(*count, counts[n]);
                        listed.push(n);
                    }
                    match page["next"].as_str() {
                        Some(next) => after = format!("&after={next}"),
                        None => break,
                    }
                }
                assert_eq!(listed, expected, "{by}, {is_ascending}{search}");
            }
        }
    }
}
