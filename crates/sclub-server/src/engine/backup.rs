//! Backup and restore: a data folder as a stream, also of a running server, and a folder from a stream.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use super::Engine;
use super::fold::{self, FoldError};
use super::journal::{Page, last_page};
use crate::env::Env;
use crate::event::{Batch, Stamp};
use crate::identity::Identity;
use crate::old;
use crate::state::{Effect, State};
use crate::store::archive::{self, Frames, Kind, Writer, damaged};
use crate::store::{Batches, Epochs, Folder, StoreError};

/// The number of attempts to open all files, since some may be removed meanwhile.
const MAX_ATTEMPTS: usize = 5;

/// The files of a backup. They are open, so they stay readable even if they are removed meanwhile.
struct Sources {
    snapshot: Option<(u64, Box<dyn Read + Send>)>,
    log: Batches,
    /// The last batch of the log in the backup.
    position: u64,
    journal: Batches,
}

impl Engine {
    /// Writes a backup into `out`. Recommending, learning, snapshots and compactions go on.
    ///
    /// Returns false if the journal could not be written. Then the backup has all rewards, and lacks the last decisions.
    ///
    /// # Errors
    /// If a file cannot be read, or `out` cannot be written.
    pub async fn backup(&self, out: &mut dyn Write) -> Result<bool, FoldError> {
        let folder = &self.shared.folder;
        let (mut tries, mut is_complete) = (0, true);
        let sources = loop {
            let journaled = match self.flush_journal().await {
                // A full disk is when a backup is needed. The journal of the backup is completed from its log.
                Err(FoldError::Store(error @ StoreError::Write { .. })) => {
                    tracing::warn!(%error, "the backup lacks decisions that are not in the journal yet");
                    is_complete = false;
                    self.shared.journaled.load(Ordering::SeqCst)
                }
                flushed => flushed?,
            };
            match self.sources(journaled) {
                Ok(sources) => break sources,
                // A snapshot or a compaction removed a file meanwhile.
                Err(_) if tries < MAX_ATTEMPTS => tries += 1,
                Err(error) => return Err(error.into()),
            }
        };
        let epochs = match self.shared.term() {
            Ok(term) => term.epochs.clone(),
            Err(_) => folder.epochs()?,
        };
        write(folder, sources, &epochs, out)?;
        Ok(is_complete)
    }

    /// Opens the files of a backup. It fails if one is removed meanwhile.
    fn sources(&self, journaled: u64) -> Result<Sources, StoreError> {
        let folder = &self.shared.folder;
        let journal = folder.journal.read(folder.journal.first()? - 1)?;
        sources(self.shared.sources(), journal, journaled, &|| {
            self.shared.read().position()
        })
    }
}

/// Writes a backup of a folder that no server uses.
///
/// # Errors
/// As [`Engine::backup`].
pub fn backup_folder(env: &Env, data: &Path, out: &mut dyn Write) -> Result<(), FoldError> {
    let folder = Folder::open(env, data)?;
    fold::identity(&folder)?;
    let journal = folder.journal.read(folder.journal.first()? - 1)?;
    let journaled = last_page(&folder.journal)?.map_or(0, |page| page.position);
    let from = fold::Sources::of(&folder);
    let sources = sources(from, journal, journaled, &|| folder.log.last())?;
    Ok(write(&folder, sources, &folder.epochs()?, out)?)
}

fn sources(
    from: fold::Sources<'_>,
    journal: Batches,
    journaled: u64,
    position: &dyn Fn() -> u64,
) -> Result<Sources, StoreError> {
    let newest = from.snapshots.list().last().copied();
    let snapshot = match newest {
        Some(at) => Some((at, from.snapshots.read(at)?)),
        None => None,
    };
    // Read after the snapshot was opened, so that the snapshot is of no later batch.
    let position = position();
    // The journal of the backup is completed from its log, which must have every request to forget. If the log begins later than the
    // journal ends, as without a journal, the journal goes on from the end of the log.
    let is_behind = journaled.saturating_add(1) < from.log.first()?;
    let journaled = if is_behind { u64::MAX } else { journaled };
    let after = newest.unwrap_or(0).min(journaled);
    Ok(Sources {
        snapshot,
        log: from.log.read(after)?,
        position,
        journal,
    })
}

