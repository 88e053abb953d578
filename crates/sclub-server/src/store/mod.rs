//! Where everything is kept: the log, snapshots, the journal, and copies of them.
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
pub use folder::Folder;
pub use log::{AppendError, Batches, Log};
pub use segments::Segments;
pub use snapshots::Snapshots;

/// What went wrong with a data folder.
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

impl From<AppendError> for StoreError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::NotWritten(error) | AppendError::Unknown(error) => error,
            conflict @ AppendError::Conflict { .. } => StoreError::Refused(conflict.to_string()),
        }
    }
}

/// What a full check found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checked {
    /// Files read.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
}
