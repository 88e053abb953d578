//! `sclub ablate` as a user meets it.

mod common;

use serde_json::Value;

use common::{read, run, sclub, text};

/// The value of a column that `sclub run` gives for a run of `sclub-soft`.
fn value(run: &Value, measure: &Value) -> Value {
    if measure == "regret" {
        return run["regret"].clone();
    }
    let stages = run["stages"].as_array().unwrap().iter();
    let clicks: f64 = stages.filter_map(|s| s["expected_clicks"].as_f64()).sum();
    Value::from(clicks / run["served"].as_f64().unwrap())
}

#[test]
fn cells_are_what_sclub_run_says() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["ablate", "--quick", "-q", "--first-seed", "5"];
    let said = run(folder.path(), &args);
    let document = read(&folder.path().join("results/ablation.json"));
    let markdown = std::fs::read_to_string(folder.path().join("results/ablation.md")).unwrap();
    assert_eq!(document["complete"], true);
    let columns = document["table"]["columns"].as_array().unwrap();
    let rows = document["table"]["rows"].as_array().unwrap();
    assert_eq!((rows.len(), columns.len()), (12, 4));
    for (place, row) in rows.iter().enumerate() {
        let (variant, flags) = (&row["variant"], row["flags"].as_str().unwrap());
        let variant = variant.as_str().unwrap();
        assert!(
            said.contains(variant) && markdown.contains(variant),
            "{variant}"
        );
        assert!(markdown.contains(flags), "{flags}");
        let cells = row["cells"].as_array().unwrap();
        // The unchanged policy in all worlds, each other variant in one of them.
        let compared = columns.iter().zip(cells).enumerate();
        let compared = compared.filter(|(at, _)| place == 0 || place % columns.len() == *at);
        for (_, (column, cell)) in compared {
            let command = format!("{} {flags}", column["command"].as_str().unwrap());
            let mut words: Vec<&str> = command.split_whitespace().skip(1).collect();
            words.extend(["--no-figure", "-q", "--json", "one.json"]);
            run(folder.path(), &words);
            let one = read(&folder.path().join("one.json"));
            let runs = one["runs"].as_array().unwrap().iter();
            let runs = runs.filter(|run| run["policy"] == "sclub-soft");
            let expected: Vec<Value> = runs.map(|run| value(run, &column["measure"])).collect();
            assert_eq!(*cell["values"].as_array().unwrap(), expected, "{command}");
        }
    }
}

#[test]
fn wrong_arguments_are_told_before_anything_is_run() {
    let folder = tempfile::tempdir().unwrap();
    for (args, message) in [
        (["--seeds", "0"], "seeds is 0"),
        (["--threads", "0"], "threads is 0"),
        (["--only", "zebra"], "no variant and no world has 'zebra'"),
        (["--json", "table.md"], "name it .json"),
        (
            ["--first-seed", "18446744073709551615"],
            "the first seed is",
        ),
    ] {
        let mut all = vec!["ablate"];
        all.extend(args);
        let output = sclub(folder.path(), &all);
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        assert!(said.contains(message), "{said}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
