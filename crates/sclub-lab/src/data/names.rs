//! The names of users or items, numbered in the order in which they turn up.

use std::borrow::Cow;
use std::fmt;

/// Marks a word that says where a text lies; a word without it is a number.
const TEXT: u64 = 1 << 63;
/// Bits of a word that hold the length of a text.
const LENGTH_BITS: u32 = 20;
/// The maximum length of a name in bytes.
pub const MAX_NAME_LENGTH: usize = (1 << LENGTH_BITS) - 1;

/// A name as a file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name<'a> {
    /// A whole number written without sign or leading zeros.
    Number(u64),
    /// Any other text.
    Text(Cow<'a, str>),
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Number(number) => number.fmt(formatter),
            Name::Text(text) => text.fmt(formatter),
        }
    }
}

impl<'a> Name<'a> {
    /// The name that is written as a number.
    pub(super) fn of_number(number: u64) -> Self {
        match number < 1_000_000_000_000_000_000 {
            true => Name::Number(number),
            false => Name::Text(number.to_string().into()),
        }
    }

    /// The name that is written so.
    pub(super) fn of_text(text: Cow<'a, str>) -> Self {
        match number(text.as_bytes()) {
            Some(number) => Name::Number(number),
            None => Name::Text(text),
        }
    }

    /// Reads a name from its bytes; `None` if they are not UTF-8.
    pub(super) fn parse(bytes: Cow<'a, [u8]>) -> Option<Self> {
        if let Some(number) = number(&bytes) {
            return Some(Name::Number(number));
        }
        let text = match bytes {
            Cow::Borrowed(bytes) => Cow::Borrowed(std::str::from_utf8(bytes).ok()?),
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8(bytes).ok()?),
        };
        Some(Name::Text(text))
    }
}

/// A number that is written back as the same bytes.
#[inline]
fn number(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() || bytes.len() > 18 || (bytes[0] == b'0' && bytes.len() > 1) {
        return None;
    }
    let mut value = 0_u64;
    for &byte in bytes {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    Some(value)
}

/// Names by number, in 8 bytes for a number and 8 more than its length for a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    words: Vec<u64>,
    text: String,
}

impl Names {
    pub fn len(&self) -> usize {
        self.words.len()
    }

    pub fn get(&self, number: usize) -> Name<'_> {
        let word = self.words[number];
        if word & TEXT == 0 {
            Name::Number(word)
        } else {
            Name::Text(Cow::Borrowed(self.text_at(word)))
        }
    }

    fn text_at(&self, word: u64) -> &str {
        let start = ((word & !TEXT) >> LENGTH_BITS) as usize;
        &self.text[start..start + (word as usize & MAX_NAME_LENGTH)]
    }

    fn push(&mut self, name: &Name<'_>) {
        self.words.push(match name {
            Name::Number(number) => *number,
            Name::Text(text) => {
                let start = self.text.len() as u64;
                self.text.push_str(text);
                TEXT | start << LENGTH_BITS | text.len() as u64
            }
        });
    }

    /// The numbers from 0 to below `count`.
    pub fn counted(count: usize) -> Self {
        Self {
            words: (0..count as u64).collect(),
            text: String::new(),
        }
    }

    /// The content of these names as words: equal words mean equal names.
    pub fn content(&self) -> impl Iterator<Item = u64> {
        let text = self.text.as_bytes().chunks(8).map(word);
        let lengths = [self.words.len() as u64, self.text.len() as u64];
        lengths
            .into_iter()
            .chain(self.words.iter().copied())
            .chain(text)
    }
}

/// Up to 8 bytes as a word.
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Gives each new name the next number: a hash table of numbers, open for probing one by one.
#[derive(Debug, Clone)]
pub struct Numbering {
    names: Names,
    /// A number plus 1, or 0 if the slot is free; the length is a power of two.
    slots: Vec<u32>,
}

impl Default for Numbering {
    fn default() -> Self {
        Self {
            names: Names::default(),
            slots: vec![0; 1 << 10],
        }
    }
}

