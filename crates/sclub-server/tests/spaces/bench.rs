//! A server with spaces, without a socket.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use futures_util::FutureExt;
use http_body_util::BodyExt;
use sclub_server::api::with_spaces;
use sclub_server::edge::{Audit, Guard, Keys};
use sclub_server::env::Env;
use sclub_server::settings::Settings;
use sclub_server::spaces::Spaces;
use sclub_server::store::Folder;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tower::ServiceExt;

/// Keys with the secret `name` and sixteen zeros: three of each space, and two of the server.
pub const KEYS: &str = "read:default-read:default-read0000000000000000,\
    write:default-write:default-write0000000000000000,\
    admin@default:default-admin:default-admin0000000000000000,\
    read@a:a-read:a-read0000000000000000,\
    write@a:a-write:a-write0000000000000000,\
    admin@a:a-admin:a-admin0000000000000000,\
    read@b:b-read:b-read0000000000000000,\
    write@b:b-write:b-write0000000000000000,\
    admin@b:b-admin:b-admin0000000000000000,\
    admin:root:root0000000000000000,\
    read@*:monitor:monitor0000000000000000";

pub struct Server {
    pub spaces: Arc<Spaces>,
    pub guard: Guard,
    router: Router,
    runtime: Runtime,
}

/// The status and the body of an answer.
pub type Answer = (u16, String);

impl Server {
    pub fn new(data: &Path, keys: Keys) -> Self {
        Self::of(settings(data), keys, None)
    }

    pub fn of(settings: Settings, keys: Keys, audit: Option<Audit>) -> Self {
        let server = Self::starting(settings, keys, audit);
        server.open_all();
        server
    }

    /// A server that has its default space, and opens the others later.
    pub fn starting(settings: Settings, keys: Keys, audit: Option<Audit>) -> Self {
        let runtime = Runtime::new().unwrap();
        let guard = Guard::with_audit(keys, settings.rate, audit);
        let (spaces, router) = {
            let _inside = runtime.enter();
            let spaces = Spaces::new(&settings, guard.clone());
            let folder = Folder::open(&Env::real(), &settings.data).unwrap();
            let default = spaces.default_space();
            spaces.start(&default, folder).unwrap();
            let router = with_spaces(default.router.clone(), Arc::clone(&spaces));
            (spaces, router)
        };
        Self {
            spaces,
            guard,
            router,
            runtime,
        }
    }

    /// Opens the other spaces.
    pub fn open_all(&self) {
        let _inside = self.runtime.enter();
        self.spaces.open_all();
    }

    /// Sends a request with the key of a name, or without one for an empty name.
    pub fn send(&self, key: &str, method: &str, path: &str, body: &str) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        if !key.is_empty() {
            request = request.header("authorization", format!("Bearer {key}0000000000000000"));
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let router = self.router.clone();
        let answered = self.runtime.spawn(async move {
            let response = router.oneshot(request).await.unwrap();
            let status = response.status().as_u16();
            let is_stream = response.headers()["content-type"] == "text/event-stream";
            // The stream has no end.
            let body = match is_stream {
                true => Vec::new(),
                false => response
                    .into_body()
                    .collect()
                    .await
                    .unwrap()
                    .to_bytes()
                    .to_vec(),
            };
            (status, String::from_utf8_lossy(&body).into_owned())
        });
        self.runtime.block_on(answered).unwrap()
    }

    /// Sends a request, and goes away before the answer.
    pub fn abandon(&self, method: &str, path: &str, body: &str) {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json");
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let answer = self.router.clone().oneshot(request);
        let _inside = self.runtime.enter();
        assert!(answer.now_or_never().is_none(), "{method} {path}");
    }

    /// Reads a stream to its end, while something else is done.
    pub fn stream_during(&self, path: &str, work: impl FnOnce()) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = self.router.clone().oneshot(request);
        let answer = self.runtime.block_on(answer).unwrap();
        assert_eq!(answer.status(), 200);
        work();
        let end = async {
            let end = answer.into_body().collect();
            tokio::time::timeout(Duration::from_secs(30), end).await
        };
        assert!(self.runtime.block_on(end).is_ok(), "{path} has no end");
    }

    /// Sends JSON, and expects a success.
    pub fn ok(&self, key: &str, method: &str, path: &str, body: &Value) -> Value {
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let (status, answer) = self.send(key, method, path, &body);
        assert!(status < 300, "{method} {path}: {status} {answer}");
        serde_json::from_str(&answer).unwrap_or(Value::Null)
    }

    /// Sends JSON, and expects an error. Returns its status and code.
    pub fn refused(&self, key: &str, method: &str, path: &str, body: &Value) -> (u16, String) {
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let (status, answer) = self.send(key, method, path, &body);
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let code = answer["error"]["code"].as_str().unwrap_or_default();
        (status, code.to_owned())
    }

    /// Makes a space with two items of some dimension, and has it learn.
    pub fn fill(&self, key: &str, space: &str, dim: usize) {
        let base = format!("/v1/spaces/{space}");
        for item in 0..2 {
            let mut features = vec![0.0; dim];
            features[item] = 1.0;
            let item = json!({"id": format!("{space}-{item}"), "features": features});
            self.ok(key, "PUT", &format!("{base}/items"), &item);
        }
        let shown = self.ok(
            key,
            "POST",
            &format!("{base}/recommend"),
            &json!({"user": "u"}),
        );
        let reward = json!({"decision": shown["decision"], "reward": 1});
        self.ok(key, "POST", &format!("{base}/feedback"), &reward);
    }

    /// Everything that can be seen of a space: its hash and its counts.
    pub fn seen(&self, space: &str) -> (Option<String>, u64, String) {
        let space = self.spaces.get(space).unwrap();
        let engine = space.app.engine().unwrap();
        let (state, hash) = engine.hashed();
        let events = state.events();
        drop(state);
        engine.meters().state(&engine.state());
        let metrics = engine.meters().render();
        (hash, events, metrics)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.spaces.close_all(self.runtime.handle());
    }
}

/// Settings with the least of everything in the background.
pub fn settings(data: &Path) -> Settings {
    Settings {
        data: data.to_owned(),
        ..Settings::default()
    }
}

pub fn keys() -> Keys {
    Keys::from_list(KEYS).unwrap()
}
