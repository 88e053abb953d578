//! Good requests and bad ones: what is answered, in which words.

use serde_json::{Value, json};

use crate::server::{Client, Server, items};

#[test]
fn what_cannot_be_is_refused_in_our_words() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(
        &folder.path().join("data"),
        &["--max-k", "5", "--max-id", "16"],
    );
    let (status, empty) = server.call("POST", "/v1/recommend", r#"{"user": "u"}"#);
    assert_eq!(
        (status, &empty["error"]["code"]),
        (404, &json!("no_candidates"))
    );
    for (after, status) in [("x", 404), ("", 422)] {
        let path = format!("/v1/items?after={after}");
        assert_eq!(server.call("GET", &path, "").0, status, "{path}");
    }
    server.ok("PUT", "/v1/items", &items(4, 2));
    let before = server.hash();
    let item =
        |features: &str| format!(r#"{{"user":"u","items":[{{"id":"a","features":{features}}}]}}"#);
    let cases = [
        (
            "POST",
            "/v1/recommend",
            "".to_owned(),
            400,
            "bad_json",
            json!(null),
        ),
        (
            "POST",
            "/v1/recommend",
            "[]".to_owned(),
            400,
            "bad_json",
            json!(null),
        ),
        (
            "POST",
            "/v1/recommend",
            "{}".to_owned(),
            400,
            "bad_json",
            json!("user"),
        ),
        (
            "POST",
            "/v1/recommend",
            r#"{"user":"u","usr":1}"#.to_owned(),
            400,
            "bad_json",
            json!("usr"),
        ),
        (
            "POST",
            "/v1/recommend",
            r#"{"user":"u"} x"#.to_owned(),
            400,
            "bad_json",
            json!(null),
        ),
        (
            "POST",
            "/v1/recommend",
            r#"{"user":""}"#.to_owned(),
            422,
            "invalid",
            json!("user"),
        ),
        (
            "POST",
            "/v1/recommend",
            r#"{"user":"0123456789abcdefg"}"#.to_owned(),
            422,
            "invalid",
            json!("user"),
        ),
        (
            "POST",
            "/v1/recommend",
            r#"{"user":"u","k":0}"#.to_owned(),
            422,
            "invalid",
            json!("k"),
        ),
        (
            "POST",
            "/v1/recommend",
            r#"{"user":"u","context":{"hour":1,"hour":2}}"#.to_owned(),
            422,
            "invalid",
            json!("context.hour"),
        ),
        (
            "POST",
            "/v1/recommend",
            r#"{"user":"u","k":6}"#.to_owned(),
            422,
            "invalid",
            json!("k"),
        ),
        (
            "POST",
            "/v1/recommend",
            r#"{"user":"u","k":-1}"#.to_owned(),
            422,
            "invalid",
            json!("k"),
        ),
        (
            "POST",
            "/v1/recommend/batch",
            r#"{"requests":[{"user":"u"},{"user":"u","k":1.5}]}"#.to_owned(),
            422,
            "invalid",
            json!("requests[1].k"),
        ),
        (
            "POST",
            "/v1/recommend",
            r#"{"user":"u","seen":-1}"#.to_owned(),
            422,
            "invalid",
            json!("seen"),
        ),
        (
            "POST",
            "/v1/recommend",
            r#"{"user":"u","candidates":["x","x"]}"#.to_owned(),
            422,
            "invalid",
            json!("candidates"),
        ),
        (
            "POST",
            "/v1/recommend",
            r#"{"user":"u","exclude":["i1",""]}"#.to_owned(),
            422,
            "invalid",
            json!("exclude[1]"),
        ),
        (
            "POST",
            "/v1/recommend",
            r#"{"user":"u","candidates":[]}"#.to_owned(),
            422,
            "invalid",
            json!("candidates"),
        ),
        (
            "POST",
            "/v1/recommend",
            r#"{"user":"u","candidates":["i1","i1"]}"#.to_owned(),
            422,
            "invalid",
            json!("candidates"),
        ),
        (
            "POST",
            "/v1/recommend",
            r#"{"user":"u","candidates":["i1","x"],"strict":true}"#.to_owned(),
            404,
            "unknown_item",
            json!("candidates"),
        ),
        (
            "POST",
            "/v1/recommend",
            r#"{"user":"u","candidates":["x"]}"#.to_owned(),
            404,
            "no_candidates",
            json!("candidates"),
        ),
        (
            "POST",
            "/v1/recommend",
            r#"{"user":"u","candidates":["i1"],"exclude":["i1"]}"#.to_owned(),
            404,
            "no_candidates",
            json!("exclude"),
        ),
        (
            "POST",
            "/v1/recommend",
            r#"{"user":"u","ties":"first"}"#.to_owned(),
            400,
            "bad_json",
            json!("ties"),
        ),
        (
            "POST",
            "/v1/recommend",
            item("[1,2,3]"),
            422,
            "invalid",
            json!("items"),
        ),
        (
            "POST",
            "/v1/recommend",
            item("[]"),
            422,
            "invalid",
            json!("items[0].features"),
        ),
        (
            "POST",
            "/v1/recommend",
            item("[1,1e300]"),
            422,
            "invalid",
            json!("items"),
        ),
        (
            "POST",
            "/v1/recommend",
            item("[1,1e999]"),
            400,
            "bad_json",
            json!("items[0].features[1]"),
        ),
        (
            "POST",
            "/v1/recommend/batch",
            r#"{"requests":[{"user":"u"},{"user":"u","candidates":["x"],"strict":true}]}"#
                .to_owned(),
            404,
            "unknown_item",
            json!("requests[1].candidates"),
        ),
        (
            "POST",
            "/v1/recommend/batch",
            r#"{"requests":[]}"#.to_owned(),
            422,
            "invalid",
            json!("requests"),
        ),
        (
            "POST",
            "/v1/feedback",
            r#"{"decision":"x","reward":1}"#.to_owned(),
            404,
            "unknown_decision",
            json!("decision"),
        ),
        (
            "POST",
            "/v1/feedback",
            r#"{"decision":"x","reward":2}"#.to_owned(),
            422,
            "invalid",
            json!("reward"),
        ),
        (
            "POST",
            "/v1/feedback/batch",
            r#"{"feedback":[{"decision":"x","reward":1}]}"#.to_owned(),
            404,
            "unknown_decision",
            json!("feedback[0].decision"),
        ),
        (
            "PUT",
            "/v1/items",
            "nonsense".to_owned(),
            400,
            "bad_json",
            json!(null),
        ),
        (
            "GET",
            "/v1/items/x",
            String::new(),
            404,
            "unknown_item",
            json!("id"),
        ),
        (
            "GET",
            "/v1/items?limit=x",
            String::new(),
            422,
            "invalid",
            json!("limit"),
        ),
        (
            "GET",
            "/v1/items?limit=1001",
            String::new(),
            422,
            "invalid",
            json!("limit"),
        ),
        (
            "GET",
            "/v1/items?a:%20b=1",
            String::new(),
            422,
            "invalid",
            json!("a: b"),
        ),
        (
            "GET",
            "/v1/items?after=nobody",
            String::new(),
            404,
            "unknown_item",
            json!("after"),
        ),
        (
            "GET",
            "/v1/users/nobody",
            String::new(),
            404,
            "unknown_user",
            json!("user"),
        ),
        (
            "GET",
            "/v1/users/%ff",
            String::new(),
            422,
            "invalid",
            json!("id"),
        ),
        (
            "GET",
            "/v1/clusters/77",
            String::new(),
            404,
            "unknown_cluster",
            json!("cluster"),
        ),
        (
            "GET",
            "/v1/clusters/x",
            String::new(),
            422,
            "invalid",
            json!("id"),
        ),
        (
            "GET",
            "/v1/nothing",
            String::new(),
            404,
            "unknown_path",
            json!(null),
        ),
        (
            "DELETE",
            "/v1/recommend",
            String::new(),
            405,
            "wrong_method",
            json!(null),
        ),
    ];
    let mut client = Client::connect(&server.address).unwrap();
    for (method, path, body, status, code, field) in cases {
        let (got, answer) = client.call(method, path, &body).unwrap();
        let error = &answer["error"];
        assert_eq!(
            (got, &error["code"], &error["field"]),
            (status, &json!(code), &field),
            "{method} {path} {body}: {answer}"
        );
        let message = error["message"].as_str().unwrap();
        for inside in ["struct", "u64", "f64", "usize", "panicked", "src/"] {
            assert!(!message.contains(inside), "{message}");
        }
    }
    // A candidate that is not in the catalogue is skipped, and named.
    let stale = r#"{"user":"u","k":2,"candidates":["gone","i1"]}"#;
    let answer = server.ok("POST", "/v1/recommend", stale);
    assert_eq!(answer["missing"], json!(["gone"]));
    assert_eq!(answer["items"].as_array().unwrap().len(), 1);
    assert_eq!(answer["items"][0]["id"], "i1");
    assert_eq!(server.hash(), before);
    let metrics = server.ok("GET", "/metrics", "");
    let metrics = metrics.as_str().unwrap();
    let counted = r#"sclub_requests_total{space="default",call="other",outcome="refused"} 12"#;
    assert!(metrics.contains(counted), "{metrics}");
}

#[test]
fn items_before_a_line_that_cannot_be_stay() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &[]);
    let lines = "{\"id\":\"a\",\"features\":[1,2]}\n\n{\"id\":\"b\",\"features\":[1]}\n{\"id\":\"c\",\"features\":[3,4]}";
    let (status, answer) = server.call("PUT", "/v1/items", lines);
    assert_eq!(
        (status, &answer["error"]["field"]),
        (422, &json!("features"))
    );
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("line 3: "), "{message}");
    let page = server.ok("GET", "/v1/items", "");
    assert_eq!(page["items"], json!([{"id": "a", "features": [1.0, 2.0]}]));
    let twice = "{\"id\":\"a\",\"features\":[5,6]}\n{\"id\":\"a\",\"features\":[7,8]}\n";
    assert_eq!(
        server.ok("PUT", "/v1/items", twice),
        json!({"items": 2, "changed": 2})
    );
    assert_eq!(
        server.ok("GET", "/v1/items/a", "")["features"],
        json!([7.0, 8.0])
    );
    assert_eq!(
        server.ok("DELETE", "/v1/items/a", ""),
        json!({"removed": true})
    );
    assert_eq!(
        server.ok("DELETE", "/v1/items/a", ""),
        json!({"removed": false})
    );
}

