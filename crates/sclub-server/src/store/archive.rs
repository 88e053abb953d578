//! The format of a backup: a data folder as one stream.
//!
//! The stream is a mark with the version, then *frames*: kind (1 byte), number (8), length (8), bytes, and a
//! checksum over all of these and the checksum before (32). The last frame is an end mark, so that a
//! truncated stream is detected.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use super::StoreError;

/// The version that is written.
pub const VERSION: u8 = 2;
const MARK: &[u8; 13] = b"sclub backup ";
const SUM: usize = 32;
/// The maximum length of a frame, so that a damaged length cannot cause a huge allocation.
const MAX_FRAME: u64 = 1 << 31;
/// The number of bytes of a snapshot in a frame.
const PIECE: usize = 1 << 20;

/// The contents of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The identity of the folder.
    Identity = 1,
    /// Version 1: the number of times that the folder was opened.
    OldEpoch,
    /// Version 1: the event up to which the log was rewritten.
    OldBase,
    /// Version 1: a list of events from the number on.
    OldEvents,
    /// Version 1: a list of decisions.
    OldNotes,
    /// A snapshot begins; the number is that of its last batch (version 1: event).
    SnapshotStart,
    /// Bytes of the snapshot.
    SnapshotPiece,
    /// The snapshot ends.
    SnapshotEnd,
    /// The stream ends.
    End,
    /// The epochs of the folder.
    Epochs,
    /// A batch of the log.
    Batch,
    /// A batch of the journal.
    Journal,
}

const KINDS: [Kind; 12] = [
    Kind::Identity,
    Kind::OldEpoch,
    Kind::OldBase,
    Kind::OldEvents,
    Kind::OldNotes,
    Kind::SnapshotStart,
    Kind::SnapshotPiece,
    Kind::SnapshotEnd,
    Kind::End,
    Kind::Epochs,
    Kind::Batch,
    Kind::Journal,
];

fn mark(version: u8) -> [u8; 16] {
    let mut mark = *b"sclub backup  0\n";
    mark[14] = b'0' + version;
    mark
}

/// Writes a stream.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    sum: [u8; SUM],
}

impl<W: Write> Writer<W> {
    /// Begins a stream.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn new(mut out: W) -> Result<Self, StoreError> {
        let mark = mark(VERSION);
        out.write_all(&mark).map_err(unwritable)?;
        let sum = *blake3::hash(&mark).as_bytes();
        Ok(Self { out, sum })
    }

    /// Writes a frame.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn frame(&mut self, kind: Kind, number: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let mut head = [0; 17];
        head[0] = kind as u8;
        head[1..9].copy_from_slice(&number.to_le_bytes());
        head[9..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.sum = sum(&self.sum, &head, bytes);
        self.out
            .write_all(&head)
            .and_then(|()| self.out.write_all(bytes))
            .and_then(|()| self.out.write_all(&self.sum))
            .map_err(unwritable)
    }

    /// Writes a snapshot.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub fn snapshot(&mut self, at: u64, from: &mut dyn Read) -> Result<(), StoreError> {
        self.frame(Kind::SnapshotStart, at, &[])?;
        let mut piece = Vec::with_capacity(PIECE);
        loop {
            piece.clear();
            let read = (&mut *from).take(PIECE as u64).read_to_end(&mut piece);
            read.map_err(|error| StoreError::Read {
                file: PathBuf::from(format!("the snapshot at {at}")),
                reason: error.to_string(),
            })?;
            if piece.is_empty() {
                return self.frame(Kind::SnapshotEnd, at, &[]);
            }
            self.frame(Kind::SnapshotPiece, at, &piece)?;
        }
    }

    /// Ends the stream. Without it the stream counts as cut.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(mut self) -> Result<(), StoreError> {
        self.frame(Kind::End, 0, &[])?;
        self.out.flush().map_err(unwritable)
    }
}

/// Reads a stream frame by frame. No frame may be trusted before the end mark was read.
pub struct Frames<'a> {
    from: &'a mut dyn Read,
    sum: [u8; SUM],
    bytes: Vec<u8>,
    /// The version of the stream.
    pub version: u8,
}

impl std::fmt::Debug for Frames<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frames").finish_non_exhaustive()
    }
}

impl<'a> Frames<'a> {
    /// Begins to read.
    ///
    /// # Errors
    /// If it is not a backup, or one of a newer version.
    pub fn new(from: &'a mut dyn Read) -> Result<Self, StoreError> {
        let mut found = [0; 16];
        from.read_exact(&mut found).map_err(unreadable)?;
        let format = |reason: String| StoreError::Format {
            file: name(),
            reason,
        };
        if found[..13] != *MARK {
            return Err(format("this is not a backup of sclub".into()));
        }
        let version = (1..=VERSION).find(|&version| found == mark(version));
        let Some(version) = version else {
            let found = String::from_utf8_lossy(&found[13..]);
            return Err(format(format!(
                "it was written by a newer version (format {}; this version supports 1 to {VERSION})",
                found.trim()
            )));
        };
        Ok(Self {
            sum: *blake3::hash(&found).as_bytes(),
            from,
            bytes: Vec::new(),
            version,
        })
    }

