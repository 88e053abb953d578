//! `sclub field`: all policies in all worlds, in one table; and `sclub tune`, which chooses their constants.
//!
//! A [`Plan`] lists the runs. Like the paper's they are jobs, whose results are kept in [`Cells`]. A [`Field`] is made from the
//! complete results: means, paired tests, ranks and costs.

mod claims;
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

use crate::paper::cells::{Cells, Record};
use crate::paper::jobs::{self, Job, key};
use crate::paper::{PaperError, Progress};
use crate::policies::{Entry, Knowledge, Name};
use crate::run::Observer;
use crate::setting::Setting;

use claims::published;
pub use claims::{Against, Claim, Constants};
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

/// Policies that play for comparison and are not ranked: they know the truth, or nothing.
pub const REFERENCES: [Name; 3] = [Name::ORACLE, Name::INFORMED, Name::RANDOM];

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
    /// Only worlds whose name contains one of these.
    pub only: Vec<String>,
    /// The constants of the policies; those that are not in it have their defaults.
    pub constants: Tuned,
    /// The policies of these columns have their published constants.
    pub released: bool,
}

impl Plan {
    /// The worlds.
    pub fn worlds(&self) -> Vec<World> {
        self.chosen(worlds(self.rounds))
    }

    /// Settings of papers that are not worlds of the table, for the policies whose own they are.
    pub fn own_settings(&self) -> Vec<World> {
        self.chosen(own_settings(self.rounds))
    }

    fn chosen(&self, mut all: Vec<World>) -> Vec<World> {
        all.retain(|world| {
            self.only.is_empty() || self.only.iter().any(|part| world.name.contains(&**part))
        });
        all
    }

    /// The policies that play a world, the ranked ones first.
    fn entries(&self, world: &World) -> Result<Vec<Entry>, PaperError> {
        let others = REFERENCES
            .iter()
            .filter(|name| !self.policies.contains(name));
        let all = self.policies.iter().chain(others);
        let playing = all.filter(|name| plays(**name, world));
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
        field.claims = claims::claims(self, cells)?;
        Ok(field)
    }
}

/// Returns true if a policy plays a world: it knows enough about it, and is meant for it. A policy for lists is CLUB where
/// one item is shown. CAB is too slow for shops: it compares all users on each item, some 6 ms a round.
fn plays(name: Name, world: &World) -> bool {
    let knowledge = match &world.setting {
        Setting::Catalogue(_) => Knowledge::Catalogue,
        _ => Knowledge::Clusters,
    };
    let is_meant = match name.as_str() {
        "cab" => world.family != Family::Catalogue,
        _ => !name.can.lists || world.family != Family::Synthetic,
    };
    is_meant && name.can_play(knowledge)
}
