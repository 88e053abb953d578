//! A whole store as one stream: what [`Store::backup`](super::Store::backup) writes.
//!
//! The stream is a mark, then *frames*: kind, number, length, bytes, and a sum over all of these and
//! the sum before. The last frame is the end mark, so that a stream that was cut is seen, and its
//! sum covers every byte of the stream.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::{StoreError, rows};

const MARK: &[u8; 16] = b"sclub backup  1\n";
const SUM: usize = 32;
/// No frame is longer: what a damaged length can ask for is bounded.
const MAX_FRAME: u64 = 1 << 31;
/// How much of a snapshot goes into a frame.
const PIECE: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Identity = 1,
    Epoch,
    Base,
    Events,
    Notes,
    SnapshotStart,
    SnapshotPiece,
    SnapshotEnd,
    End,
}

const KINDS: [Kind; 9] = [
    Kind::Identity,
    Kind::Epoch,
    Kind::Base,
    Kind::Events,
    Kind::Notes,
    Kind::SnapshotStart,
    Kind::SnapshotPiece,
    Kind::SnapshotEnd,
    Kind::End,
];

/// Writes a store into a stream.
#[derive(Debug)]
pub(super) struct Writer<W> {
    out: W,
    sum: [u8; SUM],
}

impl<W: Write> Writer<W> {
    pub fn new(mut out: W, epoch: u64, base: u64) -> Result<Self, StoreError> {
        out.write_all(MARK).map_err(unwritable)?;
        let mut writer = Self {
            out,
            sum: *blake3::hash(MARK).as_bytes(),
        };
        writer.frame(Kind::Epoch, epoch, &[])?;
        writer.frame(Kind::Base, base, &[])?;
        Ok(writer)
    }

    pub fn identity(&mut self, identity: &[u8]) -> Result<(), StoreError> {
        self.frame(Kind::Identity, 0, identity)
    }

    /// Events numbered from `first` on.
    pub fn events(&mut self, first: u64, events: &[&[u8]]) -> Result<(), StoreError> {
        self.rows(Kind::Events, first, events)
    }

    /// Notes written after the event `after`.
    pub fn notes(&mut self, after: u64, notes: &[&[u8]]) -> Result<(), StoreError> {
        self.rows(Kind::Notes, after, notes)
    }

    pub fn snapshot(&mut self, at: u64, from: &mut dyn Read) -> Result<(), StoreError> {
        self.frame(Kind::SnapshotStart, at, &[])?;
        let mut piece = Vec::with_capacity(PIECE);
        loop {
            piece.clear();
            (&mut *from)
                .take(PIECE as u64)
                .read_to_end(&mut piece)
                .map_err(|e| StoreError::Read {
                    file: PathBuf::from(format!("the snapshot at {at}")),
                    reason: e.to_string(),
                })?;
            if piece.is_empty() {
                return self.frame(Kind::SnapshotEnd, at, &[]);
            }
            self.frame(Kind::SnapshotPiece, at, &piece)?;
        }
    }

    /// Ends the stream. Without it the stream counts as cut.
    pub fn finish(mut self) -> Result<(), StoreError> {
        self.frame(Kind::End, 0, &[])?;
        self.out.flush().map_err(unwritable)
    }

    fn rows(&mut self, kind: Kind, number: u64, rows: &[&[u8]]) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        rows::put(&mut bytes, rows.iter().copied());
        self.frame(kind, number, &bytes)
    }

    fn frame(&mut self, kind: Kind, number: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let head = head(kind as u8, number, bytes.len() as u64);
        self.sum = sum(&self.sum, &head, bytes);
        self.out
            .write_all(&head)
            .and_then(|()| self.out.write_all(bytes))
            .and_then(|()| self.out.write_all(&self.sum))
            .map_err(unwritable)
    }
}

/// Takes what a stream holds. Nothing of it may be trusted until [`read`] has returned.
pub(super) trait Sink {
    fn epoch(&mut self, epoch: u64) -> Result<(), StoreError>;
    fn base(&mut self, base: u64) -> Result<(), StoreError>;
    fn identity(&mut self, identity: &[u8]) -> Result<(), StoreError>;
    fn events(&mut self, first: u64, events: &[&[u8]]) -> Result<(), StoreError>;
    fn notes(&mut self, after: u64, notes: &[&[u8]]) -> Result<(), StoreError>;
    fn snapshot(&mut self, at: u64, from: &mut dyn Read) -> Result<(), StoreError>;
}

