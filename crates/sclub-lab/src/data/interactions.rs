//! Interactions: pairs of a user and an item that the user took.

use crate::streams::mix;

use super::names::{Name, Names};

/// Pairs of a user and an item that the user took, each pair once, row by row.
///
/// Users and items are numbered in the order in which the file names them.
#[derive(Debug, Clone, PartialEq)]
pub struct Interactions {
    users: Names,
    items: Names,
    /// The start of each user's items in `taken`, and the end of the last one's.
    offsets: Vec<usize>,
    /// Ascending inside each user.
    taken: Vec<u32>,
    /// The value of each, between 0 and 1; `None` if all are 1.
    values: Option<Vec<f64>>,
}

impl Interactions {
    /// From pairs packed as `user << 32 | item`, in any order and with repetitions.
    pub(super) fn new(users: Names, items: Names, mut pairs: Vec<u64>) -> Self {
        pairs.sort_unstable();
        pairs.dedup();
        let mut offsets = vec![0; users.len() + 1];
        for pair in &pairs {
            offsets[(pair >> 32) as usize + 1] += 1;
        }
        for user in 0..users.len() {
            offsets[user + 1] += offsets[user];
        }
        let taken = pairs.iter().map(|&pair| pair as u32).collect();
        Self {
            users,
            items,
            offsets,
            taken,
            values: None,
        }
    }

    /// As [`Interactions::new`], with a rating of each pair that is 0 or more. Of repeated pairs the highest rating
    /// counts. Values are ratings divided by the highest of all, and 0 if that is 0.
    pub(super) fn with_values(users: Names, items: Names, mut pairs: Vec<(u64, f64)>) -> Self {
        pairs.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
        pairs.dedup_by_key(|pair| pair.0);
        let highest = pairs.iter().map(|pair| pair.1).fold(0.0, f64::max);
        let scale = |rating: f64| if highest > 0.0 { rating / highest } else { 0.0 };
        let values = pairs.iter().map(|pair| scale(pair.1)).collect();
        let pairs = pairs.into_iter().map(|pair| pair.0).collect();
        Self {
            values: Some(values),
            ..Self::new(users, items, pairs)
        }
    }

    /// Number of users.
    pub fn users(&self) -> usize {
        self.users.len()
    }

    /// Number of items.
    pub fn items(&self) -> usize {
        self.items.len()
    }

    /// Number of different pairs of a user and an item.
    pub fn len(&self) -> usize {
        self.taken.len()
    }

    /// True if there are no interactions.
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// The items that a user took, ascending.
    ///
    /// # Panics
    /// If there is no such user.
    pub fn of_user(&self, user: usize) -> &[u32] {
        &self.taken[self.offsets[user]..self.offsets[user + 1]]
    }

    /// The values of a user's items, in the order of [`Interactions::of_user`]: ratings divided by the highest of
    /// all. `None` if ratings are not values.
    ///
    /// # Panics
    /// If there is no such user.
    pub fn values_of_user(&self, user: usize) -> Option<&[f64]> {
        let values = self.values.as_ref()?;
        Some(&values[self.offsets[user]..self.offsets[user + 1]])
    }

    /// True if interactions have values.
    pub fn has_values(&self) -> bool {
        self.values.is_some()
    }

    /// The name of a user in the file.
    ///
    /// # Panics
    /// If there is no such user.
    pub fn user_name(&self, user: usize) -> Name<'_> {
        self.users.get(user)
    }

    /// The name of an item in the file.
    ///
    /// # Panics
    /// If there is no such item.
    pub fn item_name(&self, item: usize) -> Name<'_> {
        self.items.get(item)
    }

    /// A hash of the names, their order and the interactions.
    pub fn digest(&self) -> u64 {
        let ends = self.offsets.iter().map(|&end| end as u64);
        let taken = self.taken.iter().map(|&item| u64::from(item));
        let values = self.values.iter().flatten().map(|value| value.to_bits());
        self.users
            .content()
            .chain(self.items.content())
            .chain(ends)
            .chain(taken)
            .chain(values)
            .fold(0, |state, word| mix(&[state, word]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(u64, u64)]) -> Vec<u64> {
        pairs
            .iter()
            .map(|&(user, item)| user << 32 | item)
            .collect()
    }

    #[test]
    fn a_pair_counts_once_and_rows_are_sorted() {
        let given = pairs(&[(2, 1), (0, 3), (0, 0), (2, 1), (0, 3), (0, 2)]);
        let all = Interactions::new(Names::counted(3), Names::counted(4), given);
        assert_eq!((all.users(), all.items(), all.len()), (3, 4, 4));
        assert_eq!(all.of_user(0), [0, 2, 3]);
        assert!(all.of_user(1).is_empty());
        assert_eq!(all.of_user(2), [1]);
    }

    #[test]
    fn the_highest_rating_of_a_pair_counts_and_values_are_shares_of_the_highest() {
        let given = pairs(&[(1, 1), (0, 3), (1, 1), (0, 0), (1, 1)]);
        let given = given.into_iter().zip([1.0, 5.0, 4.0, 0.0, 2.0]).collect();
        let all = Interactions::with_values(Names::counted(2), Names::counted(4), given);
        assert_eq!(all.of_user(0), [0, 3]);
        assert_eq!(all.values_of_user(0), Some(&[0.0, 1.0][..]));
        assert_eq!(all.values_of_user(1), Some(&[0.8][..]));
        let plain = pairs(&[(1, 1), (0, 3), (0, 0)]);
        let plain = Interactions::new(Names::counted(2), Names::counted(4), plain);
        assert_eq!(plain.values_of_user(0), None);
        assert_ne!(plain.digest(), all.digest());
    }

    #[test]
    fn the_digest_tells_contents_apart() {
        let make = |users, items, given: &[(u64, u64)]| {
            let names = (Names::counted(users), Names::counted(items));
            Interactions::new(names.0, names.1, pairs(given)).digest()
        };
        let digest = make(2, 2, &[(0, 0), (1, 1)]);
        assert_eq!(digest, make(2, 2, &[(1, 1), (0, 0), (0, 0)]));
        assert_ne!(digest, make(2, 2, &[(0, 0), (0, 1)]));
        assert_ne!(digest, make(2, 2, &[(0, 0), (1, 0)]));
        assert_ne!(digest, make(2, 3, &[(0, 0), (1, 1)]));
        assert_ne!(digest, make(3, 2, &[(0, 0), (1, 1)]));
    }
}
