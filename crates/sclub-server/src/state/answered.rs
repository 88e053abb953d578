//! The set of the items shown that have their reward: a bit for each number.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The number of bits in a chunk.
const CHUNK: u64 = 4096;

/// The numbers of the items shown whose reward has been learned.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    chunks: BTreeMap<u64, Chunk>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Chunk {
    /// The service-clock time of the latest decision in the chunk.
    latest: u64,
    bits: Vec<u64>,
}

impl Answered {
    /// Returns true if the reward has been learned.
    pub fn contains(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.chunks
            .get(&(number / CHUNK))
            .is_some_and(|chunk| chunk.bits[word] & bit != 0)
    }

    /// Adds the number of an item that was shown at a service-clock time.
    pub fn insert(&mut self, number: u64, clock: u64) {
        let (word, bit) = place(number);
        let chunk = self.chunks.entry(number / CHUNK).or_insert_with(|| Chunk {
            latest: 0,
            bits: vec![0; CHUNK as usize / 64],
        });
        chunk.bits[word] |= bit;
        chunk.latest = chunk.latest.max(clock);
    }

    /// Removes a number. Returns true if it was there.
    pub fn remove(&mut self, number: u64) -> bool {
        let (word, bit) = place(number);
        let Some(chunk) = self.chunks.get_mut(&(number / CHUNK)) else {
            return false;
        };
        let is_there = chunk.bits[word] & bit != 0;
        chunk.bits[word] &= !bit;
        is_there
    }

    /// Visits the numbers in rising order, each with the service-clock time of the latest decision in its chunk.
    pub fn each(&self, mut visit: impl FnMut(u64, u64)) {
        for (chunk, Chunk { latest, bits }) in &self.chunks {
            for (word, bits) in (0..).zip(bits) {
                let set = (0..64).filter(|bit| bits >> bit & 1 == 1);
                set.for_each(|bit| visit(chunk * CHUNK + word * 64 + bit, *latest));
            }
        }
    }

    /// Returns true if there are no chunks.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Drops chunks whose decisions were all made before a service-clock time.
    pub fn prune(&mut self, before: u64) {
        self.chunks.retain(|_, chunk| chunk.latest >= before);
    }

    /// Converts a set from before there was a service clock: all decisions get time 0.
    pub(crate) fn without_clock(mut self) -> Self {
        for chunk in self.chunks.values_mut() {
            chunk.latest = 0;
        }
        self
    }

    /// Returns true if the contents are consistent.
    pub fn is_valid(&self) -> bool {
        self.chunks
            .values()
            .all(|chunk| chunk.bits.len() == CHUNK as usize / 64)
    }
}

fn place(number: u64) -> (usize, u64) {
    let within = number % CHUNK;
    ((within / 64) as usize, 1 << (within % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_until_they_are_too_old() {
        let mut answered = Answered::default();
        let numbers = [0, 1, 63, 64, 4095, 4096, 1 << 40, (1 << 40) + 5000];
        for (at, &number) in numbers.iter().enumerate() {
            assert!(!answered.contains(number));
            answered.insert(number, at as u64 * 10);
            assert!(answered.contains(number));
        }
        assert!(!answered.contains(2) && !answered.contains(4097));
        answered.prune(45);
        let kept = numbers.map(|number| answered.contains(number));
        assert_eq!(kept, [false, false, false, false, false, true, true, true]);
    }
}
