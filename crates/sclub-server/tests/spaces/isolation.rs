//! A key of one space can neither see nor touch another.

use std::collections::BTreeSet;

use sclub_server::edge::{Audit, Keys};
use sclub_server::settings::Settings;
use serde_json::{Value, json};
use tempfile::tempdir;

use crate::bench::{Server, keys, settings};

/// Every call in the description of the API: method, path and an example of a body.
fn calls() -> Vec<(String, String, String)> {
    let document: Value = serde_json::from_str(&sclub_server::api::document()).unwrap();
    let mut calls = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, call) in methods.as_object().unwrap() {
            let content = call["requestBody"]["content"].as_object();
            let kind = content.and_then(|content| content.values().next());
            let body = match (&**path, kind) {
                ("/v1/items", Some(_)) => json!({"id": "x", "features": [1, 0]}).to_string(),
                ("/v1/admin/expect", Some(_)) => json!({"users": 5}).to_string(),
                (_, Some(kind)) if kind["example"].is_object() => kind["example"].to_string(),
                _ => String::new(),
            };
            calls.push((method.to_uppercase(), path.replace("{id}", "x"), body));
        }
    }
    assert!(calls.len() > 20, "{calls:?}");
    calls
}

/// The path of a call in a space; `None` if the call is not of a space.
fn within(space: &str, path: &str) -> Option<String> {
    if path.starts_with("/v1/spaces") {
        return None;
    }
    let call = path.strip_prefix("/v1/").or_else(|| path.strip_prefix('/'));
    Some(format!("/v1/spaces/{space}/{}", call.unwrap()))
}

fn three_spaces() -> (tempfile::TempDir, Server) {
    let folder = tempdir().unwrap();
    let server = Server::new(folder.path(), keys());
    for (space, dim) in [("a", 2), ("b", 3)] {
        server.ok(
            "root",
            "PUT",
            &format!("/v1/spaces/{space}"),
            &json!({"dim": dim}),
        );
        server.fill("root", space, dim);
    }
    server.fill("root", "default", 4);
    (folder, server)
}

#[test]
fn no_call_with_a_key_of_one_space_sees_or_touches_another() {
    let (_folder, server) = three_spaces();
    let before = server.seen("b");
    let hash_before = server.seen("default").0;
    let foreign = [
        "",
        "nobody",
        "a-read",
        "a-write",
        "a-admin",
        "default-read",
        "default-write",
        "default-admin",
    ];
    let mut tried = 0;
    for (method, path, body) in calls() {
        for key in foreign {
            let send = |path: &str| server.send(key, &method, path, &body);
            // Of a space that there is, the answer is that of a space that there is not.
            let of_b = within("b", &path).unwrap_or_else(|| path.replace("{space}", "b"));
            let of_none = of_b.replacen("/spaces/b", "/spaces/c", 1);
            if path == "/v1/spaces" {
                let (status, list) = send(&path);
                assert!(
                    !list.contains("\"b\"") && (status == 200) == key.contains('-'),
                    "{list}"
                );
                continue;
            }
            let (status, answer) = send(&of_b);
            assert!(
                matches!(status, 401 | 403),
                "{key} {method} {of_b}: {status} {answer}"
            );
            assert_eq!((status, answer), send(&of_none), "{key} {method} {of_b}");
            // A key of another space is none of the default space.
            if within("b", &path).is_some() && key.starts_with("a-") {
                let is_open = matches!(&*path, "/healthz" | "/readyz");
                assert!(is_open || send(&path).0 == 401, "{key} {method} {path}");
            }
            tried += 1;
        }
        // An unknown path tells nothing either.
        let [b, c] = ["b", "c"].map(|space| {
            let path = format!("/v1/spaces/{space}/none");
            server.send("a-admin", &method, &path, "").0
        });
        assert_eq!((b, c), (403, 403));
    }
    assert!(tried > 150, "{tried}");
    let after = server.seen("b");
    assert_eq!((&after.0, after.1), (&before.0, before.1));
    // The order of metrics is not fixed.
    let [after, before_it] =
        [&after.2, &before.2].map(|text| text.lines().collect::<BTreeSet<_>>());
    assert_eq!(after, before_it);
    // The default space counts the calls that it refused, and nothing else has changed.
    assert_eq!(server.seen("default").0, hash_before);
    // With a key of its own each of these calls is answered.
    let mut statuses = BTreeSet::new();
    for (method, path, body) in calls() {
        if let Some(path) = within("b", &path) {
            let (status, answer) = server.send("b-admin", &method, &path, &body);
            assert!(
                !matches!(status, 401 | 403 | 405),
                "{method} {path}: {status} {answer}"
            );
            statuses.insert(status);
        }
    }
    assert!(statuses.contains(&200), "{statuses:?}");
    assert!(server.seen("b") != before);
}

