//! To make a cluster, and the errors of servers that cannot have one.

use sclub_server::cluster::bus::BusError;
use sclub_server::cluster::nats::NatsBus;

use crate::servers::Setup;
use crate::{NatsServers, connect, new_cluster, options};

fn reason<T>(result: Result<T, BusError>) -> String {
    match result {
        Err(BusError::Failed(reason)) => reason,
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("it succeeded"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_can_be_made_twice_but_not_differently() {
    let Some(servers) = NatsServers::shared() else {
        return;
    };
    let bus = connect(servers.url(), "twice").await;
    assert_eq!(bus.exists().await, Ok(false));
    let streams = ["a".to_owned(), "b".to_owned()];
    bus.init(&streams, 3).await.unwrap();
    assert_eq!(bus.exists().await, Ok(true));
    bus.init(&streams, 3).await.unwrap();
    let other = reason(bus.init(&streams, 1).await);
    assert!(
        other.contains("SCLUB_twice_a exists with other properties"),
        "{other}"
    );
    let too_many = connect(servers.url(), "five").await;
    let too_few = reason(too_many.init(&streams, 5).await);
    assert!(
        too_few.contains("5 replicas need 5 NATS servers"),
        "{too_few}"
    );
    assert_eq!(too_many.exists().await, Ok(false));
    let name = reason(bus.init(&["a.b".to_owned()], 3).await);
    assert!(name.contains("a.b"), "{name}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_is_enough_for_one_replica() {
    let account = Some(("sclub", "secret"));
    let setup = Setup {
        account,
        ..Setup::default()
    };
    let Some(servers) = NatsServers::start_with(1, setup) else {
        return;
    };
    let bus = new_cluster(&servers, "one").await;
    assert_eq!(bus.exists().await, Ok(true));
    let too_few = reason(connect(servers.url(), "two").await.init(&[], 2).await);
    assert!(
        too_few.contains("2 replicas need 2 NATS servers"),
        "{too_few}"
    );
    let without = servers.url().replace("sclub:secret@", "");
    let refused = reason(NatsBus::connect(options(without, "one")).await);
    assert!(refused.contains("authorization"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_without_jetstream_or_with_small_messages_are_refused() {
    let off = Setup {
        jetstream: false,
        ..Setup::default()
    };
    let Some(servers) = NatsServers::start_with(1, off) else {
        return;
    };
    let bus = connect(servers.url(), "off").await;
    let off = reason(bus.init(&[], 1).await);
    assert!(
        off.contains("JetStream is off: add the line `jetstream {"),
        "{off}"
    );
    assert!(reason(bus.exists().await).contains("JetStream is off"));
    let small = Setup {
        max_payload: "1MB",
        ..Setup::default()
    };
    let Some(servers) = NatsServers::start_with(1, small) else {
        return;
    };
    let small = reason(connect(servers.url(), "small").await.init(&[], 1).await);
    assert!(small.contains("`max_payload: 8MB`"), "{small}");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_addresses_are_validated() {
    let nowhere = "nats://127.0.0.1:1".to_owned();
    for name in ["", "a.b", "a b", "a*", ">", "é"] {
        let refused = reason(NatsBus::connect(options(nowhere.clone(), name)).await);
        assert!(refused.contains("letters, digits, - and _"), "{refused}");
    }
    let refused = reason(NatsBus::connect(options("http://x".to_owned(), "a")).await);
    assert!(refused.contains("URL"), "{refused}");
    let refused = reason(NatsBus::connect(options(nowhere, "a")).await);
    assert!(refused.contains("no connection to NATS"), "{refused}");
}
