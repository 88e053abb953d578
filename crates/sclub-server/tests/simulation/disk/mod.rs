//! A disk in memory that can lose data and fail like a real one.

mod faults;
mod file;
mod inode;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::RngExt;
use sclub_server::env::{Access, Disk, DiskFile, LockGuard};

use crate::clock::SimClock;
use crate::seed::{Rng, chance, stream};
pub use faults::Faults;
use faults::{Stop, eio, enospc, gone};
use file::SimFile;
use inode::{Inode, Loss};
pub use tree::View;
use tree::{Dir, Id, Node, Tree};

/// Space that a name takes.
const NAME_BYTES: u64 = 256;

/// A handle of one process to a simulated disk. All handles are of the same disk. The first one belongs to no
/// process: tests use it to inspect and damage the disk.
#[derive(Clone)]
pub struct SimDisk {
    core: Arc<Mutex<Core>>,
    process: u64,
}

struct Core {
    tree: Tree,
    rng: Rng,
    clock: SimClock,
    faults: Faults,
    /// The capacity in bytes.
    capacity: u64,
    /// The number of calls so far, and of syncs among them.
    calls: u64,
    syncs: u64,
    /// The call at which everything stops.
    stop_at: Option<u64>,
    is_down: bool,
    processes: BTreeSet<u64>,
    /// The numbers of processes, open files and locks ever made.
    started: u64,
    open: BTreeMap<u64, Opened>,
    locks: BTreeMap<Id, Locked>,
}

#[derive(Debug, Clone, Copy)]
struct Opened {
    process: u64,
    file: Id,
    access: Access,
}

#[derive(Debug, Clone, Copy)]
struct Locked {
    process: u64,
    lock: u64,
}

/// The outcome of a sync.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Synced {
    All,
    Part,
    Nothing,
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDisk(process {})", self.process)
    }
}

/// The methods for tests.
impl SimDisk {
    pub fn new(seed: u64, clock: SimClock) -> Self {
        let core = Core {
            tree: Tree::default(),
            rng: stream(seed, "disk"),
            clock,
            faults: Faults::default(),
            capacity: u64::MAX,
            calls: 0,
            syncs: 0,
            stop_at: None,
            is_down: false,
            processes: BTreeSet::new(),
            started: 0,
            open: BTreeMap::new(),
            locks: BTreeMap::new(),
        };
        Self {
            core: Arc::new(Mutex::new(core)),
            process: 0,
        }
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle for a new process.
    pub fn process(&self) -> Self {
        let mut core = self.core();
        core.started += 1;
        let process = core.started;
        core.processes.insert(process);
        Self {
            core: Arc::clone(&self.core),
            process,
        }
    }

    /// Kills the process of this handle. Its writes stay in the page cache, its files are closed and its locks
    /// free, and this handle cannot be used any more.
    pub fn kill(&self) {
        let mut core = self.core();
        let process = self.process;
        core.processes.remove(&process);
        core.open.retain(|_, opened| opened.process != process);
        core.locks.retain(|_, locked| locked.process != process);
        core.is_down = false;
    }

    /// Loses the power. All processes die, and some unsynced data is lost.
    pub fn crash(&self) {
        let mut core = self.core();
        core.processes.clear();
        core.open.clear();
        core.locks.clear();
        core.is_down = false;
        let Core { tree, rng, .. } = &mut *core;
        tree.lose_power(Loss::draw(rng), rng);
    }

    pub fn set_faults(&self, faults: Faults) {
        self.core().faults = faults;
    }

    /// The capacity in bytes.
    pub fn set_capacity(&self, bytes: u64) {
        self.core().capacity = bytes;
    }

    /// The number of bytes in use.
    pub fn used(&self) -> u64 {
        self.core().used()
    }

    /// The number of file calls so far.
    pub fn calls(&self) -> u64 {
        self.core().calls
    }

    /// The number of syncs so far.
    pub fn syncs(&self) -> u64 {
        self.core().syncs
    }

    /// Changes a byte in the middle of a file.
    pub fn damage(&self, path: &Path) {
        let mut core = self.core();
        let file = core.tree.find(path).expect("there is such a file");
        let inode = core.tree.file_mut(file).expect("there is such a file");
        let middle = inode.visible().len() / 2;
        let byte = !inode.visible()[middle];
        inode.write(&[byte], middle as u64);
        inode.sync();
    }

    /// Stops everything at a call: it is done, or not, or in part, and each later call fails until
    /// [`SimDisk::crash`] or [`SimDisk::kill`].
    pub fn stop_at(&self, call: Option<u64>) {
        self.core().stop_at = call;
    }

    /// Returns true if the call to stop at was made.
    pub fn is_down(&self) -> bool {
        self.core().is_down
    }

    /// All files below a folder with their bytes.
    pub fn files(&self, under: &Path, view: View) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        self.look(under, view, &mut |path, file| {
            files.push((path.to_owned(), file.to_vec()));
        });
        files
    }

