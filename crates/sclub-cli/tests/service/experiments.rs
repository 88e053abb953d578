//! `sclub experiment` against a real server.

use serde_json::{Value, json};

use crate::keeping::{fails_with, run};
use crate::server::{Server, items};

fn printed(arguments: &[&str]) -> String {
    let output = run(arguments);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_experiment_finds_the_better_policy_and_leaves_it_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--policy", "sclub"]);
    server.ok("PUT", "/v1/items", &items(5, 3));
    let url = &*server.url;
    let arms = ["--arm", "control=sclub:40%", "--arm", "test=linucb-one:60%"];
    let wrong = [
        &["experiment", "start", "--url", url, "--name", "x"][..],
        &["--arm", "a=sclub:40%", "--arm", "b=linucb-one:40%"],
    ];
    fails_with(
        &run(&wrong.concat()),
        "the shares sum to 80%; they must sum to 100%",
    );
    fails_with(
        &run(&["experiment", "end", "--url", url, "--winner", "test"]),
        "no experiment is running",
    );
    let start = [
        &["experiment", "start", "--url", url, "--name", "x"][..],
        &arms,
        &["--shadow", "quiet=lints"],
    ];
    assert!(printed(&start.concat()).contains("experiment x is running"));
    // Users of the arm `test` click three times as often. The server tells the arm in its export.
    let mut decisions = Vec::new();
    for user in 0..400 {
        let asked = json!({"user": format!("u{user}"), "k": 3}).to_string();
        decisions.push((user, server.ok("POST", "/v1/recommend", &asked)));
    }
    let exported = printed(&["export", "--url", url]);
    let lines = exported
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    for (user, shown) in &decisions {
        let name = format!("u{user}");
        let line = lines.iter().find(|line| line["user"] == *name).unwrap();
        let is_click = user % 10 < if line["arm"] == "test" { 9 } else { 3 };
        let reward = f64::from(u8::from(is_click));
        let given = json!({"decision": shown["decision"], "reward": reward, "others": 0});
        server.ok("POST", "/v1/feedback", &given.to_string());
    }
    let shown = printed(&["experiment", "show", "--url", url]);
    assert!(shown.contains("test earns more than control"), "{shown}");
    assert!(shown.contains("This holds at any time you look"), "{shown}");
    assert!(shown.contains("shadow"), "{shown}");
    let before = server.ok("GET", "/v1/experiments", "");
    let items: u64 = before["running"]["arms"]
        .as_array()
        .unwrap()
        .iter()
        .map(|arm| arm["items"].as_u64().unwrap())
        .sum();
    assert_eq!(items, 1200);
    server.settle();
    let hash = server.hash();
    server.kill();
    let server = Server::start(folder.path(), &["--policy", "sclub"]);
    assert_eq!(server.hash(), hash);
    assert_eq!(server.ok("GET", "/v1/experiments", ""), before);
    let url = &*server.url;
    let ended = printed(&["experiment", "end", "--url", url, "--winner", "test"]);
    assert!(ended.contains("test is the winner"), "{ended}");
    assert_eq!(server.state()["policy"], "linucb-one");
    let json = printed(&["experiment", "show", "--url", url, "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["running"], &json["past"][0]["winner"]),
        (&Value::Null, &"test".into())
    );
}
