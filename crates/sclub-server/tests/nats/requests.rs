//! Requests and answers between nodes.

use std::time::{Duration, Instant};

use bytes::Bytes;
use sclub_server::cluster::bus::{Bus, BusError};

use crate::{NatsServers, PATIENCE, connect};

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_answered_by_the_node_that_listens() {
    let Some(servers) = NatsServers::shared() else {
        return;
    };
    // Requests need no streams.
    let asks = connect(servers.url_of(0), "requests").await;
    let answers = connect(servers.url_of(1), "requests").await;
    let hello = Bytes::from_static(b"hello");
    let none = asks.request("n1.ask", hello.clone(), 5_000).await;
    assert_eq!(none, Err(BusError::NoResponders));

    let mut requests = answers.listen("n1.ask").await.unwrap();
    let answering = tokio::spawn(async move {
        while let Some(request) = requests.recv().await {
            let size = String::from_utf8_lossy(&request.bytes).parse::<usize>();
            match size {
                Ok(size) => request.reply.send(Bytes::from(vec![9; size])),
                // No answer.
                Err(_) => drop(request.reply),
            }
        }
    });
    // The servers tell each other of the listener.
    let end = Instant::now() + PATIENCE;
    let first = Bytes::from_static(b"1");
    while asks.request("n1.ask", first.clone(), 5_000).await == Err(BusError::NoResponders) {
        assert!(Instant::now() < end);
    }
    for size in [1, 1000, 8 << 20] {
        let request = Bytes::from(format!("{size}"));
        let answer = asks.request("n1.ask", request, 5_000).await.unwrap();
        assert_eq!(answer.len(), size);
    }
    // An empty answer is that of a node that stops listening.
    let gone = asks
        .request("n1.ask", Bytes::from_static(b"0"), 5_000)
        .await;
    assert_eq!(gone, Err(BusError::NoResponders));
    let start = Instant::now();
    let silent = asks.request("n1.ask", hello.clone(), 200).await;
    assert_eq!(silent, Err(BusError::Timeout));
    assert!(start.elapsed() >= Duration::from_millis(200));

    // Another cluster on the same servers does not hear it.
    let stranger = connect(servers.url(), "strangers").await;
    let none = stranger.request("n1.ask", hello.clone(), 5_000).await;
    assert_eq!(none, Err(BusError::NoResponders));

    // To drop the receiver ends it.
    answering.abort();
    let end = Instant::now() + Duration::from_secs(30);
    while asks.request("n1.ask", hello.clone(), 100).await != Err(BusError::NoResponders) {
        assert!(Instant::now() < end);
    }
    let too_large = Bytes::from(vec![0; (8 << 20) + 1]);
    let refused = asks.request("n1.ask", too_large, 5_000).await;
    assert_eq!(refused, Err(BusError::TooLarge));
}
