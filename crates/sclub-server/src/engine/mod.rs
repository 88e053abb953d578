//! Log, then apply.
//!
//! One thread writes. It takes what waits, checks it against the state, appends all of it to the
//! store at once (so that many writes share one trip to the disk), applies it to the state, and only
//! then answers. Whoever recommends reads the state and waits for nobody. Another thread computes the
//! policy's fits, which are written like everything else.

mod compact;
pub mod export;
mod fit;
pub mod fold;
mod journal;
mod recommend;
mod verify;
mod writer;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sclub::Workers;
use tokio::sync::{broadcast, mpsc, oneshot};

pub use compact::Compacted;
pub use fit::Threads;
pub use fold::FoldError;
pub use recommend::{Among, Asked, MOST_INLINE, Recommended};
pub use verify::{Verified, verify};

pub use crate::refusal::Refusal;

use crate::decision::{Handed, Sealer, first_number};
use crate::event::Item;
use crate::identity::{Identity, Misfit};
use crate::meters::Meters;
use crate::settings::Settings;
use crate::state::{Record, State};
use crate::store::{Store, StoreError};
use fit::{Fits, Watch};
use journal::Journal;
use writer::{Answer, Done, Job, Want};

/// Writes that may wait.
const QUEUE: usize = 8192;

/// Changes that a slow listener may lag behind.
const LISTENERS: usize = 1024;

/// How often decisions are noted when nothing else is written: little at a time, so that on few cores
/// nobody waits long for it.
const TICK: Duration = Duration::from_millis(50);

/// Ticks between two looks at how things stand.
const LOOK: u64 = 4;

/// Extra time for which what an expired decision needs is kept.
const MARGIN: u64 = 24 * 3600 * 1000;

/// Recommends, learns, and loses nothing.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What the engine's threads share.
#[derive(Debug)]
pub(crate) struct Shared {
    state: RwLock<State>,
    /// Held by who changes the state, and by who reads it for long: a lock that somebody waits to
    /// write to lets no more readers in, and those who recommend must not wait.
    gate: Mutex<()>,
    store: Arc<dyn Store>,
    settings: Settings,
    sealer: Sealer,
    /// Of the next item shown.
    number: AtomicU64,
    /// Decisions handed out that wait to be noted.
    journal: Mutex<Journal>,
    queue: mpsc::Sender<Job>,
    changes: broadcast::Sender<Record>,
    /// Why nothing can be written, if nothing can.
    read_only: Mutex<Option<String>>,
    closing: AtomicBool,
    /// Event of the newest snapshot.
    snapshot: AtomicU64,
    /// One of snapshot, compaction and backup at a time.
    upkeep: Mutex<()>,
    fitting: Arc<Watch>,
    hash: Mutex<Option<(u64, String)>>,
    meters: Meters,
}

