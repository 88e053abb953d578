//! The service learns like the lab.

use std::process::Command;

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

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
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
    let folder = tempfile::tempdir().unwrap();
    let (lab, service) = (
        folder.path().join("lab.json"),
        folder.path().join("service.json"),
    );
    run(sclub()
        .current_dir(folder.path())
        .args(["run", "--seeds", "1", "--policies", policy, "--json"])
        .arg(&lab)
        .args(WORLD)
        .args(constants)
        .args(more));
    let flags = [&["--policy", policy], constants].concat();
    let server = Server::start(&folder.path().join("data"), &flags);
    run(sclub()
        .args(["simulate", "--url", &server.url, "--json"])
        .arg(&service)
        .args(WORLD)
        .args(more));
    let (lab, service) = (&read(&lab)["runs"][0], &read(&service));
    for figure in ["regret", "random_regret", "reward"] {
        assert!(lab[figure].is_f64(), "{figure} of the lab");
        assert_eq!(lab[figure], service[figure], "{figure} of {policy}");
    }
}

#[test]
fn sclub_over_http_has_the_labs_regret() {
    same_figures("sclub", &[]);
    let constants = ["--alpha-theta", "0.7", "--beta", "0.4"];
    same_figures_with("sclub", &constants, &["--users-a-round", "1.5"]);
}

#[test]
fn linucb_over_http_has_the_labs_regret() {
    same_figures("linucb-ind", &[]);
    same_figures("linucb-one", &["--frequencies", "users"]);
}
