//! `sclub tune`: constants are chosen for every policy by one procedure and one budget.
//!
//! The procedure is successive halving. The first candidate is the policy's default. The others multiply each number
//! among its constants by a factor, drawn log-uniformly between 1/8 and 8 and cut to the constant's range. Each rung plays
//! the candidates that are left in all worlds of a family, on tuning seeds of its own, and keeps the best quarter. The default
//! plays in every rung, and the last rung is between it and the best of the others. The score is regret over that of random
//! choices, averaged over worlds and seeds.
//!
//! Constants that are not numbers, that are 0 or off by default, or that a world tells ([`TOLD`]) stay as they are: they
//! choose another policy rather than tune one.

use std::collections::BTreeMap;

use sclub::{Preset, Range, Value};
use serde::{Deserialize, Serialize};

use super::plays;
use super::rows::{Family, World, worlds};
use crate::paper::cells::Cells;
use crate::paper::jobs::{self, Job, key};
use crate::paper::{PaperError, Progress, entry_with};
use crate::policies::{Entry, Name};
use crate::run::Observer;
use crate::streams::mix;

/// The seed of the first tuning world. Reporting seeds are smaller.
pub const FIRST_TUNING_SEED: u64 = 1_000_001;

/// The factor by which a constant is changed at most, up and down.
const MAX_FACTOR: f64 = 8.0;

/// The number of candidates that a rung keeps of each four.
const KEEP: usize = 4;

/// The number of candidates that share the drawing of a world.
const ENTRIES_PER_JOB: usize = 32;

/// Constants that papers take as known, and worlds tell: the number of clusters, the error of linear rewards, and the
/// number of servers.
const TOLD: [&str; 4] = ["clusters", "components", "error", "servers"];

/// A plan of the tuning.
#[derive(Debug, Clone, PartialEq)]
pub struct TunePlan {
    /// The policies.
    pub policies: Vec<Name>,
    /// The number of candidates for each policy and family.
    pub candidates: usize,
    /// T of the last rung.
    pub rounds: u64,
    /// Seeds of the last rung.
    pub seeds: u64,
    /// True to choose constants for each family of worlds, not once for all.
    pub per_family: bool,
    /// Threads to use.
    pub threads: usize,
}

/// The constants of a policy by name, as text.
pub type Chosen = BTreeMap<String, String>;

/// The result of the tuning.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Tuned {
    /// The command that made it.
    pub command: String,
    /// The number of candidates for each policy.
    pub candidates: usize,
    /// T of the last rung.
    pub rounds: u64,
    /// The seeds of the last rung.
    pub seeds: Vec<u64>,
    /// The constants that differ from a policy's defaults, by family (or `all`) and policy.
    pub constants: BTreeMap<String, BTreeMap<String, Chosen>>,
    /// The score of the chosen and the default constants in the last rung that the policy played, by family and policy.
    pub scores: BTreeMap<String, BTreeMap<String, (f64, f64)>>,
}

/// The name of all families together.
pub const ALL_FAMILIES: &str = "all";

impl Tuned {
    /// The constants of a policy in a family, as far as they differ from its defaults.
    pub fn of(&self, family: Family, policy: &str) -> Option<&Chosen> {
        let groups = [family.as_str(), ALL_FAMILIES];
        groups
            .into_iter()
            .find_map(|group| self.constants.get(group)?.get(policy))
    }
}

/// A rung: its rounds, its seeds, and the number of candidates that it keeps beside the default.
struct Rung {
    rounds: u64,
    seeds: Vec<u64>,
    kept: usize,
}

