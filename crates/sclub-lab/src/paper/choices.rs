//! Held-out choices of real users: constants found on some splits, results from others.

use std::sync::{Arc, OnceLock};

use sclub::{Preset, Value};

use super::cells::{Cells, Record};
use super::jobs::{Job, key};
use super::{Data, PaperError, Plan, Source, entry};
use crate::held_out::{Others, Protocol, Split};
use crate::policies::{self, Entry, Name};
use crate::report::model::{HeldOut, HeldOutRow, HeldOutTable};
use crate::setting::{Ratings, Setting, SettingError};
use crate::summary::Mean;
use crate::world::AGES;

/// Splits that constants are chosen on; no result is reported from them.
const TUNING_SEEDS: [u64; 2] = [1001, 1002];

/// The constants that are tried: shares of the published β, ridges, and α_θ for policies that cluster.
const BETAS: [f64; 5] = [0.2, 0.1, 0.05, 0.02, 0.01];
const SCALES: [f64; 4] = [1.0, 2.0, 4.0, 8.0];
const ALPHAS: [f64; 3] = [0.5, 1.0, 2.5];

/// A policy with the factor that its items' features are multiplied by.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Contender {
    pub entry: Entry,
    pub scale: f64,
}

/// A policy with constants in place of some of the tuned ones.
fn contender(name: Name, given: &[(&str, Value)], scale: f64) -> Contender {
    // Neither features nor users make a difference to tuned constants.
    let setup = policies::setup(1, 1);
    let entry = Entry::new(name, Preset::Tuned, given, &setup);
    Contender {
        entry: entry.expect("the constants to choose from are good ones"),
        scale,
    }
}

/// The constants that are tried for a policy.
fn grid(quick: bool, name: Name) -> Vec<Contender> {
    let clusters = name.constant("alpha_theta").is_some();
    let alphas: &[f64] = if clusters { &ALPHAS } else { &[1.0] };
    let (betas, scales): (&[f64], &[f64]) = if quick {
        (&[0.1, 0.02], &[1.0, 4.0])
    } else {
        (&BETAS, &SCALES)
    };
    let mut grid = Vec::new();
    for &scale in scales {
        for &alpha_theta in alphas {
            for &beta in betas {
                let mut given = vec![("beta_scale", Value::Number(beta))];
                if clusters {
                    given.push(("alpha_theta", Value::Number(alpha_theta)));
                }
                grid.push(contender(name, &given, scale));
            }
        }
    }
    grid
}

/// The policies whose constants are chosen.
const TUNED: [Name; 3] = [Name::LINUCB_IND, Name::SCLUB, Name::CLUB];

fn protocol(quick: bool) -> Protocol {
    Protocol {
        max_rounds: if quick { 1 << 14 } else { 1 << 19 },
        ..Protocol::default()
    }
}

fn ratings(quick: bool, data: &Data, others: Others, scale: f64, placebo: bool) -> Ratings {
    Ratings {
        interactions: Arc::clone(&data.interactions),
        digest: data.digest,
        protocol: protocol(quick),
        others,
        scale,
        placebo,
        content: None,
    }
}

fn rounds(quick: bool) -> u64 {
    protocol(quick).max_rounds as u64
}

fn tuning_seeds(quick: bool) -> &'static [u64] {
    if quick {
        &TUNING_SEEDS[..1]
    } else {
        &TUNING_SEEDS
    }
}

/// The jobs of one split: the split is made once for all, and a world drawn once for all contenders
/// with the same scale.
pub(crate) fn jobs_of_split(
    quick: bool,
    data: &Data,
    seed: u64,
    plays: &[(Others, bool, Vec<Contender>)],
) -> Vec<Job> {
    let split: Arc<OnceLock<Result<Arc<Split>, SettingError>>> = Arc::new(OnceLock::new());
    let mut jobs = Vec::new();
    for (others, placebo, contenders) in plays {
        let mut scales: Vec<f64> = contenders.iter().map(|c| c.scale).collect();
        scales.sort_unstable_by(f64::total_cmp);
        scales.dedup();
        for scale in scales {
            let ratings = ratings(quick, data, *others, scale, *placebo);
            let setting = Setting::Ratings(ratings.clone());
            let wants = contenders
                .iter()
                .filter(|c| c.scale == scale)
                .map(|c| {
                    let key = key(&setting, seed, rounds(quick), &c.entry);
                    (key, c.entry.clone())
                })
                .collect();
            let split = Arc::clone(&split);
            jobs.push(Job {
                make: Box::new(move || {
                    let made = split.get_or_init(|| {
                        let split = ratings.split(seed);
                        Ok(Arc::new(split?))
                    });
                    Ok(Arc::new(ratings.world_of(made.clone()?)))
                }),
                seed,
                rounds: rounds(quick),
                expected: rounds(quick).min(data.interactions.len() as u64 / 2),
                wants,
            });
        }
    }
    jobs
}

