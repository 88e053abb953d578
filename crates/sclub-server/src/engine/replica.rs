//! An engine whose log is replicated: one node writes it, and others follow.
//!
//! A node that follows applies the batches that the writer appends. It can take over at once: the state is the
//! same. If two nodes write, the log refuses one of them, which then follows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLockReadGuard};

use sclub::{Progress, Workers};
use tokio::sync::watch;

use super::fold::{self, FoldError};
use super::owner::{Command, Done};
use super::{Engine, ItemCounts, OpenError, Refusal, Shared, Threads};
use crate::decision::first_number;
use crate::identity::Identity;
use crate::locks::{read, write};
use crate::meters::Meters;
use crate::settings::Settings;
use crate::state::{Catalogue, State};
use crate::store::{Epochs, Folder, Log, SnapshotStore};

/// The storage of an engine, and what it shares with others.
#[derive(Debug)]
pub struct Replica {
    /// A folder for the journal.
    pub folder: Folder,
    /// The log.
    pub log: Arc<dyn Log>,
    /// The snapshots.
    pub snapshots: Arc<dyn SnapshotStore>,
    /// The engine that has the catalogue, if this one has none.
    pub catalogue: Option<CatalogueSource>,
    /// The metrics.
    pub meters: Arc<Meters>,
    /// The counts of items.
    pub(crate) item_counts: Arc<ItemCounts>,
    /// The number of engines that share the memory for what users have seen.
    pub engines: usize,
}

/// The catalogue of an engine, for others.
#[derive(Debug, Clone)]
pub struct CatalogueSource(pub(super) Arc<Shared>);

/// The part of an engine in writing its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// It writes the log.
    Leading,
    /// It applies what another node writes.
    Following,
    /// It can do neither, for this reason. It must be opened again.
    Broken(String),
}

/// A time during which an engine writes the log and hands out decisions.
#[derive(Debug)]
pub(crate) struct Term {
    /// The epochs, of which the last one is this term's.
    pub epochs: Epochs,
    /// The random number that identifies the epoch.
    pub life: u64,
    /// The number of the next item shown.
    pub number: AtomicU64,
}

impl Term {
    /// The term of the last of these epochs.
    pub fn new(epochs: Epochs) -> Self {
        let epoch = epochs.current();
        Self {
            life: epoch.map_or(0, |epoch| epoch.life),
            number: AtomicU64::new(first_number(epoch.map_or(0, |epoch| epoch.number))),
            epochs,
        }
    }

    /// Returns true if neither this term nor an earlier one has made a decision.
    pub fn is_unused(&self) -> bool {
        self.epochs.is_first() && self.number.load(Ordering::Relaxed) == first_number(1)
    }
}

impl Shared {
    pub(super) fn is_leading(&self) -> bool {
        *self.role.borrow() == Role::Leading
    }

    /// The last term. It may be over, if another node writes now.
    pub(super) fn term(&self) -> Result<TermGuard<'_>, Refusal> {
        let term = read(&self.term);
        match *term {
            Some(_) => Ok(TermGuard(term)),
            None => Err(Refusal::Moved),
        }
    }

    /// Begins a term.
    pub(super) fn begin_term(&self, epochs: Epochs) {
        // The clock of this node may be ahead of that of the node whose decisions are to be accepted. All nodes know
        // the last stamp, and an owner writes one every few seconds.
        let clock = self.read().clock();
        let offset = clock.wrapping_sub(self.env().clock.monotonic());
        self.clock_offset.store(offset, Ordering::Relaxed);
        let mut term = write(&self.term);
        *term = Some(Term::new(epochs));
        drop(term);
        self.role.send_replace(Role::Leading);
    }

    /// The catalogue that goes with a state of this engine.
    pub(super) fn catalogue_of<'a>(&'a self, state: &'a State) -> CatalogueGuard<'a> {
        match &self.catalogue {
            None => CatalogueGuard::Own(state),
            Some(other) => CatalogueGuard::Other(other.read()),
        }
    }
}

/// A term while it is read.
pub(super) struct TermGuard<'a>(RwLockReadGuard<'a, Option<Term>>);

impl std::ops::Deref for TermGuard<'_> {
    type Target = Term;

    fn deref(&self) -> &Term {
        self.0.as_ref().expect("checked when it was made")
    }
}

