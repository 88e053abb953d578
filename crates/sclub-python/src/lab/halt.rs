//! The exception that stops a run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::PyErr;

/// The first exception of a run, shared by all threads.
#[derive(Default)]
pub struct Halt {
    stopped: AtomicBool,
    error: Mutex<Option<PyErr>>,
}

impl Halt {
    /// Stops the run. Of several exceptions the first is kept.
    pub fn fail(&self, error: PyErr) {
        let mut kept = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_or_insert(error);
        self.stopped.store(true, Ordering::Release);
    }

    /// True after an exception.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// The exception, if there was one.
    pub fn take(&self) -> Option<PyErr> {
        let mut kept = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        kept.take()
    }
}
