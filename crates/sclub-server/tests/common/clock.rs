//! A clock whose wall time is wrong, and on which days pass at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use sclub_server::env::{Clock, Env, Task};

/// The milliseconds in a day.
pub const DAY: u64 = 24 * 3600 * 1000;

/// The system's clock with offsets that a test sets.
#[derive(Debug, Clone)]
pub struct Moved {
    real: Arc<dyn Clock>,
    hands: Arc<Hands>,
}

#[derive(Debug, Default)]
struct Hands {
    wall: AtomicI64,
    passed: AtomicU64,
}

impl Moved {
    /// A clock without offsets, and the environment with this clock.
    pub fn new(env: Env) -> (Self, Env) {
        let clock = Self {
            real: env.clock,
            hands: Arc::default(),
        };
        let env = Env {
            clock: Arc::new(clock.clone()),
            ..env
        };
        (clock, env)
    }

    /// Moves the wall clock by a number of milliseconds, forward or back.
    pub fn jump(&self, milliseconds: i64) {
        self.hands.wall.store(milliseconds, Ordering::SeqCst);
    }

    /// Advances both clocks. Sleeping tasks are not woken.
    pub fn pass(&self, milliseconds: u64) {
        self.hands.passed.fetch_add(milliseconds, Ordering::SeqCst);
    }
}

impl Clock for Moved {
    fn wall(&self) -> u64 {
        let wrong = self.hands.wall.load(Ordering::SeqCst);
        let passed = self.hands.passed.load(Ordering::SeqCst);
        (self.real.wall() + passed).saturating_add_signed(wrong)
    }

    fn monotonic(&self) -> u64 {
        self.real.monotonic() + self.hands.passed.load(Ordering::SeqCst)
    }

    fn sleep(&self, milliseconds: u64) -> Task {
        self.real.sleep(milliseconds)
    }
}
