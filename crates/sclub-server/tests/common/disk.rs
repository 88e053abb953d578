//! A disk with faults that a test sets, over the system's disk.

use std::io::{self, Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sclub_server::env::{Access, Disk, DiskFile, Env, LockGuard};

/// The faults. A folder name limits a fault to the files in such a folder; `""` is every file.
#[derive(Debug, Default)]
struct Plan {
    /// The disk is full, except for reserved space.
    full: bool,
    /// No byte can be written, not even to reserved space.
    dead: Option<&'static str>,
    /// The number of syncs that fail without making anything durable.
    syncs: (&'static str, u32),
    /// The number of syncs that fail after everything is durable.
    late_syncs: (&'static str, u32),
    /// The number of reads that fail.
    reads: (&'static str, u32),
    /// The number of files that cannot be made.
    creates: (&'static str, u32),
    /// Syncs do not return.
    hangs: Option<&'static str>,
    /// The number of changes that are still made; all later ones fail.
    changes: Option<u32>,
}

/// Sets the faults of a disk.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<Plan>>);

impl Faults {
    /// A handle to set faults, and the environment with such a disk.
    pub fn new(env: Env) -> (Self, Env) {
        let faults = Self::default();
        let disk = Faulty {
            real: env.disk,
            faults: faults.clone(),
        };
        let env = Env {
            disk: Arc::new(disk),
            ..env
        };
        (faults, env)
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the disk full, or not. Reserved space can still be written.
    pub fn set_full(&self, full: bool) {
        self.plan().full = full;
    }

    /// Refuses all writes to files in a folder, even to reserved space, as on a full copy-on-write file
    /// system.
    pub fn refuse_writes(&self, place: &'static str) {
        self.plan().dead = Some(place);
    }

    /// Allows all writes again.
    pub fn accept_writes(&self) {
        self.plan().dead = None;
    }

    /// Makes the next syncs of files in a folder fail.
    pub fn fail_syncs(&self, place: &'static str, count: u32) {
        self.plan().syncs = (place, count);
    }

    /// Makes the next syncs of files in a folder fail after everything is durable.
    pub fn fail_after_syncs(&self, place: &'static str, count: u32) {
        self.plan().late_syncs = (place, count);
    }

    /// Makes syncs of files in a folder wait until [`Faults::go_on`].
    pub fn hang(&self, place: &'static str) {
        self.plan().hangs = Some(place);
    }

    /// Ends [`Faults::hang`].
    pub fn go_on(&self) {
        self.plan().hangs = None;
    }

    /// Makes the next reads of files in a folder fail.
    pub fn fail_reads(&self, place: &'static str, count: u32) {
        self.plan().reads = (place, count);
    }

    /// Makes the creation of the next files in a folder fail.
    pub fn fail_creates(&self, place: &'static str, count: u32) {
        self.plan().creates = (place, count);
    }

    /// Lets a number of changes of files and names through and refuses all others, as if the process were killed there.
    pub fn stop_after(&self, changes: u32) {
        self.plan().changes = Some(changes);
    }

    /// The number of changes that are still let through.
    pub fn changes_left(&self) -> Option<u32> {
        self.plan().changes
    }

    /// Counts a change; an error if none are let through any more.
    fn check_change(&self) -> io::Result<()> {
        match &mut self.plan().changes {
            Some(0) => Err(io_error()),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Returns an error if a fault prevents a write.
    fn check_write(&self, path: &Path, needs_room: bool) -> io::Result<()> {
        let plan = self.plan();
        let is_dead = plan.dead.is_some_and(|place| is_in(path, place));
        match is_dead || (plan.full && needs_room) {
            true => Err(ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }
}

fn is_in(path: &Path, place: &str) -> bool {
    place.is_empty() || path.parent().is_some_and(|dir| dir.ends_with(place))
}

/// Returns true if this call is to fail, and counts it.
fn is_due((place, count): &mut (&'static str, u32), path: &Path) -> bool {
    let is_due = *count > 0 && is_in(path, place);
    *count -= u32::from(is_due);
    is_due
}

/// The error of a failing device.
fn io_error() -> Error {
    const EIO: i32 = 5;
    Error::from_raw_os_error(EIO)
}

#[derive(Debug)]
struct Faulty {
    real: Arc<dyn Disk>,
    faults: Faults,
}

impl Disk for Faulty {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.faults.check_change()?;
        self.real.make_dir(path)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        if access == Access::Create {
            self.faults.check_change()?;
            self.faults.check_write(path, true)?;
            if is_due(&mut self.faults.plan().creates, path) {
                return Err(io_error());
            }
        }
        Ok(Arc::new(FaultyFile {
            real: self.real.open(path, access)?,
            path: path.into(),
            faults: self.faults.clone(),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.check_change()?;
        self.real.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.faults.check_change()?;
        self.real.remove(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.faults.check_change()?;
        self.real.remove_dir_all(path)
    }

    fn names(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.real.names(dir)
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        self.real.len(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.faults.check_change()?;
        self.real.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        self.real.lock(path)
    }
}

#[derive(Debug)]
struct FaultyFile {
    real: Arc<dyn DiskFile>,
    path: PathBuf,
    faults: Faults,
}

impl DiskFile for FaultyFile {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        match is_due(&mut self.faults.plan().reads, &self.path) {
            true => Err(io_error()),
            false => self.real.read_at(out, offset),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.faults.check_change()?;
        let needs_room = offset + bytes.len() as u64 > self.real.len()?;
        self.faults.check_write(&self.path, needs_room)?;
        self.real.write_at(bytes, offset)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.faults
            .check_write(&self.path, length > self.real.len()?)?;
        self.real.allocate(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.faults.check_change()?;
        if is_due(&mut self.faults.plan().syncs, &self.path) {
            return Err(io_error());
        }
        let hangs = || self.faults.plan().hangs;
        while hangs().is_some_and(|place| is_in(&self.path, place)) {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        self.real.sync()?;
        match is_due(&mut self.faults.plan().late_syncs, &self.path) {
            true => Err(io_error()),
            false => Ok(()),
        }
    }

    fn len(&self) -> io::Result<u64> {
        self.real.len()
    }
}
