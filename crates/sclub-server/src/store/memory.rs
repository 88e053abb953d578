//! A store in memory, for tests.

use std::collections::BTreeMap;
use std::io::{Cursor, Read, Write};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::archive::{self, Sink};
use super::{Checked, Fate, Row, Store, StoreError, Visit, rows};

/// Keeps everything in memory. "Durable" is what [`Memory::crash`] finds.
#[derive(Debug)]
pub struct Memory {
    kept: Mutex<Kept>,
}

#[derive(Debug, Clone, Default)]
struct Kept {
    identity: Option<Vec<u8>>,
    epoch: u64,
    base: u64,
    events: Vec<Vec<u8>>,
    /// Each with the number of the last event before it.
    notes: Vec<(u64, Vec<u8>)>,
    snapshots: BTreeMap<u64, Vec<u8>>,
    closed: bool,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// An empty store, opened for the first time.
    #[must_use]
    pub fn new() -> Self {
        Self::reopened(Kept::default())
    }

    /// What is found after the process has ended at this moment: all that is durable, opened once more.
    #[must_use]
    pub fn crash(&self) -> Self {
        Self::reopened(self.kept().clone())
    }

    /// A store with what a backup holds, as if it had been opened after it.
    ///
    /// # Errors
    /// Where the backup is damaged or cannot be read.
    pub fn restore(from: &mut dyn Read) -> Result<Self, StoreError> {
        let mut kept = Kept::default();
        archive::read(from, &mut kept)?;
        Ok(Self::reopened(kept))
    }

    fn reopened(mut kept: Kept) -> Self {
        kept.epoch += 1;
        kept.closed = false;
        Self {
            kept: Mutex::new(kept),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Memory {
    fn identity(&self) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.kept().identity.clone())
    }

    fn set_identity(&self, identity: &[u8]) -> Result<(), StoreError> {
        let mut kept = self.kept();
        if kept.identity.is_some() {
            return Err(StoreError::Refused("the store has an identity".into()));
        }
        kept.identity = Some(identity.to_vec());
        Ok(())
    }

    fn epoch(&self) -> u64 {
        self.kept().epoch
    }

    fn last(&self) -> u64 {
        self.kept().events.len() as u64
    }

    fn append(&self, events: &[&[u8]], notes: &[&[u8]]) -> Result<(), StoreError> {
        if let Some(reason) = rows::refusal(events, notes) {
            return Err(StoreError::Refused(reason));
        }
        let mut kept = self.kept();
        if kept.closed {
            return Err(StoreError::Refused("the store is closed".into()));
        }
        let after = kept.events.len() as u64;
        kept.notes.extend(notes.iter().map(|n| (after, n.to_vec())));
        kept.events.extend(events.iter().map(|e| e.to_vec()));
        Ok(())
    }

    fn recover(&self) -> Result<u64, StoreError> {
        Ok(self.last())
    }

    fn events(&self, after: u64, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        // Copied, so that `visit` may use the store.
        let events: Vec<_> = self
            .kept()
            .events
            .get(after as usize..)
            .unwrap_or(&[])
            .to_vec();
        for (event, number) in events.iter().zip(after.saturating_add(1)..) {
            visit(number, event)?;
        }
        Ok(())
    }

    fn notes(&self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let notes = self.kept().notes.clone();
        for (after, note) in &notes {
            visit(*after, note)?;
        }
        Ok(())
    }

    fn put_snapshot(
        &self,
        at: u64,
        write: &mut dyn FnMut(&mut dyn Write) -> std::io::Result<()>,
    ) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        write(&mut bytes).map_err(|e| StoreError::Write {
            file: name(at),
            reason: e.to_string(),
        })?;
        let mut kept = self.kept();
        kept.may_snapshot(at)?;
        kept.snapshots.insert(at, bytes);
        let (base, newest) = (kept.base, kept.newest());
        kept.snapshots.retain(|s, _| *s == base || *s == newest);
        Ok(())
    }

    fn snapshots(&self) -> Result<Vec<u64>, StoreError> {
        Ok(self.kept().snapshots.keys().copied().collect())
    }

    fn open_snapshot(&self, at: u64) -> Result<Box<dyn Read + Send>, StoreError> {
        match self.kept().snapshots.get(&at) {
            Some(bytes) => Ok(Box::new(Cursor::new(bytes.clone()))),
            None => Err(StoreError::Refused(format!("there is no snapshot at {at}"))),
        }
    }

    fn base(&self) -> u64 {
        self.kept().base
    }

