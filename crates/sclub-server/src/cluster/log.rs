//! The log of a partition: a stream of the bus.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;

use super::bus::{Bus, BusError};
use super::wait::wait;
use crate::env::Env;
use crate::locks::lock;
use crate::store::{AppendError, Batches, Follow, Log, StoreError, Written};

/// The milliseconds for which an append is repeated.
const APPEND_TIMEOUT: u64 = 6_000;
/// The milliseconds between two attempts.
const RETRY: u64 = 50;
/// The limits of the batches that are kept in memory, for the journal.
const MAX_RECENT_BATCHES: usize = 8_192;
const MAX_RECENT_BYTES: usize = 8 << 20;

/// A log in a stream. The number of a batch is its sequence.
///
/// An append names the sequence that it expects to be the last, so of two writers one is refused. It also has an id,
/// so that it can be repeated if its outcome is not known.
pub struct StreamLog {
    bus: Arc<dyn Bus>,
    env: Env,
    stream: String,
    /// Begins the ids of this object's appends.
    life: u64,
    appends: AtomicU64,
    recent: Mutex<Recent>,
}

/// The last batches that were applied.
#[derive(Default)]
struct Recent {
    batches: VecDeque<(u64, Bytes)>,
    bytes: usize,
}

impl fmt::Debug for StreamLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamLog({})", self.stream)
    }
}

impl StreamLog {
    /// The log in a stream.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new(bus: Arc<dyn Bus>, env: Env, stream: String) -> std::io::Result<Self> {
        let mut life = [0; 8];
        env.random.fill(&mut life)?;
        Ok(Self {
            bus,
            env,
            stream,
            life: u64::from_le_bytes(life),
            appends: AtomicU64::new(0),
            recent: Mutex::default(),
        })
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        lock(&self.recent)
    }

    /// The sequence of the last message, as the leader of the stream knows it.
    ///
    /// # Errors
    /// If it cannot be asked.
    pub async fn last(&self) -> Result<u64, BusError> {
        Ok(self.bus.bounds(&self.stream).await?.1)
    }

    async fn append_once_known(&self, expected_last: u64, batch: Bytes) -> Result<(), AppendError> {
        let failed = |error: &BusError| StoreError::Write {
            file: self.stream.clone().into(),
            reason: error.to_string(),
        };
        if batch.is_empty() {
            return match self.bus.bounds(&self.stream).await {
                Ok((_, last)) if last == expected_last => Ok(()),
                Ok((_, last)) => Err(AppendError::Conflict { last }),
                Err(error) => Err(AppendError::NotWritten(failed(&error))),
            };
        }
        let number = self.appends.fetch_add(1, Ordering::Relaxed);
        let id = format!("{:x}-{number:x}", self.life);
        let clock = &self.env.clock;
        let begun = clock.monotonic();
        // True if an attempt may have been, or may still be, executed.
        let mut is_sent = false;
        loop {
            let appended = self
                .bus
                .append(&self.stream, &id, expected_last, batch.clone())
                .await;
            let error = match appended {
                Ok(_) => return Ok(()),
                Err(BusError::Conflict) if !is_sent => {
                    let last = expected_last + 1;
                    return Err(AppendError::Conflict { last });
                }
                Err(BusError::TooLarge) if !is_sent => return Err(AppendError::TooLarge),
                Err(error) => error,
            };
            is_sent |= error != BusError::NoResponders;
            let is_late = clock.monotonic().saturating_sub(begun) >= APPEND_TIMEOUT;
            if is_late || matches!(error, BusError::Conflict | BusError::TooLarge) {
                // After an attempt of unknown outcome, the conflict may be with that attempt.
                let error = failed(&error);
                return Err(match is_sent {
                    true => AppendError::Unknown(error),
                    false => AppendError::NotWritten(error),
                });
            }
            clock.sleep(RETRY).await;
        }
    }
}

impl Log for StreamLog {
    fn append(&self, expected_last: u64, batch: Bytes) -> Written<'_, AppendError> {
        Box::pin(self.append_once_known(expected_last, batch))
    }

    fn drop_before(&self, number: u64) -> Written<'_, StoreError> {
        Box::pin(async move {
            let purged = self.bus.purge(&self.stream, number).await;
            purged.map_err(|error| unwritable(&self.stream, &error))
        })
    }

    fn read(&self, after: u64) -> Result<Batches, StoreError> {
        let recent = self.recent();
        if recent
            .batches
            .front()
            .is_some_and(|(first, _)| *first <= after + 1)
        {
            let batches = recent
                .batches
                .iter()
                .skip_while(|(number, _)| *number <= after);
            let batches: Vec<(u64, Bytes)> = batches.cloned().collect();
            let batches = batches.into_iter();
            return Ok(Box::new(
                batches.map(|(number, bytes)| Ok((number, bytes.to_vec()))),
            ));
        }
        drop(recent);
        let unreadable = |error: &BusError| unreadable(&self.stream, error);
        let (first, last) =
            wait(&*self.bus, self.bus.bounds(&self.stream)).map_err(|e| unreadable(&e))?;
        if after + 1 < first {
            return Err(StoreError::Refused(format!(
                "batch {} is no longer in the stream {}, which begins with batch {first}",
                after + 1,
                self.stream
            )));
        }
        if after >= last {
            return Ok(Box::new(std::iter::empty()));
        }
        let batches = wait(&*self.bus, self.bus.follow(&self.stream, after));
        let mut batches = batches.map_err(|error| unreadable(&error))?;
        let (bus, stream) = (Arc::clone(&self.bus), self.stream.clone());
        let mut next = after + 1;
        Ok(Box::new(std::iter::from_fn(move || {
            if next > last {
                return None;
            }
            let received = wait(&*bus, Box::pin(async { Ok(batches.recv().await) }));
            match received.ok().flatten() {
                Some(Ok((number, bytes))) => {
                    next = number + 1;
                    Some(Ok((number, bytes.to_vec())))
                }
                interrupted => {
                    next = u64::MAX;
                    let error = match interrupted {
                        Some(Err(error)) => error,
                        _ => BusError::Timeout,
                    };
                    Some(Err(self::unreadable(&stream, &error)))
                }
            }
        })))
    }

    fn first(&self) -> Result<u64, StoreError> {
        let bounds = wait(&*self.bus, self.bus.bounds(&self.stream));
        let bounds = bounds.map_err(|error| unreadable(&self.stream, &error))?;
        Ok(bounds.0)
    }

    fn closed(&self) -> Result<Option<Vec<(u64, u64)>>, StoreError> {
        Ok(None)
    }

    fn follow(&self, after: u64) -> Follow<'_> {
        self.bus.follow(&self.stream, after)
    }

    fn remember(&self, number: u64, batch: &Bytes) {
        let mut recent = self.recent();
        let follows = recent
            .batches
            .back()
            .is_none_or(|(last, _)| last + 1 == number);
        if !follows {
            *recent = Recent::default();
        }
        recent.bytes += batch.len();
        recent.batches.push_back((number, batch.clone()));
        while recent.batches.len() > MAX_RECENT_BATCHES || recent.bytes > MAX_RECENT_BYTES {
            let Some((_, dropped)) = recent.batches.pop_front() else {
                break;
            };
            recent.bytes -= dropped.len();
        }
    }
}

fn unreadable(stream: &str, error: &BusError) -> StoreError {
    StoreError::Read {
        file: stream.into(),
        reason: error.to_string(),
    }
}

fn unwritable(stream: &str, error: &BusError) -> StoreError {
    StoreError::Write {
        file: stream.into(),
        reason: error.to_string(),
    }
}
