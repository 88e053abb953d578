//! Results, as numbers and as text.

use serde::Serialize;

use super::{COLUMNS, TOLERANCE};
use crate::catalogue::{self, Shop};
use crate::policies::Name;
use crate::summary::{Mean, percent, thousands};

/// The measure of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// The reward that the best items would have brought more: lower is better.
    Regret,
    /// The share of the rounds in which the item that the user took was shown: the more the better.
    Rate,
    /// Clicks that came, per item shown: the more the better.
    Clicks,
}

impl Measure {
    /// All measures, in the order of their tables.
    pub const ALL: [Measure; 3] = [Measure::Regret, Measure::Rate, Measure::Clicks];

    /// True if a relative difference is worse by more than the tolerance.
    fn is_worse(self, off: Mean) -> bool {
        match self {
            Measure::Regret => off.mean > TOLERANCE,
            Measure::Rate | Measure::Clicks => off.mean < -TOLERANCE,
        }
    }

    /// A mean for people, with its error if it has one.
    pub(crate) fn text(self, mean: Mean, has_error: bool) -> String {
        let number = |value: f64| match self {
            Measure::Regret if mean.mean < 100.0 => format!("{value:.1}"),
            Measure::Regret => thousands(value),
            Measure::Rate | Measure::Clicks => format!("{value:.4}"),
        };
        if has_error {
            format!("{} ± {}", number(mean.mean), number(mean.error))
        } else {
            number(mean.mean)
        }
    }
}

/// A relative difference in percent, with its error if it has one.
pub(crate) fn difference(off: Mean, has_error: bool) -> String {
    let mut text = percent(off.mean);
    if has_error {
        let error = format!(" ± {:.1}", 100.0 * off.error);
        text.push_str(&error);
    }
    text
}

/// A table as Markdown; `rule` is the rule below the head of all columns but the first.
pub(crate) fn markdown_table(head: &[String], lines: &[Vec<String>], rule: &str) -> String {
    let line = |words: &[String]| {
        let words: Vec<String> = words.iter().map(|w| w.replace('|', "\\|")).collect();
        format!("| {} |\n", words.join(" | "))
    };
    let rules = rule.repeat(head.len() - 1);
    let lines: String = lines.iter().map(|words| line(words)).collect();
    format!("{}|---|{rules}\n{lines}", line(head))
}

/// The result of a policy in a setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// The policy.
    pub policy: Name,
    /// The constants, if they are not the preset's.
    pub constants: Option<String>,
    /// The mean over seeds.
    #[serde(flatten)]
    pub mean: Mean,
    /// The values by seed, of which it is the mean.
    pub values: Vec<f64>,
}

impl Cell {
    pub(super) fn new(policy: Name, constants: Option<String>, values: Vec<f64>) -> Self {
        Self {
            policy,
            constants,
            mean: Mean::of(values.iter().copied()),
            values,
        }
    }
}

/// A setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TableRow {
    /// The name of the setting.
    pub setting: String,
    /// The command that makes the same worlds.
    pub command: String,
    /// The measure.
    pub measure: Measure,
    /// The seeds for which all policies are complete.
    pub seeds: Vec<u64>,
    /// Policy by policy.
    pub cells: Vec<Cell>,
    /// The compared policy's value over LinUCB-Ind's, less 1, in the same worlds.
    pub to_linucb_ind: Option<Mean>,
    /// The same over LinUCB-One's, if that has played.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_linucb_one: Option<Mean>,
    /// True if the compared policy is worse by more than is allowed.
    pub is_worse: bool,
}

impl TableRow {
    /// `None` if no seed is complete.
    pub(super) fn new(
        measure: Measure,
        setting: String,
        command: String,
        seeds: Vec<u64>,
        cells: Vec<Cell>,
    ) -> Option<Self> {
        if seeds.is_empty() {
            return None;
        }
        let of = |name| cells.iter().find(|cell: &&Cell| cell.policy == name);
        let compared_with = |name| {
            of(super::COMPARED).zip(of(name)).map(|(a, b)| {
                let pairs = a.values.iter().zip(&b.values);
                Mean::of(pairs.map(|(a, b)| a / b - 1.0))
            })
        };
        let to_linucb_ind = compared_with(Name::LINUCB_IND);
        let to_linucb_one = compared_with(Name::LINUCB_ONE);
        let mut comparisons = to_linucb_ind.iter().chain(&to_linucb_one);
        let is_worse = comparisons.any(|off| measure.is_worse(*off));
        Some(Self {
            setting,
            command,
            measure,
            seeds,
            cells,
            to_linucb_ind,
            to_linucb_one,
            is_worse,
        })
    }

    /// The text of a policy's cell; a dash if it did not play.
    fn text(&self, name: Name) -> String {
        let Some(cell) = self.cells.iter().find(|cell| cell.policy == name) else {
            return "–".into();
        };
        self.measure.text(cell.mean, cell.values.len() > 1)
    }

