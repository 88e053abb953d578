//! Saved states: plain 64-bit words in a fixed order, with a checksum at the end. A policy from outside
//! implements [`Save`] and calls [`save`]; its [`crate::Load`] is handed a [`Reader`].
//!
//! States are written and read in pieces of 64 kB. The third word is the total number of words, so a
//! reader takes no byte more than was written.

use std::io::{ErrorKind, Read, Write};

use crate::digest::mix;
use crate::error::{Error, LoadError};

/// The version of the format, common to all policies.
const VERSION: u64 = 2;
/// Words before the state itself: the magic number of the policy, [`VERSION`], words in all.
const HEADER: u64 = 3;
/// The number of bytes written or read at a time.
const PIECE: usize = 1 << 16;
const WORD: usize = 8;

/// A state that can be saved.
pub trait Save {
    /// The first word, which identifies the states of this policy.
    const MAGIC: u64;

    /// Writes the state, every bit of it. It must write the same words each time.
    ///
    /// # Errors
    /// Those of the writer.
    fn save_words(&self, writer: &mut Writer<'_>) -> std::io::Result<()>;
}

/// A digest of every word that would be saved.
pub fn digest<T: Save>(state: &T) -> u64 {
    let mut sink = std::io::sink();
    let mut writer = Writer::new(Some(&mut sink));
    let written = state.save_words(&mut writer).and_then(|()| writer.send());
    written.expect("a sink takes all that is written");
    mix(writer.checksum.finish())
}

/// The number of bytes that would be saved.
pub fn length<T: Save>(state: &T) -> u64 {
    let mut counter = Writer::new(None);
    let counted = state.save_words(&mut counter);
    counted.expect("counting cannot fail");
    8 * counter.words
}

/// Writes a state with its header and its checksum. It is walked twice: to count, then to write.
///
/// # Errors
/// The errors of `out`.
pub fn save<T: Save>(state: &T, out: &mut dyn Write) -> std::io::Result<()> {
    let mut counter = Writer::new(None);
    state.save_words(&mut counter)?;
    let mut writer = Writer::new(Some(out));
    writer.word(T::MAGIC)?;
    writer.word(VERSION)?;
    writer.word(HEADER + counter.words + 1)?;
    state.save_words(&mut writer)?;
    writer.finish()
}

/// Writes any words as a state of the policy with this first word: for tests of loaders.
///
/// # Errors
/// The errors of `out`.
#[doc(hidden)]
pub fn seal(magic: u64, words: &[u64], out: &mut dyn Write) -> std::io::Result<()> {
    let mut writer = Writer::new(Some(out));
    writer.word(magic)?;
    writer.word(VERSION)?;
    writer.word(HEADER + words.len() as u64 + 1)?;
    words.iter().try_for_each(|&word| writer.word(word))?;
    writer.finish()
}

/// A state as bytes.
pub(crate) fn save_to_vec<T: Save>(state: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    save(state, &mut bytes).expect("memory takes all that is written");
    bytes
}

/// Writes words one after another, or only counts them.
pub struct Writer<'a> {
    out: Option<&'a mut dyn Write>,
    piece: Vec<u8>,
    checksum: Checksum,
    words: u64,
}

impl<'a> Writer<'a> {
    fn new(out: Option<&'a mut dyn Write>) -> Self {
        let room = if out.is_some() { PIECE } else { 0 };
        Self {
            out,
            piece: Vec::with_capacity(room),
            checksum: Checksum::new(),
            words: 0,
        }
    }

    /// Writes a word.
    ///
    /// # Errors
    /// Those of the output.
    pub fn word(&mut self, word: u64) -> std::io::Result<()> {
        self.words += 1;
        if self.out.is_none() {
            return Ok(());
        }
        self.piece.extend_from_slice(&word.to_le_bytes());
        if self.piece.len() == PIECE {
            self.send()?;
        }
        Ok(())
    }

    /// Writes a number, to the bit.
    ///
    /// # Errors
    /// Those of the output.
    pub fn number(&mut self, number: f64) -> std::io::Result<()> {
        self.word(number.to_bits())
    }

    /// Writes numbers without their count.
    ///
    /// # Errors
    /// Those of the output.
    pub fn numbers(&mut self, mut numbers: &[f64]) -> std::io::Result<()> {
        self.words += numbers.len() as u64;
        if self.out.is_none() {
            return Ok(());
        }
        while !numbers.is_empty() {
            let at = self.piece.len();
            let (now, later) = numbers.split_at(numbers.len().min((PIECE - at) / WORD));
            self.piece.resize(at + now.len() * WORD, 0);
            let (words, _) = self.piece[at..].as_chunks_mut::<WORD>();
            for (word, number) in words.iter_mut().zip(now) {
                *word = number.to_le_bytes();
            }
            numbers = later;
            if self.piece.len() == PIECE {
                self.send()?;
            }
        }
        Ok(())
    }

