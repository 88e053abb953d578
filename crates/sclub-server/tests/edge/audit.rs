//! The audit log.

use std::future::pending;
use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use sclub_server::edge::error::with_fallbacks;
use sclub_server::edge::{Audit, EdgeOptions, Guard, Role, Site};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::harness::{LONG, Running, panicking, three_keys};

/// The lines of an audit log, without the values that differ from run to run.
fn audited(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    let mut lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for line in &mut lines {
        let line = line.as_object_mut().unwrap();
        assert!(line.remove("at").unwrap().as_u64() > Some(1_700_000_000_000));
        assert!(line.remove("milliseconds").unwrap().is_u64());
        let address = line.remove("address").unwrap();
        assert!(address.as_str().unwrap().starts_with("127.0.0.1:"));
        assert_eq!(line.len(), 5, "{line:?}");
    }
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn admin_calls_are_audited() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let audit = Audit::to_file(&file).unwrap();
    let guard = Guard::with_audit(three_keys(), 0, Some(audit.clone()));
    let (started, mut starts) = mpsc::unbounded_channel();
    let hang = move || {
        started.send(()).unwrap();
        pending::<()>()
    };
    let admin = Router::new()
        .route("/v1/users/{id}", axum::routing::delete(|| async { "gone" }))
        .route("/v1/panic", get(|| async { panicking() }))
        .route("/v1/hang", get(hang));
    let read = Router::new().route("/v1/users/{id}", get(|| async { "shown" }));
    let router = guard
        .protect(Role::Admin, admin)
        .merge(guard.protect(Role::Read, read));
    let options = EdgeOptions {
        site: Site::default()
            .own(&["/v1"])
            .audited(audit.clone(), |method, path| {
                let is_delete = method == "DELETE" && path.starts_with("/v1/users/");
                is_delete.then_some(("/v1/users/{id}", None))
            }),
        ..EdgeOptions::default()
    };
    let running = Running::new(with_fallbacks(router), options);
    let ask = async |line: &str, id: &str, header: &str| {
        let head = format!("{line} HTTP/1.1\r\nhost: x\r\nx-request-id: {id}\r\n");
        running.ask(&format!("{head}{header}\r\n")).await.status
    };
    let delete = "DELETE /v1/users/anna";
    let admin = "x-api-key: head-0123456789ab\r\n";
    assert_eq!(ask(delete, "a", admin).await, 200);
    assert_eq!(ask(delete, "b", "").await, 401);
    assert_eq!(
        ask(delete, "c", "x-api-key: wrong-wrong-wrong\r\n").await,
        401
    );
    assert_eq!(
        ask(delete, "d", "x-api-key: eye-0123456789abc\r\n").await,
        403
    );
    let foreign = format!("{admin}sec-fetch-site: cross-site\r\n");
    assert_eq!(ask(delete, "e", &foreign).await, 403);
    assert_eq!(ask("GET /v1/panic", "f", admin).await, 500);
    // Calls of others are not in it.
    assert_eq!(ask("GET /v1/users/anna", "x", admin).await, 200);
    assert_eq!(ask("GET /v1/nothing", "y", admin).await, 404);
    let line = |id: &str, key: &str, method: &str, route: &str, status: u16| json!({"key": key, "request_id": id, "method": method, "route": route, "status": status});
    let user = |id: &str, key: &str, status: u16| line(id, key, "DELETE", "/v1/users/{id}", status);
    let expected = [
        user("a", "head", 200),
        user("b", "-", 401),
        user("c", "-", 401),
        user("d", "eye", 403),
        user("e", "-", 403),
        line("f", "head", "GET", "/v1/panic", 500),
    ];
    assert_eq!(audited(&file), expected);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("anna") && !text.contains("0123"), "{text}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    // A file that was moved away is left alone after it is opened again.
    let moved = folder.path().join("audit.1");
    std::fs::rename(&file, &moved).unwrap();
    audit.reopen().unwrap();
    // A client that disconnects before the answer is recorded too.
    let mut client = running.client().await;
    client
        .send(format!(
            "GET /v1/hang HTTP/1.1\r\nhost: x\r\nx-request-id: g\r\n{admin}\r\n"
        ))
        .await;
    starts.recv().await.unwrap();
    drop(client);
    let left = async {
        while audited(&file).is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, left).await.expect("it is noted");
    assert_eq!(audited(&file), [line("g", "head", "GET", "/v1/hang", 499)]);
    assert_eq!(audited(&moved), expected);
}
