//! Items that are sent with their raw fields, and items of which single fields are changed.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::server::Server;
use crate::teach::{CATALOGUE, done};

/// A server whose transform was fitted on four drinks.
fn with_transform(folder: &Path) -> Server {
    fs::write(folder.join("catalogue.csv"), CATALOGUE).unwrap();
    let args = [
        "features",
        "--items",
        "catalogue.csv",
        "--dim",
        "5",
        "--tags",
        "tags",
        "--out",
        "made",
    ];
    done(folder, &args);
    let transform = folder.join("made/transform.json");
    let args = ["--features", transform.to_str().unwrap()];
    Server::start(&folder.join("data"), &args)
}

/// The vector that `sclub features` wrote for an item.
fn vector(folder: &Path, id: &str) -> Value {
    let text = fs::read_to_string(folder.join("made/items.csv")).unwrap();
    let line = text
        .lines()
        .find(|line| line.split(',').next() == Some(id))
        .unwrap();
    let numbers = line.split(',').skip(1);
    let numbers: Vec<f64> = numbers.map(|number| number.parse().unwrap()).collect();
    json!(numbers)
}

/// The ids of the items that a request shows, sorted.
fn shown(server: &Server, filter: Value) -> Vec<String> {
    let request = json!({"user": "u", "k": 10, "filter": filter}).to_string();
    let answer = server.ok("POST", "/v1/recommend", &request);
    let items = answer["items"].as_array().unwrap().iter();
    let mut ids: Vec<String> = items
        .map(|item| item["id"].as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    ids
}

#[test]
fn raw_items_keep_title_tags_availability_and_data() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let server = with_transform(folder);
    let lines = [
        json!({"id": "a", "title": "green tea", "tags": ["tea", "hot"], "price": 3, "data": {"colour": "green"}}),
        json!({"id": "b", "title": "black tea", "tags": "tea|hot", "price": "$4.00", "available": true}),
        json!({"id": "c", "title": "iced coffee", "tags": ["coffee", "cold"], "price": 5, "available": false}),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let put = server.ok("PUT", "/v1/items", &text);
    assert_eq!(put, json!({"items": 3, "changed": 3}));
    let card = |id: &str| server.ok("GET", &format!("/v1/items/{id}"), "");
    assert_eq!(
        card("a"),
        json!({"id": "a", "features": vector(folder, "a"), "title": "green tea", "tags": ["tea", "hot"],
               "data": {"price": 3, "colour": "green"}})
    );
    assert_eq!(
        card("b"),
        json!({"id": "b", "features": vector(folder, "b"), "title": "black tea", "tags": ["tea", "hot"],
               "data": {"price": 4.0}})
    );
    assert_eq!(card("c")["available"], json!(false));
    assert_eq!(shown(&server, json!({})), ["a", "b"]);
    assert_eq!(shown(&server, json!({"tags": "tea"})), ["a", "b"]);
    assert_eq!(shown(&server, json!({"price": {"max": 3.5}})), ["a"]);
    assert_eq!(shown(&server, json!({"colour": "green"})), ["a"]);

    // A field that the transform does not know is kept, and named.
    let typo = json!({"id": "d", "titel": "filter coffee", "price": 2});
    let put = server.ok("PUT", "/v1/items", &typo.to_string());
    assert_eq!(
        put,
        json!({"items": 1, "changed": 1, "unknown_fields": ["titel"]})
    );
    assert_eq!(
        card("d")["data"],
        json!({"titel": "filter coffee", "price": 2})
    );

    for (line, field, reason) in [
        (
            json!({"id": "x", "title": "t", "available": "no"}),
            "available",
            "true or false",
        ),
        (json!({"id": "x", "title": 7}), "title", "a text"),
        (
            json!({"id": "x", "price": 1, "tags": [1]}),
            "tags",
            "a list of texts",
        ),
        (
            json!({"id": "x", "price": 1, "data": 3}),
            "data",
            "an object",
        ),
        (
            json!({"id": "x", "price": 1, "data": {"price": 2}}),
            "price",
            "twice",
        ),
        (
            json!({"id": "x", "available": false}),
            "features",
            "price, tags, title",
        ),
        (json!({"title": "t"}), "id", "id"),
    ] {
        let (status, error) = server.call("PUT", "/v1/items", &format!("\n{line}"));
        assert_eq!(status, 422, "{line}: {error}");
        let error = &error["error"];
        assert_eq!(error["field"], json!(field), "{line}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains("line 2: ") && message.contains(reason),
            "{message}"
        );
    }
    server.stop();
}

#[test]
fn a_patch_changes_the_given_fields_only() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let item = json!({"id": "a/1", "features": [0.6, 0.8], "title": "Green tea", "tags": ["tea"], "available": false,
                      "data": {"price": 4.5, "stock": {"berlin": 3, "rome": 1}}});
    server.ok("PUT", "/v1/items", &item.to_string());
    let path = "/v1/items/a%2F1";
    let mut expected = item;
    for (patch, changes) in [
        (json!({"title": "Sencha"}), json!({"title": "Sencha"})),
        (json!({"features": [1, 0]}), json!({"features": [1.0, 0.0]})),
        (
            json!({"tags": ["tea", "green"]}),
            json!({"tags": ["tea", "green"]}),
        ),
        // As in RFC 7396: objects are merged, and null removes.
        (
            json!({"data": {"price": 5, "stock": {"rome": null, "oslo": 2}}}),
            json!({"data": {"price": 5, "stock": {"berlin": 3, "oslo": 2}}}),
        ),
        (json!({}), json!({})),
    ] {
        for (field, value) in changes.as_object().unwrap() {
            expected[field] = value.clone();
        }
        let answer = server.ok("PATCH", path, &patch.to_string());
        assert_eq!(answer, expected, "{patch}");
        assert_eq!(server.ok("GET", path, ""), expected, "{patch}");
    }
    let patch = json!({"title": null, "tags": null, "data": null, "available": true});
    let answer = server.ok("PATCH", path, &patch.to_string());
    assert_eq!(answer, json!({"id": "a/1", "features": [1.0, 0.0]}));

    for (patch, status, field) in [
        (json!({"titel": "x"}), 422, "titel"),
        (json!({"available": "no"}), 422, "available"),
        (json!({"features": [1]}), 422, "features"),
        (json!({"features": null}), 422, "features"),
        (json!({"id": "b"}), 422, "id"),
        (json!({"tags": "tea"}), 422, "tags"),
        (json!({"data": 1}), 422, "data"),
        (json!({"data": {"tags": 1}}), 422, "data"),
    ] {
        let (got, error) = server.call("PATCH", path, &patch.to_string());
        assert_eq!(
            (got, &error["error"]["field"]),
            (status, &json!(field)),
            "{patch}: {error}"
        );
    }
    let (status, error) = server.call("PATCH", "/v1/items/none", "{\"title\": \"x\"}");
    assert_eq!(
        (status, &error["error"]["code"]),
        (404, &json!("unknown_item"))
    );
    assert_eq!(
        server.ok("GET", path, ""),
        json!({"id": "a/1", "features": [1.0, 0.0]})
    );
    let hash = server.hash();
    server.kill();
    let server = Server::start(folder.path(), &[]);
    assert_eq!(server.hash(), hash);
    server.stop();
}