    /// Shows all files below a folder with their bytes.
    pub fn look(&self, under: &Path, view: View, see: &mut dyn FnMut(&Path, &[u8])) {
        let core = self.core();
        core.tree.walk(view, &mut |path, id| {
            if let Some(file) = core.tree.file(id)
                && path.starts_with(under)
            {
                see(
                    path,
                    match view {
                        View::Visible => file.visible(),
                        View::Durable => file.durable(),
                    },
                );
            }
        });
    }
}

impl Core {
    /// Begins a call. Returns whether it is the one to stop at.
    fn enter(&mut self, process: u64) -> io::Result<Stop> {
        if self.is_down || !self.processes.contains(&process) {
            return Err(gone());
        }
        self.calls += 1;
        let Faults {
            slow, max_delay, ..
        } = self.faults;
        if chance(&mut self.rng, slow) {
            let milliseconds = self.rng.random_range(1..=max_delay.max(1));
            self.clock.advance(milliseconds);
        }
        if self.stop_at == Some(self.calls) {
            self.is_down = true;
            let share = match self.rng.random_range(0..3) {
                0 => 0.0,
                1 => 1.0,
                _ => self.rng.random(),
            };
            return Ok(Stop::Here { share });
        }
        Ok(Stop::No)
    }

    /// Like [`Core::enter`], for an atomic call. Returns true if it must fail after it was done.
    fn enter_whole(&mut self, process: u64) -> io::Result<bool> {
        match self.enter(process)? {
            Stop::No if self.draw_eio() => Err(eio()),
            Stop::No => Ok(false),
            Stop::Here { share } if share < 0.5 => Err(gone()),
            Stop::Here { .. } => Ok(true),
        }
    }

    fn draw_eio(&mut self) -> bool {
        chance(&mut self.rng, self.faults.eio)
    }

    /// Draws the outcome of a sync.
    fn draw_sync(&mut self, stop: Stop) -> Synced {
        self.syncs += 1;
        let Self { rng, faults, .. } = self;
        match stop {
            Stop::Here { share } if share < 0.5 => Synced::Nothing,
            Stop::Here { .. } => Synced::All,
            Stop::No if chance(rng, faults.lying_sync) => Synced::Nothing,
            Stop::No if chance(rng, faults.eio) || chance(rng, faults.failed_sync) => Synced::Part,
            Stop::No => Synced::All,
        }
    }

    fn used(&self) -> u64 {
        let open = self.open_files();
        self.tree.used(&open, NAME_BYTES)
    }

    fn open_files(&self) -> BTreeSet<Id> {
        self.open.values().map(|opened| opened.file).collect()
    }

    fn room(&mut self) -> u64 {
        if chance(&mut self.rng, self.faults.enospc) {
            return 0;
        }
        if self.capacity == u64::MAX {
            return u64::MAX;
        }
        self.capacity.saturating_sub(self.used())
    }

    fn need_room_for_name(&mut self) -> io::Result<()> {
        if self.room() < NAME_BYTES {
            return Err(enospc());
        }
        Ok(())
    }