/// The jobs that try all constants of some policies, on the splits for tuning.
pub(crate) fn tuning_jobs_of(quick: bool, data: &Data, names: &[Name]) -> Vec<Job> {
    let all: Vec<Contender> = names.iter().flat_map(|&name| grid(quick, name)).collect();
    let plays = [(Others::Uniform, false, all)];
    tuning_seeds(quick)
        .iter()
        .flat_map(|&seed| jobs_of_split(quick, data, seed, &plays))
        .collect()
}

pub(super) fn tuning_jobs(plan: &Plan) -> Vec<Job> {
    plan.sources()
        .flat_map(|source| tuning_jobs_of(plan.quick, &source.data, &TUNED))
        .collect()
}

/// The result of a contender on a split, if it is there.
pub(crate) fn record(
    quick: bool,
    data: &Data,
    cells: &Cells,
    seed: u64,
    (others, placebo): (Others, bool),
    contender: &Contender,
) -> Option<Record> {
    let ratings = ratings(quick, data, others, contender.scale, placebo);
    let setting = Setting::Ratings(ratings);
    cells.get(&key(&setting, seed, rounds(quick), &contender.entry))
}

pub(crate) fn rate(record: &Record) -> f64 {
    record.reward / record.served as f64
}

/// The contender with the highest rate over the splits for it; `None` if some are missing.
pub(crate) fn best(quick: bool, data: &Data, cells: &Cells, name: Name) -> Option<Contender> {
    let mut best: Option<(f64, Contender)> = None;
    for contender in grid(quick, name) {
        let mut sum = 0.0;
        for &seed in tuning_seeds(quick) {
            let play = (Others::Uniform, false);
            sum += rate(&record(quick, data, cells, seed, play, &contender)?);
        }
        if best.as_ref().is_none_or(|(highest, _)| sum > *highest) {
            best = Some((sum, contender));
        }
    }
    best.map(|(_, contender)| contender)
}

/// A policy with its default constants.
pub(crate) fn untuned(name: Name) -> Contender {
    contender(name, &[], 1.0)
}

/// A row of the tables before it is run.
struct Row {
    label: String,
    /// The constants in a few words.
    constants: String,
    contender: Contender,
    placebo: bool,
}

/// The rows of the report; `None` if tuning is not complete.
fn rows(plan: &Plan, source: &Source, cells: &Cells) -> Result<Option<Vec<Row>>, PaperError> {
    let tuned = |name| best(plan.quick, &source.data, cells, name);
    let (Some(ind), Some(sclub), Some(club)) = (
        tuned(Name::LINUCB_IND),
        tuned(Name::SCLUB),
        tuned(Name::CLUB),
    ) else {
        return Ok(None);
    };
    let row = |label: &str, contender| Row {
        label: label.into(),
        constants: constants(&contender),
        contender,
        placebo: false,
    };
    let mut rows = vec![
        row("Random", untuned(Name::RANDOM)),
        row("LinUCB-One", untuned(Name::LINUCB_ONE)),
        row("LinUCB-Ind", untuned(Name::LINUCB_IND)),
        row("LinUCB-Ind, tuned", ind.clone()),
        row("SCLUB", untuned(Name::SCLUB)),
        row("SCLUB, tuned", sclub),
        row("CLUB, tuned", club),
        row("One Gaussian prior", untuned(Name::GAUSSIAN)),
        row("SCLUB-soft", untuned(Name::SCLUB_SOFT)),
    ];
    let setting = ratings(plan.quick, &source.data, Others::Uniform, 1.0, false);
    let setting = Setting::Ratings(setting);
    for &name in plan.policies.iter().filter(|name| **name != Name::GAUSSIAN) {
        let contender = Contender {
            entry: entry(name, Preset::Tuned, &setting, rounds(plan.quick))?,
            scale: 1.0,
        };
        rows.push(Row {
            constants: match name.constants.is_empty() {
                true => "no constants".into(),
                false => "default constants".into(),
            },
            ..row(name.title, contender)
        });
    }
    rows.push(Row {
        placebo: true,
        ..row("Placebo: wrong users", ind)
    });
    Ok(Some(rows))
}

const TABLES: [(Others, &str); 2] = [
    (
        Others::Uniform,
        "The 19 other candidates are drawn uniformly",
    ),
    (
        Others::Popular,
        "The 19 other candidates are drawn by popularity",
    ),
];

pub(super) fn jobs(plan: &Plan, cells: &Cells) -> Result<Vec<Job>, PaperError> {
    let mut jobs = Vec::new();
    for source in plan.sources() {
        let Some(rows) = rows(plan, source, cells)? else {
            continue;
        };
        for &seed in &plan.seeds {
            let mut plays = Vec::new();
            for (others, _) in TABLES {
                for placebo in [false, true] {
                    let contenders = rows
                        .iter()
                        .filter(|row| row.placebo == placebo)
                        .map(|row| row.contender.clone())
                        .collect();
                    plays.push((others, placebo, contenders));
                }
            }
            jobs.extend(jobs_of_split(plan.quick, &source.data, seed, &plays));
        }
    }
    Ok(jobs)
}