impl TunePlan {
    /// The rungs: each has a quarter of the candidates of the one before, twice the rounds, and other seeds. The last one has the
    /// default and one candidate.
    fn rungs(&self) -> Vec<Rung> {
        let mut kept = Vec::new();
        let mut left = self.candidates;
        while left > 1 {
            left = left.div_ceil(KEEP);
            kept.push(left);
        }
        kept.push(1);
        let last = kept.len() - 1;
        let rung = |(place, kept): (usize, usize)| {
            let first = FIRST_TUNING_SEED + place as u64;
            let seeds = if place == last { self.seeds } else { 1 };
            Rung {
                rounds: (self.rounds >> (last - place)).max(256),
                seeds: (first..first + seeds).collect(),
                kept,
            }
        };
        kept.into_iter().enumerate().map(rung).collect()
    }

    /// The groups of worlds for which constants are chosen.
    fn groups(&self) -> Vec<(&'static str, Vec<Family>)> {
        match self.per_family {
            true => Family::ALL
                .map(|family| (family.as_str(), vec![family]))
                .into(),
            false => vec![(ALL_FAMILIES, Family::ALL.into())],
        }
    }

    /// The rounds of all rungs, over all policies and worlds, at most: if nothing is stored yet and no default wins early.
    pub fn rounds_to_play(&self) -> u64 {
        let mut total = 0;
        for (_, families) in self.groups() {
            let mut left = self.candidates;
            for rung in self.rungs() {
                let worlds = worlds(rung.rounds);
                let played = worlds
                    .iter()
                    .filter(|world| families.contains(&world.family));
                let rounds: u64 = played.map(|world| world.rounds).sum();
                let seeds = rung.seeds.len() as u64;
                total += rounds * seeds * left as u64 * self.policies.len() as u64;
                left = rung.kept + 1;
            }
        }
        total
    }

    /// Chooses constants. Results that are stored are not run again. `None` if it was stopped.
    ///
    /// # Errors
    /// [`PaperError`].
    pub fn run(
        &self,
        cells: &Cells,
        observer: &dyn Observer,
        done: &mut Progress,
    ) -> Result<Option<Tuned>, PaperError> {
        let mut tuned = Tuned {
            candidates: self.candidates,
            rounds: self.rounds,
            seeds: self.rungs().pop().map_or(Vec::new(), |rung| rung.seeds),
            ..Tuned::default()
        };
        for (group, families) in self.groups() {
            let mut left: Vec<(Name, Vec<Chosen>)> = self
                .policies
                .iter()
                .map(|&name| (name, candidates(name, self.candidates)))
                .collect();
            let mut scores = BTreeMap::new();
            for rung in self.rungs() {
                let mut played = worlds(rung.rounds);
                played.retain(|world| families.contains(&world.family));
                let seeds = &rung.seeds;
                let mut all = Vec::new();
                for world in &played {
                    let mut entries = Vec::new();
                    for (name, candidates) in &left {
                        // A default that has won has nothing more to show.
                        if !plays(*name, world) || candidates.len() < 2 {
                            continue;
                        }
                        for chosen in candidates {
                            entries.push(entry(*name, world, Some(chosen))?);
                        }
                    }
                    // Small jobs: threads end at about the same time, and little is lost by a stop.
                    for &seed in seeds {
                        let some = entries.chunks(ENTRIES_PER_JOB);
                        all.extend(
                            some.map(|some| Job::new(&world.setting, seed, world.rounds, some)),
                        );
                    }
                }
                let progress = jobs::work(all, cells, self.threads, observer)?;
                done.new += progress.new;
                done.reused += progress.reused;
                done.missing += progress.missing;
                if progress.missing > 0 {
                    return Ok(None);
                }
                for (name, candidates) in &mut left {
                    if candidates.len() < 2 {
                        continue;
                    }
                    let mut scored = Vec::new();
                    for chosen in candidates.drain(..) {
                        let score = score(*name, &chosen, &played, seeds, cells)?;
                        scored.push((score, chosen));
                    }
                    let default = scored[0].0;
                    // Candidates that are equally good keep their order: the default is the first.
                    scored.sort_by(|a, b| a.0.total_cmp(&b.0));
                    scores.insert(name.to_string(), (scored[0].0, default));
                    scored.truncate(rung.kept);
                    let kept = scored.into_iter().map(|(_, chosen)| chosen);
                    let kept = kept.filter(|chosen| !chosen.is_empty());
                    *candidates = std::iter::once(Chosen::new()).chain(kept).collect();
                }
            }
            let chosen = left.into_iter().filter_map(|(name, candidates)| {
                // After the last rung the default is left, and the candidate that beats it if there is one.
                let best = candidates.into_iter().next_back()?;
                Some((name.to_string(), best))
            });
            tuned.constants.insert(group.to_owned(), chosen.collect());
            tuned.scores.insert(group.to_owned(), scores);
        }
        Ok(Some(tuned))
    }
}

