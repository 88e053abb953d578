//! A store that fails when it is told to, for tests.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Checked, Fate, Row, Store, StoreError, Visit};

/// A store whose writes fail as its [`Faults`] say. All else goes to the store in it.
#[derive(Debug)]
pub struct Faulty<S> {
    inner: S,
    faults: Faults,
}

/// Steers a [`Faulty`] store. Clones steer the same one.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    plan: Arc<Mutex<Plan>>,
}

#[derive(Debug, Default)]
struct Plan {
    appends: u64,
    before: Option<u64>,
    after: Option<u64>,
    full: bool,
    snapshot: Option<usize>,
    /// An append failed, and the store was not recovered since.
    broken: bool,
}

impl Faults {
    /// The `nth` append from now on, 1 being the next, fails before anything is written.
    pub fn fail_before(&self, nth: u64) {
        let mut plan = self.plan();
        plan.before = Some(plan.appends + nth);
    }

    /// The `nth` append from now on, 1 being the next, fails after it became durable.
    pub fn fail_after(&self, nth: u64) {
        let mut plan = self.plan();
        plan.after = Some(plan.appends + nth);
    }

    /// From now on nothing can be written, until this is called with `false`.
    pub fn set_full(&self, full: bool) {
        self.plan().full = full;
    }

    /// The next snapshot fails once `bytes` of it are written.
    pub fn fail_snapshot_after(&self, bytes: usize) {
        self.plan().snapshot = Some(bytes);
    }

    /// How often something was to be appended so far.
    #[must_use]
    pub fn appends(&self) -> u64 {
        self.plan().appends
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store> Faulty<S> {
    /// A store that keeps what it is given in `inner`.
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            faults: Faults::default(),
        }
    }

    /// What steers it.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// The store in it.
    #[must_use]
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The store in it, without the faults.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.inner
    }

    fn writable(&self) -> Result<(), StoreError> {
        match self.faults.plan().full {
            true => Err(full()),
            false => Ok(()),
        }
    }
}

impl<S: Store> Store for Faulty<S> {
    fn identity(&self) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.identity()
    }

    fn set_identity(&self, identity: &[u8]) -> Result<(), StoreError> {
        self.writable()?;
        self.inner.set_identity(identity)
    }

    fn epoch(&self) -> u64 {
        self.inner.epoch()
    }

    fn last(&self) -> u64 {
        self.inner.last()
    }

    fn append(&self, events: &[&[u8]], notes: &[&[u8]]) -> Result<(), StoreError> {
        let mut plan = self.faults.plan();
        plan.appends += 1;
        if plan.broken {
            return Err(failed());
        }
        if plan.full {
            plan.broken = true;
            return Err(full());
        }
        if plan.before == Some(plan.appends) {
            plan.broken = true;
            return Err(failed());
        }
        self.inner.append(events, notes)?;
        if plan.after == Some(plan.appends) {
            plan.broken = true;
            return Err(failed());
        }
        Ok(())
    }

    fn recover(&self) -> Result<u64, StoreError> {
        self.writable()?;
        let last = self.inner.recover()?;
        self.faults.plan().broken = false;
        Ok(last)
    }

    fn events(&self, after: u64, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.inner.events(after, visit)
    }

    fn notes(&self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.inner.notes(visit)
    }

    fn put_snapshot(
        &self,
        at: u64,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        self.writable()?;
        let Some(room) = self.faults.plan().snapshot.take() else {
            return self.inner.put_snapshot(at, write);
        };
        self.inner.put_snapshot(at, &mut |out| {
            write(&mut Short { out, room })?;
            // Also where it would have fitted.
            Err(io::ErrorKind::StorageFull.into())
        })
    }

    fn snapshots(&self) -> Result<Vec<u64>, StoreError> {
        self.inner.snapshots()
    }

    fn open_snapshot(&self, at: u64) -> Result<Box<dyn Read + Send>, StoreError> {
        self.inner.open_snapshot(at)
    }

    fn base(&self) -> u64 {
        self.inner.base()
    }

    fn rewrite(
        &self,
        upto: u64,
        fate: &mut dyn FnMut(Row<'_>) -> Result<Fate, StoreError>,
    ) -> Result<(), StoreError> {
        self.writable()?;
        self.inner.rewrite(upto, fate)
    }

    fn backup(&self, out: &mut dyn Write) -> Result<(), StoreError> {
        self.inner.backup(out)
    }

    fn check(&self) -> Result<Checked, StoreError> {
        self.inner.check()
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn close(&self) -> Result<(), StoreError> {
        self.writable()?;
        self.inner.close()
    }

    fn folder(&self) -> Option<&Path> {
        self.inner.folder()
    }
}

/// Takes some bytes, and then no more.
struct Short<'a> {
    out: &'a mut dyn Write,
    room: usize,
}

impl Write for Short<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.room == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let count = self.out.write(&bytes[..bytes.len().min(self.room)])?;
        self.room -= count;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn full() -> StoreError {
    StoreError::Write {
        file: PathBuf::from("the store"),
        reason: io::Error::from(io::ErrorKind::StorageFull).to_string(),
    }
}

fn failed() -> StoreError {
    StoreError::Write {
        file: PathBuf::from("the store"),
        reason: "the device failed".into(),
    }
}
