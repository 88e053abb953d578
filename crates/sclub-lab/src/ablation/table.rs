//! Results, as numbers and as text.

use serde::Serialize;

use super::{POLICY, Variant};
use crate::robust::table::{difference, markdown_table};
use crate::robust::{Measure, Row};
use crate::run::Run;
use crate::setting::Setting;
use crate::summary::{Mean, thousands};

/// A run by its place: world and variant.
type PlacedRun = Run<(usize, usize)>;

/// A world.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Column {
    /// The name of the world.
    pub world: String,
    /// The command that makes the same world. With the flags of a variant it gives that variant's values.
    pub command: String,
    /// T
    pub rounds: u64,
    /// Regret, or the mean click probability of the items shown.
    pub measure: Measure,
    /// The seeds for which all variants are complete.
    pub seeds: Vec<u64>,
}

/// The result of a variant in a world.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// The mean over seeds.
    #[serde(flatten)]
    pub mean: Mean,
    /// The values by seed.
    pub values: Vec<f64>,
    /// The value over the unchanged policy's in the same world, less 1.
    pub to_unchanged: Mean,
}

/// A variant in all worlds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TableRow {
    /// The variant.
    #[serde(flatten)]
    pub variant: Variant,
    /// World by world.
    pub cells: Vec<Cell>,
}

/// All variants in all worlds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// The seeds that were asked for.
    pub seeds: Vec<u64>,
    /// World by world; those without a complete seed are left out.
    pub columns: Vec<Column>,
    /// Variant by variant. The first is the unchanged policy.
    pub rows: Vec<TableRow>,
}

impl Table {
    pub(super) fn new(
        asked: &[u64],
        worlds: &[Row],
        variants: &[Variant],
        runs: &[PlacedRun],
    ) -> Self {
        let of = |place| runs.iter().filter(move |run| run.policy == place);
        let mut columns = Vec::new();
        let mut rows: Vec<TableRow> = variants
            .iter()
            .map(|&variant| TableRow {
                variant,
                cells: Vec::new(),
            })
            .collect();
        for (at, world) in worlds.iter().enumerate() {
            let seeds: Vec<u64> = of((at, 0)).map(|run| run.seed).collect();
            if seeds.is_empty() {
                continue;
            }
            let measure = match world.setting {
                Setting::Catalogue(_) => Measure::Clicks,
                _ => Measure::Regret,
            };
            let values = |variant| -> Vec<f64> {
                let value = |run: &PlacedRun| match measure {
                    Measure::Regret => run.regret,
                    Measure::Clicks | Measure::Rate => run.click_probability(),
                };
                of((at, variant)).map(value).collect()
            };
            let unchanged = values(0);
            for (variant, row) in rows.iter_mut().enumerate() {
                let values = values(variant);
                let pairs = values.iter().zip(&unchanged);
                row.cells.push(Cell {
                    mean: Mean::of(values.iter().copied()),
                    to_unchanged: Mean::of(pairs.map(|(own, unchanged)| own / unchanged - 1.0)),
                    values,
                });
            }
            columns.push(Column {
                world: world.name.clone(),
                command: format!(
                    "sclub run --policies {POLICY} {} --first-seed {} --seeds {}",
                    world.flags,
                    seeds[0],
                    seeds.len()
                ),
                rounds: world.rounds,
                measure,
                seeds,
            });
        }
        Self {
            seeds: asked.to_vec(),
            columns,
            rows,
        }
    }

    /// The head and the lines of the table, as text.
    pub fn text(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let mut head = vec![POLICY.to_string()];
        head.extend(self.columns.iter().map(|column| match column.measure {
            Measure::Regret => format!("{}: regret", column.world),
            Measure::Clicks | Measure::Rate => format!("{}: clicks", column.world),
        }));
        let lines = self.rows.iter().enumerate().map(|(place, row)| {
            let cells = row.cells.iter().zip(&self.columns).map(|(cell, column)| {
                let has_error = cell.values.len() > 1;
                if place == 0 {
                    return column.measure.text(cell.mean, has_error);
                }
                let mean = column.measure.text(cell.mean, false);
                format!("{mean} ({})", difference(cell.to_unchanged, has_error))
            });
            let name = row.variant.name.to_owned();
            [name].into_iter().chain(cells).collect()
        });
        (head, lines.collect())
    }

    /// The legend of the table.
    pub fn reading(&self) -> String {
        let seeds = self.seeds.len();
        let many = if seeds == 1 { "" } else { "s" };
        let rounds = self.columns.iter().map(|column| column.rounds);
        let rounds: Vec<String> = rounds.map(|rounds| thousands(rounds as f64)).collect();
        let mut text = format!(
            "regret: the less the better. clicks: mean click probability of the items shown, the more the better; \
             500 late: rewards come 500 rounds late. In brackets: the difference to the unchanged policy in the \
             same worlds, ± its standard error. {seeds} seed{many}; rounds by column: {}.",
            rounds.join("; ")
        );
        let fewest = self.columns.iter().map(|column| column.seeds.len()).min();
        if let Some(fewest) = fewest.filter(|&fewest| fewest < seeds) {
            let line = format!(" Not complete: some columns have only {fewest} of them.");
            text.push_str(&line);
        }
        text
    }

    /// The table as Markdown, and what each variant is.
    pub fn markdown(&self) -> String {
        let (head, lines) = self.text();
        let legend = ["variant", "meaning", "`sclub run` with"].map(String::from);
        let variants: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|TableRow { variant, .. }| {
                let flags = match variant.flags {
                    "" => String::new(),
                    flags => format!("`{flags}`"),
                };
                vec![variant.name.into(), variant.meaning.into(), flags]
            })
            .collect();
        format!(
            "{}\n\n{}\n{}",
            self.reading(),
            markdown_table(&head, &lines, "---:|"),
            markdown_table(&legend, &variants, "---|")
        )
    }
}
