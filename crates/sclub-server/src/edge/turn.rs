//! The turn of a connection at the threads that answer requests.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::locks::lock;

/// The turn of a connection. It ends each time that the connection's task has to wait.
#[derive(Clone, Default)]
pub struct TurnSlot(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// True if a turn is needed. A connection of a server with one space looks at nothing else.
    is_needed: AtomicBool,
    slot: Mutex<Slot>,
}

type Waiting = BoxFuture<'static, Result<OwnedSemaphorePermit, AcquireError>>;

#[derive(Default)]
struct Slot {
    /// The turns of the space of the last request. `None` if none is needed.
    from: Option<Arc<Semaphore>>,
    waiting: Option<Waiting>,
    turn: Option<OwnedSemaphorePermit>,
}

impl TurnSlot {
    /// Sets the semaphore whose permits are the turns, for the request at hand and until the next request.
    pub fn take_from(&self, turns: Option<Arc<Semaphore>>) {
        if turns.is_none() && !self.0.is_needed.load(Relaxed) {
            return;
        }
        self.0.is_needed.store(turns.is_some(), Relaxed);
        let mut slot = lock(&self.0.slot);
        let is_same = match (&slot.from, &turns) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            (old, new) => old.is_none() && new.is_none(),
        };
        if !is_same {
            *slot = Slot {
                from: turns,
                ..Slot::default()
            };
        }
    }

    /// Waits for a turn, if one is needed and there is none yet.
    pub fn poll_turn(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.0.is_needed.load(Relaxed) {
            return Poll::Ready(());
        }
        let mut slot = lock(&self.0.slot);
        let slot = &mut *slot;
        let Some(from) = &slot.from else {
            return Poll::Ready(());
        };
        if slot.turn.is_none() {
            let waiting = match &mut slot.waiting {
                Some(waiting) => waiting,
                none => match Arc::clone(from).try_acquire_owned() {
                    Ok(turn) => {
                        slot.turn = Some(turn);
                        return Poll::Ready(());
                    }
                    Err(_) => none.insert(Box::pin(Arc::clone(from).acquire_owned())),
                },
            };
            // The semaphore is never closed.
            slot.turn = ready!(Pin::new(waiting).poll(cx)).ok();
            slot.waiting = None;
        }
        Poll::Ready(())
    }

    /// Ends the turn.
    pub fn end(&self) {
        if self.0.is_needed.load(Relaxed) {
            lock(&self.0.slot).turn = None;
        }
    }
}

impl std::fmt::Debug for TurnSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TurnSlot")
    }
}
