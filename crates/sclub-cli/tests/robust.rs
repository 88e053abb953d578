//! `sclub robust` as a user meets it.

mod common;

use std::fmt::Write;

use serde_json::Value;

use common::{read, run, sclub, text};

/// The regrets of a policy in some seeds of `sclub run`.
fn regrets(document: &Value, policy: &Value) -> Vec<Value> {
    let runs = document["runs"].as_array().unwrap().iter();
    runs.filter(|run| &run["policy"] == policy)
        .map(|run| run["regret"].clone())
        .collect()
}

/// The clicks per item shown of a policy in some seeds of `sclub run`.
fn click_rates(document: &Value, policy: &Value) -> Vec<Value> {
    let runs = document["runs"].as_array().unwrap().iter();
    runs.filter(|run| &run["policy"] == policy)
        .map(|run| Value::from(run["reward"].as_f64().unwrap() / run["served"].as_f64().unwrap()))
        .collect()
}

#[test]
fn every_row_is_what_sclub_run_says() {
    let folder = tempfile::tempdir().unwrap();
    let size = ["--rounds", "300", "--seeds", "2", "--first-seed", "5"];
    let mut args = vec!["robust", "--quick", "-q"];
    args.extend(size);
    let said = run(folder.path(), &args);
    let document = read(&folder.path().join("robust/robust.json"));
    assert_eq!(document["complete"], true);
    let rows = document["table"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 27);
    let markdown = std::fs::read_to_string(folder.path().join("robust/robust.md")).unwrap();
    let mut worse = 0;
    for row in rows {
        let setting = row["setting"].as_str().unwrap();
        assert!(
            said.contains(setting) && markdown.contains(setting),
            "{setting}"
        );
        let cells = row["cells"].as_array().unwrap();
        let policies: Vec<&str> = cells
            .iter()
            .map(|c| c["policy"].as_str().unwrap())
            .collect();
        let policies = policies.join(",");
        let command = row["command"].as_str().unwrap();
        let mut words: Vec<&str> = command.split(' ').skip(1).collect();
        words.extend([
            "--policies",
            &policies,
            "--no-figure",
            "-q",
            "--json",
            "one.json",
        ]);
        run(folder.path(), &words);
        let one = read(&folder.path().join("one.json"));
        for cell in cells {
            let values = cell["values"].as_array().unwrap();
            let expected = match row["measure"].as_str() {
                Some("clicks") => click_rates(&one, &cell["policy"]),
                _ => regrets(&one, &cell["policy"]),
            };
            assert_eq!(*values, expected, "{command}");
            let sum: f64 = values.iter().filter_map(Value::as_f64).sum();
            assert!((cell["mean"].as_f64().unwrap() - sum / 2.0).abs() < 1e-9);
        }
        // Paired by seed.
        let of = |name: &Value| &cells.iter().find(|c| c["policy"] == *name).unwrap()["values"];
        let own = of(&document["table"]["compared"]);
        let off = |rival: &str| {
            let rival = of(&Value::from(rival));
            let ratio = |at: usize| own[at].as_f64().unwrap() / rival[at].as_f64().unwrap();
            (ratio(0) + ratio(1)) / 2.0 - 1.0
        };
        let ind = off("linucb-ind");
        assert!((row["to_linucb_ind"]["mean"].as_f64().unwrap() - ind).abs() < 1e-9);
        if row["measure"] == "clicks" {
            let one = off("linucb-one");
            assert!((row["to_linucb_one"]["mean"].as_f64().unwrap() - one).abs() < 1e-9);
            assert_eq!(row["is_worse"], ind < -0.02 || one < -0.02, "{setting}");
            worse += usize::from(ind < -0.02) + usize::from(one < -0.02);
        } else {
            assert_eq!(row["is_worse"], ind > 0.02, "{setting}");
            worse += usize::from(ind > 0.02);
        }
    }
    // What is there is not run again, and what is worse is said.
    let again = run(folder.path(), &args);
    assert!(again.contains(" 0 results run"), "{again}");
    assert_eq!(said.matches(" worse ").count() - 1, worse, "{said}");
    assert_eq!(markdown.matches(" worse |").count(), worse);
    assert_eq!(read(&folder.path().join("robust/robust.json")), document);
}

#[test]
fn held_out_choices_are_rates_beside_a_tuned_linucb() {
    let folder = tempfile::tempdir().unwrap();
    let mut csv = String::from("user,item\n");
    for user in 1..=130u64 {
        for item in 1..=90u64 {
            let hash = (user * 7919 + item * 104_729) * 2_654_435_761 % 1000;
            let chance = if user % 5 == item % 5 { 550 } else { 120 };
            if hash < chance {
                writeln!(csv, "{user},{item}").unwrap();
            }
        }
    }
    std::fs::write(folder.path().join("took.csv"), csv).unwrap();
    let args = [
        "robust", "--quick", "--data", "took.csv", "--only", "took", "-q",
    ];
    let said = run(folder.path(), &args);
    assert!(
        said.contains("click-through rate") && !said.contains("Oracle"),
        "{said}"
    );
    assert!(said.contains("LinUCB-Ind is tuned by hand: β·"), "{said}");
    let document = read(&folder.path().join("robust/robust.json"));
    let row = &document["table"]["rows"][0];
    assert_eq!(row["measure"], "rate");
    let ind = &row["cells"][0];
    // The constants as `sclub run` takes them: "β·0.02, ridge 1/16".
    let constants = ind["constants"].as_str().unwrap();
    let (beta, ridge) = constants.split_once(", ridge 1").unwrap();
    let beta = beta.strip_prefix("β·").unwrap();
    let inverse: f64 = ridge.strip_prefix('/').map_or(1.0, |n| n.parse().unwrap());
    let scale = inverse.sqrt().to_string();
    let mut words: Vec<&str> = row["command"]
        .as_str()
        .unwrap()
        .split(' ')
        .skip(1)
        .collect();
    words.extend(["--policies", "linucb-ind"]);
    words.extend(["--beta-scale", beta, "--feature-scale", &scale]);
    words.extend(["--no-figure", "-q", "--json", "one.json"]);
    run(folder.path(), &words);
    for (at, run) in read(&folder.path().join("one.json"))["runs"]
        .as_array()
        .unwrap()
        .iter()
        .enumerate()
    {
        let rate = run["reward"].as_f64().unwrap() / run["served"].as_f64().unwrap();
        assert!((ind["values"][at].as_f64().unwrap() - rate).abs() < 1e-12);
    }
}

#[test]
fn wrong_arguments_are_told_before_anything_is_run() {
    let folder = tempfile::tempdir().unwrap();
    for (args, message) in [
        (vec!["--rounds", "0"], "rounds is 0"),
        (vec!["--seeds", "0"], "seeds is 0"),
        (vec!["--threads", "0"], "threads is 0"),
        (vec!["--data", "nowhere.csv"], "cannot read nowhere.csv"),
        (vec!["--only", "zebra"], "no setting has 'zebra'"),
    ] {
        let mut all = vec!["robust"];
        all.extend(args);
        let output = sclub(folder.path(), &all);
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        assert!(said.contains(message), "{said}");
        assert!(!folder.path().join("robust").exists());
    }
}
