//! Fits, computed beside serving.
//!
//! After each batch the writer asks the policy whether a fit is due. If so, what it takes of the state
//! goes to a thread of its own, and recommending and learning go on. What comes of it goes the way of
//! every write: it is logged, and takes effect at its event. A fit that a crash or the end of the
//! server comes before was never made; it is due again after the start.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{Builder, available_parallelism, scope};
use std::time::{Duration, Instant};

use sclub::{Refit, Workers};
use tokio::sync::{mpsc, oneshot};

use super::owner::{Command, WriteRequest};
use super::{OpenError, Shared, lock};
use crate::state::Effect;

/// Threads that share the pieces of a fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threads(usize);

impl Threads {
    /// So many; with 0 one less than there are cores, so that one is left for serving, and at least
    /// one.
    pub fn new(asked: usize) -> Self {
        Self(match asked {
            0 => available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).max(1)),
            some => some,
        })
    }
}

impl Workers for Threads {
    fn each(&self, pieces: usize, work: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let take = || {
            loop {
                let piece = next.fetch_add(1, Ordering::Relaxed);
                if piece >= pieces {
                    return;
                }
                work(piece);
            }
        };
        scope(|scope| {
            for _ in 1..self.0.min(pieces) {
                let helper = Builder::new().name("sclub-fit".to_owned());
                // If there is none to be had, the others take its pieces.
                let _ = helper.spawn_scoped(scope, take);
            }
            take();
        });
    }
}

/// What is to be seen of fits from outside.
#[derive(Debug, Default)]
pub(super) struct Watch {
    running: AtomicBool,
    /// How long the last one took, in nanoseconds; 0 before the first.
    took: AtomicU64,
}

impl Watch {
    /// Whether one is being computed, or waits to be recorded.
    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::SeqCst)
    }

    /// How long the last one was computed.
    pub fn took(&self) -> Option<Duration> {
        match self.took.load(Ordering::SeqCst) {
            0 => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }
}

/// The writer's side: which fit is on its way.
#[derive(Debug)]
pub(super) struct Fits {
    orders: mpsc::UnboundedSender<Box<dyn Refit>>,
    watch: Arc<Watch>,
    is_out: bool,
    /// Whether the one on its way has somebody in it who was forgotten meanwhile.
    stale: bool,
    /// Rounds before which none is begun, because the last one went wrong.
    not_before: u64,
}

impl Fits {
    /// Starts the task that computes. It knows nothing but what it is handed, and nobody waits for it
    /// at the end: it ends when it finds nobody to send its fit to.
    pub fn start(
        shared: &Shared,
        workers: Box<dyn Workers + Send + Sync>,
    ) -> Result<Self, OpenError> {
        let (orders, ordered) = mpsc::unbounded_channel();
        let watch = Arc::clone(&shared.fitting);
        let task = compute(ordered, shared.queue.clone(), workers, Arc::clone(&watch));
        shared.env().spawner.spawn("sclub-fit", Box::pin(task))?;
        Ok(Self {
            orders,
            watch,
            is_out: false,
            stale: false,
            not_before: 0,
        })
    }

    /// The one on its way has come. Returns it if it may take effect.
    pub fn arrived(&mut self, fit: Option<Vec<u8>>, rounds: u64) -> Option<Vec<u8>> {
        self.is_out = false;
        let is_stale = std::mem::take(&mut self.stale);
        if fit.is_none() {
            self.failed("it ended with a panic", rounds);
        }
        if is_stale {
            tracing::info!("a fit is left out: somebody in it was forgotten meanwhile");
        }
        fit.filter(|_| !is_stale)
    }

    /// Looks at what was applied.
    pub fn applied(&mut self, effect: &Effect, rounds: u64) {
        self.stale |= effect.forgot && self.is_out;
        if let Some(reason) = &effect.fit_refused {
            self.failed(reason, rounds);
        }
    }

    /// Nothing good would come of the same again: there has to be as much again to learn from.
    fn failed(&mut self, reason: &str, rounds: u64) {
        self.not_before = rounds.saturating_mul(2).max(rounds + 1);
        tracing::error!(reason, next = self.not_before, "a fit came to nothing");
    }
}

impl Shared {
    /// Begins a fit if one is due and none is on its way.
    pub(super) fn begin_fit(&self, fits: &mut Fits) {
        // What came is in force by now, if it came to anything.
        fits.watch.running.store(fits.is_out, Ordering::SeqCst);
        let is_idle =
            !fits.is_out && !self.closing.load(Ordering::SeqCst) && lock(&self.read_only).is_none();
        if !is_idle {
            return;
        }
        let not_before = fits.not_before;
        let refit = self.state.study(|state| {
            let policy = state.policy().filter(|_| state.rounds() >= not_before);
            policy.and_then(|policy| policy.refit())
        });
        let Some(refit) = refit else { return };
        tracing::debug!(rounds = refit.rounds(), "a fit begins");
        fits.is_out = true;
        fits.watch.running.store(true, Ordering::SeqCst);
        if fits.orders.send(refit).is_err() {
            tracing::error!("the thread that fits has ended");
        }
    }
}

/// Lets every other thread go first, where the system can do that for a thread. Threads that it starts
/// inherit it.
pub(super) fn lower_priority() {
    #[cfg(target_os = "linux")]
    {
        /// Of the 20 steps there are.
        const STEPS: i32 = 10;
        let name = std::thread::current().name().map(str::to_owned);
        // In a simulation there is one thread for everything.
        if name.is_some_and(|name| name.starts_with("sclub-"))
            && let Err(error) = rustix::process::setpriority_process(None, STEPS)
        {
            tracing::debug!(%error, "this thread keeps the priority of the others");
        }
    }
}

/// Computes what is ordered and sends it to the owner of the log, until there is nobody to send it to.
async fn compute(
    mut orders: mpsc::UnboundedReceiver<Box<dyn Refit>>,
    queue: mpsc::WeakSender<WriteRequest>,
    workers: Box<dyn Workers + Send + Sync>,
    watch: Arc<Watch>,
) {
    lower_priority();
    while let Some(refit) = orders.recv().await {
        let begun = Instant::now();
        let rounds = refit.rounds();
        let fit = catch_unwind(AssertUnwindSafe(|| refit.compute(&*workers))).ok();
        let took = begun.elapsed();
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        watch.took.store(nanos.max(1), Ordering::SeqCst);
        let bytes = fit.as_ref().map(Vec::len);
        tracing::info!(rounds, ?took, bytes, "a fit is computed");
        let (reply, _) = oneshot::channel();
        let command = Command::Fit(fit);
        let Some(queue) = queue.upgrade() else { return };
        if queue.send(WriteRequest { command, reply }).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