    /// Writes words with their count in front.
    ///
    /// # Errors
    /// Those of the output.
    pub fn words(&mut self, mut words: impl ExactSizeIterator<Item = u64>) -> std::io::Result<()> {
        self.word(words.len() as u64)?;
        words.try_for_each(|word| self.word(word))
    }

    fn send(&mut self) -> std::io::Result<()> {
        if let Some(out) = &mut self.out {
            self.checksum.add(&self.piece);
            out.write_all(&self.piece)?;
            self.piece.clear();
        }
        Ok(())
    }

    fn finish(mut self) -> std::io::Result<()> {
        self.send()?;
        let checksum = self.checksum.finish();
        match self.out {
            Some(out) => out.write_all(&checksum.to_le_bytes()),
            None => Ok(()),
        }
    }
}

/// Reads words one after another.
pub struct Reader<'a> {
    input: &'a mut dyn Read,
    piece: Vec<u8>,
    /// The offset of the next word in `piece`.
    at: usize,
    /// Words still to be taken, without the checksum.
    left: u64,
    /// Words still to come in, without the checksum.
    outside: u64,
    checksum: Checksum,
    magic: u64,
}

impl<'a> Reader<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// If the input fails, or is not a saved state.
    pub fn new(input: &'a mut dyn Read) -> Result<Self, LoadError> {
        let mut reader = Self {
            input,
            piece: Vec::new(),
            at: 0,
            left: HEADER,
            outside: HEADER,
            checksum: Checksum::new(),
            magic: 0,
        };
        reader.magic = reader.word()?;
        if reader.word()? != VERSION {
            return Err(bad("its format version is unsupported").into());
        }
        let words = reader.word()?;
        if words <= HEADER {
            return Err(bad("its length is not more than that of the header").into());
        }
        reader.left = words - HEADER - 1;
        reader.outside = reader.left;
        Ok(reader)
    }

    /// The first word, which identifies the policy that saved it.
    pub fn magic(&self) -> u64 {
        self.magic
    }

    /// Checks that the policy with this first word saved it.
    ///
    /// # Errors
    /// [`Error::BadSnapshot`] if it was another.
    pub fn expect(&self, magic: u64) -> Result<(), LoadError> {
        if self.magic == magic {
            Ok(())
        } else {
            Err(bad("it was saved by another policy, or is not a saved state").into())
        }
    }

    /// Brings the next piece in.
    #[cold]
    fn receive(&mut self) -> Result<(), LoadError> {
        let most = (PIECE / WORD) as u64;
        let words = self.outside.min(most);
        self.piece.resize(words as usize * WORD, 0);
        read_exactly(self.input, &mut self.piece)?;
        self.checksum.add(&self.piece);
        self.outside -= words;
        self.at = 0;
        Ok(())
    }

    /// Reads a word.
    ///
    /// # Errors
    /// If the state ends too early.
    pub fn word(&mut self) -> Result<u64, LoadError> {
        if self.left == 0 {
            return Err(bad("it ends too early").into());
        }
        if self.at == self.piece.len() {
            self.receive()?;
        }
        let mut word = [0; WORD];
        word.copy_from_slice(&self.piece[self.at..self.at + WORD]);
        self.at += WORD;
        self.left -= 1;
        Ok(u64::from_le_bytes(word))
    }

    /// Reads a word that must be at most `most`.
    ///
    /// # Errors
    /// If it is larger, or the state ends too early.
    pub fn at_most(&mut self, most: u64) -> Result<u64, LoadError> {
        let word = self.word()?;
        if word <= most {
            Ok(word)
        } else {
            Err(bad("a number is above the maximum of its field").into())
        }
    }

    /// Reads a word that must fit into 32 bits.
    ///
    /// # Errors
    /// If it does not, or the state ends too early.
    pub fn u32(&mut self) -> Result<u32, LoadError> {
        Ok(self.at_most(u64::from(u32::MAX))? as u32)
    }

    /// Reads the number of things that follow, each of at least one word. It may be wrong: do not reserve memory
    /// for that number.
    ///
    /// # Errors
    /// If there are fewer words left.
    pub fn count(&mut self) -> Result<usize, LoadError> {
        let most = self.left.min(u64::from(u32::MAX));
        Ok(self.at_most(most)? as usize)
    }

    /// Reads a number, to the bit.
    ///
    /// # Errors
    /// If the state ends too early.
    pub fn number(&mut self) -> Result<f64, LoadError> {
        Ok(f64::from_bits(self.word()?))
    }

    /// Reads as many numbers as there is room for.
    ///
    /// # Errors
    /// If the state ends too early.
    pub fn fill(&mut self, mut numbers: &mut [f64]) -> Result<(), LoadError> {
        if self.left < numbers.len() as u64 {
            return Err(bad("it ends too early").into());
        }
        self.left -= numbers.len() as u64;
        while !numbers.is_empty() {
            if self.at == self.piece.len() {
                self.receive()?;
            }
            let (words, _) = self.piece[self.at..].as_chunks::<WORD>();
            let count = numbers.len().min(words.len());
            let (now, later) = numbers.split_at_mut(count);
            for (number, word) in now.iter_mut().zip(words) {
                *number = f64::from_le_bytes(*word);
            }
            self.at += count * WORD;
            numbers = later;
        }
        Ok(())
    }

    /// Reads words with their count in front.
    ///
    /// # Errors
    /// If the state ends too early.
    pub fn words(&mut self) -> Result<Vec<u64>, LoadError> {
        (0..self.count()?).map(|_| self.word()).collect()
    }

    /// Checks that nothing is left, and the checksum.
    ///
    /// # Errors
    /// [`Error::BadSnapshot`].
    pub fn end(self) -> Result<(), LoadError> {
        if self.left > 0 {
            return Err(bad("there are bytes after its end").into());
        }
        let mut last = [0; WORD];
        read_exactly(self.input, &mut last)?;
        if self.checksum.finish() == u64::from_le_bytes(last) {
            Ok(())
        } else {
            Err(bad("its checksum does not match").into())
        }
    }
}

