//! The catalogue: items that requests can name by id.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use sclub::{Error, ItemId, ItemSet};
use serde::{Deserialize, Serialize};

use super::columns::Columns;
use crate::description::{Description, Facts};
use crate::event::DescribedItem;
use crate::filter::Filter;
use crate::identity::first_word;

/// The memory for retired features, in bytes.
const MAX_RETIRED_BYTES: usize = 32 << 20;

/// The number of retired features for each item in the catalogue that are kept even beyond
/// [`MAX_RETIRED_BYTES`].
const MAX_RETIRED_PER_ITEM: usize = 2;

/// The retirement time of features that the last batch retired: it is not known yet.
const UNDATED: u64 = u64::MAX;

/// The memory for the retired features of an item, without the features themselves, in bytes.
const OVERHEAD: usize = 64;

/// The numeric id of an item for the policy: the same in every folder, and in every version.
pub fn item_id(id: &str) -> ItemId {
    first_word(&blake3::hash(id.as_bytes()))
}

/// Items by id, laid out for scoring.
///
/// Each version of an item has a revision of its own. Features that were replaced or removed are
/// kept for as long as a decision that showed them accepts a reward, but at most 32 MiB of them, or two for
/// each item if that is more. The oldest are dropped first.
#[derive(Debug, Clone)]
pub struct Catalogue {
    slots: HashMap<Arc<str>, u32>,
    entries: Vec<Entry>,
    items: ItemSet,
    /// True if the policy uses [`item_id`]. Otherwise ids are not computed.
    has_ids: bool,
    /// The description of each item, by slot; `None` if nothing is described.
    descriptions: Vec<Option<Box<Description>>>,
    /// The facts for filters.
    columns: Columns,
    revisions: u64,
    /// It grows with every removal.
    order_revision: u64,
    retired: HashMap<u64, Vec<f64>>,
    /// The service-clock time of each retirement and its revision, oldest first.
    retirements: VecDeque<(u64, u64)>,
}

/// A set of slots of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlotSet {
    bits: Vec<u64>,
    len: usize,
}

impl SlotSet {
    /// The number of slots.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if a slot is in the set.
    pub fn contains(&self, slot: usize) -> bool {
        let word = self.bits.get(slot / 64);
        word.is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    /// Removes a slot.
    pub fn remove(&mut self, slot: usize) {
        if self.contains(slot) {
            self.bits[slot / 64] &= !(1 << (slot % 64));
            self.len -= 1;
        }
    }

    /// The slots in rising order.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.bits.iter().enumerate().flat_map(|(word, &bits)| {
            let mut rest = bits;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
                rest &= rest - 1;
                Some(word * 64 + bit)
            })
        })
    }
}

/// An item's id and version.
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
    /// Service-clock time of the retirement, revision, features.
    retired: Vec<(u64, u64, Vec<f64>)>,
    /// The descriptions of the items that have one, by slot. They are a part of their own.
    #[serde(skip)]
    pub(crate) descriptions: Vec<(u32, Description)>,
}

impl Saved {
    /// Converts a catalogue from before there was a service clock: all retirements get time 0.
    pub(crate) fn without_clock(mut self) -> Self {
        for (clock, ..) in &mut self.retired {
            *clock = 0;
        }
        self
    }
}

