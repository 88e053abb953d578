//! HTTP answers to faults.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use sclub_server::api::{App, router};
use sclub_server::edge::{Guard, Keys};
use sclub_server::engine::{Engine, restore};
use sclub_server::env::Env;
use sclub_server::settings::Settings;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tower::ServiceExt;

use crate::bench::{quiet, wait_until};
use crate::common::clock::Moved;
use crate::common::disk::Faults;
use crate::common::new_folder;

/// A service without a socket.
pub struct Service {
    app: Arc<App>,
    router: Router,
    runtime: Runtime,
    _folder: TempDir,
}

impl Service {
    fn at(folder: TempDir, env: Env) -> Self {
        Self::of(folder, env, quiet())
    }

    pub fn of(folder: TempDir, env: Env, settings: Settings) -> Self {
        let app = App::new(settings.clone());
        app.begin(Engine::open(env, folder.path(), &settings).unwrap());
        Self {
            router: router(Arc::clone(&app), &Guard::new(Keys::none(), 0)),
            app,
            runtime: Runtime::new().unwrap(),
            _folder: folder,
        }
    }

    fn with_items(env: Env) -> Self {
        let service = Self::at(new_folder(), env);
        let item = json!({"id": "a", "features": [1, 0, 0]});
        assert_eq!(service.call("PUT", "/v1/items", &item).0, 200);
        service
    }

    fn bytes(&self, method: &str, path: &str, body: Vec<u8>) -> (u16, Vec<u8>) {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json");
        let request = request.body(Body::from(body)).unwrap();
        // On a thread of the runtime, because handlers start blocking work.
        let router = self.router.clone();
        let answered = self.runtime.spawn(async move {
            let response = router.oneshot(request).await.unwrap();
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.unwrap();
            (status, body.to_bytes().to_vec())
        });
        self.runtime.block_on(answered).unwrap()
    }

    pub fn call(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let (status, bytes) = self.bytes(method, path, body.to_string().into_bytes());
        (status, serde_json::from_slice(&bytes).unwrap())
    }

    fn decide(&self) -> Value {
        let (status, shown) = self.call("POST", "/v1/recommend", &json!({"user": "u"}));
        assert_eq!(status, 200, "{shown}");
        shown["decision"].clone()
    }

    /// The status and the code of the answer to a reward.
    fn feedback(&self, decision: &Value) -> (u16, Value) {
        let body = json!({"decision": decision, "reward": 1.0});
        let (status, answer) = self.call("POST", "/v1/feedback", &body);
        (status, answer["error"]["code"].clone())
    }

    fn read_only(&self) -> bool {
        self.app.engine().unwrap().read_only().is_some()
    }
}

#[test]
fn a_decision_of_another_copy_is_a_conflict() {
    let service = Service::with_items(Env::real());
    let (status, backup) = service.bytes("GET", "/v1/admin/backup", Vec::new());
    assert_eq!(status, 200);
    let folder = new_folder();
    restore(&Env::real(), &mut &*backup, folder.path()).unwrap();
    let copy = Service::at(folder, Env::real());
    let decision = copy.decide();
    assert_eq!(service.feedback(&decision), (409, json!("other_copy")));
    let [own, other] =
        [&service.decide(), &decision].map(|decision| json!({"decision": decision, "reward": 1.0}));
    // The field has the place of the entry in any batch.
    for (batch, field) in [
        (json!([own, other]), "feedback[1].decision"),
        (json!([other]), "feedback[0].decision"),
    ] {
        let body = json!({"feedback": batch});
        let (status, answer) = service.call("POST", "/v1/feedback/batch", &body);
        assert_eq!(status, 409, "{answer}");
        assert_eq!(answer["error"]["field"], field);
    }
    assert_eq!(copy.feedback(&decision), (200, Value::Null));
}

#[test]
fn an_unknown_outcome_is_a_504() {
    let (faults, env) = Faults::new(Env::real());
    let (clock, env) = Moved::new(env);
    let service = Service::with_items(env);
    let decision = service.decide();
    faults.fail_syncs("log", u32::MAX);
    let answer = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| service.feedback(&decision));
        wait_until(|| service.read_only());
        let item = json!({"id": "b", "features": [0, 1, 0]});
        let (status, answer) = service.call("PUT", "/v1/items", &item);
        assert_eq!(
            (status, &answer["error"]["code"]),
            (503, &json!("read_only"))
        );
        clock.pass(10_001);
        waiting.join().unwrap()
    });
    assert_eq!(answer, (504, json!("unknown_outcome")));
    // Sending it again settles the outcome.
    faults.fail_syncs("log", 0);
    assert_eq!(service.feedback(&decision), (200, Value::Null));
}

