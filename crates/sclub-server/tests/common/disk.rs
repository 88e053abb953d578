//! A disk that fails as it is told, over the system's own.

use std::io::{self, Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sclub_server::env::{Access, Disk, DiskFile, Env, LockGuard};

/// What is to fail. Whatever is in a folder of this name is meant; `""` is everything.
#[derive(Debug, Default)]
struct Plan {
    /// There is no room, but for what was reserved before.
    full: bool,
    /// No byte can be written, wherever it goes.
    dead: Option<&'static str>,
    /// So many syncs fail, and nothing that was written since the last one need be there.
    syncs: (&'static str, u32),
    /// So many syncs fail after everything was made durable.
    late_syncs: (&'static str, u32),
    /// So many files cannot be made.
    creates: (&'static str, u32),
}

/// Tells a disk what is to fail.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<Plan>>);

impl Faults {
    /// Switches, and an environment with a disk that heeds them.
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

    /// From now on there is no room, or there is again. What was reserved before can be written.
    pub fn set_full(&self, full: bool) {
        self.plan().full = full;
    }

    /// From now on no byte can be written into files in a folder, whether room was reserved or not:
    /// so are file systems that write nothing in its old place.
    pub fn refuse_writes(&self, place: &'static str) {
        self.plan().dead = Some(place);
    }

    /// From now on everything can be written.
    pub fn accept_writes(&self) {
        self.plan().dead = None;
    }

    /// The next syncs of files in a folder fail.
    pub fn fail_syncs(&self, place: &'static str, count: u32) {
        self.plan().syncs = (place, count);
    }

    /// The next syncs of files in a folder fail after all is durable.
    pub fn fail_after_syncs(&self, place: &'static str, count: u32) {
        self.plan().late_syncs = (place, count);
    }

    /// The next files that are to be made in a folder cannot be.
    pub fn fail_creates(&self, place: &'static str, count: u32) {
        self.plan().creates = (place, count);
    }

    /// Whether bytes can be written: those that need more room than there is, or others.
    fn write(&self, path: &Path, needs_room: bool) -> io::Result<()> {
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

/// Whether this one is to fail; then it counts.
fn is_due((place, count): &mut (&'static str, u32), path: &Path) -> bool {
    let is_due = *count > 0 && is_in(path, place);
    *count -= u32::from(is_due);
    is_due
}

/// As a device says that is about to die.
fn broken() -> Error {
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
        self.real.make_dir(path)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        if access == Access::Create {
            self.faults.write(path, true)?;
            if is_due(&mut self.faults.plan().creates, path) {
                return Err(broken());
            }
        }
        Ok(Arc::new(FaultyFile {
            real: self.real.open(path, access)?,
            path: path.into(),
            faults: self.faults.clone(),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.real.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.real.remove(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.real.remove_dir_all(path)
    }

    fn names(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.real.names(dir)
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        self.real.len(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
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
        self.real.read_at(out, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let needs_room = offset + bytes.len() as u64 > self.real.len()?;
        self.faults.write(&self.path, needs_room)?;
        self.real.write_at(bytes, offset)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.faults.write(&self.path, length > self.real.len()?)?;
        self.real.allocate(length)
    }

    fn sync(&self) -> io::Result<()> {
        if is_due(&mut self.faults.plan().syncs, &self.path) {
            return Err(broken());
        }
        self.real.sync()?;
        match is_due(&mut self.faults.plan().late_syncs, &self.path) {
            true => Err(broken()),
            false => Ok(()),
        }
    }

    fn len(&self) -> io::Result<u64> {
        self.real.len()
    }
}
