//! Columns for filters: the values of a field for all items, side by side, so that a filter over a large catalogue reads little
//! memory.

use std::collections::HashMap;

use crate::description::{Fact, Facts, Number};
use crate::filter::{Condition, Test, Values};

/// The maximum number of fields with a column, so that many rare fields do not take much memory. Further fields are kept
/// by item.
const MAX_COLUMNS: usize = 32;
/// The maximum number of values of an item that are in a column. Further values are kept by item.
const MAX_LAYERS: usize = 8;
/// The number of items of a word that are looked at one by one.
const FEW: u32 = 8;

/// The facts of all items, by slot.
#[derive(Debug, Clone, Default)]
pub(super) struct Columns {
    len: usize,
    /// Bits of the items that are available.
    available: Vec<u64>,
    unavailable: usize,
    /// By the hash of the field.
    fields: HashMap<u64, Column>,
    /// The facts of fields without a column.
    others: HashMap<u32, Box<[Fact]>>,
}

/// A field's values of all items.
#[derive(Debug, Clone, Default)]
struct Column {
    /// The first value of each item, the second, and so on; 0 if there is none. None is longer than the one before.
    layers: Vec<Vec<u64>>,
    /// The values that have no layer.
    more: HashMap<u32, Box<[u64]>>,
    /// The number of each item, rounded; NaN if there is none.
    numbers: Vec<f64>,
    /// The rest of numbers that are rounded.
    rests: HashMap<u32, i16>,
}

impl Columns {
    /// Sets the facts of an item. The slot after the last is a new item.
    pub fn set(&mut self, slot: usize, facts: Facts) {
        if slot == self.len {
            self.len += 1;
            self.available.resize(self.len.div_ceil(64), 0);
            self.unavailable += 1;
        }
        self.set_available(slot, facts.is_available);
        for column in self.fields.values_mut() {
            column.clear(slot);
        }
        self.others.remove(&key(slot));
        let mut others = Vec::new();
        for fact in facts.fields {
            if self.fields.len() < MAX_COLUMNS || self.fields.contains_key(&fact.field) {
                self.fields.entry(fact.field).or_default().set(slot, fact);
            } else {
                others.push(fact);
            }
        }
        if !others.is_empty() {
            self.others.insert(key(slot), others.into());
        }
    }

    /// Removes an item; the last one moves into its slot.
    pub fn swap_remove(&mut self, slot: usize) {
        let last = self.len - 1;
        let is_last_available = bit(&self.available, last);
        self.set_available(slot, is_last_available);
        // The last place is free now.
        self.set_available(last, true);
        self.len = last;
        self.available.truncate(last.div_ceil(64));
        if !last.is_multiple_of(64) {
            self.available[last / 64] &= !(1 << (last % 64));
        }
        for column in self.fields.values_mut() {
            column.swap_remove(slot, last);
        }
        move_entry(&mut self.others, slot, last);
    }

    fn set_available(&mut self, slot: usize, is_available: bool) {
        let was = bit(&self.available, slot);
        self.unavailable = self.unavailable + usize::from(was) - usize::from(is_available);
        let mask = 1 << (slot % 64);
        match is_available {
            true => self.available[slot / 64] |= mask,
            false => self.available[slot / 64] &= !mask,
        }
    }

    /// The number of items that are not available.
    pub fn unavailable(&self) -> usize {
        self.unavailable
    }

    /// Returns true if an item is available.
    pub fn is_available(&self, slot: usize) -> bool {
        bit(&self.available, slot)
    }

    /// Returns true if an item has a value in a field.
    pub fn has_field(&self, field: u64) -> bool {
        let is_it = |fact: &Fact| fact.field == field;
        match self.fields.get(&field) {
            Some(column) => column.layers.iter().flatten().any(|&term| term != 0),
            None => self.others.values().flatten().any(is_it),
        }
    }

    /// Returns true if an item passes a condition.
    pub fn passes(&self, slot: usize, condition: &Condition) -> bool {
        match self.fields.get(&condition.field) {
            Some(column) => column.passes(slot, &condition.test),
            None => self.other_passes(slot, condition),
        }
    }

    fn other_passes(&self, slot: usize, condition: &Condition) -> bool {
        let facts = self.others.get(&key(slot)).into_iter().flatten();
        let fact = facts.into_iter().find(|fact| fact.field == condition.field);
        let terms = fact.map_or(&[][..], |fact| &fact.terms);
        let number = fact.and_then(|fact| fact.number);
        condition.test.holds(terms.iter().copied(), number)
    }

    /// Bits of the available items that pass all conditions.
    pub fn matching(&self, conditions: &[Condition]) -> Vec<u64> {
        let mut bits = self.available.clone();
        for condition in conditions {
            let column = self.fields.get(&condition.field);
            for (word, left) in bits.iter_mut().enumerate().filter(|(_, left)| **left != 0) {
                *left &= match column {
                    Some(column) => column.passing(64 * word, *left, &condition.test),
                    None => each_bit(*left, |bit| self.other_passes(64 * word + bit, condition)),
                };
            }
        }
        bits
    }
}

impl Column {
    fn clear(&mut self, slot: usize) {
        for layer in &mut self.layers {
            put(layer, slot, None, 0);
        }
        self.more.remove(&key(slot));
        put(&mut self.numbers, slot, None, f64::NAN);
        self.rests.remove(&key(slot));
    }

