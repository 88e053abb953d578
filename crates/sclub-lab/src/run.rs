//! Running policies in worlds.
//!
//! All policies of a seed face the same users, items and noise: each block of rounds is drawn once
//! and played by all. Nothing depends on which thread does what, so any number of threads gives the
//! same bits.

mod counts;
mod player;
mod showing;

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use sclub::Preset;
use serde::Serialize;

use crate::clustering::Clustering;
use crate::policies::{self, ChoiceError, Entry, Name};
use crate::setting::{Setting, SettingError};
use crate::streams::{Purpose, mix};
use crate::world::{Blocks, World};

pub use counts::Counts;
pub use player::Player;
pub use showing::Stage;

/// Maximum number of threads. More do not help on any machine.
pub const MAX_THREADS: u64 = 256;

/// Points of a regret curve at equal distances, for drawing.
pub const CURVE_POINTS: u64 = 64;

/// An experiment: policies, worlds and constants.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// The world.
    pub world: Setting,
    /// The policies.
    pub policies: Vec<Name>,
    /// T
    pub rounds: u64,
    /// The worlds' seeds.
    pub seeds: Vec<u64>,
    /// The preset that the constants come from.
    pub preset: Preset,
    /// Constants in place of the preset's, name and text, each for all policies that have it.
    pub given: Vec<(String, String)>,
    /// Threads to use.
    pub threads: usize,
}

