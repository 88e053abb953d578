//! How far the log is known to go.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::files::{self, At, damaged};
use super::manifest::Manifest;
use super::segment::Chain;
use crate::store::StoreError;

/// Written after each batch, in place and without waiting for the disk.
///
/// The database takes back a last batch whose checksums do not match, for it cannot tell damage from
/// a write that a crash cut short. This file can.
#[derive(Debug)]
pub(super) struct Tail {
    file: File,
    /// As it was when it was opened.
    known: Known,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    serial: u64,
    next: u64,
    notes: u64,
}

impl Tail {
    fn path(folder: &Path) -> PathBuf {
        folder.join("tail")
    }

    pub fn create(folder: &Path) -> Result<(), StoreError> {
        let nothing = Known {
            serial: 0,
            next: 1,
            notes: 0,
        };
        files::put(&Self::path(folder), &nothing.bytes())
    }

    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let path = Self::path(folder);
        let bytes = files::get(&path)?.ok_or_else(|| damaged(&path, "it is missing"))?;
        let known = Known::of(&bytes).ok_or_else(|| damaged(&path, "it has no numbers"))?;
        let file = OpenOptions::new().write(true).open(&path).writing(&path)?;
        Ok(Self { file, known })
    }

    /// Says what is durable. Nothing is lost where that cannot be written.
    pub fn put(&mut self, serial: u64, chain: &Chain) {
        let known = Known {
            serial,
            next: chain.next,
            notes: chain.notes,
        };
        let bytes = files::with_sum(&known.bytes());
        let _ = self
            .file
            .seek(SeekFrom::Start(0))
            .and_then(|_| self.file.write_all(&bytes));
    }

    /// Whether the log goes as far as it did.
    pub fn check(
        &self,
        folder: &Path,
        manifest: &Manifest,
        chain: &Chain,
    ) -> Result<(), StoreError> {
        let Known {
            serial,
            next,
            notes,
        } = self.known;
        let last = manifest.entries.last();
        let file = last.map_or(folder.join("log"), |e| e.file(folder));
        if chain.next < next {
            return Err(damaged(
                &file,
                format!("events from {} to {} are missing", chain.next, next - 1),
            ));
        }
        if last.is_some_and(|e| e.serial == serial) && chain.notes < notes {
            return Err(damaged(&file, "notes are missing"));
        }
        Ok(())
    }
}

impl Known {
    fn bytes(self) -> Vec<u8> {
        [self.serial, self.next, self.notes]
            .map(u64::to_le_bytes)
            .concat()
    }

    fn of(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 24] = bytes.try_into().ok()?;
        let number = |at: usize| {
            let bytes = bytes[at..at + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        Some(Self {
            serial: number(0),
            next: number(8),
            notes: number(16),
        })
    }
}
