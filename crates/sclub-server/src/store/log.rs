//! The log: an ordered list of batches of bytes.

use std::fmt;

use super::StoreError;

/// Batches in order, each with its number.
pub type Batches = Box<dyn Iterator<Item = Result<(u64, Vec<u8>), StoreError>> + Send>;

/// Why a batch was not appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The last batch is not the expected one: somebody else has written.
    #[error("the last batch is {last}")]
    Conflict {
        /// The number of the last batch.
        last: u64,
    },
    /// The batch is not in the log and will not be.
    #[error(transparent)]
    NotWritten(StoreError),
    /// The batch may be in the log. The next append that succeeds with the same `expected_last`
    /// makes it void.
    #[error(transparent)]
    Unknown(StoreError),
}

/// An ordered list of batches of bytes, numbered from 1 without gaps, with one writer.
///
/// A batch counts once [`Log::append`] has returned; then it survives the end of the process and of
/// the machine.
pub trait Log: fmt::Debug + Send + Sync {
    /// Appends a batch as number `expected_last + 1`, if the last one is `expected_last`.
    ///
    /// An empty batch appends nothing. It makes void what a failed append may have left after
    /// `expected_last`, and sees to it that later batches share no file with earlier ones, so that
    /// [`Log::drop_before`] can remove all of the earlier ones.
    ///
    /// # Errors
    /// See [`AppendError`].
    fn append(&self, expected_last: u64, batch: &[u8]) -> Result<(), AppendError>;

    /// The batches after a number, up to those being appended right now: a caller stops at the last
    /// one that it knows to be appended. What is dropped meanwhile can still be read.
    ///
    /// # Errors
    /// If a batch was dropped, or a file cannot be read; also from the iterator, which ends with it.
    fn read(&self, after: u64) -> Result<Batches, StoreError>;

    /// Removes the batches before a number, as far as they share no file with later ones.
    ///
    /// # Errors
    /// If a file cannot be removed. It can be tried again.
    fn drop_before(&self, number: u64) -> Result<(), StoreError>;
}
