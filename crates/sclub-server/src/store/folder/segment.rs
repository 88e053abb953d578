//! One file of the log: a database with a batch of events, or of notes, in each value.
//!
//! Every batch ends with a sum over itself and the sum of the batch before it. Reading checks these
//! sums and the numbers, so that a batch that is damaged, missing or out of place is seen.

use std::path::Path;

use redb::{
    Database, ReadOnlyDatabase, ReadTransaction, ReadableDatabase, Table, TableDefinition,
    WriteTransaction,
};

use super::files::{At, damaged};
use super::quiet::quietly;
use crate::store::{StoreError, rows};

/// Batches of events by the number of the first of them.
const EVENTS: TableDefinition<u64, &[u8]> = TableDefinition::new("events");
/// Batches of notes, numbered from 0.
const NOTES: TableDefinition<u64, &[u8]> = TableDefinition::new("notes");
/// The number of the first event, at 0.
const FIRST: TableDefinition<u64, u64> = TableDefinition::new("first");

const SUM: usize = 16;
type Sum = [u8; SUM];

/// Memory for pages while a file is written, and while it is only read.
const WRITE_CACHE: usize = 16 << 20;
const READ_CACHE: usize = 8 << 20;

/// Where a file ends: what the next batches go on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chain {
    /// The number of the next event.
    pub next: u64,
    /// The number of the next batch of notes.
    pub notes: u64,
    pub event_sum: Sum,
    pub note_sum: Sum,
}

impl Chain {
    /// Of a file without a batch.
    pub fn start(first: u64) -> Self {
        Self {
            next: first,
            notes: 0,
            event_sum: seed(b'e', first),
            note_sum: seed(b'n', first),
        }
    }
}

/// A batch as it is read.
#[derive(Debug)]
pub(super) struct Batch {
    /// The number of the first event, or for notes that of the last event before them.
    pub number: u64,
    bytes: Vec<u8>,
}

impl Batch {
    pub fn rows(&self) -> Vec<&[u8]> {
        // It was taken apart once when it was read.
        rows::take(&self.bytes).map_or_else(Vec::new, |(rows, _)| rows)
    }

    fn length(&self) -> usize {
        self.bytes.len()
    }
}

/// What is in a file, in the order in which it was written.
#[derive(Debug)]
pub(super) enum Part {
    Events(Batch),
    Notes(Batch),
}

/// Begins a file whose first event will have the number `first`.
pub(super) fn create(file: &Path, first: u64) -> Result<Database, StoreError> {
    quietly(file, || {
        let db = Database::builder()
            .set_cache_size(WRITE_CACHE)
            .create(file)
            .writing(file)?;
        let change = db.begin_write().writing(file)?;
        change.open_table(EVENTS).writing(file)?;
        change.open_table(NOTES).writing(file)?;
        change
            .open_table(FIRST)
            .writing(file)?
            .insert(0, first)
            .writing(file)?;
        change.commit().writing(file)?;
        Ok(db)
    })
}

/// Opens a file to go on with it, and mends it if its last writer crashed.
pub(super) fn open(file: &Path) -> Result<Database, StoreError> {
    quietly(file, || {
        // A file that is cut short must not be taken for a new one.
        std::fs::metadata(file).reading(file)?;
        let db = Database::builder()
            .set_cache_size(WRITE_CACHE)
            .open(file)
            .writing(file)?;
        Ok(db)
    })
}

/// Opens a file that does not change any more.
pub(super) fn open_sealed(file: &Path) -> Result<ReadOnlyDatabase, StoreError> {
    quietly(file, || {
        Database::builder()
            .set_cache_size(READ_CACHE)
            .open_read_only(file)
            .reading(file)
    })
}

/// Ends the use of a database.
pub(super) fn finish(file: &Path, db: Database) -> Result<(), StoreError> {
    quietly(file, || {
        drop(db);
        Ok(())
    })
}

/// Adds to a file in one step, and returns where it ends then.
pub(super) fn add(
    file: &Path,
    db: &Database,
    chain: Chain,
    fill: &mut dyn FnMut(&mut Fill<'_>) -> Result<(), StoreError>,
) -> Result<Chain, StoreError> {
    quietly(file, || {
        let change = db.begin_write().writing(file)?;
        let mut filling = Fill {
            file,
            change: &change,
            events: None,
            notes: None,
            value: Vec::new(),
            chain,
        };
        fill(&mut filling)?;
        let chain = filling.chain;
        drop(filling);
        change.commit().writing(file)?;
        Ok(chain)
    })
}

/// A change of a file.
pub(super) struct Fill<'t> {
    file: &'t Path,
    change: &'t WriteTransaction,
    events: Option<Table<'t, u64, &'static [u8]>>,
    notes: Option<Table<'t, u64, &'static [u8]>>,
    value: Vec<u8>,
    chain: Chain,
}

