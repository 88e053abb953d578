//! The bus on real NATS servers: three processes in a cluster, every write synced.

#[path = "../common/nats.rs"]
mod servers;

mod faults;
mod keys;
mod latency;
mod objects;
mod requests;
mod setup;
mod streams;
mod threads;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sclub_server::cluster::bus::{Bus, BusError, Message};
use sclub_server::cluster::nats::{NatsBus, NatsOptions};
use servers::NatsServers;
use tokio::sync::mpsc;

/// More than any step needs.
const PATIENCE: Duration = Duration::from_secs(15);

fn options(url: String, cluster: &str) -> NatsOptions {
    NatsOptions {
        url,
        cluster: cluster.to_owned(),
        creds: None,
        ca: None,
    }
}

/// Connects without making the cluster.
async fn connect(url: String, cluster: &str) -> Arc<NatsBus> {
    NatsBus::connect(options(url, cluster)).await.unwrap()
}

/// A new cluster with a stream `s`. The name is the test's own.
async fn new_cluster(servers: &NatsServers, cluster: &str) -> Arc<NatsBus> {
    let bus = connect(servers.url(), cluster).await;
    let replicas = servers.count();
    bus.init(&["s".to_owned()], replicas).await.unwrap();
    bus
}

type Followed = mpsc::Receiver<Result<Message, BusError>>;

async fn next(messages: &mut Followed) -> Result<Message, BusError> {
    let message = tokio::time::timeout(PATIENCE, messages.recv()).await;
    message.expect("no message").expect("the end")
}

/// Appends a message, again until the outcome is known. `last` is the last sequence.
async fn append(bus: &NatsBus, last: u64, text: &str) -> u64 {
    append_bytes(bus, last, text, Bytes::from(text.to_owned())).await
}

async fn append_bytes(bus: &NatsBus, last: u64, id: &str, message: Bytes) -> u64 {
    let start = std::time::Instant::now();
    loop {
        match bus.append("s", id, last, message.clone()).await {
            Ok(sequence) => return sequence,
            Err(BusError::Timeout | BusError::NoResponders) if start.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{id}: {error}"),
        }
    }
}