/// Why an engine cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The state cannot be made.
    #[error(transparent)]
    Fold(#[from] FoldError),
    /// The settings do not fit.
    #[error(transparent)]
    Settings(#[from] Misfit),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

impl std::convert::From<StoreError> for OpenError {
    fn from(error: StoreError) -> Self {
        OpenError::Fold(FoldError::Store(error))
    }
}

/// A reward.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Given<'a> {
    /// The decision.
    pub decision: &'a str,
    /// Which of the items shown; the first if not said.
    pub item: Option<&'a str>,
    /// What it brought.
    pub reward: f64,
}

impl Engine {
    /// Opens a store and makes the state from it.
    ///
    /// # Errors
    /// Where the store is damaged, or was made for other settings.
    pub fn open(store: Arc<dyn Store>, settings: &Settings) -> Result<Self, OpenError> {
        let workers = Threads::new(settings.fit_threads);
        Self::open_with(store, settings, Box::new(workers))
    }

    /// As [`Engine::open`], with somebody else to do the work of fits.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open_with(
        store: Arc<dyn Store>,
        settings: &Settings,
        workers: Box<dyn Workers + Send>,
    ) -> Result<Self, OpenError> {
        let identity = match fold::identity(&*store)? {
            Some(identity) => {
                identity.check(settings)?;
                identity
            }
            None => {
                let identity = Identity::new(settings)?;
                store.set_identity(&identity.encode())?;
                identity
            }
        };
        let key = identity.key().expect("checked when it was read");
        let last = store.last();
        let state = fold::fold(&*store, &identity, fold::From::Newest, &mut |number| {
            if number.is_multiple_of(1_000_000) {
                tracing::info!(event = number, of = last, "reading the log");
            }
        })?;
        if let (Some(asked), Some(has)) = (settings.dim, state.dim())
            && asked != has
        {
            return Err(Misfit(format!(
                "dim {asked} was asked for, and the items in the folder have {has} features"
            ))
            .into());
        }
        let (queue, jobs) = mpsc::channel(QUEUE);
        let shared = Arc::new(Shared {
            snapshot: AtomicU64::new(store.snapshots()?.last().copied().unwrap_or(0)),
            number: AtomicU64::new(first_number(store.epoch())),
            state: RwLock::new(state),
            gate: Mutex::default(),
            store,
            settings: settings.clone(),
            sealer: Sealer::new(key),
            journal: Mutex::default(),
            queue,
            changes: broadcast::channel(LISTENERS).0,
            read_only: Mutex::default(),
            closing: AtomicBool::new(false),
            upkeep: Mutex::default(),
            fitting: Arc::default(),
            hash: Mutex::default(),
            meters: Meters::default(),
        });
        shared.meters.state(&shared.read());
        let writer = {
            let shared = Arc::clone(&shared);
            let watch = Arc::clone(&shared.fitting);
            let fits = Fits::start(watch, shared.queue.clone(), workers)?;
            spawn("sclub-writer", move || shared.write(jobs, fits))?
        };
        let keeper = {
            let shared = Arc::clone(&shared);
            spawn("sclub-keeper", move || shared.look_after())?
        };
        Ok(Self {
            shared,
            threads: Mutex::new(vec![writer, keeper]),
        })
    }

    /// What is known, while the guard is held.
    pub fn state(&self) -> RwLockReadGuard<'_, State> {
        self.shared.read()
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Counts and times.
    pub fn meters(&self) -> &Meters {
        &self.shared.meters
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// Why nothing can be written, if nothing can.
    pub fn read_only(&self) -> Option<String> {
        lock(&self.shared.read_only).clone()
    }

    /// Splits and merges as they happen.
    pub fn changes(&self) -> broadcast::Receiver<Record> {
        self.shared.changes.subscribe()
    }

    /// Whether a fit is being computed, or waits to be recorded.
    pub fn is_fitting(&self) -> bool {
        self.shared.fitting.is_running()
    }

    /// How long the last fit was computed, if there was one since the start.
    pub fn fit_took(&self) -> Option<Duration> {
        self.shared.fitting.took()
    }

    /// Writes that wait.
    pub fn waiting(&self) -> usize {
        QUEUE - self.shared.queue.capacity()
    }

    /// What is known, with a hash of everything learned. That costs time at many users; the last one
    /// is remembered.
    pub fn hashed(&self) -> (RwLockReadGuard<'_, State>, String) {
        let _gate = lock(&self.shared.gate);
        let state = self.shared.read();
        let mut known = lock(&self.shared.hash);
        let hash = match &*known {
            Some((events, hash)) if *events == state.events() => hash.clone(),
            _ => {
                let hash = state.hash();
                *known = Some((state.events(), hash.clone()));
                hash
            }
        };
        (state, hash)
    }

    /// Looks at what is known for as long as it takes: learning waits meanwhile, and recommending does
    /// not.
    pub fn study<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        let _gate = lock(&self.shared.gate);
        look(&self.shared.read())
    }

    /// Notes the decisions that wait. Blocks.
    pub fn note_decisions(&self) {
        self.shared.flush();
    }

    /// Learns one round of rewards. Returns for each whether it was new.
    ///
    /// # Errors
    /// Where one of them cannot be; then none is learned.
    pub async fn feedback(&self, round: &[Given<'_>]) -> Result<Vec<bool>, Refusal> {
        let alone = round.len() == 1;
        let answers = round
            .iter()
            .enumerate()
            .map(|(index, given)| match self.answer(given) {
                Err(refusal) if !alone => Err(refusal.within("feedback", index)),
                other => other,
            })
            .collect::<Result<Vec<_>, _>>()?;
        match self.ask(Want::Learn(answers)).await? {
            Done::Applied(applied) => Ok(applied),
            _ => Err(Refusal::Closing),
        }
    }

    /// Whether a reward could be sent, but for what only the log knows.
    ///
    /// # Errors
    /// As [`Engine::feedback`].
    pub fn check(&self, given: &Given<'_>) -> Result<(), Refusal> {
        self.answer(given).map(drop)
    }

    /// A reward with what its decision says.
    fn answer(&self, given: &Given<'_>) -> Result<Answer, Refusal> {
        let Settings {
            reward_min,
            reward_max,
            lifetime,
            ..
        } = self.shared.settings;
        if !(reward_min..=reward_max).contains(&given.reward) {
            let message = format!(
                "the reward is {}, and it must be from {reward_min} to {reward_max}",
                given.reward
            );
            return Err(Refusal::invalid("reward", message));
        }
        let encoded = self
            .shared
            .sealer
            .open(given.decision)
            .ok_or(Refusal::UnknownDecision)?;
        let handed = Handed::decode(&encoded).ok_or(Refusal::UnknownDecision)?;
        if now() > handed.at.saturating_add(lifetime.saturating_mul(1000)) {
            return Err(Refusal::Expired);
        }
        let position = match given.item {
            None => 0,
            Some(id) => handed
                .shown
                .iter()
                .position(|shown| shown.item == id)
                .ok_or_else(|| Refusal::UnknownItem {
                    id: id.to_owned(),
                    place: "in the decision",
                    field: "item",
                })?,
        };
        let shown = handed
            .shown
            .into_iter()
            .nth(position)
            .ok_or(Refusal::UnknownDecision)?;
        Ok(Answer {
            number: handed.number + position as u64,
            user: handed.user.into_owned(),
            item: shown.item.into_owned(),
            features: shown.features,
            score: shown.score,
            cluster: handed.cluster,
            decided: handed.at,
            reward: given.reward,
        })
    }

    /// Puts items into the catalogue. Returns how many were not there just so.
    ///
    /// # Errors
    /// Where one of them has another number of features than the others.
    pub async fn upsert(&self, items: Vec<Item>) -> Result<usize, Refusal> {
        match self.ask(Want::Upsert(items)).await? {
            Done::Changed(changed) => Ok(changed),
            _ => Err(Refusal::Closing),
        }
    }

    /// Takes an item out of the catalogue. Returns whether it was there.
    ///
    /// # Errors
    /// Where nothing can be written.
    pub async fn remove(&self, item: &str) -> Result<bool, Refusal> {
        match self.ask(Want::Remove(item.to_owned())).await? {
            Done::Changed(changed) => Ok(changed > 0),
            _ => Err(Refusal::Closing),
        }
    }

    /// Forgets a user. Returns whether anything was known of her.
    ///
    /// # Errors
    /// Where nothing can be written.
    pub async fn forget(&self, user: &str) -> Result<bool, Refusal> {
        match self.ask(Want::Forget(user.to_owned())).await? {
            Done::Changed(changed) => Ok(changed > 0),
            _ => Err(Refusal::Closing),
        }
    }

    /// So many users exist before the first round.
    ///
    /// # Errors
    /// After the first round.
    pub async fn expect(&self, users: u64) -> Result<(), Refusal> {
        self.ask(Want::Expect(users)).await.map(drop)
    }

    async fn ask(&self, want: Want) -> Result<Done, Refusal> {
        let (reply, answer) = oneshot::channel();
        match self.shared.queue.try_send(Job { want, reply }) {
            Ok(()) => answer.await.unwrap_or(Err(Refusal::Closing)),
            Err(mpsc::error::TrySendError::Full(_)) => Err(Refusal::Overloaded),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Refusal::Closing),
        }
    }

    /// Takes a snapshot now. Returns its event. Blocks.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn snapshot(&self) -> Result<u64, StoreError> {
        let _alone = lock(&self.shared.upkeep);
        self.shared.take_snapshot()
    }

    /// Writes a copy of everything into `out`. Blocks.
    ///
    /// # Errors
    /// Where the store cannot be read, or `out` not written.
    pub fn backup(&self, out: &mut dyn std::io::Write) -> Result<(), StoreError> {
        let _alone = lock(&self.shared.upkeep);
        self.shared.flush();
        self.shared.store.backup(out)
    }

    /// Notes what waits, takes a last snapshot, and ends. Nothing can be written afterwards.
    pub fn close(&self) {
        if self.shared.closing.swap(true, Ordering::SeqCst) {
            return;
        }
        self.shared.flush();
        let (reply, _) = oneshot::channel();
        let stop = Job {
            want: Want::Stop,
            reply,
        };
        // From a thread that may block: the queue may be full.
        if self.shared.queue.blocking_send(stop).is_err() {
            tracing::error!("the writer ended early");
        }
        for thread in lock(&self.threads).drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the engine ended with a panic");
            }
        }
        let _alone = lock(&self.shared.upkeep);
        let due = self.shared.read().events() > self.shared.snapshot.load(Ordering::SeqCst);
        if due && let Err(error) = self.shared.take_snapshot() {
            tracing::warn!(%error, "no last snapshot; the log has everything");
        }
        if let Err(error) = self.shared.store.close() {
            tracing::warn!(%error, "the store was not sealed; nothing durable is lost");
        }
    }
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the decisions that wait, and returns when that is durable or has failed.
    fn flush(&self) {
        let (reply, done) = oneshot::channel();
        let job = Job {
            want: Want::Flush,
            reply,
        };
        if self.queue.blocking_send(job).is_ok() {
            let _ = done.blocking_recv();
        }
    }

    /// Notes decisions and takes snapshots when they are due, until the end.
    fn look_after(&self) {
        let mut failed = 0;
        for tick in 1.. {
            if self.closing.load(Ordering::SeqCst) {
                return;
            }
            std::thread::sleep(TICK);
            if !lock(&self.journal).is_empty() {
                let (reply, _) = oneshot::channel();
                let want = Want::Flush;
                let _ = self.queue.try_send(Job { want, reply });
            }
            let events = self.read().events();
            let since = self.snapshot.load(Ordering::SeqCst).max(failed);
            if events.saturating_sub(since) >= self.settings.snapshot_every.max(1) {
                let _alone = lock(&self.upkeep);
                if let Err(error) = self.take_snapshot() {
                    tracing::warn!(%error, "no snapshot; the log has everything");
                    failed = events;
                }
            }
            if tick % LOOK != 0 {
                continue;
            }
            self.meters.state(&self.read());
            self.meters
                .fitting(self.fitting.is_running(), self.fitting.took());
            let waiting = QUEUE - self.queue.capacity();
            let writable = lock(&self.read_only).is_none();
            self.meters.store(waiting, self.store.bytes(), writable);
            self.meters.upkeep();
        }
    }

    /// Takes a snapshot. Writes wait meanwhile; reads go on.
    fn take_snapshot(&self) -> Result<u64, StoreError> {
        let before = now().saturating_sub(self.settings.lifetime.saturating_mul(1000) + MARGIN);
        let _gate = lock(&self.gate);
        self.state
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .prune(before);
        let begun = std::time::Instant::now();
        let state = self.read();
        let at = state.events();
        if at == self.snapshot.load(Ordering::SeqCst) {
            return Ok(at);
        }
        self.store.put_snapshot(at, &mut |out| state.save(out))?;
        self.snapshot.store(at, Ordering::SeqCst);
        let milliseconds = begun.elapsed().as_millis() as u64;
        tracing::info!(event = at, milliseconds, "snapshot taken");
        Ok(at)
    }
}

/// Milliseconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

/// A lock whose data stays good whatever happens to who holds it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, OpenError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(OpenError::Thread)
}
