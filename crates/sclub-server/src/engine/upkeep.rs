//! Snapshots and compaction.
//!
//! A snapshot is not taken of the state that serves: the previous snapshot is loaded, the batches after it
//! are applied, and the result is written. So learning never waits for a snapshot, at the price of memory for
//! a second state.
//!
//! Two snapshots are kept. Once both are durable, the log before the older one may be dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::{mpsc, oneshot};

use super::fold::{self, FoldError};
use super::journal::{Confirmed, ForgottenUsers, JournalRequest};
use super::owner::{Command, Done};
use super::{Refusal, Shared, answered};
use crate::settings::KeepLog;
use crate::store::StoreError;
use crate::traces;

/// The milliseconds between two checks whether a snapshot is due.
const TICK: u64 = 200;
/// The number of bytes of the log after which a snapshot is taken, however few events they are.
const MAX_BYTES_BETWEEN: u64 = 256 << 20;
/// The milliseconds of service in a day.
const DAY: u64 = 24 * 3600 * 1000;

/// The data that a compaction removes.
#[derive(Debug)]
pub enum Compaction {
    /// All data of forgotten users.
    Whole,
    /// As the owner of a partition: everything but the requests to forget in the journal. They stay until every node
    /// knows of them.
    Owner,
    /// As any node of a cluster, from the journal and the copies of snapshots. Every node knows that these users are
    /// forgotten.
    Journal(Confirmed),
}

/// The result of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Compacted {
    /// The number of the last event that was compacted.
    pub events: u64,
    /// The number of rows of forgotten users that were removed from the journal.
    pub dropped: u64,
    /// The size of the folder before.
    pub bytes_before: u64,
    /// The size of the folder after.
    pub bytes_after: u64,
}

/// A request to the task.
#[derive(Debug)]
pub(super) enum UpkeepRequest {
    Snapshot(oneshot::Sender<Result<u64, FoldError>>),
    Compact(
        Compaction,
        oneshot::Sender<Result<(Compacted, ForgottenUsers), FoldError>>,
    ),
    Stop(oneshot::Sender<()>),
}

/// The owner of the snapshots.
pub(super) struct Upkeep {
    shared: Arc<Shared>,
    journal: mpsc::Sender<JournalRequest>,
    /// The number of events at the last attempt to take a snapshot.
    since: u64,
}

impl Upkeep {
    pub fn new(shared: Arc<Shared>, journal: mpsc::Sender<JournalRequest>) -> Self {
        let since = shared.read().events();
        Self {
            shared,
            journal,
            since,
        }
    }

    /// Takes snapshots that are due and executes requests until it gets a request to stop.
    pub async fn run(mut self, mut requests: mpsc::Receiver<UpkeepRequest>) {
        super::fit::lower_priority();
        loop {
            let tick = self.shared.env().clock.sleep(TICK);
            let request = tokio::select! {
                biased;
                request = requests.recv() => match request {
                    Some(request) => Some(request),
                    None => return,
                },
                () = tick => None,
            };
            match request {
                None => self.tick().await,
                Some(UpkeepRequest::Snapshot(reply)) => {
                    let taken = self.snapshot().await;
                    let _ = reply.send(taken.map(|(_, events)| events));
                }
                Some(UpkeepRequest::Compact(compaction, reply)) => {
                    let done = self.compact(compaction).await;
                    let _ = reply.send(done);
                }
                Some(UpkeepRequest::Stop(reply)) => {
                    let _ = reply.send(());
                    return;
                }
            }
        }
    }

    /// Takes a snapshot if one is due.
    async fn tick(&mut self) {
        let shared = Arc::clone(&self.shared);
        let events = shared.read().events();
        let is_due = events.saturating_sub(self.since) >= shared.settings.snapshot_every.max(1)
            || shared.log_bytes.load(Ordering::Relaxed) >= MAX_BYTES_BETWEEN;
        if is_due
            && shared.is_leading()
            && let Err(error) = self.snapshot().await
        {
            tracing::warn!(%error, "cannot take a snapshot; no data is lost, the log is kept");
        }
        if !shared.is_replicated {
            shared.meters.upkeep();
        }
    }

    /// Takes a snapshot of everything up to now. Returns its last batch and event.
    async fn snapshot(&mut self) -> Result<(u64, u64), FoldError> {
        let taken = self.try_snapshot().await;
        if taken.is_err() {
            self.shared.meters.snapshot_failures.increment(1);
        }
        taken
    }

    async fn try_snapshot(&mut self) -> Result<(u64, u64), FoldError> {
        let shared = Arc::clone(&self.shared);
        // A snapshot that fails is retried after as many events.
        self.since = shared.read().events();
        shared.log_bytes.store(0, Ordering::Relaxed);
        let at = self.roll().await?;
        let snapshots = &shared.snapshots;
        let state = if at == 0 || snapshots.list().last() == Some(&at) {
            None
        } else {
            let begun = std::time::Instant::now();
            let mut span = traces::span("snapshot");
            let identity = shared.read().folder_identity().clone();
            let state = fold::newest(shared.sources(), &identity, at, &mut |_| {})?;
            snapshots.write(at, &mut |out| state.save(out))?;
            let took = begun.elapsed();
            shared.meters.snapshot(took);
            span.number("sclub.events", state.events());
            let milliseconds = took.as_millis() as u64;
            tracing::info!(event = state.events(), milliseconds, "snapshot taken");
            Some(state)
        };
        let events = match state {
            Some(state) => state.events(),
            // Nothing was written since the newest snapshot.
            None => shared.read().events(),
        };
        self.tidy().await?;
        Ok((at, events))
    }

