//! Limits on the number of connections.

use std::time::Duration;

use sclub_server::edge::EdgeOptions;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::harness::{Answer, Client, LONG, Running, plain};

const REQUEST: &str = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";

/// A server with a limit of two connections, both of them taken, and the answer to a third.
async fn third_of_two(options: EdgeOptions) -> (Running, [Client<TcpStream>; 2], Answer) {
    let running = Running::new(plain(), options);
    let mut open = [running.client().await, running.client().await];
    for client in &mut open {
        client.send(REQUEST).await;
        assert_eq!(client.answer().await.status, 200);
    }
    let mut third = running.client().await;
    third.send(REQUEST).await;
    let answer = third.answer().await;
    assert_eq!((answer.status, &*answer.code()), (503, "overloaded"));
    third.ended().await;
    (running, open, answer)
}

/// Waits until a connection is accepted again.
async fn has_room_again(running: &Running) {
    let again = async {
        while running.ask(REQUEST).await.status != 200 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, again).await.expect("there is room again");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_over_the_limit_get_503() {
    let options = EdgeOptions {
        max_connections: 2,
        ..EdgeOptions::default()
    };
    let (running, [first, mut second], _) = third_of_two(options).await;
    // The others go on, and one that leaves makes room.
    second.send(REQUEST).await;
    assert_eq!(second.answer().await.status, 200);
    drop(first);
    has_room_again(&running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_one_address_are_limited() {
    let options = EdgeOptions {
        max_connections_per_address: 2,
        ..EdgeOptions::default()
    };
    let (running, [first, _second], answer) = third_of_two(options).await;
    assert!(answer.text().contains("from this address"), "{answer:?}");
    assert!(!answer.headers["x-request-id"].is_empty());
    // Another address has its own limit, and one that leaves makes room.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = Client::new(socket.connect(running.addr).await.unwrap());
    other.send(REQUEST).await;
    assert_eq!(other.answer().await.status, 200);
    drop(first);
    has_room_again(&running).await;
}
