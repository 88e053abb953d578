//! A data folder.
//!
//! | file | contents |
//! |---|---|
//! | `lock` | empty; the server that uses the folder holds a lock on it |
//! | `format` | the format version of all other files |
//! | `identity` | the policy, its constants, and the key that seals decisions |
//! | `epochs` | the epochs, which distinguish the folder's decisions from those of its copies |
//! | `ends` | the last batches of the log and the journal when a server last closed the folder |
//! | `log/<serial>.log` | every event since the older of two snapshots, for recovery |
//! | `snapshots/<batch>.snap` | the state after a batch of the log |
//! | `journal/<serial>.log` | items shown and their rewards, for analysis |
//! | `figures` | figures over time, for the page |
//! | `counts` | how often each item was shown, and its rewards, for the page |
//! | `importing/` | a folder that an import makes; left over if that was cut off |
//! | `imported/` | the complete folder of an import, whose files replace those of this one |
//!
//! Small files are replaced atomically. Each subfolder has one owner that makes and removes its files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::epochs::{Epoch, Epochs};
use super::files::{self, At, SmallFile, damaged};
use super::segments::{SEGMENT_BYTES, Segments};
use super::snapshots::Snapshots;
use super::{Checked, StoreError};
use crate::engine::COUNTS_FILE;
use crate::env::{Disk, Env, LockGuard};
use crate::settings::Settings;

/// The format that this version reads and writes.
const FORMAT: u64 = 2;

/// The subfolder that an import makes its folder in. What is left of one that was cut off is removed at the next start.
pub(crate) const IMPORTING: &str = "importing";

/// The subfolder with the complete folder of an import. From its first moment on it counts in place of the old files,
/// which [`Folder::open`] replaces by it.
const IMPORTED: &str = "imported";

/// The files of a data folder that an import replaces: every one that it has itself, and no others, such as spaces. Only the counts of items
/// are removed: they are those of the old journal.
const FILES: [&str; 4] = ["identity", "epochs", "ends", "format"];
const SUBFOLDERS: [&str; 3] = ["log", "snapshots", "journal"];

/// The subfolder with copies of a partition's snapshots. Only a node of a cluster makes it.
pub(crate) const COPIES: &str = "copies";

/// The folders in a data folder that grow.
pub const STORE_PARTS: [&str; 3] = ["log", "snapshots", "journal"];

/// A data folder, locked.
#[derive(Debug)]
pub struct Folder {
    env: Env,
    path: PathBuf,
    /// The log, for recovery.
    pub log: Arc<Segments>,
    /// The journal, for analysis.
    pub journal: Segments,
    /// The snapshots, for a fast start.
    pub snapshots: Arc<Snapshots>,
    _lock: Box<dyn LockGuard>,
}

impl Folder {
    /// Opens a data folder, which is made if it does not exist.
    ///
    /// # Errors
    /// If it is in use, is not a data folder, is damaged, or cannot be written.
    pub fn open(env: &Env, path: &Path) -> Result<Self, StoreError> {
        Self::open_with(env, path, SEGMENT_BYTES)
    }

    /// Like [`Folder::open`], for a server with these settings. If it keeps no journal, a damaged one is removed.
    ///
    /// # Errors
    /// As [`Folder::open`].
    pub fn open_to_serve(env: &Env, path: &Path, settings: &Settings) -> Result<Self, StoreError> {
        let opened = Self::open(env, path);
        let keeps_journal = settings.journal_days > 0;
        let journal = path.join("journal");
        match opened {
            Err(StoreError::Damaged { file, reason })
                if !keeps_journal && file.starts_with(&journal) =>
            {
                let file = file.display();
                tracing::warn!(%file, reason, "journal-days is 0: the damaged journal is removed");
                Segments::remove_all(env, &journal)?;
                let ends = path.join("ends");
                let known = files::get(&*env.disk, &ends)?;
                let known = known.and_then(|bytes| postcard::from_bytes::<[u64; 2]>(&bytes).ok());
                if let Some([log, _]) = known {
                    write_ends(&*env.disk, path, [log, 0])?;
                }
                Self::open(env, path)
            }
            opened => opened,
        }
    }