/// Fills the target. An early end is an error of the state, not of the input.
fn read_exactly(input: &mut dyn Read, target: &mut [u8]) -> Result<(), LoadError> {
    input.read_exact(target).map_err(|error| {
        if error.kind() == ErrorKind::UnexpectedEof {
            bad("it ends too early").into()
        } else {
            LoadError::Io(error)
        }
    })
}

/// Loads from bytes, all of which must be the state; the checksum comes before anything else.
pub(crate) fn load_slice<T>(
    bytes: &[u8],
    load: impl FnOnce(&mut dyn Read) -> Result<T, LoadError>,
) -> Result<T, Error> {
    let Some((state, last)) = bytes.split_last_chunk::<WORD>() else {
        return Err(bad("it is shorter than 8 bytes"));
    };
    let mut checksum = Checksum::new();
    checksum.add(state);
    if checksum.finish() != u64::from_le_bytes(*last) {
        return Err(bad("its checksum does not match"));
    }
    let mut left = bytes;
    match load(&mut left) {
        Ok(_) if !left.is_empty() => Err(bad("there are bytes after its end")),
        Ok(state) => Ok(state),
        Err(LoadError::State(error)) => Err(error),
        Err(LoadError::Io(_)) => Err(bad("it ends too early")),
    }
}

/// [`Error::BadSnapshot`].
pub fn bad(reason: &'static str) -> Error {
    Error::BadSnapshot { reason }
}

/// A checksum of 64 bits. Four strands take the words in turn, so that the processor works on all
/// of them at once.
struct Checksum {
    strands: [u64; 4],
    bytes: u64,
}

impl Checksum {
    const STRANDS: usize = 4;

    fn new() -> Self {
        Self {
            strands: [1, 2, 3, 4].map(|strand| mix(strand ^ 0x5c1b_57a7_e000_0000)),
            bytes: 0,
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        let (mut words, rest) = bytes.as_chunks::<WORD>();
        let behind = (self.bytes / WORD as u64) as usize % Self::STRANDS;
        if behind > 0 {
            let (few, more) = words.split_at(words.len().min(Self::STRANDS - behind));
            for (strand, word) in self.strands[behind..].iter_mut().zip(few) {
                *strand = fold(*strand, u64::from_le_bytes(*word));
            }
            words = more;
        }
        let mut strands = self.strands;
        let (fours, few) = words.as_chunks::<{ Self::STRANDS }>();
        for four in fours {
            for (strand, word) in strands.iter_mut().zip(four) {
                *strand = fold(*strand, u64::from_le_bytes(*word));
            }
        }
        for (strand, word) in strands.iter_mut().zip(few) {
            *strand = fold(*strand, u64::from_le_bytes(*word));
        }
        for &byte in rest {
            strands[0] = fold(strands[0], u64::from(byte));
        }
        self.strands = strands;
        self.bytes += bytes.len() as u64;
    }

    fn finish(&self) -> u64 {
        let start = mix(self.bytes);
        self.strands.iter().fold(start, |all, &s| fold(all, s))
    }
}

#[inline]
fn fold(state: u64, word: u64) -> u64 {
    mix(state ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15)
}
