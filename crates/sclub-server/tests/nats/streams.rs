//! Streams: append, bounds, purge, follow.

use std::time::{Duration, Instant};

use bytes::Bytes;
use sclub_server::cluster::bus::{Bus, BusError};

use crate::{NatsServers, append, append_bytes, new_cluster, next};

#[tokio::test(flavor = "multi_thread")]
async fn an_append_needs_the_last_sequence_and_happens_once() {
    let Some(servers) = NatsServers::shared() else {
        return;
    };
    let bus = new_cluster(&servers, "append").await;
    let one = Bytes::from_static(b"one");
    assert_eq!(bus.append("s", "a", 0, one.clone()).await, Ok(1));
    // The same append again has the same result.
    assert_eq!(bus.append("s", "a", 0, one.clone()).await, Ok(1));
    assert_eq!(
        bus.append("s", "b", 0, one.clone()).await,
        Err(BusError::Conflict)
    );
    assert_eq!(
        bus.append("s", "b", 7, one.clone()).await,
        Err(BusError::Conflict)
    );
    assert_eq!(bus.append("s", "c", 1, one.clone()).await, Ok(2));
    assert_eq!(bus.append("s", "a", 2, one.clone()).await, Ok(1));
    assert_eq!(bus.bounds("s").await, Ok((1, 2)));
    let too_large = Bytes::from(vec![0; 8 << 20]);
    let refused = bus.append("s", "d", 2, too_large).await;
    assert_eq!(refused, Err(BusError::TooLarge));
    let missing = bus.append("unknown", "a", 0, one).await;
    assert_eq!(missing, Err(BusError::NoResponders));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_writers_one_wins_each_sequence() {
    let Some(servers) = NatsServers::shared() else {
        return;
    };
    let bus = new_cluster(&servers, "writers").await;
    let other = crate::connect(servers.url(), "writers").await;
    for last in 0..20 {
        let (a, b) = (format!("a{last}"), format!("b{last}"));
        let both = tokio::join!(
            bus.append("s", &a, last, Bytes::from(a.clone())),
            other.append("s", &b, last, Bytes::from(b.clone())),
        );
        match both {
            (Ok(sequence), Err(BusError::Conflict)) | (Err(BusError::Conflict), Ok(sequence)) => {
                assert_eq!(sequence, last + 1);
            }
            both => panic!("{both:?}"),
        }
    }
    assert_eq!(bus.bounds("s").await, Ok((1, 20)));
}

#[tokio::test(flavor = "multi_thread")]
async fn purged_messages_are_missing_and_sequences_go_on() {
    let Some(servers) = NatsServers::shared() else {
        return;
    };
    let bus = new_cluster(&servers, "purge").await;
    assert_eq!(bus.bounds("s").await, Ok((1, 0)));
    let gone = bus.bounds("unknown").await;
    assert!(matches!(gone, Err(BusError::Missing(_))), "{gone:?}");
    for last in 0..5 {
        append(&bus, last, &format!("m{}", last + 1)).await;
    }
    bus.purge("s", 0).await.unwrap();
    bus.purge("s", 1).await.unwrap();
    assert_eq!(bus.bounds("s").await, Ok((1, 5)));
    bus.purge("s", 4).await.unwrap();
    assert_eq!(bus.bounds("s").await, Ok((4, 5)));

    let purged = bus.follow("s", 2).await;
    assert!(matches!(purged, Err(BusError::Missing(_))), "{purged:?}");
    let mut messages = bus.follow("s", 3).await.unwrap();
    assert_eq!(next(&mut messages).await, Ok((4, Bytes::from("m4"))));

    // More than there is: everything goes, and the last sequence stays.
    bus.purge("s", 100).await.unwrap();
    assert_eq!(bus.bounds("s").await, Ok((6, 5)));
    append(&bus, 5, "m6").await;
    assert_eq!(bus.bounds("s").await, Ok((6, 6)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_gets_old_and_new_messages_in_a_few_milliseconds() {
    let Some(servers) = NatsServers::shared() else {
        return;
    };
    let bus = new_cluster(&servers, "follow").await;
    for last in 0..3 {
        append(&bus, last, &format!("m{}", last + 1)).await;
    }
    let mut messages = bus.follow("s", 1).await.unwrap();
    assert_eq!(next(&mut messages).await, Ok((2, Bytes::from("m2"))));
    assert_eq!(next(&mut messages).await, Ok((3, Bytes::from("m3"))));
    let mut times = Vec::new();
    for last in 3..103 {
        append(&bus, last, &format!("m{}", last + 1)).await;
        let appended = Instant::now();
        let expected = Bytes::from(format!("m{}", last + 1));
        assert_eq!(next(&mut messages).await, Ok((last + 1, expected)));
        times.push(appended.elapsed());
    }
    times.sort();
    // Without new messages that come by themselves it would be half a second for almost all. On a machine that is busy,
    // many may be late, but not most.
    let quick = times[times.len() / 4];
    assert!(quick < Duration::from_millis(200), "{quick:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_follower_gets_every_message() {
    let Some(servers) = NatsServers::shared() else {
        return;
    };
    let bus = new_cluster(&servers, "slow").await;
    let mut messages = bus.follow("s", 0).await.unwrap();
    let large = Bytes::from(vec![7; 1 << 20]);
    // More bytes than the servers send without an answer, and more messages than the channel has.
    for last in 0..40 {
        let sequence = append_bytes(&bus, last, &last.to_string(), large.clone()).await;
        assert_eq!(sequence, last + 1);
    }
    for expected in 1..=40 {
        let (sequence, bytes) = next(&mut messages).await.unwrap();
        assert_eq!((sequence, bytes.len()), (expected, large.len()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_of_messages_that_were_read_does_not_disturb_a_follower() {
    let Some(servers) = NatsServers::shared() else {
        return;
    };
    let bus = new_cluster(&servers, "read").await;
    let mut messages = bus.follow("s", 0).await.unwrap();
    for last in 0..10 {
        let text = format!("m{}", last + 1);
        append(&bus, last, &text).await;
        assert_eq!(next(&mut messages).await, Ok((last + 1, Bytes::from(text))));
        bus.purge("s", last + 2).await.unwrap();
    }
    assert_eq!(bus.bounds("s").await, Ok((11, 10)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_whose_next_message_was_purged_is_told() {
    let Some(servers) = NatsServers::shared() else {
        return;
    };
    let bus = new_cluster(&servers, "behind").await;
    let mut messages = bus.follow("s", 0).await.unwrap();
    // More than the channel holds, so the follower is behind.
    let last = 1_100;
    for sequence in 1..=last {
        append(&bus, sequence - 1, &format!("m{sequence}")).await;
    }
    bus.purge("s", last).await.unwrap();
    // A replica that still has them would answer with them.
    servers.wait_until_purged("SCLUB_behind_s", last);
    let mut expected = 1;
    let error = loop {
        match next(&mut messages).await {
            Ok((sequence, _)) => assert_eq!(sequence, expected),
            Err(error) => break error,
        }
        expected += 1;
    };
    assert!(matches!(error, BusError::Missing(_)), "{error}");
    assert!(expected < last, "{expected}");
    assert_eq!(messages.recv().await, None);
}
