//! The engine: writes are validated, logged, then applied.
//!
//! It has four tasks. Each has a thread of its own in a real server, and only it changes its files:
//!
//! | task | does | owns |
//! |---|---|---|
//! | `owner` | admits writes, appends them to the log, applies them, answers | the log |
//! | `journal` | records items shown and their rewards, for analysis | the journal |
//! | `upkeep` | takes snapshots, compacts | the snapshots |
//! | `fit` | computes the policy's fits | no files |
//!
//! Recommendations read the state and wait for none of them.

mod backup;
mod candidates;
#[cfg(test)]
#[path = "../../tests/common/mod.rs"]
mod common;
mod equal;
mod experiment;
mod export;
mod feedback;
mod fit;
mod fold;
mod hanging;
mod import;
mod item_counts;
mod journal;
mod measure;
mod noted;
mod owner;
mod preview;
mod recommend;
mod replica;
mod seen;
mod state_lock;
mod unanswered;
mod upkeep;
mod verify;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};
use std::time::Duration;

use sclub::Workers;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

pub use crate::refusal::Refusal;
pub use backup::{Restored, backup_folder, read_backup, restore};
pub use experiment::ArmRequest;
pub use export::{export_folder, export_journal, forget_in_folder};
pub use feedback::{Feedback, Rewards};
pub use fit::Threads;
pub use fold::FoldError;
pub use import::{FolderContents, Import, ImportRow, ImportSummary, folder_contents, is_imported};
pub(crate) use item_counts::{COUNTS_FILE, ItemCounts};
pub use item_counts::{ItemCount, SavedCounts, SomeCounts};
pub use preview::{Preview, PreviewItem};
pub use recommend::{CandidateSet, MAX_INLINE_VALUES, RecommendQuery, Recommended, Rules};
pub use replica::{CatalogueSource, Replica, Role};
pub use seen::SeenDecision;
pub use upkeep::{Compacted, Compaction};
pub use verify::{Verified, hash_at, verify};

use crate::decision::Sealer;
use crate::env::Env;
use crate::event::DescribedItem;
use crate::identity::{Identity, Misfit};
use crate::locks::lock;
use crate::meters::Meters;
use crate::settings::{MAX_PROPENSITIES, Settings};
use crate::state::{Record, State};
use crate::store::{Folder, Log, SnapshotStore, StoreError};
use crate::traces;
use equal::EqualRewards;
pub(crate) use equal::RewardValues;
use fit::{Fits, Watch};
use hanging::Appending;
pub use journal::{Confirmed, ForgottenUsers};
use journal::{JournalRequest, Pending};
use owner::{Command, Done, Owner, WriteRequest};
use replica::Term;
use seen::Seen;
use state_lock::StateLock;
use unanswered::Unanswered;
use upkeep::UpkeepRequest;

/// The maximum number of writes in the queue.
const QUEUE: usize = 8192;

/// Milliseconds between two lines about the progress of reading the log.
const PROGRESS: u64 = 2_000;

/// The number of further draws for propensities if `explore-share` is set and `propensities` is not.
const DEFAULT_DRAWS: u32 = 100;
/// With many candidates there are fewer draws: the number of items that they score in all.
const DEFAULT_SCORES: usize = 20_000;
/// But at least so many.
const MIN_DRAWS: u32 = 10;

/// The maximum number of changes that a slow listener may lag behind.
const LISTENERS: usize = 1024;

/// Recommends and learns. Acknowledged writes are never lost.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    /// The only strong sender: the owner of the log ends when it is dropped.
    queue: mpsc::Sender<WriteRequest>,
    journal: mpsc::Sender<JournalRequest>,
    upkeep: mpsc::Sender<UpkeepRequest>,
}

