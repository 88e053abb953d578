//! Buckets of keys.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sclub_server::cluster::TTL;
use sclub_server::cluster::bus::{Bucket, Bus, BusError, Entry};
use sclub_server::cluster::nats::NatsBus;

use crate::{NatsServers, PATIENCE, connect, new_cluster};

/// For a lease to expire, on a machine that is busy.
const LONG: Duration = Duration::from_secs(60);

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
    // A node that comes later sees them at once, unless a server has not answered in time.
    let entry = Entry {
        revision: fifth,
        value: text("5"),
    };
    let mut seen = Vec::new();
    for _ in 0..10 {
        seen = connect(servers.url(), "keys").await.entries(b);
        if !seen.is_empty() {
            break;
        }
    }
    assert_eq!(seen, [("a.b/c=d".to_owned(), entry)]);
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
    let first = bus.create(b, "kept", text("1")).await.unwrap();
    let renewals = tokio::spawn(renew(Arc::clone(&bus), "kept", first));
    // Before it is written, so that it is not younger than this.
    let written = Instant::now();
    let lost = bus.create(b, "lost", text("1")).await.unwrap();
    // The other node sees the lease of each key, the one until it expires.
    let revision = |bus: &NatsBus, key: &str| {
        let entries = bus.entries(b);
        let entry = entries.into_iter().find(|(name, _)| name == key);
        entry.map(|(_, entry)| entry.revision)
    };
    let end = written + LONG;
    let wait_until = async |bus: &NatsBus, what: &str, is_done: &dyn Fn() -> bool| {
        loop {
            let changed = bus.changed(b);
            if is_done() {
                return;
            }
            let left = end.saturating_duration_since(Instant::now());
            let waited = tokio::time::timeout(left, changed).await;
            assert!(waited.is_ok(), "never: {what}");
        }
    };
    wait_until(&other, "both are there", &|| {
        let is_seen = revision(&other, "lost") == Some(lost) || written.elapsed() >= ttl;
        is_seen && revision(&other, "kept") >= Some(first)
    })
    .await;
    wait_until(&other, "one expires", &|| {
        revision(&other, "lost").is_none()
    })
    .await;
    let age = written.elapsed();
    assert!(age > ttl - Duration::from_millis(200), "{age:?}");

    // The owner sees that it is lost, and another node can take it.
    let taken = loop {
        match other.create(b, "lost", text("2")).await {
            Ok(revision) => break revision,
            Err(BusError::Conflict) => tokio::time::sleep(Duration::from_millis(10)).await,
            Err(error) => panic!("{error}"),
        }
        assert!(Instant::now() < end);
    };
    println!(
        "a lease could be taken {:?} after it was written",
        written.elapsed()
    );
    let late = bus.update(b, "lost", text("3"), lost).await;
    assert_eq!(late, Err(BusError::Conflict));
    let taken_renewals = tokio::spawn(renew(Arc::clone(&other), "lost", taken));
    // The other one was renewed all the time, and is older than a lease may be.
    assert!(!renewals.is_finished(), "{:?}", renewals.await);
    wait_until(&other, "a renewal is seen", &|| {
        revision(&other, "kept") > Some(first)
    })
    .await;
    wait_until(&bus, "the new owner is seen", &|| {
        revision(&bus, "lost") >= Some(taken)
    })
    .await;
    renewals.abort();
    taken_renewals.abort();
}

/// Renews a lease, as its owner does. It ends with a panic if the lease is lost before its time.
async fn renew(bus: Arc<NatsBus>, key: &str, mut revision: u64) {
    let ttl = Duration::from_millis(TTL);
    let mut renewed = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let sent = Instant::now();
        match bus.update(Bucket::Leases, key, text("2"), revision).await {
            Ok(next) => (revision, renewed) = (next, sent),
            // A machine that stalls for as long as a lease loses it.
            Err(error) => {
                let age = renewed.elapsed();
                assert!(age >= ttl, "{error}, {age:?} after the last renewal");
                renewed = Instant::now();
                revision = bus.put(Bucket::Leases, key, text("1")).await.unwrap();
            }
        }
    }
}
