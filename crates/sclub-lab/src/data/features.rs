//! From interactions to vectors of users and items (section 5.2 of the paper).

use std::f64::consts::FRAC_1_SQRT_2;
use std::fmt;

use super::interactions::Interactions;
use super::matrix::{Matrix, Sparse};
use super::svd::{Search, Svd, truncated_svd_watched};

/// A row of singular vectors shorter than this counts as zero: its direction is rounding error.
const MIN_LENGTH: f64 = 1e-9;

/// The number of users and items to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    /// Users.
    pub users: usize,
    /// Items.
    pub items: usize,
}

/// Some users and items, and the items that each user took.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    /// The number of each row's user among the interactions.
    pub users: Vec<u32>,
    /// The number of each column's item among the interactions.
    pub items: Vec<u32>,
    /// 1, or the value of the interaction if it has one, where a user took an item; else 0.
    pub matrix: Sparse,
    /// The users, items or features of which there are fewer than asked for.
    pub shortages: Vec<Shortage>,
}

/// A shortage: there is less of something than was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// The resource.
    pub what: Resource,
    /// The number asked for.
    pub asked: usize,
    /// The number there is.
    pub found: usize,
}

/// A thing of which there may be less than was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Users.
    Users,
    /// Items.
    Items,
    /// Singular values that are not zero.
    Directions,
}

impl fmt::Display for Shortage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shortage { what, asked, found } = self;
        match what {
            Resource::Users => write!(formatter, "there are {found} users, not {asked}"),
            Resource::Items => write!(formatter, "there are {found} items, not {asked}"),
            Resource::Directions => write!(
                formatter,
                "the data have {found} independent directions, not {asked}; the other features are 0"
            ),
        }
    }
}

/// The reason why features cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FeatureError {
    /// A number of features that is not possible.
    #[error("dim is {dim}; it must be between 2 and {}", sclub::MAX_DIM)]
    Dim {
        /// Features asked for.
        dim: usize,
    },
    /// Fewer users or items than features.
    #[error("{dim} features need at least {dim} {what}; there are {found}")]
    TooFew {
        /// Users or items.
        what: &'static str,
        /// The number there is.
        found: usize,
        /// Features asked for.
        dim: usize,
    },
    /// The decomposition did not settle.
    #[error("the leading directions of the data could not be found to 8 digits; try another dim")]
    NotSettled,
}

/// A residual above this share of the largest singular value is no decomposition.
const SETTLED: f64 = 1e-8;

impl Selection {
    /// The paper's choice: of the users with most interactions, three times as many as wanted; then
    /// the items with most among these users; then the users with most among these items.
    ///
    /// Among equals the lower number goes first. The most active come first in the result.
    pub fn choose(&self, all: &Interactions) -> Chosen {
        let lengths: Vec<u32> = (0..all.users())
            .map(|u| all.of_user(u).len() as u32)
            .collect();
        let active = most(&lengths, self.users.saturating_mul(3));
        let mut counts = vec![0; all.items()];
        for &user in &active {
            for &item in all.of_user(user as usize) {
                counts[item as usize] += 1;
            }
        }
        let items = most(&counts, self.items);
        let mut is_chosen = vec![false; all.items()];
        items
            .iter()
            .for_each(|&item| is_chosen[item as usize] = true);
        let mut counts = vec![0; all.users()];
        let mut candidates = vec![false; all.users()];
        for &user in &active {
            let taken = all.of_user(user as usize).iter();
            counts[user as usize] = taken.filter(|&&item| is_chosen[item as usize]).count() as u32;
            candidates[user as usize] = true;
        }
        let mut users = most(&counts, usize::MAX);
        users.retain(|&user| candidates[user as usize]);
        users.truncate(self.users);
        let mut chosen = chosen(all, users, items);
        for (what, asked, found) in [
            (Resource::Users, self.users, chosen.users.len()),
            (Resource::Items, self.items, chosen.items.len()),
        ] {
            if found < asked {
                chosen.shortages.push(Shortage { what, asked, found });
            }
        }
        chosen
    }
}

/// Every user and every item, in their own order.
pub fn everything(all: &Interactions) -> Chosen {
    let (users, items) = (all.users() as u32, all.items() as u32);
    chosen(all, (0..users).collect(), (0..items).collect())
}

/// The `wanted` numbers with the largest counts, the largest first.
fn most(counts: &[u32], wanted: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..counts.len() as u32).collect();
    order.sort_by_key(|&number| (u32::MAX - counts[number as usize], number));
    order.truncate(wanted);
    order
}