/// A policy in a world, with constants that were chosen for it.
pub(super) fn entry(
    name: Name,
    world: &World,
    chosen: Option<&Chosen>,
) -> Result<Entry, PaperError> {
    let mut given: Vec<(&str, Value)> = Vec::new();
    for (constant, text) in chosen.into_iter().flatten() {
        // A constant that a later version does not have any more is left out.
        if let Some(constant) = name.constant(constant) {
            given.push((constant.name, constant.parse(text)?));
        }
    }
    let preset = Preset::Tuned;
    Ok(entry_with(
        name,
        preset,
        given,
        &world.setting,
        world.rounds,
    )?)
}

/// Regret over that of random choices, averaged over worlds and seeds. Worlds that the policy cannot play do not
/// count.
fn score(
    name: Name,
    chosen: &Chosen,
    worlds: &[World],
    seeds: &[u64],
    cells: &Cells,
) -> Result<f64, PaperError> {
    let mut values = Vec::new();
    for world in worlds {
        let entry = entry(name, world, Some(chosen))?;
        for &seed in seeds {
            let record = cells.get(&key(&world.setting, seed, world.rounds, &entry));
            values.extend(record.map(|record| record.regret / record.random_regret));
        }
    }
    match values.is_empty() {
        true => Ok(f64::INFINITY),
        false => Ok(values.iter().sum::<f64>() / values.len() as f64),
    }
}

/// The candidates of a policy: its defaults, then others drawn at random. The same for every call.
fn candidates(name: Name, count: usize) -> Vec<Chosen> {
    let setup = sclub::Setup::new(1);
    let preset = name.spec().preset(Preset::Tuned);
    let tunable: Vec<_> = name
        .constants
        .iter()
        .filter(|constant| !constant.advanced && !TOLD.contains(&constant.name))
        .filter_map(
            |constant| match (constant.range, (constant.default)(preset, &setup)) {
                (Range::Number { .. }, Ok(Value::Number(value))) if value > 0.0 => {
                    Some((constant, value))
                }
                _ => None,
            },
        )
        .collect();
    let mut all = vec![Chosen::new()];
    if tunable.is_empty() {
        return all;
    }
    let text: Vec<u64> = name.as_str().bytes().map(u64::from).collect();
    for number in 1..count as u64 {
        let mut chosen = Chosen::new();
        for (place, (constant, default)) in tunable.iter().enumerate() {
            let word = mix(&[mix(&text), number, place as u64]);
            let uniform = (word >> 11) as f64 / (1u64 << 53) as f64;
            let factor = libm::pow(MAX_FACTOR, 2.0 * uniform - 1.0);
            let Range::Number {
                low, high, whole, ..
            } = constant.range
            else {
                continue;
            };
            // Three digits are enough, and read well.
            let mut value = (default * factor).clamp(low.max(default / 1e3), high);
            let digits = libm::pow(10.0, 2.0 - libm::log10(value).floor());
            value = (value * digits).round() / digits;
            if whole {
                value = value.round().max(low);
            }
            if constant.check(value).is_ok() {
                chosen.insert(
                    constant.name.to_owned(),
                    constant.format(Value::Number(value)),
                );
            }
        }
        all.push(chosen);
    }
    all
}
