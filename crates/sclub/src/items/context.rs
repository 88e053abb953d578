//! Features of a request's context (time, device, page), joined with the features of each item.

use std::fmt;
use std::str::FromStr;

use super::{ItemSet, check_group, width};
use crate::error::{Error, check_dim, check_features};
use crate::spec::ValueError;

/// The mode in which the features c of a context are joined with the features x of an item.
///
/// | mode | features | their number | effect |
/// |---|---|---|---|
/// | `Append` | (x, c) | d + n | Learns that rewards are higher in one context than in another, for all items alike. |
/// | `Cross` | (x, c₁x, …, cₙx) | d (1 + n) | Learns which items suit which context, so their order depends on it. |
///
/// Appended features add the same number to the mean of every item, so they hardly change the order of
/// items. Crossed features need more memory and time: a policy keeps matrices of that size. The
/// context's own features are among the crossed ones if the items have a feature that is always 1.
///
/// ```
/// use sclub::{ContextMode, ItemSet};
///
/// let items = ItemSet::from_rows(2, &[1.0, 0.0, /* second item */ 0.6, 0.8])?;
/// let evening = [0.5];
/// let crossed = items.with_context(&evening, ContextMode::Cross)?;
/// assert_eq!(crossed.item(1).collect::<Vec<_>>(), [0.6, 0.8, 0.3, 0.4]);
/// let appended = items.with_context(&evening, ContextMode::Append)?;
/// assert_eq!(appended.item(1).collect::<Vec<_>>(), [0.6, 0.8, 0.5]);
/// # Ok::<(), sclub::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContextMode {
    /// The item's features, then the context's.
    Append,
    /// The item's features, then the item's features times each feature of the context.
    Cross,
}

impl ContextMode {
    /// Both modes.
    pub const ALL: [ContextMode; 2] = [ContextMode::Append, ContextMode::Cross];

    /// The name of the mode.
    pub fn as_str(self) -> &'static str {
        match self {
            ContextMode::Append => "append",
            ContextMode::Cross => "cross",
        }
    }

    /// The number of joined features: `item` features of an item, `context` features of a context.
    pub fn dim(self, item: usize, context: usize) -> usize {
        match self {
            ContextMode::Append => item.saturating_add(context),
            ContextMode::Cross => item.saturating_mul(context.saturating_add(1)),
        }
    }

    /// The joined features of one item, to learn from.
    pub fn join(self, item: &[f64], context: &[f64]) -> Vec<f64> {
        let mut joined = item.to_vec();
        match self {
            ContextMode::Append => joined.extend_from_slice(context),
            ContextMode::Cross => {
                for factor in context {
                    joined.extend(item.iter().map(|value| factor * value));
                }
            }
        }
        joined
    }
}

impl fmt::Display for ContextMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for ContextMode {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let mode = ContextMode::ALL.into_iter().find(|m| m.as_str() == text);
        mode.ok_or_else(|| ValueError {
            name: "context_mode".to_owned(),
            why: format!("'{text}' is unknown; use append or cross"),
        })
    }
}

impl ItemSet {
    /// The same items with the features of a context joined to their own. Ids are kept.
    ///
    /// # Errors
    /// As [`ItemSet::refill_in_context`].
    pub fn with_context(&self, context: &[f64], mode: ContextMode) -> Result<Self, Error> {
        let mut set = Self::new(check_dim(mode.dim(self.dim, context.len()))?)?;
        set.refill_in_context(self, context, mode)?;
        Ok(set)
    }