    fn rewrite(
        &self,
        upto: u64,
        fate: &mut dyn FnMut(Row<'_>) -> Result<Fate, StoreError>,
    ) -> Result<(), StoreError> {
        let mut kept = self.kept();
        if !kept.snapshots.contains_key(&upto) {
            return Err(StoreError::Refused(format!(
                "there is no snapshot at {upto}"
            )));
        }
        if upto < kept.base {
            return Err(StoreError::Refused(format!(
                "the store is rewritten up to {} already, not only to {upto}",
                kept.base
            )));
        }
        let Kept { events, notes, .. } = &*kept;
        let mut rewritten = Vec::with_capacity(events.len());
        let mut left = Vec::with_capacity(notes.len());
        let mut note = notes.iter().peekable();
        for (number, event) in (1..=upto).zip(events) {
            while let Some((after, bytes)) = note.next_if(|(after, _)| *after < number) {
                match fate(Row::Note(bytes))? {
                    Fate::Keep => left.push((*after, bytes.clone())),
                    Fate::Drop => {}
                    Fate::Replace(bytes) => left.push((*after, bytes)),
                }
            }
            rewritten.push(match fate(Row::Event(number, event))? {
                Fate::Keep => event.clone(),
                Fate::Drop => Vec::new(),
                Fate::Replace(bytes) => bytes,
            });
        }
        left.extend(note.cloned());
        rewritten.extend_from_slice(&events[upto as usize..]);
        kept.events = rewritten;
        kept.notes = left;
        kept.base = upto;
        kept.snapshots.retain(|s, _| *s >= upto);
        Ok(())
    }

    fn backup(&self, out: &mut dyn Write) -> Result<(), StoreError> {
        let kept = self.kept().clone();
        let mut writer = archive::Writer::new(out, kept.epoch, kept.base)?;
        if let Some(identity) = &kept.identity {
            writer.identity(identity)?;
        }
        for (after, note) in &kept.notes {
            writer.notes(*after, &[note])?;
        }
        for (number, event) in (1..).zip(&kept.events) {
            writer.events(number, &[event])?;
        }
        for (at, bytes) in &kept.snapshots {
            writer.snapshot(*at, &mut bytes.as_slice())?;
        }
        writer.finish()
    }

    fn check(&self) -> Result<Checked, StoreError> {
        Ok(Checked {
            files: 0,
            bytes: self.bytes(),
            events: self.last(),
        })
    }

    fn bytes(&self) -> u64 {
        let kept = self.kept();
        let events = kept.events.iter().map(Vec::len);
        let notes = kept.notes.iter().map(|(_, n)| n.len());
        let snapshots = kept.snapshots.values().map(Vec::len);
        events.chain(notes).chain(snapshots).sum::<usize>() as u64
    }

    fn close(&self) -> Result<(), StoreError> {
        self.kept().closed = true;
        Ok(())
    }
}

impl Kept {
    fn newest(&self) -> u64 {
        self.snapshots.keys().next_back().copied().unwrap_or(0)
    }

    fn may_snapshot(&self, at: u64) -> Result<(), StoreError> {
        let last = self.events.len() as u64;
        if at > last {
            return Err(StoreError::Refused(format!(
                "a snapshot at {at} is after the last event, {last}"
            )));
        }
        if at < self.base {
            return Err(StoreError::Refused(format!(
                "a snapshot at {at} is before the base, {}",
                self.base
            )));
        }
        Ok(())
    }
}

impl Sink for Kept {
    fn epoch(&mut self, epoch: u64) -> Result<(), StoreError> {
        self.epoch = epoch;
        Ok(())
    }

    fn base(&mut self, base: u64) -> Result<(), StoreError> {
        self.base = base;
        Ok(())
    }

    fn identity(&mut self, identity: &[u8]) -> Result<(), StoreError> {
        self.identity = Some(identity.to_vec());
        Ok(())
    }

    fn events(&mut self, _: u64, events: &[&[u8]]) -> Result<(), StoreError> {
        self.events.extend(events.iter().map(|e| e.to_vec()));
        Ok(())
    }

    fn notes(&mut self, after: u64, notes: &[&[u8]]) -> Result<(), StoreError> {
        self.notes.extend(notes.iter().map(|n| (after, n.to_vec())));
        Ok(())
    }

    fn snapshot(&mut self, at: u64, from: &mut dyn Read) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).map_err(|e| StoreError::Read {
            file: name(at),
            reason: e.to_string(),
        })?;
        self.snapshots.insert(at, bytes);
        Ok(())
    }
}

fn name(at: u64) -> PathBuf {
    PathBuf::from(format!("the snapshot at {at}"))
}
