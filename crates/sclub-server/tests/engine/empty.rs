//! Requests that leave no candidate: the error names the cause, and a batch answers its other entries.

use sclub_server::env::Env;
use sclub_server::settings::Settings;
use serde_json::{Value, json};

use crate::bench::of;
use crate::common::new_folder;
use crate::http::Service;

fn service() -> Service {
    let settings = Settings {
        policy: Some("linucb-ind".to_owned()),
        ..of("linucb-ind")
    };
    Service::of(new_folder(), Env::real(), settings)
}

/// Five items: prices from 0 to 4, the last is not available.
fn with_items() -> Service {
    let service = service();
    for number in 0..5 {
        let item = json!({
            "id": format!("i{number}"), "features": [1, number], "title": format!("Item {number}"),
            "available": number < 4, "tags": ["red"], "data": {"price": number},
        });
        assert_eq!(service.call("PUT", "/v1/items", &item).0, 200);
    }
    service
}

/// The status and the error of a request of the user `u`.
fn refused(service: &Service, with: &Value) -> (u16, Value) {
    let mut body = json!({"user": "u"});
    let fields = with.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(fields);
    let (status, answer) = service.call("POST", "/v1/recommend", &body);
    (status, answer["error"].clone())
}

#[test]
fn an_error_says_why_there_are_no_candidates() {
    let (status, error) = refused(&service(), &json!({}));
    assert_eq!((status, &error["code"]), (404, &json!("no_candidates")));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("the catalogue is empty"), "{message}");

    let service = with_items();
    let shown = service.call("POST", "/v1/recommend", &json!({"user": "v", "k": 5}));
    assert_eq!(shown.0, 200);
    let cases = [
        (
            json!({"filter": {"pricee": {"max": 3}}}),
            "filter",
            "of 5 items in the catalogue, 1 is not available and 4 do not pass the filter; no item has a field 'pricee'",
        ),
        (
            json!({"filter": {"tags": "blue", "price": {"min": 0}}}),
            "filter",
            "of 5 items in the catalogue, 1 is not available and 4 do not pass the filter",
        ),
        (
            json!({"exclude": ["i0", "i1", "i2", "i3"]}),
            "exclude",
            "of 5 items in the catalogue, 1 is not available and 4 are in exclude",
        ),
        (
            json!({"candidates": ["i4"]}),
            "candidates",
            "of 1 candidate, 1 is not available",
        ),
        (
            json!({"candidates": ["gone", "i4", "lost"]}),
            "candidates",
            "of 3 candidates, 2 are not in the catalogue (the first is 'gone') and 1 is not available",
        ),
        (
            json!({"candidates": ["i1", "i0"], "filter": {"price": 9}, "exclude": ["i0"]}),
            "filter",
            "of 2 candidates, 2 do not pass the filter",
        ),
        (
            json!({"items": [{"id": "x", "features": [1, 2]}], "exclude": ["x"]}),
            "exclude",
            "of 1 item of the request, 1 is in exclude",
        ),
        (
            json!({"user": "v", "seen": 2, "exclude": ["i0"]}),
            "seen",
            "of 5 items in the catalogue, 1 is not available, 1 is in exclude and 3 were shown to the user in the last 2 \
             decisions (seen)",
        ),
    ];
    for (with, field, text) in cases {
        let (status, error) = refused(&service, &with);
        assert_eq!(
            (status, &error["code"], &error["field"]),
            (404, &json!("no_candidates"), &json!(field)),
            "{with}: {error}"
        );
        let expected = format!("there are no candidates: {text}");
        assert_eq!(error["message"], expected, "{with}");
    }
}

#[test]
fn a_batch_answers_the_others() {
    let service = with_items();
    let body = json!({"requests": [
        {"user": "u", "k": 2},
        {"user": "v", "filter": {"tags": "blue"}},
        {"user": "w", "candidates": ["gone"]},
        {"user": "x"},
    ]});
    let (status, answer) = service.call("POST", "/v1/recommend/batch", &body);
    assert_eq!(status, 200, "{answer}");
    let decisions = answer["decisions"].as_array().unwrap();
    let counts = decisions
        .iter()
        .map(|one| one["items"].as_array().unwrap().len());
    assert_eq!(counts.collect::<Vec<_>>(), [2, 0, 0, 1]);
    for (one, field) in decisions.iter().zip(["", "filter", "candidates", ""]) {
        match field {
            "" => assert!(one["error"].is_null() && one["decision"] != ""),
            field => {
                assert_eq!(one["decision"], "");
                assert_eq!(one["error"]["code"], "no_candidates");
                assert_eq!(one["error"]["field"], field);
            }
        }
    }
    assert_eq!(decisions[2]["missing"], json!(["gone"]));
    // Everything else is an error of the whole batch.
    let body = json!({"requests": [{"user": "u"}, {"user": "v", "k": 0}]});
    let (status, answer) = service.call("POST", "/v1/recommend/batch", &body);
    assert_eq!(
        (status, &answer["error"]["field"]),
        (422, &json!("requests[1].k"))
    );
}

#[test]
fn filters_compare_titles_availability_and_whole_numbers() {
    let service = with_items();
    let shown = |filter: Value| {
        let body = json!({"user": "u", "k": 9, "filter": filter});
        let (_, answer) = service.call("POST", "/v1/recommend", &body);
        let items = answer["items"].as_array().cloned().unwrap_or_default();
        let mut ids: Vec<String> = items
            .iter()
            .map(|item| item["id"].as_str().unwrap().to_owned())
            .collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(
        shown(json!({"title": ["Item 1", "Item 3", "Item 4"]})),
        ["i1", "i3"]
    );
    assert_eq!(shown(json!({"available": true})).len(), 4);
    assert_eq!(shown(json!({"available": false})), [""; 0]);
    let range = json!({"user": "u", "filter": {"price": {"min": 5, "max": 1}}});
    let (status, answer) = service.call("POST", "/v1/recommend", &range);
    assert_eq!(
        (status, &answer["error"]["code"], &answer["error"]["field"]),
        (422, &json!("invalid"), &json!("filter.price"))
    );
    let large = [
        i64::MIN as i128,
        -9_007_199_254_740_993,
        9_007_199_254_740_993,
        u64::MAX as i128,
    ];
    for (number, large) in large.iter().enumerate() {
        let data: Value = serde_json::from_str(&format!(r#"{{"n": {large}}}"#)).unwrap();
        let item = json!({"id": format!("n{number}"), "features": [1, number], "data": data});
        assert_eq!(service.call("PUT", "/v1/items", &item).0, 200);
    }
    for (number, large) in large.iter().enumerate() {
        let parse = |text: String| serde_json::from_str::<Value>(&text).unwrap();
        let own = vec![format!("n{number}")];
        assert_eq!(shown(parse(format!(r#"{{"n": {large}}}"#))), own);
        let range = format!(r#"{{"n": {{"min": {large}, "max": {large}}}}}"#);
        assert_eq!(shown(parse(range)), own);
        // The next number towards 0.
        let other = large - large.signum();
        assert_eq!(shown(parse(format!(r#"{{"n": {other}}}"#))), [""; 0]);
        let range = format!(r#"{{"n": {{"min": {other}, "max": {other}}}}}"#);
        assert_eq!(shown(parse(range)), [""; 0]);
    }
}
