//! Times of appends and requests. `cargo test -p sclub-server --test nats latency -- --ignored --nocapture`

use std::time::{Duration, Instant};

use bytes::Bytes;
use sclub_server::cluster::bus::Bus;

use crate::servers::Setup;
use crate::{NatsServers, connect, new_cluster};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn latency() {
    // On a disk, because it is about syncs.
    let folder = tempfile::tempdir().unwrap();
    let Some(servers) = NatsServers::start_in(folder, 3, Setup::default()) else {
        return;
    };
    let bus = new_cluster(&servers, "latency").await;
    let mut last = 0;
    for size in [300, 30_000] {
        let message = Bytes::from(vec![5; size]);
        let mut times = Vec::new();
        for _ in 0..1000 {
            let start = Instant::now();
            let id = format!("m{last}");
            last = bus.append("s", &id, last, message.clone()).await.unwrap();
            times.push(start.elapsed());
        }
        report(&format!("append of {size} bytes"), times);
    }
    let asks = connect(servers.url_of(0), "latency").await;
    let answers = connect(servers.url_of(1), "latency").await;
    let mut requests = answers.listen("n").await.unwrap();
    tokio::spawn(async move {
        while let Some(request) = requests.recv().await {
            request.reply.send(request.bytes);
        }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut times = Vec::new();
    for _ in 0..2000 {
        let start = Instant::now();
        let message = Bytes::from(vec![5; 300]);
        asks.request("n", message, 5_000).await.unwrap();
        times.push(start.elapsed());
    }
    report("request and answer through two servers", times);
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |share: usize| times[times.len() * share / 100];
    println!("{what}: p50 {:?}, p99 {:?}", at(50), at(99));
}
