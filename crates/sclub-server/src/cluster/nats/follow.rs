//! A stream as a channel: in order and without gaps, also when servers fail.

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::super::bus::{BusError, Message};
use super::CHANNEL;
use super::link::{Link, RETRY};
use super::tail::{Next, Start, Tail};

/// The number of attempts to read a message that the leader says is there.
const MAX_GAPS: u32 = 5;

/// Starts to follow; see [`super::Bus::follow`].
pub(super) async fn follow(
    link: Link,
    stream: String,
    after: u64,
) -> Result<mpsc::Receiver<Result<Message, BusError>>, BusError> {
    let (sender, receiver) = mpsc::channel(CHANNEL);
    let mut follower = Follower {
        link,
        stream,
        last: after,
        gaps: 0,
        sender,
    };
    let tail = follower.open().await?;
    tokio::spawn(async move { follower.run(tail).await });
    Ok(receiver)
}

struct Follower {
    link: Link,
    stream: String,
    /// The sequence of the last message that was handed on.
    last: u64,
    /// The number of gaps since then.
    gaps: u32,
    sender: mpsc::Sender<Result<Message, BusError>>,
}

impl Follower {
    async fn run(&mut self, mut tail: Tail) {
        loop {
            let next = tokio::select! {
                next = tail.next() => next,
                () = self.sender.closed() => return,
            };
            match next {
                Next::Idle => continue,
                Next::Message(message) if message.sequence <= self.last => continue,
                Next::Message(message) if message.sequence == self.last + 1 => {
                    if !self.hand_on(message.bytes).await {
                        return;
                    }
                    continue;
                }
                Next::Message(_) => self.gaps += 1,
                Next::Broken => {}
            }
            match self.reopen().await {
                Some(Ok(again)) => tail = again,
                Some(Err(error)) => {
                    let _ = self.sender.send(Err(error)).await;
                    return;
                }
                None => return,
            }
        }
    }

    /// Returns false if the receiver is gone.
    async fn hand_on(&mut self, bytes: Bytes) -> bool {
        self.last += 1;
        self.gaps = 0;
        self.sender.send(Ok((self.last, bytes))).await.is_ok()
    }

    /// Reads the stream after the last message, unless the next one has been purged.
    async fn open(&self) -> Result<Tail, BusError> {
        let (first, _) = self.link.bounds(&self.stream).await?;
        let next = self.last + 1;
        if next < first || self.gaps > MAX_GAPS {
            let missing = format!("message {next} of the stream {}", self.stream);
            return Err(BusError::Missing(missing));
        }
        let start = Start::After(self.last);
        let (tail, _) = Tail::open(&self.link, &self.stream, None, start).await?;
        Ok(tail)
    }

    /// Opens the stream again until it succeeds or cannot. None if the receiver is gone.
    async fn reopen(&self) -> Option<Result<Tail, BusError>> {
        loop {
            match self.open().await {
                Ok(tail) => return Some(Ok(tail)),
                Err(error @ BusError::Missing(_)) => return Some(Err(error)),
                Err(error) => {
                    tracing::debug!(%error, stream = self.stream, "the stream is read again");
                }
            }
            tokio::select! {
                () = sleep(RETRY) => {}
                () = self.sender.closed() => return None,
            }
        }
    }
}
