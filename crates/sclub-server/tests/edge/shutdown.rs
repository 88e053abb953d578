//! The shutdown of a server.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use futures_util::stream;
use sclub_server::edge::{Closing, Drained, EdgeOptions};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use crate::harness::{LONG, Running, SHORT};

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_waits_for_requests_in_flight() {
    let (started, mut starts) = mpsc::unbounded_channel();
    let go = Arc::new(Notify::new());
    let wait = Arc::clone(&go);
    let slow = move || {
        let (started, wait) = (started.clone(), Arc::clone(&wait));
        async move {
            started.send(()).unwrap();
            wait.notified().await;
            "done"
        }
    };
    let router = Router::new()
        .route("/", get(slow))
        .merge(Router::new().route("/now", get(|| async {})));
    let running = Running::new(
        router,
        EdgeOptions {
            drain: LONG,
            ..EdgeOptions::default()
        },
    );
    let addr = running.addr;
    let mut busy = running.client().await;
    busy.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    starts.recv().await.unwrap();
    let mut idle = running.client().await;
    idle.send("GET /now HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(idle.answer().await.status, 200);
    let mut unused = running.client().await;

    let end = tokio::spawn(running.stop());
    idle.ended().await;
    unused.ended().await;
    assert!(
        TcpStream::connect(addr).await.is_err(),
        "nothing new is taken"
    );
    assert!(!end.is_finished());
    go.notify_one();
    let answer = busy.answer().await;
    assert_eq!((answer.status, answer.text()), (200, "done"));
    assert_eq!(answer.headers["connection"], "close");
    busy.ended().await;
    assert_eq!(end.await.unwrap(), Drained { cut: 0 });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_does_not_wait_forever() {
    let (started, mut starts) = mpsc::unbounded_channel();
    let hang = move || {
        started.send(()).unwrap();
        pending::<()>()
    };
    let router = Router::new().route("/", get(hang));
    let running = Running::new(
        router,
        EdgeOptions {
            drain: SHORT,
            ..EdgeOptions::default()
        },
    );
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = running.client().await;
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        starts.recv().await.unwrap();
        clients.push(client);
    }
    // One that has not asked for anything yet is not counted.
    let mut half = running.client().await;
    half.send("GET / HTTP/1.1\r\nho").await;
    assert_eq!(running.stop().await, Drained { cut: 3 });
    for mut client in clients {
        client.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_when_the_server_does() {
    let events = |closing: Closing| async {
        assert!(!closing.is_closing());
        let events = stream::unfold(Some(closing), |closing| async {
            let closing = closing?;
            let wait = closing.clone().wait();
            let event = match timeout(Duration::from_millis(20), wait).await {
                Err(_) => ("tick", Some(closing)),
                Ok(()) => ("bye", None),
            };
            Some((Ok::<_, Infallible>(event.0), event.1))
        });
        Body::from_stream(events)
    };
    let router = Router::new().route("/", get(events));
    let running = Running::new(
        router,
        EdgeOptions {
            drain: LONG,
            ..EdgeOptions::default()
        },
    );
    let mut client = running.client().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    client.head().await;
    assert_eq!(client.chunk().await, b"tick");
    assert_eq!(running.stop().await, Drained { cut: 0 });
    let mut last = Vec::new();
    loop {
        let chunk = client.chunk().await;
        if chunk.is_empty() {
            break;
        }
        last = chunk;
    }
    assert_eq!(last, b"bye");
}