    /// Like [`Folder::open`], with another length of the files of the log and the journal.
    ///
    /// # Errors
    /// As [`Folder::open`].
    pub fn open_with(env: &Env, path: &Path, segment_bytes: u64) -> Result<Self, StoreError> {
        let disk = &*env.disk;
        files::make_dir(disk, path)?;
        let is_new = check_format(env, path)?;
        let lock_file = path.join("lock");
        let lock = disk.lock(&lock_file).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => StoreError::InUse(path.into()),
            _ => StoreError::Write {
                file: lock_file,
                reason: error.to_string(),
            },
        })?;
        take_import(disk, path)?;
        if is_new {
            let text = format!("sclub store\nformat {FORMAT}\n");
            files::put(disk, &path.join("format"), text.as_bytes())?;
        }
        let folder = Self {
            log: Arc::new(Segments::open(env, &path.join("log"), segment_bytes)?),
            journal: Segments::open(env, &path.join("journal"), segment_bytes)?,
            snapshots: Arc::new(Snapshots::open(env, &path.join("snapshots"))?),
            env: env.clone(),
            path: path.into(),
            _lock: lock,
        };
        disk.sync_dir(path).writing(path)?;
        folder.check_ends()?;
        Ok(folder)
    }

    /// Checks that neither the log nor the journal has lost its end.
    fn check_ends(&self) -> Result<(), StoreError> {
        let newest = self.snapshots.list().last().copied().unwrap_or(0);
        let last = self.log.last();
        if newest > last {
            return Err(damaged(
                &self.log.newest_file()?,
                format!("it ends at batch {last}, before the snapshot at batch {newest}"),
            ));
        }
        let file = self.path.join("ends");
        let Some(bytes) = files::get(&*self.env.disk, &file)? else {
            return Ok(());
        };
        let ends: [u64; 2] =
            postcard::from_bytes(&bytes).map_err(|_| damaged(&file, "it cannot be decoded"))?;
        for (log, end) in [&*self.log, &self.journal].into_iter().zip(ends) {
            let last = log.last();
            if last < end {
                return Err(damaged(
                    &log.newest_file()?,
                    format!("it ends at batch {last}, and the folder was closed at batch {end}"),
                ));
            }
        }
        Ok(())
    }

    /// Records the last batches of the log and the journal. The next start checks them: a lost end would
    /// otherwise look like a write that a crash interrupted.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn close(&self) -> Result<(), StoreError> {
        write_ends(
            &*self.env.disk,
            &self.path,
            [self.log.last(), self.journal.last()],
        )
    }

    /// Puts the complete and closed folder in [`IMPORTING`] into the place of this one. It is durable when this returns.
    ///
    /// # Errors
    /// If it cannot be written. Then the folder is either the old or the new one at the next start.
    pub(crate) fn replace_by_import(self) -> Result<(), StoreError> {
        let (env, path) = (self.env.clone(), self.path.clone());
        let disk = &*env.disk;
        let importing = path.join(IMPORTING);
        disk.sync_dir(&importing).writing(&importing)?;
        let renamed = disk.rename(&importing, &path.join(IMPORTED));
        renamed.and_then(|()| disk.sync_dir(&path)).writing(&path)?;
        // The old files are open until here.
        drop(self);
        Self::open(&env, &path).map(drop)
    }

    /// Removes an unfinished import. `is_made` says that the import has made the folder itself; then nothing of it stays.
    pub(crate) fn discard_import(self, is_made: bool) {
        let disk = Arc::clone(&self.env.disk);
        let path = self.path.clone();
        // What cannot be removed now is removed at the next start.
        let _ = disk.remove_dir_all(&path.join(IMPORTING));
        if !is_made {
            return;
        }
        for name in SUBFOLDERS {
            let _ = disk.remove_dir_all(&path.join(name));
        }
        let _ = disk.remove(&path.join("format"));
        drop(self);
        let _ = disk.remove(&path.join("lock"));
        if disk.names(&path).is_ok_and(|names| names.is_empty()) {
            let _ = disk.remove_dir_all(&path);
        }
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A small file in the folder whose loss is no harm.
    pub fn small_file(&self, name: &str) -> SmallFile {
        SmallFile::new(&self.env, &self.path.join(name))
    }

    /// The environment it was opened with.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// The bytes that [`Folder::set_identity`] was given, if it has been called.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn identity(&self) -> Result<Option<Vec<u8>>, StoreError> {
        files::get(&*self.env.disk, &self.path.join("identity"))
    }

    /// Returns true for the folder of a partition, which a node of a cluster has in its own.
    pub fn is_of_partition(&self) -> bool {
        let names = self.env.disk.names(&self.path).unwrap_or_default();
        names.iter().any(|name| name == COPIES)
    }

    /// Writes the identity. It is durable when this returns.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn set_identity(&self, identity: &[u8]) -> Result<(), StoreError> {
        files::put(&*self.env.disk, &self.path.join("identity"), identity)
    }

    /// The epochs so far.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn epochs(&self) -> Result<Epochs, StoreError> {
        let file = self.path.join("epochs");
        match files::get(&*self.env.disk, &file)? {
            Some(bytes) => {
                postcard::from_bytes(&bytes).map_err(|_| damaged(&file, "it cannot be decoded"))
            }
            None if self.log.last() == 0 => Ok(Epochs::default()),
            None => Err(damaged(&file, "it is missing")),
        }
    }

    /// Writes the epochs. They are durable when this returns.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn set_epochs(&self, epochs: &Epochs) -> Result<(), StoreError> {
        let bytes = postcard::to_stdvec(epochs).expect("plain data");
        files::put(&*self.env.disk, &self.path.join("epochs"), &bytes)
    }

    /// Begins an epoch after a number of events, at a service-clock time. It is durable when this returns.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn begin_epoch(&self, events: u64, clock: u64) -> Result<(Epoch, Epochs), StoreError> {
        let mut life = [0; 8];
        self.env.random.fill(&mut life).writing(&self.path)?;
        let mut epochs = self.epochs()?;
        let epoch = epochs.begin(u64::from_le_bytes(life), events, clock);
        self.set_epochs(&epochs)?;
        Ok((epoch, epochs))
    }

    /// Reads and checks every byte in the folder.
    ///
    /// # Errors
    /// The first file that is damaged.
    pub fn check(&self) -> Result<Checked, StoreError> {
        let mut checked = Checked::default();
        self.epochs()?;
        let first = self.log.first()?;
        if let Some(oldest) = self.snapshots.list().first()
            && oldest + 1 < first
        {
            return Err(damaged(
                &self.path.join("log"),
                format!("it begins at batch {first}, after the snapshot at batch {oldest}"),
            ));
        }
        for name in ["format", "epochs", "identity", "ends"] {
            if let Some(bytes) = files::get(&*self.env.disk, &self.path.join(name))? {
                checked.files += 1;
                checked.bytes += bytes.len() as u64;
            }
        }
        let parts = [
            self.log.check()?,
            self.journal.check()?,
            self.snapshots.check()?,
        ];
        for (files, bytes) in parts {
            checked.files += files;
            checked.bytes += bytes;
        }
        Ok(checked)
    }

    /// The size of the folder on the disk, without files whose size cannot be read.
    pub fn bytes(&self) -> u64 {
        self.sizes().iter().sum()
    }

    /// The sizes of its parts, in the order of [`STORE_PARTS`].
    pub fn sizes(&self) -> [u64; STORE_PARTS.len()] {
        let disk = &self.env.disk;
        let size = |dir: PathBuf| -> u64 {
            let names = disk.names(&dir).unwrap_or_default();
            let lengths = names
                .iter()
                .filter_map(|name| disk.len(&dir.join(name)).ok());
            lengths.sum()
        };
        STORE_PARTS.map(|name| size(self.path.join(name)))
    }
}

