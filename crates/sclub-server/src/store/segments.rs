//! A log in files of one folder, as in etcd's write-ahead log.
//!
//! Each file ("segment") has a serial number that is never reused, and its header has the number of its first
//! batch. Batches with that number or later ones in older files are void. So after a failed append the log
//! continues in a new file, and the failed batch never reappears.
//!
//! The folder belongs to one [`Segments`]: nothing else makes or removes files in it. Unfinished files
//! (`*.tmp`) of a crash are removed when it is opened.

mod segment;

use std::future::ready;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;

use super::StoreError;
use super::files::{At, damaged};
use super::frame::{self, End, HEADER, Header, MAX_BATCH, Place};
use super::log::{AppendError, Batches, Follow, Log, Written};
use crate::cluster::bus::BusError;
use crate::env::{Access, DiskFile, Env};
use crate::locks::lock;
use segment::{Reading, Segment, list, next_of, path_of, settle};

/// The length at which a file is closed, in bytes.
pub(super) const SEGMENT_BYTES: u64 = 64 << 20;
/// Space in a file is reserved in steps that double between these.
const MIN_STEP: u64 = 64 << 10;
const MAX_STEP: u64 = 1 << 20;

/// A log in the files of a folder.
#[derive(Debug)]
pub struct Segments {
    env: Env,
    dir: PathBuf,
    limit: u64,
    writer: Mutex<Writer>,
    /// The position where the last reader stopped, so that a reader that follows the log continues there.
    place: Arc<Mutex<Option<Place>>>,
}

#[derive(Debug)]
struct Writer {
    /// The number of the last batch.
    last: u64,
    /// The serial number of the next file.
    serial: u64,
    /// The file that is written to; `None` before the first append and after a failed one.
    active: Option<Active>,
    /// A buffer for the next frame.
    frame: Vec<u8>,
}

#[derive(Debug)]
struct Active {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    header: Header,
    sum: [u8; 16],
    end: u64,
    allocated: u64,
}

impl Active {
    /// Reserves space up to an offset.
    fn reserve(&mut self, end: u64) -> Result<(), AppendError> {
        if end > self.allocated {
            let step = self.allocated.clamp(MIN_STEP, MAX_STEP);
            let length = end.max(self.allocated + step);
            let reserved = self.file.allocate(length).writing(&self.path);
            reserved.map_err(AppendError::NotWritten)?;
            self.allocated = length;
        }
        Ok(())
    }
}

/// Returns the new bytes of a batch that is rewritten; `None` if it does not change.
pub type Change<'a> = dyn FnMut(&[u8]) -> Result<Option<Vec<u8>>, StoreError> + 'a;

impl Segments {
    /// Opens the log in a folder, which is made if it does not exist, and finds its end.
    ///
    /// # Errors
    /// If a file is damaged, or cannot be read or written.
    pub fn open(env: &Env, dir: &Path, limit: u64) -> Result<Self, StoreError> {
        let disk = &env.disk;
        disk.make_dir(dir).writing(dir)?;
        let mut serial = 0;
        for name in disk.names(dir).reading(dir)? {
            if let Some(stem) = name.strip_suffix(".tmp") {
                serial = serial.max(stem.parse::<u64>().map_or(0, |stray| stray + 1));
                disk.remove(&dir.join(name)).writing(dir)?;
            }
        }
        let mut segments = list(env, dir)?;
        let mut last = 0;
        if let Some(newest) = segments.last_mut() {
            serial = serial.max(newest.header.serial + 1);
            last = settle(env, newest)?;
        }
        // A name that is visible may not be durable yet.
        disk.sync_dir(dir).writing(dir)?;
        Ok(Self {
            env: env.clone(),
            dir: dir.into(),
            limit,
            writer: Mutex::new(Writer {
                last,
                serial,
                active: None,
                frame: Vec::new(),
            }),
            place: Arc::default(),
        })
    }

    /// Removes all files of a log, which may be damaged.
    ///
    /// # Errors
    /// If one cannot be removed.
    pub fn remove_all(env: &Env, dir: &Path) -> Result<(), StoreError> {
        let disk = &env.disk;
        for name in disk.names(dir).reading(dir)? {
            if name.ends_with(".log") {
                disk.remove(&dir.join(name)).writing(dir)?;
            }
        }
        disk.sync_dir(dir).writing(dir)
    }

