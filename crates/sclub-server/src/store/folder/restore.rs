//! A folder from a backup.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::files::{self, At};
use super::{Folder, snapshot};
use crate::store::archive::{self, Sink};
use crate::store::{Store, StoreError};

/// Makes the store that a backup holds in `folder`, which must be empty or not there.
///
/// The whole backup is checked before there is anything in `folder`.
///
/// # Errors
/// Where the backup is damaged or cannot be read, the folder is not empty, or it cannot be written.
pub fn restore(from: &mut dyn Read, folder: &Path) -> Result<(), StoreError> {
    if folder.exists() && !files::names(folder)?.is_empty() {
        return Err(StoreError::Refused(format!(
            "{} is not empty",
            folder.display()
        )));
    }
    let beside = beside(folder)?;
    if beside.exists() {
        fs::remove_dir_all(&beside).writing(&beside)?;
    }
    let outcome = fill(from, &beside);
    if outcome.is_err() {
        // It is of no use, and is removed next time if not now.
        let _ = fs::remove_dir_all(&beside);
        return outcome;
    }
    fs::rename(&beside, folder).writing(folder)?;
    files::sync_folder(files::parent(folder))
}

/// Where the folder is made.
fn beside(folder: &Path) -> Result<PathBuf, StoreError> {
    match folder.file_name() {
        Some(name) => {
            let mut name = name.to_os_string();
            name.push(".restoring");
            Ok(folder.with_file_name(name))
        }
        None => Err(StoreError::Refused(format!(
            "{} is not the name of a folder",
            folder.display()
        ))),
    }
}

fn fill(from: &mut dyn Read, path: &Path) -> Result<(), StoreError> {
    let mut filling = Filling {
        folder: Folder::open(path)?,
        epoch: 0,
        base: 0,
        rows: Vec::new(),
        bytes: 0,
    };
    archive::read(from, &mut filling)?;
    filling.flush()?;
    filling.finish_base()?;
    filling.folder.close()?;
    // The numbers of the original go on.
    files::put(&path.join("epoch"), &filling.epoch.to_le_bytes())
}

/// How many bytes are appended at once.
const BATCH: usize = 1 << 20;

struct Filling {
    folder: Folder,
    epoch: u64,
    base: u64,
    rows: Vec<Vec<u8>>,
    bytes: usize,
}

impl Filling {
    fn flush(&mut self) -> Result<(), StoreError> {
        let rows: Vec<&[u8]> = self.rows.iter().map(Vec::as_slice).collect();
        self.folder.add(&rows, None, &[])?;
        self.rows.clear();
        self.bytes = 0;
        Ok(())
    }

    fn finish_base(&self) -> Result<(), StoreError> {
        let all = self.folder.snapshots()?;
        let last = self.folder.last();
        if self.base > last || (self.base > 0 && !all.contains(&self.base)) {
            return Err(wrong("the snapshot at its base is missing"));
        }
        if all.last().is_some_and(|newest| *newest > last) {
            return Err(wrong("it ends before its newest snapshot"));
        }
        self.folder.change(|manifest| manifest.base = self.base)
    }
}

impl Sink for Filling {
    fn epoch(&mut self, epoch: u64) -> Result<(), StoreError> {
        self.epoch = epoch;
        Ok(())
    }

    fn base(&mut self, base: u64) -> Result<(), StoreError> {
        self.base = base;
        Ok(())
    }

    fn identity(&mut self, identity: &[u8]) -> Result<(), StoreError> {
        self.folder.set_identity(identity)
    }

    fn events(&mut self, first: u64, events: &[&[u8]]) -> Result<(), StoreError> {
        let next = self.folder.last() + 1 + self.rows.len() as u64;
        if first != next {
            return Err(wrong(format!("event {next} in it is missing")));
        }
        self.bytes += events.iter().map(|e| e.len() + 4).sum::<usize>();
        self.rows.extend(events.iter().map(|e| e.to_vec()));
        if self.bytes > BATCH {
            self.flush()?;
        }
        Ok(())
    }

    fn notes(&mut self, after: u64, notes: &[&[u8]]) -> Result<(), StoreError> {
        self.flush()?;
        self.folder.add(&[], Some(after), notes)
    }

    fn snapshot(&mut self, at: u64, from: &mut dyn Read) -> Result<(), StoreError> {
        snapshot::write(&self.folder.path, at, &mut |out| {
            io::copy(from, out).map(|_| ())
        })
    }
}

fn wrong(reason: impl Into<String>) -> StoreError {
    StoreError::Damaged {
        file: "the backup".into(),
        reason: reason.into(),
    }
}