/// The data that the engine's tasks share.
#[derive(Debug)]
pub(crate) struct Shared {
    state: StateLock,
    folder: Folder,
    log: Arc<dyn Log>,
    snapshots: Arc<dyn SnapshotStore>,
    /// True if the log is replicated over several nodes, one of which writes it.
    is_replicated: bool,
    role: watch::Sender<Role>,
    /// The engine whose catalogue is used, if it is not this one.
    catalogue: Option<Arc<Shared>>,
    settings: Settings,
    sealer: Sealer,
    /// True if the policy uses the ids of items.
    has_item_ids: bool,
    /// True if lists are learned as a whole.
    has_lists: bool,
    /// True if requests of the folder have context features.
    has_context: bool,
    /// The service clock less the monotonic clock, modulo 2^64.
    clock_offset: AtomicU64,
    /// The last term in which this engine wrote the log; `None` before the first.
    term: RwLock<Option<Term>>,
    /// Decisions that are not in the journal yet.
    pending: Mutex<Pending>,
    /// Decisions that wait for their rewards.
    unanswered: Unanswered,
    /// The last decisions of each user.
    seen: Seen,
    /// How often each item was shown, and its rewards.
    item_counts: Arc<ItemCounts>,
    /// Finds out that all rewards are equal.
    equal: EqualRewards,
    /// Assumed rewards that were replaced, for the journal.
    replaced: Mutex<noted::Replaced>,
    queue: mpsc::WeakSender<WriteRequest>,
    changes: broadcast::Sender<Record>,
    /// The reason why the engine is read-only, if it is.
    read_only: Mutex<Option<String>>,
    /// The append to the log that is under way.
    appending: Appending,
    closing: AtomicBool,
    /// The number of bytes appended to the log since the newest snapshot was begun.
    log_bytes: AtomicU64,
    /// The batch of the log up to which everything is in the journal.
    journaled: AtomicU64,
    /// True while the journal cannot be written.
    journal_fails: AtomicBool,
    fitting: Arc<Watch>,
    hash: Mutex<Option<(u64, String)>>,
    meters: Arc<Meters>,
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    fn env(&self) -> &Env {
        self.folder.env()
    }

    /// The service clock: milliseconds for which this folder has been served.
    ///
    /// It continues from the last stamp in the log and follows the monotonic clock, so changes of the wall clock
    /// do not affect it.
    fn clock(&self) -> u64 {
        let offset = self.clock_offset.load(Ordering::Relaxed);
        self.env().clock.monotonic().wrapping_add(offset)
    }

    /// The log and the snapshots.
    fn sources(&self) -> fold::Sources<'_> {
        fold::Sources {
            log: &*self.log,
            snapshots: &*self.snapshots,
        }
    }

    /// The time for which a decision accepts a reward, in milliseconds.
    fn lifetime(&self) -> u64 {
        self.settings.lifetime.saturating_mul(1000)
    }

    /// Returns true if decisions and rewards are kept for analysis.
    fn has_journal(&self) -> bool {
        self.settings.journal_days > 0
    }

    /// Returns true if the journal has details of decisions.
    fn has_details(&self, further_draws: Option<u32>) -> bool {
        self.has_journal() && (further_draws.is_some() || self.settings.unanswered.is_some())
    }

    /// Returns true if decisions have the probability of each item.
    fn has_propensities(&self) -> bool {
        self.settings.propensities > 0 || self.settings.explore_share > 0.0
    }

    /// The number of further draws for the propensities of a policy that chooses from so many candidates: 0 if it does not
    /// draw, `None` if propensities are off.
    fn further_draws(&self, draws: bool, candidates: usize) -> Option<u32> {
        let further = match (self.settings.propensities, draws) {
            // Without draws, probabilities are known.
            (_, false) => 0,
            (0, true) => {
                let affordable = DEFAULT_SCORES / candidates.max(1);
                (affordable as u32).clamp(MIN_DRAWS, DEFAULT_DRAWS)
            }
            (further, true) => further.min(MAX_PROPENSITIES),
        };
        self.has_propensities().then_some(further)
    }

    /// The number of writes in the queue.
    fn waiting(&self) -> usize {
        self.queue
            .upgrade()
            .map_or(0, |queue| QUEUE - queue.capacity())
    }

    /// Sends a command to the owner and waits for its answer.
    async fn ask(&self, command: Command) -> Result<Done, Refusal> {
        if let Some(reason) = self.hangs() {
            return Err(Refusal::ReadOnly(reason));
        }
        let (reply, answer) = oneshot::channel();
        let queue = self.queue.upgrade().ok_or(Refusal::Closing)?;
        let caller = traces::caller();
        let sent = queue.try_send(WriteRequest {
            command,
            reply,
            caller,
        });
        drop(queue);
        match sent {
            Ok(()) => self.answered(answer).await,
            Err(mpsc::error::TrySendError::Full(_)) => Err(Refusal::Overloaded),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Refusal::Closing),
        }
    }
}

