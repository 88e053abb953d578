//! `sclub robust`: policies compared in many settings, in one table.
//!
//! A [`Plan`] lists the runs. Like the paper's it is run by jobs, whose results are kept in [`Cells`].
//! Tuned constants, as LinUCB-Ind's for `ratings`, make a second pass necessary. Then a [`Table`] is made
//! from the complete results.

mod rows;
pub(crate) mod table;

use sclub::{Preset, ValueError};

use crate::held_out::Others;
use crate::paper::cells::{Cells, Record};
use crate::paper::choices::{self, Contender};
use crate::paper::jobs::{self, Job, key};
use crate::paper::{Data, PaperError, Progress, entry};
use crate::policies::{Entry, Name};
use crate::run::Observer;
use crate::setting::Setting;
use rows::rows;

pub(crate) use rows::Row;
pub use table::{Cell, Measure, Table, TableRow};

/// The policies, in the order of the columns. Those that need the ground truth do not play in worlds
/// without true clusters.
pub const COLUMNS: [Name; 7] = [
    Name::LINUCB_ONE,
    Name::LINUCB_IND,
    Name::SCLUB,
    Name::GAUSSIAN,
    Name::SCLUB_SOFT,
    Name::INFORMED,
    Name::ORACLE,
];

/// The policy that is compared with LinUCB-Ind, and in catalogues with LinUCB-One too.
pub const COMPARED: Name = Name::SCLUB_SOFT;

/// Relative tolerance in these comparisons: a row is worse if regret is over 2% higher or the rate over 2% lower.
pub const TOLERANCE: f64 = 0.02;

/// A plan of the runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// T of every synthetic setting. Catalogues have at most [`crate::catalogue::DEFAULT_ROUNDS`].
    pub rounds: u64,
    /// The worlds' seeds.
    pub seeds: Vec<u64>,
    /// Threads to use.
    pub threads: usize,
    /// True to choose constants for `ratings` fast, on fewer rounds.
    pub quick: bool,
    /// Only settings whose name contains this.
    pub only: Option<String>,
    /// The interactions of real users, by name.
    pub data: Vec<(String, Data)>,
}

/// A part of the work. The second needs constants that the first has chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// All that can be run at once.
    First,
    /// The runs that need constants which the first part has chosen.
    Second,
}

impl Pass {
    /// Both, in order.
    pub const ALL: [Pass; 2] = [Pass::First, Pass::Second];
}

/// LinUCB-Ind with tuned constants, the others with their defaults; `None` if tuning is not complete.
fn contenders(quick: bool, data: &Data, cells: &Cells) -> Option<Vec<Contender>> {
    COLUMNS
        .into_iter()
        .filter(|&name| !name.needs_truth() && name != Name::LINUCB_ONE)
        .map(|name| {
            if name == Name::LINUCB_IND {
                choices::best(quick, data, cells, name)
            } else {
                Some(choices::untuned(name))
            }
        })
        .collect()
}

/// The policies of a row. LinUCB-One plays in catalogues: where users are seen often it has nothing to say.
fn entries(row: &Row) -> Result<Vec<Entry>, ValueError> {
    let is_catalogue = matches!(row.setting, Setting::Catalogue(_));
    COLUMNS
        .into_iter()
        .filter(|&name| is_catalogue || name != Name::LINUCB_ONE)
        .map(|name| entry(name, Preset::Tuned, &row.setting, row.rounds))
        .collect()
}

/// The flags of `sclub run` for some seeds, which count up by 1.
fn seed_flags(seeds: &[u64]) -> String {
    let first = seeds.first().copied().unwrap_or_default();
    format!(" --first-seed {first} --seeds {}", seeds.len())
}

/// The results of each player, over the seeds for which all are there.
fn complete<P>(
    seeds: &[u64],
    players: &[P],
    record: impl Fn(u64, &P) -> Option<Record>,
) -> (Vec<u64>, Vec<Vec<Record>>) {
    let mut by_player: Vec<Vec<Record>> = players.iter().map(|_| Vec::new()).collect();
    let mut there = Vec::new();
    for &seed in seeds {
        let records: Option<Vec<Record>> = players.iter().map(|one| record(seed, one)).collect();
        let Some(of_seed) = records else { continue };
        there.push(seed);
        for (records, record) in by_player.iter_mut().zip(of_seed) {
            records.push(record);
        }
    }
    (there, by_player)
}

