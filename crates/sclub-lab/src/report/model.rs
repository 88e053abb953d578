//! The content of a report, as plain values. `results.json` is this, written out.

use serde::Serialize;

use crate::policies::{Name, Preset};
use crate::summary::Mean;

/// The whole report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The origin of the report.
    pub origin: Origin,
    /// Figure 1 of the paper, panel by panel, with the cells of Tables 1 and 2.
    pub panels: Vec<Panel>,
    /// The differences between the published code and the paper's pseudo-code, and the effect of each.
    pub audit: Option<Audit>,
    /// Theorem 1's bound beside the regret measured.
    pub theorem: Option<Theorem>,
    /// Theorem 3's setting: many users a round.
    pub many_users: Option<ManyUsers>,
    /// Held-out choices of real users, one for each data set given.
    pub held_out: Vec<HeldOut>,
}

/// The origin of a report: version, machine, time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Origin {
    /// The exact command.
    pub command: String,
    /// True for the short version, whose figures are not the paper's.
    pub quick: bool,
    /// T of the panels.
    pub rounds: u64,
    /// The seeds of the panels.
    pub seeds: Vec<u64>,
    /// (name, value): operating system, processor, cores, memory.
    pub machine: Vec<(String, String)>,
    /// (name, version): sclub, compiler.
    pub versions: Vec<(String, String)>,
    /// Wall-clock time of this invocation.
    pub seconds: f64,
    /// Cells run by this invocation, and cells kept from earlier ones.
    pub cells: (usize, usize),
    /// True if everything asked for is in the report.
    pub complete: bool,
    /// Parts asked for that nothing can be shown of yet, such as `the audit`.
    pub to_come: Vec<String>,
}

/// One panel of Figure 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Panel {
    /// `1a` to `2d`.
    pub id: String,
    /// The title, such as `Synthetic, every user at their own rate`.
    pub title: String,
    /// A note that stands wherever its results are shown, such as that the data are not the paper's.
    pub note: Option<String>,
    /// The way to get results, if the panel has none.
    pub missing: Option<String>,
    /// The algorithms, in the order of the paper's tables, then others. Empty if the panel is
    /// missing.
    pub cells: Vec<Cell>,
}

/// One algorithm in one panel.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// The algorithm.
    pub policy: Name,
    /// Seeds behind it.
    pub seeds: usize,
    /// Regret at the end.
    pub regret: Mean,
    /// The paper's, Table 1, if it has one.
    pub published_regret: Option<f64>,
    /// Seconds inside the policy, a run.
    pub seconds: Mean,
    /// The paper's, Table 2, if it has one.
    pub published_seconds: Option<f64>,
    /// Clusters at the end.
    pub clusters: f64,
    /// (round, regret so far) at equal distances.
    pub curve: Vec<(u64, Mean)>,
}

impl Cell {
    /// True if the algorithm is one of the paper's.
    pub fn is_published(&self) -> bool {
        self.published_regret.is_some()
    }

    /// Regret over the paper's, less 1; not a number if the paper has none.
    pub fn off_published(&self) -> f64 {
        self.regret.mean / self.published_regret.unwrap_or(f64::NAN) - 1.0
    }
}

/// The audit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Audit {
    /// T of its runs.
    pub rounds: u64,
    /// The settings that it was run in, such as `1a`, and SCLUB's published regret there.
    pub settings: Vec<(String, f64)>,
    /// The variants, from the pseudo-code to the published code.
    pub variants: Vec<Variant>,
    /// The numbers in plain words; paragraphs.
    pub reading: Vec<String>,
}

/// SCLUB with some of the deviations on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Variant {
    /// The group of rows it stands in: `base`, `alone` (one more than the base), `without` (all but
    /// one), `all`.
    pub group: String,
    /// Its name, such as `shared arrays`.
    pub name: String,
    /// Its effect, in a sentence.
    pub meaning: String,
    /// For each setting: regret, and regret less that of its group's reference (the base for
    /// `alone`, all deviations for `without`; none for the references themselves), both over the
    /// same seeds.
    pub regrets: Vec<(Mean, Option<Mean>)>,
}

/// Theorem 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Theorem {
    /// Curves against the number of rounds, to be drawn with both axes logarithmic: bound, trivial
    /// bound, measured.
    pub lines: Vec<Line>,
    /// (name, value, derivation): constants and terms, to be listed.
    pub terms: Vec<(String, String, String)>,
    /// The conclusions in plain words; paragraphs.
    pub reading: Vec<String>,
}

/// Theorem 3.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ManyUsers {
    /// Regret against the number of recommendations, a line for each number of users a round.
    pub lines: Vec<Line>,
    /// (users a round on average, rounds, recommendations, regret at the end, clusters at the end)
    pub rows: Vec<ManyUsersRow>,
    /// The conclusions in plain words; paragraphs.
    pub reading: Vec<String>,
}

/// One number of users a round.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ManyUsersRow {
    /// Users a round on average.
    pub users_a_round: f64,
    /// The algorithm.
    pub policy: Name,
    /// The preset of its constants.
    #[serde(serialize_with = "crate::document::preset_text")]
    pub preset: Preset,
    /// Rounds.
    pub rounds: u64,
    /// Recommendations made, on average over the seeds.
    pub served: f64,
    /// Regret at the end.
    pub regret: Mean,
    /// Clusters at the end.
    pub clusters: f64,
    /// Theorem 3's leading term.
    pub bound: f64,
}

/// A curve of a figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// The label in the legend.
    pub label: String,
    /// The policy that gives the colour; a bound has none and is grey.
    pub policy: Option<Name>,
    /// True for a dashed line.
    pub dashed: bool,
    /// Strength of the colour, from 0 to 1: it distinguishes the lines of one policy.
    pub strength: f64,
    /// (x, y)
    pub points: Vec<(f64, Mean)>,
}

/// World `ratings` on one data set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeldOut {
    /// The data set, such as `MovieLens`.
    pub name: String,
    /// A note that stands wherever its results are shown.
    pub note: Option<String>,
    /// (name, number): feature users, bandit users, items, rounds.
    pub sizes: Vec<(String, u64)>,
    /// The way in which the constants called tuned were chosen.
    pub tuning: String,
    /// One table for each way to draw the other candidates: `uniform`, `popularity`.
    pub tables: Vec<HeldOutTable>,
}

/// The results with one way to draw the other candidates.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeldOutTable {
    /// Such as `19 others drawn uniformly`.
    pub title: String,
    /// The ages, such as `1–5`, `6–20`.
    pub ages: Vec<String>,
    /// The policies.
    pub rows: Vec<HeldOutRow>,
}

/// One policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeldOutRow {
    /// Such as `LinUCB-Ind, tuned`.
    pub label: String,
    /// The policy that gives the colour.
    pub policy: Name,
    /// Its constants, in short.
    pub constants: String,
    /// Share of the rounds in which the item that was taken was shown.
    pub rate: Mean,
    /// Rate over LinUCB-One's, less 1, over the same splits; `None` for LinUCB-One itself.
    pub over_one: Option<Mean>,
    /// Rate over tuned LinUCB-Ind's, less 1; `None` for LinUCB-Ind itself.
    pub over_tuned_ind: Option<Mean>,
    /// The rate at each age of the user; `None` if no user was so old.
    pub by_age: Vec<Option<Mean>>,
}