#[test]
fn roles_count_within_a_space() {
    let (_folder, server) = three_spaces();
    let ask = json!({"user": "u"});
    server.ok("b-read", "GET", "/v1/spaces/b/state", &Value::Null);
    server.ok("monitor", "GET", "/v1/spaces/b/state", &Value::Null);
    server.ok("root", "GET", "/v1/spaces/b/state", &Value::Null);
    let recommend = "/v1/spaces/b/recommend";
    for key in ["b-read", "monitor"] {
        assert_eq!(server.refused(key, "POST", recommend, &ask).0, 403);
    }
    server.ok("b-write", "POST", recommend, &ask);
    assert_eq!(
        server
            .refused(
                "b-write",
                "POST",
                "/v1/spaces/b/admin/compact",
                &Value::Null
            )
            .0,
        403
    );
    // Only a key of all spaces makes and deletes them.
    for key in ["b-admin", "default-admin", "monitor"] {
        let refused = server.refused(key, "PUT", "/v1/spaces/d", &json!({}));
        assert_eq!(refused, (403, "forbidden".to_owned()), "{key}");
        let refused = server.refused(key, "DELETE", "/v1/spaces/b?confirm=b", &Value::Null);
        assert_eq!(refused, (403, "forbidden".to_owned()), "{key}");
    }
    assert_eq!(
        server.refused("root", "GET", "/v1/spaces/c/state", &Value::Null),
        (404, "unknown_space".to_owned())
    );
}

