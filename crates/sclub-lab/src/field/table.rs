//! The results: means, paired tests, ranks and costs.

use serde::Serialize;

use super::REFERENCES;
use super::claims::Claim;
use super::rows::{Family, World};
use super::stats::{critical_difference, holm, paired, ranks};
use super::tune::Tuned;
use crate::paper::cells::Record;
use crate::policies::{Entry, Name};
use crate::summary::{Mean, thousands};

/// Differences at this level count as significant.
pub(super) const LEVEL: f64 = 0.05;

/// The measure of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// Regret: lower is better.
    Regret,
    /// Clicks for each item shown: more is better.
    Clicks,
}

impl Measure {
    fn of(world: &World) -> Self {
        match world.family {
            Family::Catalogue => Measure::Clicks,
            Family::Synthetic | Family::Lists => Measure::Regret,
        }
    }

    /// The number by which policies are ranked: the smaller the better.
    fn loss(self, value: f64) -> f64 {
        match self {
            Measure::Regret => value,
            Measure::Clicks => -value,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Regret => "regret",
            Measure::Clicks => "clicks",
        }
    }

    /// A value for people.
    pub fn text(self, value: f64) -> String {
        match self {
            Measure::Regret if value.abs() < 100.0 => format!("{value:.1}"),
            Measure::Regret => thousands(value),
            Measure::Clicks => format!("{value:.4}"),
        }
    }
}

/// The result of a policy in a world.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// The policy.
    pub policy: Name,
    /// The constants.
    pub constants: String,
    /// The mean over seeds.
    #[serde(flatten)]
    pub mean: Mean,
    /// The values by seed.
    pub values: Vec<f64>,
    /// The rank by the mean among the policies that played all worlds. For another policy it is the rank that it would have
    /// with these. Absent for references.
    pub rank: Option<f64>,
    /// The mean of the paired differences from the best ranked policy; positive is worse.
    pub behind: Option<Mean>,
    /// The p-value of that difference, corrected for all policies of the world (Holm). Absent for the best one.
    pub p: Option<f64>,
    /// Microseconds a round, recommending and learning: the least of all seeds.
    pub microseconds: f64,
    /// Messages and numbers sent, over a run, for policies of several servers or peers.
    pub messages: Option<(f64, f64)>,
    /// Bytes of the state at the end, where the policy tells.
    pub bytes: Option<f64>,
}

impl Cell {
    /// Returns true for the best policy, and those that do not differ from it significantly.
    pub fn is_among_best(&self) -> bool {
        // Without a test, as with one seed, only the best itself is known to be among the best.
        let is_best = self.behind.is_some_and(|behind| behind.mean <= 0.0);
        self.rank.is_some() && self.p.map_or(is_best, |p| p > LEVEL)
    }
}

/// A world.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorldRow {
    /// Its name.
    pub world: &'static str,
    /// Its description.
    pub title: &'static str,
    /// The policies whose own setting it is.
    pub own_of: &'static [&'static str],
    /// The command that makes the same worlds.
    pub command: String,
    /// The measure.
    pub measure: Measure,
    /// T
    pub rounds: u64,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// Policy by policy: the ranked ones, then the references.
    pub cells: Vec<Cell>,
}

