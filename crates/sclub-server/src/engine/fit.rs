//! Fits, computed in the background.
//!
//! After each batch the owner of the log asks the policy whether a fit is due. If so, a copy of the data that
//! it needs goes to another thread, and recommending and learning go on. The result is a write like any
//! other: it is logged, and takes effect at its event. If the server ends or crashes before that, the fit is
//! due again after the start.

use std::collections::HashMap;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{Builder, available_parallelism, scope};
use std::time::{Duration, Instant};

use sclub::{Refit, Workers};
use tokio::sync::{mpsc, oneshot};

use super::owner::{Command, WriteRequest};
use super::{OpenError, Shared, lock};
use crate::event::Event;
use crate::meters::Meters;
use crate::state::{Effect, State};
use crate::traces;

/// The threads that share the pieces of a fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threads(usize);

impl Threads {
    /// A number of threads. 0 is one less than there are cores, but at least one.
    pub fn new(asked: usize) -> Self {
        Self(match asked {
            0 => available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).max(1)),
            some => some,
        })
    }

    /// A number of threads where nothing else runs. 0 is one for each core.
    pub fn alone(asked: usize) -> Self {
        Self(match asked {
            0 => available_parallelism().map_or(1, NonZero::get),
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
                // If the thread cannot be started, the others take its pieces.
                let _ = helper.spawn_scoped(scope, take);
            }
            take();
        });
    }
}

/// The status of fits, readable by all threads.
#[derive(Debug, Default)]
pub(super) struct Watch {
    running: AtomicBool,
    /// The time that the last fit took, in nanoseconds; 0 before the first.
    took: AtomicU64,
}

impl Watch {
    /// Returns true if a fit is being computed, or waits to be logged.
    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::SeqCst)
    }

    /// The time that the last fit took to compute.
    pub fn took(&self) -> Option<Duration> {
        match self.took.load(Ordering::SeqCst) {
            0 => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }
}

/// The fits, as the owner of the log sees them.
#[derive(Debug)]
pub(super) struct Fits {
    orders: mpsc::UnboundedSender<Box<dyn Refit>>,
    watch: Arc<Watch>,
    meters: Arc<Meters>,
    is_out: bool,
    /// True if a user was forgotten, or an experiment began or ended, since the current fit was begun.
    stale: bool,
    /// The policy of the current or last fit: the one in force (`None`), or that of an arm.
    of: Option<u32>,
    /// The round of each policy before which no fit is begun, because its last one failed.
    not_before: HashMap<Option<u32>, u64>,
}

impl Fits {
    /// Starts the task that computes fits. A shutdown does not wait for it: it ends when it cannot send its
    /// result.
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
            meters: Arc::clone(&shared.meters),
            is_out: false,
            stale: false,
            of: None,
            not_before: HashMap::new(),
        })
    }

    /// A fit is computed. Returns its event if it may take effect.
    pub fn arrived(&mut self, fit: Option<Vec<u8>>, state: &State) -> Option<Event> {
        self.is_out = false;
        let is_stale = std::mem::take(&mut self.stale);
        if fit.is_none() && !is_stale {
            self.failed("the computation panicked", state);
        }
        if is_stale {
            tracing::info!(
                "a fit is dropped: a user in it was forgotten meanwhile, or an experiment began or ended"
            );
        }
        let fit = fit.filter(|_| !is_stale)?;
        Some(match self.of {
            None => Event::Fit { fit },
            Some(arm) => Event::FitArm { arm, fit },
        })
    }

    /// Takes note of a batch that was applied.
    pub fn applied(&mut self, effect: &Effect, state: &State) {
        self.stale |= (effect.forgot || effect.changed_policies) && self.is_out;
        if effect.changed_policies {
            self.not_before.clear();
        }
        if let Some(reason) = &effect.fit_refused {
            self.failed(reason, state);
        }
    }

    /// A fit failed. The same data would fail again, so the next one waits for twice as many rounds.
    fn failed(&mut self, reason: &str, state: &State) {
        let found = state.policies().find(|(of, _)| *of == self.of);
        let rounds = found.map_or(0, |(_, policy)| policy.rounds());
        let next = rounds.saturating_mul(2).max(rounds + 1);
        self.not_before.insert(self.of, next);
        self.meters.fit_failures.increment(1);
        tracing::error!(reason, next, "a fit failed");
    }
}

impl Shared {
    /// Begins a fit if one is due and none is being computed.
    pub(super) fn begin_fit(&self, fits: &mut Fits) {
        // The previous fit has taken effect by now, or was dropped.
        fits.watch.running.store(fits.is_out, Ordering::SeqCst);
        // Partitions of a cluster are fitted together, by one of the nodes.
        if self.is_replicated {
            return;
        }
        let is_idle =
            !fits.is_out && !self.closing.load(Ordering::SeqCst) && lock(&self.read_only).is_none();
        if !is_idle {
            return;
        }
        let refit = self.state.read_long(|state| {
            // In turn: a policy that is always due must not keep the others from theirs.
            let mut policies: Vec<_> = state.policies().collect();
            let next = policies.iter().position(|(of, _)| *of > fits.of);
            policies.rotate_left(next.unwrap_or(0));
            policies.into_iter().find_map(|(of, policy)| {
                let not_before = fits.not_before.get(&of).copied().unwrap_or(0);
                let is_allowed = policy.rounds() >= not_before;
                Some((of, is_allowed.then(|| policy.refit())??))
            })
        });
        let Some((of, refit)) = refit else { return };
        fits.of = of;
        tracing::debug!(rounds = refit.rounds(), "computing a fit");
        fits.is_out = true;
        fits.watch.running.store(true, Ordering::SeqCst);
        if fits.orders.send(refit).is_err() {
            tracing::error!("the thread that computes fits has ended");
        }
    }
}

/// Lowers the priority of this thread and of those that it starts, if the system supports that.
pub(super) fn lower_priority() {
    #[cfg(target_os = "linux")]
    {
        /// The niceness is raised by half of its range.
        const STEPS: i32 = 10;
        let name = std::thread::current().name().map(str::to_owned);
        // A simulation has one thread for everything.
        if name.is_some_and(|name| name.starts_with("sclub-"))
            && let Err(error) = rustix::process::setpriority_process(None, STEPS)
        {
            tracing::debug!(%error, "cannot lower the priority of this thread");
        }
    }
}

/// Computes fits and sends them to the owner of the log, until the owner is gone.
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
        let mut span = traces::span("fit");
        let fit = catch_unwind(AssertUnwindSafe(|| refit.compute(&*workers))).ok();
        let took = begun.elapsed();
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        watch.took.store(nanos.max(1), Ordering::SeqCst);
        let bytes = fit.as_ref().map(Vec::len);
        span.number("sclub.rounds", rounds);
        span.end(fit.is_some());
        tracing::info!(rounds, ?took, bytes, "computed a fit");
        let (reply, _) = oneshot::channel();
        let command = Command::Fit(fit);
        let Some(queue) = queue.upgrade() else { return };
        let request = WriteRequest {
            command,
            reply,
            caller: None,
        };
        if queue.send(request).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