fn write(
    folder: &Folder,
    sources: Sources,
    epochs: &Epochs,
    out: &mut dyn Write,
) -> Result<(), StoreError> {
    let mut writer = Writer::new(out)?;
    if let Some(identity) = folder.identity()? {
        writer.frame(Kind::Identity, 0, &identity)?;
    }
    let epochs = postcard::to_stdvec(epochs).expect("plain data");
    writer.frame(Kind::Epochs, 0, &epochs)?;
    if let Some((at, mut reader)) = sources.snapshot {
        writer.snapshot(at, &mut reader)?;
    }
    for batch in sources.log {
        let (number, bytes) = batch?;
        if number > sources.position {
            break;
        }
        writer.frame(Kind::Batch, number, &bytes)?;
    }
    for batch in sources.journal {
        let (number, bytes) = batch?;
        // Later pages have rewards that are not in the backup.
        if Page::decode(&bytes)?.position > sources.position {
            break;
        }
        writer.frame(Kind::Journal, number, &bytes)?;
    }
    writer.finish()
}

/// Makes a data folder from a backup, also from one of version 0.1. `data` must be empty or not exist. It
/// stays so until the whole backup was verified.
///
/// # Errors
/// If the backup is damaged or cannot be read, the folder is not empty, or it cannot be written.
pub fn restore(env: &Env, from: &mut dyn Read, data: &Path) -> Result<(), StoreError> {
    let disk = &env.disk;
    let unwritable = |path: &Path| {
        let file = path.to_owned();
        move |error: io::Error| StoreError::Write {
            file,
            reason: error.to_string(),
        }
    };
    if disk.names(data).is_ok_and(|names| !names.is_empty()) {
        let path = data.display();
        return Err(StoreError::Refused(format!("{path} is not empty")));
    }
    let beside = unfinished_path(data)?;
    if disk.names(&beside).is_ok() {
        disk.remove_dir_all(&beside).map_err(unwritable(&beside))?;
    }
    let mut frames = Frames::new(from)?;
    let filled = match frames.version {
        1 => fill_from_old(env, &mut frames, &beside),
        _ => fill(env, &mut frames, &beside),
    };
    if let Err(error) = filled {
        // If the unfinished folder cannot be removed now, the next restore removes it.
        let _ = disk.remove_dir_all(&beside);
        return Err(error);
    }
    disk.rename(&beside, data).map_err(unwritable(data))?;
    let parent = match data.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    disk.sync_dir(parent).map_err(unwritable(parent))
}

/// The contents of a backup.
#[derive(Debug)]
pub struct Restored {
    /// The identity of the folder.
    pub identity: Identity,
    /// The state.
    pub state: State,
    /// The epochs.
    pub epochs: Epochs,
}

impl Restored {
    /// The last batch.
    pub fn position(&self) -> u64 {
        self.state.position()
    }
}

/// Reads a backup, by way of a folder that must not exist.
///
/// # Errors
/// If the backup is damaged, or the folder cannot be written.
pub fn read_backup(env: &Env, from: &mut dyn Read, data: &Path) -> Result<Restored, FoldError> {
    restore(env, from, data)?;
    let folder = Folder::open(env, data)?;
    let Some(identity) = fold::identity(&folder)? else {
        return Err(FoldError::Empty(data.display().to_string()));
    };
    let last = folder.log.last();
    let state = fold::newest(fold::Sources::of(&folder), &identity, last, &mut |_| {})?;
    Ok(Restored {
        identity,
        state,
        epochs: folder.epochs()?,
    })
}

/// The path of the unfinished folder.
fn unfinished_path(data: &Path) -> Result<PathBuf, StoreError> {
    let name = data.file_name().ok_or_else(|| {
        StoreError::Refused(format!("{} is not the name of a folder", data.display()))
    })?;
    let mut name = name.to_os_string();
    name.push(".restoring");
    Ok(data.with_file_name(name))
}