    /// The next frame. After the end mark nothing may follow.
    ///
    /// # Errors
    /// If the stream is damaged or cut.
    pub fn frame(&mut self) -> Result<(Kind, u64, &[u8]), StoreError> {
        let mut head = [0; 17];
        self.from.read_exact(&mut head).map_err(unreadable)?;
        let number = u64::from_le_bytes(head[1..9].try_into().expect("eight bytes"));
        let length = u64::from_le_bytes(head[9..].try_into().expect("eight bytes"));
        if length > MAX_FRAME {
            return Err(damaged("a length is invalid"));
        }
        self.bytes.clear();
        let read = (&mut self.from).take(length).read_to_end(&mut self.bytes);
        read.map_err(unreadable)?;
        let mut written = [0; SUM];
        self.from.read_exact(&mut written).map_err(unreadable)?;
        self.sum = sum(&self.sum, &head, &self.bytes);
        if self.bytes.len() as u64 != length || written != self.sum {
            return Err(damaged("a checksum does not match"));
        }
        let kind = KINDS.iter().find(|kind| **kind as u8 == head[0]);
        let kind = *kind.ok_or_else(|| damaged("a frame has an unknown kind"))?;
        if kind == Kind::End && self.from.read(&mut [0]).map_err(unreadable)? != 0 {
            return Err(damaged("there are bytes after its end"));
        }
        Ok((kind, number, &self.bytes))
    }

    /// The snapshot that has just begun.
    pub fn snapshot(&mut self) -> Pieces<'_, 'a> {
        Pieces {
            frames: self,
            used: 0,
            is_over: false,
            error: None,
        }
    }
}

/// Reads the snapshot in a stream.
#[derive(Debug)]
pub struct Pieces<'f, 'a> {
    frames: &'f mut Frames<'a>,
    used: usize,
    is_over: bool,
    /// The reason why it could not be read to its end.
    pub error: Option<StoreError>,
}

impl Read for Pieces<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while !self.is_over && self.used == self.frames.bytes.len() {
            let error = match self.frames.frame() {
                Ok((Kind::SnapshotPiece, ..)) => None,
                Ok((Kind::SnapshotEnd, ..)) => {
                    self.is_over = true;
                    None
                }
                Ok(_) => Some(damaged("a snapshot has no end")),
                Err(error) => Some(error),
            };
            if let Some(error) = error {
                let text = error.to_string();
                self.error = Some(error);
                return Err(io::Error::other(text));
            }
            self.used = 0;
        }
        let rest = &self.frames.bytes[self.used..];
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        self.used += count;
        Ok(count)
    }
}

/// Decodes a list of byte strings of version 1: their number, then each with its length in front.
///
/// # Errors
/// If the list is malformed.
pub fn old_rows(bytes: &[u8]) -> Result<Vec<&[u8]>, StoreError> {
    fn number<'a>(bytes: &mut &'a [u8]) -> Option<usize> {
        let (number, rest): (&'a [u8; 4], _) = bytes.split_first_chunk()?;
        *bytes = rest;
        Some(u32::from_le_bytes(*number) as usize)
    }
    let mut rest = bytes;
    let mut rows = || -> Option<Vec<&[u8]>> {
        let count = number(&mut rest)?;
        let mut rows = Vec::new();
        for _ in 0..count {
            let length = number(&mut rest)?;
            let (row, after) = rest.split_at_checked(length)?;
            rows.push(row);
            rest = after;
        }
        Some(rows)
    };
    rows().ok_or_else(|| damaged("a list is truncated"))
}

fn sum(before: &[u8; SUM], head: &[u8], bytes: &[u8]) -> [u8; SUM] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(before).update(head).update(bytes);
    *hasher.finalize().as_bytes()
}

fn name() -> PathBuf {
    PathBuf::from("the backup")
}

/// The error for a damaged backup.
pub fn damaged(reason: impl Into<String>) -> StoreError {
    StoreError::Damaged {
        file: name(),
        reason: reason.into(),
    }
}

fn unreadable(error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged("it ends too early"),
        _ => StoreError::Read {
            file: name(),
            reason: error.to_string(),
        },
    }
}

fn unwritable(error: io::Error) -> StoreError {
    StoreError::Write {
        file: name(),
        reason: error.to_string(),
    }
}
