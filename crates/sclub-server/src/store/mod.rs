//! Storage: the log, snapshots, the journal, and backups.
//!
//! | | |
//! |---|---|
//! | [`Log`] | an ordered list of batches of bytes; [`Segments`] keeps one in the files of a folder |
//! | [`Folder`] | a data folder: log, journal, snapshots, identity, epochs |
//! | [`archive`] | a whole folder as one stream |

pub mod archive;
mod epochs;
mod files;
mod folder;
mod frame;
mod log;
mod segments;
mod snapshots;

use std::path::PathBuf;

pub use epochs::{Epoch, Epochs, Origin};
pub use files::SmallFile;
pub(crate) use folder::{COPIES, IMPORTING};
pub use folder::{Folder, STORE_PARTS};
pub use log::{AppendError, Batches, Follow, Followed, Log, Written};
pub use segments::Segments;
pub use snapshots::{SnapshotStore, Snapshots, WriteSnapshot};

/// An error of a data folder.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk is full, the folder is read-only, or the device failed.
    #[error("cannot write to {}: {reason}", file.display())]
    Write {
        /// The file or folder.
        file: PathBuf,
        /// The system's error.
        reason: String,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {reason}", file.display())]
    Read {
        /// The file or folder.
        file: PathBuf,
        /// The system's error.
        reason: String,
    },
    /// A file is damaged.
    #[error("{} is damaged: {reason}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The folder was written by another version, or is not a data folder.
    #[error("{} is in a format that this version does not read: {reason}", file.display())]
    Format {
        /// The file or folder.
        file: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Another process uses the folder.
    #[error("{} is in use by another server", .0.display())]
    InUse(PathBuf),
    /// The operation is not possible.
    #[error("{0}")]
    Refused(String),
}

impl From<AppendError> for StoreError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::NotWritten(error) | AppendError::Unknown(error) => error,
            other @ (AppendError::Conflict { .. } | AppendError::TooLarge) => {
                StoreError::Refused(other.to_string())
            }
        }
    }
}

/// The result of a full check.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checked {
    /// The number of files read.
    pub files: u64,
    /// The number of bytes read.
    pub bytes: u64,
}
