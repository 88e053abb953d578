//! Theorem 3's setting: many users a round, all served on the same history.

use sclub::{Preset, ValueError};

use super::cells::Cells;
use super::jobs::Job;
use super::panels::{even_curve, records};
use super::theorem::Constants;
use super::{PaperError, Plan, entry, synthetic};
use crate::policies::{Entry, Name};
use crate::report::model::{Line, ManyUsers, ManyUsersRow};
use crate::setting::Setting;
use crate::summary::{Mean, percent, thousands};
use crate::synthetic::{Frequencies, Recipe};

/// p̄, users a round on average, with how strongly their lines are drawn.
const USERS_A_ROUND: [(f64, f64); 3] = [(1.0, 0.45), (10.0, 0.7), (100.0, 1.0)];

/// The policies and their presets.
const PLAYERS: [(Name, Preset); 3] = [
    (Name::SCLUB, Preset::Tuned),
    (Name::LINUCB_IND, Preset::Tuned),
    (Name::SCLUB, Preset::Theory),
];

/// Recommendations in each run, about.
fn served(plan: &Plan) -> u64 {
    plan.rounds.div_ceil(4)
}

/// One number of users a round, before it is run.
struct Series {
    /// p̄
    users: f64,
    strength: f64,
    rounds: u64,
    recipe: Recipe,
    setting: Setting,
    entries: Vec<Entry>,
}

fn all_series(plan: &Plan) -> Result<Vec<Series>, ValueError> {
    USERS_A_ROUND
        .into_iter()
        .map(|(users, strength)| {
            let recipe = Recipe {
                users_a_round: Some(users),
                ..synthetic(Frequencies::Uniform)
            };
            let setting = Setting::Synthetic(recipe);
            let rounds = (served(plan) as f64 / users).ceil() as u64;
            let entries = PLAYERS
                .into_iter()
                .map(|(name, preset)| entry(name, preset, &setting, rounds))
                .collect::<Result<_, _>>()?;
            Ok(Series {
                users,
                strength,
                rounds,
                recipe,
                setting,
                entries,
            })
        })
        .collect()
}

pub(super) fn jobs(plan: &Plan) -> Result<Vec<Job>, PaperError> {
    let mut jobs = Vec::new();
    for series in all_series(plan)? {
        for &seed in &plan.seeds {
            let Series {
                setting,
                rounds,
                entries,
                ..
            } = &series;
            jobs.push(Job::new(setting, seed, *rounds, entries));
        }
    }
    Ok(jobs)
}

pub(super) fn many_users(plan: &Plan, cells: &Cells) -> Result<Option<ManyUsers>, PaperError> {
    let (mut lines, mut rows) = (Vec::new(), Vec::new());
    for series in all_series(plan)? {
        let Series {
            users,
            strength,
            rounds,
            recipe,
            setting,
            entries,
        } = series;
        // The gap does not enter the leading term.
        let constants = Constants::new(&recipe, f64::NAN, rounds);
        for entry in &entries {
            let records = records(plan, cells, &setting, rounds, entry);
            if records.is_empty() {
                return Ok(None);
            }
            let regret = Mean::of(records.iter().map(|record| record.regret));
            if entry.values.preset() == Preset::Tuned {
                lines.push(Line {
                    label: format!("{}, {users:.0} a round", entry.name.title),
                    policy: Some(entry.name),
                    dashed: false,
                    strength,
                    points: even_curve(&records)
                        .into_iter()
                        .map(|(round, mean)| (round as f64 * users, mean))
                        .collect(),
                });
            }
            rows.push(ManyUsersRow {
                users_a_round: users,
                policy: entry.name,
                preset: entry.values.preset(),
                rounds,
                served: Mean::of(records.iter().map(|record| record.served as f64)).mean,
                regret,
                clusters: Mean::of(records.iter().map(|record| record.clusters as f64)).mean,
                bound: constants.leading(rounds as f64, users / constants.clusters),
            });
        }
    }
    let regret_of = |users: f64, preset: Preset| {
        rows.iter()
            .find(|row| {
                row.users_a_round == users && row.policy == Name::SCLUB && row.preset == preset
            })
            .map_or(f64::NAN, |row| row.regret.mean)
    };
    let (one, hundred) = (
        regret_of(1.0, Preset::Tuned),
        regret_of(100.0, Preset::Tuned),
    );
    let mut reading = vec![format!(
        "Each of the {} users appears in a round independently, with the same probability; all who \
         appear are served before anything is learned from any of them. The number of \
         recommendations is the same for every number of users a round, so their number of rounds is \
         not. Serving 100 users on the same history instead of one changes the regret of SCLUB with \
         tuned constants from {} to {} ({}).",
        thousands(synthetic(Frequencies::Uniform).users as f64),
        thousands(one),
        thousands(hundred),
        percent(hundred / one - 1.0),
    )];
    if rows.iter().all(|row| row.bound > row.served) {
        reading.push(
            "Theorem 3's leading term is, as Theorem 1's, larger than the number of \
             recommendations: the bound holds and says nothing at this horizon."
                .into(),
        );
    }
    Ok(Some(ManyUsers {
        lines,
        rows,
        reading,
    }))
}
