//! The recipe of a synthetic world.

use std::f64::consts::FRAC_1_SQRT_2;

use serde::Serialize;

use crate::named::named;
use crate::world::Rewards;

use super::twists::Twists;

/// Means that are out of range by less than this are so by rounding.
const ROUNDING: f64 = 1e-9;

/// Maximum number of users of a world: 100 million fit into the memory of a large machine.
pub const MAX_USERS: usize = 100_000_000;

/// Frequencies of users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Frequencies {
    /// Figure (1a): all users equally often.
    Uniform,
    /// Figure (1b): clusters by a flat Dirichlet draw, equally often inside a cluster.
    Clusters,
    /// Figure (1c): users by a flat Dirichlet draw.
    Users,
}

named!(
    Frequencies,
    "kind of frequencies",
    [
        ("uniform", "(1a) All equally often", Frequencies::Uniform),
        (
            "clusters",
            "(1b) Clusters at random rates, equally often inside a cluster",
            Frequencies::Clusters
        ),
        (
            "users",
            "(1c) Every user at a random rate",
            Frequencies::Users
        ),
    ]
);

/// The recipe of a synthetic world.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recipe {
    /// n_u
    pub users: usize,
    /// m
    pub clusters: usize,
    /// d, the constant feature counted.
    pub dim: usize,
    /// L
    pub candidates: usize,
    /// The frequencies of users.
    pub frequencies: Frequencies,
    /// The distribution of rewards.
    pub rewards: Rewards,
    /// p̄, the average number of users in a round, independent of each other (Theorem 3's setting); exactly
    /// one if it is absent.
    pub users_a_round: Option<f64>,
    /// The differences from the paper's world.
    pub twists: Twists,
}

/// The reason why a world cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RecipeError {
    /// A number outside its range.
    #[error("{name} is {value}; it must be {requirement}")]
    OutOfRange {
        /// The number's name.
        name: &'static str,
        /// Its value.
        value: f64,
        /// The values that are allowed.
        requirement: String,
    },
    /// Given tastes whose mean rewards are not probabilities.
    #[error(
        "the taste of user {user} gives mean rewards from {low:.4} to {high:.4}; the mean of a Bernoulli reward is \
         between 0 and 1: use tastes (u, 1)/sqrt(2) with a vector u of length 1 or less, or Gaussian rewards"
    )]
    Taste {
        /// The user.
        user: usize,
        /// The smallest mean reward that an item can have.
        low: f64,
        /// The largest.
        high: f64,
    },
    /// Two settings that cannot be combined.
    #[error("{first} and {second} cannot be combined: {reason}")]
    Unsupported {
        /// The name of one setting.
        first: &'static str,
        /// The name of the other.
        second: &'static str,
        /// The reason.
        reason: &'static str,
    },
    /// A setting that needs another.
    #[error("{name} needs {needed}: {reason}")]
    Needs {
        /// The name of the setting.
        name: &'static str,
        /// The name of the missing one.
        needed: &'static str,
        /// The reason.
        reason: &'static str,
    },
}

impl Recipe {
    /// The constants that a world of the recipe sets for policies ([`crate::setting::Setting::told`]), with the number of clusters
    /// if tastes are in clusters.
    pub fn told(&self, is_clustered: bool) -> Vec<(&'static str, f64)> {
        let mut told = vec![("error", self.twists.misspecified)];
        if let Some(servers) = self.twists.servers {
            told.push(("servers", servers as f64));
        }
        if let Rewards::Gaussian(noise) = self.rewards
            && noise > 0.0
        {
            told.push(("noise", noise));
        }
        if is_clustered {
            told.push(("components", self.clusters.min(64) as f64));
        }
        told
    }

    /// Checks every number.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn check(&self) -> Result<(), RecipeError> {
        let range = |name, value: usize, low: usize, high: usize| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                let requirement = format!("between {low} and {high}");
                Err(RecipeError::OutOfRange {
                    name,
                    value: value as f64,
                    requirement,
                })
            }
        };
        range("users", self.users, 1, MAX_USERS)?;
        if self.clusters > self.users {
            let requirement = format!("at most the number of users, {}", self.users);
            let value = self.clusters as f64;
            return Err(RecipeError::OutOfRange {
                name: "clusters",
                value,
                requirement,
            });
        }
        range("clusters", self.clusters, 1, MAX_USERS)?;
        range("dim", self.dim, 1, sclub::MAX_DIM)?;
        range("items", self.candidates, 1, 1_000_000)?;
        if let Rewards::Gaussian(scale) = self.rewards
            && !(scale > 0.0 && scale <= 1e6)
        {
            let requirement = "above 0 and at most 1000000".into();
            return Err(RecipeError::OutOfRange {
                name: "noise",
                value: scale,
                requirement,
            });
        }
        if let Some(users) = self.users_a_round
            && !(users > 0.0 && users <= self.users as f64)
        {
            let requirement = format!("above 0 and at most the number of users, {}", self.users);
            return Err(RecipeError::OutOfRange {
                name: "users-a-round",
                value: users,
                requirement,
            });
        }
        self.twists.check(self)
    }

    /// Checks that the mean rewards of given tastes are probabilities, whatever the item, if rewards are Bernoulli.
    ///
    /// An item is (x, 1)/√2 with |x| = 1, so the taste (u, c) gives means from (c − |u|)/√2 to (c + |u|)/√2.
    ///
    /// # Errors
    /// [`RecipeError::Taste`].
    pub(super) fn check_tastes(&self, weights: &[Vec<f64>]) -> Result<(), RecipeError> {
        if self.rewards != Rewards::Bernoulli {
            return Ok(());
        }
        let scale = self.twists.reward_scale * FRAC_1_SQRT_2;
        for (user, taste) in weights.iter().enumerate() {
            let (constant, directions) = taste.split_last().unwrap_or((&0.0, &[]));
            let length = directions.iter().map(|value| value * value).sum::<f64>();
            let length = length.sqrt();
            let (low, high) = (scale * (constant - length), scale * (constant + length));
            if !(low >= -ROUNDING && high <= 1.0 + ROUNDING) {
                return Err(RecipeError::Taste { user, low, high });
            }
        }
        Ok(())
    }

    /// R, the sub-Gaussian scale of the noise.
    pub fn noise_scale(&self) -> f64 {
        match self.rewards {
            Rewards::Bernoulli => 0.5,
            Rewards::Gaussian(scale) => scale,
        }
    }

    /// λ_x, the smallest eigenvalue of E[x xᵀ]: 1/2 for the constant, 1/(2(d−1)) for the rest.
    pub fn smallest_eigenvalue(&self) -> f64 {
        0.5 / (self.dim.max(2) - 1) as f64
    }
}