fn fill(env: &Env, frames: &mut Frames<'_>, path: &Path) -> Result<(), StoreError> {
    let folder = Folder::open(env, path)?;
    let mut newest = 0;
    loop {
        let (kind, number, bytes) = frames.frame()?;
        match kind {
            Kind::Identity => folder.set_identity(bytes)?,
            Kind::Epochs => {
                let epochs = postcard::from_bytes(bytes);
                folder.set_epochs(&epochs.map_err(|_| damaged("its epochs cannot be decoded"))?)?;
            }
            Kind::SnapshotStart => {
                newest = number;
                let mut pieces = frames.snapshot();
                let mut copy = |out: &mut dyn Write| io::copy(&mut pieces, out).map(drop);
                let written = folder.snapshots.write(number, &mut copy);
                // An error of the backup is not one of the folder.
                match pieces.error.take() {
                    Some(error) => return Err(error),
                    None => written?,
                }
            }
            Kind::Batch | Kind::Journal if number == 0 => {
                return Err(damaged("a batch has no number"));
            }
            Kind::Batch => folder.log.fill(number - 1, bytes)?,
            Kind::Journal => folder.journal.fill(number - 1, bytes)?,
            Kind::End => break,
            _ => return Err(damaged("a frame is in the wrong place")),
        }
    }
    if (1..newest).contains(&folder.log.last()) {
        return Err(damaged("its log ends before its snapshot"));
    }
    folder.log.finish(newest)?;
    folder.journal.finish(0)?;
    folder.close()
}

/// Converts a backup of version 0.1 into a folder: its events are applied, and a snapshot is written.
/// Decisions of version 0.1 no longer accept a reward.
fn fill_from_old(env: &Env, frames: &mut Frames<'_>, path: &Path) -> Result<(), StoreError> {
    let unfit =
        |error: &dyn std::fmt::Display| damaged(format!("an event cannot be applied: {error}"));
    let folder = Folder::open(env, path)?;
    let mut identity = None;
    let mut base = 0;
    // A log that was never compacted needs no snapshot.
    let mut events: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut state: Option<State> = None;
    loop {
        let (kind, number, bytes) = frames.frame()?;
        match kind {
            Kind::Identity => identity = Some(Identity::decode(bytes).map_err(|e| unfit(&e))?),
            // Decisions of the new folder must not reuse the numbers of old ones.
            Kind::OldEpoch => folder.set_epochs(&Epochs::after(number))?,
            Kind::OldBase => base = number,
            Kind::OldEvents => {
                let rows = archive::old_rows(bytes)?;
                let rows = (number..).zip(rows).filter(|(number, _)| *number > base);
                events.extend(rows.map(|(number, row)| (number, row.to_vec())));
            }
            Kind::SnapshotStart => {
                let mut pieces = frames.snapshot();
                if number == base && base > 0 {
                    let identity = identity.clone().ok_or_else(|| damaged("no identity"))?;
                    let loaded = old::load(identity, &mut pieces);
                    state = Some(loaded.map_err(|error| unfit(&error))?);
                }
                io::copy(&mut pieces, &mut io::sink()).map_err(|error| unfit(&error))?;
            }
            Kind::End => break,
            _ => {}
        }
    }
    let Some(identity) = identity else {
        return Ok(());
    };
    folder.set_identity(&identity.encode())?;
    let mut state = match state {
        Some(state) => state,
        None if base == 0 => State::new(identity).map_err(|error| unfit(&error))?,
        None => return Err(damaged("its first snapshot is missing")),
    };
    let begun_at = state.position();
    if begun_at > 0 {
        // The log begins after the snapshot.
        let save = &mut |out: &mut dyn Write| state.save(out);
        folder.snapshots.write(begun_at, save)?;
    }
    for (number, bytes) in events {
        let (at, event) = old::event(&bytes).map_err(|error| unfit(&error))?;
        let stamp = Stamp { at, clock: 0 };
        let batch = Batch {
            stamp,
            events: vec![event],
        };
        let position = state.position();
        match state.replay(position + 1, &batch, &mut Effect::default()) {
            Ok(()) => folder.log.fill(position, &batch.encode())?,
            // Version 0.1 could log events that it could not apply. They were never acknowledged.
            Err(rejected) => tracing::warn!(event = number, %rejected, "left out"),
        }
    }
    let at = state.position();
    if at > begun_at {
        folder.snapshots.write(at, &mut |out| state.save(out))?;
    }
    folder.log.finish(at)?;
    folder.close()
}
