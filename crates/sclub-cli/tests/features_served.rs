//! A server reads raw numbers as `sclub features` read them at the fit.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::server::Server;

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "service/server.rs"]
mod server;

/// The server of a transform that was fitted to a file, and the vectors of the fit.
fn served(folder: &Path, catalogue: &str, flags: &[&str]) -> (Server, Vec<(String, Value)>) {
    fs::write(folder.join("catalogue.csv"), catalogue).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_sclub"))
        .current_dir(folder)
        .args(["features", "--items", "catalogue.csv", "--dim", "4"])
        .args(flags)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let transform = folder.join("features/transform.json");
    let server = Server::start(
        &folder.join("data"),
        &["--features", transform.to_str().unwrap()],
    );
    let table = fs::read_to_string(folder.join("features/items.csv")).unwrap();
    let row = |line: &str| {
        let (id, numbers) = line.split_once(',').unwrap();
        let numbers = numbers.split(',').map(|number| number.parse().unwrap());
        let numbers: Vec<f64> = numbers.collect();
        (id.to_owned(), json!(numbers))
    };
    (server, table.lines().skip(1).map(row).collect())
}

fn card(server: &Server, id: &str) -> Value {
    server.ok("GET", &format!("/v1/items/{id}"), "")
}

#[test]
fn raw_prices_are_those_of_the_fit() {
    let folder = tempfile::tempdir().unwrap();
    let mut catalogue = String::from("id;kind;price\n");
    let mut lines = String::new();
    for item in 0..40 {
        let price = match item {
            7 => "call us".to_owned(),
            9 => "n/a".to_owned(),
            30 => "1.250".to_owned(),
            item => format!("{item},50"),
        };
        let kind = ["tea", "coffee"][item % 2];
        writeln!(catalogue, "i{item};{kind};{price}").unwrap();
        let raw = json!({"id": format!("i{item}"), "kind": kind, "price": price});
        writeln!(lines, "{raw}").unwrap();
    }
    let (server, vectors) = served(folder.path(), &catalogue, &["--category", "kind"]);
    server.ok("PUT", "/v1/items", &lines);
    for (id, vector) in &vectors {
        assert_eq!(card(&server, id)["features"], *vector, "{id}");
    }
    assert_eq!(card(&server, "i30")["data"]["price"], json!(1250.0));
    assert_eq!(card(&server, "i7")["data"]["price"], json!("call us"));
    // Filters see the numbers.
    let request = json!({"user": "u", "k": 40, "filter": {"price": {"min": 39}}});
    let answer = server.ok("POST", "/v1/recommend", &request.to_string());
    let items = answer["items"].as_array().unwrap().iter();
    let mut ids: Vec<&str> = items.map(|item| item["id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["i30", "i39"]);
    // A change makes the vector anew.
    let patch = json!({"price": "n/a", "kind": "coffee"}).to_string();
    server.ok("PATCH", "/v1/items/i30", &patch);
    assert_eq!(card(&server, "i30")["features"], vectors[9].1);
    // What the fit did not see is an error still.
    let much = json!({"id": "x", "kind": "tea", "price": "much"}).to_string();
    let (status, error) = server.call("PUT", "/v1/items", &much);
    assert_eq!(
        (status, &error["error"]["field"]),
        (422, &json!("price")),
        "{error}"
    );
    server.stop();
}

#[test]
fn gathered_prices_are_those_of_the_fit() {
    let folder = tempfile::tempdir().unwrap();
    let catalogue = "id,tag,price\n1,x,3\n1,y,3\n2,y,5\n2,z,6\n3,x,8\n3,z,8\n";
    let gather = ["--gather", "--id-column", "id"];
    let (server, vectors) = served(folder.path(), catalogue, &gather);
    let lines = [
        json!({"id": "1", "tag": ["x", "y"], "price": 3}),
        json!({"id": "2", "tag": ["y", "z"], "price": ["5", "6"]}),
    ];
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    server.ok("PUT", "/v1/items", &lines);
    for (id, vector) in &vectors[..2] {
        assert_eq!(card(&server, id)["features"], *vector, "{id}");
    }
    assert_eq!(card(&server, "2")["data"]["price"], json!(5.0));
    server.stop();
}