impl WorldRow {
    pub(super) fn new(
        world: &World,
        seeds: Vec<u64>,
        entries: &[Entry],
        records: &[Vec<Record>],
        ranked: &[Name],
    ) -> Self {
        let measure = Measure::of(world);
        let mut cells: Vec<Cell> = entries
            .iter()
            .zip(records)
            .map(|(entry, records)| cell(measure, entry, records))
            .collect();
        let places: Vec<usize> = (0..cells.len())
            .filter(|&place| ranked.contains(&cells[place].policy))
            .collect();
        let losses: Vec<f64> = places
            .iter()
            .map(|&place| measure.loss(cells[place].mean.mean))
            .collect();
        let best = (0..losses.len()).min_by(|&a, &b| losses[a].total_cmp(&losses[b]));
        if let Some(best) = best {
            let best_values = cells[places[best]].values.clone();
            let mut tested = Vec::new();
            for (&place, rank) in places.iter().zip(ranks(&losses)) {
                let cell = &mut cells[place];
                cell.rank = Some(rank);
                let pairs = cell.values.iter().zip(&best_values);
                let behind: Vec<f64> = pairs
                    .map(|(&own, &best)| measure.loss(own) - measure.loss(best))
                    .collect();
                cell.behind = Some(Mean::of(behind.iter().copied()));
                if place != places[best] {
                    tested.extend(paired(&behind).map(|p| (place, p)));
                }
            }
            let corrected = holm(&tested.iter().map(|&(_, p)| p).collect::<Vec<f64>>());
            for ((place, _), p) in tested.into_iter().zip(corrected) {
                cells[place].p = Some(p);
            }
        }
        Self {
            world: world.name,
            title: world.title,
            own_of: world.own_of,
            command: world.command(&seeds),
            measure,
            rounds: world.rounds,
            seeds,
            cells,
        }
    }

    /// The result of a policy.
    pub fn cell(&self, name: Name) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.policy == name)
    }
}

fn cell(measure: Measure, entry: &Entry, records: &[Record]) -> Cell {
    let values: Vec<f64> = records
        .iter()
        .map(|record| match measure {
            Measure::Regret => record.regret,
            Measure::Clicks => record.reward / record.served as f64,
        })
        .collect();
    let count = records.len() as f64;
    let mean = |value: &dyn Fn(&Record) -> f64| records.iter().map(value).sum::<f64>() / count;
    let is_told = |has: &dyn Fn(&Record) -> bool| records.iter().all(has);
    Cell {
        policy: entry.name,
        constants: entry.values.to_string(),
        mean: Mean::of(values.iter().copied()),
        values,
        rank: None,
        behind: None,
        p: None,
        // The least: other work on the machine only adds to it.
        microseconds: records
            .iter()
            .map(|record| 1e6 * record.seconds / record.rounds as f64)
            .fold(f64::INFINITY, f64::min),
        messages: is_told(&|record| record.messages.is_some()).then(|| {
            let part = |of: fn((u64, u64)) -> u64| {
                mean(&|record| record.messages.map_or(0.0, |sent| of(sent) as f64))
            };
            (part(|sent| sent.0), part(|sent| sent.1))
        }),
        bytes: is_told(&|record| record.bytes.is_some())
            .then(|| mean(&|record| record.bytes.unwrap_or(0) as f64)),
    }
}

/// The worlds in which a policy is significantly better than another, and those in which it is worse.
pub type BetterAndWorse = (Vec<&'static str>, Vec<&'static str>);

/// A policy over all worlds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Standing {
    /// The policy.
    pub policy: Name,
    /// The mean rank over the worlds that it has played.
    pub rank: f64,
    /// The number of worlds that it has played.
    pub worlds: usize,
    /// The number of worlds in which it is the best, or does not differ from the best significantly.
    pub among_best: usize,
    /// The worlds in which it is significantly better than `sclub`, and those in which it is worse. Absent if no world could be
    /// compared.
    pub against_sclub: Option<BetterAndWorse>,
    /// The same for `sclub-soft`.
    pub against_sclub_soft: Option<BetterAndWorse>,
}

/// All results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Field {
    /// The worlds.
    pub worlds: Vec<WorldRow>,
    /// The ranked policies, the best first.
    pub standings: Vec<Standing>,
    /// The difference from which two mean ranks differ significantly (Nemenyi, level 0.05), among the policies that
    /// played all worlds. Absent with a single world or policy.
    pub critical_difference: Option<f64>,
    /// The constants that were used, and how they were chosen.
    pub tuned: Tuned,
    /// True if policies have the constants of published code.
    pub released: bool,
    /// Policies in their own settings, against those that papers compare with.
    pub claims: Vec<Claim>,
}

