//! Logs as `sclub export` writes them.

use std::fs;
use std::path::Path;

use super::*;

#[test]
fn a_log_is_read_in_the_order_of_its_decisions() {
    let folder = tempfile::tempdir().unwrap();
    let (path, items) = (
        folder.path().join("log.jsonl"),
        folder.path().join("items.jsonl"),
    );
    let lines = [
        r#"{"decision":11,"user":"b","item":"y","position":1,"propensity":0.5,"features":[0,1],"reward":1,"decided":2,"rewarded":9}"#,
        r#"{"decision":5,"user":"a","item":"x","position":0,"propensity":0.25,"features":[1,0],"score":3,"reward":0.5,"candidates":["x","y"]}"#,
        "",
        r#"{"decision":10,"user":"b","item":"x","position":0,"propensity":0.5,"features":[1,0],"reward":null}"#,
        r#"{"decision":20,"user":"c","item":"x","position":null,"propensity":null,"features":[1,0],"reward":1}"#,
    ];
    fs::write(&path, lines.join("\n")).unwrap();
    // Candidates must be known before they are named.
    fs::write(
        &items,
        "{\"id\":\"y\",\"features\":[0,1]}\n{\"id\":\"x\",\"features\":[1,0]}\n",
    )
    .unwrap();
    let log = Log::read(&path, Some(&items), LogOptions::default()).unwrap();
    assert_eq!(log.rounds.len(), 2);
    assert_eq!(log.candidates, [1, 0]);
    let shown = |round: usize| &log.shown[log.rounds[round].shown.clone()];
    let item = |item, position, propensity, reward| ShownItem {
        item,
        position,
        propensity,
        reward,
    };
    assert_eq!(shown(0), [item(1, 0, 0.25, 0.5)]);
    assert_eq!(shown(1), [item(0, 1, 0.5, 1.0)]);
    assert_eq!((log.rounds[0].slots, log.rounds[1].slots), (1, 2));
    assert_eq!(log.notes.len(), 2, "{:?}", log.notes);
    let options = LogOptions {
        unanswered: Some(0.0),
        ..LogOptions::default()
    };
    let log = Log::read(&path, Some(&items), options).unwrap();
    assert_eq!(log.rounds[1].shown.len(), 2);
    let bad = [
        (r#"{"decision":1}"#, "line 1"),
        (&lines[0].replace("0.5", "1.5"), "at most 1"),
        (
            &lines[0].replace("\"reward\"", "\"context\":{},\"reward\""),
            "context",
        ),
    ];
    for (line, expected) in bad {
        fs::write(&path, line).unwrap();
        let error = Log::read(&path, None, LogOptions::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_decision_is_in_a_log_once() {
    let folder = tempfile::tempdir().unwrap();
    let second = |number: u64, user: &str, position: u32| {
        let line = line(number, user, "y", r#""features":[0,1]"#);
        line.replace("\"position\":0", &format!("\"position\":{position}"))
    };
    let first = line(10, "u", "x", r#""features":[1,0]"#);
    for again in [first.clone(), second(10, "v", 0), second(11, "v", 1)] {
        let lines = [first.clone(), second(12, "u", 0), again];
        let error = read(folder.path(), &lines, None).unwrap_err().to_string();
        assert!(
            error.contains("line 3: the decision is in line 1 too"),
            "{error}"
        );
    }
    let log = read(folder.path(), &[first, second(11, "u", 1)], None).unwrap();
    assert_eq!((log.rounds.len(), log.shown.len()), (1, 2));
}

/// Lines with three items of a filter's field, in the form of the export.
fn line(decision: u64, user: &str, item: &str, rest: &str) -> String {
    format!(
        r#"{{"decision":{decision},"user":"{user}","item":"{item}","position":0,"propensity":0.5,"slot_propensity":0.25,"reward":1,{rest}}}"#
    )
}

fn read(folder: &Path, lines: &[String], items: Option<&str>) -> Result<Log, LogError> {
    let (log, file) = (folder.join("log.jsonl"), folder.join("items.jsonl"));
    fs::write(&log, lines.join("\n")).unwrap();
    fs::write(&file, items.unwrap_or_default()).unwrap();
    Log::read(&log, items.map(|_| &*file), LogOptions::default())
}

#[test]
fn candidates_are_what_filter_and_exclude_leave_of_the_catalogue() {
    let folder = tempfile::tempdir().unwrap();
    let items = r#"
{"id":"a","features":[1,0],"tags":["red"],"data":{"price":3}}
{"id":"b","features":[0,1],"tags":["red"],"title":"B"}
{"id":"c","features":[1,1],"tags":["blue"]}
{"id":"d","features":[2,1],"tags":["red"],"available":false}
"#;
    let red = r#""catalogue":{"revision":4,"filter":{"tags":["red"]}}"#;
    let lines = [
        line(1, "u", "a", red),
        line(
            2,
            "u",
            "b",
            r#""catalogue":{"revision":4,"seen":1,"exclude":["a"]}"#,
        ),
        line(
            3,
            "v",
            "c",
            r#""catalogue":{"revision":4,"seen":2,"exclude":["b","gone"]}"#,
        ),
        line(
            4,
            "u",
            "c",
            r#""catalogue":{"revision":4,"seen":1,"exclude":["b"]}"#,
        ),
        line(
            5,
            "u",
            "c",
            r#""catalogue":{"revision":4,"seen":9,"exclude":["b","a"]}"#,
        ),
        line(6, "u", "c", red),
        line(7, "u", "c", r#""candidates":["c","a"]"#),
    ];
    let log = read(folder.path(), &lines, Some(items)).unwrap();
    let found: Vec<(&[u32], &[u32])> = log
        .rounds
        .iter()
        .map(|round| {
            (
                &log.candidates[round.candidates.clone()],
                &log.excluded[round.excluded.clone()],
            )
        })
        .collect();
    // Item d is not available. `exclude` has what the rule `seen` left out. Decision 6 shows an item that its filter excludes.
    let expected: [(&[u32], &[u32]); 6] = [
        (&[0, 1], &[]),
        (&[0, 1, 2], &[0]),
        (&[0, 1, 2], &[1]),
        (&[0, 1, 2], &[1]),
        (&[0, 1, 2], &[1, 0]),
        (&[2, 0], &[]),
    ];
    assert_eq!(found, expected);
    assert_eq!(log.notes.len(), 2, "{:?}", log.notes);
    assert!(log.notes[0].contains("1 candidates have no features"));
    assert!(log.notes[1].contains("1 decisions are left out"));
    // A policy that chooses among them never shows an excluded item.
    for name in [Name::LINUCB_ONE, Name::RANDOM] {
        let all = evaluate(&log, &[name], 1, 1, &()).unwrap().unwrap();
        assert!(all[0].weighted.ips.is_some());
    }

    // Without the catalogue a filter cannot be applied, and features must be in the log.
    let error = read(folder.path(), &lines[..1], None)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("the features of item 'a' are unknown"),
        "{error}"
    );
    let with = |line: &String| line.replace("\"reward\"", "\"features\":[1,2],\"reward\"");
    let lines: Vec<String> = lines.iter().map(with).collect();
    let log = read(folder.path(), &lines, None).unwrap();
    assert_eq!(log.rounds.len(), 5);
    assert!(
        log.notes
            .iter()
            .any(|note| note.contains("2 decisions have a filter"))
    );
}

#[test]
fn by_position_the_probability_of_the_slot_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.jsonl");
    fs::write(&path, line(7, "u", "a", r#""features":[1,0]"#)).unwrap();
    let read = |by_position| {
        let options = LogOptions {
            by_position,
            ..LogOptions::default()
        };
        Log::read(&path, None, options).unwrap().shown[0].propensity
    };
    assert_eq!((read(false), read(true)), (0.5, 0.25));
}
