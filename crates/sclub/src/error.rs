//! Errors of input. They are returned before any state has changed.

use crate::kernels::MAX_DIM;

/// Largest magnitude accepted for a feature or a reward: far beyond any sensible scale, and small
/// enough that no sum of squares can overflow.
pub const MAX_MAGNITUDE: f64 = 1e12;

/// An invalid input. The state of a policy that returned one is unchanged.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A dimension of zero or above [`MAX_DIM`].
    #[error("the dimension must be between 1 and {MAX_DIM}, got {got}")]
    Dimension {
        /// The dimension asked for.
        got: usize,
    },
    /// An item or an item set whose dimension is not the policy's.
    #[error("expected {expected} features, got {got}")]
    DimensionMismatch {
        /// The policy's dimension.
        expected: usize,
        /// The dimension passed.
        got: usize,
    },
    /// Too many or too few of something.
    #[error("expected {expected} {what}, got {got}")]
    WrongCount {
        /// The kind of thing counted.
        what: &'static str,
        /// The number expected.
        expected: usize,
        /// The number passed.
        got: usize,
    },
    /// A set of candidates without a single item.
    #[error("there are no candidate items to choose from")]
    NoCandidates,
    /// Zero users declared.
    #[error(
        "at least one user must be declared; use Users::Appear if users are not known before they appear"
    )]
    NoUsers,
    /// More users, or candidates, than the library can number.
    #[error("{what} exceeds the limit of {limit}")]
    TooMany {
        /// The quantity that is limited.
        what: &'static str,
        /// The maximum.
        limit: u64,
    },
    /// A feature that is NaN, infinite, or larger than [`MAX_MAGNITUDE`].
    #[error(
        "feature {feature} of item {item} is {value}; it must be finite and at most {MAX_MAGNITUDE:e} in magnitude"
    )]
    BadFeature {
        /// Position of the item among those passed.
        item: usize,
        /// Position of the feature in the item.
        feature: usize,
        /// The offending value.
        value: f64,
    },
    /// A reward that is NaN, infinite, or larger than [`MAX_MAGNITUDE`].
    #[error(
        "the reward of observation {observation} is {value}; it must be finite and at most {MAX_MAGNITUDE:e} in magnitude"
    )]
    BadReward {
        /// Position of the observation in the round.
        observation: usize,
        /// The offending value.
        value: f64,
    },
    /// A parameter outside its range.
    #[error("{name} is {value}; it must be {requirement}")]
    BadParameter {
        /// The parameter's name.
        name: &'static str,
        /// The offending value.
        value: f64,
        /// The accepted values.
        requirement: &'static str,
    },
    /// [`crate::Preset::Theory`] without [`crate::Assumptions`].
    #[error(
        "preset theory needs assumptions: noise, smallest_eigenvalue, horizon, clusters, users"
    )]
    NoAssumptions,
    /// A combination that the policy does not support.
    #[error("unsupported: {reason}")]
    Unsupported {
        /// The unsupported combination.
        reason: &'static str,
    },
    /// Bytes that are not a saved state.
    #[error("not a valid saved state: {reason}")]
    BadSnapshot {
        /// The first fault found.
        reason: &'static str,
    },
}

/// A saved state could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The input failed before the state ended.
    #[error("the saved state cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// The input is not a valid state: [`Error::BadSnapshot`], or [`Error::BadParameter`] and
    /// [`Error::Dimension`] for invalid numbers in it.
    #[error(transparent)]
    State(#[from] Error),
}

/// Checks a dimension.
pub(crate) fn check_dim(dim: usize) -> Result<usize, Error> {
    if (1..=MAX_DIM).contains(&dim) {
        Ok(dim)
    } else {
        Err(Error::Dimension { got: dim })
    }
}

/// True if a number can be a feature or a reward.
#[inline]
pub(crate) fn acceptable(value: f64) -> bool {
    value.abs() <= MAX_MAGNITUDE
}

/// Checks one item's features.
#[inline]
pub(crate) fn check_features(item: usize, features: &[f64], dim: usize) -> Result<(), Error> {
    if features.len() != dim {
        return Err(Error::DimensionMismatch {
            expected: dim,
            got: features.len(),
        });
    }
    if features.iter().all(|&value| acceptable(value)) {
        return Ok(());
    }
    let feature = features
        .iter()
        .position(|&value| !acceptable(value))
        .unwrap_or(0);
    Err(Error::BadFeature {
        item,
        feature,
        value: features[feature],
    })
}

/// Checks one observation's reward.
#[inline]
pub(crate) fn check_reward(observation: usize, value: f64) -> Result<(), Error> {
    if acceptable(value) {
        Ok(())
    } else {
        Err(Error::BadReward { observation, value })
    }
}