/// Operators get the same errors as other callers.
#[test]
fn a_snapshot_on_a_full_disk_is_refused() {
    let (faults, env) = Faults::new(Env::real());
    let service = Service::with_items(env);
    faults.set_full(true);
    for path in ["/v1/admin/snapshot", "/v1/admin/compact"] {
        let (status, answer) = service.call("POST", path, &Value::Null);
        let said = (status, &answer["error"]["code"]);
        assert_eq!(said, (503, &json!("read_only")), "{path}: {answer}");
    }
    faults.set_full(false);
    let (status, answer) = service.call("POST", "/v1/admin/snapshot", &Value::Null);
    assert_eq!(status, 200, "{answer}");
}

/// Also of requests that run on a thread of their own because they have many draws.
#[test]
fn answers_have_propensities_if_they_are_on() {
    for propensities in [0, 10, 4_000] {
        let settings = Settings {
            policy: Some("lints".to_owned()),
            propensities,
            ..quiet()
        };
        let service = Service::of(new_folder(), Env::real(), settings);
        for (id, x) in [("a", 1.0), ("b", 0.9)] {
            let item = json!({"id": id, "features": [x, 0, 0.1]});
            assert_eq!(service.call("PUT", "/v1/items", &item).0, 200);
        }
        let request = json!({"user": "u"});
        let (status, one) = service.call("POST", "/v1/recommend", &request);
        assert_eq!(status, 200, "{one}");
        let batch = json!({"requests": [request, {"user": "v", "k": 2}]});
        let (status, batch) = service.call("POST", "/v1/recommend/batch", &batch);
        assert_eq!(status, 200, "{batch}");
        let answers = batch["decisions"].as_array().unwrap().iter().chain([&one]);
        for item in answers.flat_map(|answer| answer["items"].as_array().unwrap()) {
            let propensity = item.get("propensity").map(|p| p.as_f64().unwrap());
            match propensities {
                0 => assert_eq!(propensity, None),
                _ => assert!(propensity.is_some_and(|p| p > 0.0 && p <= 1.0), "{item}"),
            }
        }
        let both = &batch["decisions"][1]["items"];
        if propensities > 0 {
            assert_eq!(
                (&both[0]["propensity"], &both[1]["propensity"]),
                (&json!(1.0), &json!(1.0))
            );
        }
    }
}

