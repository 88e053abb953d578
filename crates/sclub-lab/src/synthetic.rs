//! The paper's synthetic world (section 5.1), and variations of it ([`Twists`]).

mod items;
mod means;
mod recipe;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_other_settings;
mod twists;
mod users;
mod vectors;

use pulp::Arch;
use rand::RngExt;
use sclub::UserId;

use crate::cascade::{average_list, best_list};
use crate::normals::Normals;
use crate::streams::{Purpose, stream};
use crate::world::{BLOCK, Block, Changed, Truth, World};
use items::Items;
use means::Misspecified;
use vectors::DrawVectors;

pub use recipe::{Frequencies, MAX_USERS, Recipe, RecipeError};
pub use twists::{CASCADE_SCALE, CORRUPTED_ROUNDS, Sizes, Twists};

/// Users with given tastes, or in clusters; items drawn anew in each round, or from a fixed set.
#[derive(Debug, Clone)]
pub struct Synthetic {
    recipe: Recipe,
    seed: u64,
    truth: Truth,
    /// The users' own weight vectors, one after the other, before and after they change; empty if
    /// all users have the vectors of their clusters.
    own: [Vec<f64>; 2],
    /// True if the tastes are in clusters, and not each user's own.
    is_clustered: bool,
    /// The end of each user's share of the arrivals, in [0, 1].
    arrivals: Vec<f64>,
    items: Items,
    misspecified: Option<Misspecified>,
    /// True for users whose rewards are corrupted; empty if there are none.
    is_corrupted: Vec<bool>,
}

impl Synthetic {
    /// The world of a recipe and a seed.
    ///
    /// # Errors
    /// As [`Recipe::check`].
    pub fn new(recipe: Recipe, seed: u64) -> Result<Self, RecipeError> {
        recipe.check()?;
        if let Some(item_clusters) = recipe.twists.item_clusters {
            return Ok(Self::with_item_clusters(recipe, item_clusters, seed));
        }
        let mut normals = Normals::new(seed, Purpose::Tastes, 0);
        let weights = (0..recipe.clusters)
            .map(|_| {
                let mut weights = vec![0.0; recipe.dim];
                let (mut mean, mut scratch) = ([0.0], [0.0]);
                Arch::new().dispatch(DrawVectors {
                    normals: &mut normals,
                    weights: &vec![0.0; recipe.dim],
                    features: &mut weights,
                    means: &mut mean,
                    scratch: &mut scratch,
                });
                weights
            })
            .collect();
        let cluster_of = users::clusters(&recipe, seed);
        let arrivals = users::arrivals(&recipe, seed, &cluster_of);
        let users = (cluster_of, arrivals);
        Ok(Self::of_tastes(recipe, weights, users, seed, true))
    }

    /// The world of users whose weight vectors are given, `weights[user]`. The recipe's numbers of
    /// users and clusters are those of `weights`.
    ///
    /// # Errors
    /// As [`Recipe::check`]; also if a vector does not have the recipe's dimension, if the recipe has a
    /// spread, an overlap or clusters of items, or if rewards are Bernoulli and a mean would not be between 0 and 1.
    pub fn with_weights(
        recipe: Recipe,
        weights: Vec<Vec<f64>>,
        seed: u64,
    ) -> Result<Self, RecipeError> {
        let recipe = Recipe {
            users: weights.len(),
            clusters: weights.len(),
            ..recipe
        };
        recipe.check()?;
        if let Some(other) = weights.iter().find(|vector| vector.len() != recipe.dim) {
            return Err(RecipeError::OutOfRange {
                name: "dim",
                value: recipe.dim as f64,
                requirement: format!("as many as the users' vectors have, {}", other.len()),
            });
        }
        let Twists {
            spread,
            overlap,
            item_clusters,
            ..
        } = recipe.twists;
        let item_clusters = item_clusters.map_or(0.0, |clusters| clusters as f64);
        let drawn = [
            ("spread", spread),
            ("overlap", overlap),
            ("item-clusters", item_clusters),
        ];
        if let Some((name, value)) = drawn.into_iter().find(|&(_, value)| value != 0.0) {
            return Err(RecipeError::OutOfRange {
                name,
                value,
                requirement: "0 if tastes are given".into(),
            });
        }
        recipe.check_tastes(&weights)?;
        let cluster_of = users::clusters(&recipe, seed);
        let arrivals = users::arrivals(&recipe, seed, &cluster_of);
        let users = (cluster_of, arrivals);
        Ok(Self::of_tastes(recipe, weights, users, seed, false))
    }

    /// The world whose users are grouped anew for each cluster of items. Users who are together in all groups
    /// are a cluster.
    fn with_item_clusters(recipe: Recipe, item_clusters: usize, seed: u64) -> Self {
        let first = users::clusters(&recipe, seed);
        let arrivals = users::arrivals(&recipe, seed, &first);
        let (cluster_of, weights) = users::grouped(&recipe, item_clusters, seed, first);
        Self::of_tastes(recipe, weights, (cluster_of, arrivals), seed, true)
    }

    fn of_tastes(
        recipe: Recipe,
        mut weights: Vec<Vec<f64>>,
        (cluster_of, arrivals): (Vec<u32>, Vec<f64>),
        seed: u64,
        is_clustered: bool,
    ) -> Self {
        let changed = recipe.twists.change_at.map(|after| Changed {
            after,
            cluster_of: users::other_clusters(&recipe, seed, &cluster_of),
        });
        let later = changed.as_ref().map_or(&[][..], |c| &c.cluster_of);
        let mut own = [&cluster_of[..], later].map(|clusters| {
            if recipe.twists.spread != 0.0 {
                users::own_weights(&recipe, seed, clusters, &weights)
            } else if recipe.twists.overlap != 0.0 {
                users::between_clusters(&recipe, seed, clusters, &weights)
            } else {
                Vec::new()
            }
        });
        let every_weight = own.iter_mut().chain(&mut weights).flatten();
        every_weight.for_each(|weight| *weight *= recipe.twists.reward_scale);
        let truth = Truth {
            cluster_of,
            weights,
            rewards: recipe.rewards,
            changed,
            stock: None,
        };
        Self {
            recipe,
            seed,
            truth,
            own,
            is_clustered,
            arrivals,
            items: Items::new(&recipe, seed),
            misspecified: Misspecified::new(&recipe, seed),
            is_corrupted: means::corrupted_users(&recipe, seed),
        }
    }

