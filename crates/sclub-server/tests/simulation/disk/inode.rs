//! The bytes of a file: what is on the disk, what the page cache shows, and what lies between.

use rand::RngExt;

use crate::seed::{Rng, chance};

/// The number of bytes that a disk writes atomically.
pub const SECTOR: u64 = 512;

/// A file, whatever its name.
#[derive(Debug, Default)]
pub struct Inode {
    /// The contents after a power loss that loses everything it may.
    durable: Vec<u8>,
    /// The contents that reads see.
    visible: Vec<u8>,
    /// The changes that the next sync makes durable, in order.
    pending: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Grow(u64),
    Empty,
}

/// The effect of a power loss on changes that were not synced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    /// All of them are lost.
    All,
    /// All of them became durable.
    Nothing,
    /// Each is kept, torn or lost.
    Some,
}

impl Loss {
    pub fn draw(rng: &mut Rng) -> Self {
        match rng.random_range(0..5) {
            0 => Loss::All,
            1 => Loss::Nothing,
            _ => Loss::Some,
        }
    }
}

impl Inode {
    pub fn visible(&self) -> &[u8] {
        &self.visible
    }

    pub fn durable(&self) -> &[u8] {
        &self.durable
    }

    pub fn write(&mut self, bytes: &[u8], offset: u64) {
        self.change(Change::Write {
            offset,
            bytes: bytes.to_vec(),
        });
    }

    pub fn grow(&mut self, length: u64) {
        if length > self.visible.len() as u64 {
            self.change(Change::Grow(length));
        }
    }

    pub fn empty(&mut self) {
        self.change(Change::Empty);
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.visible);
        self.pending.push(change);
    }

    /// Makes writes since the last sync durable, but not those that an earlier sync dropped.
    pub fn sync(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// Fails a sync as Linux does: some of the changes are on the disk, and the rest will never be written,
    /// though reads still see it.
    pub fn fail_sync(&mut self, rng: &mut Rng) {
        for change in self.pending.drain(..) {
            change.survive_in_part(&mut self.durable, rng);
        }
    }

    /// Loses the power. From now on reads see what was on the disk.
    pub fn lose_power(&mut self, loss: Loss, rng: &mut Rng) {
        for change in self.pending.drain(..) {
            match loss {
                Loss::All => {}
                Loss::Nothing => change.apply(&mut self.durable),
                Loss::Some => change.survive_in_part(&mut self.durable, rng),
            }
        }
        self.visible.clone_from(&self.durable);
    }
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Change::Write { offset, bytes } => put(content, bytes, *offset),
            Change::Grow(length) => grow(content, *length),
            Change::Empty => content.clear(),
        }
    }

    /// Applied whole, torn at sectors, or not at all.
    fn survive_in_part(&self, content: &mut Vec<u8>, rng: &mut Rng) {
        let fate = rng.random_range(0..3);
        if fate == 0 {
            return self.apply(content);
        }
        let Change::Write { offset, bytes } = self else {
            return;
        };
        if fate == 1 {
            for (place, sector) in sectors(*offset, bytes) {
                if chance(rng, 0.5) {
                    put(content, sector, place);
                }
            }
        }
        // File systems write the new length apart from the bytes: then there are zeros.
        if chance(rng, 0.25) {
            grow(content, offset + bytes.len() as u64);
        }
    }
}

/// The parts of a write that are in different sectors of the file.
fn sectors(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut at = offset;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let room = (SECTOR - at % SECTOR) as usize;
        let (sector, later) = rest.split_at(room.min(rest.len()));
        let place = at;
        rest = later;
        at += sector.len() as u64;
        Some((place, sector))
    })
}

fn put(content: &mut Vec<u8>, bytes: &[u8], offset: u64) {
    let end = offset + bytes.len() as u64;
    grow(content, end);
    content[offset as usize..end as usize].copy_from_slice(bytes);
}

fn grow(content: &mut Vec<u8>, length: u64) {
    if content.len() < length as usize {
        content.resize(length as usize, 0);
    }
}
