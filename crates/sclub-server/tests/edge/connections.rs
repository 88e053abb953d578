//! Limits on the number of connections.

use std::time::Duration;

use sclub_server::edge::EdgeOptions;
use tokio::time::{sleep, timeout};

use crate::harness::{Client, LONG, Running, plain};

#[tokio::test(flavor = "multi_thread")]
async fn connections_over_the_limit_get_503() {
    let options = EdgeOptions {
        max_connections: 2,
        ..EdgeOptions::default()
    };
    let running = Running::new(plain(), options);
    let request = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut first = running.client().await;
    let mut second = running.client().await;
    for client in [&mut first, &mut second] {
        client.send(request).await;
        assert_eq!(client.answer().await.status, 200);
    }
    let mut third = running.client().await;
    third.send(request).await;
    let answer = third.answer().await;
    assert_eq!((answer.status, &*answer.code()), (503, "overloaded"));
    third.ended().await;
    // The others go on, and one that leaves makes room.
    second.send(request).await;
    assert_eq!(second.answer().await.status, 200);
    drop(first);
    let again = async {
        while running.ask(request).await.status != 200 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, again).await.expect("there is room again");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_one_address_are_limited() {
    let options = EdgeOptions {
        max_connections_per_address: 2,
        ..EdgeOptions::default()
    };
    let running = Running::new(plain(), options);
    let request = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut first = running.client().await;
    let mut second = running.client().await;
    for client in [&mut first, &mut second] {
        client.send(request).await;
        assert_eq!(client.answer().await.status, 200);
    }
    let mut third = running.client().await;
    third.send(request).await;
    let answer = third.answer().await;
    assert_eq!((answer.status, &*answer.code()), (503, "overloaded"));
    assert!(answer.text().contains("from this address"), "{answer:?}");
    assert!(!answer.headers["x-request-id"].is_empty());
    third.ended().await;
    // Another address has its own, and one that leaves makes room.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = Client::new(socket.connect(running.addr).await.unwrap());
    other.send(request).await;
    assert_eq!(other.answer().await.status, 200);
    drop(first);
    let again = async {
        while running.ask(request).await.status != 200 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, again).await.expect("there is room again");
}
