//! The paper's evaluation: Figure 1, Tables 1 and 2, and further comparisons.
//!
//! A [`Plan`] lists the runs. Each part lists its runs as jobs; a result that is kept in
//! [`cells::Cells`] is not run again, and parts that want the same result share it. When all is
//! there, the parts are put together to a [`Report`].

mod audit;
pub mod cells;
pub(crate) mod choices;
pub(crate) mod jobs;
mod many_users;
mod panels;
pub mod published;
mod theorem;

use std::sync::Arc;

use sclub::{Preset, Value, ValueError};

use crate::data::features::{self, FeatureError, Selection};
use crate::data::{Interactions, Read};
use crate::named::named;
use crate::policies::{ChoiceError, Entry, Name};
use crate::report::model::{Origin, Report};
use crate::run::{Observer, RunError};
use crate::setting::{Setting, SettingError};
use crate::summary::thousands;
use crate::synthetic::{Frequencies, Recipe, Twists};
use crate::world::Rewards;
use cells::{Cells, CellsError};
use jobs::Job;
use published::{ADDITIONAL, ALGORITHMS, Users};

/// T and seeds of the paper's figures, and those of a short version.
pub const ROUNDS: u64 = (1 << 20) - 2;
/// See [`ROUNDS`].
pub const SEEDS: u64 = 10;
/// See [`ROUNDS`].
pub const QUICK_ROUNDS: u64 = (1 << 18) - 2;
/// See [`ROUNDS`].
pub const QUICK_SEEDS: u64 = 2;

/// d and L of the paper's figures, the constant feature counted.
const DIM: usize = 20;
const CANDIDATES: usize = 20;

/// A part of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Figure 1 with its tables.
    Panels,
    /// The published code's deviations.
    Audit,
    /// Theorems 1 and 3.
    Theorems,
    /// Held-out choices of real users.
    Choices,
}

named!(
    Part,
    "part",
    [
        ("panels", "Figure 1 with Tables 1 and 2", Part::Panels),
        (
            "audit",
            "What the published code does otherwise than the paper, and what that is worth",
            Part::Audit
        ),
        (
            "theorems",
            "The bound of Theorem 1, and Theorem 3's many users a round",
            Part::Theorems
        ),
        (
            "choices",
            "Held-out choices of real users; needs --movielens or --yelp",
            Part::Choices
        ),
    ]
);

/// Interactions, and the digest by which stored results are found.
#[derive(Debug, Clone, PartialEq)]
pub struct Data {
    /// The interactions.
    pub interactions: Arc<Interactions>,
    digest: u64,
}

impl Data {
    /// The data of some interactions.
    pub fn new(interactions: Interactions) -> Self {
        Self {
            digest: interactions.digest(),
            interactions: Arc::new(interactions),
        }
    }
}

/// A data set of real users, prepared as the paper does.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// Such as `MovieLens`.
    pub name: &'static str,
    /// The interactions.
    pub data: Data,
    /// A note that stands wherever results from it are shown.
    pub note: Option<String>,
    /// The paper's weight vectors of its users.
    weights: Arc<Vec<Vec<f64>>>,
}

impl Source {
    /// MovieLens ratings from a file, with a note if they are not the paper's.
    ///
    /// # Errors
    /// [`FeatureError`] if there are too few.
    pub fn movielens(read: Read, file: &str) -> Result<Self, FeatureError> {
        let is_papers = read.rows == 20_000_263;
        let papers = "MovieLens 20M, with 20 million ratings of 27,000 movies by 138,000 users";
        Self::of_file("MovieLens", read, file, is_papers, papers)
    }

    /// Yelp reviews from a file, with a note if they are not the paper's.
    ///
    /// # Errors
    /// [`FeatureError`] if there are too few.
    pub fn yelp(read: Read, file: &str) -> Result<Self, FeatureError> {
        let is_papers = (4_650_000..4_750_000).contains(&read.rows);
        let papers =
            "the Yelp challenge's reviews, 4.7 million of 157,000 businesses by 1.18 million users";
        Self::of_file("Yelp", read, file, is_papers, papers)
    }

    fn of_file(
        name: &'static str,
        read: Read,
        file: &str,
        is_papers: bool,
        papers: &str,
    ) -> Result<Self, FeatureError> {
        let mut notes = Vec::new();
        if !is_papers {
            notes.push(format!(
                "Not the paper's data: {file} has {} ratings of {} items by {} users. The paper used {papers}.",
                thousands(read.rows as f64),
                thousands(read.interactions.items() as f64),
                thousands(read.interactions.users() as f64),
            ));
        }
        match read.bad_lines {
            0 => {}
            1 => notes.push("1 bad line was skipped.".into()),
            many => notes.push(format!("{many} bad lines were skipped.")),
        }
        let note = (!notes.is_empty()).then(|| notes.join(" "));
        Self::new(name, read.interactions, note)
    }

