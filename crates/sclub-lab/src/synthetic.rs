//! The paper's synthetic world (section 5.1).

use std::f64::consts::FRAC_1_SQRT_2;

use pulp::{Arch, Simd, WithSimd};
use rand::RngExt;
use rand_distr::{Distribution, Exp1, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub::UserId;
use serde::Serialize;

use crate::normals::{BATCH, Normals};
use crate::streams::{Purpose, stream};
use crate::world::{BLOCK, Block, Rewards, Truth, World};

/// Most users of a world: what fits into the memory of a large machine.
pub const MOST_USERS: usize = 100_000_000;

/// How often users appear.
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

/// What a synthetic world is made from.
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
    /// How often users appear.
    pub frequencies: Frequencies,
    /// How rewards vary.
    pub rewards: Rewards,
    /// p̄, how many users appear in a round on average, each by herself (Theorem 3's setting); exactly
    /// one where it is absent.
    pub users_a_round: Option<f64>,
}

/// Why a world cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RecipeError {
    /// A number outside its range.
    #[error("{name} is {value:?}; it must be {requirement}")]
    OutOfRange {
        /// What.
        name: &'static str,
        /// What it is.
        value: f64,
        /// What it must be.
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
        range("users", self.users, 1, MOST_USERS)?;
        if self.clusters > self.users {
            let requirement = format!("at most the number of users, {}", self.users);
            let value = self.clusters as f64;
            return Err(RecipeError::OutOfRange {
                name: "clusters",
                value,
                requirement,
            });
        }
        range("clusters", self.clusters, 1, MOST_USERS)?;
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

/// Users with given tastes, or in clusters of equal size; items drawn anew in each round.
#[derive(Debug, Clone)]
pub struct Synthetic {
    recipe: Recipe,
    seed: u64,
    truth: Truth,
    /// Whether the tastes are in clusters, and not each user's own.
    is_clustered: bool,
    /// Where each user's share of the arrivals ends, in [0, 1].
    arrivals: Vec<f64>,
}

impl Synthetic {
    /// The world of a recipe and a seed.
    ///
    /// # Errors
    /// As [`Recipe::check`].
    pub fn new(recipe: Recipe, seed: u64) -> Result<Self, RecipeError> {
        recipe.check()?;
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
        Ok(Self::of_tastes(recipe, weights, seed, true))
    }

    /// The world of users whose weight vectors are given, `weights[user]`. The recipe's numbers of
    /// users and clusters are those of `weights`.
    ///
    /// # Errors
    /// As [`Recipe::check`], and where a vector has not the recipe's dimension.
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
        Ok(Self::of_tastes(recipe, weights, seed, false))
    }

    fn of_tastes(recipe: Recipe, weights: Vec<Vec<f64>>, seed: u64, is_clustered: bool) -> Self {
        let cluster_of: Vec<u32> = (0..recipe.users)
            .map(|user| (user % recipe.clusters) as u32)
            .collect();
        let arrivals = arrivals(&recipe, seed, &cluster_of);
        let truth = Truth {
            cluster_of,
            weights,
            rewards: recipe.rewards,
        };
        Self {
            recipe,
            seed,
            truth,
            is_clustered,
            arrivals,
        }
    }

    /// Who appears in the rounds of a block, and how many by the end of each where there may be
    /// several in one.
    fn who_appears(&self, index: u64, rounds: usize) -> (Vec<usize>, Vec<usize>) {
        let mut draws = stream(self.seed, Purpose::Arrivals, index);
        let mut users = Vec::with_capacity(rounds);
        let mut ends = Vec::new();
        let Some(users_a_round) = self.recipe.users_a_round else {
            for _ in 0..rounds {
                let draw = draws.random::<f64>() * self.arrivals[self.arrivals.len() - 1];
                let user = self.arrivals.partition_point(|&end| end <= draw);
                users.push(user.min(self.recipe.users - 1));
            }
            return (users, ends);
        };
        for _ in 0..rounds {
            let mut before = 0.0;
            for (user, &end) in self.arrivals.iter().enumerate() {
                if draws.random::<f64>() < users_a_round * (end - before) {
                    users.push(user);
                }
                before = end;
            }
            ends.push(users.len());
        }
        (users, ends)
    }

    /// The share of each user in all appearances.
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

/// Vectors uniform on the sphere in d − 1 dimensions, a constant 1 appended, divided by √2: the
/// transformation of section 5.1. Inner products of two such vectors lie in [0, 1].
///
/// The vectors are drawn into `features[k * count + i]`, `count` being the length of `means`, and
/// their inner products with `weights` into `means`.
struct DrawVectors<'a> {
    normals: &'a mut Normals,
    weights: &'a [f64],
    features: &'a mut [f64],
    means: &'a mut [f64],
    /// As long as `means`.
    scratch: &'a mut [f64],
}

