//! The log: an ordered list of batches of bytes.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::StoreError;
use crate::cluster::bus::BusError;

/// Batches in order, each with its number.
pub type Batches = Box<dyn Iterator<Item = Result<(u64, Vec<u8>), StoreError>> + Send>;

/// The reason why a batch was not appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The last batch is not the expected one: there is another writer.
    #[error("the last batch is {last}")]
    Conflict {
        /// The number of the last batch.
        last: u64,
    },
    /// The batch is not in the log and will not be.
    #[error(transparent)]
    NotWritten(StoreError),
    /// The batch is larger than the log allows. It is not in the log and will not be.
    #[error("the batch is larger than the log allows")]
    TooLarge,
    /// The batch may be in the log. The next append that succeeds with the same `expected_last`
    /// makes it void.
    #[error(transparent)]
    Unknown(StoreError),
}

/// The future result of a write.
pub type Written<'a, E> = Pin<Box<dyn Future<Output = Result<(), E>> + Send + 'a>>;

/// The future result of [`Log::follow`].
pub type Follow<'a> = Pin<Box<dyn Future<Output = Result<Followed, BusError>> + Send + 'a>>;

/// Batches with their numbers, as they are appended.
pub type Followed = mpsc::Receiver<Result<(u64, Bytes), BusError>>;

/// An ordered list of batches of bytes, numbered from 1 without gaps, with one writer.
///
/// A batch is durable once [`Log::append`] has returned: it survives a crash of the process and of the machine.
pub trait Log: fmt::Debug + Send + Sync {
    /// Appends a batch as number `expected_last + 1`, if the last one is `expected_last`.
    ///
    /// An empty batch appends nothing. It makes the remains of a failed append after `expected_last` void, and
    /// begins a new file, so that [`Log::drop_before`] can remove all earlier batches.
    ///
    /// # Errors
    /// See [`AppendError`].
    fn append(&self, expected_last: u64, batch: Bytes) -> Written<'_, AppendError>;

    /// Removes the files that have only batches before a number.
    ///
    /// # Errors
    /// If a file cannot be removed. It can be retried.
    fn drop_before(&self, number: u64) -> Written<'_, StoreError>;

    /// The batches after a number. The last ones may be in the middle of an append: a caller must stop at the
    /// last batch that it knows to be appended. Batches that are dropped meanwhile can still be read.
    ///
    /// # Errors
    /// If a batch was dropped, or a file cannot be read. The iterator can also return an error, and ends then.
    fn read(&self, after: u64) -> Result<Batches, StoreError>;

    /// The number of the first batch that can be read; one more than the last if there is none.
    ///
    /// # Errors
    /// If it cannot be read.
    fn first(&self) -> Result<u64, StoreError>;

    /// The files that are no longer written: the number after their last batch, and their length. `None` if the log
    /// is not kept in files: then it can be dropped before any batch.
    ///
    /// # Errors
    /// If they cannot be read.
    fn closed(&self) -> Result<Option<Vec<(u64, u64)>>, StoreError>;

    /// The batches after a number, also those that other writers append later. The receiver gets an error and no
    /// more batches if it cannot go on.
    ///
    /// # Errors
    /// If the log has no other writers, or cannot be read.
    fn follow(&self, after: u64) -> Follow<'_>;

    /// Takes note of a batch that was applied. It will be read soon.
    fn remember(&self, _number: u64, _batch: &Bytes) {}
}
