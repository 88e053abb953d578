//! The items that can be shown without being sent along.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use sclub::{Error, ItemId, ItemSet};
use serde::{Deserialize, Serialize};

use crate::identity::first_word;

/// Bytes of retired features that are kept in any case.
const RETIRED_BYTES: usize = 32 << 20;

/// Retired features that are kept in any case, for each item in the catalogue.
const RETIRED_PER_ITEM: usize = 2;

/// The date of features that were retired by the last batch.
const UNDATED: u64 = u64::MAX;

/// What keeping the retired features of an item takes beside the features, in bytes.
const OVERHEAD: usize = 64;

/// The number by which a policy knows an item: the same in every folder, and for ever.
pub fn item_id(id: &str) -> ItemId {
    first_word(&blake3::hash(id.as_bytes()))
}

/// Items by id, laid out for scoring.
///
/// Each version of an item has a revision of its own. Features that were replaced or removed are
/// kept for as long as a decision that showed them can be answered, but not without bound: at most
/// 32 MiB, or twice as many as there are items if that is more. The oldest go first.
#[derive(Debug, Clone)]
pub struct Catalogue {
    slots: HashMap<Arc<str>, u32>,
    entries: Vec<Entry>,
    items: ItemSet,
    /// Whether the policy looks at [`item_id`]: what does not is spared it.
    has_ids: bool,
    revisions: u64,
    retired: HashMap<u64, Vec<f64>>,
    /// When each was retired by the service clock, oldest first, and its revision.
    retirements: VecDeque<(u64, u64)>,
}

/// An item's name and version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its id.
    pub id: Arc<str>,
    /// Its revision.
    pub revision: u64,
}

/// A catalogue as it is saved.
#[derive(Debug, Serialize, Deserialize)]
pub struct Saved {
    revisions: u64,
    entries: Vec<Entry>,
    rows: Vec<f64>,
    /// When by the service clock, revision, features.
    retired: Vec<(u64, u64, Vec<f64>)>,
}

impl Saved {
    /// As from before there was a service clock: all were retired at its beginning.
    pub(crate) fn without_clock(mut self) -> Self {
        for (clock, ..) in &mut self.retired {
            *clock = 0;
        }
        self
    }
}

