//! Refused requests and connections are in the metrics.

use std::sync::Arc;
use std::time::Duration;

use sclub_server::api::{App, router};
use sclub_server::edge::{EdgeOptions, Guard, Keys, Site, Tls};
use sclub_server::engine::Engine;
use sclub_server::env::Env;
use sclub_server::settings::Settings;
use tempfile::{TempDir, tempdir};
use tokio::time::{sleep, timeout};

use crate::harness::{LONG, Running, plain, three_keys};
use crate::tls::certificate;

/// A server as `sclub serve` has it, with one space.
fn whole(keys: Keys, rate: u32, options: EdgeOptions) -> (Arc<App>, Running, TempDir) {
    let folder = tempdir().unwrap();
    let settings = Settings::default();
    let engine = Engine::open(Env::real(), folder.path(), &settings).unwrap();
    let app = App::new(settings);
    app.know_errors(Arc::clone(&options.errors));
    app.begin(engine);
    let router = router(Arc::clone(&app), &Guard::new(keys, rate));
    (app, Running::new(router, options), folder)
}

/// The value of a line of the metrics.
fn value(text: &str, line: &str) -> f64 {
    let mut values = text.lines().filter_map(|found| {
        let value = found.strip_prefix(line)?.strip_prefix(' ')?;
        value.parse::<f64>().ok()
    });
    values.next().unwrap_or_else(|| panic!("no {line}"))
}

/// The number of refused requests of a call.
fn refused(app: &App, call: &str) -> f64 {
    let line = format!("sclub_requests_total{{call=\"{call}\",outcome=\"refused\"}}");
    value(&app.meters().unwrap().render(), &line)
}

fn post(path: &str, headers: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: 2\r\n\r\n{{}}")
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_refused_before_their_handler_count_once_under_their_call() {
    let options = EdgeOptions {
        site: Site::default().own(&["/v1", "/metrics"]),
        ..EdgeOptions::default()
    };
    let (app, running, _folder) = whole(three_keys(), 0, options);
    let ask = async |path: &str, headers: &str| running.ask(&post(path, headers)).await.status;
    let calls = [
        ("recommend", "/v1/recommend"),
        ("recommend_batch", "/v1/recommend/batch"),
        ("feedback", "/v1/feedback"),
        ("feedback_batch", "/v1/feedback/batch"),
    ];
    for (call, path) in calls {
        assert_eq!(ask(path, "").await, 401);
        assert_eq!(refused(&app, call), 1.0, "{call}");
        assert_eq!(ask(path, "x-api-key: wrong-0123456789\r\n").await, 401);
        assert_eq!(refused(&app, call), 2.0, "{call}");
        assert_eq!(ask(path, "x-api-key: eye-0123456789abc\r\n").await, 403);
        assert_eq!(refused(&app, call), 3.0, "{call}");
        assert_eq!(ask(path, "origin: http://evil.example\r\n").await, 403);
        assert_eq!(refused(&app, call), 4.0, "{call}");
        // The handler counts those that reach it.
        let status = ask(path, "x-api-key: hand-0123456789ab\r\n").await;
        assert!((400..500).contains(&status), "{status}");
        assert_eq!(refused(&app, call), 5.0, "{call}");
    }
    assert_eq!(refused(&app, "other"), 0.0);
    assert_eq!(ask("/v1/admin/snapshot", "").await, 401);
    assert_eq!(refused(&app, "other"), 1.0);
    let cross = "origin: http://evil.example\r\n";
    assert_eq!(ask("/v1/admin/snapshot", cross).await, 403);
    assert_eq!(refused(&app, "other"), 2.0);
    for (call, _) in calls {
        assert_eq!(refused(&app, call), 5.0, "{call}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_over_the_rate_count_under_their_call() {
    let (app, running, _folder) = whole(Keys::none(), 2, EdgeOptions::default());
    let mut limited = 0;
    for _ in 0..20 {
        let answer = running.ask(&post("/v1/feedback", "")).await;
        limited += u32::from(answer.status == 429);
    }
    assert!(limited > 0);
    assert_eq!(refused(&app, "feedback"), 20.0);
    assert_eq!(refused(&app, "other"), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_and_those_that_are_refused_are_counted() {
    const REFUSED: &str = "sclub_errors_total{status=\"503\",code=\"overloaded\"}";
    let folder = tempdir().unwrap();
    let (cert, key, _) = certificate(folder.path(), "one");
    let tls = Tls::load(&cert, &key).unwrap();
    for tls in [None, Some(tls)] {
        for (max_connections, max_connections_per_address) in [(2, 0), (10, 2)] {
            let options = EdgeOptions {
                tls: tls.clone(),
                max_connections,
                max_connections_per_address,
                ..EdgeOptions::default()
            };
            let errors = Arc::clone(&options.errors);
            let gauge = |name: &str| value(&errors.connections.render(), name);
            let running = Running::new(plain(), options);
            let mut open = vec![running.client().await, running.client().await];
            for refused in 1..=3 {
                // With TLS it is closed without an answer.
                running.client().await.ended().await;
                assert_eq!(value(&errors.render(), REFUSED), f64::from(refused));
            }
            assert_eq!(gauge("sclub_connections"), 2.0);
            assert_eq!(gauge("sclub_max_connections"), max_connections as f64);
            open.pop();
            let closed = async {
                while gauge("sclub_connections") != 1.0 {
                    sleep(Duration::from_millis(5)).await;
                }
            };
            timeout(LONG, closed).await.expect("one of them is closed");
        }
    }
}
