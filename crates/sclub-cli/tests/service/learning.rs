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