impl Catalogue {
    /// An empty one.
    ///
    /// # Errors
    /// Where there cannot be items of so many features.
    pub fn new(dim: usize, has_ids: bool) -> Result<Self, Error> {
        Ok(Self {
            slots: HashMap::new(),
            entries: Vec::new(),
            items: ItemSet::new(dim)?,
            has_ids,
            revisions: 0,
            retired: HashMap::new(),
            retirements: VecDeque::new(),
        })
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All items, by slot.
    pub fn items(&self) -> &ItemSet {
        &self.items
    }

    /// Where an item is.
    pub fn slot(&self, id: &str) -> Option<usize> {
        self.slots.get(id).map(|&slot| slot as usize)
    }

    /// The item in a slot.
    pub fn entry(&self, slot: usize) -> &Entry {
        &self.entries[slot]
    }

    /// The features in a slot.
    pub fn features(&self, slot: usize) -> Vec<f64> {
        self.items.item(slot).collect()
    }

    /// Whether an item is there with just these features.
    pub fn has(&self, id: &str, features: &[f64]) -> bool {
        self.slot(id).is_some_and(|slot| {
            self.items
                .item(slot)
                .map(f64::to_bits)
                .eq(features.iter().map(|value| value.to_bits()))
        })
    }

    /// The features of an item as they were in a revision, if they are still known.
    pub fn features_of(&self, id: &str, revision: u64) -> Option<Vec<f64>> {
        match self.slot(id) {
            Some(slot) if self.entries[slot].revision == revision => Some(self.features(slot)),
            _ => self.retired.get(&revision).cloned(),
        }
    }

    /// Puts an item in, in place of the one with the same id.
    ///
    /// # Errors
    /// Where the features cannot be; nothing is changed then.
    pub fn upsert(&mut self, id: &str, features: &[f64]) -> Result<(), Error> {
        match self.slot(id) {
            Some(slot) => {
                let former = self.features(slot);
                self.items.replace(slot, features)?;
                self.retire(self.entries[slot].revision, former);
                self.revisions += 1;
                self.entries[slot].revision = self.revisions;
            }
            None => {
                match self.has_ids {
                    true => self.items.push_with_id(features, item_id(id))?,
                    false => self.items.push(features)?,
                }
                self.revisions += 1;
                let id: Arc<str> = id.into();
                let slot = u32::try_from(self.entries.len()).expect("the set has as much room");
                self.slots.insert(Arc::clone(&id), slot);
                self.entries.push(Entry {
                    id,
                    revision: self.revisions,
                });
            }
        }
        Ok(())
    }

    /// Takes an item out; the last one takes its slot. Returns whether it was there.
    pub fn remove(&mut self, id: &str) -> bool {
        let Some(slot) = self.slots.remove(id).map(|slot| slot as usize) else {
            return false;
        };
        let former = self.features(slot);
        self.items.swap_remove(slot);
        let entry = self.entries.swap_remove(slot);
        if let Some(moved) = self.entries.get(slot) {
            self.slots.insert(Arc::clone(&moved.id), slot as u32);
        }
        self.retire(entry.revision, former);
        true
    }

    fn retire(&mut self, revision: u64, features: Vec<f64>) {
        self.retired.insert(revision, features);
        self.retirements.push_back((UNDATED, revision));
        self.bound();
    }

    /// Dates what was retired by the batch before with the stamp of the next one. A batch is stamped
    /// before it is written: until it is applied, decisions still show what it retires.
    pub fn date_retirements(&mut self, clock: u64) {
        let undated = self.retirements.iter_mut().rev();
        for (date, _) in undated.take_while(|(date, _)| *date == UNDATED) {
            *date = clock;
        }
    }

    /// Lets go of the oldest retired features where there are too many. That depends on nothing but
    /// the events, so that it is the same when they are replayed.
    fn bound(&mut self) {
        let each = self.items.dim() * size_of::<f64>() + OVERHEAD;
        let most = (RETIRED_BYTES / each).max(RETIRED_PER_ITEM * self.len());
        while self.retirements.len() > most {
            self.let_go();
        }
    }

    fn let_go(&mut self) {
        if let Some((_, revision)) = self.retirements.pop_front() {
            self.retired.remove(&revision);
        }
    }

    /// Lets go of features that were retired before a service-clock time.
    pub fn prune(&mut self, before: u64) {
        while self
            .retirements
            .front()
            .is_some_and(|&(clock, _)| clock < before)
        {
            self.let_go();
        }
    }

    /// How many retired features are kept.
    pub fn retired(&self) -> usize {
        self.retirements.len()
    }

    /// As it is saved.
    pub fn save(&self) -> Saved {
        let mut rows = Vec::with_capacity(self.len() * self.items.dim());
        for slot in 0..self.len() {
            rows.extend(self.items.item(slot));
        }
        let retired = self.retirements.iter().filter_map(|&(clock, revision)| {
            let features = self.retired.get(&revision)?;
            Some((clock, revision, features.clone()))
        });
        Saved {
            revisions: self.revisions,
            entries: self.entries.clone(),
            rows,
            retired: retired.collect(),
        }
    }

    /// As it was saved. None where it cannot be.
    pub fn load(dim: usize, has_ids: bool, saved: Saved) -> Option<Self> {
        let mut slots = HashMap::with_capacity(saved.entries.len());
        for (slot, entry) in saved.entries.iter().enumerate() {
            if slots
                .insert(Arc::clone(&entry.id), u32::try_from(slot).ok()?)
                .is_some()
            {
                return None;
            }
        }
        let mut items = ItemSet::from_rows(dim, &saved.rows).ok()?;
        if items.len() != saved.entries.len() {
            return None;
        }
        if has_ids {
            let ids = saved.entries.iter().map(|entry| item_id(&entry.id));
            items.set_ids(&ids.collect::<Vec<_>>()).ok()?;
        }
        let mut retired = HashMap::new();
        let mut retirements = VecDeque::new();
        for (clock, revision, features) in saved.retired {
            let follows = retirements.back().is_none_or(|&(last, _)| last <= clock);
            let is_new = revision <= saved.revisions && !retired.contains_key(&revision);
            if features.len() != dim || !follows || !is_new {
                return None;
            }
            retired.insert(revision, features);
            retirements.push_back((clock, revision));
        }
        let mut catalogue = Self {
            slots,
            entries: saved.entries,
            items,
            has_ids,
            revisions: saved.revisions,
            retired,
            retirements,
        };
        // Version 0.1 kept them without bound.
        catalogue.bound();
        Some(catalogue)
    }
}