impl Catalogue {
    /// An empty catalogue.
    ///
    /// # Errors
    /// If the number of features is unsupported.
    pub fn new(dim: usize, has_ids: bool) -> Result<Self, Error> {
        Ok(Self {
            slots: HashMap::new(),
            entries: Vec::new(),
            items: ItemSet::new(dim)?,
            has_ids,
            descriptions: Vec::new(),
            columns: Columns::default(),
            revisions: 0,
            order_revision: 0,
            retired: HashMap::new(),
            retirements: VecDeque::new(),
        })
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The revision of the catalogue: it grows with every change and every removal of an item.
    pub fn revisions(&self) -> u64 {
        self.revisions
    }

    /// The revision of the order of items: it grows when an item is removed, because the last item moves into its slot.
    ///
    /// It is not saved. After a start it is at least what it was before, because removals are revisions of the catalogue too.
    pub fn order_revision(&self) -> u64 {
        self.order_revision
    }

    /// Returns true if there are no items.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All items, by slot.
    pub fn items(&self) -> &ItemSet {
        &self.items
    }

    /// The slot of an item.
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

    /// Returns true if the item is in the catalogue with exactly these features and this description.
    pub fn has(&self, id: &str, features: &[f64], description: &Description) -> bool {
        self.slot(id).is_some_and(|slot| {
            self.has_features(slot, features) && *self.description(slot) == *description
        })
    }

    fn has_features(&self, slot: usize, features: &[f64]) -> bool {
        let own = self.items.item(slot).map(f64::to_bits);
        own.eq(features.iter().map(|value| value.to_bits()))
    }

    /// The item in a slot, with its description.
    pub fn item(&self, slot: usize) -> DescribedItem {
        DescribedItem {
            id: self.entries[slot].id.to_string(),
            features: self.features(slot),
            description: self.description(slot).into_owned(),
        }
    }

    /// The description of the item in a slot.
    pub fn description(&self, slot: usize) -> Cow<'_, Description> {
        match &self.descriptions[slot] {
            Some(description) => Cow::Borrowed(description),
            None => Cow::Owned(Description::default()),
        }
    }

    /// Returns true if the item in a slot is available.
    pub fn is_available(&self, slot: usize) -> bool {
        self.columns.is_available(slot)
    }

    /// The number of items that are not available.
    pub fn unavailable(&self) -> usize {
        self.columns.unavailable()
    }

    /// Returns true if an item has a value in a field that filters compare.
    pub fn has_field(&self, field: u64) -> bool {
        self.columns.has_field(field)
    }

    /// Returns true if the item in a slot passes a filter. Availability is not looked at.
    pub fn passes(&self, slot: usize, filter: Option<&Filter>) -> bool {
        let mut conditions = filter.map_or(&[][..], Filter::conditions).iter();
        conditions.all(|condition| self.columns.passes(slot, condition))
    }

    /// The available items that pass a filter; `None` if they are all items.
    pub fn matching(&self, filter: Option<&Filter>) -> Option<SlotSet> {
        if filter.is_none() && self.unavailable() == 0 {
            return None;
        }
        let bits = self
            .columns
            .matching(filter.map_or(&[], Filter::conditions));
        let len = bits.iter().map(|word| word.count_ones() as usize).sum();
        Some(SlotSet { bits, len })
    }

    fn describe(&mut self, slot: usize, description: Description) {
        let id = &self.entries[slot].id;
        self.columns.set(slot, Facts::new(id, &description));
        let own = (!description.is_empty()).then(|| Box::new(description));
        match self.descriptions.get_mut(slot) {
            Some(known) => *known = own,
            None => self.descriptions.push(own),
        }
    }

    /// The features of an item as of a revision, if they are still kept.
    pub fn features_of(&self, id: &str, revision: u64) -> Option<Vec<f64>> {
        match self.slot(id) {
            Some(slot) if self.entries[slot].revision == revision => Some(self.features(slot)),
            _ => self.retired.get(&revision).cloned(),
        }
    }

    /// The revision of an item, if these are its features now.
    pub fn revision_with(&self, id: &str, features: &[f64]) -> Option<u64> {
        let slot = self.slot(id)?;
        self.has_features(slot, features)
            .then(|| self.entries[slot].revision)
    }