    async fn roll(&self) -> Result<u64, FoldError> {
        match self.shared.ask(Command::Roll).await? {
            Done::Position(at) => Ok(at),
            _ => Err(Refusal::Closing.into()),
        }
    }

    /// Removes all snapshots but the newest two, and the part of the log that neither they, nor the journal,
    /// nor the setting `keep-log` need.
    async fn tidy(&self) -> Result<(), FoldError> {
        let snapshots = &self.shared.snapshots;
        let all = snapshots.list();
        let kept = &all[all.len().saturating_sub(2)..];
        snapshots.keep_only(kept)?;
        let [older, _] = kept else { return Ok(()) };
        let journaled = self.shared.journaled.load(Ordering::SeqCst);
        let needed = (*older).min(journaled) + 1;
        let number = self.keep_log(needed)?;
        self.drop_before(number).await
    }

    /// The batch before which the log may be dropped, at most `needed`.
    fn keep_log(&self, needed: u64) -> Result<u64, FoldError> {
        let log = &self.shared.log;
        let Some(mut files) = log.closed()? else {
            return Ok(needed);
        };
        files.retain(|&(until, _)| until <= needed);
        let newest_first = files.into_iter().rev();
        let dropped = match self.shared.settings.keep_log {
            KeepLog::Bytes(kept) => {
                let mut bytes = 0;
                newest_first
                    .map(|(until, length)| {
                        bytes += length;
                        (until, bytes > kept)
                    })
                    .find(|&(_, is_over)| is_over)
                    .map(|(until, _)| until)
            }
            KeepLog::Days(days) => {
                let horizon = self.shared.clock().checked_sub(days.saturating_mul(DAY));
                let Some(horizon) = horizon else { return Ok(0) };
                let mut dropped = None;
                for (until, _) in newest_first {
                    // All batches of the file are older than the first one of the next file.
                    let next = log.read(until - 1)?.next();
                    if let Some(next) = next
                        && fold::decode(next?)?.1.stamp.clock < horizon
                    {
                        dropped = Some(until);
                        break;
                    }
                }
                dropped
            }
        };
        Ok(dropped.unwrap_or(0))
    }

    async fn drop_before(&self, number: u64) -> Result<(), FoldError> {
        if number == 0 {
            return Ok(());
        }
        self.shared.ask(Command::DropBefore(number)).await?;
        Ok(())
    }

    /// Removes data of forgotten users. It compares event numbers, not times. Returns the users.
    async fn compact(
        &mut self,
        compaction: Compaction,
    ) -> Result<(Compacted, ForgottenUsers), FoldError> {
        let shared = Arc::clone(&self.shared);
        let bytes_before = shared.folder.bytes();
        // The journal must have read every request to forget before the log is dropped.
        let (reply, flushed) = oneshot::channel();
        let sent = self.journal.send(JournalRequest::Flush(reply)).await;
        answered::<_, StoreError>(sent.is_ok(), flushed).await?;
        let (events, confirmed) = match compaction {
            Compaction::Whole => (self.compact_log().await?, None),
            Compaction::Owner => (
                self.compact_log().await?,
                Some(Confirmed::new(shared.read().identity().user_hash(), [])),
            ),
            Compaction::Journal(confirmed) => {
                if !shared.is_leading() {
                    shared.snapshots.drop_copies()?;
                }
                (shared.read().events(), Some(confirmed))
            }
        };
        let (reply, forgotten) = oneshot::channel();
        let request = JournalRequest::Forget(confirmed, reply);
        let sent = self.journal.send(request).await;
        let (dropped, gone) = answered::<_, StoreError>(sent.is_ok(), forgotten).await?;
        let bytes_after = shared.folder.bytes();
        tracing::info!(
            event = events,
            dropped,
            bytes_before,
            bytes_after,
            "compacted"
        );
        let compacted = Compacted {
            events,
            dropped,
            bytes_before,
            bytes_after,
        };
        Ok((compacted, gone))
    }

    /// Removes everything before now from the snapshots and the log. Returns the last event.
    async fn compact_log(&mut self) -> Result<u64, FoldError> {
        let (at, events) = self.snapshot().await?;
        let (reply, flushed) = oneshot::channel();
        let sent = self.journal.send(JournalRequest::Flush(reply)).await;
        answered::<_, StoreError>(sent.is_ok(), flushed).await?;
        // Nothing else will have the data: it must be possible to read it.
        if at > 0 {
            let identity = self.shared.read().folder_identity().clone();
            fold::snapshot(self.shared.sources().snapshots, &identity, at)?;
        }
        self.shared.snapshots.keep_only(&[at])?;
        self.drop_before(at + 1).await?;
        Ok(events)
    }
}

/// Takes a snapshot of the state itself, at a shutdown, when nothing is learned any more.
pub(super) fn last_snapshot(shared: &Shared) {
    let state = shared.read();
    let at = state.position();
    let snapshots = &shared.snapshots;
    if at == 0 || snapshots.list().last() == Some(&at) {
        return;
    }
    let written = snapshots
        .write(at, &mut |out| state.save(out))
        .and_then(|()| {
            let all = snapshots.list();
            snapshots.keep_only(&all[all.len().saturating_sub(2)..])
        });
    if let Err(error) = written {
        tracing::warn!(%error, "cannot take a last snapshot; no data is lost, the log is kept");
    }
}
