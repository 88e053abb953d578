//! A clock whose time of day is wrong, and on which days go by at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use sclub_server::env::{Clock, Env, Task};

/// Milliseconds in a day.
pub const DAY: u64 = 24 * 3600 * 1000;

/// The system's clock, moved by hand.
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
    /// A clock that is right as yet, and an environment with it in place of the one it had.
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

    /// Sets the time of day wrong by so many milliseconds, either way.
    pub fn jump(&self, milliseconds: i64) {
        self.hands.wall.store(milliseconds, Ordering::SeqCst);
    }

    /// Lets so many milliseconds go by at once. Who sleeps does not notice.
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