    /// Inserts an item, or replaces the one with the same id. If a description is given and the features are the same,
    /// these keep their revision.
    ///
    /// # Errors
    /// If the features are invalid. Nothing is changed then.
    pub fn upsert(
        &mut self,
        id: &str,
        features: &[f64],
        description: Option<Description>,
    ) -> Result<(), Error> {
        let is_described = description.is_some();
        let described = description.unwrap_or_default();
        match self.slot(id) {
            Some(slot) if is_described && self.has_features(slot, features) => {
                self.revisions += 1;
                self.describe(slot, described);
            }
            Some(slot) => {
                let former = self.features(slot);
                self.items.replace(slot, features)?;
                self.retire(self.entries[slot].revision, former);
                self.revisions += 1;
                self.entries[slot].revision = self.revisions;
                self.describe(slot, described);
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
                self.describe(slot as usize, described);
            }
        }
        Ok(())
    }

    /// Removes an item; the last item moves into its slot. Returns true if it was there.
    ///
    /// It is a revision if `is_revision` is set. In folders of earlier formats it is not: their decisions name the
    /// revisions of later items.
    pub fn remove(&mut self, id: &str, is_revision: bool) -> bool {
        let Some(slot) = self.slots.remove(id).map(|slot| slot as usize) else {
            return false;
        };
        let former = self.features(slot);
        self.items.swap_remove(slot);
        let entry = self.entries.swap_remove(slot);
        self.descriptions.swap_remove(slot);
        self.columns.swap_remove(slot);
        if let Some(moved) = self.entries.get(slot) {
            self.slots.insert(Arc::clone(&moved.id), slot as u32);
        }
        self.retire(entry.revision, former);
        self.revisions += u64::from(is_revision);
        self.order_revision += 1;
        true
    }

    fn retire(&mut self, revision: u64, features: Vec<f64>) {
        self.retired.insert(revision, features);
        self.retirements.push_back((UNDATED, revision));
        self.enforce_limit();
    }

    /// Dates the retirements of the previous batch with the stamp of the next one. A batch is stamped before
    /// it is written: until it is applied, decisions still show the features that it retires.
    pub fn date_retirements(&mut self, clock: u64) {
        let undated = self.retirements.iter_mut().rev();
        for (date, _) in undated.take_while(|(date, _)| *date == UNDATED) {
            *date = clock;
        }
    }

    /// Drops the oldest retired features beyond the limit. The limit depends on the events only, so that
    /// replay drops the same ones.
    fn enforce_limit(&mut self) {
        let each = self.items.dim() * size_of::<f64>() + OVERHEAD;
        let max = (MAX_RETIRED_BYTES / each).max(MAX_RETIRED_PER_ITEM * self.len());
        while self.retirements.len() > max {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((_, revision)) = self.retirements.pop_front() {
            self.retired.remove(&revision);
        }
    }

    /// Drops features that were retired before a service-clock time.
    pub fn prune(&mut self, before: u64) {
        while self
            .retirements
            .front()
            .is_some_and(|&(clock, _)| clock < before)
        {
            self.drop_oldest();
        }
    }

    /// The number of retired features that are kept.
    pub fn retired(&self) -> usize {
        self.retirements.len()
    }

    /// The contents to be saved.
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
            descriptions: Vec::new(),
        }
    }

    /// The descriptions to be saved, by slot.
    pub fn descriptions(&self) -> Vec<(u32, &Description)> {
        let all = (0..).zip(&self.descriptions);
        all.filter_map(|(slot, own)| Some((slot, own.as_deref()?)))
            .collect()
    }

    /// Restores a saved catalogue; `None` if it is invalid.
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
            descriptions: Vec::new(),
            columns: Columns::default(),
            revisions: saved.revisions,
            order_revision: saved.revisions,
            retired,
            retirements,
        };
        let mut descriptions = saved.descriptions.into_iter().peekable();
        for slot in 0..catalogue.len() {
            let own = descriptions.next_if(|(of, _)| *of as usize == slot);
            let description = own.map(|(_, description)| description).unwrap_or_default();
            description.check().ok()?;
            catalogue.describe(slot, description);
        }
        if descriptions.next().is_some() {
            return None;
        }
        // Version 0.1 had no limit.
        catalogue.enforce_limit();
        Some(catalogue)
    }
}