fn chosen(all: &Interactions, users: Vec<u32>, items: Vec<u32>) -> Chosen {
    let mut column = vec![u32::MAX; all.items()];
    for (at, &item) in items.iter().enumerate() {
        column[item as usize] = at as u32;
    }
    let matrix = match all.has_values() {
        false => {
            let rows: Vec<Vec<u32>> = users
                .iter()
                .map(|&user| {
                    let taken = all.of_user(user as usize).iter();
                    let columns = taken.map(|&item| column[item as usize]);
                    let mut row: Vec<u32> = columns.filter(|&at| at != u32::MAX).collect();
                    row.sort_unstable();
                    row
                })
                .collect();
            Sparse::pattern(items.len(), rows.iter().map(Vec::as_slice))
        }
        true => {
            let rows: Vec<Vec<(u32, f64)>> = users
                .iter()
                .map(|&user| {
                    let taken = all.of_user(user as usize).iter();
                    let values = all.values_of_user(user as usize).unwrap_or_default();
                    let entries = taken
                        .zip(values)
                        .map(|(&item, &value)| (column[item as usize], value));
                    let mut row: Vec<(u32, f64)> =
                        entries.filter(|entry| entry.0 != u32::MAX).collect();
                    row.sort_unstable_by_key(|entry| entry.0);
                    row
                })
                .collect();
            Sparse::with_values(items.len(), &rows)
        }
    };
    Chosen {
        matrix,
        users,
        items,
        shortages: Vec::new(),
    }
}

/// Checks the number of features.
///
/// # Errors
/// [`FeatureError::Dim`] if it is below 2 or above [`sclub::MAX_DIM`].
pub fn check_dim(dim: usize) -> Result<(), FeatureError> {
    if (2..=sclub::MAX_DIM).contains(&dim) {
        Ok(())
    } else {
        Err(FeatureError::Dim { dim })
    }
}

/// The leading `dim` − 1 singular triplets, to which vectors of `dim` features belong; and the
/// shortage if the data have fewer.
///
/// # Errors
/// If there are fewer users or items than features, or the decomposition does not settle.
pub fn factorise(matrix: &Sparse, dim: usize) -> Result<(Svd, Option<Shortage>), FeatureError> {
    factorise_watched(matrix, dim, &mut |_| ())
}

/// As [`factorise`]; calls `watch` with the progress.
///
/// # Errors
/// As [`factorise`].
pub fn factorise_watched(
    matrix: &Sparse,
    dim: usize,
    watch: &mut dyn FnMut(Search),
) -> Result<(Svd, Option<Shortage>), FeatureError> {
    check_dim(dim)?;
    for (what, found) in [("users", matrix.rows()), ("items", matrix.columns())] {
        if found < dim {
            return Err(FeatureError::TooFew { what, found, dim });
        }
    }
    let svd = truncated_svd_watched(matrix, dim - 1, watch);
    if svd.residual > SETTLED {
        return Err(FeatureError::NotSettled);
    }
    let found = svd.values.iter().filter(|&&value| value > 0.0).count();
    let shortage = (found < dim - 1).then_some(Shortage {
        what: Resource::Directions,
        asked: dim - 1,
        found,
    });
    Ok((svd, shortage))
}

/// The paper's weight vectors: rows of the left singular vectors at length 1, a 1 appended, all
/// divided by √2.
///
/// A user whose row is zero, such as one who took nothing, gets (0, …, 0, 1)/√2.
pub fn user_weights(svd: &Svd) -> Matrix {
    appended(&svd.left, |row, vector| {
        let length = row.iter().map(|value| value * value).sum::<f64>().sqrt();
        if length > MIN_LENGTH {
            for (to, from) in vector.iter_mut().zip(row) {
                *to = from / length;
            }
        }
    })
}

/// Vectors of items: right singular vectors times their singular values, divided by the length of
/// the longest row, a 1 appended, all divided by √2. No vector is longer than 1.
pub fn item_vectors(svd: &Svd) -> Matrix {
    let (side, values) = (&svd.right, &svd.values);
    let length = |row: usize| {
        let entries = side.row(row).iter().zip(values);
        entries
            .map(|(entry, value)| (entry * value).powi(2))
            .sum::<f64>()
            .sqrt()
    };
    let longest = (0..side.rows()).map(length).fold(0.0, f64::max);
    appended(side, |row, vector| {
        if longest > 0.0 {
            for ((to, from), value) in vector.iter_mut().zip(row).zip(values) {
                *to = from * value / longest;
            }
        }
    })
}

/// A vector for each row by `fill`, which starts from zeros, a 1 appended, divided by √2.
fn appended(side: &Matrix, fill: impl Fn(&[f64], &mut [f64])) -> Matrix {
    let mut vectors = Matrix::zeros(side.rows(), side.columns() + 1);
    for row in 0..side.rows() {
        let vector = vectors.row_mut(row);
        vector[side.columns()] = 1.0;
        fill(side.row(row), &mut vector[..side.columns()]);
        vector.iter_mut().for_each(|value| *value *= FRAC_1_SQRT_2);
    }
    vectors
}

#[cfg(test)]
mod tests;