#[test]
fn a_list_has_the_spaces_of_the_key() {
    let (_folder, server) = three_spaces();
    let names = |key: &str| -> Vec<String> {
        let list = server.ok(key, "GET", "/v1/spaces", &Value::Null);
        let spaces = list["spaces"].as_array().unwrap().iter();
        spaces
            .map(|space| space["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names("root"), ["a", "b", "default"]);
    assert_eq!(names("monitor"), ["a", "b", "default"]);
    assert_eq!(names("b-write"), ["b"]);
    assert_eq!(names("default-read"), ["default"]);
    let card = server.ok("b-read", "GET", "/v1/spaces/b", &Value::Null);
    assert_eq!(
        (&card["status"], &card["dim"]),
        (&json!("ready"), &json!(3))
    );
    assert_eq!(card["settings"], json!({"dim": 3}));
}

#[test]
fn a_decision_of_one_space_is_unknown_in_another() {
    let (_folder, server) = three_spaces();
    let shown = server.ok(
        "a-write",
        "POST",
        "/v1/spaces/a/recommend",
        &json!({"user": "u"}),
    );
    assert_eq!(
        shown["items"][0]["id"].as_str().unwrap().split('-').next(),
        Some("a")
    );
    let reward = json!({"decision": shown["decision"], "reward": 1});
    let before = server.seen("b").0;
    let refused = server.refused("b-write", "POST", "/v1/spaces/b/feedback", &reward);
    assert_eq!(refused, (404, "unknown_decision".to_owned()));
    assert_eq!(server.seen("b").0, before);
    server.ok("a-write", "POST", "/v1/spaces/a/feedback", &reward);
}

#[test]
fn metrics_name_the_space() {
    let (_folder, server) = three_spaces();
    let lines = |key: &str, path: &str| -> Vec<String> {
        let (status, text) = server.send(key, "GET", path, "");
        assert_eq!(status, 200, "{text}");
        text.lines()
            .filter(|line| line.starts_with("sclub_items"))
            .map(str::to_owned)
            .collect()
    };
    let (plain, of_a, of_b) = (
        "sclub_items{space=\"default\"} 2",
        "sclub_items{space=\"a\"} 2",
        "sclub_items{space=\"b\"} 2",
    );
    assert_eq!(lines("monitor", "/metrics"), [plain, of_a, of_b]);
    assert_eq!(lines("default-read", "/metrics"), [plain]);
    assert_eq!(lines("b-read", "/v1/spaces/b/metrics"), [of_b]);
    assert_eq!(lines("monitor", "/v1/spaces/a/metrics"), [of_a]);
}

#[test]
fn the_audit_log_names_the_space() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("audit");
    let audit = Audit::to_file(&file).unwrap();
    let server = Server::of(settings(&folder.path().join("data")), keys(), Some(audit));
    server.ok("root", "PUT", "/v1/spaces/b", &json!({}));
    server.ok("b-admin", "DELETE", "/v1/spaces/b/users/u", &Value::Null);
    assert_eq!(
        server
            .refused("a-admin", "DELETE", "/v1/spaces/b/users/u", &Value::Null)
            .0,
        403
    );
    assert_eq!(
        server
            .refused("b-admin", "DELETE", "/v1/spaces/b?confirm=b", &Value::Null)
            .0,
        403
    );
    server.ok("default-admin", "DELETE", "/v1/users/u", &Value::Null);
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<String> = text
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            let word = |name: &str| line[name].as_str().unwrap().to_owned();
            let words = ["key", "method", "route", "space"].map(word).join(" ");
            format!("{words} {}", line["status"])
        })
        .collect();
    assert_eq!(
        lines,
        [
            "root PUT /v1/spaces/{space} b 201",
            "b-admin DELETE /v1/users/{id} b 200",
            "a-admin DELETE /v1/users/{id} b 403",
            "b-admin DELETE /v1/spaces/{space} b 403",
            "default-admin DELETE /v1/users/{id} default 200",
        ]
    );
}

#[test]
fn each_space_has_limits_of_its_own() {
    let folder = tempdir().unwrap();
    let server = Server::of(
        Settings {
            max_k: 3,
            ..settings(folder.path())
        },
        keys(),
        None,
    );
    server.ok(
        "root",
        "PUT",
        "/v1/spaces/a",
        &json!({"rate": 3, "max-body": 300}),
    );
    server.ok("root", "PUT", "/v1/spaces/b", &json!({"max-k": 1}));
    server.fill("b-write", "b", 3);
    let state = |key: &str| server.send(key, "GET", "/v1/spaces/a/state", "").0;
    assert_eq!([0; 4].map(|_| state("a-read")), [200, 200, 200, 429]);
    assert_eq!(
        server.send("b-read", "GET", "/v1/spaces/b/state", "").0,
        200
    );
    let long = json!({"user": "u", "exclude": ["x".repeat(200), "y".repeat(200)]});
    let recommend = |space: &str, body: &Value| {
        let path = format!("/v1/spaces/{space}/recommend");
        server.refused(&format!("{space}-write"), "POST", &path, body)
    };
    assert_eq!(recommend("a", &long), (413, "too_large".to_owned()));
    assert_eq!(
        recommend("b", &json!({"user": "u", "k": 2})),
        (422, "invalid".to_owned())
    );
    server.ok("b-write", "POST", "/v1/spaces/b/recommend", &long);
    // The server's limit counts where a space has none of its own.
    assert_eq!(recommend("a", &json!({"user": "u", "k": 4})).0, 422);
}

