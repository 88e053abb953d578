//! `sclub field`: all policies in all worlds, in one table; and `sclub tune`, which chooses their constants.
//!
//! A [`Plan`] lists the runs. Like the paper's they are jobs, whose results are kept in [`Cells`]. A [`Field`] is made from the
//! complete results: means, paired tests, ranks and costs.

mod claims;
mod files;
mod latex;
mod page;
mod picture;
mod rows;
mod stats;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod tune;

use crate::named::unknown;
use crate::paper::cells::{Cells, Record};
use crate::paper::jobs::{self, Job, key};
use crate::paper::{PaperError, Progress};
use crate::policies::{Entry, Knowledge, Name};
use crate::run::Observer;
use crate::setting::Setting;

use claims::published;
pub use claims::{Against, Claim, Constants};
pub use files::{FILES, files};
pub use latex::latex;
pub use page::page;
pub use picture::ranks_picture;
pub use rows::{Family, World, own_settings, worlds};
pub use table::{Cell, Field, Measure, Standing, WorldRow};
pub use text::text;
pub use tune::{ALL_FAMILIES, Chosen, FIRST_TUNING_SEED, TunePlan, Tuned};

/// The constants that `sclub tune` has chosen, with the command in it, for this release.
const TUNED: &str = include_str!("tuned.json");

/// The constants of this release.
pub fn tuned() -> Tuned {
    serde_json::from_str(TUNED).expect("tuned.json is valid; a test reads it")
}

/// The default rounds and seeds, and those of a first look.
pub const ROUNDS: u64 = 1 << 15;
/// See [`ROUNDS`].
pub const SEEDS: u64 = 10;
/// The default of the first seed. Smaller ones were looked at while policies of this library were made.
pub const FIRST_SEED: u64 = 5001;
/// See [`ROUNDS`].
pub const QUICK_ROUNDS: u64 = 1 << 11;
/// See [`ROUNDS`].
pub const QUICK_SEEDS: u64 = 2;

/// Policies that play for comparison and are not ranked: they know the truth, or nothing.
pub const REFERENCES: [Name; 3] = [Name::ORACLE, Name::INFORMED, Name::RANDOM];

/// The policies to rank: those asked for, or all that do not know the truth.
///
/// # Errors
/// A sentence about the first that cannot be ranked.
pub fn ranked(asked: &[Name]) -> Result<Vec<Name>, String> {
    if asked.is_empty() {
        let all = Name::all().into_iter();
        return Ok(all
            .filter(|name| !name.needs_truth() && !REFERENCES.contains(name))
            .collect());
    }
    for (place, name) in asked.iter().enumerate() {
        if asked[..place].contains(name) {
            return Err(format!("policy '{name}' is named twice"));
        }
        if name.needs_truth() || REFERENCES.contains(name) {
            return Err(format!(
                "policy '{name}' plays for comparison and is not ranked; leave it out"
            ));
        }
    }
    Ok(asked.to_vec())
}

/// A plan of the runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The policies that are ranked.
    pub policies: Vec<Name>,
    /// T of every world but the catalogues, which are shorter.
    pub rounds: u64,
    /// The worlds' seeds.
    pub seeds: Vec<u64>,
    /// Threads to use.
    pub threads: usize,
    /// Only the worlds and settings of these names; all if it is empty.
    pub only: Vec<String>,
    /// Guests that do not play a world, by name.
    pub left_out: Vec<(Name, &'static str)>,
    /// The constants of the policies; those that are not in it have their defaults.
    pub constants: Tuned,
    /// The policies of these columns have their published constants.
    pub released: bool,
}

impl Plan {
    /// Checks the numbers and the names of worlds.
    ///
    /// # Errors
    /// A sentence about the first that is invalid.
    pub fn check(&self) -> Result<(), String> {
        if self.rounds < 2 {
            let rounds = self.rounds;
            return Err(format!("rounds is {rounds}; there must be at least two"));
        }
        if self.seeds.is_empty() {
            return Err("seeds is 0; there must be at least one".into());
        }
        if self.seeds.iter().any(|&seed| seed >= FIRST_TUNING_SEED) {
            return Err(format!(
                "seeds from {FIRST_TUNING_SEED} on are those that `sclub tune` chooses constants on; use smaller ones"
            ));
        }
        let all = worlds(self.rounds).into_iter();
        let all = all.chain(own_settings(self.rounds));
        let known: Vec<&str> = all.map(|world| world.name).collect();
        let is_unknown = |name: &&String| !known.contains(&name.as_str());
        match self.only.iter().find(is_unknown) {
            Some(name) => Err(unknown("world", name, known)),
            None => Ok(()),
        }
    }

