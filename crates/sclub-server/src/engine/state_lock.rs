//! The locks of the state.

use std::sync::{RwLock, RwLockReadGuard};

use crate::locks::{read, write};
use crate::state::State;

/// The state, read by many threads and changed by one.
///
/// A read-write lock lets no more readers in while a writer waits for it. So a long read keeps the writer out
/// with a second lock (`long`): then recommendations never wait for a long read. Long reads share it, because those of
/// all partitions read one catalogue.
#[derive(Debug)]
pub(super) struct StateLock {
    state: RwLock<State>,
    long: RwLock<()>,
}

impl StateLock {
    pub fn new(state: State) -> Self {
        Self {
            state: RwLock::new(state),
            long: RwLock::default(),
        }
    }

    /// A short read.
    pub fn read(&self) -> RwLockReadGuard<'_, State> {
        read(&self.state)
    }

    /// A long read.
    pub fn read_long<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        let _long = read(&self.long);
        look(&self.read())
    }

    /// A change, by the owner of the log only.
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let _long = write(&self.long);
        change(&mut write(&self.state))
    }
}
