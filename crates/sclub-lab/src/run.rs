//! Running policies in worlds.
//!
//! All policies of a seed face the same users, items and noise: each block of rounds is drawn once
//! and played by all. Nothing depends on which thread does what, so any number of threads gives the
//! same bits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rayon::prelude::*;
use sclub::{Change, Deviations, Observation, Policy};
use serde::Serialize;

use crate::adjusted_rand::adjusted_rand;
use crate::policies::{self, Entry, InitialGraph, Name, Overrides, Preset};
use crate::setting::{Setting, SettingError};
use crate::world::{AGES, Block, Blocks, Tally, World};

/// Points of a regret curve at equal distances, for drawing.
pub const CURVE_POINTS: u64 = 64;

/// What to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// The world.
    pub world: Setting,
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
    /// What SCLUB does otherwise than the pseudo-code; [`policies::usual_deviations`] unless said.
    pub deviations: Option<Deviations>,
    /// Threads to use.
    pub threads: usize,
}

/// Why an experiment cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The world cannot be made.
    #[error(transparent)]
    World(#[from] SettingError),
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
    /// Recommendations made: one a round, or as many as users appeared.
    pub served: u64,
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
    /// (recommendations, sum of rewards) at each of [`AGES`]; empty where ages do not matter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_age: Vec<(u64, f64)>,
    /// A digest of the policy's final state.
    #[serde(skip)]
    pub digest: u64,
}

/// A policy on its way through a world.
struct Player {
    name: Name,
    policy: Box<dyn Policy>,
    preset: Preset,
    rounds: u64,
    tally: Tally,
    by_age: [(u64, f64); AGES.len()],
    seconds: f64,
    curve: Vec<(u64, f64)>,
    even_curve: Vec<(u64, f64)>,
    item: Vec<f64>,
    /// Items and rewards of a round with several users.
    together: Vec<f64>,
    rewards: Vec<f64>,
    changes: Vec<Change>,
}

