//! Work on threads of its own, while the thread that asked for it looks for Ctrl-C.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use sclub_lab::run::Observer;

use super::halt::Halt;

/// The interval at which the calling thread checks for Ctrl-C and reports progress.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The progress of some work, and the exception that stops it.
#[derive(Default)]
pub struct Watched {
    /// The exception that stops the work.
    pub halt: Arc<Halt>,
    /// True if Python code runs on its threads.
    pub has_guests: bool,
    /// Rounds played.
    pub done: AtomicU64,
    /// Rounds in all.
    pub total: AtomicU64,
}

impl Observer for Watched {
    fn played(&self, rounds: u64) {
        self.done.fetch_add(rounds, Ordering::Relaxed);
    }

    fn on_thread(&self, thread: rayon::ThreadBuilder) {
        if self.has_guests {
            // Known to Python once and for all: to a guest it is the same thread at every call.
            Python::attach(|py| py.detach(|| thread.run()));
        } else {
            thread.run();
        }
    }

    fn is_cancelled(&self) -> bool {
        self.halt.is_stopped()
    }
}

impl Watched {
    /// Rounds played so far, and those that there will be in all.
    fn progress(&self) -> (u64, u64) {
        let done = self.done.load(Ordering::Relaxed);
        (done, self.total.load(Ordering::Relaxed))
    }
}

/// Does some work on another thread. `watch` is called with the rounds played and those in all, by the thread that
/// called. An exception of the work, of `watch` or of Ctrl-C is raised when the work has ended.
pub fn work<T: Send + 'static>(
    py: Python<'_>,
    watched: &Watched,
    watch: &Bound<'_, PyAny>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name("sclub lab".into())
        .spawn(move || {
            // It fails only if the caller has panicked.
            let _ = sender.send(work());
        })?;
    let receiver = Mutex::new(receiver);
    let outcome = loop {
        let heard = py.detach(|| {
            let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            receiver.recv_timeout(CHECK_INTERVAL)
        });
        match heard {
            Ok(outcome) => break Some(outcome),
            Err(mpsc::RecvTimeoutError::Disconnected) => break None,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let looked = py
                    .check_signals()
                    .and_then(|()| watch.call1(watched.progress()).map(|_| ()));
                if let Err(error) = looked {
                    watched.halt.fail(error);
                }
            }
        }
    };
    let ended = py.detach(|| thread.join());
    if let Some(error) = watched.halt.take() {
        return Err(error);
    }
    let (Some(outcome), Ok(())) = (outcome, ended) else {
        return Err(PyRuntimeError::new_err(
            "the run panicked; this is a bug in sclub, please report it",
        ));
    };
    watch.call1(watched.progress())?;
    Ok(outcome)
}