    /// The files, oldest first. That of the writer has its batches up to the last one.
    fn list(&self, writer: &Writer) -> Result<Vec<Segment>, StoreError> {
        let mut segments = list(&self.env, &self.dir)?;
        if let Some(newest) = segments.last_mut() {
            newest.last = writer.last;
        }
        Ok(segments)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        lock(&self.writer)
    }

    /// The number of the last batch.
    pub fn last(&self) -> u64 {
        self.writer().last
    }

    /// The serial number of the file that the next append goes to. The file is begun if necessary.
    ///
    /// # Errors
    /// If it cannot be begun.
    pub fn next_file(&self) -> Result<u64, StoreError> {
        let mut writer = self.writer();
        self.make_room(&mut writer)?;
        Ok(writer.active.as_ref().map_or(0, |a| a.header.serial))
    }

    fn make_room(&self, writer: &mut Writer) -> Result<(), StoreError> {
        if writer.active.as_ref().is_none_or(|a| a.end >= self.limit) {
            self.begin(writer)?;
        }
        Ok(())
    }

    /// Begins a file after the last batch. From then on everything after that batch in older files
    /// is void.
    fn begin(&self, writer: &mut Writer) -> Result<(), StoreError> {
        writer.active = None;
        let serial = writer.serial;
        writer.serial += 1;
        let mut salt = [0; 16];
        self.env.random.fill(&mut salt).writing(&self.dir)?;
        let header = Header {
            serial,
            first: writer.last + 1,
            salt,
        };
        let path = path_of(&self.dir, serial);
        let file = self.create(&path, &header.encode())?;
        writer.active = Some(Active {
            file,
            path,
            sum: header.sum(),
            header,
            end: HEADER as u64,
            allocated: HEADER as u64,
        });
        Ok(())
    }

    /// Writes a batch as the next one.
    fn put(&self, writer: &mut Writer, batch: &[u8], sync: bool) -> Result<(), AppendError> {
        if batch.len() > MAX_BATCH {
            let reason = format!(
                "the batch has {} bytes; at most {MAX_BATCH} are supported",
                batch.len()
            );
            return Err(AppendError::NotWritten(StoreError::Refused(reason)));
        }
        self.make_room(writer).map_err(AppendError::NotWritten)?;
        let active = writer.active.as_mut().expect("make_room() has begun it");
        let number = writer.last + 1;
        writer.frame.clear();
        let sum = frame::put(
            &mut writer.frame,
            &active.header,
            &active.sum,
            number,
            batch,
        );
        let end = active.end + writer.frame.len() as u64;
        if sync {
            active.reserve(end)?;
        }
        let written = active
            .file
            .write_all_at(&writer.frame, active.end)
            .and_then(|()| if sync { active.file.sync() } else { Ok(()) })
            .writing(&active.path);
        if let Err(error) = written {
            writer.active = None;
            return Err(AppendError::Unknown(error));
        }
        active.end = end;
        active.sum = sum;
        writer.last = number;
        Ok(())
    }

    /// Writes many batches with one sync for each file, into a log that is empty. Their numbers continue from
    /// `last`. [`Segments::finish`] makes them durable.
    ///
    /// # Errors
    /// If they cannot be written. The log is unusable then.
    pub fn fill(&self, last: u64, batch: &[u8]) -> Result<(), StoreError> {
        let mut writer = self.writer();
        if writer.last != last {
            if writer.active.is_some() || writer.last != 0 {
                return Err(StoreError::Refused(format!(
                    "batch {} does not follow batch {}",
                    last + 1,
                    writer.last
                )));
            }
            writer.last = last;
        }
        let is_full = |a: &Active| a.end >= self.limit;
        if writer.active.as_ref().is_some_and(is_full) {
            self.sync(&writer)?;
        }
        Ok(self.put(&mut writer, batch, false)?)
    }