/// Reads a stream to its end, and checks every byte of it.
pub(super) fn read(from: &mut dyn Read, sink: &mut dyn Sink) -> Result<(), StoreError> {
    let mut mark = [0; MARK.len()];
    from.read_exact(&mut mark).map_err(unreadable)?;
    if mark[..12] != MARK[..12] {
        return Err(StoreError::Format {
            file: name(),
            reason: "it is not a backup of sclub".into(),
        });
    }
    if mark != *MARK {
        return Err(StoreError::Format {
            file: name(),
            reason: format!(
                "it was written by another version (format {}; this one reads 1)",
                String::from_utf8_lossy(&mark[12..]).trim()
            ),
        });
    }
    let mut frames = Frames {
        from,
        sum: *blake3::hash(MARK).as_bytes(),
        bytes: Vec::new(),
    };
    loop {
        let (kind, number) = frames.next()?;
        match kind {
            Kind::Epoch => sink.epoch(number)?,
            Kind::Base => sink.base(number)?,
            Kind::Identity => sink.identity(&frames.bytes)?,
            Kind::Events => sink.events(number, &frames.rows()?)?,
            Kind::Notes => sink.notes(number, &frames.rows()?)?,
            Kind::SnapshotStart => {
                let mut pieces = Pieces {
                    frames: &mut frames,
                    at: number,
                    used: 0,
                    ended: false,
                };
                sink.snapshot(number, &mut pieces)?;
                if !pieces.ended {
                    return Err(damaged("a snapshot in it has no end"));
                }
            }
            Kind::SnapshotPiece | Kind::SnapshotEnd => {
                return Err(damaged("a piece of a snapshot is out of place"));
            }
            Kind::End => break,
        }
    }
    let mut more = [0];
    if frames.from.read(&mut more).map_err(unreadable)? != 0 {
        return Err(damaged("there is something after its end"));
    }
    Ok(())
}

struct Frames<'a> {
    from: &'a mut dyn Read,
    sum: [u8; SUM],
    bytes: Vec<u8>,
}

impl Frames<'_> {
    fn next(&mut self) -> Result<(Kind, u64), StoreError> {
        let mut head = [0; 17];
        self.from.read_exact(&mut head).map_err(unreadable)?;
        let number = u64::from_le_bytes(head[1..9].try_into().expect("eight bytes"));
        let length = u64::from_le_bytes(head[9..].try_into().expect("eight bytes"));
        if length > MAX_FRAME {
            return Err(damaged("a length in it is impossible"));
        }
        self.bytes.clear();
        self.from
            .take(length)
            .read_to_end(&mut self.bytes)
            .map_err(unreadable)?;
        let mut written = [0; SUM];
        self.from.read_exact(&mut written).map_err(unreadable)?;
        self.sum = sum(&self.sum, &head, &self.bytes);
        if self.bytes.len() as u64 != length || written != self.sum {
            return Err(damaged("a checksum in it does not match"));
        }
        let kind = KINDS.iter().find(|k| **k as u8 == head[0]);
        let kind = kind.ok_or_else(|| damaged("it has a part of an unknown kind"))?;
        Ok((*kind, number))
    }

    fn rows(&self) -> Result<Vec<&[u8]>, StoreError> {
        match rows::take(&self.bytes) {
            Some((rows, [])) => Ok(rows),
            _ => Err(damaged("a list in it is not one")),
        }
    }
}

/// The bytes of one snapshot in a stream.
struct Pieces<'a, 'b> {
    frames: &'a mut Frames<'b>,
    at: u64,
    used: usize,
    ended: bool,
}

impl Read for Pieces<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        while !self.ended && self.used == self.frames.bytes.len() {
            let (kind, at) = self.frames.next().map_err(io::Error::other)?;
            self.used = 0;
            match kind {
                Kind::SnapshotPiece if at == self.at => {}
                Kind::SnapshotEnd if at == self.at => self.ended = true,
                _ => return Err(io::Error::other(damaged("a snapshot in it has no end"))),
            }
        }
        if self.ended {
            return Ok(0);
        }
        let piece = &self.frames.bytes[self.used..];
        let count = piece.len().min(out.len());
        out[..count].copy_from_slice(&piece[..count]);
        self.used += count;
        Ok(count)
    }
}

fn head(kind: u8, number: u64, length: u64) -> [u8; 17] {
    let mut head = [0; 17];
    head[0] = kind;
    head[1..9].copy_from_slice(&number.to_le_bytes());
    head[9..].copy_from_slice(&length.to_le_bytes());
    head
}

fn sum(before: &[u8; SUM], head: &[u8], bytes: &[u8]) -> [u8; SUM] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(before).update(head).update(bytes);
    *hasher.finalize().as_bytes()
}

fn name() -> PathBuf {
    Path::new("the backup").into()
}

fn damaged(reason: &str) -> StoreError {
    StoreError::Damaged {
        file: name(),
        reason: reason.into(),
    }
}

fn unwritable(e: io::Error) -> StoreError {
    StoreError::Write {
        file: name(),
        reason: e.to_string(),
    }
}

fn unreadable(e: io::Error) -> StoreError {
    if e.kind() == io::ErrorKind::UnexpectedEof {
        damaged("it ends too early")
    } else {
        StoreError::Read {
            file: name(),
            reason: e.to_string(),
        }
    }
}
