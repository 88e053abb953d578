//! Candidate items, laid out so that many are scored at once.
//!
//! Items stand in groups of up to 32, a whole number of lanes wide. Inside a group, feature k of all
//! its items is contiguous: `group[k * width + lane]`. Lanes without an item hold zeros.

mod context;

pub use context::ContextMode;

use crate::error::{Error, acceptable, check_dim, check_features};
use crate::kernels::LANES;
use crate::policy::ItemId;

/// The maximum width of a group of items.
pub(crate) const GROUP: usize = 4 * LANES;

/// The maximum number of items in a set.
pub const MAX_ITEMS: usize = u32::MAX as usize;

/// A set of candidate items with their features, validated once and laid out for scoring. It can be
/// filled at once, or kept while items are added and removed.
///
/// ```
/// use sclub::ItemSet;
/// let items = ItemSet::from_rows(2, &[1.0, 0.0, /* second item */ 0.6, 0.8])?;
/// assert_eq!(items.len(), 2);
/// assert_eq!(items.item(1).collect::<Vec<_>>(), [0.6, 0.8]);
/// # Ok::<(), sclub::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ItemSet {
    dim: usize,
    len: usize,
    lanes: Vec<f64>,
    /// A buffer for the next items while the old ones are still needed. Empty between calls.
    spare: Vec<f64>,
    /// The id of each item; empty if items have none.
    ids: Vec<ItemId>,
}

/// A group of items side by side: `features[k * width + lane]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group<'a> {
    /// Number of the group's first item.
    pub first: usize,
    /// Items in the group.
    pub len: usize,
    /// Lanes in the group, a multiple of [`LANES`].
    pub width: usize,
    pub features: &'a [f64],
}

impl ItemSet {
    /// An empty set of items of `dim` features.
    ///
    /// # Errors
    /// [`Error::Dimension`] if `dim` is 0 or too large.
    pub fn new(dim: usize) -> Result<Self, Error> {
        Ok(Self {
            dim: check_dim(dim)?,
            len: 0,
            lanes: Vec::new(),
            spare: Vec::new(),
            ids: Vec::new(),
        })
    }

    /// Gives every item an id that stays the same in every set it is in. [`ItemSet::select`],
    /// [`ItemSet::replace`], [`ItemSet::swap_remove`] and [`ItemSet::push_with_id`] keep ids; other
    /// changes of the items remove them.
    ///
    /// # Errors
    /// [`Error::WrongCount`] if there are not as many ids as items; the set is then
    /// unchanged.
    pub fn set_ids(&mut self, ids: &[ItemId]) -> Result<(), Error> {
        if ids.len() != self.len {
            return Err(Error::WrongCount {
                what: "ids",
                expected: self.len,
                got: ids.len(),
            });
        }
        self.ids.clear();
        self.ids.extend_from_slice(ids);
        Ok(())
    }

    /// The id of an item, if it has one.
    #[inline]
    pub fn id(&self, index: usize) -> Option<ItemId> {
        self.ids.get(index).copied()
    }

    /// The ids of all items, in their order; empty if items have none.
    pub fn ids(&self) -> &[ItemId] {
        &self.ids
    }

    /// The items of `rows`, `dim` features each, one after another.
    ///
    /// # Errors
    /// [`Error::Dimension`], [`Error::DimensionMismatch`] if `rows` is not a whole number of
    /// items, [`Error::BadFeature`].
    pub fn from_rows(dim: usize, rows: &[f64]) -> Result<Self, Error> {
        let mut set = Self::new(dim)?;
        set.refill(rows)?;
        Ok(set)
    }

    /// Replaces the items by those of `rows` and keeps the memory.
    ///
    /// # Errors
    /// As [`ItemSet::from_rows`]; the set is then unchanged.
    pub fn refill(&mut self, rows: &[f64]) -> Result<(), Error> {
        let (len, rest) = (rows.len() / self.dim, rows.len() % self.dim);
        if rest != 0 {
            return Err(Error::DimensionMismatch {
                expected: self.dim,
                got: rest,
            });
        }
        for (item, features) in rows.chunks_exact(self.dim).enumerate() {
            check_features(item, features, self.dim)?;
        }
        self.resize(len)?;
        for (item, features) in rows.chunks_exact(self.dim).enumerate() {
            self.write(item, features.iter().copied());
        }
        Ok(())
    }

    /// Replaces the items by those of `from` at `indexes`, in that order, and keeps the memory. The
    /// features are not validated again.
    ///
    /// # Errors
    /// [`Error::DimensionMismatch`] if `from` has other features, [`Error::TooMany`]; the set is
    /// then unchanged.
    ///
    /// # Panics
    /// If `from` has no item at one of the indexes; the set is then unchanged.
    pub fn select(&mut self, from: &ItemSet, indexes: &[usize]) -> Result<(), Error> {
        if from.dim != self.dim {
            return Err(Error::DimensionMismatch {
                expected: self.dim,
                got: from.dim,
            });
        }
        indexes.iter().for_each(|&index| from.check_index(index));
        self.resize(indexes.len())?;
        for (item, &index) in indexes.iter().enumerate() {
            self.write(item, from.item(index));
        }
        let ids = indexes.iter().filter_map(|&index| from.id(index));
        self.ids.extend(ids);
        Ok(())
    }

