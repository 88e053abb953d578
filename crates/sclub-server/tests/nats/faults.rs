//! Servers that are killed, stopped and started again.

use std::time::{Duration, Instant};

use bytes::Bytes;
use sclub_server::cluster::bus::{Bucket, Bus, BusError};
use sclub_server::cluster::nats::NatsBus;

use crate::{NatsServers, PATIENCE, append, connect, new_cluster, next};

/// One test, because the servers are its own and take time to start.
#[tokio::test(flavor = "multi_thread")]
async fn everything_goes_on_when_the_server_of_the_connection_is_killed() {
    let Some(servers) = NatsServers::start(3) else {
        return;
    };
    let bus = new_cluster(&servers, "faults").await;
    drop(bus);
    // They know the address of one server only, and learn of the others.
    let writer = connect(servers.url_of(0), "faults").await;
    let reader = connect(servers.url_of(1), "faults").await;
    let mut messages = reader.follow("s", 0).await.unwrap();
    let mut last = 0;
    for round in 0..2 {
        for _ in 0..20 {
            last = append(&writer, last, &format!("m{}", last + 1)).await;
        }
        let start = Instant::now();
        servers.kill(round);
        for _ in 0..20 {
            last = append(&writer, last, &format!("m{}", last + 1)).await;
        }
        println!(
            "20 appends over the death of server {round}: {:?}",
            start.elapsed()
        );
        let key = format!("k{round}");
        put(&writer, &key).await;
        for expected in last - 39..=last {
            let text = Bytes::from(format!("m{expected}"));
            assert_eq!(next(&mut messages).await, Ok((expected, text)));
        }
        println!("and read: {:?}", start.elapsed());
        servers.restart(round);
        wait_for_keys(&reader, round + 1).await;
    }
    assert_eq!(writer.bounds("s").await, Ok((1, last)));
    assert!(writer.is_connected());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_nothing_is_written_and_with_it_everything_goes_on() {
    let Some(servers) = NatsServers::start(3) else {
        return;
    };
    let bus = new_cluster(&servers, "majority").await;
    let mut messages = bus.follow("s", 0).await.unwrap();
    let mut last = append(&bus, 0, "m1").await;
    // A server that is stopped keeps its connections open.
    servers.pause(0);
    servers.pause(1);
    let refused = bus.append("s", "m2", last, Bytes::from("m2")).await;
    let unknown = matches!(refused, Err(BusError::Timeout | BusError::NoResponders));
    assert!(unknown, "{refused:?}");
    servers.resume(0);
    servers.resume(1);
    for _ in 0..10 {
        last = append(&bus, last, &format!("m{}", last + 1)).await;
    }
    for expected in 1..=last {
        let text = Bytes::from(format!("m{expected}"));
        assert_eq!(next(&mut messages).await, Ok((expected, text)));
    }
    for i in 0..3 {
        servers.kill(i);
    }
    let end = Instant::now() + PATIENCE;
    while bus.is_connected() {
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let none = bus.append("s", "m12", last, Bytes::from("m12")).await;
    assert_eq!(none, Err(BusError::Timeout));
}

async fn put(bus: &NatsBus, key: &str) {
    let end = Instant::now() + PATIENCE;
    while let Err(error) = bus.put(Bucket::Config, key, Bytes::from_static(b"1")).await {
        assert!(Instant::now() < end, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a node sees this number of keys.
async fn wait_for_keys(bus: &NatsBus, count: usize) {
    let end = Instant::now() + PATIENCE;
    while bus.entries(Bucket::Config).len() != count {
        assert!(Instant::now() < end, "{:?}", bus.entries(Bucket::Config));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