/// The reason why an engine cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The state cannot be restored.
    #[error(transparent)]
    Fold(#[from] FoldError),
    /// The settings are invalid, or differ from the folder's.
    #[error(transparent)]
    Settings(#[from] Misfit),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

impl From<StoreError> for OpenError {
    fn from(error: StoreError) -> Self {
        OpenError::Fold(FoldError::Store(error))
    }
}

impl Engine {
    /// Opens a data folder and restores the state.
    ///
    /// # Errors
    /// If the folder is damaged, or was made for other settings, or the settings are invalid. A folder that does not exist
    /// is not made then.
    pub fn open(env: Env, data: &Path, settings: &Settings) -> Result<Self, OpenError> {
        if env.disk.names(data).is_err() {
            Identity::new(settings, &*env.random)?;
        }
        Self::start(Folder::open_to_serve(&env, data, settings)?, settings)
    }

    /// Like [`Engine::open`], with a folder that is open already.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn start(folder: Folder, settings: &Settings) -> Result<Self, OpenError> {
        let workers = Threads::new(settings.fit_threads);
        Self::start_with(folder, settings, Box::new(workers))
    }

    /// Like [`Engine::start`], with other workers for the fits.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn start_with(
        folder: Folder,
        settings: &Settings,
        workers: Box<dyn Workers + Send + Sync>,
    ) -> Result<Self, OpenError> {
        let identity = match fold::identity_for(&folder, settings)? {
            Some(identity) => identity,
            None if folder.is_of_partition() => {
                let path = folder.path().display().to_string();
                return Err(FoldError::Node(path).into());
            }
            None => {
                let identity = Identity::new(settings, &*folder.env().random)?;
                folder.set_identity(&identity.encode())?;
                identity
            }
        };
        // After an experiment, settings may name the policy in force, or still the one that the folder was made with.
        let checked = identity.check(settings);
        if let Err(misfit) = &checked
            && !identity.has_descriptions()
        {
            return Err(misfit.clone().into());
        }
        let last = folder.log.last();
        let sources = fold::Sources::of(&folder);
        let clock = Arc::clone(&folder.env().clock);
        let mut told = clock.monotonic();
        let state = fold::newest(sources, &identity, last, &mut |number| {
            if number.is_multiple_of(1024) && clock.monotonic() - told >= PROGRESS {
                told = clock.monotonic();
                tracing::info!(batch = number, of = last, "reading the log");
            }
        })?;
        if let Err(misfit) = checked {
            state.identity().check(settings).map_err(|_| misfit)?;
        }
        state.identity().check_run(settings)?;
        if let (Some(asked), Some(has)) = (settings.dim, state.dim())
            && asked != has
        {
            return Err(Misfit(format!(
                "dim is {asked}, and the items in the folder have {has} features; omit dim, or use another \
                 folder"
            ))
            .into());
        }
        let (_, epochs) = folder.begin_epoch(state.events(), state.clock())?;
        let log = Arc::clone(&folder.log);
        let snapshots = Arc::clone(&folder.snapshots);
        let replica = Replica {
            folder,
            log,
            snapshots,
            catalogue: None,
            meters: Arc::default(),
            item_counts: Arc::default(),
            engines: 1,
        };
        Self::run(replica, state, settings, workers, Some(Term::new(epochs)))
    }

    /// Starts the tasks. With a term, the engine writes the log from the start.
    fn run(
        replica: Replica,
        state: State,
        settings: &Settings,
        workers: Box<dyn Workers + Send + Sync>,
        term: Option<Term>,
    ) -> Result<Self, OpenError> {
        let Replica {
            folder,
            log,
            snapshots,
            catalogue,
            meters,
            item_counts,
            engines,
        } = replica;
        let env = folder.env().clone();
        let (queue, requests) = mpsc::channel(QUEUE);
        let identity = state.identity().clone();
        let clock_offset = state.clock().wrapping_sub(env.clock.monotonic());
        let max = settings.reward_max;
        let equal = EqualRewards::new(state.rewards(), max, settings.unanswered.is_some());
        if term.is_some() {
            equal.tell(state.rewards(), [settings.reward_min, max]);
        }
        let (is_replicated, role) = match term {
            Some(_) => (false, Role::Leading),
            None => (true, Role::Following),
        };
        let shared = Arc::new(Shared {
            clock_offset: AtomicU64::new(clock_offset),
            term: RwLock::new(term),
            state: StateLock::new(state),
            folder,
            log,
            snapshots,
            is_replicated,
            role: watch::channel(role).0,
            catalogue: catalogue.map(|source| source.0),
            settings: settings.clone(),
            sealer: Sealer::new(identity.key()),
            has_item_ids: identity.policy.can.item_ids,
            has_lists: identity.has_lists(),
            has_context: !identity.context.is_empty(),
            pending: Mutex::default(),
            unanswered: Unanswered::default(),
            seen: Seen::new(settings.max_seen, engines),
            item_counts,
            equal,
            replaced: Mutex::default(),
            queue: queue.downgrade(),
            changes: broadcast::channel(LISTENERS).0,
            read_only: Mutex::default(),
            appending: Appending::default(),
            closing: AtomicBool::new(false),
            log_bytes: AtomicU64::new(0),
            journaled: AtomicU64::new(0),
            journal_fails: AtomicBool::new(false),
            fitting: Arc::default(),
            hash: Mutex::default(),
            meters,
        });
        if settings.propensities > 0 && !identity.draws() && settings.explore_share == 0.0 {
            tracing::warn!(
                "the policy does not draw at random: propensities are 1, and no off-policy estimate can be had from the \
                 log; set explore-share"
            );
        }
        let keeper = journal::Keeper::open(Arc::clone(&shared))?;
        let (journal, journal_requests) = mpsc::channel(8);
        let (upkeep, upkeep_requests) = mpsc::channel(8);
        let spawner = &env.spawner;
        let fits = Fits::start(&shared, workers)?;
        let owner = Owner::new(Arc::clone(&shared), requests, fits);
        spawner.spawn("sclub-owner", Box::pin(owner.run()))?;
        spawner.spawn("sclub-journal", Box::pin(keeper.run(journal_requests)))?;
        let upkeeper = upkeep::Upkeep::new(Arc::clone(&shared), journal.clone());
        spawner.spawn("sclub-upkeep", Box::pin(upkeeper.run(upkeep_requests)))?;
        Ok(Self {
            shared,
            queue,
            journal,
            upkeep,
        })
    }

    /// The state. Writes wait while the guard is held.
    pub fn state(&self) -> RwLockReadGuard<'_, State> {
        self.shared.read()
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Returns true if the policy uses the ids of items ([`crate::state::item_id`]).
    pub fn has_item_ids(&self) -> bool {
        self.shared.has_item_ids
    }

    /// The metrics.
    pub fn meters(&self) -> &Meters {
        &self.shared.meters
    }

    /// The data folder.
    pub fn folder(&self) -> &Folder {
        &self.shared.folder
    }

    /// The reason why the engine is read-only, if it is.
    pub fn read_only(&self) -> Option<String> {
        self.shared.not_writable()
    }

    /// A receiver of splits and merges as they happen.
    pub fn changes(&self) -> broadcast::Receiver<Record> {
        self.shared.changes.subscribe()
    }

    /// Returns true if a fit is being computed, or waits to be logged.
    pub fn is_fitting(&self) -> bool {
        self.shared.fitting.is_running()
    }

    /// The time that the last fit took to compute, if there was one since the start.
    pub fn fit_took(&self) -> Option<Duration> {
        self.shared.fitting.took()
    }

    /// The rewards so far, as far as equality is concerned.
    pub(crate) fn equal_rewards(&self) -> RewardValues {
        self.shared.equal.rewards()
    }

    /// A warning if all rewards are equal.
    pub fn reward_warning(&self) -> Option<String> {
        self.shared.equal.warning()
    }

    /// Explains which off-policy estimates the log allows. `state` is this engine's state, which the caller is reading: a second
    /// read could wait for a writer that waits for the first.
    pub fn off_policy(&self, state: &State) -> &'static str {
        let shared = &self.shared;
        let has_share = shared.settings.explore_share > 0.0;
        if !shared.has_journal() {
            return "there is no log of decisions, because journal-days is 0";
        }
        match (state.draws(), shared.has_propensities()) {
            (false, _) if !has_share => {
                "the policy does not draw at random: each item is shown with probability 1 (ties apart), and no \
                 off-policy estimate can be had from the log; --explore-share 0.05 makes one possible"
            }
            (false, _) => "the log has the probability of each item shown; it is exact",
            (true, false) => {
                "the log does not have the probability of each item shown; --propensities N adds it"
            }
            (true, true) if !has_share && !state.all_draw() => {
                "the log has the probability of each item shown, estimated by further draws; an arm whose policy does not \
                 draw shows each with probability 1, and no off-policy estimate can be had from its users"
            }
            (true, true) => {
                "the log has the probability of each item shown, estimated by further draws"
            }
        }
    }

    /// The number of decisions that wait for their rewards, to be given assumed ones.
    pub fn unanswered(&self) -> usize {
        self.shared.unanswered.len()
    }

    /// The last decisions of a user that this engine made, with their rewards, newest first.
    pub fn seen(&self, user: &str) -> Vec<SeenDecision> {
        self.shared.seen.decisions(user)
    }

    /// The counts of items; `None` if there is no journal.
    pub(crate) fn item_counts(&self) -> Option<&ItemCounts> {
        let has_counts = self.shared.has_journal();
        has_counts.then_some(&*self.shared.item_counts)
    }

    /// The time of day, in milliseconds since 1970.
    pub fn now(&self) -> u64 {
        self.shared.env().clock.wall()
    }

    /// The number of writes in the queue.
    pub fn waiting(&self) -> usize {
        self.shared.waiting()
    }

    /// A hash of the whole state. It takes time with many users, and learning waits meanwhile. The last one is
    /// cached.
    pub fn hash(&self) -> String {
        self.hashed().1.unwrap_or_default()
    }

    /// The state, with its hash.
    pub fn hashed(&self) -> (RwLockReadGuard<'_, State>, Option<String>) {
        self.shared.state.read_long(|state| {
            let mut known = lock(&self.shared.hash);
            let hash = match &*known {
                Some((events, hash)) if *events == state.events() => hash.clone(),
                _ => state.hash(),
            };
            *known = Some((state.events(), hash.clone()));
            (self.shared.read(), Some(hash))
        })
    }

    /// Reads the state for a long time: learning waits meanwhile, recommending does not.
    pub fn read_long<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        self.shared.state.read_long(look)
    }

    /// Inserts or replaces items of the catalogue. Returns the number that were new or changed.
    ///
    /// # Errors
    /// If one of them is refused; then none is changed.
    pub async fn upsert(&self, items: Vec<impl Into<DescribedItem>>) -> Result<usize, Refusal> {
        let items = items.into_iter().map(Into::into).collect();
        self.change(Command::Upsert(items)).await
    }

    /// Changes some fields of an item ([`crate::raw::patched`]). Returns true if it is another one now.
    ///
    /// # Errors
    /// If it is not in the catalogue, or a field is refused.
    pub async fn patch(
        &self,
        item: &str,
        patch: serde_json::Map<String, serde_json::Value>,
    ) -> Result<bool, Refusal> {
        let changed = self.change(Command::Patch(item.to_owned(), patch)).await?;
        Ok(changed > 0)
    }

    /// Takes an item out of the catalogue. Returns whether it was there.
    ///
    /// # Errors
    /// If the engine is read-only.
    pub async fn remove(&self, item: &str) -> Result<bool, Refusal> {
        let changed = self.change(Command::Remove(item.to_owned())).await?;
        Ok(changed > 0)
    }

    /// Forgets a user. Returns true if the user had given a reward.
    ///
    /// # Errors
    /// If the engine is read-only.
    pub async fn forget(&self, user: &str) -> Result<bool, Refusal> {
        let changed = self.change(Command::Forget(user.to_owned())).await?;
        Ok(changed > 0)
    }

    /// Declares the number of users who exist before the first round.
    ///
    /// # Errors
    /// After the first round.
    pub async fn expect(&self, users: u64) -> Result<(), Refusal> {
        self.change(Command::Expect(users)).await.map(drop)
    }

    async fn change(&self, command: Command) -> Result<usize, Refusal> {
        match self.shared.ask(command).await? {
            Done::Changed(changed) => Ok(changed),
            _ => Err(Refusal::Closing),
        }
    }

    /// Takes a snapshot now. Returns the number of the last event in it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub async fn snapshot(&self) -> Result<u64, FoldError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.upkeep.send(UpkeepRequest::Snapshot(reply)).await;
        answered(sent.is_ok(), answer).await
    }

    /// Removes all data of forgotten users from the folder. Recommending and learning go on.
    ///
    /// # Errors
    /// If a file cannot be read or written. It can be repeated.
    pub async fn compact(&self) -> Result<Compacted, FoldError> {
        Ok(self.compact_with(Compaction::Whole).await?.0)
    }

    /// As [`Engine::compact`], for a server or for its part in a cluster. Returns the users.
    ///
    /// # Errors
    /// As [`Engine::compact`].
    pub async fn compact_with(
        &self,
        compaction: Compaction,
    ) -> Result<(Compacted, ForgottenUsers), FoldError> {
        let (reply, answer) = oneshot::channel();
        let sent = self
            .upkeep
            .send(UpkeepRequest::Compact(compaction, reply))
            .await;
        answered(sent.is_ok(), answer).await
    }

    /// Writes all waiting decisions into the journal. Returns the batch of the log up to which the journal is
    /// complete.
    pub(crate) async fn flush_journal(&self) -> Result<u64, FoldError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.journal.send(JournalRequest::Flush(reply)).await;
        Ok(answered(sent.is_ok(), answer).await?)
    }

    /// Stops: finishes the writes in the queue, writes the journal, and takes a last snapshot.
    pub async fn close(&self) {
        let shared = &self.shared;
        if shared.closing.swap(true, Ordering::SeqCst) {
            return;
        }
        let (reply, stopped) = oneshot::channel();
        let stop = WriteRequest {
            command: Command::Stop,
            reply,
            caller: None,
        };
        if self.queue.send(stop).await.is_ok() {
            let _ = stopped.await;
        }
        let (reply, stopped) = oneshot::channel();
        if self.upkeep.send(UpkeepRequest::Stop(reply)).await.is_ok() {
            let _ = stopped.await;
        }
        let (reply, stopped) = oneshot::channel();
        if self.journal.send(JournalRequest::Stop(reply)).await.is_ok() {
            let _ = stopped.await;
        }
        if !shared.is_replicated {
            upkeep::last_snapshot(shared);
        }
        if let Err(error) = shared.take_back_epoch() {
            tracing::warn!(%error, "cannot record that the folder is as new");
        }
        if let Err(error) = shared.folder.close() {
            tracing::warn!(%error, "cannot record the end of the log");
        }
    }
}

/// The answer of a task, or an error if it has ended.
async fn answered<T, E: From<StoreError>>(
    is_sent: bool,
    answer: oneshot::Receiver<Result<T, E>>,
) -> Result<T, E> {
    let closing = || Err(StoreError::Refused("the server is shutting down".to_owned()).into());
    match is_sent {
        true => answer.await.unwrap_or_else(|_| closing()),
        false => closing(),
    }
}
