//! The owner while another node writes the log: it applies what that node appends.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::{Command, Done, Owner, RETRY_INTERVAL, Reply, WriteRequest};
use crate::cluster::bus::BusError;
use crate::engine::{Refusal, Role};
use crate::event::Batch;
use crate::state::Effect;
use crate::store::Followed;

impl Owner {
    /// Applies what another node writes, until this one leads. Returns the request to stop, if one came.
    pub(super) async fn follow(&mut self) -> Option<Reply> {
        let after = self.shared.read().position();
        let is_broken = matches!(*self.shared.role.borrow(), Role::Broken(_));
        let mut batches = match is_broken {
            true => None,
            false => match self.shared.log.follow(after).await {
                Ok(batches) => Some(batches),
                Err(error) => {
                    tracing::debug!(%error, "the log cannot be followed at the moment");
                    let (sender, failed) = mpsc::channel(1);
                    let _ = sender.try_send(Err(error));
                    Some(failed)
                }
            },
        };
        loop {
            let position = self.shared.read().position();
            if let Some((_, epochs, reply)) = self.candidate.take_if(|(last, ..)| position >= *last)
            {
                self.shared.begin_term(epochs);
                let _ = reply.send(Ok(Done::Changed(0)));
                return None;
            }
            let followed = tokio::select! {
                biased;
                request = next_request(&mut self.held, &mut self.requests) => {
                    let WriteRequest { command, reply, .. } = request?;
                    match command {
                        Command::Stop => return Some(reply),
                        Command::Lead { last, epochs } => match &*self.shared.role.borrow() {
                            Role::Broken(reason) => {
                                let _ = reply.send(Err(Refusal::ReadOnly(reason.clone())));
                            }
                            _ => self.candidate = Some((last, epochs, reply)),
                        },
                        Command::Resign => {
                            self.candidate = None;
                            let _ = reply.send(Ok(Done::Changed(0)));
                        }
                        _ => drop(reply.send(Err(Refusal::Moved))),
                    }
                    continue;
                }
                followed = next_batch(&mut batches) => followed,
            };
            let applied = match followed {
                Some(Ok((number, ref bytes))) => self.apply_followed(number, bytes),
                // It was interrupted, or batches that are needed were dropped.
                Some(Err(ref error)) => match self.shared.log.first() {
                    Ok(first) if first > position + 1 => Err(error.to_string()),
                    _ => Ok(()),
                },
                None => Ok(()),
            };
            if let Err(reason) = applied {
                tracing::error!(reason, "the log cannot be followed");
                self.shared.role.send_replace(Role::Broken(reason));
                batches = None;
                continue;
            }
            if followed.is_none_or(|followed| followed.is_err()) {
                self.shared.env().clock.sleep(RETRY_INTERVAL).await;
                return None;
            }
        }
    }

    /// Applies a batch that another node has written, or this one by an append whose outcome was unknown: nobody else has taken note
    /// of that one.
    fn apply_followed(&mut self, number: u64, bytes: &Bytes) -> Result<(), String> {
        if number <= self.shared.read().position() {
            return Ok(());
        }
        let batch = Batch::decode(bytes).map_err(|error| error.to_string())?;
        let mut effect = Effect::default();
        let uncertain = self.uncertain.take_if(|(last, _)| *last <= number);
        let is_own = uncertain.is_some_and(|(own, sent)| own == number && sent == *bytes);
        let replaced = self.shared.replaced(&batch.events);
        // The journal reads what is applied.
        self.shared.log.remember(number, bytes);
        let replayed = self
            .shared
            .state
            .change(|state| state.replay(number, &batch, &mut effect));
        replayed.map_err(|rejected| format!("batch {number}: {}", rejected.reason))?;
        // The clock is that of the writer, also while it writes nothing.
        let now = self.shared.env().clock.monotonic();
        let offset = batch.stamp.clock.wrapping_sub(now);
        self.shared.clock_offset.store(offset, Ordering::Relaxed);
        if is_own {
            self.shared.meters.learned(&effect);
        }
        for event in &batch.events {
            match is_own {
                true => self.shared.note(event, batch.stamp.at, &replaced),
                false => self.shared.note_followed(event),
            }
        }
        self.applied(number, effect);
        Ok(())
    }
}

/// The request that was left for later, or the next one; `None` if there are no more.
async fn next_request(
    held: &mut Option<WriteRequest>,
    requests: &mut mpsc::Receiver<WriteRequest>,
) -> Option<WriteRequest> {
    match held.take() {
        Some(held) => Some(held),
        None => requests.recv().await,
    }
}

/// The next batch; `None` if the receiver has ended. Without one it waits for ever.
async fn next_batch(batches: &mut Option<Followed>) -> Option<Result<(u64, Bytes), BusError>> {
    match batches {
        Some(batches) => batches.recv().await,
        None => std::future::pending().await,
    }
}