    /// Sets the values of an item that has none.
    fn set(&mut self, slot: usize, fact: Fact) {
        let (own, more) = fact.terms.split_at(fact.terms.len().min(MAX_LAYERS));
        for (place, &term) in own.iter().enumerate() {
            if self.layers.len() == place {
                self.layers.push(Vec::new());
            }
            put(&mut self.layers[place], slot, Some(term), 0);
        }
        if !more.is_empty() {
            self.more.insert(key(slot), more.into());
        }
        if let Some(number) = fact.number {
            put(&mut self.numbers, slot, Some(number.rounded), f64::NAN);
            if number.rest != 0 {
                self.rests.insert(key(slot), number.rest);
            }
        }
    }

    fn swap_remove(&mut self, slot: usize, last: usize) {
        for layer in &mut self.layers {
            let moved = layer.get(last).copied();
            put(layer, slot, moved, 0);
            layer.truncate(last);
        }
        let moved = self.numbers.get(last).copied();
        put(&mut self.numbers, slot, moved, f64::NAN);
        self.numbers.truncate(last);
        move_entry(&mut self.more, slot, last);
        move_entry(&mut self.rests, slot, last);
    }

    fn terms(&self, slot: usize) -> impl Iterator<Item = u64> + Clone {
        let in_layers = self.layers.iter().map_while(move |layer| {
            let term = layer.get(slot).copied();
            term.filter(|&term| term != 0)
        });
        let more = self.more.get(&key(slot)).into_iter().flatten();
        in_layers.chain(more.copied())
    }

    fn number(&self, slot: usize) -> Option<Number> {
        let rounded = self.numbers.get(slot).copied()?;
        let rest = self.rests.get(&key(slot)).copied().unwrap_or(0);
        (!rounded.is_nan()).then_some(Number { rounded, rest })
    }

    fn passes(&self, slot: usize, test: &Test) -> bool {
        test.holds(self.terms(slot), self.number(slot))
    }

    /// Bits of the items from `first` on that pass. Of the 64 bits only those in `left` count.
    fn passing(&self, first: usize, left: u64, test: &Test) -> u64 {
        if left.count_ones() <= FEW {
            return each_bit(left, |bit| self.passes(first + bit, test));
        }
        match test {
            Test::Any(values) => self.with_any(first, left, values),
            Test::None(values) => !self.with_any(first, left, values),
            Test::Between(min, max) if self.rests.is_empty() && min.rest == 0 && max.rest == 0 => {
                let (min, max) = (min.rounded, max.rounded);
                let numbers = word(&self.numbers, first).iter();
                numbers.rev().fold(0, |bits, &number| {
                    bits << 1 | u64::from(number >= min && number <= max)
                })
            }
            Test::All(_) | Test::Between(..) => {
                each_bit(left, |bit| self.passes(first + bit, test))
            }
        }
    }

    /// Bits of the items from `first` on that have one of the values.
    fn with_any(&self, first: usize, left: u64, values: &Values) -> u64 {
        let mut found = 0;
        for layer in &self.layers {
            let terms = word(layer, first);
            if terms.is_empty() {
                break;
            }
            found |= match values.few() {
                Some(few) => few.iter().fold(0, |found, &value| {
                    let bits = terms.iter().rev();
                    found | bits.fold(0, |bits, &term| bits << 1 | u64::from(term == value))
                }),
                None => {
                    let bits = terms.iter().rev();
                    let marked = bits.fold(0, |bits, &term| {
                        bits << 1 | u64::from(values.may_have(term))
                    });
                    each_bit(marked & left & !found, |bit| values.has(terms[bit]))
                }
            };
        }
        if !self.more.is_empty() {
            found |= each_bit(left & !found, |bit| {
                let more = self.more.get(&key(first + bit)).into_iter().flatten();
                more.into_iter().any(|&term| values.has(term))
            });
        }
        found
    }
}

/// A slot as a key.
fn key(slot: usize) -> u32 {
    u32::try_from(slot).expect("a catalogue has at most 2^32 items")
}

fn bit(bits: &[u64], slot: usize) -> bool {
    bits[slot / 64] >> (slot % 64) & 1 == 1
}

/// Up to 64 entries from `first` on.
fn word<T>(all: &[T], first: usize) -> &[T] {
    let rest = all.get(first..).unwrap_or_default();
    &rest[..rest.len().min(64)]
}

/// The bits of a word for which something holds.
fn each_bit(bits: u64, holds: impl Fn(usize) -> bool) -> u64 {
    let mut rest = bits;
    let mut found = 0;
    while rest != 0 {
        let bit = rest.trailing_zeros();
        found |= u64::from(holds(bit as usize)) << bit;
        rest &= rest - 1;
    }
    found
}

/// Sets an entry, or empties it. A list is made longer only for an entry that is not empty.
fn put<T: Copy>(all: &mut Vec<T>, slot: usize, value: Option<T>, empty: T) {
    match (all.get_mut(slot), value) {
        (Some(own), value) => *own = value.unwrap_or(empty),
        (None, Some(value)) => {
            all.resize(slot, empty);
            all.push(value);
        }
        (None, None) => {}
    }
}

/// Moves the entry of the last slot to another, whose entry is dropped.
fn move_entry<T>(all: &mut HashMap<u32, T>, slot: usize, last: usize) {
    all.remove(&key(slot));
    if slot != last
        && let Some(moved) = all.remove(&key(last))
    {
        all.insert(key(slot), moved);
    }
}

#[cfg(test)]
mod tests;
