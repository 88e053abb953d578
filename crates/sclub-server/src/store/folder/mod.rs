//! A store in a folder.
//!
//! | file | what it holds |
//! |---|---|
//! | `lock` | nothing; whoever uses the folder has it locked |
//! | `format` | the number of the format of all others |
//! | `identity` | the identity |
//! | `epoch` | how often the folder was opened |
//! | `manifest` | the files of the log in order, a digest of each that is closed, and the base |
//! | `tail` | how far the log is known to go |
//! | `log/<first event>-<serial>.redb` | events and notes |
//! | `snapshots/<event>.snap` | snapshots |
//!
//! Small files are replaced as one. A file of the log is closed when it is large enough; from then on
//! it does not change, and its digest tells every flipped byte. The one that is written to has a
//! checksum in each batch instead, which covers the batch before it too.
//!
//! After a crash the last file of the log is mended: a batch that was being written is there or not.
//! A batch that had been acknowledged is: should it be missing, `tail` says so. It is written after
//! each batch, but not forced to the disk, so that after a power failure it may lag behind.

mod files;
mod manifest;
mod quiet;
mod restore;
mod segment;
mod snapshot;
mod tail;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use redb::{Database, ReadOnlyDatabase};

pub use restore::restore;

use self::files::{At, damaged};
use self::manifest::{Entry, Manifest, Seal};
use self::segment::{Batch, Chain, Part};
use self::tail::Tail;
use super::{Checked, Fate, Row, Store, StoreError, Visit, archive, rows};

/// The format this version reads and writes.
const FORMAT: u64 = 1;
/// A file of the log is closed when it holds this many bytes.
const LIMIT: u64 = 64 << 20;
/// How much of the log is in memory while it is read.
const CHUNK: usize = 1 << 20;

/// Keeps everything in a folder.
///
/// After a backup is restored, numbers of epochs go on from that of the original at the time of the
/// backup. So the restored folder never has an epoch that the original had before the backup; what
/// the original does after it is another history.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    epoch: u64,
    limit: u64,
    last: AtomicU64,
    base: AtomicU64,
    writer: Mutex<Writer>,
    /// Taken after `writer`.
    log: RwLock<Log>,
    /// Held while everything is rewritten or copied. Taken before `writer`.
    whole: Mutex<()>,
    snapshots: Mutex<()>,
    /// Keeps others out as long as it is open.
    _lock: File,
}

#[derive(Debug)]
struct Log {
    manifest: Manifest,
    /// The last file of the log, if it is written to.
    active: Option<Database>,
}

#[derive(Debug)]
struct Writer {
    chain: Chain,
    tail: Tail,
    /// Bytes in the active file, about.
    size: u64,
    state: State,
    /// The last file of the log is closed, but nobody relies on that: it may be gone on with.
    reopen: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// A write failed.
    Broken,
    Closed,
}