/// The best k of the whole catalogue are those that scoring every item by itself gives.
#[test]
fn the_whole_catalogue_is_searched_exactly() {
    search_with(&["--policy", "sclub"]);
    // With draws, each request would have scores of its own.
    search_with(&["--policy", "sclub-soft", "--explore", "bonus"]);
}

fn search_with(flags: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), flags);
    server.ok("PUT", "/v1/items", &items(3000, 6));
    let mut client = Client::connect(&server.address).unwrap();
    for round in 0..40 {
        let (_, shown) = client
            .call("POST", "/v1/recommend", r#"{"user": "u"}"#)
            .unwrap();
        let body = json!({"decision": shown["decision"], "reward": f64::from(round % 2)});
        client
            .call("POST", "/v1/feedback", &body.to_string())
            .unwrap();
    }
    server.settle();
    let whole = server.ok(
        "POST",
        "/v1/recommend",
        r#"{"user": "u", "k": 10, "exclude": ["i7"]}"#,
    );
    let ids: Vec<String> = (0..3000)
        .filter(|&i| i != 7)
        .map(|i| format!("i{i}"))
        .collect();
    let mut scored: Vec<Value> = Vec::new();
    for some in ids.chunks(500) {
        let body = json!({"user": "u", "candidates": some, "k": 500}).to_string();
        let part = server.ok("POST", "/v1/recommend", &body);
        scored.extend(part["items"].as_array().unwrap().iter().cloned());
    }
    scored.sort_by(|a, b| {
        b["score"]
            .as_f64()
            .unwrap()
            .total_cmp(&a["score"].as_f64().unwrap())
    });
    assert_eq!(whole["items"].as_array().unwrap()[..], scored[..10]);
}

#[test]
fn the_description_has_what_the_server_knows() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let features = |server: &Server| {
        let document = server.ok("GET", "/v1/openapi.json", "");
        let features = &document["components"]["schemas"]["ItemLine"]["properties"]["features"];
        let example = features["example"].as_array().unwrap().len();
        let count = |name: &str| features[name].as_u64().unwrap();
        (count("minItems"), count("maxItems"), example)
    };
    let server = Server::start(&data, &["--context", "device=phone|tv"]);
    assert_eq!(features(&server), (1, 512, 2));
    server.ok("PUT", "/v1/items", &items(4, 3));
    assert_eq!(features(&server), (3, 3, 3));
    server.stop();
    // The folder has the context.
    let server = Server::start(&data, &[]);
    assert_eq!(features(&server), (3, 3, 3));
    let document = server.ok("GET", "/v1/openapi.json", "");
    let request = &document["components"]["schemas"]["RecommendRequest"];
    let context = &request["properties"]["context"];
    let device = &context["properties"]["device"];
    assert_eq!(device["enum"], json!(["phone", "tv", null]));
    assert_eq!(context["additionalProperties"], false);
}
