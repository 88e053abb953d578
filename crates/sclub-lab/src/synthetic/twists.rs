//! Differences from the paper's world.

use serde::Serialize;

use super::recipe::{Recipe, RecipeError};
use crate::named::named;
use crate::world::Rewards;

/// The default of [`Twists::corrupted_rounds`], as in the published code of RCLUB-WCU.
pub const CORRUPTED_ROUNDS: u64 = 20_000;

/// The default of [`Twists::reward_scale`] with [`Twists::cascade`]. With 1 an average item is attractive with
/// probability 1/2, nearly every list is clicked, and policies hardly differ.
pub const CASCADE_SCALE: f64 = 0.2;

/// The maximum number of fixed items.
const MAX_ITEMS: usize = 1_000_000;

/// The maximum number of servers.
const MAX_SERVERS: usize = 1_000_000;

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
    /// ε*: the mean reward of an item for a user is θᵀx plus a number that is uniform between −ε* and ε*, fixed for
    /// each user and item. An item is its id if it has one, else its features. Bernoulli means stay between 0 and 1.
    pub misspecified: f64,
    /// The share of users whose rewards are corrupted: with s the reward scale, their rewards have the mean s − μ in
    /// place of the true mean μ, which is −uᵀv in place of uᵀv for directions u and v. Regret counts true means.
    pub corrupted: f64,
    /// The number of rounds, from the first, in which they are.
    pub corrupted_rounds: u64,
    /// The number of items that there are, each with an id; every round has some of them as candidates, all sets
    /// alike. Items are drawn anew in each round if it is absent.
    pub items_fixed: Option<usize>,
    /// The number of clusters of those items, as evenly as can be. Those of one cluster differ in features that all
    /// others have as 0, and the users are grouped anew for each of them.
    pub item_clusters: Option<usize>,
    /// K: a list of K items is shown, and the user clicks the first that is attractive. Mean rewards are
    /// probabilities of being attractive.
    pub cascade: Option<usize>,
    /// γ: a user's weight vector lies between that of the user's cluster and that of another one, less than γ/2
    /// from the former and at most half way. So users of a cluster are less than γ apart.
    pub overlap: f64,
    /// σ: items lie in a plane, plus Gaussian noise of this standard deviation in each feature, brought back to
    /// length 1.
    pub smoothed: Option<f64>,
    /// The number of servers, for policies that have several: each user is at home on one of them.
    pub servers: Option<usize>,
}