impl Player {
    fn new(name: Name, preset: Preset, policy: Box<dyn Policy>) -> Self {
        let item = vec![0.0; policy.dim()];
        Self {
            name,
            policy,
            preset,
            rounds: 0,
            tally: Tally::default(),
            by_age: Default::default(),
            seconds: 0.0,
            curve: Vec::new(),
            even_curve: vec![(0, 0.0)],
            item,
            together: Vec::new(),
            rewards: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// Plays a block. The clock runs for the block as a whole: looking up the reward that the world
    /// has drawn takes a few nanoseconds a round, reading the clock twice a round would take more.
    fn play(&mut self, block: &Block, total: u64) -> Result<(), sclub::Error> {
        let start = Instant::now();
        let step = total.div_ceil(CURVE_POINTS);
        let several = !block.ends.is_empty();
        for round in 0..block.rounds() {
            if several {
                self.play_together(block, block.users_of(round))?;
            } else {
                let user = block.users[round];
                let reward = self.serve(block, round)?;
                let observation = Observation {
                    user,
                    item: &self.item,
                    reward,
                };
                self.policy.learn_round(&[observation], &mut self.changes)?;
            }
            self.changes.clear();
            self.rounds += 1;
            if self.rounds.is_power_of_two() || self.rounds == total {
                self.curve.push((self.rounds, self.tally.regret));
            }
            if self.rounds.is_multiple_of(step) || self.rounds == total {
                self.even_curve.push((self.rounds, self.tally.regret));
            }
        }
        self.seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Serves one user, counts what it brought, and leaves the item in `self.item`.
    #[inline]
    fn serve(&mut self, block: &Block, at: usize) -> Result<f64, sclub::Error> {
        let items = &block.items[at];
        let choice = self.policy.recommend(block.users[at], items)?.index;
        let reward = self.tally.count(block, at, choice);
        items.copy_item(choice, &mut self.item);
        if let Some(&age) = block.ages.get(at) {
            let (rounds, rewards) = &mut self.by_age[usize::from(age)];
            *rounds += 1;
            *rewards += reward;
        }
        Ok(reward)
    }

    /// Serves several users on the same history, then learns from all.
    fn play_together(
        &mut self,
        block: &Block,
        users: std::ops::Range<usize>,
    ) -> Result<(), sclub::Error> {
        self.together.clear();
        self.rewards.clear();
        for at in users.clone() {
            let reward = self.serve(block, at)?;
            self.rewards.push(reward);
            self.together.extend_from_slice(&self.item);
        }
        let observations: Vec<Observation<'_>> = block.users[users]
            .iter()
            .zip(self.together.chunks_exact(self.item.len()))
            .zip(&self.rewards)
            .map(|((&user, item), &reward)| Observation { user, item, reward })
            .collect();
        self.policy.learn_round(&observations, &mut self.changes)
    }

    fn finish(self, seed: u64, world: &dyn World) -> Run {
        let adjusted_rand = world.truth().map(|truth| {
            let found: Vec<u64> = (0..world.users())
                .map(|user| self.policy.cluster_of(user))
                .collect();
            let at_the_end = truth.clusters_in(self.rounds.saturating_sub(1));
            let true_ones: Vec<u64> = at_the_end.iter().map(|&c| u64::from(c)).collect();
            adjusted_rand(&found, &true_ones)
        });
        Run {
            policy: self.name,
            preset: self.preset,
            seed,
            rounds: self.rounds,
            served: self.tally.served,
            regret: self.tally.regret,
            reward: self.tally.reward,
            random_regret: self.tally.random_regret,
            clusters: self.policy.clusters(),
            adjusted_rand,
            policy_seconds: self.seconds,
            curve: self.curve,
            even_curve: self.even_curve,
            by_age: if self.by_age.iter().any(|&(rounds, _)| rounds > 0) {
                self.by_age.to_vec()
            } else {
                Vec::new()
            },
            digest: self.policy.digest(),
        }
    }
}

/// Plays some policies through a world, each round drawn once for all of them. Policies that the
/// world has no truth to tell are left out; nothing comes back where the observer stops it.
///
/// # Errors
/// [`RunError::Policy`].
pub fn play(
    world: &dyn World,
    seed: u64,
    entries: &[Entry],
    rounds: u64,
    observer: &dyn Observer,
) -> Result<Option<Vec<Run>>, RunError> {
    let mut players = Vec::new();
    for entry in entries {
        if let Some(policy) = policies::make(entry, world, seed)? {
            players.push(Player::new(entry.name, entry.preset, policy));
        }
    }
    let mut blocks = Blocks::new(world, rounds);
    let mut block = world.new_block();
    while let Some(some) = blocks.draw(&mut block) {
        if observer.is_cancelled() {
            return Ok(None);
        }
        players.par_iter_mut().try_for_each(|player| {
            player.play(&block, blocks.rounds())?;
            observer.played(some);
            Ok::<(), sclub::Error>(())
        })?;
    }
    let runs = players.into_iter().map(|p| p.finish(seed, world));
    Ok(Some(runs.collect()))
}

impl Experiment {
    /// Checks the experiment without running it.
    ///
    /// # Errors
    /// [`RunError`] names what cannot be.
    pub fn check(&self) -> Result<(), RunError> {
        self.world.check()?;
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
        let assumptions = self.world.assumptions(self.rounds);
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
        let deviations = self
            .deviations
            .unwrap_or_else(|| policies::usual_deviations(self.preset));
        let entries: Vec<Entry> = self
            .policies
            .iter()
            .map(|&name| Entry {
                name,
                preset: self.preset,
                params,
                graph: self.graph,
                deviations,
            })
            .collect();
        let world = self.world.world(seed)?;
        play(&*world, seed, &entries, self.rounds, observer)
    }
}
