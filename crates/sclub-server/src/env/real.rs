//! The system's disk, clock, random numbers and threads.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{Access, Clock, Disk, DiskFile, LockGuard, Random, Spawner, Task};

/// A data folder is readable by its owner only: it has the key that seals decisions.
const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// The system's files.
#[derive(Debug)]
pub(super) struct SystemDisk;

impl Disk for SystemDisk {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(DIR_MODE).create(path)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).mode(FILE_MODE);
        match access {
            Access::Read => {}
            Access::Write => drop(options.write(true)),
            Access::Create => drop(options.write(true).create(true).truncate(true)),
        }
        Ok(Arc::new(SystemFile(options.open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn names(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.len())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        locked(options.mode(FILE_MODE).open(path)?)
    }
}

/// Locks a file for as long as the guard lives.
pub(super) fn locked(file: File) -> io::Result<Box<dyn LockGuard>> {
    match file.try_lock() {
        Ok(()) => Ok(Box::new(Locked(file))),
        Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// A locked file; closing it unlocks it.
#[derive(Debug)]
struct Locked(#[expect(dead_code, reason = "held for its lock")] File);

impl LockGuard for Locked {}

#[derive(Debug)]
struct SystemFile(File);

impl DiskFile for SystemFile {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(out, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        // Zeros are written, not only reserved: otherwise every sync also waits for the file system's
        // journal, which must record that reserved space became data. This halves the time of a sync.
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let mut end = self.len()?;
        while end < length {
            let count = (length - end).min(ZEROS.len() as u64);
            self.write_all_at(&ZEROS[..count as usize], end)?;
            end += count;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

/// The system's clocks.
#[derive(Debug)]
pub(super) struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn wall(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as u64)
    }

    fn monotonic(&self) -> u64 {
        self.0.elapsed().as_millis() as u64
    }

    fn pause(&self, microseconds: u64) {
        std::thread::sleep(Duration::from_micros(microseconds));
    }

    fn sleep(&self, milliseconds: u64) -> Task {
        Box::pin(tokio::time::sleep(Duration::from_millis(milliseconds)))
    }
}

/// The system's random numbers.
#[derive(Debug)]
pub(super) struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) -> io::Result<()> {
        getrandom::fill(bytes).map_err(io::Error::other)
    }
}

/// A thread of its own for each task.
#[derive(Debug)]
pub(super) struct Threads;

impl Spawner for Threads {
    fn spawn(&self, name: &str, task: Task) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || runtime.block_on(task))
            .map(drop)
    }
}
