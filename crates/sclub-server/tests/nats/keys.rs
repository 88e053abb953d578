//! Buckets of keys.

use std::time::{Duration, Instant};

use bytes::Bytes;
use sclub_server::cluster::TTL;
use sclub_server::cluster::bus::{Bucket, Bus, BusError, Entry};
use sclub_server::cluster::nats::NatsBus;

use crate::{NatsServers, PATIENCE, connect, new_cluster};

fn text(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

/// Waits until the entries of a bucket, as a node sees them, are these.
async fn wait_for(bus: &NatsBus, bucket: Bucket, expected: &[(&str, u64)]) -> Duration {
    let start = Instant::now();
    loop {
        let changed = bus.changed(bucket);
        let entries = bus.entries(bucket);
        let seen: Vec<_> = entries
            .iter()
            .map(|(key, entry)| (key.as_str(), entry.revision))
            .collect();
        if seen == expected {
            return start.elapsed();
        }
        let waited = tokio::time::timeout(PATIENCE, changed).await;
        assert!(waited.is_ok(), "{seen:?} instead of {expected:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_written_only_over_the_expected_revision() {
    let Some(servers) = NatsServers::shared() else {
        return;
    };
    let bus = new_cluster(&servers, "keys").await;
    let other = connect(servers.url(), "keys").await;
    let b = Bucket::Config;
    assert_eq!(bus.get(b, "k").await, Ok(None));
    let first = bus.create(b, "k", text("1")).await.unwrap();
    assert_eq!(bus.create(b, "k", text("x")).await, Err(BusError::Conflict));
    let entry = Entry {
        revision: first,
        value: text("1"),
    };
    assert_eq!(other.get(b, "k").await, Ok(Some(entry)));
    let second = other.update(b, "k", text("2"), first).await.unwrap();
    assert!(second > first);
    assert_eq!(
        bus.update(b, "k", text("x"), first).await,
        Err(BusError::Conflict)
    );
    assert_eq!(
        bus.delete(b, "k", Some(first)).await,
        Err(BusError::Conflict)
    );
    let third = bus.put(b, "k", text("3")).await.unwrap();
    let entry = Entry {
        revision: third,
        value: text("3"),
    };
    assert_eq!(bus.get(b, "k").await, Ok(Some(entry)));
    wait_for(&other, b, &[("k", third)]).await;

    bus.delete(b, "k", Some(third)).await.unwrap();
    assert_eq!(bus.get(b, "k").await, Ok(None));
    wait_for(&other, b, &[]).await;
    assert_eq!(
        bus.update(b, "k", text("x"), third).await,
        Err(BusError::Conflict)
    );
    // A deleted key can be made again.
    let fourth = bus.create(b, "k", text("4")).await.unwrap();
    let fifth = bus.put(b, "a.b/c=d", text("5")).await.unwrap();
    wait_for(&other, b, &[("a.b/c=d", fifth), ("k", fourth)]).await;
    bus.delete(b, "k", None).await.unwrap();
    wait_for(&bus, b, &[("a.b/c=d", fifth)]).await;
    // A node that comes later sees them at once.
    let late = connect(servers.url(), "keys").await;
    let entry = Entry {
        revision: fifth,
        value: text("5"),
    };
    assert_eq!(late.entries(b), [("a.b/c=d".to_owned(), entry)]);
    for wrong in ["", ".", "a..b", "a b", "*", ">", "ü"] {
        let refused = bus.put(b, wrong, text("x")).await;
        assert!(matches!(refused, Err(BusError::Failed(_))), "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_expires_unless_it_is_renewed() {
    let Some(servers) = NatsServers::shared() else {
        return;
    };
    let bus = new_cluster(&servers, "leases").await;
    let other = connect(servers.url(), "leases").await;
    let b = Bucket::Leases;
    let ttl = Duration::from_millis(TTL);
    let kept = bus.create(b, "kept", text("1")).await.unwrap();
    let lost = bus.create(b, "lost", text("1")).await.unwrap();
    let written = Instant::now();
    wait_for(&other, b, &[("kept", kept), ("lost", lost)]).await;
    tokio::time::sleep(ttl / 2).await;
    let kept = bus.update(b, "kept", text("2"), kept).await.unwrap();
    wait_for(&other, b, &[("kept", kept), ("lost", lost)]).await;
    wait_for(&other, b, &[("kept", kept)]).await;
    let age = written.elapsed();
    assert!(age > ttl - Duration::from_millis(200), "{age:?}");
    assert!(age < ttl + Duration::from_millis(1_500), "{age:?}");
    let kept = bus.update(b, "kept", text("3"), kept).await.unwrap();

    // The owner sees that it is lost, and another node can take it.
    let expired = Instant::now();
    let taken = loop {
        match other.create(b, "lost", text("2")).await {
            Ok(revision) => break revision,
            Err(BusError::Conflict) => tokio::time::sleep(Duration::from_millis(10)).await,
            Err(error) => panic!("{error}"),
        }
        assert!(expired.elapsed() < Duration::from_secs(2));
    };
    println!(
        "a lease could be taken {:?} after it was written",
        written.elapsed()
    );
    let late = bus.update(b, "lost", text("3"), lost).await;
    assert_eq!(late, Err(BusError::Conflict));
    wait_for(&bus, b, &[("kept", kept), ("lost", taken)]).await;
}
