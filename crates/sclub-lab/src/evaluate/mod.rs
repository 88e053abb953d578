//! `sclub evaluate`: what other policies would have earned, estimated from the log of the one that was in force.
//!
//! Each policy goes through the log in order. In each round it chooses, and then learns what the log shows: the items
//! shown, with their rewards. [`estimate`] has the estimators. For *replay* the policy goes through the log a second
//! time and learns accepted rounds only: those in which it chose what was shown, thinned so that every choice is accepted
//! with the same probability (Li et al., WSDM 2011). There is no replay for lists: the log has the probability of each item, not
//! that of a list.
//!
//! | file | subject |
//! |---|---|
//! | `log` | a log of decisions and its lines |
//! | `items`, `candidates` | the catalogue, and the candidates of each decision |
//! | `pass` | a policy going through a log; the model of rewards |
//! | `estimate` | estimators and intervals |

mod candidates;
pub mod estimate;
mod items;
mod log;
mod pass;
#[cfg(test)]
mod tests;

use rayon::prelude::*;
use serde::Serialize;

pub use estimate::{Estimate, Weighted};
pub use log::{Log, LogError, LogOptions, Round, ShownItem};

use crate::policies::Name;
use crate::run::Observer;
use estimate::kurtosis;
use pass::{Model, Pass, rows_of};

/// With fewer deciding rewards than this the intervals are too narrow ([`Weighted::deciding`]).
const MIN_DECIDING: f64 = 20.0;

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
    /// It needs the truth about a world.
    #[error("policy '{0}' needs the truth about a world; a log does not have it")]
    NeedsTruth(Name),
    /// It is named twice.
    #[error("policy '{0}' is named twice")]
    Twice(Name),
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
    /// The reasons why the log cannot tell, if it cannot.
    pub warnings: Vec<String>,
}

/// The evaluation of several policies on a log, as it is written to files.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The number of decisions.
    pub decisions: u64,
    /// The number of users.
    pub users: u64,
    /// The number of items.
    pub items: u64,
    /// The mean reward of the items that were shown.
    pub logged: Estimate,
    /// What was left out and why, in words.
    pub notes: Vec<String>,
    /// The policies.
    pub policies: Vec<Evaluation>,
}

impl Report {
    /// A report of a log, without policies yet.
    pub fn of(log: &Log) -> Self {
        let reward = |round: &Round| {
            let shown = &log.shown[round.shown.clone()];
            shown.iter().map(|shown| shown.reward).sum::<f64>() / shown.len() as f64
        };
        let rewards: Vec<f64> = log.rounds.iter().map(reward).collect();
        let only = Estimate {
            value: rewards[0],
            error: 0.0,
            low: rewards[0],
            high: rewards[0],
        };
        Self {
            decisions: log.rounds.len() as u64,
            users: log.users,
            items: log.items.len() as u64,
            logged: Estimate::mean(&rewards).unwrap_or(only),
            notes: log.notes.clone(),
            policies: Vec::new(),
        }
    }
}

/// The number of times that each policy goes through a log.
pub fn passes(log: &Log) -> u64 {
    match (log.is_deterministic(), log.has_lists()) {
        (true, _) => 0,
        (false, true) => 1,
        (false, false) => 2,
    }
}

/// Checks that policies can be evaluated on a log.
///
/// # Errors
/// If one needs the truth or is named twice.
pub fn check_names(policies: &[Name]) -> Result<(), EvaluateError> {
    for (place, name) in policies.iter().enumerate() {
        if name.needs_truth() {
            return Err(EvaluateError::NeedsTruth(*name));
        }
        if policies[..place].contains(name) {
            return Err(EvaluateError::Twice(*name));
        }
    }
    Ok(())
}

/// Evaluates policies on a log, with the default constants of each. `None` if it was stopped. From a log without random
/// draws there are no estimates.
///
/// # Errors
/// If a policy refuses the items or rewards, needs the truth, or is named twice.
pub fn evaluate(
    log: &Log,
    policies: &[Name],
    seed: u64,
    threads: usize,
    observer: &dyn Observer,
) -> Result<Option<Vec<Evaluation>>, EvaluateError> {
    check_names(policies)?;
    let passes = passes(log);
    let tasks: Vec<(Name, bool)> = policies
        .iter()
        .flat_map(|&name| {
            [(name, false), (name, true)]
                .into_iter()
                .take(passes as usize)
        })
        .collect();
    let rows = rows_of(log);
    let model = Model::fit(log, &rows, seed)?;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()?;
    let done: Vec<Option<Pass>> = pool.install(|| {
        let tasks = tasks.par_iter().with_max_len(1);
        tasks
            .map(|&(name, is_replay)| {
                let model = (!is_replay).then_some(&model);
                Pass::run(log, &rows, name, model, seed, observer)
            })
            .collect::<Result<_, EvaluateError>>()
    })?;
    let Some(mut done) = done.into_iter().collect::<Option<Vec<Pass>>>() else {
        return Ok(None);
    };
    let rewards: Vec<f64> = log.shown.iter().map(|shown| shown.reward).collect();
    let kurtosis = kurtosis(&rewards);
    let mut done = done.drain(..);
    let of_policy = |&policy: &Name| {
        let mut own = done.by_ref().take(passes as usize);
        let terms = own.next().map_or(Vec::new(), |pass| pass.terms);
        let accepted = own.next().map(|replay| replay.accepted);
        let weighted = Weighted::new(&terms, kurtosis);
        let accepted_rounds = accepted.as_ref().map(Vec::len);
        Evaluation {
            policy,
            warnings: warnings(log, &weighted, accepted_rounds, kurtosis),
            weighted,
            replay: accepted.as_deref().and_then(Estimate::mean),
            accepted: accepted_rounds.unwrap_or(0) as u64,
        }
    };
    Ok(Some(policies.iter().map(of_policy).collect()))
}

/// The reasons why a log cannot tell the value of a policy.
fn warnings(log: &Log, weighted: &Weighted, accepted: Option<usize>, kurtosis: f64) -> Vec<String> {
    if log.is_deterministic() {
        return vec![
            "no off-policy estimate can be had: the log was made without random draws".to_owned(),
        ];
    }
    if kurtosis.is_infinite() {
        return vec!["the log cannot tell: all its rewards are equal".to_owned()];
    }
    let mut warnings = Vec::new();
    if weighted.deciding < MIN_DECIDING {
        warnings.push(format!(
            "the log cannot tell: about {:.0} rewards decide the estimates, {MIN_DECIDING} or more are needed for the intervals to hold. A \
             longer log is needed, or a larger share of random decisions",
            weighted.deciding
        ));
    }
    let off = (weighted.mean_weight - 1.0).abs();
    if off > 0.01 && off > 3.0 * weighted.weight_error {
        warnings.push(format!(
            "the log cannot tell: the mean weight is {:.3} ± {:.3} and should be 1. This policy chooses items that the log never or hardly \
             ever shows, or the propensities are wrong",
            weighted.mean_weight, weighted.weight_error
        ));
    }
    if let Some(accepted) = accepted
        && (accepted as f64 / kurtosis) < MIN_DECIDING
    {
        warnings.push(format!(
            "replay cannot tell: only {accepted} rounds are accepted"
        ));
    }
    warnings
}
