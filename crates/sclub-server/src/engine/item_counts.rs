//! How often each item was shown, and the rewards that it got: for the page, and no part of the state.
//!
//! The journal's task counts what it writes. When users are removed from the journal, it counts anew what is left. A server writes the counts
//! to the file `counts` of its data folder about once a minute, with the batch of the journal up to which they are; after a crash the
//! journal's task counts the batches after it. Before users are removed from the journal the file is made to say that nothing is counted, so
//! that a crash from then on has everything counted anew. Imported rewards are not counted: their items were not shown here. On a node of a cluster the owner of a log counts the rewards, so that each is counted
//! by one node, and the counts of the cluster are the sums over its nodes.

use std::collections::HashMap;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use super::lock;
use crate::store::{SmallFile, StoreError};
use crate::timeline::Figures;

/// The file of the counts in a data folder.
pub(crate) const COUNTS_FILE: &str = "counts";

/// The number of items that are counted beside those of the catalogue: those that came with requests, and those that were
/// removed. If there are more, all of these are dropped.
const MAX_OTHERS: usize = 100_000;

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

/// The counts of some items.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SomeCounts {
    /// The time since when items are counted, in milliseconds since 1970; `None` if none was.
    pub since: Option<u64>,
    /// The counts.
    pub items: Vec<ItemCount>,
}

impl SomeCounts {
    /// Adds those of the same items in the same order.
    pub fn join(&mut self, other: &Self) {
        self.since = self.since.into_iter().chain(other.since).min();
        for (own, other) in self.items.iter_mut().zip(&other.items) {
            own.add(other);
        }
    }
}

/// All counts, as they are saved. The default has the whole journal counted at the next start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedCounts {
    /// The last batch of the journal that is in them.
    pub upto: u64,
    /// The counts.
    pub counts: SomeCounts,
}

impl Figures for SavedCounts {
    const FORMAT: u8 = 1;
}

/// The counts of all items.
#[derive(Debug, Default)]
pub(crate) struct ItemCounts {
    counts: Mutex<Counts>,
    /// Locked while the file is written: two writers would write the same one.
    writing: Mutex<()>,
}

#[derive(Debug, Default)]
struct Counts {
    /// The last batch of the journal that is counted.
    upto: u64,
    since: Option<u64>,
    items: HashMap<String, ItemCount>,
    /// True if they have changed since they were saved.
    is_changed: bool,
    /// True if they have numbers of users who are being removed from the journal. They are not saved then.
    is_outdated: bool,
}

impl ItemCount {
    fn of(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            ..Self::default()
        }
    }

    fn add(&mut self, other: &Self) {
        self.shown += other.shown;
        self.rewards += other.rewards;
        self.reward_sum += other.reward_sum;
    }
}

impl Counts {
    fn of(&mut self, id: &str) -> &mut ItemCount {
        let is_new = !self.items.contains_key(id);
        if is_new {
            self.items.insert(id.to_owned(), ItemCount::of(id));
        }
        self.items.get_mut(id).expect("it was inserted")
    }
}

impl ItemCounts {
    /// Adds items that were shown at a time, and the rewards of items: each with its number of rewards, which is 0 if it takes the
    /// place of another one, and the change of their sum. With a batch of the journal, everything up to it is counted then: both
    /// change together, or a crash could have it counted twice.
    pub fn add<'a>(
        &self,
        batch: Option<u64>,
        at: u64,
        shown: impl Iterator<Item = &'a str>,
        rewards: impl Iterator<Item = (&'a str, u64, f64)>,
    ) {
        let mut counts = lock(&self.counts);
        counts.since.get_or_insert(at);
        counts.is_changed = true;
        counts.upto = batch.unwrap_or(counts.upto);
        for id in shown {
            counts.of(id).shown += 1;
        }
        for (id, number, change) in rewards {
            let count = counts.of(id);
            count.rewards += number;
            count.reward_sum += change;
        }
    }

    /// Takes note that the journal is counted up to a batch.
    pub fn counted(&self, upto: u64) {
        lock(&self.counts).upto = upto;
    }

    /// Returns true if there are so many items that those which are not in a catalogue of `len` items are to be dropped.
    pub fn is_full(&self, len: usize) -> bool {
        lock(&self.counts).items.len() > len + MAX_OTHERS
    }

    /// Drops all items but some.
    pub fn retain(&self, is_kept: impl Fn(&str) -> bool) {
        lock(&self.counts).items.retain(|id, _| is_kept(id));
    }

