//! The state behind its locks.

use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

use crate::state::State;

/// The state, read by many and changed by one.
///
/// A lock that a writer waits for lets no more readers in. So whoever looks for long keeps the writer
/// out with a lock of its own (`long`), and those who recommend never wait for a long look.
#[derive(Debug)]
pub(super) struct Shelf {
    state: RwLock<State>,
    long: Mutex<()>,
}

impl Shelf {
    pub fn new(state: State) -> Self {
        Self {
            state: RwLock::new(state),
            long: Mutex::default(),
        }
    }

    /// For a short look.
    pub fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a look that takes long.
    pub fn study<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        let _long = super::lock(&self.long);
        look(&self.read())
    }

    /// For the owner of the log.
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let _long = super::lock(&self.long);
        change(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }
}