    /// Appends an item.
    ///
    /// # Errors
    /// [`Error::DimensionMismatch`], [`Error::BadFeature`] (its `item` is the number the item would
    /// have had), [`Error::TooMany`]; the set is then unchanged.
    pub fn push(&mut self, features: &[f64]) -> Result<(), Error> {
        check_features(self.len, features, self.dim)?;
        check_len(self.len + 1)?;
        self.ids.clear();
        if self.len.is_multiple_of(LANES) {
            self.widen();
        }
        self.len += 1;
        self.write(self.len - 1, features.iter().copied());
        Ok(())
    }

    /// As [`ItemSet::push`], for a set whose items have ids.
    ///
    /// # Errors
    /// As [`ItemSet::push`], and [`Error::WrongCount`] if the items before it have no ids.
    pub fn push_with_id(&mut self, features: &[f64], id: ItemId) -> Result<(), Error> {
        if self.ids.len() != self.len {
            return Err(Error::WrongCount {
                what: "ids",
                expected: self.len,
                got: self.ids.len(),
            });
        }
        let mut ids = std::mem::take(&mut self.ids);
        let pushed = self.push(features);
        if pushed.is_ok() {
            ids.push(id);
        }
        self.ids = ids;
        pushed
    }

    /// Replaces the features of an item.
    ///
    /// # Errors
    /// [`Error::DimensionMismatch`], [`Error::BadFeature`]; the set is then unchanged.
    ///
    /// # Panics
    /// If there is no item `index`.
    pub fn replace(&mut self, index: usize, features: &[f64]) -> Result<(), Error> {
        self.check_index(index);
        check_features(index, features, self.dim)?;
        self.write(index, features.iter().copied());
        Ok(())
    }

    /// Removes an item; the last one takes its index.
    ///
    /// # Panics
    /// If there is no item `index`.
    pub fn swap_remove(&mut self, index: usize) {
        self.check_index(index);
        if !self.ids.is_empty() {
            self.ids.swap_remove(index);
        }
        let last = self.len - 1;
        let ((to, to_width), (from, from_width)) = (self.place(index), self.place(last));
        for k in 0..self.dim {
            let value = std::mem::take(&mut self.lanes[from + k * from_width]);
            if index != last {
                self.lanes[to + k * to_width] = value;
            }
        }
        self.len = last;
        if self.len.is_multiple_of(LANES) {
            self.narrow();
        }
    }

    /// Makes the last group, which is full, one register wider, or begins a group.
    fn widen(&mut self) {
        let first = self.len / GROUP * GROUP;
        let (start, old) = (first * self.dim, self.len - first);
        let new = old + LANES;
        self.lanes.resize(start + new * self.dim, 0.0);
        for k in (0..self.dim).rev() {
            let row = start + k * old;
            self.lanes.copy_within(row..row + old, start + k * new);
            self.lanes[start + k * new + old..start + (k + 1) * new].fill(0.0);
        }
    }

    /// Makes the last group, whose last register has become empty, one register narrower.
    fn narrow(&mut self) {
        let first = self.len / GROUP * GROUP;
        let (start, new) = (first * self.dim, self.len - first);
        let old = new + LANES;
        for k in 0..self.dim {
            let row = start + k * old;
            self.lanes.copy_within(row..row + new, start + k * new);
        }
        self.lanes.truncate(start + new * self.dim);
    }

    /// Writes the features of one item.
    #[inline]
    fn write(&mut self, index: usize, features: impl Iterator<Item = f64>) {
        let (start, width) = self.place(index);
        let lanes = self.lanes[start..].iter_mut().step_by(width);
        lanes.zip(features).for_each(|(lane, value)| *lane = value);
    }

    #[inline]
    fn check_index(&self, index: usize) {
        assert!(index < self.len, "item {index} of {}", self.len);
    }

    /// Replaces the items by `len` others that are given feature by feature: `features[k * len + i]`
    /// is feature k of item i. Keeps the memory, and is faster than [`ItemSet::refill`].
    ///
    /// # Errors
    /// As [`ItemSet::from_rows`]; the set is then unchanged.
    pub fn refill_by_feature(&mut self, len: usize, features: &[f64]) -> Result<(), Error> {
        if len.checked_mul(self.dim) != Some(features.len()) {
            let got = features.len().checked_div(len).unwrap_or(0);
            return Err(Error::DimensionMismatch {
                expected: self.dim,
                got,
            });
        }
        if let Err(Error::BadFeature {
            feature: at, value, ..
        }) = check_features(0, features, features.len())
        {
            return Err(Error::BadFeature {
                item: at % len,
                feature: at / len,
                value,
            });
        }
        self.resize(len)?;
        for first in (0..len).step_by(GROUP) {
            let (count, width) = ((len - first).min(GROUP), width(len - first));
            let group = &mut self.lanes[first * self.dim..][..width * self.dim];
            for (row, values) in group
                .chunks_exact_mut(width)
                .zip(features.chunks_exact(len))
            {
                row[..count].copy_from_slice(&values[first..first + count]);
            }
        }
        Ok(())
    }

