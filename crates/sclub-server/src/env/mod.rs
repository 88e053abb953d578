//! Everything outside the engine: disk, clock, randomness and threads.
//!
//! All of it is handed in, so that a test can run a whole server on a disk that fails, a clock that
//! jumps and a scheduler with a seed. [`Env::real`] is what a server uses.

mod real;

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
    /// Files.
    pub disk: Arc<dyn Disk>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Random numbers.
    pub random: Arc<dyn Random>,
    /// Runs tasks beside the caller.
    pub spawner: Arc<dyn Spawner>,
}

impl Env {
    /// The system's own.
    pub fn real() -> Self {
        Self {
            disk: Arc::new(real::SystemDisk),
            clock: Arc::new(real::SystemClock::default()),
            random: Arc::new(real::SystemRandom),
            spawner: Arc::new(real::Threads),
        }
    }
}

/// How a file is opened.
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
    /// What the system says.
    fn make_dir(&self, path: &Path) -> io::Result<()>;

    /// Opens a file. A new one is readable by the owner only.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::NotFound`] if it must exist and does not.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>>;

    /// Gives a file or folder another name, in place of the file that has it.
    ///
    /// # Errors
    /// What the system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. Whoever has it open can still read it.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::NotFound`] if there is none.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes a folder with everything in it.
    ///
    /// # Errors
    /// What the system says.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;

    /// The names in a folder, sorted.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::NotFound`] if there is no such folder.
    fn names(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// The length of a file.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::NotFound`] if there is none.
    fn len(&self, path: &Path) -> io::Result<u64>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// What the system says.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Locks a file, which is made if it does not exist, for as long as the guard lives. No other
    /// process can lock it meanwhile.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::WouldBlock`] if another process has it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>>;
}

/// An open file.
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// Reads at an offset. Returns how many bytes were read; 0 at the end.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at an offset. Returns how many bytes were written, which may be fewer than given.
    ///
    /// # Errors
    /// What the system says.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Reserves space up to a length, and makes the file that long with zeros if it is shorter.
    ///
    /// # Errors
    /// What the system says.
    fn allocate(&self, length: u64) -> io::Result<()>;

    /// Makes bytes and length durable.
    ///
    /// # Errors
    /// What the system says.
    fn sync(&self) -> io::Result<()>;

    /// Its length.
    ///
    /// # Errors
    /// What the system says.
    fn len(&self) -> io::Result<u64>;

    /// Whether it has no bytes.
    ///
    /// # Errors
    /// What the system says.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Writes all bytes at an offset.
    ///
    /// # Errors
    /// What the system says.
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

    /// Reads until `out` is full or the file ends. Returns how many bytes were read.
    ///
    /// # Errors
    /// What the system says.
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

/// Keeps a lock as long as it lives.
pub trait LockGuard: fmt::Debug + Send + Sync {}

/// Reads and waits for time.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Milliseconds since 1970. It may jump either way.
    fn wall(&self) -> u64;

    /// Milliseconds since some fixed time. It never goes back and never jumps.
    fn monotonic(&self) -> u64;

    /// Waits.
    fn sleep(&self, milliseconds: u64) -> Task;

    /// Holds up this thread for some microseconds. A simulated clock does not.
    fn pause(&self, _microseconds: u64) {}

    /// A place where a simulated scheduler may run another task. A real clock returns at once.
    fn yield_now(&self) -> Task {
        Box::pin(std::future::ready(()))
    }
}

/// Gives random numbers.
pub trait Random: fmt::Debug + Send + Sync {
    /// Fills bytes with random ones.
    ///
    /// # Errors
    /// What the system says.
    fn fill(&self, bytes: &mut [u8]) -> io::Result<()>;
}

/// Runs tasks beside the caller. They may block their thread.
pub trait Spawner: fmt::Debug + Send + Sync {
    /// Starts a task.
    ///
    /// # Errors
    /// What the system says.
    fn spawn(&self, name: &str, task: Task) -> io::Result<()>;
}
