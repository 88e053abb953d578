//! Where events are kept.
//!
//! A [`Store`] keeps an ordered list of *events* (bytes, numbered from 1), *notes* (bytes without a
//! number, kept beside the events), *snapshots* (the state after some event, as bytes), and one
//! *identity* (bytes written once). What [`Store::append`] has returned from survives the end of the
//! process and of the machine.

mod archive;
#[doc(hidden)]
pub mod contract;
pub mod faulty;
pub mod folder;
pub mod memory;
mod rows;

use std::fmt;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// What went wrong with a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk is full, the folder is read-only, or the device failed.
    #[error("cannot write to {}: {reason}", file.display())]
    Write {
        /// Which file or folder.
        file: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {reason}", file.display())]
    Read {
        /// Which file or folder.
        file: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// A file is not as it was written.
    #[error("{} is damaged: {reason}", file.display())]
    Damaged {
        /// Which file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The folder was written by another version, or is not one of ours.
    #[error("{} is in a format that this version does not read: {reason}", file.display())]
    Format {
        /// Which file or folder.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Another process uses the folder.
    #[error("{} is in use by another server", .0.display())]
    InUse(PathBuf),
    /// What was asked for cannot be done.
    #[error("{0}")]
    Refused(String),
}

/// Something a store keeps, when it is rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row<'a> {
    /// The event of this number. Bytes are empty where the event was dropped before.
    Event(u64, &'a [u8]),
    /// A note.
    Note(&'a [u8]),
}

/// What becomes of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It stays as it is.
    Keep,
    /// It goes. An event leaves its number behind, with no bytes.
    Drop,
    /// It is replaced by these bytes.
    Replace(Vec<u8>),
}

/// Called with each row of a kind, in order.
pub type Visit<'a> = dyn FnMut(u64, &[u8]) -> Result<(), StoreError> + 'a;

/// What a full check found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checked {
    /// Files read.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Events found.
    pub events: u64,
}

/// Keeps events, notes, snapshots and an identity.
///
/// One thread appends; any number of threads read at the same time.
pub trait Store: Send + Sync + fmt::Debug {
    /// The bytes that [`Store::set_identity`] was given, if it has been called.
    ///
    /// # Errors
    /// Where they cannot be read.
    fn identity(&self) -> Result<Option<Vec<u8>>, StoreError>;

    /// Keeps the identity. Durable when it returns.
    ///
    /// # Errors
    /// Where it cannot be written, or there is one already.
    fn set_identity(&self, identity: &[u8]) -> Result<(), StoreError>;

    /// How often the store has been opened for writing, this time included: from 1, never the same
    /// twice, also after a crash.
    fn epoch(&self) -> u64;

    /// The number of the last event, 0 where there is none.
    fn last(&self) -> u64;

    /// Appends events, numbered on from [`Store::last`], and notes, which count as written before
    /// these events. All of them are durable when it returns; on an error none is kept, unless
    /// [`Store::recover`] says otherwise. An event has at least one byte: one without was dropped.
    ///
    /// # Errors
    /// Where they cannot be written.
    fn append(&self, events: &[&[u8]], notes: &[&[u8]]) -> Result<(), StoreError>;

    /// After a failed [`Store::append`]: makes the store usable again if that is possible, and
    /// returns the number of the last event that is durable: the one before the failed call, or the
    /// last one of it.
    ///
    /// # Errors
    /// Where the store still cannot be written.
    fn recover(&self) -> Result<u64, StoreError>;

    /// Visits the events with numbers above `after`, in order. Dropped ones have no bytes.
    ///
    /// # Errors
    /// Where one is missing or damaged, or `visit` says so.
    fn events(&self, after: u64, visit: &mut Visit<'_>) -> Result<(), StoreError>;

    /// Visits the notes in the order in which they were written, each with the number of the last
    /// event before it.
    ///
    /// # Errors
    /// Where one is damaged, or `visit` says so.
    fn notes(&self, visit: &mut Visit<'_>) -> Result<(), StoreError>;

    /// Keeps a snapshot of the state after event `at`, written by `write` piece by piece. Durable and
    /// whole when it returns; on an error there is none. Earlier snapshots may go, but for that at
    /// [`Store::base`].
    ///
    /// # Errors
    /// Where it cannot be written.
    fn put_snapshot(
        &self,
        at: u64,
        write: &mut dyn FnMut(&mut dyn Write) -> std::io::Result<()>,
    ) -> Result<(), StoreError>;

    /// The events after which there is a snapshot, in rising order.
    ///
    /// # Errors
    /// Where the folder cannot be read.
    fn snapshots(&self) -> Result<Vec<u64>, StoreError>;

    /// Opens the snapshot after event `at`. The reader ends with an error if what it read is not what
    /// was written; it must be read to its end before what it gave is trusted.
    ///
    /// # Errors
    /// Where there is none, or it cannot be read.
    fn open_snapshot(&self, at: u64) -> Result<Box<dyn Read + Send>, StoreError>;

    /// The event from which on nothing was dropped or replaced: 0 in a store that has never been
    /// rewritten. If it is not 0 there is a snapshot at it.
    fn base(&self) -> u64;

    /// Rewrites every event up to and including `upto`, and every note written before that event, as
    /// `fate` says; [`Store::base`] is `upto` from then on. There must be a snapshot at `upto`;
    /// snapshots before it go. When it returns, no byte of what was dropped or replaced is in any
    /// file of the store. After a crash in the middle the store opens as before or after, or partly
    /// rewritten, with `upto` as its base, and can be rewritten again.
    ///
    /// Events may be appended meanwhile.
    ///
    /// # Errors
    /// Where there is no such snapshot, or something cannot be read or written.
    fn rewrite(
        &self,
        upto: u64,
        fate: &mut dyn FnMut(Row<'_>) -> Result<Fate, StoreError>,
    ) -> Result<(), StoreError>;

    /// Writes a copy of everything durable at the time of the call into `out`, in the format that
    /// [`folder::restore`] reads. Events may be appended meanwhile.
    ///
    /// # Errors
    /// Where something cannot be read, or `out` cannot be written.
    fn backup(&self, out: &mut dyn Write) -> Result<(), StoreError>;

    /// Reads and checks every byte that is kept.
    ///
    /// # Errors
    /// Names the first file that is damaged.
    fn check(&self) -> Result<Checked, StoreError>;

    /// Bytes on disk.
    fn bytes(&self) -> u64;

    /// Leaves the store in the state that is checked most strictly when it is opened again. Nothing
    /// can be appended afterwards.
    ///
    /// # Errors
    /// Where something cannot be written; nothing durable is lost then.
    fn close(&self) -> Result<(), StoreError>;

    /// Where it is, if it is on a disk.
    fn folder(&self) -> Option<&Path> {
        None
    }
}
