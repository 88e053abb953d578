//! Everything outside the engine: disk, clock, randomness and threads.
//!
//! They are injected, so that a test can run a whole server on a disk that fails, a clock that jumps and a
//! scheduler with a seed. A server uses [`Env::real`].

mod real;
mod unwritable;

use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

/// A future that owns everything it needs.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The disk, clock, random numbers and threads that an engine uses.
#[derive(Debug, Clone)]
pub struct Env {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Random numbers.
    pub random: Arc<dyn Random>,
    /// The runner of background tasks.
    pub spawner: Arc<dyn Spawner>,
}

impl Env {
    /// The system's disk, clock, random numbers and threads.
    pub fn real() -> Self {
        Self {
            disk: Arc::new(real::SystemDisk),
            clock: Arc::new(real::SystemClock::default()),
            random: Arc::new(real::SystemRandom),
            spawner: Arc::new(real::Threads),
        }
    }

    /// Like [`Env::real`], for commands that only read a data folder: it may be on a file system that is read-only.
    pub fn reading(data: &Path) -> Self {
        let mut env = Self::real();
        if unwritable::is_unwritable(&data.join("lock")) {
            env.disk = Arc::new(unwritable::Unwritable);
        }
        env
    }
}

/// The mode in which a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// For reading; the file must exist.
    Read,
    /// For reading and writing; the file must exist.
    Write,
    /// For reading and writing; an existing file is emptied.
    Create,
}

/// The file calls that a data folder needs.
///
/// Nothing is durable before [`DiskFile::sync`] (bytes and length of a file) or [`Disk::sync_dir`]
/// (names in a folder) has returned. After a failed sync, what was written since the last good one may
/// be durable or not, in any part, and a later sync may succeed without having written it.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Makes a folder, and those above it, readable by the owner only. Does nothing if it exists.
    ///
    /// # Errors
    /// The system's error.
    fn make_dir(&self, path: &Path) -> io::Result<()>;

    /// Opens a file. A new one is readable by the owner only.
    ///
    /// # Errors
    /// The system's error; [`io::ErrorKind::NotFound`] if it must exist and does not.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>>;

    /// Renames a file or folder, replacing the file of the new name.
    ///
    /// # Errors
    /// The system's error.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. Readers that have it open can still read it.
    ///
    /// # Errors
    /// The system's error; [`io::ErrorKind::NotFound`] if there is none.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes a folder with everything in it.
    ///
    /// # Errors
    /// The system's error.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;

    /// The names in a folder, sorted.
    ///
    /// # Errors
    /// The system's error; [`io::ErrorKind::NotFound`] if there is no such folder.
    fn names(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// The length of a file.
    ///
    /// # Errors
    /// The system's error; [`io::ErrorKind::NotFound`] if there is none.
    fn len(&self, path: &Path) -> io::Result<u64>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// The system's error.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Locks a file, which is made if it does not exist, for as long as the guard lives. No other
    /// process can lock it meanwhile.
    ///
    /// # Errors
    /// The system's error; [`io::ErrorKind::WouldBlock`] if another process has it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>>;
}

/// An open file.
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// Reads at an offset. Returns the number of bytes read; 0 at the end.
    ///
    /// # Errors
    /// The system's error.
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at an offset. Returns the number of bytes written, which may be fewer than given.
    ///
    /// # Errors
    /// The system's error.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Reserves space up to a length, and makes the file that long with zeros if it is shorter.
    ///
    /// # Errors
    /// The system's error.
    fn allocate(&self, length: u64) -> io::Result<()>;

    /// Makes bytes and length durable.
    ///
    /// # Errors
    /// The system's error.
    fn sync(&self) -> io::Result<()>;

    /// Its length.
    ///
    /// # Errors
    /// The system's error.
    fn len(&self) -> io::Result<u64>;

    /// Returns true if the file has no bytes.
    ///
    /// # Errors
    /// The system's error.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Writes all bytes at an offset.
    ///
    /// # Errors
    /// The system's error.
    fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write_at(bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = &bytes[count..];
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads until `out` is full or the file ends. Returns the number of bytes read.
    ///
    /// # Errors
    /// The system's error.
    fn read_full_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < out.len() {
            match self.read_at(&mut out[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

/// Holds a lock until it is dropped.
pub trait LockGuard: fmt::Debug + Send + Sync {}

/// A clock.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Milliseconds since 1970. It may jump either way.
    fn wall(&self) -> u64;

    /// Milliseconds since an arbitrary fixed time. It never goes back and never jumps.
    fn monotonic(&self) -> u64;

    /// Waits.
    fn sleep(&self, milliseconds: u64) -> Task;

    /// Blocks this thread for some microseconds. A simulated clock returns at once.
    fn pause(&self, _microseconds: u64) {}

    /// A point where a simulated scheduler may run another task. A real clock returns at once.
    fn yield_now(&self) -> Task {
        Box::pin(std::future::ready(()))
    }
}

/// A source of random numbers.
pub trait Random: fmt::Debug + Send + Sync {
    /// Fills bytes with random ones.
    ///
    /// # Errors
    /// The system's error.
    fn fill(&self, bytes: &mut [u8]) -> io::Result<()>;
}

/// Runs background tasks. They may block their thread.
pub trait Spawner: fmt::Debug + Send + Sync {
    /// Starts a task.
    ///
    /// # Errors
    /// The system's error.
    fn spawn(&self, name: &str, task: Task) -> io::Result<()>;
}