impl Numbering {
    /// The number of a name, new or known. `None` if the name has more than [`MAX_NAME_LENGTH`] bytes, or if there
    /// are `u32::MAX` names already.
    #[inline]
    pub fn number(&mut self, name: &Name<'_>) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut slot = hash(name) as usize & mask;
        loop {
            match self.slots[slot] {
                0 => return self.add(name, slot),
                taken if self.is(taken - 1, name) => return Some(taken - 1),
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    #[inline]
    fn is(&self, number: u32, name: &Name<'_>) -> bool {
        let word = self.names.words[number as usize];
        match name {
            Name::Number(value) => word == *value,
            Name::Text(text) => word & TEXT != 0 && self.names.text_at(word) == text,
        }
    }

    #[cold]
    fn add(&mut self, name: &Name<'_>, slot: usize) -> Option<u32> {
        if let Name::Text(text) = name
            && text.len() > MAX_NAME_LENGTH
        {
            return None;
        }
        let number = u32::try_from(self.names.len())
            .ok()
            .filter(|&n| n < u32::MAX)?;
        self.names.push(name);
        self.slots[slot] = number + 1;
        if self.names.len() * 2 > self.slots.len() {
            self.grow();
        }
        Some(number)
    }

    fn grow(&mut self) {
        let mask = self.slots.len() * 2 - 1;
        let mut slots = vec![0; mask + 1];
        for number in 0..self.names.len() {
            let mut slot = hash(&self.names.get(number)) as usize & mask;
            while slots[slot] != 0 {
                slot = (slot + 1) & mask;
            }
            slots[slot] = number as u32 + 1;
        }
        self.slots = slots;
    }

    /// Done with numbering.
    pub fn into_names(self) -> Names {
        self.names
    }
}

#[inline]
fn hash(name: &Name<'_>) -> u64 {
    match name {
        Name::Number(number) => stir(*number),
        Name::Text(text) => text
            .as_bytes()
            .chunks(8)
            .fold(text.len() as u64, |state, bytes| stir(state ^ word(bytes))),
    }
}

#[inline]
fn stir(word: u64) -> u64 {
    let product = u128::from(word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    (product ^ (product >> 64)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name<'_> {
        Name::parse(Cow::Borrowed(text.as_bytes())).unwrap()
    }

    #[test]
    fn only_numbers_that_are_written_back_the_same_are_numbers() {
        for text in ["0", "7", "138493", "999999999999999999"] {
            assert!(matches!(name(text), Name::Number(_)), "{text}");
        }
        for text in [
            "",
            "007",
            "+7",
            "-7",
            "1.5",
            "9999999999999999999",
            "x1",
            "1 ",
        ] {
            assert!(matches!(name(text), Name::Text(_)), "{text}");
            assert_eq!(name(text).to_string(), text);
        }
        assert_eq!(Name::parse(Cow::Borrowed(b"\xff")), None);
    }

    #[test]
    fn names_are_numbered_as_they_turn_up_and_found_again() {
        let texts: Vec<String> = (0..5000)
            .map(|n| match n % 3 {
                0 => format!("{n}"),
                1 => format!("0{n}"),
                _ => format!("user with a long name, {n}"),
            })
            .collect();
        let mut numbering = Numbering::default();
        for _ in 0..2 {
            for (number, text) in texts.iter().enumerate() {
                assert_eq!(numbering.number(&name(text)), Some(number as u32));
            }
        }
        // In the same slot of the table, the number 0 is not the empty text.
        assert!(!numbering.is(0, &name("")));
        let names = numbering.into_names();
        assert_eq!(names.len(), texts.len());
        for (number, text) in texts.iter().enumerate() {
            assert_eq!(names.get(number).to_string(), *text);
        }
    }

    #[test]
    fn a_name_can_be_too_long() {
        let mut numbering = Numbering::default();
        let long = "x".repeat(MAX_NAME_LENGTH);
        assert_eq!(numbering.number(&name(&long)), Some(0));
        assert_eq!(numbering.number(&name(&format!("{long}x"))), None);
    }
}