    /// Prepares a data set as the paper does: 1000 users and 1000 items with most ratings.
    ///
    /// # Errors
    /// [`FeatureError`] if it is too small.
    pub fn new(
        name: &'static str,
        interactions: Interactions,
        note: Option<String>,
    ) -> Result<Self, FeatureError> {
        let chosen = Selection {
            users: 1000,
            items: 1000,
        }
        .choose(&interactions);
        let (svd, _) = features::factorise(&chosen.matrix, DIM)?;
        let weights = features::user_weights(&svd);
        let weights = (0..weights.rows())
            .map(|row| weights.row(row).to_vec())
            .collect();
        Ok(Self {
            name,
            data: Data::new(interactions),
            note,
            weights: Arc::new(weights),
        })
    }
}

/// A plan of the runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// T of the panels and the audit.
    pub rounds: u64,
    /// The worlds' seeds.
    pub seeds: Vec<u64>,
    /// Threads to use.
    pub threads: usize,
    /// True for a short version with fewer rounds.
    pub quick: bool,
    /// The parts of the report.
    pub parts: Vec<Part>,
    /// Policies beside those of every report, in the panels and the held-out choices.
    pub policies: Vec<Name>,
    /// MovieLens ratings, if given.
    pub movielens: Option<Source>,
    /// Yelp reviews, if given.
    pub yelp: Option<Source>,
}

/// The reason why a report cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PaperError {
    /// A run cannot be made.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A world cannot be made.
    #[error(transparent)]
    World(#[from] SettingError),
    /// A result cannot be stored.
    #[error(transparent)]
    Cells(#[from] CellsError),
    /// The threads cannot be started.
    #[error("cannot start the threads: {0}")]
    Threads(rayon::ThreadPoolBuildError),
}

impl From<ValueError> for PaperError {
    fn from(error: ValueError) -> Self {
        PaperError::Run(RunError::Constant(ChoiceError::Value(error)))
    }
}

/// The result of a part of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Results made now.
    pub new: usize,
    /// Results reused from earlier runs.
    pub reused: usize,
    /// Results that are missing because the work was stopped.
    pub missing: usize,
}

impl Plan {
    fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    fn source(&self, users: Users) -> Option<&Source> {
        match users {
            Users::Drawn => None,
            Users::MovieLens => self.movielens.as_ref(),
            Users::Yelp => self.yelp.as_ref(),
        }
    }

    fn sources(&self) -> impl Iterator<Item = &Source> {
        self.movielens.iter().chain(&self.yelp)
    }

    /// The paper's setting with such users, if there are any.
    fn setting(&self, users: Users, frequencies: Frequencies) -> Option<Setting> {
        let recipe = synthetic(frequencies);
        match users {
            Users::Drawn => Some(Setting::Synthetic(recipe)),
            Users::MovieLens | Users::Yelp => {
                let source = self.source(users)?;
                Some(Setting::Vectors(recipe, Arc::clone(&source.weights)))
            }
        }
    }

    /// The jobs of the first pass: everything whose constants are known beforehand.
    fn jobs(&self) -> Result<Vec<Job>, PaperError> {
        let mut jobs = Vec::new();
        if self.has(Part::Panels) {
            jobs.extend(panels::jobs(self)?);
        }
        if self.has(Part::Theorems) {
            jobs.extend(theorem::jobs(self)?);
            jobs.extend(many_users::jobs(self)?);
        }
        if self.has(Part::Audit) {
            jobs.extend(audit::jobs(self)?);
        }
        if self.has(Part::Choices) {
            jobs.extend(choices::tuning_jobs(self));
        }
        Ok(jobs)
    }

    /// The jobs of the second pass, whose constants the first has chosen.
    fn later_jobs(&self, cells: &Cells) -> Result<Vec<Job>, PaperError> {
        if self.has(Part::Choices) {
            choices::jobs(self, cells)
        } else {
            Ok(Vec::new())
        }
    }

    /// Rounds that the first pass has still to play, over all policies.
    ///
    /// # Errors
    /// As [`Plan::run`].
    pub fn rounds_to_play(&self, cells: &Cells) -> Result<u64, PaperError> {
        Ok(jobs::rounds_to_play(&self.jobs()?, cells))
    }

    /// Rounds that the second pass has still to play, once the first is over.
    ///
    /// # Errors
    /// As [`Plan::run_later`].
    pub fn later_rounds_to_play(&self, cells: &Cells) -> Result<u64, PaperError> {
        Ok(jobs::rounds_to_play(&self.later_jobs(cells)?, cells))
    }

    /// Runs the first pass.
    ///
    /// # Errors
    /// [`PaperError`].
    pub fn run(&self, cells: &Cells, observer: &dyn Observer) -> Result<Progress, PaperError> {
        jobs::work(self.jobs()?, cells, self.threads, observer)
    }

