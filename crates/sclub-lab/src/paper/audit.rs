//! The differences between the published code and the pseudo-code, and the effect of each on regret.

use sclub::{Deviations, Preset, Value, ValueError};

use super::cells::Cells;
use super::jobs::{Job, key};
use super::published::{ALGORITHMS, PANELS, PublishedPanel};
use super::{PaperError, Plan};
use crate::policies::{Entry, Name};
use crate::report::model::{Audit, Variant};
use crate::setting::Setting;
use crate::summary::{Mean, percent, thousands};

/// The panels that the audit is made in.
const AUDITED: [&str; 2] = ["1a", "1c"];

/// A sentence on each of [`Deviations::NAMES`].
const MEANINGS: [&str; 6] = [
    "Each observation of a user who was split out enters twice, once through the user and once through \
     the cluster, which shares the user's arrays.",
    "Marks are cleared in every round, not in every phase; so nothing is ever merged.",
    "After a split or a merge a cluster's estimate is not renewed before its next observation.",
    "Whether a cluster is checked is not worked out anew when a user leaves it, and a user who leaves loses \
     the user's mark.",
    "A user is compared with the cluster's current estimate, not with the phase's pivot.",
    "A user's frequency is compared with the cluster's average, not with each member's.",
];

/// Every deviation: name, meaning, and the set of it alone.
fn deviations() -> impl Iterator<Item = (&'static str, &'static str, u64)> {
    let named = Deviations::NAMES.into_iter().zip(MEANINGS);
    named
        .enumerate()
        .map(|(place, (name, meaning))| (name, meaning, 1 << place))
}

/// A row of the audit before it is run.
struct Row {
    group: &'static str,
    name: &'static str,
    meaning: &'static str,
    preset: Preset,
    index: Option<&'static str>,
    /// A set of [`Deviations::NAMES`].
    deviations: u64,
    /// The row that it is compared with.
    reference: Option<usize>,
}

/// The place of the pseudo-code with the published constants among the rows.
const BASE: usize = 2;

fn rows() -> Vec<Row> {
    let plain = |group, name, meaning, preset, index| Row {
        group,
        name,
        meaning,
        preset,
        index,
        deviations: 0,
        reference: Some(BASE),
    };
    let mut rows = vec![
        plain(
            "base",
            "pseudo-code, Theorem 1's constants",
            "Algorithms 1 to 4 as printed. No user is ever split by the estimate.",
            Preset::Theory,
            None,
        ),
        plain(
            "base",
            "pseudo-code, published constants",
            "The constants of the published code, the norm of the paper.",
            Preset::Released,
            Some("norm"),
        ),
        plain(
            "base",
            "pseudo-code, published constants, squared norm",
            "The constants of the published code and its squared norm: what the deviations below are \
             added to.",
            Preset::Released,
            None,
        ),
    ];
    rows[BASE].reference = None;
    for (name, meaning, alone) in deviations() {
        rows.push(Row {
            group: "alone",
            name,
            meaning,
            preset: Preset::Released,
            index: None,
            deviations: alone,
            reference: Some(BASE),
        });
    }
    let all = rows.len() + MEANINGS.len() + 1;
    let all_deviations = Deviations::ALL.to_set();
    for (name, meaning, alone) in deviations() {
        rows.push(Row {
            group: "without",
            name,
            meaning,
            preset: Preset::Released,
            index: None,
            deviations: all_deviations & !alone,
            reference: Some(all),
        });
    }
    rows.push(Row {
        group: "without",
        name: "squared norm",
        meaning: "The index adds β·xᵀS⁻¹x where the paper has β·√(xᵀS⁻¹x).",
        preset: Preset::Released,
        index: Some("norm"),
        deviations: all_deviations,
        reference: Some(all),
    });
    rows.push(Row {
        group: "all",
        name: "all deviations",
        meaning: "The published code.",
        preset: Preset::Released,
        index: None,
        deviations: all_deviations,
        reference: None,
    });
    rows
}

fn variant(row: &Row, setting: &Setting, rounds: u64) -> Result<Entry, ValueError> {
    let mut given = vec![("deviations", Value::Set(row.deviations))];
    given.extend(row.index.map(|index| ("index", Value::Choice(index))));
    let assumptions = setting.assumptions(rounds);
    Entry::new(
        Name::SCLUB,
        row.preset,
        &given,
        &setting.setup(&assumptions),
    )
}

/// The audited settings with their panels.
fn settings(plan: &Plan) -> Vec<(&'static PublishedPanel, Setting)> {
    PANELS
        .iter()
        .filter(|panel| AUDITED.contains(&panel.id))
        .filter_map(|panel| Some((panel, plan.setting(panel.users, panel.frequencies)?)))
        .collect()
}