    fn find_dir(&self, path: &Path) -> io::Result<Id> {
        let id = self.tree.find(path).ok_or(io::ErrorKind::NotFound)?;
        match self.tree.dir(id) {
            Some(_) => Ok(id),
            None => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn find_file(&self, path: &Path) -> io::Result<Id> {
        let id = self.tree.find(path).ok_or(io::ErrorKind::NotFound)?;
        match self.tree.file(id) {
            Some(_) => Ok(id),
            None => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn place(&self, path: &Path) -> io::Result<(Id, String)> {
        Ok(self.tree.place(path).ok_or(io::ErrorKind::NotFound)?)
    }

    /// Finds a file, or makes it.
    fn file_for_writing(&mut self, path: &Path) -> io::Result<Id> {
        match self.find_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (dir, name) = self.place(path)?;
                self.need_room_for_name()?;
                Ok(self.tree.make(dir, &name, Node::File(Inode::default())))
            }
            other => other,
        }
    }

    fn collect(&mut self) {
        let open = self.open_files();
        self.tree.collect(&open);
    }
}

/// The end of a call: fails if it was the last one.
fn leave<T>(is_last: bool, value: T) -> io::Result<T> {
    if is_last { Err(gone()) } else { Ok(value) }
}

/// The end of a sync.
fn synced(stop: Stop, outcome: Synced) -> io::Result<()> {
    match (stop, outcome) {
        (Stop::Here { .. }, _) => Err(gone()),
        (Stop::No, Synced::Part) => Err(eio()),
        // A lying disk reports success too.
        (Stop::No, Synced::All | Synced::Nothing) => Ok(()),
    }
}

impl Disk for SimDisk {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        let mut core = self.core();
        let is_last = core.enter_whole(self.process)?;
        let mut above: Vec<&Path> = path.ancestors().collect();
        above.reverse();
        for path in above {
            match core.find_dir(path) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let (dir, name) = core.place(path)?;
                    core.need_room_for_name()?;
                    core.tree.make(dir, &name, Node::Dir(Dir::default()));
                }
                Err(error) => return Err(error),
            }
        }
        leave(is_last, ())
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let mut core = self.core();
        let is_last = core.enter_whole(self.process)?;
        let file = match access {
            Access::Read | Access::Write => core.find_file(path)?,
            Access::Create => {
                let file = core.file_for_writing(path)?;
                if let Some(inode) = core.tree.file_mut(file) {
                    inode.empty();
                }
                file
            }
        };
        leave(is_last, ())?;
        core.started += 1;
        let handle = core.started;
        let process = self.process;
        let opened = Opened {
            process,
            file,
            access,
        };
        core.open.insert(handle, opened);
        Ok(Arc::new(SimFile::new(&self.core, process, handle)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut core = self.core();
        let is_last = core.enter_whole(self.process)?;
        let moved = core.tree.find(from).ok_or(io::ErrorKind::NotFound)?;
        let (from, to_place) = (core.place(from)?, core.place(to)?);
        if let Some(there) = core.tree.find(to) {
            match (core.tree.dir(moved), core.tree.dir(there)) {
                (None, Some(_)) => return Err(io::ErrorKind::IsADirectory.into()),
                (Some(_), None) => return Err(io::ErrorKind::NotADirectory.into()),
                (Some(_), Some(dir)) if !dir.is_empty() => {
                    return Err(io::ErrorKind::DirectoryNotEmpty.into());
                }
                _ => {}
            }
            if moved == there {
                return leave(is_last, ());
            }
        }
        core.tree.rename(from, to_place);
        leave(is_last, ())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut core = self.core();
        let is_last = core.enter_whole(self.process)?;
        core.find_file(path)?;
        let (dir, name) = core.place(path)?;
        core.tree.unlink(dir, &name);
        leave(is_last, ())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut core = self.core();
        let stop = core.enter(self.process)?;
        core.find_dir(path)?;
        let mut inner = vec![path.to_owned()];
        core.tree.walk(View::Visible, &mut |below, _| {
            if below.starts_with(path) && below != path {
                inner.push(below.to_owned());
            }
        });
        // The contents of a folder before the folder.
        inner.reverse();
        let mut count = inner.len();
        let fails = stop == Stop::No && core.draw_eio();
        if let Stop::Here { share } = stop {
            count = (count as f64 * share) as usize;
        } else if fails {
            count = core.rng.random_range(0..count);
        }
        for path in &inner[..count] {
            let (dir, name) = core.place(path)?;
            core.tree.unlink(dir, &name);
        }
        if fails {
            return Err(eio());
        }
        leave(stop != Stop::No, ())
    }

    fn names(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut core = self.core();
        let is_last = core.enter_whole(self.process)?;
        let id = core.find_dir(dir)?;
        leave(is_last, core.tree.names(id).unwrap_or_default())
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        let mut core = self.core();
        let is_last = core.enter_whole(self.process)?;
        let id = core.find_file(path)?;
        let length = core.tree.file(id).map_or(0, |file| file.visible().len());
        leave(is_last, length as u64)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut core = self.core();
        let stop = core.enter(self.process)?;
        let id = core.find_dir(dir)?;
        let outcome = core.draw_sync(stop);
        let Core { tree, rng, .. } = &mut *core;
        match outcome {
            Synced::All => tree.sync_dir(id),
            Synced::Part => tree.fail_sync_dir(id, rng),
            Synced::Nothing => {}
        }
        core.collect();
        synced(stop, outcome)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        let mut core = self.core();
        let is_last = core.enter_whole(self.process)?;
        let file = core.file_for_writing(path)?;
        leave(is_last, ())?;
        if core.locks.contains_key(&file) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        core.started += 1;
        let lock = core.started;
        let process = self.process;
        core.locks.insert(file, Locked { process, lock });
        Ok(Box::new(SimLock {
            core: Arc::clone(&self.core),
            file,
            lock,
        }))
    }
}

struct SimLock {
    core: Arc<Mutex<Core>>,
    file: Id,
    lock: u64,
}

impl fmt::Debug for SimLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimLock({})", self.file)
    }
}

impl LockGuard for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        // After a crash another process may have the lock.
        if core.locks.get(&self.file).map(|locked| locked.lock) == Some(self.lock) {
            core.locks.remove(&self.file);
        }
    }
}