impl Plan {
    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|part| name.contains(part))
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = rows(self.rounds);
        rows.retain(|row| self.wants(&row.name));
        rows
    }

    fn data(&self) -> impl Iterator<Item = &(String, Data)> {
        self.data.iter().filter(|(name, _)| self.wants(name))
    }

    /// The names of the settings.
    pub fn settings(&self) -> Vec<String> {
        let synthetic = self.rows().into_iter().map(|row| row.name);
        let ratings = self.data().map(|(name, _)| name.clone());
        synthetic.chain(ratings).collect()
    }

    fn jobs(&self, pass: Pass, cells: &Cells) -> Result<Vec<Job>, PaperError> {
        let mut jobs = Vec::new();
        if pass == Pass::Second {
            for (_, data) in self.data() {
                let Some(contenders) = contenders(self.quick, data, cells) else {
                    continue;
                };
                let plays = [(Others::Uniform, false, contenders)];
                for &seed in &self.seeds {
                    jobs.extend(choices::jobs_of_split(self.quick, data, seed, &plays));
                }
            }
            return Ok(jobs);
        }
        for row in self.rows() {
            let entries = entries(&row)?;
            for &seed in &self.seeds {
                jobs.push(Job::new(&row.setting, seed, row.rounds, &entries));
            }
        }
        for (_, data) in self.data() {
            let tuned = [Name::LINUCB_IND];
            jobs.extend(choices::tuning_jobs_of(self.quick, data, &tuned));
        }
        Ok(jobs)
    }

    /// Rounds that a pass has still to play, over all policies.
    ///
    /// # Errors
    /// As [`Plan::run`].
    pub fn rounds_to_play(&self, pass: Pass, cells: &Cells) -> Result<u64, PaperError> {
        Ok(jobs::rounds_to_play(&self.jobs(pass, cells)?, cells))
    }

    /// Runs the jobs of a pass that have no stored result.
    ///
    /// # Errors
    /// [`PaperError`].
    pub fn run(
        &self,
        pass: Pass,
        cells: &Cells,
        observer: &dyn Observer,
    ) -> Result<Progress, PaperError> {
        jobs::work(self.jobs(pass, cells)?, cells, self.threads, observer)
    }

    /// Makes the table from the stored results. Settings without a complete seed are left out.
    ///
    /// # Errors
    /// [`PaperError`].
    pub fn table(&self, cells: &Cells) -> Result<Table, PaperError> {
        let mut all = Vec::new();
        for row in self.rows() {
            let entries = entries(&row)?;
            let (seeds, records) = complete(&self.seeds, &entries, |seed, entry| {
                cells.get(&key(&row.setting, seed, row.rounds, entry))
            });
            let measure = match row.setting {
                Setting::Catalogue(_) => Measure::Clicks,
                _ => Measure::Regret,
            };
            let played = entries.iter().zip(&records);
            let values = played
                .map(|(entry, records)| {
                    let values = records.iter().map(|record| match measure {
                        Measure::Regret => record.regret,
                        Measure::Rate | Measure::Clicks => choices::rate(record),
                    });
                    Cell::new(entry.name, None, values.collect())
                })
                .collect();
            let rounds = format!(" --rounds {}", row.rounds);
            let command = format!("sclub run {}{rounds}{}", row.flags, seed_flags(&seeds));
            all.extend(TableRow::new(measure, row.name, command, seeds, values));
        }
        for (name, data) in self.data() {
            let Some(contenders) = contenders(self.quick, data, cells) else {
                continue;
            };
            let (seeds, records) = complete(&self.seeds, &contenders, |seed, contender| {
                let play = (Others::Uniform, false);
                choices::record(self.quick, data, cells, seed, play, contender)
            });
            let played = contenders.iter().zip(&records);
            let values = played
                .map(|(contender, records)| {
                    let constants = choices::constants(contender);
                    let rates = records.iter().map(choices::rate).collect();
                    Cell::new(contender.entry.name, Some(constants), rates)
                })
                .collect();
            let command = format!(
                "sclub run --world ratings --ratings {name}{}",
                seed_flags(&seeds)
            );
            all.extend(TableRow::new(
                Measure::Rate,
                name.clone(),
                command,
                seeds,
                values,
            ));
        }
        Ok(Table {
            rounds: self.rounds,
            seeds: self.seeds.clone(),
            quick: self.quick,
            compared: COMPARED,
            rows: all,
        })
    }
}
