//! Requests, errors and their headers.

use axum::response::{IntoResponse, Response};
use sclub_server::edge::{ApiError, Drained, EdgeOptions, Site, page};
use serde_json::{Value, json};

use crate::harness::{Running, plain, quick};

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_serves_many_requests() {
    let running = Running::new(plain(), EdgeOptions::default());
    let mut client = running.client().await;
    let own = client.stream.local_addr().unwrap().to_string();
    for _ in 0..3 {
        client.send("GET /peer HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.text()), (200, &*own));
        client
            .send("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nfour")
            .await;
        assert_eq!(client.answer().await.text(), "four");
    }
    // Two at once are answered in order.
    client
        .send("GET /peer HTTP/1.1\r\nhost: x\r\n\r\nGET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.text(), own);
    assert_eq!(client.answer().await.text(), "hello");
    assert_eq!(running.stop().await, Drained { cut: 0 });
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_paths_and_wrong_methods() {
    let running = Running::new(plain(), EdgeOptions::default());
    let answer = running
        .ask("GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n")
        .await;
    assert_eq!((answer.status, &*answer.code()), (404, "unknown_path"));
    let answer = running.ask("GET /echo HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!((answer.status, &*answer.code()), (405, "wrong_method"));
    assert_eq!(answer.headers["allow"], "POST");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_not_shown_to_the_client() {
    let running = Running::new(plain(), EdgeOptions::default());
    let mut client = running.client().await;
    for _ in 0..2 {
        client.send("GET /panic HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let answer = client.answer().await;
        assert_eq!((answer.status, &*answer.code()), (500, "internal"));
        assert!(!answer.text().contains("swordfish"), "{}", answer.text());
        assert!(!answer.text().contains("panic"), "{}", answer.text());
    }
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(client.answer().await.text(), "hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_requests_get_400() {
    let running = Running::new(plain(), EdgeOptions::default());
    let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(3 << 20));
    let cases: [(&[u8], u16); 8] = [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"hello\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost x\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\ncontent-length: many\r\n\r\n", 400),
        (
            b"POST /echo HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
            400,
        ),
        (
            b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            400,
        ),
        (long.as_bytes(), 431),
    ];
    for (bytes, status) in cases {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        let mut client = running.client().await;
        client.send(bytes).await;
        assert_eq!(client.answer().await.status, status, "{shown:?}");
        client.ended().await;
    }
    assert_eq!(
        running
            .ask("GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .status,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_has_an_id() {
    let options = EdgeOptions {
        site: Site::new(&[], false).unwrap(),
        ..quick()
    };
    let running = Running::new(plain(), options);
    let mut seen = std::collections::HashSet::new();
    for (request, status) in [
        ("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", 200),
        ("GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n", 404),
        ("PUT / HTTP/1.1\r\nhost: localhost\r\n\r\n", 405),
        ("GET /panic HTTP/1.1\r\nhost: localhost\r\n\r\n", 500),
        ("GET / HTTP/1.1\r\nhost: evil.example\r\n\r\n", 421),
        (
            "POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n",
            408,
        ),
        (
            "GET / HTTP/1.1\r\nhost: localhost\r\nx-request-id: a b\r\n\r\n",
            200,
        ),
        (
            "GET / HTTP/1.1\r\nhost: localhost\r\nx-request-id: \r\n\r\n",
            200,
        ),
    ] {
        let answer = running.ask(request).await;
        assert_eq!(answer.status, status, "{request}");
        let id = answer.headers["x-request-id"].clone();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        assert!(
            (1..=64).contains(&id.len()) && id.chars().all(is_plain),
            "{id}"
        );
        assert!(seen.insert(id), "{request}");
    }
    let own = "GET /nothing HTTP/1.1\r\nhost: localhost\r\nx-request-id: My.id_1-2\r\n\r\n";
    assert_eq!(running.ask(own).await.headers["x-request-id"], "My.id_1-2");
}

#[test]
fn errors_have_one_form() {
    let error = ApiError::invalid("reward", "the reward 2 is not between 0 and 1");
    let response: Response = error.into_response();
    assert_eq!(response.status(), 422);
    let body = axum::body::to_bytes(response.into_body(), 1000);
    let body = futures_util::FutureExt::now_or_never(body)
        .unwrap()
        .unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let expected = json!({"error": {
        "code": "invalid", "message": "the reward 2 is not between 0 and 1", "field": "reward"
    }});
    assert_eq!(body, expected);
}

#[test]
fn pages_have_security_headers() {
    let mut headers = axum::http::HeaderMap::new();
    page::secure(&mut headers);
    assert_eq!(
        headers["content-security-policy"],
        "default-src 'self'; img-src 'self' data:; style-src 'self'; script-src 'self'; \
         frame-ancestors 'none'"
    );
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(headers["referrer-policy"], "no-referrer");
}