    /// The weight vector of a user in a round, which counts from 0.
    fn weights(&self, user: usize, round: u64) -> &[f64] {
        let has_changed = self.recipe.twists.has_changed(round);
        let own = &self.own[usize::from(has_changed)];
        if own.is_empty() {
            &self.truth.weights[self.truth.clusters_in(round)[user] as usize]
        } else {
            &own[user * self.recipe.dim..][..self.recipe.dim]
        }
    }

    /// The users of the rounds of a block. If a round may have several users: also the number of users up to the
    /// end of each round.
    fn draw_users(&self, index: u64, rounds: usize) -> (Vec<usize>, Vec<usize>) {
        let mut draws = stream(self.seed, Purpose::Arrivals, index);
        let mut users = Vec::with_capacity(rounds);
        let mut ends = Vec::new();
        let first = self.first_round(index);
        for round in first..first + rounds as u64 {
            let present = self.recipe.twists.present(round, self.recipe.users);
            let there = &self.arrivals[..present];
            let Some(users_a_round) = self.recipe.users_a_round else {
                let draw = draws.random::<f64>() * there[present - 1];
                let user = there.partition_point(|&end| end <= draw);
                users.push(user.min(present - 1));
                continue;
            };
            let mut before = 0.0;
            for (user, &end) in there.iter().enumerate() {
                if draws.random::<f64>() < users_a_round * (end - before) {
                    users.push(user);
                }
                before = end;
            }
            ends.push(users.len());
        }
        (users, ends)
    }

    /// The first round of a block, counted from 0.
    fn first_round(&self, index: u64) -> u64 {
        index * self.block_rounds() as u64
    }

    /// The share of each user in all appearances, once all have come.
    pub fn frequencies(&self) -> Vec<f64> {
        let mut before = 0.0;
        self.arrivals
            .iter()
            .map(|&end| {
                let share = end - before;
                before = end;
                share
            })
            .collect()
    }
}

impl World for Synthetic {
    fn dim(&self) -> usize {
        self.recipe.dim
    }

    fn users(&self) -> u64 {
        self.recipe.users as u64
    }

    fn truth(&self) -> Option<&Truth> {
        self.is_clustered.then_some(&self.truth)
    }

    fn told(&self) -> Vec<(&'static str, f64)> {
        self.recipe.told(self.is_clustered)
    }

    fn new_block(&self) -> Block {
        let Recipe {
            dim,
            candidates,
            rewards,
            twists,
            ..
        } = self.recipe;
        let block = Block::new(dim, candidates, rewards).expect("the recipe has been checked");
        Block {
            slots: twists.cascade.unwrap_or(1),
            is_cascade: twists.cascade.is_some(),
            mirror: twists.reward_scale,
            ..block
        }
    }

    fn block_rounds(&self) -> usize {
        match self.recipe.users_a_round {
            Some(users) => ((BLOCK as f64 / users) as usize).clamp(1, BLOCK),
            None => BLOCK,
        }
    }

    fn draw(&self, index: u64, rounds: usize, block: &mut Block) {
        let Recipe {
            candidates,
            rewards,
            twists,
            ..
        } = self.recipe;
        let mut drawn = self.items.of_block(&self.recipe, self.seed, index);
        let mut noise = stream(self.seed, Purpose::Noise, index);
        let (users, ends) = self.draw_users(index, rounds);
        block.clear(users.len());
        block.ends = ends;
        let first = self.first_round(index);
        for (at, means) in block.means.chunks_exact_mut(candidates).enumerate() {
            let user = users[at];
            let round = if block.ends.is_empty() {
                at
            } else {
                block.ends.partition_point(|&end| end <= at)
            };
            block.users.push(user as UserId);
            let round = first + round as u64;
            drawn.draw(self.weights(user, round), means);
            block.items[at]
                .refill_by_feature(candidates, &drawn.features)
                .expect("a drawn item has good features");
            if !drawn.ids.is_empty() {
                block.items[at]
                    .set_ids(&drawn.ids)
                    .expect("each item has an id");
            }
            if let Some(misspecified) = &self.misspecified {
                misspecified.add(user, &drawn.ids, &drawn.features, means);
            }
            let is_corrupted = round < twists.corrupted_rounds
                && self.is_corrupted.get(user).is_some_and(|&is| is);
            if !self.is_corrupted.is_empty() {
                block.corrupted.push(is_corrupted);
            }
            if let Some(slots) = twists.cascade {
                block.best.push(best_list(means, slots));
                block.average.push(average_list(means, slots));
                let attractive = means.iter().map(|&mean| {
                    let mean = match is_corrupted {
                        true => block.mirror - mean,
                        false => mean,
                    };
                    f64::from(u8::from(rewards.draw(&mut noise) < mean))
                });
                block.given.extend(attractive);
                continue;
            }
            block
                .best
                .push(means.iter().copied().fold(f64::NEG_INFINITY, f64::max));
            block
                .average
                .push(means.iter().sum::<f64>() / candidates as f64);
            block.noise.push(rewards.draw(&mut noise));
        }
    }
}
