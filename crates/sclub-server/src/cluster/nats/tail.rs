//! Reads the messages of a stream after a sequence, and those that are written later.
//!
//! The leader of a stream sends each message that it has stored to a subject, too. Old messages, and those that were
//! lost on the way, are asked for: every replica answers. So nothing has to be made for a reader, and nothing has to
//! be made again when a server dies, which would take a leader of all of JetStream.

use std::collections::VecDeque;
use std::time::Duration;

use async_nats::{HeaderMap, Message, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::super::bus::BusError;
use super::link::{Link, RETRY};

/// The time between two questions for new messages if none come: the last one may have been lost. It is shorter at
/// first, because servers tell each other of a new reader while messages are sent.
const POLL: Duration = Duration::from_millis(500);
const FIRST_POLL: Duration = Duration::from_millis(30);
/// The time for the next part of an answer.
const ANSWER: Duration = Duration::from_millis(500);
/// The time until a replica is asked again that is known to be behind, and the largest number of such questions.
const BEHIND: Duration = Duration::from_millis(5);
const MAX_BEHIND: u32 = 100;
/// The limits of an answer. At least one message comes.
const MAX_MESSAGES: u64 = 1000;
const MAX_BYTES: u64 = 4 << 20;

/// A message of a stream.
#[derive(Debug)]
pub(super) struct Delivered {
    pub sequence: u64,
    pub subject: String,
    pub headers: HeaderMap,
    pub bytes: Bytes,
}

#[derive(Debug)]
pub(super) enum Next {
    /// The next message. If there are none between it and the one before, they have been removed.
    Message(Delivered),
    /// There are no more messages at the moment.
    CaughtUp,
    /// No server has the stream, or none answers.
    Unreachable,
}

/// A reader of a stream.
pub(super) struct Tail {
    link: Link,
    stream: String,
    /// Only messages of this subject are read.
    filter: Option<String>,
    /// New messages. None if only those are read that are there.
    live: Option<Subscriber>,
    answers: Subscriber,
    /// The subject of an answer, without the number of the question.
    inbox: String,
    questions: u64,
    connections: watch::Receiver<u64>,
    /// The sequence of the last message.
    last: u64,
    /// The largest sequence that is known to exist.
    known: u64,
    /// True if there may be messages that have to be asked for.
    is_behind: bool,
    /// The number of questions since the last message.
    unanswered: u32,
    fetched: VecDeque<Delivered>,
    poll: Duration,
}

impl Tail {
    /// Reads after a sequence. `live` is the subject of new messages.
    pub async fn open(
        link: &Link,
        stream: &str,
        after: u64,
        live: Option<String>,
        filter: Option<String>,
    ) -> Result<Tail, BusError> {
        let live = match live {
            Some(subject) => Some(link.subscribe(subject).await?),
            None => None,
        };
        let inbox = link.client().new_inbox();
        let answers = link.subscribe(format!("{inbox}.*")).await?;
        Ok(Tail {
            link: link.clone(),
            stream: stream.to_owned(),
            filter,
            live,
            answers,
            inbox,
            questions: 0,
            connections: link.connections(),
            last: after,
            known: after,
            is_behind: true,
            unanswered: 0,
            fetched: VecDeque::new(),
            poll: FIRST_POLL,
        })
    }

    /// The next message.
    pub async fn next(&mut self) -> Next {
        loop {
            if let Some(message) = self.fetched.pop_front() {
                self.last = message.sequence;
                return Next::Message(message);
            }
            if self.is_behind {
                let fetched = self.fetch().await;
                if !self.fetched.is_empty() {
                    self.unanswered = 0;
                    continue;
                }
                match fetched {
                    // The replica may be behind. Or the message has been removed again.
                    Ok(()) if self.known > self.last && self.unanswered < MAX_BEHIND => {
                        self.unanswered += 1;
                        sleep(BEHIND).await;
                    }
                    Ok(()) => {
                        self.known = self.last;
                        self.is_behind = false;
                        return Next::CaughtUp;
                    }
                    Err(_) => {
                        sleep(RETRY).await;
                        return Next::Unreachable;
                    }
                }
                continue;
            }
            if let Some(message) = self.wait().await {
                return Next::Message(message);
            }
        }
    }

    /// Drops a new message: it will be asked for. For readers that have no place at the moment.
    pub async fn discard(&mut self) {
        match &mut self.live {
            Some(live) => drop(live.next().await),
            None => std::future::pending().await,
        }
        self.is_behind = true;
    }

    /// Waits for a new message that is the next one. None if messages have to be asked for.
    async fn wait(&mut self) -> Option<Delivered> {
        let Some(live) = &mut self.live else {
            sleep(self.poll).await;
            self.poll = POLL.min(2 * self.poll);
            self.is_behind = true;
            return None;
        };
        loop {
            let message = tokio::select! {
                message = live.next() => message.and_then(delivered),
                // What was sent meanwhile is lost.
                _ = self.connections.changed() => {
                    self.poll = FIRST_POLL;
                    None
                }
                () = sleep(self.poll) => {
                    self.poll = POLL.min(2 * self.poll);
                    None
                }
            };
            match message {
                Some(message) if message.sequence <= self.last => continue,
                Some(message) if message.sequence == self.last + 1 => {
                    self.last = message.sequence;
                    return Some(message);
                }
                Some(message) => self.known = self.known.max(message.sequence),
                None => {}
            }
            self.is_behind = true;
            return None;
        }
    }

    /// Asks for the messages after the last one. There may be more than those that it gets.
    async fn fetch(&mut self) -> Result<(), BusError> {
        self.connections.mark_unchanged();
        self.questions += 1;
        let subject = format!("$JS.API.DIRECT.GET.{}", self.stream);
        let reply = format!("{}.{}", self.inbox, self.questions);
        let mut question = json!({
            "seq": self.last + 1,
            "batch": MAX_MESSAGES,
            "max_bytes": MAX_BYTES,
        });
        if let Some(filter) = &self.filter {
            question["next_by_subj"] = filter.as_str().into();
        }
        let question = Bytes::from(question.to_string());
        let ask = self.link.ask_for_many(subject, reply.clone(), question);
        timeout(ANSWER, ask)
            .await
            .map_err(|_| BusError::Timeout)??;
        let mut previous = 0;
        loop {
            let answer = tokio::select! {
                answer = timeout(ANSWER, self.answers.next()) => answer,
                _ = self.connections.changed() => return Err(BusError::Timeout),
            };
            let Ok(Some(answer)) = answer else {
                return Err(BusError::Timeout);
            };
            if answer.subject.as_str() != reply {
                continue;
            }
            match answer.status.map(|status| status.as_u16()) {
                None => {}
                Some(204 | 404) => return Ok(()),
                Some(503) => return Err(BusError::NoResponders),
                Some(status) => return Err(BusError::Failed(format!("status {status}"))),
            }
            if number(&answer.headers, "Nats-Last-Sequence") != Some(previous) {
                return Err(BusError::Failed("a part of an answer was lost".to_owned()));
            }
            let Some(message) = delivered(answer) else {
                return Err(BusError::Failed("a message without a sequence".to_owned()));
            };
            previous = message.sequence;
            self.fetched.push_back(message);
        }
    }
}

/// A message of a stream with its place, which is in its headers.
fn delivered(message: Message) -> Option<Delivered> {
    let sequence = number(&message.headers, "Nats-Sequence")?;
    let headers = message.headers?;
    Some(Delivered {
        sequence,
        subject: headers.get("Nats-Subject")?.as_str().to_owned(),
        headers,
        bytes: message.payload,
    })
}

/// The last one, because the message may have had headers of its own.
fn number(headers: &Option<HeaderMap>, name: &'static str) -> Option<u64> {
    headers.as_ref()?.get_last(name)?.as_str().parse().ok()
}
