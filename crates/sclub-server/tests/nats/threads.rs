//! Calls from threads that have no part in the connection.

use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use sclub_server::cluster::bus::{Bucket, Bus, BusError};
use sclub_server::cluster::nats::NatsBus;

use crate::{NatsServers, new_cluster};

#[test]
fn a_runtime_without_timers_and_sockets_is_enough_for_calls() {
    let Some(servers) = NatsServers::shared() else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let bus = runtime.block_on(new_cluster(&servers, "threads"));
    let work = |bus: Arc<NatsBus>, number: u64| async move {
        let key = format!("k{number}");
        let one = Bytes::from_static(b"1");
        let changed = bus.changed(Bucket::Members);
        let revision = bus
            .create(Bucket::Members, &key, one.clone())
            .await
            .unwrap();
        changed.await;
        let entry = bus.get(Bucket::Members, &key).await.unwrap().unwrap();
        assert_eq!(entry.revision, revision);
        bus.delete(Bucket::Members, &key, Some(revision))
            .await
            .unwrap();

        let subject = format!("n{number}");
        let mut requests = bus.listen(&subject).await.unwrap();
        let answering = async {
            let request = requests.recv().await.unwrap();
            request.reply.send(request.bytes);
        };
        let (answer, ()) = tokio::join!(bus.request(&subject, one.clone(), 5_000), answering);
        assert_eq!(answer, Ok(one));
        let silent = bus.request(&subject, Bytes::new(), 50).await;
        assert_eq!(silent, Err(BusError::Timeout));
    };
    let threads: Vec<_> = (0..3)
        .map(|number| {
            let bus = Arc::clone(&bus);
            thread::spawn(move || {
                plain().block_on(work(bus, number));
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    plain().block_on(async {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        drop(sender);
        bus.upload("o", receiver).await.unwrap();
        assert_eq!(bus.append("s", "a", 0, Bytes::new()).await, Ok(1));
        let mut messages = bus.follow("s", 0).await.unwrap();
        // Without timers: the message must come.
        assert_eq!(messages.recv().await, Some(Ok((1, Bytes::new()))));
    });
}

fn plain() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
}