impl Folder {
    /// Opens the store in the folder `path`, which is made if it is not there.
    ///
    /// # Errors
    /// Where it is in use, is not a store, is damaged, or cannot be written.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with_limit(path, LIMIT)
    }

    /// Opens the store in the folder `path`, and begins a new file of the log whenever the last one
    /// has more than about `limit` bytes.
    ///
    /// # Errors
    /// As [`Folder::open`].
    pub fn open_with_limit(path: &Path, limit: u64) -> Result<Self, StoreError> {
        files::make_folder(path)?;
        let format = read_format(path)?;
        let lock = take_lock(path)?;
        if format.is_none() {
            files::put(&path.join("format"), &format_text(FORMAT))?;
        }
        files::make_folder(&path.join("log"))?;
        files::make_folder(&snapshot::folder(path))?;
        let manifest = Manifest::read(path)?;
        let epoch = read_epoch(path, manifest.is_some())?;
        let manifest = match manifest {
            Some(manifest) => manifest,
            None => begin(path)?,
        };
        let tail = Tail::open(path)?;
        files::get(&path.join("identity"))?;
        let (log, chain) = attach(path, manifest, true)?;
        let last = chain.next - 1;
        tail.check(path, &log.manifest, &chain)?;
        check_snapshots(path, log.manifest.base, last)?;
        let size = match &log.active {
            Some(_) => log.size(path)?,
            None => 0,
        };
        let base = log.manifest.base;
        let epoch = epoch + 1;
        files::put(&path.join("epoch"), &epoch.to_le_bytes())?;
        Ok(Self {
            path: path.into(),
            epoch,
            limit,
            last: AtomicU64::new(last),
            base: AtomicU64::new(base),
            writer: Mutex::new(Writer {
                chain,
                tail,
                size,
                state: State::Open,
                reopen: log.active.is_none(),
            }),
            log: RwLock::new(log),
            whole: Mutex::new(()),
            snapshots: Mutex::new(()),
            _lock: lock,
        })
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self) -> RwLockReadGuard<'_, Log> {
        self.log.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn log_mut(&self) -> RwLockWriteGuard<'_, Log> {
        self.log.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends events, which may be empty, and notes that were written after the event `after`.
    fn add(&self, events: &[&[u8]], after: Option<u64>, notes: &[&[u8]]) -> Result<(), StoreError> {
        let mut writer = self.writer();
        match writer.state {
            State::Open => {}
            State::Broken => {
                return Err(StoreError::Write {
                    file: self.path.join("log"),
                    reason: "an earlier write failed".into(),
                });
            }
            State::Closed => return Err(closed()),
        }
        if events.is_empty() && notes.is_empty() {
            return Ok(());
        }
        let outcome = self.add_to(&mut writer, events, after, notes);
        if outcome.is_err() {
            writer.state = State::Broken;
        }
        outcome
    }

    fn add_to(
        &self,
        writer: &mut Writer,
        events: &[&[u8]],
        after: Option<u64>,
        notes: &[&[u8]],
    ) -> Result<(), StoreError> {
        if writer.size > self.limit {
            self.seal(writer)?;
        }
        if self.log().active.is_none() {
            self.activate(writer)?;
        }
        let log = self.log();
        let (Some(active), Some(entry)) = (&log.active, log.manifest.entries.last()) else {
            return Err(closed());
        };
        let file = entry.file(&self.path);
        let after = after.unwrap_or(writer.chain.next - 1);
        let chain = segment::add(&file, active, writer.chain, &mut |fill| {
            if !notes.is_empty() {
                fill.notes(after, notes)?;
            }
            fill.events(events)
        })?;
        writer.chain = chain;
        writer.size += events
            .iter()
            .chain(notes)
            .map(|r| r.len() as u64 + 8)
            .sum::<u64>();
        writer.tail.put(entry.serial, &chain);
        self.last.store(chain.next - 1, Ordering::Release);
        Ok(())
    }

    /// Goes on with the last file of the log, or begins one.
    fn activate(&self, writer: &mut Writer) -> Result<(), StoreError> {
        let mut log = self.log_mut();
        let mut manifest = log.manifest.clone();
        if std::mem::take(&mut writer.reopen)
            && let Some(last) = manifest.entries.last_mut()
            && let Some(seal) = last.seal.take()
            && seal.length < self.limit
            && unread(&last.file(&self.path))
        {
            let file = last.file(&self.path);
            manifest.write(&self.path)?;
            log.manifest = manifest;
            log.active = Some(segment::open(&file)?);
            writer.chain = seal.end;
            writer.size = seal.length;
            return Ok(());
        }
        let mut manifest = log.manifest.clone();
        let entry = Entry {
            first: writer.chain.next,
            serial: manifest.serial,
            mended: false,
            seal: None,
        };
        let file = entry.file(&self.path);
        files::remove(&file)?;
        let active = segment::create(&file, entry.first)?;
        files::sync_folder(&self.path.join("log"))?;
        manifest.serial += 1;
        writer.chain = Chain::start(entry.first);
        writer.size = 0;
        manifest.entries.push(entry);
        manifest.write(&self.path)?;
        log.manifest = manifest;
        log.active = Some(active);
        Ok(())
    }

    /// Closes the last file of the log. Nothing is written to it from then on.
    fn seal(&self, writer: &mut Writer) -> Result<(), StoreError> {
        writer.reopen = false;
        writer.size = 0;
        let mut log = self.log_mut();
        let Some(active) = log.active.take() else {
            return Ok(());
        };
        let mut manifest = log.manifest.clone();
        let Some(entry) = manifest.entries.last_mut() else {
            return Ok(());
        };
        let file = entry.file(&self.path);
        segment::finish(&file, active)?;
        entry.seal = Some(seal_of(&file, entry.first, writer.chain)?);
        manifest.write(&self.path)?;
        log.manifest = manifest;
        Ok(())
    }

    /// Closes the last file of the log, and returns the list of all of them.
    fn settle(&self) -> Result<Manifest, StoreError> {
        let mut writer = self.writer();
        match writer.state {
            State::Broken => Err(StoreError::Write {
                file: self.path.join("log"),
                reason: "an earlier write failed".into(),
            }),
            State::Open | State::Closed => {
                let outcome = self.seal(&mut writer);
                if outcome.is_err() {
                    writer.state = State::Broken;
                }
                outcome?;
                Ok(self.log().manifest.clone())
            }
        }
    }

    /// Some of the batches from the one with the event `from` on.
    fn chunk(&self, from: u64, open: &mut Option<Opened>) -> Result<Vec<Batch>, StoreError> {
        let log = self.log();
        let holds =
            |e: &&Entry| e.first <= from && e.seal.as_ref().is_none_or(|s| from < s.end.next);
        let Some(entry) = log.manifest.entries.iter().find(holds) else {
            return Err(damaged(
                &Manifest::file(&self.path),
                format!("event {from} is in no part of the log"),
            ));
        };
        let (first, file) = (entry.first, entry.file(&self.path));
        let batches = match (&entry.seal, &log.active) {
            (None, Some(active)) => segment::events(&file, active, first, from, CHUNK),
            (None, None) => Err(unread_yet(&file)),
            (Some(_), _) => {
                let opened = opened(open, entry, &file)?;
                drop(log);
                segment::events(&file, &opened.db, first, from, CHUNK)
            }
        }?;
        match batches.first() {
            Some(batch) if batch.number <= from => Ok(batches),
            _ => Err(damaged(&file, format!("event {from} is missing"))),
        }
    }

    /// Some of the batches of notes in the part `index` of the log, from number `from` on.
    fn note_chunk(
        &self,
        index: usize,
        from: u64,
        open: &mut Option<Opened>,
    ) -> Result<Option<Vec<Batch>>, StoreError> {
        let log = self.log();
        let Some(entry) = log.manifest.entries.get(index) else {
            return Ok(None);
        };
        let (first, file) = (entry.first, entry.file(&self.path));
        let end = entry.seal.as_ref().map(|s| s.end.notes);
        if end.is_some_and(|end| from >= end) {
            return Ok(Some(Vec::new()));
        }
        let batches = match (&entry.seal, &log.active) {
            (None, Some(active)) => segment::notes(&file, active, first, from, CHUNK),
            (None, None) => Err(unread_yet(&file)),
            (Some(_), _) => {
                let opened = opened(open, entry, &file)?;
                drop(log);
                segment::notes(&file, &opened.db, first, from, CHUNK)
            }
        }?;
        if end.is_some() && batches.is_empty() {
            return Err(damaged(&file, "notes are missing"));
        }
        Ok(Some(batches))
    }

    /// Writes the part `entry` of the log again as `fate` says. None where nothing of it changes.
    fn rewritten(
        &self,
        entry: &Entry,
        serial: u64,
        upto: u64,
        fate: &mut dyn FnMut(Row<'_>) -> Result<Fate, StoreError>,
    ) -> Result<Option<Entry>, StoreError> {
        let new = Entry {
            first: entry.first,
            serial,
            mended: false,
            seal: None,
        };
        let (from, to) = (entry.file(&self.path), new.file(&self.path));
        let outcome = rewrite_file(&from, &to, entry, upto, fate);
        let seal = match outcome {
            Ok(Some(chain)) => seal_of(&to, entry.first, chain).map(Some),
            Ok(None) => Ok(None),
            Err(e) => Err(e),
        };
        match seal {
            Ok(Some(seal)) => Ok(Some(Entry {
                seal: Some(seal),
                ..new
            })),
            other => {
                files::remove(&to)?;
                other.map(|_| None)
            }
        }
    }
}