impl Field {
    pub(super) fn new(policies: &[Name], mut worlds: Vec<WorldRow>, tuned: Tuned) -> Self {
        rank_with_those_everywhere(policies, &mut worlds);
        let mut standings: Vec<Standing> = policies
            .iter()
            .filter(|name| !REFERENCES.contains(name))
            .filter_map(|&name| standing(name, &worlds))
            .collect();
        standings.sort_by(|a, b| a.rank.total_cmp(&b.rank));
        let everywhere = standings
            .iter()
            .filter(|standing| standing.worlds == worlds.len())
            .count();
        let can_compare = everywhere > 1 && worlds.len() > 1;
        Self {
            critical_difference: can_compare.then(|| critical_difference(everywhere, worlds.len())),
            worlds,
            standings,
            tuned,
            released: false,
            claims: Vec::new(),
        }
    }
}

/// Ranks each policy of a world with those that played all worlds, so that ranks of different worlds compare.
fn rank_with_those_everywhere(policies: &[Name], worlds: &mut [WorldRow]) {
    let is_everywhere = |name: &Name| worlds.iter().all(|row| row.cell(*name).is_some());
    let everywhere: Vec<Name> = policies.iter().copied().filter(is_everywhere).collect();
    for row in worlds {
        let loss = |cell: &Cell| row.measure.loss(cell.mean.mean);
        let with: Vec<(Name, f64)> = row
            .cells
            .iter()
            .filter(|cell| everywhere.contains(&cell.policy))
            .map(|cell| (cell.policy, loss(cell)))
            .collect();
        for cell in row.cells.iter_mut().filter(|cell| cell.rank.is_some()) {
            let own = row.measure.loss(cell.mean.mean);
            let others = with.iter().filter(|(name, _)| *name != cell.policy);
            let mut losses: Vec<f64> = others.map(|&(_, loss)| loss).collect();
            losses.push(own);
            cell.rank = ranks(&losses).pop();
        }
    }
}

fn standing(name: Name, worlds: &[WorldRow]) -> Option<Standing> {
    let played: Vec<&Cell> = worlds.iter().filter_map(|row| row.cell(name)).collect();
    let ranks: Vec<f64> = played.iter().filter_map(|cell| cell.rank).collect();
    if ranks.is_empty() {
        return None;
    }
    Some(Standing {
        policy: name,
        rank: ranks.iter().sum::<f64>() / ranks.len() as f64,
        worlds: ranks.len(),
        among_best: played.iter().filter(|cell| cell.is_among_best()).count(),
        against_sclub: against(name, Name::SCLUB, worlds),
        against_sclub_soft: against(name, Name::SCLUB_SOFT, worlds),
    })
}

/// Compares a policy with another by paired tests that are corrected for the number of worlds. `None` if there is
/// nothing to test.
fn against(name: Name, other: Name, worlds: &[WorldRow]) -> Option<BetterAndWorse> {
    if name == other {
        return None;
    }
    let mut tested = Vec::new();
    for row in worlds {
        let (Some(own), Some(other)) = (row.cell(name), row.cell(other)) else {
            continue;
        };
        let pairs = own.values.iter().zip(&other.values);
        let differences: Vec<f64> = pairs
            .map(|(&own, &other)| row.measure.loss(own) - row.measure.loss(other))
            .collect();
        let mean = differences.iter().sum::<f64>();
        tested.extend(paired(&differences).map(|p| (row.world, mean, p)));
    }
    if tested.is_empty() {
        return None;
    }
    let corrected = holm(&tested.iter().map(|&(_, _, p)| p).collect::<Vec<f64>>());
    let (mut better, mut worse) = (Vec::new(), Vec::new());
    for ((world, mean, _), p) in tested.into_iter().zip(corrected) {
        if p <= LEVEL && mean != 0.0 {
            match mean < 0.0 {
                true => better.push(world),
                false => worse.push(world),
            }
        }
    }
    Some((better, worse))
}
