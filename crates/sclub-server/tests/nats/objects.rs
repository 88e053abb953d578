//! Objects.

use bytes::Bytes;
use sclub_server::cluster::bus::{Bus, BusError};
use sclub_server::cluster::nats::NatsBus;
use tokio::sync::mpsc;

use crate::{NatsServers, connect, new_cluster};

/// Uploads the parts; the last may be an error.
async fn upload(
    bus: &NatsBus,
    name: &str,
    parts: Vec<Result<Bytes, BusError>>,
) -> Result<(), BusError> {
    let (sender, receiver) = mpsc::channel(1);
    let sending = async move {
        for part in parts {
            let _ = sender.send(part).await;
        }
    };
    tokio::join!(bus.upload(name, receiver), sending).0
}

async fn download(bus: &NatsBus, name: &str) -> Result<Vec<u8>, BusError> {
    let mut parts = bus.download(name).await?;
    let mut all = Vec::new();
    while let Some(part) = parts.recv().await {
        all.extend_from_slice(&part?);
    }
    Ok(all)
}

fn bytes(len: usize, factor: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * factor) >> 3) as u8).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_comes_back_as_it_was() {
    let Some(servers) = NatsServers::shared() else {
        return;
    };
    let bus = new_cluster(&servers, "objects").await;
    let other = connect(servers.url_of(1), "objects").await;
    let five_megabytes = bytes(5_000_000, 7);
    let parts = five_megabytes.chunks(70_001);
    let parts = parts.map(|part| Ok(Bytes::copy_from_slice(part))).collect();
    upload(&bus, "p/1/snapshot", parts).await.unwrap();
    assert!(download(&other, "p/1/snapshot").await.unwrap() == five_megabytes);
    upload(&bus, "p/2/empty", Vec::new()).await.unwrap();
    assert_eq!(download(&other, "p/2/empty").await, Ok(Vec::new()));
    let listed = ["p/1/snapshot", "p/2/empty"].map(str::to_owned);
    assert_eq!(other.objects("p/").await.unwrap(), listed);
    assert_eq!(other.objects("p/2").await.unwrap(), listed[1..]);

    // In place of the old one. An upload that fails changes nothing.
    let small = bytes(1000, 3);
    upload(&other, "p/1/snapshot", vec![Ok(small.clone().into())])
        .await
        .unwrap();
    let fault = BusError::Failed("no more".to_owned());
    let broken = vec![Ok(bytes(300_000, 1).into()), Err(fault.clone())];
    assert_eq!(
        upload(&other, "p/1/snapshot", broken.clone()).await,
        Err(fault.clone())
    );
    assert_eq!(upload(&other, "new", broken).await, Err(fault));
    assert_eq!(download(&bus, "p/1/snapshot").await.unwrap(), small);
    assert_eq!(bus.objects("").await.unwrap(), listed);

    bus.remove("p/1/snapshot").await.unwrap();
    bus.remove("p/1/snapshot").await.unwrap();
    let gone = download(&other, "p/1/snapshot").await;
    assert!(matches!(gone, Err(BusError::Missing(_))), "{gone:?}");
    assert_eq!(other.objects("").await.unwrap(), listed[1..]);
}