/// A closed file of the log that is being read.
struct Opened {
    serial: u64,
    db: ReadOnlyDatabase,
}

fn opened<'a>(
    open: &'a mut Option<Opened>,
    entry: &Entry,
    file: &Path,
) -> Result<&'a Opened, StoreError> {
    let same = open.take().filter(|o| o.serial == entry.serial);
    let opened = match same {
        Some(opened) => opened,
        None => Opened {
            serial: entry.serial,
            db: segment::open_sealed(file)?,
        },
    };
    Ok(open.insert(opened))
}

impl Store for Folder {
    fn identity(&self) -> Result<Option<Vec<u8>>, StoreError> {
        files::get(&self.path.join("identity"))
    }

    fn set_identity(&self, identity: &[u8]) -> Result<(), StoreError> {
        let _one = self.writer();
        if self.identity()?.is_some() {
            return Err(StoreError::Refused("the store has an identity".into()));
        }
        files::put(&self.path.join("identity"), identity)
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    fn append(&self, events: &[&[u8]], notes: &[&[u8]]) -> Result<(), StoreError> {
        match rows::refusal(events, notes) {
            Some(reason) => Err(StoreError::Refused(reason)),
            None => self.add(events, None, notes),
        }
    }

    fn recover(&self) -> Result<u64, StoreError> {
        let mut writer = self.writer();
        match writer.state {
            State::Open => return Ok(self.last()),
            State::Closed => return Err(closed()),
            State::Broken => {}
        }
        let mut log = self.log_mut();
        if let Some(active) = log.active.take() {
            segment::finish(&self.path.join("log"), active)?;
        }
        // Says whether anything can be written at all.
        files::put(&self.path.join("epoch"), &self.epoch.to_le_bytes())?;
        let manifest = Manifest::read(&self.path)?
            .ok_or_else(|| damaged(&Manifest::file(&self.path), "it is missing"))?;
        if let Some(last) = manifest.entries.last()
            && last.seal.is_none()
        {
            files::write_again(&last.file(&self.path))?;
        }
        let (attached, chain) = attach(&self.path, manifest, false)?;
        *log = attached;
        writer.size = match &log.active {
            Some(_) => log.size(&self.path)?,
            None => 0,
        };
        writer.chain = chain;
        writer.state = State::Open;
        self.base.store(log.manifest.base, Ordering::Release);
        self.last.store(chain.next - 1, Ordering::Release);
        if let Some(entry) = log.manifest.entries.last() {
            writer.tail.put(entry.serial, &chain);
        }
        Ok(self.last())
    }

    fn events(&self, after: u64, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let last = self.last();
        let mut next = after.saturating_add(1);
        let mut open = None;
        while next <= last {
            for batch in self.chunk(next, &mut open)? {
                for (number, event) in (batch.number..).zip(batch.rows()) {
                    if number == next && number <= last {
                        visit(number, event)?;
                        next += 1;
                    }
                }
            }
        }
        Ok(())
    }

    fn notes(&self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let mut index = 0;
        loop {
            let mut open = None;
            let mut from = 0;
            loop {
                let Some(batches) = self.note_chunk(index, from, &mut open)? else {
                    return Ok(());
                };
                if batches.is_empty() {
                    break;
                }
                from += batches.len() as u64;
                for batch in &batches {
                    for note in batch.rows() {
                        visit(batch.number, note)?;
                    }
                }
            }
            index += 1;
        }
    }

    fn put_snapshot(
        &self,
        at: u64,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        let _one = self
            .snapshots
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (base, last) = (self.base(), self.last());
        if at > last {
            return Err(StoreError::Refused(format!(
                "a snapshot at {at} is after the last event, {last}"
            )));
        }
        if at < base {
            return Err(StoreError::Refused(format!(
                "a snapshot at {at} is before the base, {base}"
            )));
        }
        snapshot::write(&self.path, at, write)?;
        let newest = snapshot::list(&self.path)?.last().copied();
        snapshot::tidy(&self.path, |s| s == base || Some(s) == newest)
    }

    fn snapshots(&self) -> Result<Vec<u64>, StoreError> {
        snapshot::list(&self.path)
    }

    fn open_snapshot(&self, at: u64) -> Result<Box<dyn Read + Send>, StoreError> {
        Ok(Box::new(snapshot::open(&self.path, at)?))
    }

    fn base(&self) -> u64 {
        self.base.load(Ordering::Acquire)
    }

    fn rewrite(
        &self,
        upto: u64,
        fate: &mut dyn FnMut(Row<'_>) -> Result<Fate, StoreError>,
    ) -> Result<(), StoreError> {
        let _whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        if upto < self.base() {
            return Err(StoreError::Refused(format!(
                "the store is rewritten up to {} already, not only to {upto}",
                self.base()
            )));
        }
        // No snapshot is tidied away in the meantime.
        let _snapshots = self
            .snapshots
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !snapshot::list(&self.path)?.contains(&upto) {
            return Err(StoreError::Refused(format!(
                "there is no snapshot at {upto}"
            )));
        }
        let parts = self.settle()?.entries;
        for (index, entry) in parts.iter().enumerate().filter(|(_, e)| e.first <= upto) {
            let serial = self.take_serial();
            let Some(new) = self.rewritten(entry, serial, upto, fate)? else {
                continue;
            };
            self.change(|manifest| {
                manifest.base = upto;
                manifest.entries[index] = new;
            })?;
            files::remove(&entry.file(&self.path))?;
            files::sync_folder(&self.path.join("log"))?;
        }
        self.change(|manifest| manifest.base = upto)?;
        snapshot::tidy(&self.path, |s| s >= upto)
    }

    fn backup(&self, out: &mut dyn Write) -> Result<(), StoreError> {
        let _whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        // They are opened first: then they stay readable, whatever is tidied away.
        let snapshots = {
            let _snapshots = self
                .snapshots
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let open = |at| Ok((at, snapshot::open(&self.path, at)?));
            let all = snapshot::list(&self.path)?;
            all.into_iter()
                .map(open)
                .collect::<Result<Vec<_>, StoreError>>()?
        };
        let manifest = self.settle()?;
        let mut writer = archive::Writer::new(out, self.epoch, manifest.base)?;
        if let Some(identity) = self.identity()? {
            writer.identity(&identity)?;
        }
        for entry in &manifest.entries {
            entry.check(&self.path)?;
            let file = entry.file(&self.path);
            let db = segment::open_sealed(&file)?;
            segment::walk(&file, &db, entry.first, &mut |part| match part {
                Part::Events(batch) => writer.events(batch.number, &batch.rows()),
                Part::Notes(batch) => writer.notes(batch.number, &batch.rows()),
            })?;
        }
        for (at, mut reader) in snapshots {
            writer.snapshot(at, &mut reader)?;
        }
        writer.finish()
    }

    fn check(&self) -> Result<Checked, StoreError> {
        let _whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        let mut checked = Checked::default();
        let mut found = |bytes| {
            checked.files += 1;
            checked.bytes += bytes;
        };
        let writer = self.writer();
        for name in ["format", "epoch", "manifest", "tail", "identity"] {
            let file = self.path.join(name);
            match files::get(&file)? {
                Some(bytes) => found(bytes.len() as u64),
                None if name == "identity" => {}
                None => return Err(damaged(&file, "it is missing")),
            }
        }
        drop(writer);
        let entries = self.log().manifest.entries.clone();
        for entry in &entries {
            found(entry.check(&self.path)?);
        }
        for at in snapshot::list(&self.path)? {
            match snapshot::check(&self.path, at) {
                Ok(bytes) => found(bytes),
                Err(_) if !snapshot::list(&self.path)?.contains(&at) => {}
                Err(e) => return Err(e),
            }
        }
        self.events(0, &mut |_, _| {
            checked.events += 1;
            Ok(())
        })?;
        self.notes(&mut |_, _| Ok(()))?;
        Ok(checked)
    }

    fn bytes(&self) -> u64 {
        let size = |folder: &Path| -> u64 {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            let lengths = entries.filter_map(|e| e.metadata().ok());
            lengths.filter(|m| m.is_file()).map(|m| m.len()).sum()
        };
        size(&self.path) + size(&self.path.join("log")) + size(&snapshot::folder(&self.path))
    }

    fn close(&self) -> Result<(), StoreError> {
        let _whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        let mut writer = self.writer();
        match std::mem::replace(&mut writer.state, State::Closed) {
            State::Closed => Ok(()),
            State::Broken => Err(StoreError::Write {
                file: self.path.join("log"),
                reason: "an earlier write failed".into(),
            }),
            State::Open => self.seal(&mut writer),
        }
    }

    fn folder(&self) -> Option<&Path> {
        Some(&self.path)
    }
}

impl Folder {
    /// Changes the list of the files of the log, and the base with it.
    fn change(&self, change: impl FnOnce(&mut Manifest)) -> Result<(), StoreError> {
        let mut log = self.log_mut();
        let mut manifest = log.manifest.clone();
        change(&mut manifest);
        if manifest != log.manifest {
            manifest.write(&self.path)?;
            self.base.store(manifest.base, Ordering::Release);
            log.manifest = manifest;
        }
        Ok(())
    }

    /// A number for a new file of the log, which no other gets as long as the folder is open.
    fn take_serial(&self) -> u64 {
        let mut log = self.log_mut();
        let serial = log.manifest.serial;
        log.manifest.serial += 1;
        serial
    }
}

impl Log {
    fn size(&self, path: &Path) -> Result<u64, StoreError> {
        match self.manifest.entries.last() {
            Some(entry) => {
                let file = entry.file(path);
                Ok(fs::metadata(&file).reading(&file)?.len())
            }
            None => Ok(0),
        }
    }
}

/// The last file of the log cannot be read until [`Store::recover`] has mended it.
fn unread_yet(file: &Path) -> StoreError {
    StoreError::Read {
        file: file.into(),
        reason: "an earlier write failed".into(),
    }
}

fn closed() -> StoreError {
    StoreError::Refused("the store is closed".into())
}

/// Nobody reads this file of the log.
fn unread(file: &Path) -> bool {
    File::open(file).is_ok_and(|f| f.try_lock().is_ok())
}

/// Makes a file of the log durable that is not written to any more, and takes its digest.
fn seal_of(file: &Path, first: u64, chain: Chain) -> Result<Seal, StoreError> {
    files::sync_file(file)?;
    let db = segment::open_sealed(file).map_err(|_| StoreError::Write {
        file: file.into(),
        reason: "it could not be closed".into(),
    })?;
    if !segment::end(file, &db, first, &chain)? {
        return Err(damaged(file, "its end is not what was written"));
    }
    drop(db);
    let (length, digest) = files::digest(file)?;
    Ok(Seal {
        end: chain,
        length,
        digest,
    })
}

/// Writes the file `from` again into `to`. None where nothing of it changes: then `to` is of no use.
fn rewrite_file(
    from: &Path,
    to: &Path,
    entry: &Entry,
    upto: u64,
    fate: &mut dyn FnMut(Row<'_>) -> Result<Fate, StoreError>,
) -> Result<Option<Chain>, StoreError> {
    let source = segment::open_sealed(from)?;
    files::remove(to)?;
    let target = segment::create(to, entry.first)?;
    let start = Chain::start(entry.first);
    let mut changed = entry.mended;
    let chain = segment::add(to, &target, start, &mut |fill| {
        segment::walk(from, &source, entry.first, &mut |part| {
            let (batch, is_event) = match &part {
                Part::Events(batch) => (batch, true),
                Part::Notes(batch) => (batch, false),
            };
            let mut kept: Vec<std::borrow::Cow<'_, [u8]>> = Vec::new();
            for (number, row) in (batch.number..).zip(batch.rows()) {
                let fate = match is_event {
                    true if number <= upto => fate(Row::Event(number, row))?,
                    false if batch.number < upto => fate(Row::Note(row))?,
                    _ => Fate::Keep,
                };
                match fate {
                    Fate::Keep => kept.push(row.into()),
                    Fate::Drop if is_event && row.is_empty() => kept.push(row.into()),
                    Fate::Drop => {
                        changed = true;
                        if is_event {
                            kept.push(Vec::new().into());
                        }
                    }
                    Fate::Replace(bytes) => {
                        changed = true;
                        kept.push(bytes.into());
                    }
                }
            }
            let kept: Vec<&[u8]> = kept.iter().map(AsRef::as_ref).collect();
            // Batches of notes keep their numbers: someone may be in the middle of reading them.
            match is_event {
                true => fill.events(&kept),
                false => fill.notes(batch.number, &kept),
            }
        })
        .map(|_| ())
    });
    segment::finish(to, target)?;
    Ok(Some(chain?).filter(|_| changed))
}

/// Opens the log that `manifest` lists, and finds its end.
fn attach(
    path: &Path,
    mut manifest: Manifest,
    check_last: bool,
) -> Result<(Log, Chain), StoreError> {
    remove_strays(path, &manifest)?;
    for entry in &manifest.entries {
        let file = entry.file(path);
        let length = fs::metadata(&file).reading(&file)?.len();
        if let Some(seal) = &entry.seal
            && seal.length != length
        {
            return Err(damaged(
                &file,
                format!("it has {length} bytes, not {}", seal.length),
            ));
        }
    }
    let Some(last) = manifest.entries.last_mut() else {
        let active = None;
        return Ok((Log { manifest, active }, Chain::start(1)));
    };
    let file = last.file(path);
    if let Some(seal) = &last.seal {
        let chain = seal.end;
        if check_last {
            last.check(path)?;
        }
        let active = None;
        return Ok((Log { manifest, active }, chain));
    }
    last.mended = true;
    let active = segment::open(&file)?;
    let chain = segment::walk(&file, &active, last.first, &mut |_| Ok(()))?;
    let active = Some(active);
    Ok((Log { manifest, active }, chain))
}

/// Removes what a crash left in the folder of the log.
fn remove_strays(path: &Path, manifest: &Manifest) -> Result<(), StoreError> {
    let log = path.join("log");
    let known: Vec<PathBuf> = manifest.entries.iter().map(|e| e.file(path)).collect();
    let mut gone = false;
    for name in files::names(&log)? {
        let file = log.join(&name);
        if name.ends_with(".redb") && !known.contains(&file) {
            files::remove(&file)?;
            gone = true;
        }
    }
    if gone {
        files::sync_folder(&log)?;
    }
    Ok(())
}

fn check_snapshots(path: &Path, base: u64, last: u64) -> Result<(), StoreError> {
    let all = snapshot::list(path)?;
    let newest = all.last().copied().unwrap_or(0);
    if newest > last {
        return Err(damaged(
            &path.join("log"),
            format!("it ends at event {last}, but there is a snapshot at {newest}"),
        ));
    }
    if base > 0 && !all.contains(&base) {
        return Err(damaged(&snapshot::file(path, base), "it is missing"));
    }
    snapshot::tidy(path, |s| s == base || s == newest)
}

fn take_lock(path: &Path) -> Result<File, StoreError> {
    let file = path.join("lock");
    let lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&file)
        .writing(&file)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse(path.into())),
        Err(TryLockError::Error(e)) => Err(e).writing(&file),
    }
}