impl Fill<'_> {
    /// Events, numbered on.
    pub fn events(&mut self, events: &[&[u8]]) -> Result<(), StoreError> {
        if events.is_empty() {
            return Ok(());
        }
        let Chain {
            next, event_sum, ..
        } = self.chain;
        self.value.clear();
        rows::put(&mut self.value, events.iter().copied());
        let sum = sum(&event_sum, next, &self.value);
        self.value.extend_from_slice(&sum);
        let table = match &mut self.events {
            Some(table) => table,
            none => none.insert(self.change.open_table(EVENTS).writing(self.file)?),
        };
        table
            .insert(next, self.value.as_slice())
            .writing(self.file)?;
        self.chain.event_sum = sum;
        self.chain.next += events.len() as u64;
        Ok(())
    }

    /// A batch of notes, which may be empty, written after the event `after`.
    pub fn notes(&mut self, after: u64, notes: &[&[u8]]) -> Result<(), StoreError> {
        let Chain {
            notes: number,
            note_sum,
            ..
        } = self.chain;
        self.value.clear();
        self.value.extend_from_slice(&after.to_le_bytes());
        rows::put(&mut self.value, notes.iter().copied());
        let sum = sum(&note_sum, number, &self.value);
        self.value.extend_from_slice(&sum);
        let table = match &mut self.notes {
            Some(table) => table,
            none => none.insert(self.change.open_table(NOTES).writing(self.file)?),
        };
        table
            .insert(number, self.value.as_slice())
            .writing(self.file)?;
        self.chain.note_sum = sum;
        self.chain.notes += 1;
        Ok(())
    }
}

/// About `budget` bytes of batches, from the one with the event `from` on. Empty at the end.
pub(super) fn events(
    file: &Path,
    db: &impl ReadableDatabase,
    first: u64,
    from: u64,
    budget: usize,
) -> Result<Vec<Batch>, StoreError> {
    quietly(file, || {
        let read = db.begin_read().reading(file)?;
        let table = read.open_table(EVENTS).reading(file)?;
        let Some(start) = key_before(file, &table, from)? else {
            return Ok(Vec::new());
        };
        let before = value_before(file, &table, start)?;
        let mut chain = match before {
            Some(sum) => Chain {
                next: start,
                event_sum: sum,
                ..Chain::start(first)
            },
            None => Chain::start(first),
        };
        let mut batches = Vec::new();
        let mut room = budget;
        for item in table.range(start..).reading(file)? {
            let (key, value) = item.reading(file)?;
            let batch = chain.event_batch(file, key.value(), value.value())?;
            room = room.saturating_sub(batch.length());
            if chain.next > from {
                batches.push(batch);
            }
            if room == 0 {
                break;
            }
        }
        Ok(batches)
    })
}

/// About `budget` bytes of batches of notes, from number `from` on. Empty at the end.
pub(super) fn notes(
    file: &Path,
    db: &impl ReadableDatabase,
    first: u64,
    from: u64,
    budget: usize,
) -> Result<Vec<Batch>, StoreError> {
    quietly(file, || {
        let read = db.begin_read().reading(file)?;
        let table = read.open_table(NOTES).reading(file)?;
        let mut chain = Chain::start(first);
        if let Some(sum) = value_before(file, &table, from)? {
            chain.note_sum = sum;
        }
        chain.notes = from;
        let mut batches = Vec::new();
        let mut room = budget;
        for item in table.range(from..).reading(file)? {
            let (key, value) = item.reading(file)?;
            let batch = chain.note_batch(file, key.value(), value.value())?;
            room = room.saturating_sub(batch.length());
            batches.push(batch);
            if room == 0 {
                break;
            }
        }
        Ok(batches)
    })
}

/// Visits all of a file, in the order in which it was written, and returns where it ends. Checks it
/// all.
pub(super) fn walk(
    file: &Path,
    db: &impl ReadableDatabase,
    first: u64,
    visit: &mut dyn FnMut(Part) -> Result<(), StoreError>,
) -> Result<Chain, StoreError> {
    quietly(file, || {
        let read: ReadTransaction = db.begin_read().reading(file)?;
        let written = read
            .open_table(FIRST)
            .reading(file)?
            .get(0)
            .reading(file)?
            .map(|n| n.value());
        if written != Some(first) {
            return Err(damaged(file, "its first number is not that in its name"));
        }
        let events = read.open_table(EVENTS).reading(file)?;
        let notes = read.open_table(NOTES).reading(file)?;
        let mut chain = Chain::start(first);
        let mut notes = notes.range::<u64>(..).reading(file)?;
        let mut note = None;
        let mut next_note = |chain: &mut Chain| match notes.next() {
            None => Ok(None),
            Some(item) => {
                let (key, value) = item.reading(file)?;
                chain.note_batch(file, key.value(), value.value()).map(Some)
            }
        };
        for item in events.range::<u64>(..).reading(file)? {
            let (key, value) = item.reading(file)?;
            loop {
                if note.is_none() {
                    note = next_note(&mut chain)?;
                }
                match note.take_if(|n| n.number < key.value()) {
                    Some(batch) => visit(Part::Notes(batch))?,
                    None => break,
                }
            }
            visit(Part::Events(chain.event_batch(
                file,
                key.value(),
                value.value(),
            )?))?;
        }
        while let Some(batch) = match note.take() {
            Some(batch) => Some(batch),
            None => next_note(&mut chain)?,
        } {
            visit(Part::Notes(batch))?;
        }
        Ok(chain)
    })
}

