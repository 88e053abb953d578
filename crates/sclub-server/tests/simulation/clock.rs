//! Simulated time and randomness.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use rand::Rng as _;
use sclub_server::env::{Clock, Random, Task};

use crate::seed::{Rng, stream};

/// The wall clock at the start of a run: some day in 2023.
const START: i64 = 1_700_000_000_000;

/// Virtual time. It advances when the executor has nothing to do and while a simulated disk is slow.
///
/// A handle is what one process sees: [`SimClock::process`] gives one whose monotonic clock starts
/// anew, as it does after a restart.
#[derive(Clone)]
pub struct SimClock {
    shared: Arc<Mutex<Shared>>,
    /// Virtual time at which this process started.
    started: u64,
}

struct Shared {
    /// Milliseconds since the run began.
    now: u64,
    /// Wall clock minus `now`.
    offset: i64,
    /// By deadline, then in the order of registration.
    timers: BTreeMap<(u64, u64), Waker>,
    registered: u64,
}

impl fmt::Debug for SimClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimClock({} ms)", self.now())
    }
}

impl Default for SimClock {
    fn default() -> Self {
        Self {
            shared: Arc::new(Mutex::new(Shared {
                now: 0,
                offset: START,
                timers: BTreeMap::new(),
                registered: 0,
            })),
            started: 0,
        }
    }
}

impl SimClock {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock of a process that starts now.
    pub fn process(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            started: self.now(),
        }
    }

    /// Milliseconds since the run began.
    pub fn now(&self) -> u64 {
        self.lock().now
    }

    /// Advances the time while a task blocks. Timers that are due are woken by [`SimClock::wake_due`].
    pub fn advance(&self, milliseconds: u64) {
        self.lock().now += milliseconds;
    }

    /// Changes the wall clock.
    pub fn jump(&self, milliseconds: i64) {
        self.lock().offset += milliseconds;
    }

    /// Advances to the next timer. Returns false if there is none.
    pub fn skip_to_next_timer(&self) -> bool {
        let mut shared = self.lock();
        let Some((&(deadline, _), _)) = shared.timers.first_key_value() else {
            return false;
        };
        shared.now = shared.now.max(deadline);
        drop(shared);
        self.wake_due();
        true
    }

    /// Wakes the timers that are due.
    pub fn wake_due(&self) {
        let mut shared = self.lock();
        let now = shared.now;
        let mut due = Vec::new();
        while let Some(entry) = shared.timers.first_entry()
            && entry.key().0 <= now
        {
            due.push(entry.remove());
        }
        drop(shared);
        due.into_iter().for_each(Waker::wake);
    }
}

impl Clock for SimClock {
    fn wall(&self) -> u64 {
        let shared = self.lock();
        u64::try_from(shared.now as i64 + shared.offset).unwrap_or(0)
    }

    fn monotonic(&self) -> u64 {
        self.now() - self.started
    }

    fn sleep(&self, milliseconds: u64) -> Task {
        let mut shared = self.lock();
        shared.registered += 1;
        Box::pin(Sleep {
            clock: self.clone(),
            key: (shared.now.saturating_add(milliseconds), shared.registered),
        })
    }

    fn yield_now(&self) -> Task {
        Box::pin(YieldOnce(false))
    }
}

struct Sleep {
    clock: SimClock,
    key: (u64, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut shared = self.clock.lock();
        if shared.now >= self.key.0 {
            shared.timers.remove(&self.key);
            return Poll::Ready(());
        }
        shared.timers.insert(self.key, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        // The waker is dropped after the lock is free: it may own a task that sleeps.
        let waker = self.clock.lock().timers.remove(&self.key);
        drop(waker);
    }
}

struct YieldOnce(bool);

impl Future for YieldOnce {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0 {
            return Poll::Ready(());
        }
        self.0 = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Random numbers from a seed.
pub struct SimRandom(Mutex<Rng>);

impl fmt::Debug for SimRandom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimRandom")
    }
}

impl SimRandom {
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(stream(seed, "random")))
    }
}

impl Random for SimRandom {
    fn fill(&self, bytes: &mut [u8]) -> io::Result<()> {
        let mut rng = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rng.fill_bytes(bytes);
        Ok(())
    }
}