/// Removes what an import has left that was cut off, and puts the files of a complete one into their places. If that is cut
/// off, the next start goes on with it.
fn take_import(disk: &dyn Disk, path: &Path) -> Result<(), StoreError> {
    let names = disk.names(path).reading(path)?;
    let has = |name: &str| names.iter().any(|own| own == name);
    if has(IMPORTING) {
        let importing = path.join(IMPORTING);
        disk.remove_dir_all(&importing).writing(&importing)?;
    }
    if !has(IMPORTED) {
        return Ok(());
    }
    let imported = path.join(IMPORTED);
    let new = disk.names(&imported).reading(&imported)?;
    if has(COUNTS_FILE) {
        let counts = path.join(COUNTS_FILE);
        disk.remove(&counts).writing(&counts)?;
    }
    for name in new {
        let (from, to) = (imported.join(&name), path.join(&name));
        if SUBFOLDERS.contains(&name.as_str()) {
            if disk.names(&to).is_ok() {
                disk.remove_dir_all(&to).writing(&to)?;
            }
        } else if !FILES.contains(&name.as_str()) {
            continue;
        }
        disk.rename(&from, &to).writing(&to)?;
    }
    disk.sync_dir(path).writing(path)?;
    disk.remove_dir_all(&imported).writing(&imported)?;
    disk.sync_dir(path).writing(path)
}

/// Records the last batches of the log and the journal.
fn write_ends(disk: &dyn Disk, path: &Path, ends: [u64; 2]) -> Result<(), StoreError> {
    let bytes = postcard::to_stdvec(&ends).expect("plain data");
    files::put(disk, &path.join("ends"), &bytes)
}

/// Checks the format of a folder. Returns true if the folder is empty.
fn check_format(env: &Env, path: &Path) -> Result<bool, StoreError> {
    let file = path.join("format");
    let Some(bytes) = files::get(&*env.disk, &file)? else {
        let ours = ["lock", "format.tmp", "lost+found", IMPORTING];
        let names = env.disk.names(path).reading(path)?;
        return match names.iter().find(|name| !ours.contains(&name.as_str())) {
            None => Ok(true),
            Some(name) => Err(StoreError::Format {
                file: path.into(),
                reason: format!("it contains {name}, and is not a data folder of sclub"),
            }),
        };
    };
    let text = String::from_utf8_lossy(&bytes);
    let number = text
        .strip_prefix("sclub store\nformat ")
        .and_then(|rest| rest.trim_end().parse::<u64>().ok());
    let reason = match number {
        Some(FORMAT) => return Ok(false),
        Some(1) => format!(
            "it was written by version 0.1. Make a backup with that version (sclub backup --data {} \
             --out old.backup), then turn it into a new folder with this one (sclub restore --from \
             old.backup --data NEW). The old folder stays as it is",
            path.display()
        ),
        Some(format) => {
            format!(
                "it was written by a newer version (format {format}; this version supports {FORMAT})"
            )
        }
        None => return Err(damaged(&file, "it has no format number")),
    };
    Err(StoreError::Format {
        file: path.into(),
        reason,
    })
}