    /// The worlds.
    pub fn worlds(&self) -> Vec<World> {
        self.chosen(worlds(self.rounds))
    }

    /// Settings of papers that are not worlds of the table, for the policies whose own they are.
    pub fn own_settings(&self) -> Vec<World> {
        self.chosen(own_settings(self.rounds))
    }

    fn chosen(&self, mut all: Vec<World>) -> Vec<World> {
        all.retain(|world| self.only.is_empty() || self.only.iter().any(|name| world.name == name));
        all
    }

    /// The policies that play a world, the ranked ones first.
    fn entries(&self, world: &World) -> Result<Vec<Entry>, PaperError> {
        let others = REFERENCES
            .iter()
            .filter(|name| !self.policies.contains(name));
        let all = self.policies.iter().chain(others);
        let playing = all
            .filter(|name| plays(**name, world) && !self.left_out.contains(&(**name, world.name)));
        playing
            .map(|&name| match self.released {
                true => published(name, world, &[]),
                false => tune::entry(name, world, self.constants.of(world.family, name.as_str())),
            })
            .collect()
    }

    fn jobs(&self) -> Result<Vec<Job>, PaperError> {
        let mut jobs = Vec::new();
        let table = self.worlds().into_iter().map(|world| (world, true));
        let own = self.own_settings().into_iter().map(|world| (world, false));
        for (world, is_ranked) in table.chain(own) {
            let mut entries = match is_ranked {
                true => self.entries(&world)?,
                false => Vec::new(),
            };
            for entry in claims::entries(self, &world)? {
                if !entries.contains(&entry) {
                    entries.push(entry);
                }
            }
            if entries.is_empty() {
                continue;
            }
            for &seed in &self.seeds {
                jobs.push(Job::new(&world.setting, seed, world.rounds, &entries));
            }
        }
        // Seed by seed: a table of fewer seeds is complete early.
        jobs.sort_by_key(|job| job.seed);
        Ok(jobs)
    }

    /// Rounds that are still to be played, over all policies.
    ///
    /// # Errors
    /// As [`Plan::run`].
    pub fn rounds_to_play(&self, cells: &Cells) -> Result<u64, PaperError> {
        Ok(jobs::rounds_to_play(&self.jobs()?, cells))
    }

    /// Runs the jobs that have no stored result.
    ///
    /// # Errors
    /// [`PaperError`].
    pub fn run(&self, cells: &Cells, observer: &dyn Observer) -> Result<Progress, PaperError> {
        jobs::work(self.jobs()?, cells, self.threads, observer)
    }

    /// Makes the table from the stored results, over the seeds for which a world is complete. Worlds without such a
    /// seed are left out.
    ///
    /// # Errors
    /// [`PaperError`].
    pub fn field(&self, cells: &Cells) -> Result<Field, PaperError> {
        let mut rows = Vec::new();
        for world in self.worlds() {
            let entries = self.entries(&world)?;
            let mut seeds = Vec::new();
            let mut records: Vec<Vec<Record>> = entries.iter().map(|_| Vec::new()).collect();
            for &seed in &self.seeds {
                let of_seed: Option<Vec<Record>> = entries
                    .iter()
                    .map(|entry| cells.get(&key(&world.setting, seed, world.rounds, entry)))
                    .collect();
                let Some(of_seed) = of_seed else { continue };
                seeds.push(seed);
                for (records, record) in records.iter_mut().zip(of_seed) {
                    records.push(record);
                }
            }
            if !seeds.is_empty() {
                rows.push(WorldRow::new(
                    &world,
                    seeds,
                    &entries,
                    &records,
                    &self.policies,
                ));
            }
        }
        let mut field = Field::new(&self.policies, rows, self.constants.clone());
        field.released = self.released;
        field.claims = claims::claims(self, cells)?;
        Ok(field)
    }
}

/// Returns true if a policy plays a world: it knows enough about it, and is meant for it. A policy for lists that are read up
/// to the first click plays these only. CAB is too slow for shops: it compares all users on each item, some 6 ms a round.
fn plays(name: Name, world: &World) -> bool {
    let knowledge = match &world.setting {
        Setting::Catalogue(_) => Knowledge::Catalogue,
        _ => Knowledge::Clusters,
    };
    let is_meant = match name.as_str() {
        "cab" => world.family != Family::Catalogue,
        _ => !name.can.lists || world.family == Family::Lists,
    };
    is_meant && name.can_play(knowledge)
}
