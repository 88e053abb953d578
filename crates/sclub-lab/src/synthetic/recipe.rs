//! The recipe of a synthetic world.

use serde::Serialize;

use crate::named::named;
use crate::world::Rewards;

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

/// Sizes of the clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sizes {
    /// As evenly as can be.
    #[default]
    Equal,
    /// One user each; of the others, cluster k = 1, 2, … has a share in proportion to k^−1.5.
    Unequal,
}

named!(
    Sizes,
    "kind of sizes",
    [
        ("equal", "All alike", Sizes::Equal),
        (
            "unequal",
            "The k-th in proportion to k^-1.5: of 1000 users in 10 clusters 497, 177, 96, down to 17",
            Sizes::Unequal
        ),
    ]
);

/// Differences from the paper's world. By default there are none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Twists {
    /// The sizes of the clusters.
    pub sizes: Sizes,
    /// s: a user's direction is the cluster's plus s times a Gaussian vector of expected length 1,
    /// brought back to length 1.
    pub spread: f64,
    /// The factor of every mean reward.
    pub reward_scale: f64,
    /// Rounds from one newcomer to the next; all are there from the start if it is absent.
    pub newcomers_every: Option<f64>,
    /// Rounds after which every user changes to another cluster, drawn for each user independently.
    pub change_at: Option<u64>,
}

impl Default for Twists {
    fn default() -> Self {
        Self {
            sizes: Sizes::Equal,
            spread: 0.0,
            reward_scale: 1.0,
            newcomers_every: None,
            change_at: None,
        }
    }
}

impl Twists {
    /// The number of users that have come by a round, which counts from 0.
    pub(crate) fn present(&self, round: u64, users: usize) -> usize {
        match self.newcomers_every {
            Some(gap) => ((round as f64 / gap) as usize).saturating_add(1).min(users),
            None => users,
        }
    }

    /// True if users have changed by a round, which counts from 0.
    pub(super) fn has_changed(&self, round: u64) -> bool {
        self.change_at.is_some_and(|change| round >= change)
    }
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
}

impl Recipe {
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
        self.check_twists()
    }

    fn check_twists(&self) -> Result<(), RecipeError> {
        let Twists {
            spread,
            reward_scale,
            newcomers_every,
            change_at,
            ..
        } = self.twists;
        let gap = newcomers_every.unwrap_or(1.0);
        let checks = [
            (
                "spread",
                spread,
                (0.0..=1e6).contains(&spread),
                "between 0 and 1000000",
            ),
            (
                "reward-scale",
                reward_scale,
                reward_scale > 0.0 && reward_scale <= 1.0,
                "above 0 and at most 1",
            ),
            (
                "newcomers-every",
                gap,
                gap > 0.0 && gap <= 1e15,
                "above 0 and at most 10^15",
            ),
            (
                "clusters",
                self.clusters as f64,
                change_at.is_none() || self.clusters > 1,
                "at least 2 where users change to another",
            ),
        ];
        match checks.into_iter().find(|(_, _, is_good, _)| !is_good) {
            Some((name, value, _, requirement)) => Err(RecipeError::OutOfRange {
                name,
                value,
                requirement: requirement.into(),
            }),
            None => Ok(()),
        }
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