impl Default for Twists {
    fn default() -> Self {
        Self {
            sizes: Sizes::Equal,
            spread: 0.0,
            reward_scale: 1.0,
            newcomers_every: None,
            change_at: None,
            misspecified: 0.0,
            corrupted: 0.0,
            corrupted_rounds: CORRUPTED_ROUNDS,
            items_fixed: None,
            item_clusters: None,
            cascade: None,
            overlap: 0.0,
            smoothed: None,
            servers: None,
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

    /// The settings that later releases added, by the name of their flag, without those that change nothing. Stored
    /// results are found by this text.
    pub fn later_settings(&self) -> Vec<(&'static str, f64)> {
        let count = |value: Option<usize>| value.map(|value| value as f64);
        let above_0 = |value: f64| (value != 0.0).then_some(value);
        let corrupted_rounds = above_0(self.corrupted).map(|_| self.corrupted_rounds as f64);
        let all = [
            ("misspecified", above_0(self.misspecified)),
            ("corrupted", above_0(self.corrupted)),
            ("corrupted-rounds", corrupted_rounds),
            ("items-fixed", count(self.items_fixed)),
            ("item-clusters", count(self.item_clusters)),
            ("cascade", count(self.cascade)),
            ("overlap", above_0(self.overlap)),
            ("smoothed", self.smoothed),
            ("servers", count(self.servers)),
        ];
        let set = all.into_iter();
        set.filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }

    /// Checks every number and combination.
    pub(super) fn check(&self, recipe: &Recipe) -> Result<(), RecipeError> {
        self.check_combinations(recipe)?;
        self.check_numbers(recipe)
    }

    fn check_numbers(&self, recipe: &Recipe) -> Result<(), RecipeError> {
        let between = |name, value: f64, low: f64, high: f64| {
            let is_good = (low..=high).contains(&value);
            (name, value, is_good, format!("between {low} and {high}"))
        };
        let count = |name, value: Option<usize>, low: usize, high: usize| {
            between(name, value.unwrap_or(low) as f64, low as f64, high as f64)
        };
        let gap = self.newcomers_every.unwrap_or(1.0);
        let moves = self.change_at.is_some() || self.overlap != 0.0;
        // A number that must be at least another one is compared with that first.
        let checks = [
            between("spread", self.spread, 0.0, 1e6),
            (
                "reward-scale",
                self.reward_scale,
                self.reward_scale > 0.0 && self.reward_scale <= 1.0,
                "above 0 and at most 1".into(),
            ),
            (
                "newcomers-every",
                gap,
                gap > 0.0 && gap <= 1e15,
                "above 0 and at most 10^15".into(),
            ),
            (
                "clusters",
                recipe.clusters as f64,
                !moves || recipe.clusters > 1,
                match self.change_at {
                    Some(_) => "at least 2 where users change to another".into(),
                    None => "at least 2 where clusters overlap".into(),
                },
            ),
            between("misspecified", self.misspecified, 0.0, 1.0),
            between("corrupted", self.corrupted, 0.0, 1.0),
            (
                "items-fixed",
                self.items_fixed.unwrap_or(MAX_ITEMS) as f64,
                (self.items_fixed)
                    .is_none_or(|items| (recipe.candidates..=MAX_ITEMS).contains(&items)),
                format!(
                    "between the number of items of a round, {}, and {MAX_ITEMS}",
                    recipe.candidates
                ),
            ),
            (
                "item-clusters",
                self.item_clusters.unwrap_or(1) as f64,
                (self.item_clusters).is_none_or(|clusters| (1..recipe.dim).contains(&clusters)),
                format!(
                    "at least 1 and below the number of features, {}",
                    recipe.dim
                ),
            ),
            (
                "cascade",
                self.cascade.unwrap_or(1) as f64,
                (self.cascade).is_none_or(|k| (1..=recipe.candidates).contains(&k)),
                format!(
                    "between 1 and the number of items of a round, {}",
                    recipe.candidates
                ),
            ),
            between("overlap", self.overlap, 0.0, 2.0),
            between("smoothed", self.smoothed.unwrap_or(0.0), 0.0, 1e3),
            (
                "dim",
                recipe.dim as f64,
                self.smoothed.is_none() || recipe.dim > 1,
                "at least 2 with smoothed items".into(),
            ),
            count("servers", self.servers, 1, MAX_SERVERS),
        ];
        match checks.into_iter().find(|(_, _, is_good, _)| !is_good) {
            Some((name, value, _, requirement)) => Err(RecipeError::OutOfRange {
                name,
                value,
                requirement,
            }),
            None => Ok(()),
        }
    }

    fn check_combinations(&self, recipe: &Recipe) -> Result<(), RecipeError> {
        if self.item_clusters.is_some() && self.items_fixed.is_none() {
            return Err(RecipeError::Needs {
                name: "item-clusters",
                needed: "items-fixed",
                reason: "clusters are of a fixed set of items",
            });
        }
        let has_spread = self.spread != 0.0;
        let has_overlap = self.overlap != 0.0;
        let has_item_clusters = self.item_clusters.is_some();
        let has_groups = "users have a group for each cluster of items";
        let checks = [
            (
                has_item_clusters && has_spread,
                ("item-clusters", "spread"),
                has_groups,
            ),
            (
                has_item_clusters && has_overlap,
                ("item-clusters", "overlap"),
                has_groups,
            ),
            (
                has_item_clusters && self.change_at.is_some(),
                ("item-clusters", "change-at"),
                has_groups,
            ),
            (
                has_item_clusters && self.smoothed.is_some(),
                ("item-clusters", "smoothed"),
                "items of different clusters have no feature in common but the constant",
            ),
            (
                has_overlap && has_spread,
                ("overlap", "spread"),
                "both say how users differ inside a cluster",
            ),
            (
                self.cascade.is_some() && recipe.users_a_round.is_some(),
                ("cascade", "users-a-round"),
                "a round with lists has one user",
            ),
            (
                self.cascade.is_some() && recipe.rewards != Rewards::Bernoulli,
                ("cascade", "rewards gaussian"),
                "an item is clicked or not",
            ),
        ];
        match checks.into_iter().find(|(is_bad, _, _)| *is_bad) {
            Some((_, (first, second), reason)) => Err(RecipeError::Unsupported {
                first,
                second,
                reason,
            }),
            None => Ok(()),
        }
    }
}
