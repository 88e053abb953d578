//! The threads that compute the fits of all spaces.

use std::sync::{Arc, Mutex};

use sclub::Workers;

use crate::engine::Threads;
use crate::locks::lock;

/// The threads that all spaces share for fits. The pieces of one fit are computed at a time, so there are never more
/// threads at work than for one space.
#[derive(Debug)]
pub(super) struct FitPool {
    threads: Threads,
    turn: Mutex<()>,
}

/// The pool, as a space sees it.
#[derive(Debug)]
pub(super) struct Share(Arc<FitPool>);

impl FitPool {
    pub fn new(threads: usize) -> Self {
        Self {
            threads: Threads::new(threads),
            turn: Mutex::default(),
        }
    }

    pub fn share(pool: &Arc<Self>) -> Share {
        Share(Arc::clone(pool))
    }
}

impl Workers for Share {
    fn each(&self, pieces: usize, work: &(dyn Fn(usize) + Sync)) {
        let _turn = lock(&self.0.turn);
        self.0.threads.each(pieces, work);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    #[test]
    fn fits_of_all_spaces_have_the_threads_of_one() {
        let pool = Arc::new(FitPool::new(2));
        let (running, most, done) = Default::default();
        let count = |running: &AtomicUsize, most: &AtomicUsize, done: &AtomicUsize| {
            most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
            std::thread::yield_now();
            running.fetch_sub(1, SeqCst);
            done.fetch_add(1, SeqCst);
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let share = FitPool::share(&pool);
                let (running, most, done) = (&running, &most, &done);
                scope.spawn(move || share.each(200, &|_| count(running, most, done)));
            }
        });
        assert_eq!(done.load(SeqCst), 800);
        assert!(most.load(SeqCst) <= 2, "{most:?}");
    }
}
