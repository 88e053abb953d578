//! How often each item was shown, and the rewards that it got: for the page, and no part of the state.
//!
//! The journal's task counts what it writes. When users are removed from the journal, it counts anew what is left. A server writes the counts with the other figures of the page
//! ([`crate::timeline::Figures`]), so those of the last minute before a crash may be missing.

use std::collections::HashMap;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use super::lock;

/// The maximum number of items that are counted. Items that come later are not.
const MAX_ITEMS: usize = 100_000;

/// The counts of an item.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ItemCount {
    /// The item's id.
    pub id: String,
    /// The number of times that it was shown.
    pub shown: u64,
    /// The number of rewards that it got.
    pub rewards: u64,
    /// Their sum.
    pub reward_sum: f64,
}

/// The counts of all items.
#[derive(Debug, Default)]
pub(in crate::engine) struct ItemCounts(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// The time since when items are counted, in milliseconds since 1970.
    since: Option<u64>,
    items: HashMap<String, ItemCount>,
}

impl Counts {
    fn of(&mut self, id: &str) -> Option<&mut ItemCount> {
        if !self.items.contains_key(id) {
            if self.items.len() >= MAX_ITEMS {
                return None;
            }
            let count = ItemCount {
                id: id.to_owned(),
                ..ItemCount::default()
            };
            self.items.insert(id.to_owned(), count);
        }
        self.items.get_mut(id)
    }
}

impl ItemCounts {
    /// Adds items that were shown at a time, and the rewards of items: each with its number of rewards, which is 0 if it takes the
    /// place of another one, and the change of their sum.
    pub fn add<'a>(
        &self,
        at: u64,
        shown: impl Iterator<Item = &'a str>,
        rewards: impl Iterator<Item = (&'a str, u64, f64)>,
    ) {
        let mut counts = lock(&self.0);
        counts.since.get_or_insert(at);
        for id in shown {
            if let Some(count) = counts.of(id) {
                count.shown += 1;
            }
        }
        for (id, number, change) in rewards {
            if let Some(count) = counts.of(id) {
                count.rewards += number;
                count.reward_sum += change;
            }
        }
    }

    /// The counts of some items, and the time since when they are counted. An item that was never shown has zeros.
    pub fn get<'a>(&self, ids: impl Iterator<Item = &'a str>) -> (Option<u64>, Vec<ItemCount>) {
        let counts = lock(&self.0);
        let of = |id: &str| match counts.items.get(id) {
            Some(count) => count.clone(),
            None => ItemCount {
                id: id.to_owned(),
                ..ItemCount::default()
            },
        };
        (counts.since, ids.map(of).collect())
    }

    /// All counts, to be saved.
    pub fn save(&self) -> Option<(u64, Vec<ItemCount>)> {
        let counts = lock(&self.0);
        Some((counts.since?, counts.items.values().cloned().collect()))
    }

    /// Replaces all counts.
    pub fn replace(&self, other: Self) {
        let other = other.0.into_inner();
        *lock(&self.0) = other.unwrap_or_else(std::sync::PoisonError::into_inner);
    }

    /// Continues counts that were saved.
    pub fn load(&self, (since, items): (u64, Vec<ItemCount>)) {
        let mut counts = lock(&self.0);
        counts.since = Some(since);
        for item in items {
            if let Some(count) = counts.of(&item.id) {
                count.shown += item.shown;
                count.rewards += item.rewards;
                count.reward_sum += item.reward_sum;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_on_from_saved_ones_and_are_bounded() {
        let counts = ItemCounts::default();
        let none = || std::iter::empty::<&str>();
        counts.add(5, ["a", "b", "a"].into_iter(), [("a", 1, 0.5)].into_iter());
        // A reward in place of an assumed one.
        counts.add(6, none(), [("a", 0, 1.0)].into_iter());
        let next = ItemCounts::default();
        next.load(counts.save().unwrap());
        next.add(9, ["a"].into_iter(), [("a", 1, 1.0)].into_iter());
        let (since, found) = next.get(["a", "c"].into_iter());
        let found: Vec<_> = found
            .iter()
            .map(|count| (&*count.id, count.shown, count.rewards, count.reward_sum))
            .collect();
        assert_eq!(since, Some(5));
        assert_eq!(found, [("a", 3, 2, 2.5), ("c", 0, 0, 0.0)]);
        let many: Vec<String> = (0..MAX_ITEMS + 10).map(|n| n.to_string()).collect();
        next.add(9, many.iter().map(String::as_str), std::iter::empty());
        assert_eq!(next.save().unwrap().1.len(), MAX_ITEMS);
    }
}
