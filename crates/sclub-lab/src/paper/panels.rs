//! Figure 1, Table 1 and Table 2.

use sclub::{Preset, ValueError};

use super::cells::{Cells, Record};
use super::jobs::{Job, key};
use super::published::{ADDITIONAL, ALGORITHMS, PANELS, PublishedPanel, Users};
use super::{PaperError, Plan, entry};
use crate::policies::Entry;
use crate::report::model::{Cell, Panel};
use crate::setting::Setting;
use crate::summary::Mean;

/// The paper's algorithms with the published constants, then others with their default ones.
fn entries(plan: &Plan, setting: &Setting) -> Result<Vec<Entry>, ValueError> {
    let published = ALGORITHMS.map(|name| (name, Preset::Released));
    let beside = ADDITIONAL.iter().chain(&plan.policies);
    let beside = beside.map(|&name| (name, Preset::Tuned));
    published
        .into_iter()
        .chain(beside)
        .map(|(name, preset)| entry(name, preset, setting, plan.rounds))
        .collect()
}

pub(super) fn jobs(plan: &Plan) -> Result<Vec<Job>, PaperError> {
    let mut jobs = Vec::new();
    for panel in &PANELS {
        let Some(setting) = plan.setting(panel.users, panel.frequencies) else {
            continue;
        };
        let entries = entries(plan, &setting)?;
        for &seed in &plan.seeds {
            jobs.push(Job::new(&setting, seed, plan.rounds, &entries));
        }
    }
    Ok(jobs)
}

pub(super) fn panels(plan: &Plan, cells: &Cells) -> Result<Vec<Panel>, PaperError> {
    PANELS
        .iter()
        .map(|published| panel(plan, cells, published))
        .collect()
}

fn panel(plan: &Plan, cells: &Cells, published: &PublishedPanel) -> Result<Panel, PaperError> {
    let mut panel = Panel {
        id: published.id.into(),
        title: published.title.into(),
        note: plan
            .source(published.users)
            .and_then(|source| source.note.clone()),
        missing: None,
        cells: Vec::new(),
    };
    let Some(setting) = plan.setting(published.users, published.frequencies) else {
        panel.missing = Some(how_to_get(published.users).into());
        return Ok(panel);
    };
    for (at, entry) in entries(plan, &setting)?.iter().enumerate() {
        let records = records(plan, cells, &setting, plan.rounds, entry);
        if records.is_empty() {
            continue;
        }
        panel.cells.push(Cell {
            policy: entry.name,
            seeds: records.len(),
            regret: Mean::of(records.iter().map(|record| record.regret)),
            published_regret: published.regret.get(at).copied(),
            seconds: Mean::of(records.iter().map(|record| record.seconds)),
            published_seconds: published.seconds.get(at).copied(),
            clusters: Mean::of(records.iter().map(|record| record.clusters as f64)).mean,
            curve: even_curve(&records),
        });
    }
    if panel.cells.is_empty() {
        panel.missing =
            Some("No seed of this panel is complete yet. Run the command again.".into());
    }
    Ok(panel)
}

/// The results of a policy over all seeds that are complete.
pub(super) fn records(
    plan: &Plan,
    cells: &Cells,
    setting: &Setting,
    rounds: u64,
    entry: &Entry,
) -> Vec<Record> {
    plan.seeds
        .iter()
        .filter_map(|&seed| cells.get(&key(setting, seed, rounds, entry)))
        .collect()
}

/// Regret at equal distances, over some results.
pub(super) fn even_curve(records: &[Record]) -> Vec<(u64, Mean)> {
    let Some(first) = records.first() else {
        return Vec::new();
    };
    (0..first.even.len())
        .map(|at| {
            let regret = records.iter().map(|record| record.even[at].1);
            (first.even[at].0, Mean::of(regret))
        })
        .collect()
}

fn how_to_get(users: Users) -> &'static str {
    match users {
        Users::Drawn => "",
        Users::MovieLens => {
            "Needs MovieLens ratings. Get the archive of MovieLens 20M (or 25M, 10M, 1M) from \
             GroupLens, unpack it, and run `sclub paper --movielens ml-20m/ratings.csv`. The terms \
             of the data do not allow passing them on."
        }
        Users::Yelp => {
            "Needs Yelp reviews. Get the Yelp Open Dataset from Yelp, unpack it, and run \
             `sclub paper --yelp yelp_academic_dataset_review.json`. The terms of the data do not \
             allow passing them on."
        }
    }
}
