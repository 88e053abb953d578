//! Decisions that wait for their rewards, to be given assumed ones (`--unanswered`, `--after`).
//!
//! A decision waits here once it is in the journal, so that a crash changes nothing: when the server starts, those that
//! still have time are read from the journal again. The owner of the log takes those whose time is over and logs their
//! rewards as events. An item that has its reward by then is skipped, so each counts once.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::lock;

/// The memory for decisions that wait, in bytes. If it is full, further decisions get no assumed reward: were the oldest
/// dropped instead, on a busy server none would ever wait long enough.
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

    /// Adds an encoded decision that is read from the journal. The oldest make room for it. Returns the number that were
    /// dropped.
    pub fn add_newest(&self, clock: u64, decision: Box<[u8]>) -> u64 {
        let mut waiting = lock(&self.waiting);
        waiting.bytes += decision.len() + OVERHEAD;
        waiting.decisions.push_back((clock, decision));
        let mut dropped = 0;
        while waiting.bytes > MAX_BYTES
            && let Some((_, oldest)) = waiting.decisions.pop_front()
        {
            waiting.bytes -= oldest.len() + OVERHEAD;
            dropped += 1;
        }
        dropped
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_recalled_decisions_the_oldest_make_room_and_of_new_ones_the_newest_do() {
        const COUNT: u64 = 4;
        let each = || vec![0; MAX_BYTES / COUNT as usize - OVERHEAD].into_boxed_slice();
        let waiting = Unanswered::default();
        let dropped = (0..COUNT + 1).map(|clock| waiting.add_newest(clock, each()));
        assert_eq!(dropped.collect::<Vec<_>>(), [0, 0, 0, 0, 1]);
        assert_eq!((waiting.first(), waiting.len()), (Some(1), 4));
        assert!(!waiting.add(9, each()));
        assert_eq!(waiting.take(2, 9).len(), 2);
        assert!(waiting.add(9, each()) && waiting.add(9, each()) && !waiting.add(9, each()));
        let left = waiting.take(u64::MAX, 9);
        let clocks: Vec<u64> = left.iter().map(|(clock, _)| *clock).collect();
        assert_eq!(clocks, [3, 4, 9, 9]);
    }
}
