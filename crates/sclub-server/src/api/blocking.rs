//! Long work of handlers, on threads of its own and with limited concurrency.
//!
//! Each kind of work has a semaphore. A permit is acquired before a thread is, and held until the work is
//! done, even if the client has disconnected by then. So there are never more threads at work than permits,
//! however many requests come and however long they wait for a lock, and short requests are answered at
//! once.

use std::num::NonZero;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::{App, Shared};
use crate::edge::ApiError;
use crate::engine::Engine;

/// The maximum number of concurrent look-ups.
const MAX_LOOKS: usize = 4;

/// The maximum number of concurrent backups and exports. They take as long as the client reads, so they have
/// permits of their own.
const MAX_DOWNLOADS: usize = 4;

/// A kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// A look-up that may take long.
    Look,
    /// A choice among many items, or for many users.
    Recommend,
    /// An answer that is written while it is sent.
    Download,
}

/// The semaphores that limit long work.
#[derive(Debug)]
pub(super) struct Permits {
    looks: Arc<Semaphore>,
    recommends: Arc<Semaphore>,
    downloads: Arc<Semaphore>,
}

impl Permits {
    pub(super) fn new() -> Self {
        let permits = |max| Arc::new(Semaphore::new(max));
        // More at once would not be faster.
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self {
            looks: permits(MAX_LOOKS),
            recommends: permits(cores.max(2)),
            downloads: permits(MAX_DOWNLOADS),
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

/// Waits for a permit, then starts the work.
pub(super) async fn start<T: Send + 'static>(
    app: &Shared,
    work: Work,
    run: impl FnOnce(&App, &Engine) -> T + Send + 'static,
) -> Result<JoinHandle<Result<T, ApiError>>, ApiError> {
    app.ready()?;
    let permit = Arc::clone(app.permits.of(work)).acquire_owned().await;
    let permit = permit.map_err(|_| ApiError::internal())?;
    let app = Arc::clone(app);
    Ok(tokio::task::spawn_blocking(move || {
        let _permit = permit;
        Ok(run(&app, app.ready()?))
    }))
}

/// Waits for a permit, then for the result of the work.
pub(super) async fn run_blocking<T: Send + 'static>(
    app: &Shared,
    work: Work,
    run: impl FnOnce(&App, &Engine) -> T + Send + 'static,
) -> Result<T, ApiError> {
    if Handle::try_current().is_err() {
        // A simulation has one thread for everything.
        return Ok(run(app, app.ready()?));
    }
    match start(app, work, run).await?.await {
        Ok(outcome) => outcome,
        // Panics as if the work had run in the handler.
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(ApiError::overloaded("the server is shutting down")),
    }
}