    /// Runs the second pass.
    ///
    /// # Errors
    /// [`PaperError`].
    pub fn run_later(
        &self,
        cells: &Cells,
        observer: &dyn Observer,
    ) -> Result<Progress, PaperError> {
        jobs::work(self.later_jobs(cells)?, cells, self.threads, observer)
    }

    /// Makes the report from the stored results.
    ///
    /// # Errors
    /// [`PaperError`].
    pub fn report(&self, cells: &Cells, origin: Origin) -> Result<Report, PaperError> {
        let mut report = self.parts(cells, origin)?;
        if !report.origin.complete {
            let audit = self.has(Part::Audit) && report.audit.is_none();
            let theorems = self.has(Part::Theorems) && report.theorem.is_none();
            let choices = self.has(Part::Choices) && report.held_out.len() < self.sources().count();
            report.origin.to_come = [
                (audit, "the audit"),
                (theorems, "the theorems"),
                (choices, "held-out choices"),
            ]
            .into_iter()
            .filter(|(is_missing, _)| *is_missing)
            .map(|(_, part)| part.into())
            .collect();
        }
        Ok(report)
    }

    fn parts(&self, cells: &Cells, origin: Origin) -> Result<Report, PaperError> {
        Ok(Report {
            origin,
            panels: if self.has(Part::Panels) {
                panels::panels(self, cells)?
            } else {
                Vec::new()
            },
            audit: if self.has(Part::Audit) {
                audit::audit(self, cells)?
            } else {
                None
            },
            theorem: if self.has(Part::Theorems) {
                theorem::theorem(self, cells)?
            } else {
                None
            },
            many_users: if self.has(Part::Theorems) {
                many_users::many_users(self, cells)?
            } else {
                None
            },
            held_out: if self.has(Part::Choices) {
                choices::held_out(self, cells)?
            } else {
                Vec::new()
            },
        })
    }
}

/// Checks what a plan is made from, before a file is read, which may take long: T, the number of seeds, the parts, the
/// policies to add, and whether there are data of real users.
///
/// # Errors
/// A sentence about the first that is invalid.
pub fn check(
    rounds: u64,
    seeds: u64,
    parts: &[Part],
    policies: &[Name],
    has_data: bool,
) -> Result<(), String> {
    for (name, value) in [("rounds", rounds), ("seeds", seeds)] {
        if value == 0 {
            return Err(format!("{name} is 0; there must be at least one"));
        }
    }
    if parts == [Part::Choices] && !has_data {
        return Err("part choices needs real users; give --movielens or --yelp".into());
    }
    check_added(policies)
}

/// Checks that policies can be added to a report: they are not in it anyway, and they play worlds that show one item
/// a round and tell nothing.
fn check_added(policies: &[Name]) -> Result<(), String> {
    for (place, &name) in policies.iter().enumerate() {
        if ALGORITHMS.contains(&name) || ADDITIONAL.contains(&name) {
            return Err(format!(
                "policy '{name}' is in every report; name only those to add"
            ));
        }
        if policies[..place].contains(&name) {
            return Err(format!("policy '{name}' is named twice"));
        }
        if name.needs_truth() || name == Name::RANDOM {
            return Err(format!(
                "policy '{name}' is a yardstick and has no place in the paper's figures; `sclub run` has it"
            ));
        }
        if name.can.lists {
            return Err(format!(
                "policy '{name}' is for lists, and the paper's worlds show one item a round; `sclub field` has worlds with lists"
            ));
        }
    }
    Ok(())
}

/// The paper's synthetic world.
pub(crate) fn synthetic(frequencies: Frequencies) -> Recipe {
    Recipe {
        users: 1000,
        clusters: 10,
        dim: DIM,
        candidates: CANDIDATES,
        frequencies,
        rewards: Rewards::Bernoulli,
        users_a_round: None,
        twists: Twists::default(),
    }
}

/// A policy with a preset's constants, as [`crate::run::Experiment`] would run it.
pub(crate) fn entry(
    name: Name,
    preset: Preset,
    setting: &Setting,
    rounds: u64,
) -> Result<Entry, ValueError> {
    entry_with(name, preset, Vec::new(), setting, rounds)
}

/// A policy with a preset's constants, given ones in place of some, and those that the world tells.
pub(crate) fn entry_with(
    name: Name,
    preset: Preset,
    mut given: Vec<(&str, Value)>,
    setting: &Setting,
    rounds: u64,
) -> Result<Entry, ValueError> {
    let assumptions = setting.assumptions(rounds);
    for (constant, value) in setting.told() {
        if name.constant(constant).is_some() {
            given.retain(|(given, _)| *given != constant);
            given.push((constant, Value::Number(value)));
        }
    }
    Entry::new(name, preset, &given, &setting.setup(&assumptions))
}