/// A contender's constants, in a few words.
pub(crate) fn constants(contender: &Contender) -> String {
    let Entry { name, values } = &contender.entry;
    if name.constants.is_empty() {
        return "no constants".into();
    }
    if name.has_own_constants() {
        return "no constants to choose".into();
    }
    let mut parts = Vec::new();
    let alpha_theta = values.number("alpha_theta");
    parts.extend(alpha_theta.map(|alpha_theta| format!("α_θ {alpha_theta}")));
    let scale = values.number("beta_scale");
    parts.extend(scale.map(|scale| format!("β·{scale}")));
    let inverse = contender.scale.powi(2);
    parts.push(if inverse == 1.0 {
        "ridge 1".into()
    } else {
        format!("ridge 1/{inverse:.0}")
    });
    parts.join(", ")
}

pub(super) fn held_out(plan: &Plan, cells: &Cells) -> Result<Vec<HeldOut>, PaperError> {
    let mut all = Vec::new();
    for source in plan.sources() {
        if let Some(one) = of_source(plan, source, cells)? {
            all.push(one);
        }
    }
    Ok(all)
}

fn of_source(plan: &Plan, source: &Source, cells: &Cells) -> Result<Option<HeldOut>, PaperError> {
    let Some(rows) = rows(plan, source, cells)? else {
        return Ok(None);
    };
    let mut tables = Vec::new();
    for (others, title) in TABLES {
        // The same splits for all rows, so that lifts are over the same rounds.
        let mut by_row: Vec<Vec<Record>> = rows.iter().map(|_| Vec::new()).collect();
        for &seed in &plan.seeds {
            let found: Option<Vec<Record>> = rows
                .iter()
                .map(|row| {
                    let play = (others, row.placebo);
                    record(plan.quick, &source.data, cells, seed, play, &row.contender)
                })
                .collect();
            for (records, record) in by_row.iter_mut().zip(found.into_iter().flatten()) {
                records.push(record);
            }
        }
        if by_row[0].is_empty() {
            return Ok(None);
        }
        let place = |label: &str| rows.iter().position(|row| row.label == label);
        let one = place("LinUCB-One").expect("it is among the rows");
        let ind = place("LinUCB-Ind, tuned").expect("it is among the rows");
        let lift = |row: usize, over: usize| {
            let pairs = by_row[row].iter().zip(&by_row[over]);
            (row != over).then(|| Mean::of(pairs.map(|(a, b)| rate(a) / rate(b) - 1.0)))
        };
        tables.push(HeldOutTable {
            title: title.into(),
            ages: AGES.iter().map(|&age| age_name(age)).collect(),
            rows: rows
                .iter()
                .enumerate()
                .map(|(at, row)| HeldOutRow {
                    label: row.label.clone(),
                    policy: row.contender.entry.name,
                    constants: row.constants.clone(),
                    rate: Mean::of(by_row[at].iter().map(rate)),
                    over_one: lift(at, one),
                    over_tuned_ind: lift(at, ind),
                    by_age: (0..AGES.len())
                        .map(|age| at_age(&by_row[at], age))
                        .collect(),
                })
                .collect(),
        });
    }
    let first = plan.seeds.first().copied().unwrap_or(1);
    let split = Split::new(&source.data.interactions, first, protocol(plan.quick))
        .map_err(SettingError::from)?;
    let size = |what: &str, many: usize| (what.to_string(), many as u64);
    let searched: usize = TUNED.iter().map(|&name| grid(plan.quick, name).len()).sum();
    Ok(Some(HeldOut {
        name: source.name.into(),
        note: source.note.clone(),
        sizes: vec![
            size("feature users", split.feature_users()),
            size("users served", split.served_users()),
            size("items", split.items()),
            size("rounds", split.rounds()),
        ],
        tuning: format!(
            "Constants called tuned have the highest rate over {} splits of the same users (seeds {}) that \
             no result here is from: {searched} combinations for three policies, with uniform other \
             candidates. A ridge of 1/k² is features multiplied by k. SCLUB-soft, and one Gaussian prior, which is \
             the same without clusters, have no constants to choose. The placebo is tuned LinUCB-Ind, \
             given a wrong user in each round. Errors are over splits of the same users. Sizes are of the split of seed {first}.",
            tuning_seeds(plan.quick).len(),
            tuning_seeds(plan.quick)
                .iter()
                .map(u64::to_string)
                .collect::<Vec<_>>()
                .join(", "),
        ),
        tables,
    }))
}

fn age_name((first, last): (u32, u32)) -> String {
    if last == u32::MAX {
        format!("{first}+")
    } else {
        format!("{first}–{last}")
    }
}

/// The rate of users of one age; `None` if no user was of that age.
fn at_age(records: &[Record], age: usize) -> Option<Mean> {
    let rates: Vec<f64> = records
        .iter()
        .filter_map(|record| record.by_age.get(age))
        .filter(|(rounds, _)| *rounds > 0)
        .map(|&(rounds, reward)| reward / rounds as f64)
        .collect();
    (!rates.is_empty()).then(|| Mean::of(rates))
}
