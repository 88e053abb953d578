//! Running policies in worlds.
//!
//! All policies of a seed face the same users, items and noise: each block of rounds is drawn once
//! and played by all. Nothing depends on which thread does what, so any number of threads gives the
//! same bits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rayon::prelude::*;
use sclub::{Assumptions, Change, Observation, Policy};
use serde::Serialize;

use crate::adjusted_rand::adjusted_rand;
use crate::policies::{self, InitialGraph, Name, Overrides, Preset};
use crate::synthetic::{Recipe, RecipeError, Synthetic};
use crate::world::{BLOCK, Block, World};

/// Points of a regret curve at equal distances, for drawing.
pub const CURVE_POINTS: u64 = 64;

/// What to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// The world.
    pub recipe: Recipe,
    /// Who plays.
    pub policies: Vec<Name>,
    /// T
    pub rounds: u64,
    /// The worlds' seeds.
    pub seeds: Vec<u64>,
    /// Where the constants come from.
    pub preset: Preset,
    /// Constants to use in place of the preset's.
    pub overrides: Overrides,
    /// The graph that CLUB starts from.
    pub graph: InitialGraph,
    /// Threads to use.
    pub threads: usize,
}

/// Why an experiment cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The world cannot be made.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// A policy cannot be made.
    #[error(transparent)]
    Policy(#[from] sclub::Error),
    /// The threads cannot be started.
    #[error("cannot start the threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// Nothing to run.
    #[error("{0}")]
    Nothing(&'static str),
}

/// Follows a run, from several threads at once.
pub trait Observer: Sync {
    /// So many rounds more have been played by one policy.
    fn played(&self, rounds: u64);

    /// Whether to stop. Seeds that are not complete are then left out.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// An observer that does not care.
impl Observer for () {
    fn played(&self, _rounds: u64) {}
}

/// One policy in one world, to the end.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// Who played.
    pub policy: Name,
    /// With which constants.
    pub preset: Preset,
    /// In which world.
    pub seed: u64,
    /// How long.
    pub rounds: u64,
    /// What was missed: the sum of the best mean less the chosen item's.
    pub regret: f64,
    /// The sum of the rewards.
    pub reward: f64,
    /// What a choice at random would have missed, in expectation.
    pub random_regret: f64,
    /// Clusters at the end.
    pub clusters: usize,
    /// How alike those are to the true ones; null where there are none.
    pub adjusted_rand: Option<f64>,
    /// Time inside recommend and learn.
    pub policy_seconds: f64,
    /// (round, regret so far) at powers of two and at the end.
    pub curve: Vec<(u64, f64)>,
    /// (round, regret so far) at equal distances.
    #[serde(skip)]
    pub even_curve: Vec<(u64, f64)>,
    /// A digest of the policy's final state.
    #[serde(skip)]
    pub digest: u64,
}

/// A policy on its way through a world.
struct Player {
    name: Name,
    policy: Box<dyn Policy>,
    rounds: u64,
    regret: f64,
    reward: f64,
    random_regret: f64,
    seconds: f64,
    curve: Vec<(u64, f64)>,
    even_curve: Vec<(u64, f64)>,
    item: Vec<f64>,
    changes: Vec<Change>,
}

impl Player {
    fn new(name: Name, policy: Box<dyn Policy>) -> Self {
        let item = vec![0.0; policy.dim()];
        Self {
            name,
            policy,
            rounds: 0,
            regret: 0.0,
            reward: 0.0,
            random_regret: 0.0,
            seconds: 0.0,
            curve: Vec::new(),
            even_curve: vec![(0, 0.0)],
            item,
            changes: Vec::new(),
        }
    }

    /// Plays a block. The clock runs for the block as a whole: looking up the reward that the world
    /// has drawn takes a few nanoseconds a round, reading the clock twice a round would take more.
    fn play(&mut self, block: &Block, total: u64) -> Result<(), sclub::Error> {
        let start = Instant::now();
        let step = total.div_ceil(CURVE_POINTS);
        for round in 0..block.len() {
            let user = block.users[round];
            let items = &block.items[round];
            let choice = self.policy.recommend(user, items)?.index;
            let reward = block.reward(round, choice);
            items.copy_item(choice, &mut self.item);
            let observation = Observation {
                user,
                item: &self.item,
                reward,
            };
            self.policy.learn_round(&[observation], &mut self.changes)?;
            self.changes.clear();

            self.rounds += 1;
            self.reward += reward;
            self.regret += block.best[round] - block.mean(round, choice);
            self.random_regret += block.best[round] - block.average[round];
            if self.rounds.is_power_of_two() || self.rounds == total {
                self.curve.push((self.rounds, self.regret));
            }
            if self.rounds.is_multiple_of(step) || self.rounds == total {
                self.even_curve.push((self.rounds, self.regret));
            }
        }
        self.seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    fn finish(self, preset: Preset, seed: u64, world: &dyn World) -> Run {
        let adjusted_rand = world.truth().map(|truth| {
            let found: Vec<u64> = (0..world.users())
                .map(|user| self.policy.cluster_of(user))
                .collect();
            let true_ones: Vec<u64> = truth.cluster_of.iter().map(|&c| u64::from(c)).collect();
            adjusted_rand(&found, &true_ones)
        });
        Run {
            policy: self.name,
            preset,
            seed,
            rounds: self.rounds,
            regret: self.regret,
            reward: self.reward,
            random_regret: self.random_regret,
            clusters: self.policy.clusters(),
            adjusted_rand,
            policy_seconds: self.seconds,
            curve: self.curve,
            even_curve: self.even_curve,
            digest: self.policy.digest(),
        }
    }
}

impl Experiment {
    /// Checks the experiment without running it.
    ///
    /// # Errors
    /// [`RunError`] names what cannot be.
    pub fn check(&self) -> Result<(), RunError> {
        self.recipe.check()?;
        if self.rounds == 0 {
            return Err(RunError::Nothing("rounds is 0; there must be at least one"));
        }
        if self.seeds.is_empty() {
            return Err(RunError::Nothing("seeds is 0; there must be at least one"));
        }
        if self.policies.is_empty() {
            return Err(RunError::Nothing("there is no policy to run"));
        }
        self.params()?;
        Ok(())
    }

    /// The constants that the policies play with.
    ///
    /// # Errors
    /// [`sclub::Error::BadParameter`].
    pub fn params(&self) -> Result<sclub::Params, sclub::Error> {
        let assumptions = Assumptions {
            dim: self.recipe.dim,
            noise: self.recipe.noise_scale(),
            smallest_eigenvalue: self.recipe.smallest_eigenvalue(),
            horizon: self.rounds,
            clusters: self.recipe.clusters as u64,
            users: self.recipe.users as u64,
        };
        policies::params(self.preset, &self.overrides, &assumptions)
    }

    /// Runs every policy in the world of every seed. Returns the runs by seed, then policy; where the
    /// observer stops it, those of the seeds that are complete.
    ///
    /// # Errors
    /// [`RunError`], before anything has run.
    pub fn run(&self, observer: &dyn Observer) -> Result<Vec<Run>, RunError> {
        self.check()?;
        // More threads than policies to play would have nothing to do.
        let threads = self.threads.min(self.seeds.len() * self.policies.len());
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()?;
        // Seeds are taken in order, so that what an interruption keeps are the first ones.
        let next = AtomicUsize::new(0);
        let workers: Vec<Vec<(usize, Vec<Run>)>> = pool.install(|| {
            let workers = (0..threads.min(self.seeds.len())).into_par_iter();
            workers
                .map(|_| self.run_some(&next, observer))
                .collect::<Result<_, _>>()
        })?;
        let mut seeds: Vec<(usize, Vec<Run>)> = workers.into_iter().flatten().collect();
        seeds.sort_unstable_by_key(|&(place, _)| place);
        Ok(seeds.into_iter().flat_map(|(_, runs)| runs).collect())
    }

    /// Runs the seeds that nobody else has taken yet.
    fn run_some(
        &self,
        next: &AtomicUsize,
        observer: &dyn Observer,
    ) -> Result<Vec<(usize, Vec<Run>)>, RunError> {
        let mut done = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(&seed) = self.seeds.get(place) else {
                return Ok(done);
            };
            let Some(runs) = self.run_seed(seed, observer)? else {
                return Ok(done);
            };
            done.push((place, runs));
        }
    }

    fn run_seed(&self, seed: u64, observer: &dyn Observer) -> Result<Option<Vec<Run>>, RunError> {
        let params = self.params()?;
        let world = Synthetic::new(self.recipe, seed)?;
        let mut players = Vec::new();
        for &name in &self.policies {
            if let Some(policy) = policies::make(name, &world, seed, self.graph, &params)? {
                players.push(Player::new(name, policy));
            }
        }
        let mut block = world.new_block();
        for index in 0..self.rounds.div_ceil(BLOCK as u64) {
            if observer.is_cancelled() {
                return Ok(None);
            }
            let rounds = (self.rounds - index * BLOCK as u64).min(BLOCK as u64);
            world.draw(index, rounds as usize, &mut block);
            players.par_iter_mut().try_for_each(|player| {
                player.play(&block, self.rounds)?;
                observer.played(rounds);
                Ok::<(), sclub::Error>(())
            })?;
        }
        Ok(Some(
            players
                .into_iter()
                .map(|p| p.finish(self.preset, seed, &world))
                .collect(),
        ))
    }
}