#[test]
fn a_patch_of_a_raw_field_makes_the_vector_anew_and_one_of_availability_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let server = with_transform(folder);
    let raw = json!({"id": "x", "title": "green tea", "tags": ["tea", "hot"], "price": 3});
    let own = json!({"id": "own", "features": [0, 0, 0, 0, 1], "title": "green tea"});
    server.ok("PUT", "/v1/items", &format!("{raw}\n{own}\n"));
    server.ok("PATCH", "/v1/items/x", "{\"available\": false}");
    let card = server.ok("GET", "/v1/items/x", "");
    assert_eq!(card["features"], vector(folder, "a"));
    assert_eq!(card["title"], json!("green tea"));

    let patch = json!({"title": "iced coffee", "tags": ["coffee", "cold"], "price": 5});
    let card = server.ok("PATCH", "/v1/items/x", &patch.to_string());
    assert_eq!(card["features"], vector(folder, "c"));
    assert_eq!(card["data"], json!({"price": 5}));
    assert_eq!(card["available"], json!(false));
    // The same by way of `data`, where the price is kept.
    let patch = json!({"title": "filter coffee", "tags": ["coffee", "hot"], "data": {"price": 2}});
    let card = server.ok("PATCH", "/v1/items/x", &patch.to_string());
    assert_eq!(card["features"], vector(folder, "d"));

    // A vector that was sent stays.
    let card = server.ok("PATCH", "/v1/items/own", "{\"title\": \"iced coffee\"}");
    assert_eq!(card["features"], json!([0.0, 0.0, 0.0, 0.0, 1.0]));
    let (status, error) = server.call("PATCH", "/v1/items/x", "{\"price\": \"much\"}");
    assert_eq!(
        (status, &error["error"]["field"]),
        (422, &json!("price")),
        "{error}"
    );
    server.stop();
}
