//! Decisions that wait for their rewards, to be given assumed ones (`--unanswered`, `--after`).
//!
//! A decision waits here once it is in the journal, so that a crash changes nothing: when the server starts, those that
//! still have time are read from the journal again. The owner of the log takes those whose time is over and logs their
//! rewards as events. An item that has its reward by then is skipped, so each counts once.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::lock;

/// The memory for decisions that wait, in bytes. If it is full, further decisions get no assumed reward.
const MAX_BYTES: usize = 256 << 20;

/// The memory for a decision beside its bytes.
const OVERHEAD: usize = 48;

/// Decisions that wait.
#[derive(Debug, Default)]
pub(crate) struct Unanswered {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The service-clock time of a decision, and the decision, in the order in which they came.
    decisions: VecDeque<(u64, Box<[u8]>)>,
    bytes: usize,
}

impl Unanswered {
    /// Adds an encoded decision that was made at a service-clock time. Returns false if there is no room.
    pub fn add(&self, clock: u64, decision: Box<[u8]>) -> bool {
        let mut waiting = lock(&self.waiting);
        let size = decision.len() + OVERHEAD;
        if waiting.bytes + size > MAX_BYTES {
            return false;
        }
        waiting.bytes += size;
        waiting.decisions.push_back((clock, decision));
        true
    }

    /// Puts decisions back that could not be given their rewards.
    pub fn put_back(&self, decisions: Vec<(u64, Box<[u8]>)>) {
        let mut waiting = lock(&self.waiting);
        for (clock, decision) in decisions.into_iter().rev() {
            waiting.bytes += decision.len() + OVERHEAD;
            waiting.decisions.push_front((clock, decision));
        }
    }

    /// The time of the first decision.
    pub fn first(&self) -> Option<u64> {
        lock(&self.waiting)
            .decisions
            .front()
            .map(|(clock, _)| *clock)
    }

    /// Takes up to `count` decisions that were made at a service-clock time or before.
    pub fn take(&self, until: u64, count: usize) -> Vec<(u64, Box<[u8]>)> {
        let mut waiting = lock(&self.waiting);
        let mut taken = Vec::new();
        while taken.len() < count
            && waiting
                .decisions
                .front()
                .is_some_and(|(clock, _)| *clock <= until)
            && let Some((clock, decision)) = waiting.decisions.pop_front()
        {
            waiting.bytes -= decision.len() + OVERHEAD;
            taken.push((clock, decision));
        }
        taken
    }

    /// The number of decisions that wait.
    pub fn len(&self) -> usize {
        lock(&self.waiting).decisions.len()
    }
}