impl Chain {
    fn event_batch(&mut self, file: &Path, key: u64, value: &[u8]) -> Result<Batch, StoreError> {
        if key != self.next {
            return Err(damaged(
                file,
                format!("event {} is missing", self.next.min(key)),
            ));
        }
        let (sum, body) = checked(file, &self.event_sum, key, value)?;
        match rows::take(body) {
            Some((rows, [])) if !rows.is_empty() => self.next += rows.len() as u64,
            _ => return Err(damaged(file, format!("event {key} is no list"))),
        }
        self.event_sum = sum;
        Ok(Batch {
            number: key,
            bytes: body.to_vec(),
        })
    }

    fn note_batch(&mut self, file: &Path, key: u64, value: &[u8]) -> Result<Batch, StoreError> {
        if key != self.notes {
            return Err(damaged(file, "notes are missing"));
        }
        let (sum, body) = checked(file, &self.note_sum, key, value)?;
        let split = body.split_first_chunk::<8>();
        let Some((after, body)) = split.filter(|(_, b)| matches!(rows::take(b), Some((_, []))))
        else {
            return Err(damaged(file, "notes in it are no list"));
        };
        self.notes += 1;
        self.note_sum = sum;
        Ok(Batch {
            number: u64::from_le_bytes(*after),
            bytes: body.to_vec(),
        })
    }
}

fn checked<'a>(
    file: &Path,
    before: &Sum,
    key: u64,
    value: &'a [u8],
) -> Result<(Sum, &'a [u8]), StoreError> {
    match value.split_last_chunk::<SUM>() {
        Some((body, written)) if *written == sum(before, key, body) => Ok((*written, body)),
        _ => Err(damaged(file, "a checksum in it does not match")),
    }
}

/// Whether a file ends as `chain` says.
pub(super) fn end(
    file: &Path,
    db: &impl ReadableDatabase,
    first: u64,
    chain: &Chain,
) -> Result<bool, StoreError> {
    quietly(file, || {
        let read = db.begin_read().reading(file)?;
        let events = read.open_table(EVENTS).reading(file)?;
        let notes = read.open_table(NOTES).reading(file)?;
        let event = value_before(file, &events, u64::MAX)?;
        let note = value_before(file, &notes, u64::MAX)?;
        let start = Chain::start(first);
        Ok(event.unwrap_or(start.event_sum) == chain.event_sum
            && note.unwrap_or(start.note_sum) == chain.note_sum)
    })
}

type Batches = redb::ReadOnlyTable<u64, &'static [u8]>;

/// The largest key up to `upto`.
fn key_before(file: &Path, table: &Batches, upto: u64) -> Result<Option<u64>, StoreError> {
    let mut keys = table.range(..=upto).reading(file)?;
    match keys.next_back() {
        Some(item) => Ok(Some(item.reading(file)?.0.value())),
        None => Ok(None),
    }
}

/// The sum of the batch before the one at `key`.
fn value_before(file: &Path, table: &Batches, key: u64) -> Result<Option<Sum>, StoreError> {
    let mut items = table.range(..key).reading(file)?;
    let Some(item) = items.next_back() else {
        return Ok(None);
    };
    let (_, value) = item.reading(file)?;
    match value.value().last_chunk::<SUM>() {
        Some(sum) => Ok(Some(*sum)),
        None => Err(damaged(file, "a checksum in it is missing")),
    }
}

fn seed(kind: u8, first: u64) -> Sum {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[kind]).update(&first.to_le_bytes());
    short(&hasher)
}

fn sum(before: &Sum, key: u64, body: &[u8]) -> Sum {
    let mut hasher = blake3::Hasher::new();
    hasher
        .update(before)
        .update(&key.to_le_bytes())
        .update(body);
    short(&hasher)
}

fn short(hasher: &blake3::Hasher) -> Sum {
    *hasher
        .finalize()
        .as_bytes()
        .first_chunk()
        .expect("a hash has 32 bytes")
}

impl<T, E: Into<redb::Error>> At<T> for Result<T, E> {
    fn writing(self, file: &Path) -> Result<T, StoreError> {
        self.map_err(|e| error(file, e.into(), true))
    }

    fn reading(self, file: &Path) -> Result<T, StoreError> {
        self.map_err(|e| error(file, e.into(), false))
    }
}

fn error(file: &Path, e: redb::Error, writing: bool) -> StoreError {
    match e {
        redb::Error::Io(e) if writing && e.kind() != std::io::ErrorKind::NotFound => {
            super::files::write_error(file, e)
        }
        redb::Error::Io(e) => super::files::read_error(file, e),
        redb::Error::PreviousIo => StoreError::Write {
            file: file.into(),
            reason: "an earlier write failed".into(),
        },
        redb::Error::DatabaseAlreadyOpen => StoreError::InUse(file.into()),
        redb::Error::RepairAborted => damaged(file, "it was not closed as it should be"),
        redb::Error::Corrupted(_) => damaged(file, "a checksum in it does not match"),
        _ => damaged(file, "it is not as it was written"),
    }
}