pub(super) fn jobs(plan: &Plan) -> Result<Vec<Job>, PaperError> {
    let mut jobs = Vec::new();
    for (_, setting) in settings(plan) {
        let entries: Vec<Entry> = rows()
            .iter()
            .map(|row| variant(row, &setting, plan.rounds))
            .collect::<Result<_, _>>()?;
        for &seed in &plan.seeds {
            jobs.push(Job::new(&setting, seed, plan.rounds, &entries));
        }
    }
    Ok(jobs)
}

/// `None` if no seed is complete in both settings.
pub(super) fn audit(plan: &Plan, cells: &Cells) -> Result<Option<Audit>, PaperError> {
    let settings = settings(plan);
    let rows = rows();
    // The same seeds for all rows of a setting, so that differences are over the same worlds.
    let mut regrets: Vec<Vec<Vec<f64>>> = Vec::new();
    for (_, setting) in &settings {
        let entries: Vec<Entry> = rows
            .iter()
            .map(|row| variant(row, setting, plan.rounds))
            .collect::<Result<_, _>>()?;
        let mut by_row = vec![Vec::new(); rows.len()];
        for &seed in &plan.seeds {
            let regrets_of_seed: Option<Vec<f64>> = entries
                .iter()
                .map(|entry| {
                    let record = cells.get(&key(setting, seed, plan.rounds, entry))?;
                    Some(record.regret)
                })
                .collect();
            for (row, regret) in by_row.iter_mut().zip(regrets_of_seed.into_iter().flatten()) {
                row.push(regret);
            }
        }
        regrets.push(by_row);
    }
    if regrets.iter().any(|by_row| by_row[0].is_empty()) {
        return Ok(None);
    }
    let variants: Vec<Variant> = rows
        .iter()
        .enumerate()
        .map(|(at, row)| Variant {
            group: row.group.into(),
            name: row.name.into(),
            meaning: row.meaning.into(),
            regrets: regrets
                .iter()
                .map(|by_row| {
                    let difference = row.reference.map(|reference| {
                        let pairs = by_row[at].iter().zip(&by_row[reference]);
                        Mean::of(pairs.map(|(own, other)| own - other))
                    });
                    (Mean::of(by_row[at].iter().copied()), difference)
                })
                .collect(),
        })
        .collect();
    let sclub = ALGORITHMS
        .iter()
        .position(|&name| name == Name::SCLUB)
        .expect("the paper is about it");
    let settings: Vec<(String, f64)> = settings
        .iter()
        .map(|(panel, _)| (panel.id.into(), panel.regret[sclub]))
        .collect();
    Ok(Some(Audit {
        rounds: plan.rounds,
        reading: settings
            .iter()
            .enumerate()
            .map(|(at, (id, published))| reading(plan, id, *published, at, &variants))
            .collect(),
        settings,
        variants,
    }))
}

/// The numbers of one setting, in words.
fn reading(plan: &Plan, id: &str, published: f64, at: usize, variants: &[Variant]) -> String {
    let regret = |variant: &Variant| variant.regrets[at].0.mean;
    let change = |variant: &Variant| variant.regrets[at].1.map_or(0.0, |mean| mean.mean);
    let with_error = |variant: &Variant| {
        let error = variant.regrets[at].1.map_or(0.0, |mean| mean.error);
        format!("{} ± {}", signed(change(variant)), thousands(error))
    };
    let all = regret(&variants[variants.len() - 1]);
    let base = regret(&variants[BASE]);
    let of_group = |group: &str| {
        let largest = |a: &&Variant, b: &&Variant| change(a).abs().total_cmp(&change(b).abs());
        let members = variants.iter().filter(|variant| variant.group == group);
        members.max_by(largest).expect("the group has members")
    };
    let (alone, without) = (of_group("alone"), of_group("without"));
    let compared = if plan.rounds == super::ROUNDS {
        format!(
            ", {} off the published {}",
            percent(all / published - 1.0),
            thousands(published)
        )
    } else {
        String::new()
    };
    format!(
        "In ({id}) all deviations together come to {}{compared}; the pseudo-code with the same constants \
         and the same index to {}, a difference of {}. Of the deviations put on alone, {} changes most \
         ({}); of what is left out of all, the {} ({}).",
        thousands(all),
        thousands(base),
        thousands(all - base),
        alone.name,
        with_error(alone),
        without.name,
        with_error(without),
    )
}

fn signed(value: f64) -> String {
    if value > 0.0 {
        format!("+{}", thousands(value))
    } else {
        thousands(value)
    }
}