/// The reason why an experiment cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The world cannot be made.
    #[error(transparent)]
    World(#[from] SettingError),
    /// The selection of policies or the value of a constant is invalid.
    #[error(transparent)]
    Constant(#[from] ChoiceError),
    /// A policy cannot be made.
    #[error(transparent)]
    Policy(#[from] sclub::Error),
    /// The threads cannot be started.
    #[error("cannot start the threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// The number of threads is out of range.
    #[error("threads is {0}; it must be between 1 and {MAX_THREADS}")]
    ThreadCount(u64),
    /// There are no rounds, no seeds or no policies.
    #[error("{0}")]
    Empty(&'static str),
}

/// Follows a run, from several threads at once.
pub trait Observer: Sync {
    /// Called after one policy has played `rounds` more rounds.
    fn played(&self, rounds: u64);

    /// Called on each new thread of a table of many runs, which it must run. So it can prepare the thread.
    fn on_thread(&self, thread: rayon::ThreadBuilder) {
        thread.run();
    }

    /// True to stop. Seeds that are not complete are then left out.
    ///
    /// It is asked after each block that was drawn, and when a policy has failed. A world or a policy
    /// may fail for reasons that [`sclub::Error`] does not have. Then it stores the reason where its
    /// caller finds it, and the observer returns true here. The block or the error is then ignored.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// An observer that does nothing.
impl Observer for () {
    fn played(&self, _rounds: u64) {}
}

/// One policy in one world, to the end. `N` is the type of its name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run<N = Name> {
    /// The policy.
    pub policy: N,
    /// The preset that its constants began from.
    #[serde(serialize_with = "crate::document::preset_text")]
    pub preset: Preset,
    /// In which world.
    pub seed: u64,
    /// The number of rounds.
    pub rounds: u64,
    /// Recommendations made: one a round, as many as users appeared, or as many as items were shown.
    pub served: u64,
    /// The regret: the sum of the best mean less the chosen item's.
    pub regret: f64,
    /// The sum of the rewards.
    pub reward: f64,
    /// The regret of a random choice, in expectation.
    pub random_regret: f64,
    /// Clusters at the end.
    pub clusters: usize,
    /// The adjusted Rand index between those and the true clusters; null if the world has no true clusters.
    pub adjusted_rand: Option<f64>,
    /// The clusters as the policy reports them, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clustering: Option<Clustering>,
    /// Time inside recommend and learn.
    pub policy_seconds: f64,
    /// (round, regret so far) at powers of two and at the end.
    pub curve: Vec<(u64, f64)>,
    /// (round, regret so far) at equal distances.
    #[serde(skip)]
    pub even_curve: Vec<(u64, f64)>,
    /// (recommendations, sum of rewards) at each of [`AGES`](crate::world::AGES); empty if ages do not matter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_age: Vec<(u64, f64)>,
    /// The number of different items shown, in worlds whose rounds all have the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distinct_items: Option<u64>,
    /// The items shown and their clicks, stage by stage, in such worlds; else empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
    /// The messages sent, and the numbers in them, if the policy is one of several servers or peers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<(u64, u64)>,
    /// The size of the policy's final state in bytes, if it tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_bytes: Option<u64>,
    /// A digest of the policy's final state.
    #[serde(skip)]
    pub digest: u64,
}

impl<N> Run<N> {
    /// The mean click probability of the items shown, in worlds with [`Run::stages`].
    pub fn click_probability(&self) -> f64 {
        let expected: f64 = self.stages.iter().map(|stage| stage.expected_clicks).sum();
        expected / self.served as f64
    }
}

/// Plays some policies through a world, each round drawn once for all of them. Skips policies
/// that need ground truth if the world has none. Returns `None` if the observer cancels.
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
        if let Some(policy) = policies::make(entry, world, seed, rounds)? {
            players.push(Player::new(entry.name, entry.values.preset(), policy));
        }
    }
    play_all(world, seed, players, rounds, observer)
}

/// As [`play`], with policies that have been made, here or elsewhere.
///
/// # Errors
/// [`RunError::Policy`].
pub fn play_all<N: Send>(
    world: &dyn World,
    seed: u64,
    mut players: Vec<Player<N>>,
    rounds: u64,
    observer: &dyn Observer,
) -> Result<Option<Vec<Run<N>>>, RunError> {
    let mut blocks = Blocks::new(world, rounds);
    let mut block = world.new_block();
    let draws = mix(&[seed, Purpose::Decisions as u64]);
    while let Some(some) = blocks.draw(&mut block) {
        if observer.is_cancelled() {
            return Ok(None);
        }
        let played = players.par_iter_mut().try_for_each(|player| {
            player.play(&block, blocks.rounds(), draws)?;
            observer.played(some);
            Ok::<(), sclub::Error>(())
        });
        match played {
            Err(_) if observer.is_cancelled() => return Ok(None),
            played => played?,
        }
    }
    let runs = players.into_iter().map(|p| p.finish(seed, world));
    Ok(Some(runs.collect()))
}

/// Runs `one` for every seed on the threads of a pool. Returns the runs by seed, in the order of the
/// seeds. If `one` returns `None` for a seed, only the runs of complete seeds.
///
/// # Errors
/// The error of a seed. No other is begun after it.
pub fn over_seeds<N: Send, E: Send>(
    pool: &rayon::ThreadPool,
    seeds: &[u64],
    one: impl Fn(u64) -> Result<Option<Vec<Run<N>>>, E> + Sync,
) -> Result<Vec<Run<N>>, E> {
    // Seeds are taken in order, so that an interrupted run keeps the first ones.
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(&seed) = seeds.get(place) else {
                return Ok(done);
            };
            match one(seed) {
                Ok(Some(runs)) => done.push((place, runs)),
                Ok(None) => return Ok(done),
                Err(error) => {
                    next.store(seeds.len(), Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
    };
    let workers: Vec<Vec<(usize, Vec<Run<N>>)>> = pool.install(|| {
        let workers = 0..pool.current_num_threads().min(seeds.len());
        let workers = workers.into_par_iter().map(|_| work());
        workers.collect::<Result<_, _>>()
    })?;
    let mut seeds: Vec<(usize, Vec<Run<N>>)> = workers.into_iter().flatten().collect();
    seeds.sort_unstable_by_key(|&(place, _)| place);
    Ok(seeds.into_iter().flat_map(|(_, runs)| runs).collect())
}

/// The threads to use: as many as asked for, or one for each core.
///
/// # Errors
/// [`RunError::ThreadCount`].
pub fn threads(asked: Option<u64>) -> Result<usize, RunError> {
    match asked {
        Some(threads) if !(1..=MAX_THREADS).contains(&threads) => {
            Err(RunError::ThreadCount(threads))
        }
        Some(threads) => Ok(threads as usize),
        None => Ok(std::thread::available_parallelism().map_or(1, |cores| cores.get())),
    }
}

impl Experiment {
    /// Checks the experiment without running it.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn check(&self) -> Result<(), RunError> {
        self.world.check()?;
        if self.rounds == 0 {
            return Err(RunError::Empty("rounds is 0; there must be at least one"));
        }
        if self.seeds.is_empty() {
            return Err(RunError::Empty("seeds is 0; there must be at least one"));
        }
        if self.policies.is_empty() {
            return Err(RunError::Empty("there is no policy to run"));
        }
        self.entries()?;
        Ok(())
    }

    /// The policies with their constants.
    ///
    /// # Errors
    /// [`RunError::Constant`].
    pub fn entries(&self) -> Result<Vec<Entry>, RunError> {
        let Self {
            policies, given, ..
        } = self;
        Ok(self
            .world
            .entries(policies, self.preset, given, self.rounds)?)
    }

    /// Runs every policy in the world of every seed. Returns the runs by seed, then policy; if the
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
        let entries = self.entries()?;
        over_seeds(&pool, &self.seeds, |seed| {
            self.run_seed(seed, &entries, observer)
        })
    }

    fn run_seed(
        &self,
        seed: u64,
        entries: &[Entry],
        observer: &dyn Observer,
    ) -> Result<Option<Vec<Run>>, RunError> {
        let world = self.world.world(seed)?;
        play(&*world, seed, entries, self.rounds, observer)
    }
}
