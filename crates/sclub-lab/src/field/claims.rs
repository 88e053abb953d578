//! Policies in their own settings, against the policies that papers compare with.
//!
//! Each plays with the constants of the table, with those of its published code, and where public code departs from
//! its paper, with that departure switched on. Policies that it is compared with have constants of the same origin.

use sclub::{Preset, Value};
use serde::Serialize;

use super::rows::World;
use super::stats::{holm, paired};
use super::table::LEVEL;
use super::{Plan, plays, tune};
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
    /// Those of the published code, with a departure of public code from the paper, in words.
    PublicCode(&'static str),
}

/// A departure of public code from its paper that a constant switches on.
struct Departure {
    policy: &'static str,
    constant: (&'static str, Value),
    what: &'static str,
}

const fn departure(
    policy: &'static str,
    constant: &'static str,
    value: Value,
    what: &'static str,
) -> Departure {
    Departure {
        policy,
        constant: (constant, value),
        what,
    }
}

const DEPARTURES: [Departure; 7] = [
    departure(
        "dynucb",
        "centroids",
        Value::Choice("stale"),
        "centroids before the reward (--centroids stale)",
    ),
    departure(
        "club-cascade",
        "bonus",
        Value::Choice("random"),
        "a random factor in the bonus (--bonus random)",
    ),
    departure(
        "bass",
        "ellipsoids",
        Value::Choice("plain"),
        "r in place of r² (--ellipsoids plain)",
    ),
    departure(
        "fclub",
        "joins",
        Value::Choice("unless-all"),
        "clusters that all agree stay apart (--joins unless-all)",
    ),
    departure(
        "rclumb",
        "history",
        Value::Choice("none"),
        "no bonus for the error: its history is lost (--history none)",
    ),
    departure(
        "rsclumb",
        "history",
        Value::Choice("none"),
        "no bonus for the error: its history is lost (--history none)",
    ),
    departure(
        "cofiba",
        "alpha_edges",
        Value::Number(1e9),
        "no edge is ever cut (--alpha-edges 1e9)",
    ),
];

/// A policy in its own setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Claim {
    /// The policy.
    pub policy: Name,
    /// The world.
    pub world: &'static str,
    /// The command that makes the same worlds.
    pub command: String,
    /// The origin of the constants, also of those of the others.
    pub constants: Constants,
    /// Regret, over the seeds.
    #[serde(flatten)]
    pub regret: Mean,
    /// The policies that papers compare with.
    pub against: Vec<Against>,
}

/// A comparison with another policy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Against {
    /// The other policy.
    pub other: Name,
    /// Regret over that of the other, minus 1.
    pub off: f64,
    /// The p-value of the paired difference, corrected for all comparisons of the policy in this setting (Holm). Absent with a
    /// single seed.
    pub p: Option<f64>,
}

impl Against {
    /// Returns true if the difference is significant.
    pub fn is_clear(&self) -> bool {
        self.p.is_some_and(|p| p <= LEVEL)
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

/// A policy with constants of one origin. `None` if it has none of that origin.
fn entry(
    plan: &Plan,
    name: Name,
    world: &World,
    constants: Constants,
) -> Result<Option<Entry>, PaperError> {
    let has_published = name.presets.contains(&Preset::Released);
    Ok(match constants {
        Constants::Table if plan.released => None,
        Constants::Table => {
            let chosen = plan.constants.of(world.family, name.as_str());
            Some(tune::entry(name, world, chosen)?)
        }
        Constants::Published if !has_published => None,
        Constants::Published => Some(published(name, world, &[])?),
        Constants::PublicCode(what) => {
            let mut known = DEPARTURES.iter();
            let known = known.find(|known| known.policy == name.as_str() && known.what == what);
            known
                .map(|known| published(name, world, &[known.constant]))
                .transpose()?
        }
    })
}

/// The origins of constants with which a policy plays its own setting.
fn origins(name: Name) -> impl Iterator<Item = Constants> {
    let departures = DEPARTURES
        .iter()
        .filter(move |known| known.policy == name.as_str());
    [Constants::Table, Constants::Published]
        .into_iter()
        .chain(departures.map(|known| Constants::PublicCode(known.what)))
}

/// The policies that a policy is compared with, with constants of the same origin.
fn others(
    plan: &Plan,
    name: Name,
    world: &World,
    constants: Constants,
) -> Result<Vec<(Name, Entry)>, PaperError> {
    let origin = match constants {
        Constants::PublicCode(_) => Constants::Published,
        other => other,
    };
    let mut all = Vec::new();
    for other in BASELINES.into_iter().filter(|&other| other != name) {
        let entry = entry(plan, other, world, origin)?;
        all.extend(entry.map(|entry| (other, entry)));
    }
    Ok(all)
}

/// The entries that the claims about a world need, each once.
pub(super) fn entries(plan: &Plan, world: &World) -> Result<Vec<Entry>, PaperError> {
    let mut all: Vec<Entry> = Vec::new();
    for name in own(plan, world) {
        for constants in origins(name) {
            let Some(own) = entry(plan, name, world, constants)? else {
                continue;
            };
            let others = others(plan, name, world, constants)?;
            for entry in std::iter::once(own).chain(others.into_iter().map(|(_, entry)| entry)) {
                if !all.contains(&entry) {
                    all.push(entry);
                }
            }
        }
    }
    Ok(all)
}

/// The claims, over the seeds for which a world is complete.
pub(super) fn claims(plan: &Plan, cells: &Cells) -> Result<Vec<Claim>, PaperError> {
    let mut all = Vec::new();
    for world in plan.worlds().into_iter().chain(plan.own_settings()) {
        let record = |seed: u64, entry: &Entry| -> Option<Record> {
            cells.get(&key(&world.setting, seed, world.rounds, entry))
        };
        let needed = entries(plan, &world)?;
        let is_complete = |seed: &u64| needed.iter().all(|entry| record(*seed, entry).is_some());
        let seeds: Vec<u64> = plan.seeds.iter().copied().filter(is_complete).collect();
        if seeds.is_empty() {
            continue;
        }
        let regrets = |entry: &Entry| -> Vec<f64> {
            let records = seeds.iter().filter_map(|&seed| record(seed, entry));
            records.map(|record| record.regret).collect()
        };
        for name in own(plan, &world) {
            let first = all.len();
            for constants in origins(name) {
                let Some(own) = entry(plan, name, &world, constants)? else {
                    continue;
                };
                let own = regrets(&own);
                let others = others(plan, name, &world, constants)?;
                let against = others.iter().map(|(other, entry)| {
                    let theirs = regrets(entry);
                    let differences: Vec<f64> =
                        own.iter().zip(&theirs).map(|(a, b)| a - b).collect();
                    Against {
                        other: *other,
                        off: own.iter().sum::<f64>() / theirs.iter().sum::<f64>() - 1.0,
                        p: paired(&differences),
                    }
                });
                all.push(Claim {
                    policy: name,
                    world: world.name,
                    command: world.command(&seeds),
                    constants,
                    regret: Mean::of(own.iter().copied()),
                    against: against.collect(),
                });
            }
            correct(&mut all[first..]);
        }
    }
    Ok(all)
}

/// Corrects the p-values of some claims for their number.
fn correct(claims: &mut [Claim]) {
    let against = claims.iter_mut().flat_map(|claim| &mut claim.against);
    let mut tested: Vec<&mut f64> = against.filter_map(|one| one.p.as_mut()).collect();
    let values: Vec<f64> = tested.iter().map(|p| **p).collect();
    for (p, corrected) in tested.iter_mut().zip(holm(&values)) {
        **p = corrected;
    }
}