/// A catalogue while it is read.
pub(super) enum CatalogueGuard<'a> {
    Own(&'a State),
    Other(RwLockReadGuard<'a, State>),
}

impl CatalogueGuard<'_> {
    /// The catalogue, once the number of features is known.
    pub fn get(&self) -> Option<&Catalogue> {
        match self {
            CatalogueGuard::Own(state) => state.catalogue(),
            CatalogueGuard::Other(state) => state.catalogue(),
        }
    }
}

impl Engine {
    /// Opens a replica, from its newest snapshot. It follows the log.
    ///
    /// # Errors
    /// If no snapshot can be read, or a thread cannot be started.
    pub fn follow(
        replica: Replica,
        identity: &Identity,
        settings: &Settings,
        workers: Box<dyn Workers + Send + Sync>,
    ) -> Result<Self, OpenError> {
        let sources = fold::Sources {
            log: &*replica.log,
            snapshots: &*replica.snapshots,
        };
        let state = fold::newest_snapshot(sources, identity)?;
        let first = replica.log.first()?;
        if state.position() + 1 < first {
            return Err(OpenError::Fold(FoldError::Batch {
                number: state.position() + 1,
                reason: format!("it was dropped; the log begins with batch {first}"),
            }));
        }
        Self::run(replica, state, settings, workers, None)
    }

    /// Writes the log from now on, once every batch up to `last` is applied. `epochs` are durable, and the last one
    /// is new.
    ///
    /// # Errors
    /// If the engine is broken or closed.
    pub async fn lead(&self, last: u64, epochs: Epochs) -> Result<(), Refusal> {
        self.command(Command::Lead { last, epochs }).await
    }

    /// Stops writing the log, after the writes in the queue, and follows it.
    ///
    /// # Errors
    /// If the engine is closed.
    pub async fn resign(&self) -> Result<(), Refusal> {
        self.command(Command::Resign).await
    }

    /// Logs a fit that was computed from all partitions. `position` is the batch up to which this partition was in
    /// it: if a user was forgotten since, it is dropped.
    ///
    /// # Errors
    /// If the engine does not lead.
    pub async fn log_fit(&self, fit: Vec<u8>, position: u64) -> Result<(), Refusal> {
        self.command(Command::LogFit { fit, position }).await
    }

    /// Reads the catalogue that goes with a state of this engine.
    pub fn with_catalogue<T>(
        &self,
        state: &State,
        read: impl FnOnce(Option<&Catalogue>) -> T,
    ) -> T {
        read(self.shared.catalogue_of(state).get())
    }

    /// The catalogue, for other engines.
    pub fn catalogue_source(&self) -> CatalogueSource {
        CatalogueSource(Arc::clone(&self.shared))
    }

    /// The state in short, for deciding whether a fit over all partitions is due, with the number of features of an
    /// item, and the last batch. `None` if the policy takes no part in such fits, or has learned nothing.
    pub fn progress(&self) -> Option<(Progress, usize, u64)> {
        let state = self.state();
        let progress = state.policy()?.as_partitioned_fit()?.progress();
        Some((progress, state.dim()?, state.position()))
    }

    /// Answers a question of a fit over all partitions. Returns the last batch that the answer is from. Learning
    /// waits while the data is copied, recommending does not.
    ///
    /// # Errors
    /// If the question is not one of the policy's.
    pub fn answer_question(&self, question: &[u8]) -> Result<(Vec<u8>, u64), String> {
        let (answering, position) = self.shared.state.read_long(|state| {
            let policy = state
                .policy()
                .and_then(|policy| policy.as_partitioned_fit());
            let policy = policy.ok_or("this partition has learned nothing")?;
            let answering = policy.prepare(question);
            Ok::<_, String>((answering.map_err(|e| e.to_string())?, state.position()))
        })?;
        let workers = Threads::new(self.shared.settings.fit_threads);
        Ok((answering.compute(&workers), position))
    }

    async fn command(&self, command: Command) -> Result<(), Refusal> {
        self.shared.ask(command).await.map(|_: Done| ())
    }

    /// The role now.
    pub fn role(&self) -> Role {
        self.shared.role.borrow().clone()
    }

    /// Returns true if this engine writes the log.
    pub fn is_leading(&self) -> bool {
        self.shared.is_leading()
    }

    /// Returns true if the engine has led, and so can hand out decisions.
    pub fn has_led(&self) -> bool {
        self.shared.term().is_ok()
    }

    /// A receiver of changes of the role.
    pub fn roles(&self) -> watch::Receiver<Role> {
        self.shared.role.subscribe()
    }
}
