//! A program with a policy of its own has every command of `sclub`, and the policy is in all of them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// The example of that name, which `cargo test` builds beside the command.
fn example() -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_sclub")).parent().unwrap();
    let path = built.join("examples").join("own_policy");
    let path = path.with_extension(std::env::consts::EXE_EXTENSION);
    assert!(path.exists(), "build it: cargo build --example own_policy");
    path
}

fn run(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(example());
    command.current_dir(folder).arg("run").args(args);
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const SMALL: [&str; 10] = [
    "--policies",
    "mine,random",
    "--rounds",
    "2000",
    "--seeds",
    "1",
    "--users",
    "30",
    "--dim",
    "5",
];

#[test]
fn it_is_listed_with_its_constants() {
    let folder = tempfile::tempdir().unwrap();
    let help = text(&run(folder.path(), &["--help"]).stdout);
    for words in [
        "--step <X>",
        "How far an error moves it [of mine] [default: 0.1]",
    ] {
        assert!(help.contains(words), "{words} is missing from:\n{help}");
    }
    let listed = help
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let line = "mine One weight vector for all users, by gradient steps";
    assert!(listed.into_iter().any(|listed| listed == line), "{help}");
    let place = |name: &str| help.find(&format!("\n            {name} ")).unwrap_or(0);
    assert!(place("linucb-one") < place("mine") && place("mine") < place("oracle"));
}

#[test]
fn it_plays_beside_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let regrets = |more: &[&str]| {
        let output = run(folder.path(), &[&SMALL[..], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let document = std::fs::read(folder.path().join("results/run.json")).unwrap();
        let document: Value = serde_json::from_slice(&document).unwrap();
        let regret = |run: usize| document["runs"][run]["regret"].as_f64().unwrap();
        assert_eq!(document["runs"][0]["policy"], "mine");
        let step = document["config"]["constants"]["mine"]["step"].as_f64();
        (step.unwrap(), regret(0), regret(1))
    };
    let (step, mine, random) = regrets(&[]);
    assert_eq!(step, 0.1);
    assert!(mine < 0.9 * random, "{mine} {random}");
    let svg = std::fs::read_to_string(folder.path().join("results/run.svg")).unwrap();
    assert!(svg.contains("#a0522d"), "it has its own colour");
    let (step, other, same) = regrets(&["--step", "0.5"]);
    assert_eq!((step, same), (0.5, random));
    assert_ne!(other, mine);
}

#[test]
fn it_has_a_curve_in_the_paper_and_a_column_in_the_field() {
    let folder = tempfile::tempdir().unwrap();
    let read = |path: &str| std::fs::read_to_string(folder.path().join(path)).unwrap();
    let command = |args: &[&str]| {
        let mut command = Command::new(example());
        let output = command.current_dir(folder.path()).args(args).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    let small = ["--rounds", "300", "--seeds", "2"];
    let paper = ["paper", "--policies", "mine", "--parts", "panels"];
    command(&[&paper[..], &small].concat());
    let results: Value = serde_json::from_str(&read("report/results.json")).unwrap();
    assert_eq!(results["panels"][0]["cells"][5]["policy"], "mine");
    let svg = read("report/figures/figure-1a.svg").to_lowercase();
    assert!(svg.contains("#a0522d") && svg.contains(">mine<"));
    let page = read("report/index.html");
    assert!(page.contains("Mine is not in the paper. One weight vector for all users"));
    assert!(page.contains("--policy-mine:#A0522D;") && page.contains("--policy-mine:#DEB887;"));
    let field = ["field", "--policies", "mine,sclub", "--only", "servers"];
    command(&[&field[..], &small].concat());
    let results: Value = serde_json::from_str(&read("field/field.json")).unwrap();
    let cells = results["field"]["worlds"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[0]["policy"], "mine");
    assert!(cells[0]["rank"].is_number());
}

#[test]
fn what_it_has_not_is_refused_and_so_is_a_bad_value() {
    let folder = tempfile::tempdir().unwrap();
    for (flag, value, words) in [
        ("--alpha-p", "1", "alpha_p is a constant of sclub"),
        ("--step", "0", "step: it is 0, and must be positive"),
    ] {
        let output = run(folder.path(), &[&SMALL[..], &[flag, value]].concat());
        assert_eq!(output.status.code(), Some(2));
        let error = text(&output.stderr);
        assert!(error.contains(words), "{error}");
    }
}
