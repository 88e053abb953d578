//! State as bytes: plain words in a fixed order, with a checksum at the end.

use crate::digest::mix;
use crate::error::Error;

/// Puts words one after another.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub fn word(&mut self, word: u64) {
        self.bytes.extend_from_slice(&word.to_le_bytes());
    }

    pub fn number(&mut self, number: f64) {
        self.word(number.to_bits());
    }

    /// As many numbers as the reader will expect.
    pub fn numbers(&mut self, numbers: &[f64]) {
        numbers.iter().for_each(|&number| self.number(number));
    }

    /// Words with their count in front.
    pub fn words(&mut self, words: impl ExactSizeIterator<Item = u64>) {
        self.word(words.len() as u64);
        words.for_each(|word| self.word(word));
    }

    /// The bytes, checksum included.
    pub fn finish(mut self) -> Vec<u8> {
        let checksum = checksum(&self.bytes);
        self.word(checksum);
        self.bytes
    }
}

/// Takes words one after another.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Checks the checksum before anything is read.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let Some((left, last)) = bytes.split_last_chunk::<8>() else {
            return Err(bad("it is too short"));
        };
        if checksum(left) != u64::from_le_bytes(*last) {
            return Err(bad("its checksum is wrong"));
        }
        Ok(Self { left })
    }

    pub fn word(&mut self) -> Result<u64, Error> {
        let Some((word, left)) = self.left.split_first_chunk::<8>() else {
            return Err(bad("it ends too early"));
        };
        self.left = left;
        Ok(u64::from_le_bytes(*word))
    }

    /// A word that must be at most `most`.
    pub fn at_most(&mut self, most: u64) -> Result<u64, Error> {
        let word = self.word()?;
        if word <= most {
            Ok(word)
        } else {
            Err(bad("a number in it is too large"))
        }
    }

    /// How many things follow, each of at least one word.
    pub fn count(&mut self) -> Result<usize, Error> {
        let most = self.left.len() as u64 / 8;
        Ok(self.at_most(most)? as usize)
    }

    pub fn number(&mut self) -> Result<f64, Error> {
        Ok(f64::from_bits(self.word()?))
    }

    pub fn fill(&mut self, numbers: &mut [f64]) -> Result<(), Error> {
        for number in numbers {
            *number = self.number()?;
        }
        Ok(())
    }

    pub fn words(&mut self) -> Result<Vec<u64>, Error> {
        (0..self.count()?).map(|_| self.word()).collect()
    }

    /// Checks that nothing is left.
    pub fn end(self) -> Result<(), Error> {
        if self.left.is_empty() {
            Ok(())
        } else {
            Err(bad("something follows its end"))
        }
    }
}

pub(crate) fn bad(reason: &'static str) -> Error {
    Error::BadSnapshot { reason }
}

/// Changes with any change of any byte, for all that can be expected of 64 bits.
fn checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut state = mix(bytes.len() as u64 ^ 0x5c1b_57a7_e000_0001);
    for word in words {
        state = mix(state ^ u64::from_le_bytes(*word)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
    for &byte in rest {
        state = mix(state ^ u64::from(byte)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
    state
}
