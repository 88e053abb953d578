//! Which items shown have had their reward: a bit for each number.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Numbers that share a chunk.
const CHUNK: u64 = 4096;

/// The numbers of the items shown whose reward has been learned.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    chunks: BTreeMap<u64, Chunk>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Chunk {
    /// When the last of them was handed out, by the service clock.
    latest: u64,
    bits: Vec<u64>,
}

impl Answered {
    /// Whether the reward has been learned.
    pub fn contains(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.chunks
            .get(&(number / CHUNK))
            .is_some_and(|chunk| chunk.bits[word] & bit != 0)
    }

    /// The reward of an item that was shown at a service-clock time has been learned.
    pub fn insert(&mut self, number: u64, clock: u64) {
        let (word, bit) = place(number);
        let chunk = self.chunks.entry(number / CHUNK).or_insert_with(|| Chunk {
            latest: 0,
            bits: vec![0; CHUNK as usize / 64],
        });
        chunk.bits[word] |= bit;
        chunk.latest = chunk.latest.max(clock);
    }

    /// Lets go of what was handed out before a service-clock time.
    pub fn prune(&mut self, before: u64) {
        self.chunks.retain(|_, chunk| chunk.latest >= before);
    }

    /// As from before there was a service clock: all of it counts as handed out at its beginning.
    pub(crate) fn without_clock(mut self) -> Self {
        for chunk in self.chunks.values_mut() {
            chunk.latest = 0;
        }
        self
    }

    /// Whether everything in it can be as it is.
    pub fn is_sound(&self) -> bool {
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
    fn it_remembers_what_was_answered_until_it_is_too_old() {
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