    /// Replaces the items by `len` others that are read number by number: `feature(i, k)` is
    /// feature k of item i, and is called once. For numbers stored in another order or precision.
    /// The memory of two sets is kept.
    ///
    /// ```
    /// use sclub::ItemSet;
    /// let elsewhere: [[f32; 2]; 3] = [[1.0, 0.0], [0.0, 1.0], [0.5, 0.25]];
    /// let mut items = ItemSet::new(2)?;
    /// items.refill_with(3, |i, k| f64::from(elsewhere[i][k]))?;
    /// assert_eq!(items.item(2).collect::<Vec<_>>(), [0.5, 0.25]);
    /// # Ok::<(), sclub::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::BadFeature`], [`Error::TooMany`]; the set is then unchanged, as it is if `feature`
    /// panics.
    pub fn refill_with(
        &mut self,
        len: usize,
        feature: impl Fn(usize, usize) -> f64,
    ) -> Result<(), Error> {
        check_len(len)?;
        let mut lanes = std::mem::take(&mut self.spare);
        lanes.reserve(len.next_multiple_of(LANES) * self.dim);
        let mut filled = Ok(());
        for first in (0..len).step_by(GROUP) {
            let (count, width) = ((len - first).min(GROUP), width(len - first));
            let start = lanes.len();
            for k in 0..self.dim {
                lanes.extend((first..first + count).map(|item| feature(item, k)));
                lanes.resize(start + (k + 1) * width, 0.0);
            }
            filled = check_group(first, width, &lanes[start..]);
            if filled.is_err() {
                break;
            }
        }
        if filled.is_ok() {
            self.len = len;
            self.ids.clear();
            std::mem::swap(&mut self.lanes, &mut lanes);
        }
        lanes.clear();
        self.spare = lanes;
        filled
    }

    /// Makes room for `len` items; lanes without an item hold zeros.
    fn resize(&mut self, len: usize) -> Result<(), Error> {
        check_len(len)?;
        self.ids.clear();
        if len != self.len {
            self.len = len;
            self.lanes.clear();
            self.lanes
                .resize(len.next_multiple_of(LANES) * self.dim, 0.0);
        }
        Ok(())
    }

    /// Features per item.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is no item.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The features of one item.
    ///
    /// # Panics
    /// If there is no item `index`.
    pub fn item(&self, index: usize) -> impl ExactSizeIterator<Item = f64> + '_ {
        self.check_index(index);
        let (start, width) = self.place(index);
        (0..self.dim).map(move |k| self.lanes[start + k * width])
    }

    /// Copies the features of one item into `features`.
    ///
    /// # Panics
    /// If there is no item `index`, or `features` is not as long as an item.
    #[inline]
    pub fn copy_item(&self, index: usize, features: &mut [f64]) {
        self.check_index(index);
        assert_eq!(features.len(), self.dim, "length of the target");
        let (start, width) = self.place(index);
        for (feature, value) in features
            .iter_mut()
            .zip(self.lanes[start..].iter().step_by(width))
        {
            *feature = *value;
        }
    }

    /// The offset of an item's first feature, and the distance between its features.
    #[inline]
    fn place(&self, index: usize) -> (usize, usize) {
        let first = index / GROUP * GROUP;
        (first * self.dim + index % GROUP, width(self.len - first))
    }

    #[inline]
    pub(crate) fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        (0..self.len).step_by(GROUP).map(|first| {
            let width = width(self.len - first);
            let start = first * self.dim;
            Group {
                first,
                len: (self.len - first).min(GROUP),
                width,
                features: &self.lanes[start..start + width * self.dim],
            }
        })
    }
}

/// Checks the features of a group that begins with item `first`.
fn check_group(first: usize, width: usize, features: &[f64]) -> Result<(), Error> {
    // To the end in any case: lanes are then compared side by side.
    let good = features
        .iter()
        .fold(true, |good, &value| good & acceptable(value));
    if good {
        return Ok(());
    }
    let bad = features.iter().enumerate();
    let bad = bad.filter(|&(_, &value)| !acceptable(value));
    let first_bad = bad.map(|(at, &value)| (at % width, at / width, value));
    let (lane, feature, value) = first_bad
        .min_by_key(|&(lane, feature, _)| (lane, feature))
        .expect("one is bad");
    Err(Error::BadFeature {
        item: first + lane,
        feature,
        value,
    })
}

fn check_len(len: usize) -> Result<(), Error> {
    if len > MAX_ITEMS {
        return Err(Error::TooMany {
            what: "the number of items",
            limit: MAX_ITEMS as u64,
        });
    }
    Ok(())
}

/// Lanes of a group that begins with `left` items still to place.
#[inline]
fn width(left: usize) -> usize {
    left.min(GROUP).next_multiple_of(LANES)
}

#[cfg(test)]
mod tests;
