//! Snapshots in the object store of the bus, with local copies.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::bus::{Bus, BusError};
use super::wait::wait;
use crate::locks::lock;
use crate::store::{SnapshotStore, Snapshots, StoreError, WriteSnapshot};

/// The length of a piece of an object that is sent.
const PIECE: usize = 128 << 10;

/// The snapshots of a partition, as objects `<prefix>/<batch>`. A copy is kept in a local folder.
#[derive(Debug)]
pub struct ObjectSnapshots {
    bus: Arc<dyn Bus>,
    prefix: String,
    local: Arc<Snapshots>,
    /// Snapshots that cannot be read.
    unreadable: Mutex<BTreeSet<u64>>,
    /// The objects at the last look.
    known: Mutex<Vec<u64>>,
}

impl ObjectSnapshots {
    /// The snapshots under a prefix.
    pub fn new(bus: Arc<dyn Bus>, prefix: &str, local: Arc<Snapshots>) -> Self {
        Self {
            bus,
            prefix: format!("{prefix}/"),
            local,
            unreadable: Mutex::default(),
            known: Mutex::default(),
        }
    }

    fn object(&self, at: u64) -> String {
        format!("{}{at:020}", self.prefix)
    }

    fn failed(&self, at: u64, error: &BusError) -> StoreError {
        StoreError::Read {
            file: self.object(at).into(),
            reason: error.to_string(),
        }
    }

    /// Stores the local copy as an object.
    fn upload(&self, at: u64) -> Result<(), StoreError> {
        let mut reader = self.local.read(at)?;
        let (sender, pieces) = mpsc::channel(4);
        let name = self.object(at);
        let sent = wait(
            &*self.bus,
            Box::pin(async {
                // The object ends with the sender.
                let send = async move {
                    loop {
                        let mut piece = Vec::with_capacity(PIECE);
                        let read = (&mut reader).take(PIECE as u64).read_to_end(&mut piece);
                        let piece = match read {
                            Ok(0) => return,
                            Ok(_) => Ok(Bytes::from(piece)),
                            Err(error) => Err(BusError::Failed(error.to_string())),
                        };
                        let is_last = piece.is_err();
                        if sender.send(piece).await.is_err() || is_last {
                            return;
                        }
                    }
                };
                tokio::join!(self.bus.upload(&name, pieces), send).0
            }),
        );
        sent.map_err(|error| StoreError::Write {
            file: name.into(),
            reason: error.to_string(),
        })
    }

    /// The snapshots that are objects.
    fn objects(&self) -> Result<Vec<u64>, BusError> {
        let names = wait(&*self.bus, self.bus.objects(&self.prefix))?;
        let numbers = names
            .iter()
            .filter_map(|name| name.strip_prefix(&self.prefix)?.parse().ok());
        let mut numbers: Vec<u64> = numbers.collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Makes a local copy of an object, in place of older ones.
    fn download(&self, at: u64) -> Result<(), StoreError> {
        let name = self.object(at);
        let pieces = wait(&*self.bus, self.bus.download(&name));
        let mut pieces = pieces.map_err(|error| self.failed(at, &error))?;
        self.local.write(at, &mut |out| {
            loop {
                let piece = wait(&*self.bus, Box::pin(async { Ok(pieces.recv().await) }));
                match piece.ok().flatten() {
                    None => return Ok(()),
                    Some(Ok(piece)) => out.write_all(&piece)?,
                    Some(Err(error)) => return Err(io::Error::other(error)),
                }
            }
        })?;
        self.local.keep_only(&[at])
    }
}

impl SnapshotStore for ObjectSnapshots {
    fn list(&self) -> Vec<u64> {
        let listed = self.objects();
        let mut known = lock(&self.known);
        match listed {
            Ok(numbers) => *known = numbers,
            Err(error) => tracing::warn!(%error, "the snapshots cannot be listed"),
        }
        let unreadable = lock(&self.unreadable);
        let readable = known.iter().copied();
        readable.filter(|at| !unreadable.contains(at)).collect()
    }

    fn name(&self, at: u64) -> String {
        self.object(at)
    }

    fn write(&self, at: u64, write: &mut WriteSnapshot<'_>) -> Result<(), StoreError> {
        self.local.write(at, write)?;
        self.upload(at)?;
        // Another node owns the group, and has perhaps removed users that are in this one.
        let failed = |error: BusError| self.failed(at, &error);
        if self
            .objects()
            .map_err(failed)?
            .iter()
            .any(|&newer| newer > at)
        {
            let removed = wait(&*self.bus, self.bus.remove(&self.object(at)));
            removed.map_err(failed)?;
        }
        Ok(())
    }

    fn read(&self, at: u64) -> Result<Box<dyn Read + Send>, StoreError> {
        if !self.local.list().contains(&at) {
            self.download(at)?;
        }
        self.local.read(at)
    }

    fn disregard(&self, at: u64) {
        self.local.disregard(at);
        lock(&self.unreadable).insert(at);
    }

    fn drop_copies(&self) -> Result<(), StoreError> {
        self.local.keep_only(&[])
    }

    fn keep_only(&self, keep: &[u64]) -> Result<(), StoreError> {
        // A newer one is of another node, or `keep` is of an earlier look at the objects: the stream may be purged
        // up to it.
        let newest = keep.last().copied().unwrap_or(0);
        let failed = |error| self.failed(newest, &error);
        for at in self.objects().map_err(failed)? {
            if at < newest && !keep.contains(&at) {
                let removed = wait(&*self.bus, self.bus.remove(&self.object(at)));
                removed.map_err(|error| self.failed(at, &error))?;
            }
        }
        self.local.keep_only(keep)
    }
}