#[test]
fn an_experiment_is_started_shown_and_ended() {
    let service = Service::with_items(Env::real());
    let none = service.call("GET", "/v1/experiments", &json!({})).1;
    assert_eq!(none, json!({"running": null, "past": []}));
    let arm = |name: &str, policy: &str, share: f64| json!({"name": name, "policy": policy, "share": share});
    let arms = json!([
        arm("control", "sclub", 20.0),
        arm("test", "linucb-one", 79.99)
    ]);
    let begin = |arms: &Value| {
        let body =
            json!({"name": "x", "arms": arms, "shadows": [{"name": "y", "policy": "linucb-ind"}]});
        service.call("POST", "/v1/experiments", &body)
    };
    let (status, refused) = begin(&arms);
    assert_eq!(status, 422, "{refused}");
    assert_eq!(refused["error"]["field"], "arms");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("99.99%; they must sum to 100%"),
        "{message}"
    );
    let (status, refused) = begin(&json!([
        arm("a", "sclub", 0.001),
        arm("b", "lints", 99.999)
    ]));
    assert_eq!(
        (status, &refused["error"]["field"]),
        (422, &json!("arms[0].share"))
    );
    let arms = json!([
        arm("control", "sclub", 20.0),
        arm("test", "linucb-one", 80.0)
    ]);
    let (status, card) = begin(&arms);
    assert_eq!(status, 200, "{card}");
    assert_eq!(card["arms"][2]["shadow"], true);
    assert_eq!(begin(&arms).0, 409);
    for user in 0..20 {
        let asked = json!({"user": format!("u{user}")});
        let shown = service.call("POST", "/v1/recommend", &asked).1;
        let given = json!({"decision": shown["decision"], "reward": 1});
        assert_eq!(service.call("POST", "/v1/feedback", &given).0, 200);
    }
    let running = service.call("GET", "/v1/experiments", &json!({})).1["running"].clone();
    let items = |arm: usize| running["arms"][arm]["items"].as_u64().unwrap();
    assert_eq!(items(0) + items(1), 20);
    let said = running["summary"][0].as_str().unwrap();
    assert!(said.contains("An interval needs 50 users"), "{said}");
    let (status, metrics) = service.bytes("GET", "/metrics", Vec::new());
    let metrics = String::from_utf8(metrics).unwrap();
    let line = format!(
        "sclub_arm_items{{space=\"default\",experiment=\"x\",arm=\"test\"}} {}\n",
        items(1)
    );
    assert!(status == 200 && metrics.contains(&line), "{metrics}");
    let end = |name: &str, winner: &str| {
        let path = format!("/v1/experiments/{name}/end");
        service.call("POST", &path, &json!({"winner": winner}))
    };
    assert_eq!(end("z", "test").0, 404);
    assert_eq!(end("x", "z").0, 422);
    assert_eq!(end("x", "test").0, 200);
    let (_, state) = service.call("GET", "/v1/state", &json!({}));
    assert_eq!(state["policy"], "linucb-one");
    let past = &service.call("GET", "/v1/experiments", &json!({})).1["past"][0];
    assert_eq!(
        (&past["winner"], &past["name"]),
        (&json!("test"), &json!("x"))
    );
    let metrics = service.bytes("GET", "/metrics", Vec::new()).1;
    assert!(
        !String::from_utf8(metrics)
            .unwrap()
            .contains("sclub_arm_items")
    );
}

#[test]
fn pages_of_items_tell_whether_an_item_was_removed_meanwhile() {
    let service = Service::at(new_folder(), Env::real());
    for id in ["a", "b", "c"] {
        let item = json!({"id": id, "features": [1, 0, 0]});
        assert_eq!(service.call("PUT", "/v1/items", &item).0, 200);
    }
    let revision = || {
        let page = service.call("GET", "/v1/items?limit=1", &Value::Null).1;
        page["order_revision"].as_u64().unwrap()
    };
    let first = revision();
    let item = json!({"id": "b", "features": [0, 1, 0], "title": "Tea"});
    assert_eq!(service.call("PUT", "/v1/items", &item).0, 200);
    assert_eq!(
        service
            .call("PATCH", "/v1/items/c", &json!({"available": false}))
            .0,
        200
    );
    let item = json!({"id": "d", "features": [0, 1, 0]});
    assert_eq!(service.call("PUT", "/v1/items", &item).0, 200);
    assert_eq!(revision(), first);
    assert_eq!(service.call("DELETE", "/v1/items/a", &Value::Null).0, 200);
    assert!(revision() > first);
}

#[test]
fn a_search_finds_every_item_that_stays_while_others_are_removed() {
    let service = Service::at(new_folder(), Env::real());
    // The first half is removed, and each time the last item takes the place.
    let lines: Vec<String> = (0..4_000)
        .map(|number| {
            let title = if number < 2_000 { "gone" } else { "stays" };
            json!({"id": format!("i{number}"), "features": [1], "title": title}).to_string()
        })
        .collect();
    let lines = lines.join("\n").into_bytes();
    assert_eq!(service.bytes("PUT", "/v1/items", lines).0, 200);
    let searches = std::thread::scope(|scope| {
        let removal = scope.spawn(|| {
            for number in 0..2_000 {
                let path = format!("/v1/items/i{number}");
                assert_eq!(service.call("DELETE", &path, &Value::Null).0, 200);
            }
        });
        let mut searches = 0;
        while !removal.is_finished() {
            let path = "/v1/items?search=stays&limit=1";
            let (_, page) = service.call("GET", path, &Value::Null);
            assert_eq!(page["total"], 2_000);
            assert_eq!(page["items"][0]["title"], "stays");
            searches += 1;
        }
        searches
    });
    assert!(searches > 5, "{searches}");
}
