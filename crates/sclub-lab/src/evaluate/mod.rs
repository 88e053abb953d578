//! `sclub evaluate`: what other policies would have earned, estimated from the log of the one that was in force.
//!
//! Each policy goes through the log in order. In each round it chooses, and then learns what the log shows: the items
//! shown, with their rewards. [`estimate`] has the estimators. For *replay* the policy goes through the log a second
//! time and learns accepted rounds only: those in which it chose what was shown, thinned so that every choice is accepted
//! with the same probability (Li et al., WSDM 2011). There is no replay for lists: the log has the probability of each item, not
//! that of a list.

pub mod estimate;
mod log;
#[cfg(test)]
mod tests;

use rayon::prelude::*;
use sclub::{ItemSet, Observation, Policy, Preset, Setup, UserId, Users};
use serde::Serialize;

pub use estimate::{Estimate, Weighted};
pub use log::{Log, LogError, LogOptions, Round, ShownItem};

use crate::policies::{Entry, Name};
use crate::run::Observer;
use crate::streams::{Purpose, mix};
use crate::yardsticks::Known;
use estimate::Term;

/// Fewer effective rounds than this are too few for an interval.
const MIN_EFFECTIVE: f64 = 100.0;

/// The rounds between two reports to the observer.
const PIECE: u64 = 1 << 12;

