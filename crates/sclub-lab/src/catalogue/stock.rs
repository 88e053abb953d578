//! The items that all rounds share, and what each user thinks of them.

use std::sync::OnceLock;

use rayon::prelude::*;
use sclub::{ItemSet, UserId};

use super::shop::Link;

/// Users whose means are added up by one thread at a time. Fixed, so that sums do not depend on the number
/// of threads.
const USERS_AT_ONCE: usize = 64;

/// The items of a shop and its users' weight vectors. Mean rewards are computed when they are asked for; those
/// of a user's best items are kept.
#[derive(Debug)]
pub struct Stock {
    items: ItemSet,
    /// The features, feature by feature: `columns[k * items + i]`.
    columns: Vec<f64>,
    /// The users' weight vectors, one after the other.
    weights: Vec<f64>,
    /// The share of each user in all visits.
    shares: Vec<f64>,
    link: Link,
    slots: usize,
    best: Vec<OnceLock<Best>>,
    average_user: OnceLock<Vec<f64>>,
}

/// The best that can be shown to a user.
#[derive(Debug, Clone, PartialEq)]
pub struct Best {
    /// The largest means, the largest first, one for each slot.
    pub top: Box<[f64]>,
    /// The average over all items.
    pub average: f64,
}

/// Stocks are equal if items, users and link are; what has been kept of them does not matter.
impl PartialEq for Stock {
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items
            && self.weights == other.weights
            && self.shares == other.shares
            && self.link == other.link
            && self.slots == other.slots
    }
}

impl Stock {
    /// Items, the users' weight vectors one after the other, and the share of each user in all visits.
    pub(super) fn new(
        items: ItemSet,
        weights: Vec<f64>,
        shares: Vec<f64>,
        link: Link,
        slots: usize,
    ) -> Self {
        let (count, dim) = (items.len(), items.dim());
        let mut columns = vec![0.0; count * dim];
        for item in 0..count {
            for (k, feature) in items.item(item).enumerate() {
                columns[k * count + item] = feature;
            }
        }
        let best = shares.iter().map(|_| OnceLock::new()).collect();
        Self {
            items,
            columns,
            weights,
            shares,
            link,
            slots,
            best,
            average_user: OnceLock::new(),
        }
    }

    /// The items; the id of each is its position.
    pub fn items(&self) -> &ItemSet {
        &self.items
    }

    /// From θᵀx to the mean reward.
    pub fn link(&self) -> Link {
        self.link
    }

    /// A user's weight vector.
    pub fn weights(&self, user: UserId) -> &[f64] {
        let dim = self.items.dim();
        &self.weights[user as usize * dim..][..dim]
    }

    /// The mean reward of an item for a user.
    #[inline]
    pub fn mean(&self, user: UserId, item: usize) -> f64 {
        let features = self.items.item(item);
        let product = features
            .zip(self.weights(user))
            .fold(0.0, |sum, (x, w)| sum + x * w);
        self.link.mean(product)
    }

    /// The mean reward of every item under a weight vector; replaces the contents of `means`. The sums are
    /// added in the order of [`Stock::mean`].
    pub fn means(&self, weights: &[f64], means: &mut Vec<f64>) {
        means.clear();
        means.resize(self.items.len(), 0.0);
        for (column, weight) in self.columns.chunks_exact(self.items.len()).zip(weights) {
            for (mean, feature) in means.iter_mut().zip(column) {
                *mean += feature * weight;
            }
        }
        means
            .iter_mut()
            .for_each(|mean| *mean = self.link.mean(*mean));
    }

    /// True if [`Stock::best`] of a user has been computed.
    pub(super) fn knows(&self, user: UserId) -> bool {
        self.best[user as usize].get().is_some()
    }

    /// The best that can be shown to a user. It is computed once.
    pub fn best(&self, user: UserId) -> &Best {
        self.best[user as usize].get_or_init(|| {
            let mut means = Vec::new();
            self.means(self.weights(user), &mut means);
            self.best_of(means)
        })
    }

    fn best_of(&self, mut means: Vec<f64>) -> Best {
        let average = means.iter().sum::<f64>() / means.len() as f64;
        let larger_first = |a: &f64, b: &f64| b.total_cmp(a);
        means.select_nth_unstable_by(self.slots - 1, larger_first);
        means.truncate(self.slots);
        means.sort_unstable_by(larger_first);
        Best {
            top: means.into(),
            average,
        }
    }

    /// The mean reward of every item for the average visit, once all users have come. It is computed once,
    /// from all users.
    pub fn average_user(&self) -> &[f64] {
        self.average_user.get_or_init(|| {
            let users: Vec<usize> = (0..self.shares.len()).collect();
            let parts: Vec<Vec<f64>> = users
                .par_chunks(USERS_AT_ONCE)
                .map(|users| self.sum_over(users))
                .collect();
            let mut whole = vec![0.0; self.items.len()];
            for part in parts {
                let sums = whole.iter_mut().zip(part);
                sums.for_each(|(sum, part)| *sum += part);
            }
            whole
        })
    }

    /// The means of some users, weighted by their shares. Their best items are kept on the way.
    fn sum_over(&self, users: &[usize]) -> Vec<f64> {
        let mut sum = vec![0.0; self.items.len()];
        let mut means = Vec::new();
        for &user in users {
            self.means(self.weights(user as UserId), &mut means);
            for (sum, mean) in sum.iter_mut().zip(&means) {
                *sum += self.shares[user] * mean;
            }
            self.best[user].get_or_init(|| self.best_of(means.clone()));
        }
        sum
    }
}