    /// The counts of some items. An item that was never shown has zeros.
    pub fn get<'a>(&self, ids: impl Iterator<Item = &'a str>) -> SomeCounts {
        let counts = lock(&self.counts);
        let of = |id: &str| {
            let found = counts.items.get(id).cloned();
            found.unwrap_or_else(|| ItemCount::of(id))
        };
        SomeCounts {
            since: counts.since,
            items: ids.map(of).collect(),
        }
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        lock(&self.counts).items.len()
    }

    /// All counts, if they have changed since they were saved last.
    fn save(&self) -> Option<SavedCounts> {
        let mut counts = lock(&self.counts);
        if counts.is_outdated {
            return None;
        }
        std::mem::take(&mut counts.is_changed).then(|| SavedCounts {
            upto: counts.upto,
            counts: SomeCounts {
                since: counts.since,
                items: counts.items.values().cloned().collect(),
            },
        })
    }

    /// Writes all counts to a file, if they have changed since they were written last.
    pub fn write(&self, file: &SmallFile) {
        let _writing = lock(&self.writing);
        if let Some(saved) = self.save()
            && !saved.write(file)
        {
            lock(&self.counts).is_changed = true;
        }
    }

    /// Takes note that they are to be replaced, and that a crash before that must have everything counted anew.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn outdate(&self, file: &SmallFile) -> Result<(), StoreError> {
        let _writing = lock(&self.writing);
        lock(&self.counts).is_outdated = true;
        file.write(&SavedCounts::default().encode())
    }

    /// Returns true if they are to be replaced.
    pub fn is_outdated(&self) -> bool {
        lock(&self.counts).is_outdated
    }

    /// Replaces all counts.
    pub fn replace(&self, other: Self) {
        let other = other.counts.into_inner();
        let mut counts = lock(&self.counts);
        *counts = other.unwrap_or_else(std::sync::PoisonError::into_inner);
        counts.is_changed = true;
    }

    /// Counts that were saved.
    pub fn load(saved: SavedCounts) -> Self {
        let items = saved.counts.items.into_iter();
        let counts = Mutex::new(Counts {
            upto: saved.upto,
            since: saved.counts.since,
            items: items.map(|count| (count.id.clone(), count)).collect(),
            ..Counts::default()
        });
        Self {
            counts,
            ..Self::default()
        }
    }

    /// Adds other counts.
    pub fn join(&self, other: Self) {
        let other = other.counts.into_inner();
        let other = other.unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut counts = lock(&self.counts);
        counts.is_changed = true;
        counts.since = counts.since.into_iter().chain(other.since).min();
        for (id, count) in other.items {
            counts.of(&id).add(&count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(counts: &SomeCounts) -> Vec<(&str, u64, u64, f64)> {
        let items = counts.items.iter();
        items
            .map(|count| (&*count.id, count.shown, count.rewards, count.reward_sum))
            .collect()
    }

    #[test]
    fn counts_go_on_from_saved_ones() {
        let counts = ItemCounts::default();
        let none = || std::iter::empty::<&str>();
        counts.add(
            Some(6),
            5,
            ["a", "b", "a"].into_iter(),
            [("a", 1, 0.5)].into_iter(),
        );
        assert_eq!(lock(&counts.counts).upto, 6);
        // A reward in place of an assumed one.
        counts.add(None, 6, none(), [("a", 0, 1.0)].into_iter());
        counts.counted(7);
        let saved = counts.save().unwrap();
        assert_eq!(saved.upto, 7);
        assert_eq!(counts.save(), None, "nothing has changed");
        let next = ItemCounts::load(SavedCounts::decode(&saved.encode()).unwrap());
        next.add(None, 9, ["a"].into_iter(), [("a", 1, 1.0)].into_iter());
        let some = next.get(["a", "c"].into_iter());
        assert_eq!(some.since, Some(5));
        assert_eq!(found(&some), [("a", 3, 2, 2.5), ("c", 0, 0, 0.0)]);
        // Those of two nodes.
        let mut sum = some.clone();
        sum.join(&counts.get(["a", "c"].into_iter()));
        assert_eq!(found(&sum), [("a", 5, 3, 4.0), ("c", 0, 0, 0.0)]);
        next.join(ItemCounts::load(saved));
        assert_eq!(
            found(&next.get(["a", "b"].into_iter())),
            [("a", 5, 3, 4.0), ("b", 2, 0, 0.0)]
        );
    }

    #[test]
    fn items_that_are_not_in_the_catalogue_make_room() {
        let counts = ItemCounts::default();
        let many: Vec<String> = (0..MAX_OTHERS + 10).map(|n| n.to_string()).collect();
        counts.add(None, 9, many.iter().map(String::as_str), std::iter::empty());
        assert!(!counts.is_full(10) && counts.is_full(9));
        counts.retain(|id| id.len() < 2);
        assert_eq!(counts.len(), 10);
        assert_eq!(found(&counts.get(["7"].into_iter())), [("7", 1, 0, 0.0)]);
    }
}
