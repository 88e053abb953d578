//! Work that takes long for a handler, a few at a time and away from the threads that answer.
//!
//! Each kind of work has its own turns. A turn is taken before a thread is, and kept until the work is
//! done, also if the caller has left by then: so however many ask, and however long they wait for a
//! lock, there are never more threads at work than turns, and short requests are answered at once.

use std::num::NonZero;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::{App, Shared};
use crate::edge::ApiError;
use crate::engine::Engine;

/// Look-ups at once.
const LOOKS: usize = 4;

/// Backups and exports at once. They last as long as the reader takes, so they have turns of their own.
const DOWNLOADS: usize = 4;

/// A kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Looking something up that may take long.
    Look,
    /// Choosing among many items, or for many users.
    Recommend,
    /// Writing an answer that is read meanwhile.
    Download,
}

/// The semaphores that limit long work.
#[derive(Debug)]
pub(super) struct Turns {
    looks: Arc<Semaphore>,
    recommends: Arc<Semaphore>,
    downloads: Arc<Semaphore>,
}

impl Turns {
    pub(super) fn new() -> Self {
        let turns = |most| Arc::new(Semaphore::new(most));
        // More at once would not be faster.
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self {
            looks: turns(LOOKS),
            recommends: turns(cores.max(2)),
            downloads: turns(DOWNLOADS),
        }
    }

    fn of(&self, work: Work) -> &Arc<Semaphore> {
        match work {
            Work::Look => &self.looks,
            Work::Recommend => &self.recommends,
            Work::Download => &self.downloads,
        }
    }
}

/// Waits for a turn, then starts the work.
pub(super) async fn start<T: Send + 'static>(
    app: &Shared,
    work: Work,
    run: impl FnOnce(&App, &Engine) -> T + Send + 'static,
) -> Result<JoinHandle<Result<T, ApiError>>, ApiError> {
    app.ready()?;
    let turn = Arc::clone(app.turns.of(work)).acquire_owned().await;
    let turn = turn.map_err(|_| ApiError::internal())?;
    let app = Arc::clone(app);
    Ok(tokio::task::spawn_blocking(move || {
        let _turn = turn;
        Ok(run(&app, app.ready()?))
    }))
}

/// Waits for a turn, and for what the work gives.
pub(super) async fn aside<T: Send + 'static>(
    app: &Shared,
    work: Work,
    run: impl FnOnce(&App, &Engine) -> T + Send + 'static,
) -> Result<T, ApiError> {
    match start(app, work, run).await?.await {
        Ok(outcome) => outcome,
        // As if it had happened in the handler.
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(ApiError::overloaded("the server is closing")),
    }
}
