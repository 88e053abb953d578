//! `sclub import`, `sclub reteach`, and items that are sent with their raw fields.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::server::{Server, sclub};

pub fn run(folder: &Path, args: &[&str]) -> Output {
    sclub().current_dir(folder).args(args).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The output of a command that succeeds.
pub fn done(folder: &Path, args: &[&str]) -> String {
    let output = run(folder, args);
    assert!(
        output.status.success(),
        "{args:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// The message of a command that fails.
pub fn refused(folder: &Path, args: &[&str]) -> String {
    let output = run(folder, args);
    assert!(
        !output.status.success(),
        "{args:?}: {}",
        text(&output.stdout)
    );
    text(&output.stderr)
}

pub fn features(item: usize) -> [f64; 3] {
    let number = |step: usize| ((item * step + 1) % 7) as f64 / 7.0 - 0.4;
    [number(3), number(5), 0.5]
}

pub fn items() -> String {
    let mut text = String::from("item,x1,x2,x3\n");
    for item in 0..9 {
        let [a, b, c] = features(item);
        writeln!(text, "i{item},{a},{b},{c}").unwrap();
    }
    text
}

/// User, item, reward and time; the times of the lines are not in order.
pub fn rows() -> Vec<(usize, usize, f64, usize)> {
    let row = |at: usize| {
        let (user, item) = (at * 7 % 5, at * at % 9);
        let reward = f64::from(u8::from((user + item) % 3 == 0));
        (user, item, reward, 1_700_000_000 + at * 37 % 700)
    };
    (0..700).map(row).collect()
}

pub fn interactions() -> String {
    let mut text = String::from("time,user,item,reward\n");
    for (user, item, reward, time) in rows() {
        writeln!(text, "{time},u{user},i{item},{reward}").unwrap();
    }
    text
}

/// (I + Σ x xᵀ)⁻¹ Σ x y of the rows of a user.
pub fn estimate(user: usize) -> Vec<f64> {
    let mut system = [[0.0; 4]; 3];
    (0..3).for_each(|at| system[at][at] = 1.0);
    for (_, item, reward, _) in rows().into_iter().filter(|row| row.0 == user) {
        let x = features(item);
        for i in 0..3 {
            (0..3).for_each(|j| system[i][j] += x[i] * x[j]);
            system[i][3] += x[i] * reward;
        }
    }
    for pivot in 0..3 {
        for row in (0..3).filter(|row| *row != pivot) {
            let factor = system[row][pivot] / system[pivot][pivot];
            (0..4).for_each(|column| system[row][column] -= factor * system[pivot][column]);
        }
    }
    (0..3).map(|at| system[at][3] / system[at][at]).collect()
}

pub fn folder_with_files() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("items.csv"), items()).unwrap();
    fs::write(folder.path().join("rows.csv"), interactions()).unwrap();
    folder
}

pub const IMPORT: [&str; 8] = [
    "import",
    "--interactions",
    "rows.csv",
    "--items",
    "items.csv",
    "--data",
    "shop",
    "--quiet",
];

pub fn is_close(value: &Value, expected: &[f64]) {
    let got: Vec<f64> = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(expected) {
        assert!((got - expected).abs() < 1e-9, "{got} {expected}");
    }
}

/// The lines of an export.
fn export(folder: &Path, data: &str) -> Vec<Value> {
    let lines = done(folder, &["export", "--data", data]);
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn imported_rows_are_learned_in_the_order_of_time_and_served() {
    let folder = folder_with_files();
    let folder = folder.path();
    let printed = done(folder, &[&IMPORT[..], &["--policy", "linucb-ind"]].concat());
    assert!(printed.contains("700 rewards of 5 users"), "{printed}");
    let verified = done(folder, &["verify", "--data", "shop", "--json"]);
    let verified: Value = serde_json::from_str(&verified).unwrap();
    assert_eq!(
        (&verified["rounds"], &verified["users"]),
        (&json!(700), &json!(5))
    );

    let mut in_order = rows();
    in_order.sort_by_key(|row| row.3);
    let lines = export(folder, "shop");
    assert_eq!(lines.len(), 700);
    for (line, (user, item, reward, time)) in lines.iter().zip(in_order) {
        assert_eq!(line["user"], json!(format!("u{user}")));
        assert_eq!(line["item"], json!(format!("i{item}")));
        assert_eq!(line["reward"], json!(reward));
        assert_eq!(line["decided"], json!(time * 1000));
        assert_eq!(line["imported"], json!(true));
        assert_eq!(line["position"], Value::Null);
    }

    let server = Server::start(&folder.join("shop"), &[]);
    assert_eq!(json!(server.hash()), verified["hash"]);
    for user in 0..5 {
        let card = server.ok("GET", &format!("/v1/users/u{user}"), "");
        let count = rows().iter().filter(|row| row.0 == user).count();
        assert_eq!(card["count"], json!(count));
        is_close(&card["estimate"], &estimate(user));
    }
    // It goes on learning, and what is learned now is not marked.
    let answer = server.ok("POST", "/v1/recommend", r#"{"user": "u1"}"#);
    let feedback = json!({"decision": answer["decision"], "reward": 1}).to_string();
    server.ok("POST", "/v1/feedback", &feedback);
    server.stop();
    let lines = export(folder, "shop");
    assert_eq!(lines.len(), 701);
    assert_eq!(lines[700].get("imported"), None);
}

#[test]
fn fits_are_made_on_the_way_and_a_history_is_taught_to_another_policy() {
    let folder = folder_with_files();
    let folder = folder.path();
    done(folder, &IMPORT);
    let verified = done(folder, &["verify", "--data", "shop"]);
    let server = Server::start(&folder.join("shop"), &[]);
    let state = server.state();
    assert_eq!(state["policy"], json!("sclub-soft"));
    // One event for the items, 700 rows, and at least one fit after round 500.
    assert!(
        state["events"].as_u64().unwrap() > 701,
        "{state} {verified}"
    );
    for user in ["u0", "u3"] {
        server.ok("DELETE", &format!("/v1/users/{user}"), "");
    }
    server.stop();

    let args = [
        "reteach",
        "--from",
        "shop",
        "--policy",
        "linucb-ind",
        "--data",
        "other",
        "--quiet",
    ];
    let printed = done(folder, &args);
    let left = rows().iter().filter(|row| ![0, 3].contains(&row.0)).count();
    assert!(
        printed.contains(&format!("{left} rewards of 3 users")),
        "{printed}"
    );
    done(folder, &["verify", "--data", "other"]);
    let server = Server::start(&folder.join("other"), &[]);
    for user in [1, 2, 4] {
        let card = server.ok("GET", &format!("/v1/users/u{user}"), "");
        is_close(&card["estimate"], &estimate(user));
    }
    assert_eq!(server.call("GET", "/v1/users/u0", "").0, 404);
    assert_eq!(server.ok("GET", "/v1/items", "")["total"], json!(9));
    server.stop();
    // A folder that is not new is refused, and stays as it is.
    let error = refused(folder, &args);
    assert!(error.contains("other is not new"), "{error}");
    done(folder, &["verify", "--data", "other"]);
}

#[test]
fn rewards_that_the_journal_no_longer_has_are_counted() {
    let folder = folder_with_files();
    let folder = folder.path();
    done(folder, &IMPORT);
    // A server without a journal removes it.
    Server::start(&folder.join("shop"), &["--journal-days", "0"]).stop();
    let output = run(
        folder,
        &[
            "reteach",
            "--from",
            "shop",
            "--policy",
            "linucb-one",
            "--data",
            "other",
            "--quiet",
        ],
    );
    let warning = text(&output.stderr);
    assert!(
        warning.contains("700 of 700 rewards are no longer in the journal"),
        "{warning}"
    );
}

#[test]
fn a_catalogue_can_be_there_before_and_a_folder_in_use_is_refused() {
    let folder = folder_with_files();
    let folder = folder.path();
    let server = Server::start(&folder.join("shop"), &["--policy", "linucb-ind"]);
    let mut lines = String::new();
    for item in 0..9 {
        let line = json!({"id": format!("i{item}"), "features": features(item)});
        writeln!(lines, "{line}").unwrap();
    }
    server.ok("PUT", "/v1/items", &lines);
    let import = [
        "import",
        "--interactions",
        "rows.csv",
        "--data",
        "shop",
        "--quiet",
    ];
    let error = refused(folder, &import);
    assert!(error.contains("in use"), "{error}");
    server.stop();
    done(folder, &import);
    let server = Server::start(&folder.join("shop"), &[]);
    is_close(
        &server.ok("GET", "/v1/users/u2", "")["estimate"],
        &estimate(2),
    );
    server.stop();
    let error = refused(folder, &import);
    assert!(
        error.contains("shop is not new: it has learned from 700 rewards"),
        "{error}"
    );
}

#[test]
fn a_bad_row_is_an_error_with_its_line_or_is_counted_and_nothing_is_left_behind() {
    let folder = folder_with_files();
    let folder = folder.path();
    for (bad, reason) in [
        (
            "1,u1,i77,1",
            "rows.csv:702: item 'i77' is not in the catalogue",
        ),
        (
            "1,u1,i1,1.5",
            "rows.csv:702: the reward is 1.5; it must be from 0 to 1",
        ),
        ("1,u1,i1,", "rows.csv:702: there is no reward"),
        ("1,,i1,1", "rows.csv:702: there is no user"),
        ("soon,u1,i1,1", "rows.csv:702: the time 'soon' is neither"),
    ] {
        fs::write(
            folder.join("rows.csv"),
            format!("{}{bad}\n", interactions()),
        )
        .unwrap();
        let error = refused(folder, &IMPORT);
        assert!(error.contains(reason), "{error}");
        let names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(names.len(), 2, "{names:?}");
    }
    let printed = done(folder, &[&IMPORT[..], &["--skip-bad-lines"]].concat());
    assert!(
        printed.contains("700 rewards") && printed.contains("1 bad lines skipped"),
        "{printed}"
    );

    let error = refused(
        folder,
        &["import", "--interactions", "rows.csv", "--data", "new"],
    );
    assert!(error.contains("new has no catalogue"), "{error}");
    assert!(!folder.join("new").exists());
}

pub const CATALOGUE: &str = "id,title,tags,price\n\
    a,green tea,tea|hot,3\n\
    b,black tea,tea|hot,4\n\
    c,iced coffee,coffee|cold,5\n\
    d,filter coffee,coffee|hot,2\n";

#[test]
fn items_are_sent_with_raw_fields_and_the_transform_is_part_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("catalogue.csv"), CATALOGUE).unwrap();
    fs::write(folder.join("other.csv"), CATALOGUE.replace("iced", "cold")).unwrap();
    let fit = |items: &str, out: &str| {
        let args = [
            "features", "--items", items, "--dim", "5", "--tags", "tags", "--out", out,
        ];
        done(folder, &args);
    };
    fit("catalogue.csv", "made");
    fit("other.csv", "others");
    let vectors: BTreeMap<String, Vec<f64>> = fs::read_to_string(folder.join("made/items.csv"))
        .unwrap()
        .lines()
        .skip(1)
        .map(|line| {
            let mut fields = line.split(',');
            let id = fields.next().unwrap().to_owned();
            (id, fields.map(|field| field.parse().unwrap()).collect())
        })
        .collect();

    let data = folder.join("data");
    let transform = folder.join("made/transform.json");
    let transform = transform.to_str().unwrap();
    let server = Server::start(&data, &["--features", transform]);
    let raw = json!({"id": "c", "title": "iced coffee", "tags": ["coffee", "cold"], "price": 5});
    let own = json!({"id": "own", "features": [0, 0, 0, 0, 1]});
    server.ok("PUT", "/v1/items", &format!("{raw}\n{own}\n"));
    let shown = server.ok("GET", "/v1/items/c", "");
    assert_eq!(shown["features"], json!(vectors["c"]));
    let (status, error) = server.call("PUT", "/v1/items", "\n{\"id\": \"x\", \"price\": \"much\"}");
    assert_eq!(status, 422, "{error}");
    let message = error.to_string();
    assert!(
        message.contains("line 2: the field 'price' is"),
        "{message}"
    );
    assert_eq!(server.state()["raw_fields"]["price"], "number");
    // As curl sends a file by -d: without line ends.
    let joined = r#"{"id": "x", "price": 1}{"id": "y", "price": 2}"#;
    let (status, error) = server.call("PUT", "/v1/items", joined);
    let message = error.to_string();
    assert_eq!(status, 400, "{message}");
    assert!(
        message.contains("line 1 is not one JSON object") && message.contains("--data-binary"),
        "{message}"
    );
    server.stop();

    // The folder has the transform: the flag is not needed, and another one is refused.
    let server = Server::start(&data, &[]);
    let new = json!({"id": 7, "title": "green tea", "tags": ["tea", "hot"], "price": 3});
    server.ok("PUT", "/v1/items", &new.to_string());
    assert_eq!(
        server.ok("GET", "/v1/items/7", "")["features"],
        json!(vectors["a"])
    );
    server.stop();
    let error = refused(
        folder,
        &[
            "serve",
            "--data",
            "data",
            "--features",
            "others/transform.json",
        ],
    );
    assert!(
        error.contains("features is others/transform.json") && error.contains("another transform"),
        "{error}"
    );
    fs::write(folder.join("bad.json"), "{}\n").unwrap();
    let error = refused(
        folder,
        &["serve", "--data", "data", "--features", "bad.json"],
    );
    assert!(error.contains("bad.json"), "{error}");

    // An import takes the raw catalogue too.
    fs::write(folder.join("rows.csv"), "user,item,reward\nu,a,1\nu,c,0\n").unwrap();
    let args = [
        "import",
        "--interactions",
        "rows.csv",
        "--items",
        "catalogue.csv",
        "--features",
    ];
    done(
        folder,
        &[&args[..], &[transform, "--data", "taught", "--quiet"]].concat(),
    );
    let server = Server::start(&folder.join("taught"), &[]);
    assert_eq!(
        server.ok("GET", "/v1/items/d", "")["features"],
        json!(vectors["d"])
    );
    server.stop();
}