    /// Makes the batches of [`Segments::fill`] durable. A log without batches begins after `last`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(&self, last: u64) -> Result<(), StoreError> {
        let mut writer = self.writer();
        writer.last = writer.last.max(last);
        if writer.active.is_none() {
            self.begin(&mut writer)?;
        }
        self.sync(&writer)
    }

    fn sync(&self, writer: &Writer) -> Result<(), StoreError> {
        match &writer.active {
            Some(active) => active.file.sync().writing(&active.path),
            None => Ok(()),
        }
    }

    /// Makes a file atomically: it is complete and durable under its name, or does not exist.
    fn create(&self, path: &Path, bytes: &[u8]) -> Result<Arc<dyn DiskFile>, StoreError> {
        let disk = &self.env.disk;
        let new = path.with_extension("tmp");
        let made = (|| {
            let file = disk.open(&new, Access::Create)?;
            file.write_all_at(bytes, 0)?;
            file.sync()?;
            disk.rename(&new, path)?;
            disk.sync_dir(&self.dir)?;
            Ok(file)
        })();
        if made.is_err() {
            // If it cannot be removed now, it is removed when the log is opened again.
            let _ = disk.remove(&new);
        }
        made.writing(path)
    }

    /// Rewrites every batch by `change`. No byte of a replaced batch is in any file afterwards.
    ///
    /// # Errors
    /// If a file cannot be read or written, or `change` fails. It can be repeated.
    pub fn rewrite(&self, change: &mut Change<'_>) -> Result<(), StoreError> {
        // The lock is held: appends wait meanwhile.
        let mut writer = self.writer();
        self.begin(&mut writer)?;
        let newest = writer.serial - 1;
        for mut segment in self.list(&writer)? {
            let header = segment.header;
            let is_void = segment.until == Some(header.first);
            if header.serial == newest {
                continue;
            }
            if is_void {
                self.env.disk.remove(&segment.path).writing(&segment.path)?;
                continue;
            }
            let mut new = header;
            // With a new salt it is another file: a position in the old one is not used in it.
            self.env.random.fill(&mut new.salt).writing(&self.dir)?;
            let mut bytes = new.encode().to_vec();
            let mut sum = new.sum();
            let mut is_changed = false;
            segment.open(&self.env)?;
            while let Some((number, batch)) = next_of(&mut segment)? {
                let changed = change(&batch)?;
                is_changed |= changed.is_some();
                let batch = changed.unwrap_or(batch);
                sum = frame::put(&mut bytes, &new, &sum, number, &batch);
            }
            // After the last frame there may be remains of one that failed.
            let has_rest = segment.path_length(&self.env)? != bytes.len() as u64;
            if is_changed || has_rest {
                self.create(&segment.path, &bytes)?;
            }
        }
        // Files that an earlier attempt could not remove.
        let disk = &self.env.disk;
        for name in disk.names(&self.dir).reading(&self.dir)? {
            if name.ends_with(".tmp") {
                disk.remove(&self.dir.join(name)).writing(&self.dir)?;
            }
        }
        self.sync_names()
    }

    /// Makes the names of replaced and removed files durable, also those of an earlier attempt that failed
    /// here.
    ///
    /// # Errors
    /// If the folder cannot be synced.
    pub fn sync_names(&self) -> Result<(), StoreError> {
        self.env.disk.sync_dir(&self.dir).writing(&self.dir)
    }

    /// The number of the first batch that can be read.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn first(&self) -> Result<u64, StoreError> {
        let writer = self.writer();
        let segments = self.list(&writer)?;
        Ok(segments.first().map_or(1, Segment::first))
    }

    /// The file with the last batch, or the folder if there is none.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn newest_file(&self) -> Result<PathBuf, StoreError> {
        let writer = self.writer();
        let newest = self.list(&writer)?.pop();
        Ok(newest.map_or_else(|| self.dir.clone(), |segment| segment.path))
    }

    /// All files except the newest, oldest first: the number of the first batch of the next file, and the
    /// length of the file.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn closed(&self) -> Result<Vec<(u64, u64)>, StoreError> {
        let writer = self.writer();
        let segments = self.list(&writer)?;
        let closed = segments.iter().filter_map(|s| Some((s, s.until?)));
        closed
            .map(|(segment, until)| Ok((until, segment.path_length(&self.env)?)))
            .collect()
    }

    /// Reads every byte. Returns the number of files and their bytes.
    ///
    /// # Errors
    /// The file that is damaged.
    pub fn check(&self) -> Result<(u64, u64), StoreError> {
        let (mut files, mut bytes) = (0, 0);
        let segments = self.list(&self.writer())?;
        for mut segment in segments {
            segment.open(&self.env)?;
            while next_of(&mut segment)?.is_some() {}
            let path = segment.path.clone();
            if segment.until.is_none()
                && segment.open(&self.env)?.end().reading(&path)? == End::Damaged
            {
                return Err(damaged(&segment.path, "a batch is damaged"));
            }
            files += 1;
            bytes += segment.path_length(&self.env)?;
        }
        Ok((files, bytes))
    }
}