/// The reason why a policy cannot be evaluated.
#[derive(Debug, thiserror::Error)]
pub enum EvaluateError {
    /// Its constants do not fit the log.
    #[error(transparent)]
    Constant(#[from] sclub::ValueError),
    /// It refuses items or rewards.
    #[error(transparent)]
    Policy(#[from] sclub::Error),
    /// The threads cannot be started.
    #[error("cannot start the threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

/// The evaluation of a policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// The policy.
    pub policy: Name,
    /// The estimates by weights.
    #[serde(flatten)]
    pub weighted: Weighted,
    /// The mean reward of accepted rounds.
    pub replay: Option<Estimate>,
    /// The number of accepted rounds.
    pub accepted: u64,
    /// The reason why the log cannot tell, if it cannot.
    pub warning: Option<String>,
}

/// Evaluates policies on a log, with the default constants of each. `None` if it was stopped.
///
/// # Errors
/// If a policy refuses the items or rewards.
pub fn evaluate(
    log: &Log,
    policies: &[Name],
    seed: u64,
    threads: usize,
    observer: &dyn Observer,
) -> Result<Option<Vec<Evaluation>>, EvaluateError> {
    let has_lists = log.rounds.iter().any(|round| round.slots > 1);
    let passes: Vec<(Name, bool)> = policies
        .iter()
        .flat_map(|&name| [(name, false), (name, true)])
        .filter(|&(_, is_replay)| !(is_replay && has_lists))
        .collect();
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()?;
    let done: Vec<Option<Pass>> = pool.install(|| {
        let passes = passes.par_iter();
        passes
            .map(|&(name, is_replay)| pass(log, name, is_replay, seed, observer))
            .collect::<Result<_, EvaluateError>>()
    })?;
    let Some(done) = done.into_iter().collect::<Option<Vec<Pass>>>() else {
        return Ok(None);
    };
    let of_policy = |(&policy, passes): (&Name, &[Pass])| {
        let weighted = Weighted::new(&passes[0].terms);
        let accepted = passes.get(1).map(|replay| &replay.accepted[..]);
        Evaluation {
            policy,
            warning: warning(log, &weighted),
            weighted,
            replay: accepted.and_then(Estimate::mean),
            accepted: accepted.map_or(0, |rounds| rounds.len() as u64),
        }
    };
    let done = done.chunks_exact(passes.len() / policies.len().max(1));
    Ok(Some(policies.iter().zip(done).map(of_policy).collect()))
}

/// The reason why a log cannot tell the value of a policy.
fn warning(log: &Log, weighted: &Weighted) -> Option<String> {
    if log.is_deterministic() {
        return Some("the log was made without random draws and cannot tell".to_owned());
    }
    if weighted.effective < MIN_EFFECTIVE {
        return Some(format!(
            "the log cannot tell: it has only {:.0} effective rounds in which this policy would have shown the same",
            weighted.effective
        ));
    }
    if !(0.8..=1.25).contains(&weighted.mean_weight) {
        return Some(format!(
            "the mean weight is {:.2} and should be near 1: some choices of this policy are hardly ever shown in the log, or the \
             propensities are wrong",
            weighted.mean_weight
        ));
    }
    None
}

/// A pass of a policy through a log.
struct Pass {
    terms: Vec<Term>,
    /// The mean reward of each accepted round.
    accepted: Vec<f64>,
}

fn make(log: &Log, name: Name, seed: u64) -> Result<Box<dyn Policy>, EvaluateError> {
    let known = Known {
        seed,
        truth: None,
        is_catalogue: true,
    };
    let setup = Setup {
        users: Users::Appear,
        can_forget: false,
        seed: mix(&[seed, Purpose::Graph as u64]),
        truth: Some(&known),
        ..Setup::new(log.items.dim())
    };
    let preset = name.spec().preset(Preset::Tuned);
    Ok(Entry::new(name, preset, &[], &setup)?.values.make(&setup)?)
}

fn pass(
    log: &Log,
    name: Name,
    is_replay: bool,
    seed: u64,
    observer: &dyn Observer,
) -> Result<Option<Pass>, EvaluateError> {
    let mut policy = make(log, name, seed)?;
    // The model of rewards for DR: one ridge regression for all users.
    let mut model = make(log, Name::LINUCB_ONE, seed)?;
    let dim = log.items.dim();
    let rows: Vec<f64> = (0..log.items.len())
        .flat_map(|item| log.items.item(item))
        .collect();
    let features = |item: u32| &rows[item as usize * dim..][..dim];
    let smallest = log
        .shown
        .iter()
        .map(|shown| shown.propensity)
        .fold(1.0, f64::min);
    let mut among = ItemSet::new(dim)?;
    let mut indexes: Vec<usize> = Vec::new();
    let (mut list, mut chosen) = (Vec::new(), Vec::new());
    let (mut terms, mut accepted) = (Vec::new(), Vec::new());
    let mut theta = vec![0.0; dim];
    for (number, round) in log.rounds.iter().enumerate() {
        if (number as u64).is_multiple_of(PIECE) && number > 0 {
            observer.played(PIECE);
            if observer.is_cancelled() {
                return Ok(None);
            }
        }
        let (user, draw) = (
            UserId::from(round.user),
            mix(&[seed, Purpose::Decisions as u64, number as u64]),
        );
        let candidates = &log.candidates[round.candidates.clone()];
        let items = match candidates.is_empty() {
            true => &log.items,
            false => {
                indexes.clear();
                indexes.extend(candidates.iter().map(|&item| item as usize));
                among.select(&log.items, &indexes)?;
                &among
            }
        };
        let place = |index: usize| match candidates.is_empty() {
            true => index as u32,
            false => candidates[index],
        };
        let slots = (round.slots as usize).min(items.len());
        chosen.clear();
        match slots {
            1 => chosen.push(place(policy.recommend_drawn(draw, user, items)?.index)),
            _ => {
                policy.recommend_list_drawn(draw, user, items, slots, &|_| false, &mut list)?;
                chosen.extend(list.iter().map(|decision| place(decision.index)));
            }
        }
        let shown = &log.shown[round.shown.clone()];
        let takes = match is_replay {
            false => {
                terms.push(term(shown, &chosen, round.slots, |item| {
                    dot(&theta, features(item))
                }));
                true
            }
            true => {
                // Decided by a number of its own, so that it does not depend on the draw of the choice.
                let word = mix(&[seed, Purpose::Choices as u64, number as u64]);
                let uniform = (word >> 11) as f64 / (1u64 << 53) as f64;
                let one = shown[0];
                let takes = chosen == [one.item] && uniform < smallest / one.propensity;
                if takes {
                    accepted.push(one.reward);
                }
                takes
            }
        };
        if takes {
            let observations: Vec<Observation<'_>> = shown
                .iter()
                .map(|shown| Observation {
                    id: log.items.id(shown.item as usize),
                    ..Observation::new(user, features(shown.item), shown.reward)
                })
                .collect();
            policy.learn_round(&observations, &mut Vec::new())?;
            if !is_replay {
                model.learn_round(&observations, &mut Vec::new())?;
                if let Some(estimate) = model.estimate(user) {
                    theta = estimate;
                }
            }
        }
    }
    observer.played(log.rounds.len() as u64 % PIECE);
    Ok(Some(Pass { terms, accepted }))
}

/// The terms of a round, with a model of the rewards.
fn term(shown: &[ShownItem], chosen: &[u32], slots: u32, model: impl Fn(u32) -> f64) -> Term {
    let mut term = Term {
        doubly_robust: chosen.iter().map(|&item| model(item)).sum(),
        ..Term::default()
    };
    for shown in shown {
        if chosen.contains(&shown.item) {
            let weight = 1.0 / shown.propensity;
            term.weights += weight;
            term.rewards += weight * shown.reward;
            term.doubly_robust += weight * (shown.reward - model(shown.item));
        }
    }
    let slots = f64::from(slots);
    Term {
        rewards: term.rewards / slots,
        weights: term.weights / slots,
        doubly_robust: term.doubly_robust / slots,
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
