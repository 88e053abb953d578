//! Policies in their own settings, against the policies that papers compare with.
//!
//! Each plays with the constants of the table, with those of its published code, and where that code departs from
//! its paper, with that departure switched on. Policies that it is compared with have constants of the same origin.

use sclub::{Preset, Value};
use serde::Serialize;

use super::rows::World;
use super::table::{Field, WorldRow};
use super::{Plan, plays};
use crate::paper::cells::{Cells, Record};
use crate::paper::jobs::key;
use crate::paper::{PaperError, entry_with};
use crate::policies::{Entry, Name};
use crate::summary::Mean;

/// The policies that most papers compare with.
const BASELINES: [Name; 3] = [Name::SCLUB, Name::CLUB, Name::LINUCB_IND];

/// The origin of constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Constants {
    /// Those of the table.
    Table,
    /// Those of the published code.
    Published,
    /// Those of the published code, with a departure of that code from its paper, in words.
    PublicCode(&'static str),
}

/// A departure of public code from its paper that a constant switches on.
struct Departure {
    policy: &'static str,
    constant: (&'static str, Value),
    what: &'static str,
}

const DEPARTURES: [Departure; 2] = [
    Departure {
        policy: "dynucb",
        constant: ("centroids", Value::Choice("stale")),
        what: "centroids before the reward (--centroids stale)",
    },
    Departure {
        policy: "club-cascade",
        constant: ("bonus", Value::Choice("random")),
        what: "a random factor in the bonus (--bonus random)",
    },
];

/// A policy in its own setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Claim {
    /// The policy.
    pub policy: Name,
    /// The world.
    pub world: &'static str,
    /// The origin of the constants, also of those of the others.
    pub constants: Constants,
    /// Regret, over the seeds.
    #[serde(flatten)]
    pub regret: Mean,
    /// Regret over that of the policies that papers compare with, minus 1.
    pub against: Vec<(Name, f64)>,
}

impl Claim {
    /// The policies that it is not better than.
    pub fn worse_than(&self) -> Vec<Name> {
        let worse = self.against.iter().filter(|(_, off)| *off >= 0.0);
        worse.map(|&(name, _)| name).collect()
    }
}

/// The policies of a plan whose own setting a world is.
fn own(plan: &Plan, world: &World) -> Vec<Name> {
    let all = plan.policies.iter().copied();
    all.filter(|name| world.own_of.contains(&name.as_str()) && plays(*name, world))
        .collect()
}

/// A policy with the constants of its published code, if it has any.
pub(super) fn published(
    name: Name,
    world: &World,
    given: &[(&str, Value)],
) -> Result<Entry, PaperError> {
    let preset = name.spec().preset(Preset::Released);
    let given = given.to_vec();
    Ok(entry_with(
        name,
        preset,
        given,
        &world.setting,
        world.rounds,
    )?)
}

/// The entries that claims need beside those of the table.
pub(super) fn entries(plan: &Plan, world: &World) -> Result<Vec<Entry>, PaperError> {
    let own = own(plan, world);
    if own.is_empty() {
        return Ok(Vec::new());
    }
    let others = BASELINES.iter().filter(|name| !own.contains(name));
    let mut all = Vec::new();
    for &name in own.iter().chain(others) {
        all.push(published(name, world, &[])?);
    }
    for departure in DEPARTURES {
        if let Some(&name) = own.iter().find(|name| name.as_str() == departure.policy) {
            all.push(published(name, world, &[departure.constant])?);
        }
    }
    Ok(all)
}

/// The claims about the worlds of a table.
pub(super) fn claims(plan: &Plan, field: &Field, cells: &Cells) -> Result<Vec<Claim>, PaperError> {
    let mut all = Vec::new();
    for world in plan.worlds() {
        let Some(row) = field.worlds.iter().find(|row| row.world == world.name) else {
            continue;
        };
        let regret = |entry: &Entry| {
            let records: Option<Vec<Record>> = row
                .seeds
                .iter()
                .map(|&seed| cells.get(&key(&world.setting, seed, world.rounds, entry)))
                .collect();
            Some(Mean::of(records?.iter().map(|record| record.regret)))
        };
        let mut published_means = Vec::new();
        for name in BASELINES {
            let mean = regret(&published(name, &world, &[])?);
            published_means.extend(mean.map(|mean| (name, mean)));
        }
        for name in own(plan, &world) {
            let in_table = |name: Name| Some((name, row.cell(name)?.mean));
            let table_means: Vec<(Name, Mean)> = BASELINES
                .iter()
                .filter_map(|&name| in_table(name))
                .collect();
            let mut add = |constants, mean: Option<Mean>, others: &[(Name, Mean)]| {
                all.extend(mean.map(|mean| claim(name, row, constants, mean, others)));
            };
            let mean = row.cell(name).map(|cell| cell.mean);
            if !plan.released {
                add(Constants::Table, mean, &table_means);
            }
            if !name.presets.contains(&Preset::Released) {
                continue;
            }
            let mean = regret(&published(name, &world, &[])?);
            add(Constants::Published, mean, &published_means);
            for departure in DEPARTURES {
                if name.as_str() == departure.policy {
                    let mean = regret(&published(name, &world, &[departure.constant])?);
                    add(
                        Constants::PublicCode(departure.what),
                        mean,
                        &published_means,
                    );
                }
            }
        }
    }
    Ok(all)
}

fn claim(
    policy: Name,
    row: &WorldRow,
    constants: Constants,
    regret: Mean,
    others: &[(Name, Mean)],
) -> Claim {
    let others = others.iter().filter(|(name, _)| *name != policy);
    Claim {
        policy,
        world: row.world,
        constants,
        regret,
        against: others
            .map(|(name, other)| (*name, regret.mean / other.mean - 1.0))
            .collect(),
    }
}