    /// Replaces the items by those of `from` with the features of a context joined to their own, and
    /// keeps the memory. Ids come from `from`.
    ///
    /// # Errors
    /// [`Error::DimensionMismatch`] if this set does not have as many features as the joined items,
    /// [`Error::BadFeature`] if a feature of the context, or a product, is not finite or is too large.
    /// The set is then unchanged.
    pub fn refill_in_context(
        &mut self,
        from: &ItemSet,
        context: &[f64],
        mode: ContextMode,
    ) -> Result<(), Error> {
        let dim = mode.dim(from.dim, context.len());
        if self.dim != dim {
            return Err(Error::DimensionMismatch {
                expected: self.dim,
                got: dim,
            });
        }
        check_features(0, context, context.len())?;
        let mut lanes = std::mem::take(&mut self.spare);
        let mut filled = Ok(());
        for group in from.groups() {
            let start = lanes.len();
            lanes.extend_from_slice(group.features);
            for &factor in context {
                match mode {
                    ContextMode::Append => {
                        let end = lanes.len() + group.width;
                        lanes.resize(lanes.len() + group.len, factor);
                        lanes.resize(end, 0.0);
                    }
                    ContextMode::Cross => {
                        lanes.extend(group.features.iter().map(|value| factor * value));
                    }
                }
            }
            debug_assert_eq!(group.width, width(from.len - group.first));
            filled = check_group(group.first, group.width, &lanes[start..]);
            if filled.is_err() {
                break;
            }
        }
        if filled.is_ok() {
            self.len = from.len;
            self.ids.clone_from(&from.ids);
            std::mem::swap(&mut self.lanes, &mut lanes);
        }
        lanes.clear();
        self.spare = lanes;
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::MAX_MAGNITUDE;
    use proptest::prelude::*;

    proptest! {
        /// Joining a whole set is joining each item.
        #[test]
        fn a_set_in_context_has_the_joined_items(
            (dim, rows) in (1usize..6, 0usize..80).prop_flat_map(|(dim, len)| {
                (Just(dim), prop::collection::vec(-2.0f64..2.0, dim * len))
            }),
            context in prop::collection::vec(-2.0f64..2.0, 0..4),
            is_crossed: bool,
        ) {
            let mode = if is_crossed { ContextMode::Cross } else { ContextMode::Append };
            let mut items = ItemSet::from_rows(dim, &rows).unwrap();
            let ids: Vec<u64> = (0..items.len() as u64).map(|id| 7 * id).collect();
            items.set_ids(&ids).unwrap();
            let joined: Vec<f64> =
                rows.chunks_exact(dim).flat_map(|item| mode.join(item, &context)).collect();
            let mut expected = ItemSet::from_rows(mode.dim(dim, context.len()), &joined).unwrap();
            expected.set_ids(&ids).unwrap();
            let mut got = items.with_context(&context, mode).unwrap();
            prop_assert_eq!(&got, &expected);
            // Also in memory that held other items.
            got.refill(&vec![1.0; got.dim() * 50]).unwrap();
            got.refill_in_context(&items, &context, mode).unwrap();
            expected.spare.clone_from(&got.spare);
            prop_assert_eq!(got, expected);
        }
    }

    #[test]
    fn a_bad_context_leaves_the_set_as_it_was() {
        let items = ItemSet::from_rows(1, &[1.0, MAX_MAGNITUDE]).unwrap();
        let mut set = ItemSet::from_rows(2, &[3.0, 4.0]).unwrap();
        let before = set.clone();
        let mut refill = |context: &[f64]| {
            let refused = set.refill_in_context(&items, context, ContextMode::Cross);
            assert_eq!(set, before);
            refused.unwrap_err()
        };
        let bad = |item, feature| Error::BadFeature {
            item,
            feature,
            value: 2.0 * MAX_MAGNITUDE,
        };
        assert_eq!(refill(&[2.0]), bad(1, 1));
        assert_eq!(refill(&[2.0 * MAX_MAGNITUDE]), bad(0, 0));
        assert!(matches!(refill(&[f64::NAN]), Error::BadFeature { .. }));
        let wrong = Error::DimensionMismatch {
            expected: 2,
            got: 3,
        };
        assert_eq!(refill(&[1.0, 1.0]), wrong);
        assert!(
            items
                .with_context(&[0.0; 5000], ContextMode::Cross)
                .is_err()
        );
    }

    #[test]
    fn modes_have_names() {
        for mode in ContextMode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert!("both".parse::<ContextMode>().is_err());
    }
}