    /// The difference between the compared policy and another.
    fn difference(&self, off: Option<Mean>) -> String {
        let Some(off) = off else {
            return "–".into();
        };
        let mut text = difference(off, self.seeds.len() > 1);
        if self.measure.is_worse(off) {
            text.push_str(" worse");
        }
        text
    }
}

/// All settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// T of the synthetic settings.
    pub rounds: u64,
    /// The seeds that were asked for.
    pub seeds: Vec<u64>,
    /// True if constants for `ratings` were chosen fast.
    pub quick: bool,
    /// The policy that is compared with LinUCB-Ind.
    pub compared: Name,
    /// Setting by setting.
    pub rows: Vec<TableRow>,
}

impl Table {
    /// The head and the lines of a table of one measure, as text; `None` if no row has that measure.
    pub fn text(&self, measure: Measure) -> Option<(Vec<String>, Vec<Vec<String>>)> {
        let rows: Vec<&TableRow> = self.rows.iter().filter(|r| r.measure == measure).collect();
        if rows.is_empty() {
            return None;
        }
        let names = || {
            let shown = COLUMNS.into_iter();
            shown.filter(|&name| {
                rows.iter()
                    .any(|r| r.cells.iter().any(|c| c.policy == name))
            })
        };
        let mut head = vec![match measure {
            Measure::Regret => "regret".to_string(),
            Measure::Rate => "click-through rate".to_string(),
            Measure::Clicks => "clicks per item shown".to_string(),
        }];
        head.extend(names().map(|name| name.title.to_string()));
        let has_one = rows.iter().any(|row| row.to_linucb_one.is_some());
        if has_one {
            head.push(format!("{} to LinUCB-One", self.compared.title));
        }
        head.push(format!("{} to LinUCB-Ind", self.compared.title));
        let lines = rows.iter().map(|row| {
            let mut line = vec![row.setting.clone()];
            line.extend(names().map(|name| row.text(name)));
            if has_one {
                line.push(row.difference(row.to_linucb_one));
            }
            line.push(row.difference(row.to_linucb_ind));
            line
        });
        Some((head, lines.collect()))
    }

    /// The tables in a few sentences.
    pub fn reading(&self) -> String {
        let seeds = match self.seeds.len() {
            1 => "1 seed".to_string(),
            many => format!("{many} seeds"),
        };
        let error = match self.seeds.len() {
            1 => "",
            _ => ", mean ± standard error",
        };
        let mut text = match self.rows.iter().any(|row| row.measure == Measure::Regret) {
            true => format!(
                "Regret after {} rounds, {seeds}{error}. By default: 1000 users equally often, 10 clusters, d = 20, \
                 20 candidates, rewards 0 or 1, constants `tuned`;",
                thousands(self.rounds as f64)
            ),
            false => format!("{seeds}{error}. Constants `tuned`;"),
        };
        text.push_str(" SCLUB-soft and one Gaussian prior have one set of constants of their own.");
        for row in self.rows.iter().filter(|row| row.measure == Measure::Rate) {
            let tuned = row
                .cells
                .iter()
                .find(|cell| cell.policy == Name::LINUCB_IND);
            if let Some(constants) = tuned.and_then(|cell| cell.constants.as_ref()) {
                let line = format!(
                    " {}: LinUCB-Ind is tuned by hand: {constants}.",
                    row.setting
                );
                text.push_str(&line);
            }
        }
        if let Some(shop) = self.rows.iter().find(|row| row.measure == Measure::Clicks) {
            text.push_str(&format!(
                " Catalogues: clicks that came, per item shown, in at most {} rounds; {} users of {} tastes (`{}`).",
                thousands(catalogue::DEFAULT_ROUNDS as f64),
                Shop::default().users,
                Shop::default().tastes,
                shop.command
            ));
        }
        if let Some(fewest) = self.rows.iter().map(|row| row.seeds.len()).min()
            && fewest < self.seeds.len()
        {
            text.push_str(&format!(
                " Not complete: some rows have only {fewest} seeds."
            ));
        }
        let compared = self.compared.title;
        let limit = 100.0 * TOLERANCE;
        let has_one = self.rows.iter().any(|row| row.to_linucb_one.is_some());
        let rivals = match has_one {
            true => "LinUCB-Ind, or LinUCB-One in a catalogue,",
            false => "LinUCB-Ind",
        };
        let worse: Vec<&str> = self
            .rows
            .iter()
            .filter(|row| row.is_worse)
            .map(|row| row.setting.as_str())
            .collect();
        if worse.is_empty() {
            let line = format!(" {compared} is nowhere worse than {rivals} by more than {limit}%.");
            text.push_str(&line);
        } else {
            text.push_str(&format!(
                " {compared} is worse than {rivals} by more than {limit}% in {} of {} settings: {}.",
                worse.len(),
                self.rows.len(),
                worse.join("; ")
            ));
        }
        text
    }

    /// The whole result as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("{}\n", self.reading());
        for measure in Measure::ALL {
            let Some((head, lines)) = self.text(measure) else {
                continue;
            };
            text.push('\n');
            text.push_str(&markdown_table(&head, &lines, "---:|"));
        }
        text
    }
}