#[test]
fn calls_that_reach_no_space_count_for_the_rate_of_their_key() {
    let folder = tempdir().unwrap();
    let server = Server::of(
        Settings {
            rate: 3,
            ..settings(folder.path())
        },
        keys(),
        None,
    );
    let status = |space: &str| {
        server
            .send("a-read", "GET", &format!("/v1/spaces/{space}/state"), "")
            .0
    };
    assert_eq!(["b", "c", "default", "b"].map(status), [403, 403, 403, 429]);
}

/// A space counts what a key of its own was refused; everything else counts in the default space.
#[test]
fn refused_calls_count_once_under_their_call() {
    let (_folder, server) = three_spaces();
    server.ok("root", "PUT", "/v1/spaces/slow", &json!({"rate": 1}));
    let refused = |space: &str, call: &str| -> u32 {
        let metrics = server.seen(space).2;
        let line = format!("sclub_requests_total{{call=\"{call}\",outcome=\"refused\"}} ");
        let mut counts = metrics
            .lines()
            .filter_map(|found| found.strip_prefix(&line));
        counts.next().unwrap().parse().unwrap()
    };
    let ask = |key: &str, space: &str, call: &str| {
        let path = format!("/v1/spaces/{space}/{call}");
        server.send(key, "POST", &path, r#"{"user": "u"}"#).0
    };
    let mut of_default = 0;
    for (key, space, status) in [
        ("nobody", "b", 401),
        ("", "b", 401),
        ("a-write", "b", 403),
        ("nobody", "none", 401),
        ("root", "none", 404),
        ("default-read", "default", 403),
    ] {
        assert_eq!(ask(key, space, "recommend"), status, "{key} {space}");
        of_default += 1;
        assert_eq!(refused("default", "recommend"), of_default, "{key} {space}");
    }
    assert_eq!(
        (refused("b", "recommend"), refused("a", "recommend")),
        (0, 0)
    );
    assert_eq!(ask("b-read", "b", "recommend"), 403);
    assert_eq!(refused("b", "recommend"), 1);
    let limited = (0..10).filter(|_| ask("root", "slow", "recommend") == 429);
    assert!(limited.count() > 0);
    // Without items, those within the rate are refused, too.
    assert_eq!(refused("slow", "recommend"), 10);
    assert_eq!(refused("default", "recommend"), of_default);
    let before = refused("default", "other");
    assert_eq!(server.send("nobody", "PUT", "/v1/spaces/x", "{}").0, 401);
    assert_eq!(server.send("nobody", "GET", "/v1/spaces", "").0, 401);
    assert_eq!(refused("default", "other"), before + 2);
}

#[test]
fn keys_of_spaces_are_replaced_with_the_others() {
    let (_folder, server) = three_spaces();
    let status = |key: &str, space: &str| {
        server
            .send(key, "GET", &format!("/v1/spaces/{space}/state"), "")
            .0
    };
    assert_eq!((status("a-read", "a"), status("b-read", "b")), (200, 200));
    let list = "read@b:a-read:a-read0000000000000000,admin:root:root0000000000000000";
    server
        .guard
        .replace_keys(Keys::from_list(list).unwrap())
        .unwrap();
    assert_eq!((status("a-read", "a"), status("a-read", "b")), (403, 200));
    assert_eq!(status("b-read", "b"), 401);
    server.ok("root", "PUT", "/v1/spaces/d", &json!({}));
    assert_eq!((status("root", "d"), status("a-read", "d")), (200, 403));
}

#[test]
fn without_keys_every_space_is_open() {
    let folder = tempdir().unwrap();
    let server = Server::new(folder.path(), Keys::none());
    server.ok("", "PUT", "/v1/spaces/a", &json!({}));
    server.fill("", "a", 2);
    server.fill("", "default", 3);
    let list = server.ok("", "GET", "/v1/spaces", &Value::Null);
    assert_eq!(list["spaces"].as_array().unwrap().len(), 2);
    assert_eq!(
        server
            .refused("", "GET", "/v1/spaces/b/state", &Value::Null)
            .0,
        404
    );
}