/// Writes what a folder holds before anything else does.
fn begin(path: &Path) -> Result<Manifest, StoreError> {
    let names = files::names(&path.join("log"))?;
    let log = names.iter().any(|n| n.ends_with(".redb"));
    if log || !snapshot::list(path)?.is_empty() {
        return Err(damaged(&Manifest::file(path), "it is missing"));
    }
    Tail::create(path)?;
    let manifest = Manifest::default();
    manifest.write(path)?;
    Ok(manifest)
}

/// How often the folder was opened. There is such a file wherever there is a list of the log.
fn read_epoch(path: &Path, expected: bool) -> Result<u64, StoreError> {
    let file = path.join("epoch");
    match files::get(&file)? {
        Some(bytes) => match bytes.try_into() {
            Ok(bytes) => Ok(u64::from_le_bytes(bytes)),
            Err(_) => Err(damaged(&file, "it is no number")),
        },
        None if expected => Err(damaged(&file, "it is missing")),
        None => {
            files::put(&file, &0_u64.to_le_bytes())?;
            Ok(0)
        }
    }
}

fn format_text(format: u64) -> Vec<u8> {
    format!("sclub store\nformat {format}\n").into_bytes()
}

/// The format of a folder. None where nothing is in it yet.
fn read_format(path: &Path) -> Result<Option<u64>, StoreError> {
    let file = path.join("format");
    let Some(bytes) = files::get(&file)? else {
        let ours = ["lock", "format.tmp", "lost+found"];
        let names = files::names(path)?;
        return match names.iter().find(|n| !ours.contains(&n.as_str())) {
            None => Ok(None),
            Some(name) => Err(StoreError::Format {
                file: path.into(),
                reason: format!("it holds {name}, and is not a store of sclub"),
            }),
        };
    };
    let text = String::from_utf8_lossy(&bytes);
    let number = text
        .strip_prefix("sclub store\nformat ")
        .and_then(|rest| rest.trim_end().parse::<u64>().ok());
    match number {
        Some(FORMAT) => Ok(Some(FORMAT)),
        Some(format) if format > FORMAT => Err(StoreError::Format {
            file: path.into(),
            reason: format!(
                "it was written by a newer version (format {format}; this one reads {FORMAT})"
            ),
        }),
        _ => Err(damaged(&file, "it names no format")),
    }
}
