//! An open file of a simulated disk.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::RngExt;
use sclub_server::env::{Access, DiskFile};

use super::faults::{Stop, eio, enospc, gone};
use super::inode::Inode;
use super::tree::Id;
use super::{Core, Synced, leave, synced};
use crate::seed::chance;

/// An open file.
pub(super) struct SimFile {
    core: Arc<Mutex<Core>>,
    process: u64,
    handle: u64,
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFile({})", self.handle)
    }
}

impl SimFile {
    pub(super) fn new(core: &Arc<Mutex<Core>>, process: u64, handle: u64) -> Self {
        Self {
            core: Arc::clone(core),
            process,
            handle,
        }
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core {
    /// The file behind a handle, which dies with its process.
    fn behind(&self, handle: u64) -> io::Result<Id> {
        Ok(self.open.get(&handle).ok_or_else(gone)?.file)
    }

    fn behind_to_write(&self, handle: u64) -> io::Result<Id> {
        let opened = self.open.get(&handle).ok_or_else(gone)?;
        if opened.access == Access::Read {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(opened.file)
    }

    fn inode(&mut self, file: Id) -> io::Result<&mut Inode> {
        self.tree.file_mut(file).ok_or_else(gone)
    }

    /// A shorter count than asked for, sometimes, or an interruption.
    fn shorten(&mut self, count: usize) -> io::Result<usize> {
        if count == 0 || !chance(&mut self.rng, self.faults.short) {
            return Ok(count);
        }
        if chance(&mut self.rng, 0.2) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(self.rng.random_range(1..=count))
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut core = self.core();
        let is_last = core.enter_whole(self.process)?;
        let file = core.behind(self.handle)?;
        leave(is_last, ())?;
        let there = core.inode(file)?.visible().len();
        let from = (offset as usize).min(there);
        let count = core.shorten(out.len().min(there - from))?;
        let visible = core.inode(file)?.visible();
        out[..count].copy_from_slice(&visible[from..from + count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut core = self.core();
        let stop = core.enter(self.process)?;
        let file = core.behind_to_write(self.handle)?;
        if let Stop::Here { share } = stop {
            let count = (bytes.len() as f64 * share) as usize;
            core.inode(file)?.write(&bytes[..count], offset);
            return Err(gone());
        }
        if core.draw_eio() {
            let count = match core.rng.random_range(0..3) {
                0 => core.rng.random_range(0..=bytes.len()),
                _ => 0,
            };
            core.inode(file)?.write(&bytes[..count], offset);
            return Err(eio());
        }
        let mut count = core.shorten(bytes.len())?;
        let length = core.inode(file)?.visible().len() as u64;
        if offset + count as u64 > length {
            let room = core.room();
            let fits = length.saturating_sub(offset).saturating_add(room);
            // A hole needs space too, here.
            let fits = fits.saturating_sub(offset.saturating_sub(length));
            count = count.min(usize::try_from(fits).unwrap_or(usize::MAX));
            if count == 0 && !bytes.is_empty() {
                return Err(enospc());
            }
        }
        core.inode(file)?.write(&bytes[..count], offset);
        Ok(count)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let mut core = self.core();
        let is_last = core.enter_whole(self.process)?;
        let file = core.behind_to_write(self.handle)?;
        let before = core.inode(file)?.visible().len() as u64;
        let room = core.room();
        if length > before && room < length - before {
            core.inode(file)?.grow(before + room);
            return Err(enospc());
        }
        core.inode(file)?.grow(length);
        leave(is_last, ())
    }

    fn sync(&self) -> io::Result<()> {
        let mut core = self.core();
        let stop = core.enter(self.process)?;
        let file = core.behind(self.handle)?;
        let outcome = core.draw_sync(stop);
        let Core { tree, rng, .. } = &mut *core;
        let inode = tree.file_mut(file).ok_or_else(gone)?;
        match outcome {
            Synced::All => inode.sync(),
            Synced::Part => inode.fail_sync(rng),
            Synced::Nothing => {}
        }
        synced(stop, outcome)
    }

    fn len(&self) -> io::Result<u64> {
        let mut core = self.core();
        let is_last = core.enter_whole(self.process)?;
        let file = core.behind(self.handle)?;
        let length = core.inode(file)?.visible().len();
        leave(is_last, length as u64)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.core().open.remove(&self.handle);
    }
}
