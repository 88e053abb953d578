//! Reads the messages of a stream from a sequence on, and those that are written later.

use std::time::Duration;

use async_nats::{HeaderMap, Message, Subject, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use super::super::bus::BusError;
use super::link::Link;

/// The time between signs of life of an idle consumer.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// A consumer without a sign of life for this time is given up.
const MAX_SILENCE: Duration = Duration::from_millis(1_500);
/// The server removes a consumer that has no reader for this time.
const MAX_UNUSED: Duration = Duration::from_secs(5);

/// The first message that is read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Start {
    /// The first one after a sequence.
    After(u64),
    /// The last one of each subject, then all later ones.
    LastPerSubject,
}

/// A message of a stream.
#[derive(Debug)]
pub(super) struct Delivered {
    pub sequence: u64,
    /// The number of messages that are still to come. 0: the reader has caught up.
    pub pending: u64,
    pub subject: Subject,
    pub headers: Option<HeaderMap>,
    pub bytes: Bytes,
}

#[derive(Debug)]
pub(super) enum Next {
    Message(Delivered),
    /// There are no more messages at the moment.
    Idle,
    /// Messages may have been lost: the stream must be read again, after the last message.
    Broken,
}

/// A reader of a stream, by a consumer that exists as long as this.
pub(super) struct Tail {
    link: Link,
    stream: String,
    consumer: String,
    messages: Subscriber,
    connections: watch::Receiver<u64>,
    /// The number of messages so far, as the consumer counts them.
    received: u64,
}

#[derive(Debug, Deserialize)]
struct ConsumerInfo {
    #[serde(default)]
    num_pending: u64,
}

impl Tail {
    /// Starts to read. Returns the number of messages that are there already, too.
    pub async fn open(
        link: &Link,
        stream: &str,
        filter: Option<&str>,
        start: Start,
    ) -> Result<(Tail, u64), BusError> {
        let connections = link.connections();
        let consumer = link.unique();
        let inbox = link.client().new_inbox();
        let messages = link.subscribe(inbox.clone()).await?;
        let nanos = |time: Duration| time.as_nanos() as u64;
        let mut config = json!({
            "name": consumer,
            "deliver_subject": inbox,
            "ack_policy": "none",
            "max_deliver": 1,
            "replay_policy": "instant",
            "flow_control": true,
            "idle_heartbeat": nanos(HEARTBEAT),
            "inactive_threshold": nanos(MAX_UNUSED),
            "mem_storage": true,
            "num_replicas": 1,
        });
        match start {
            Start::After(sequence) => {
                config["deliver_policy"] = "by_start_sequence".into();
                config["opt_start_seq"] = (sequence + 1).into();
            }
            Start::LastPerSubject => {
                config["deliver_policy"] = "last_per_subject".into();
            }
        }
        if let Some(filter) = filter {
            config["filter_subject"] = filter.into();
        }
        let subject = format!("CONSUMER.CREATE.{stream}.{consumer}");
        let body = json!({ "stream_name": stream, "config": config, "action": "create" });
        let info: ConsumerInfo = link
            .api(&subject, &body)
            .await?
            .map_err(|error| error.of(stream))?;
        let tail = Tail {
            link: link.clone(),
            stream: stream.to_owned(),
            consumer,
            messages,
            connections,
            received: 0,
        };
        Ok((tail, info.num_pending))
    }

    /// The next message. It may be called again if it was dropped while it waited.
    pub async fn next(&mut self) -> Next {
        loop {
            let message = tokio::select! {
                message = timeout(MAX_SILENCE, self.messages.next()) => message,
                // What was sent meanwhile is lost.
                _ = self.connections.changed() => return Next::Broken,
            };
            let Ok(Some(message)) = message else {
                return Next::Broken;
            };
            if let Some(status) = message.status {
                if status.as_u16() != 100 {
                    return Next::Broken;
                }
                if let Some(next) = self.control(message) {
                    return next;
                }
                continue;
            }
            let Some(position) = message.reply.as_deref().and_then(Position::parse) else {
                return Next::Broken;
            };
            if position.consumer != self.received + 1 {
                return Next::Broken;
            }
            self.received += 1;
            return Next::Message(Delivered {
                sequence: position.stream,
                pending: position.pending,
                subject: message.subject,
                headers: message.headers,
                bytes: message.payload,
            });
        }
    }

    /// A message of the consumer itself: a sign of life, or a question if messages are being read.
    fn control(&self, message: Message) -> Option<Next> {
        let header = |name| Some(message.headers.as_ref()?.get(name)?.as_str());
        let reply = match header("Nats-Consumer-Stalled") {
            Some(stalled) => Some(Subject::from(stalled)),
            None => message.reply.clone(),
        };
        if let Some(reply) = reply {
            let link = self.link.clone();
            tokio::spawn(async move { link.send(reply, Bytes::new()).await });
        }
        let last = header("Nats-Last-Consumer")?.parse::<u64>().ok()?;
        match last == self.received {
            true => Some(Next::Idle),
            false => Some(Next::Broken),
        }
    }
}

impl Drop for Tail {
    /// Removes the consumer. If that fails, the server does it later.
    fn drop(&mut self) {
        let link = self.link.clone();
        let subject = format!("CONSUMER.DELETE.{}.{}", self.stream, self.consumer);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { link.api::<Value>(&subject, &json!({})).await });
        }
    }
}

/// The place of a message: its sequence in the stream and for the consumer, and the number of messages after it.
#[derive(Debug, PartialEq, Eq)]
struct Position {
    stream: u64,
    consumer: u64,
    pending: u64,
}

impl Position {
    /// Reads `$JS.ACK.[domain.account.]stream.consumer.deliveries.<stream>.<consumer>.time.<pending>[.more]`.
    fn parse(reply: &str) -> Option<Position> {
        let tokens: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
        let after_names = match tokens.len() {
            7 => 2,
            9.. => 4,
            _ => return None,
        };
        let number = |at: usize| tokens.get(after_names + at)?.parse().ok();
        Some(Position {
            stream: number(1)?,
            consumer: number(2)?,
            pending: number(4)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_position_are_read() {
        let expected = Some(Position {
            stream: 20,
            consumer: 3,
            pending: 5,
        });
        assert_eq!(Position::parse("$JS.ACK.S.c.1.20.3.1700000000.5"), expected);
        let with_domain = "$JS.ACK.hub.ACCOUNT.S.c.1.20.3.1700000000.5.x";
        assert_eq!(Position::parse(with_domain), expected);
        assert_eq!(Position::parse("_INBOX.1"), None);
    }
}