impl Segments {
    /// As [`Log::append`].
    ///
    /// # Errors
    /// See [`AppendError`].
    pub fn append(&self, expected_last: u64, batch: &[u8]) -> Result<(), AppendError> {
        let mut writer = self.writer();
        if writer.last != expected_last {
            return Err(AppendError::Conflict { last: writer.last });
        }
        if batch.is_empty() {
            let is_fresh = |a: &Active| a.end == HEADER as u64;
            if !writer.active.as_ref().is_some_and(is_fresh) {
                self.begin(&mut writer).map_err(AppendError::NotWritten)?;
            }
            // An empty append also reserves space, to see that the disk has room.
            let active = writer.active.as_mut().expect("it is fresh");
            return active.reserve(HEADER as u64 + 1);
        }
        self.put(&mut writer, batch, true)
    }

    /// As [`Log::read`].
    ///
    /// # Errors
    /// If a batch was dropped, or a file cannot be read.
    pub fn read(&self, after: u64) -> Result<Batches, StoreError> {
        // Locked, so that no file is made, removed or rewritten meanwhile.
        let writer = self.writer();
        let mut segments = self.list(&writer)?;
        segments.retain(|s| s.until.is_none_or(|until| until > after + 1));
        for segment in &mut segments {
            segment.open(&self.env)?;
        }
        if let Some(first) = segments.first()
            && first.first() > after + 1
        {
            return Err(StoreError::Refused(format!(
                "batch {} is no longer in {}, which begins with batch {}",
                after + 1,
                self.dir.display(),
                first.first()
            )));
        }
        if let Some(first) = segments.first_mut()
            && let Some(place) = &*lock(&self.place)
            && let Some(frames) = &mut first.frames
        {
            frames.skip_to(place, after + 1);
        }
        let mut rest = segments.into_iter();
        Ok(Box::new(Reading {
            current: rest.next(),
            rest,
            after,
            place: Arc::clone(&self.place),
        }))
    }

    /// As [`Log::drop_before`].
    ///
    /// # Errors
    /// If a file cannot be removed. It can be retried.
    pub fn drop_before(&self, number: u64) -> Result<(), StoreError> {
        let writer = self.writer();
        for segment in self.list(&writer)? {
            if segment
                .until
                .is_some_and(|until| until <= number.min(writer.last + 1))
            {
                self.env.disk.remove(&segment.path).writing(&segment.path)?;
            }
        }
        self.sync_names()
    }
}

/// Files have one writer and no followers, so every call is done when it returns.
impl Log for Segments {
    fn append(&self, expected_last: u64, batch: Bytes) -> Written<'_, AppendError> {
        Box::pin(ready(Segments::append(self, expected_last, &batch)))
    }

    fn drop_before(&self, number: u64) -> Written<'_, StoreError> {
        Box::pin(ready(Segments::drop_before(self, number)))
    }

    fn read(&self, after: u64) -> Result<Batches, StoreError> {
        Segments::read(self, after)
    }

    fn first(&self) -> Result<u64, StoreError> {
        Segments::first(self)
    }

    fn closed(&self) -> Result<Option<Vec<(u64, u64)>>, StoreError> {
        Segments::closed(self).map(Some)
    }

    fn follow(&self, _after: u64) -> Follow<'_> {
        let reason = "this log has one writer".to_owned();
        Box::pin(ready(Err(BusError::Failed(reason))))
    }
}
