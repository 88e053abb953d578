//! The service learns like the lab.

use std::process::Command;

use sclub::{Setup, Spec};
use sclub_server::identity::servable;
use serde_json::Value;

use crate::server::{Server, sclub};

const WORLD: [&str; 12] = [
    "--users",
    "30",
    "--clusters",
    "3",
    "--dim",
    "6",
    "--items",
    "8",
    "--rounds",
    "1500",
    "--first-seed",
    "5",
];

/// Runs a command. Returns its output.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn read(file: &std::path::Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// Regret, reward and random choice's regret, to the last digit.
fn same_figures(policy: &str, more: &[&str]) {
    same_figures_with(policy, &[], more);
}

/// The same with constants that are not the preset's.
fn same_figures_with(policy: &str, constants: &[&str], more: &[&str]) {
    let Played { lab, service, .. } = play(policy, constants, &[&WORLD, more].concat());
    let lab = &lab["runs"][0];
    for figure in ["regret", "random_regret", "reward"] {
        assert!(lab[figure].is_f64(), "{figure} of the lab");
        assert_eq!(lab[figure], service[figure], "{figure} of {policy}");
    }
}

/// A world that was played in the lab and over HTTP.
struct Played {
    /// The file of `sclub run`.
    lab: Value,
    /// The file of `sclub simulate`.
    service: Value,
    /// The server's state at the end.
    state: Value,
    /// The output of `sclub simulate`.
    printed: String,
}

fn play(policy: &str, constants: &[&str], world: &[&str]) -> Played {
    let folder = tempfile::tempdir().unwrap();
    let (lab, service) = (
        folder.path().join("lab.json"),
        folder.path().join("service.json"),
    );
    run(sclub()
        .current_dir(folder.path())
        .args(["run", "--seeds", "1", "--policies", policy, "--json"])
        .arg(&lab)
        .args(world)
        .args(constants));
    let flags = [&["--policy", policy], constants].concat();
    let server = Server::start(&folder.path().join("data"), &flags);
    let printed = run(sclub()
        .args(["simulate", "--url", &server.url, "--json"])
        .arg(&service)
        .args(world));
    Played {
        lab: read(&lab),
        service: read(&service),
        state: server.state(),
        printed,
    }
}

/// A policy that draws at random has other draws in a server than in the lab; a policy that makes fits
/// takes them at other rounds.
#[test]
fn a_deterministic_policy_over_http_has_the_labs_regret() {
    let policies = servable().into_iter();
    for spec in policies.filter(|spec| !spec.can.fit && !draws_at_random(spec)) {
        same_figures(spec.name, &[]);
    }
}

/// A new policy that draws at random contains its seed.
fn draws_at_random(spec: &'static Spec) -> bool {
    let [one, other] = [1, 2].map(|seed| {
        let setup = Setup {
            seed,
            ..Setup::new(3)
        };
        let values = spec.values(spec.presets[0], &[], &setup).unwrap();
        values.make(&setup).unwrap().digest()
    });
    one != other
}

#[test]
fn constants_and_worlds_are_the_same_over_http_as_in_the_lab() {
    let constants = ["--alpha-theta", "0.7", "--beta", "0.4"];
    same_figures_with("sclub", &constants, &["--users-a-round", "1.5"]);
    same_figures("linucb-one", &["--frequencies", "users"]);
}

/// A small shop, played to its second stage.
const SHOP: [&str; 10] = [
    "--world",
    "catalogue",
    "--items",
    "300",
    "--users",
    "80",
    "--rounds",
    "2200",
    "--first-seed",
    "5",
];

/// Compares the clicks by stage and by age, the items shown and the yardsticks, and the server's own counts.
fn same_clicks(policy: &str, more: &[&str], (delay, slots): (u64, u64)) {
    let Played {
        lab,
        service,
        state,
        printed,
    } = play(policy, &[], &[&SHOP, more].concat());
    let lab = lab["runs"].as_array().unwrap();
    let stages = service["stages"].as_array().unwrap();
    assert_eq!(stages.len(), 2, "{stages:?}");
    let same = ["stages", "by_age", "distinct_items", "regret", "served"];
    for figure in same {
        assert!(!lab[0][figure].is_null(), "{figure} of the lab");
        assert_eq!(lab[0][figure], service[figure], "{figure} of {policy}");
    }
    let yardsticks = service["yardsticks"].as_array().unwrap();
    assert_eq!(yardsticks.len(), 3);
    for (here, there) in yardsticks.iter().zip(&lab[1..]) {
        for figure in [&["policy"][..], &same].concat() {
            assert_eq!(here[figure], there[figure], "{figure} of a yardstick");
        }
    }
    let words = printed.split("The same number of clicks comes from: sclub ");
    let words = words.last().unwrap().lines().next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    run(sclub()
        .current_dir(folder.path())
        .args(words.split(' ').chain(["--json", "named.json"])));
    let named = read(&folder.path().join("named.json"));
    assert_eq!(named["runs"][0]["stages"], service["stages"], "{words}");
    // Late rewards that have not come at the end are never sent.
    assert_eq!(state["rounds"], 2200 - delay);
    assert_eq!(state["rewards"], (2200 - delay) * slots);
    assert_eq!(state["items"], 300);
    assert_eq!(state["expected_users"], 80);
    let clicks: f64 = stages.iter().map(|s| s["clicks"].as_f64().unwrap()).sum();
    let learned = state["reward_sum"].as_f64().unwrap();
    let late = clicks - learned;
    assert!((0.0..=(delay * slots) as f64).contains(&late), "{late}");
}

#[test]
fn a_shop_over_http_has_the_labs_clicks() {
    same_clicks("linucb-one", &[], (0, 1));
}

#[test]
fn late_rewards_lists_and_newcomers_are_the_same_over_http_as_in_the_lab() {
    let more = [
        "--delay",
        "70",
        "--slots",
        "3",
        "--visits",
        "zipf",
        "--newcomers-every",
        "20",
        "--link",
        "linear",
    ];
    same_clicks("linucb-ind", &more, (70, 3));
}
