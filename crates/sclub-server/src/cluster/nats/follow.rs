//! A stream as a channel: in order and without gaps, also when servers fail.

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::sleep;

use super::super::bus::{BusError, Message};
use super::CHANNEL;
use super::link::{Link, RETRY};
use super::tail::{Next, Tail};

/// The number of attempts to read a message that the leader says is there.
const MAX_GAPS: u32 = 20;

/// Starts to follow; see [`super::Bus::follow`]. `live` is the subject of new messages.
pub(super) async fn follow(
    link: Link,
    stream: String,
    live: String,
    after: u64,
) -> Result<mpsc::Receiver<Result<Message, BusError>>, BusError> {
    let (sender, receiver) = mpsc::channel(CHANNEL);
    let mut follower = Follower {
        link,
        stream,
        live,
        last: after,
        gaps: 0,
        sender,
    };
    follower.check().await?;
    let tail = follower.open().await?;
    tokio::spawn(async move {
        if let Err(error) = follower.run(tail).await {
            let _ = follower.sender.send(Err(error)).await;
        }
    });
    Ok(receiver)
}

struct Follower {
    link: Link,
    stream: String,
    live: String,
    /// The sequence of the last message that was handed on.
    last: u64,
    /// The number of gaps since then.
    gaps: u32,
    sender: mpsc::Sender<Result<Message, BusError>>,
}

impl Follower {
    /// Hands on messages until the receiver is gone.
    async fn run(&mut self, mut tail: Tail) -> Result<(), BusError> {
        loop {
            let next = tokio::select! {
                next = tail.next() => next,
                () = self.sender.closed() => return Ok(()),
            };
            match next {
                Next::CaughtUp => {}
                Next::Message(message) if message.sequence == self.last + 1 => {
                    self.last += 1;
                    self.gaps = 0;
                    if !self.hand_on((self.last, message.bytes), &mut tail).await {
                        return Ok(());
                    }
                }
                Next::Message(_) => {
                    self.gaps += 1;
                    self.check().await?;
                    sleep(RETRY).await;
                    tail = self.open().await?;
                }
                Next::Unreachable => self.check().await?,
            }
        }
    }

    /// Returns false if the receiver is gone.
    async fn hand_on(&self, message: Message, tail: &mut Tail) -> bool {
        let message = match self.sender.try_send(Ok(message)) {
            Ok(()) => return true,
            Err(TrySendError::Closed(_)) => return false,
            Err(TrySendError::Full(message)) => message,
        };
        // New messages do not pile up while the receiver is slow.
        loop {
            tokio::select! {
                permit = self.sender.reserve() => {
                    let is_open = permit.is_ok();
                    if let Ok(permit) = permit {
                        permit.send(message);
                    }
                    return is_open;
                }
                () = tail.discard() => {}
            }
        }
    }

    async fn open(&self) -> Result<Tail, BusError> {
        let live = Some(self.live.clone());
        Tail::open(&self.link, &self.stream, self.last, live, None).await
    }

    /// Fails if the stream does not exist, or the next message has been purged. Only the leader knows; if there is
    /// none at the moment, nothing is known.
    async fn check(&self) -> Result<(), BusError> {
        let next = self.last + 1;
        let is_gone = match self.link.bounds(&self.stream).await {
            Ok((first, _)) => next < first || self.gaps > MAX_GAPS,
            Err(error @ BusError::Missing(_)) => return Err(error),
            Err(_) => false,
        };
        match is_gone {
            true => Err(BusError::Missing(format!(
                "message {next} of the stream {}",
                self.stream
            ))),
            false => Ok(()),
        }
    }
}