impl WithSimd for DrawVectors<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let DrawVectors {
            normals,
            weights,
            features,
            means,
            scratch,
        } = self;
        let count = means.len();
        let scratch = &mut scratch[..count];
        let (directions, constants) = features.split_at_mut(count * (weights.len() - 1));
        for batch in directions.chunks_mut(BATCH) {
            let numbers = normals.batch();
            if let Ok(whole) = <&mut [f64; BATCH]>::try_from(&mut *batch) {
                *whole = numbers;
            } else {
                batch.copy_from_slice(&numbers[..batch.len()]);
            }
        }
        scratch.fill(0.0);
        for row in directions.chunks_exact(count) {
            for (length, &value) in scratch.iter_mut().zip(row) {
                *length = value.mul_add(value, *length);
            }
        }
        for length in scratch.iter_mut() {
            *length = FRAC_1_SQRT_2 / length.sqrt();
        }
        constants.fill(FRAC_1_SQRT_2);
        means.fill(FRAC_1_SQRT_2 * weights[weights.len() - 1]);
        for (row, &weight) in directions.chunks_exact_mut(count).zip(weights) {
            for ((value, &scale), mean) in row.iter_mut().zip(&*scratch).zip(&mut *means) {
                *value *= scale;
                *mean = weight.mul_add(*value, *mean);
            }
        }
    }
}

/// A flat Dirichlet draw: exponential shares of one whole.
fn dirichlet(rng: &mut Xoshiro256PlusPlus, count: usize) -> Vec<f64> {
    let mut shares: Vec<f64> = (0..count).map(|_| Exp1.sample(rng)).collect();
    let whole: f64 = shares.iter().sum();
    shares.iter_mut().for_each(|share| *share /= whole);
    shares
}

/// Where each user's share of the arrivals ends.
fn arrivals(recipe: &Recipe, seed: u64, cluster_of: &[u32]) -> Vec<f64> {
    let mut rng = stream(seed, Purpose::Frequencies, 0);
    let share: Vec<f64> = match recipe.frequencies {
        Frequencies::Uniform => vec![1.0 / recipe.users as f64; recipe.users],
        Frequencies::Users => dirichlet(&mut rng, recipe.users),
        Frequencies::Clusters => {
            let shares = dirichlet(&mut rng, recipe.clusters);
            let mut sizes = vec![0.0; recipe.clusters];
            cluster_of
                .iter()
                .for_each(|&cluster| sizes[cluster as usize] += 1.0);
            cluster_of
                .iter()
                .map(|&c| shares[c as usize] / sizes[c as usize])
                .collect()
        }
    };
    let mut end = 0.0;
    share
        .iter()
        .map(|share| {
            end += share;
            end
        })
        .collect()
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

    fn new_block(&self) -> Block {
        let Recipe {
            dim,
            candidates,
            rewards,
            ..
        } = self.recipe;
        Block::new(dim, candidates, rewards).expect("the recipe has been checked")
    }

    fn block_rounds(&self) -> usize {
        match self.recipe.users_a_round {
            Some(users) => ((BLOCK as f64 / users) as usize).clamp(1, BLOCK),
            None => BLOCK,
        }
    }

    fn draw(&self, index: u64, rounds: usize, block: &mut Block) {
        let Recipe {
            dim,
            candidates,
            rewards,
            ..
        } = self.recipe;
        let mut normals = Normals::new(self.seed, Purpose::Items, index);
        let mut noise = stream(self.seed, Purpose::Noise, index);
        let (users, ends) = self.who_appears(index, rounds);
        block.clear(users.len());
        block.ends = ends;
        let mut features = vec![0.0; candidates * dim];
        let mut scratch = vec![0.0; candidates];
        for (round, means) in block.means.chunks_exact_mut(candidates).enumerate() {
            let user = users[round];
            block.users.push(user as UserId);
            Arch::new().dispatch(DrawVectors {
                normals: &mut normals,
                weights: &self.truth.weights[self.truth.cluster_of[user] as usize],
                features: &mut features,
                means,
                scratch: &mut scratch,
            });
            block.items[round]
                .refill_by_feature(candidates, &features)
                .expect("a drawn item has good features");
            block
                .best
                .push(means.iter().copied().fold(f64::NEG_INFINITY, f64::max));
            block
                .average
                .push(means.iter().sum::<f64>() / candidates as f64);
            block.noise.push(match rewards {
                Rewards::Bernoulli => noise.random::<f64>(),
                Rewards::Gaussian(_) => StandardNormal.sample(&mut noise),
            });
        }
    }
}
