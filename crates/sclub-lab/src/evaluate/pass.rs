//! A policy going through a log, and the model of rewards that DR takes.

use sclub::{ItemSet, Observation, Policy, Preset, Setup, UserId, Users};

use super::estimate::Term;
use super::{EvaluateError, Log, Round, ShownItem};
use crate::policies::{Entry, Name};
use crate::run::Observer;
use crate::streams::{Purpose, mix};
use crate::yardsticks::Known;

/// The rounds between two reports to the observer.
const PIECE: u64 = 1 << 12;

/// A pass of a policy through a log.
pub(super) struct Pass {
    pub terms: Vec<Term>,
    /// The reward of each accepted round.
    pub accepted: Vec<f64>,
}

pub(super) fn make(log: &Log, name: Name, seed: u64) -> Result<Box<dyn Policy>, EvaluateError> {
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

/// The features of all items, row by row.
pub(super) fn rows_of(log: &Log) -> Vec<f64> {
    let all = 0..log.items.len();
    all.flat_map(|item| log.items.item(item)).collect()
}

/// Lets a policy learn the items shown in a round.
fn learn(
    policy: &mut dyn Policy,
    log: &Log,
    rows: &[f64],
    round: &Round,
) -> Result<(), EvaluateError> {
    let dim = log.items.dim();
    let observation = |shown: &ShownItem| Observation {
        id: log.items.id(shown.item as usize),
        ..Observation::new(
            UserId::from(round.user),
            &rows[shown.item as usize * dim..][..dim],
            shown.reward,
        )
    };
    match &log.shown[round.shown.clone()] {
        [one] => policy.learn_round(&[observation(one)], &mut Vec::new())?,
        list => {
            let observations: Vec<Observation<'_>> = list.iter().map(observation).collect();
            policy.learn_round(&observations, &mut Vec::new())?;
        }
    }
    Ok(())
}

/// The model of rewards: a ridge regression for all users together. For each round it is fitted to earlier rounds only, and again
/// when there are 1/64 more of them.
pub(super) struct Model {
    dim: usize,
    /// The first round of each fit.
    starts: Vec<usize>,
    /// The coefficients of each fit.
    thetas: Vec<f64>,
}

impl Model {
    pub fn fit(log: &Log, rows: &[f64], seed: u64) -> Result<Self, EvaluateError> {
        let dim = log.items.dim();
        let mut ridge = make(log, Name::LINUCB_ONE, seed)?;
        let (mut starts, mut thetas) = (vec![0], vec![0.0; dim]);
        let mut next = 1;
        for (number, round) in log.rounds.iter().enumerate() {
            if number == next {
                let user = UserId::from(round.user);
                if let Some(theta) = ridge.estimate(user) {
                    starts.push(number);
                    thetas.extend(theta);
                }
                next = number + 1 + number / 64;
            }
            learn(&mut *ridge, log, rows, round)?;
        }
        Ok(Self {
            dim,
            starts,
            thetas,
        })
    }

    /// The coefficients in a round.
    fn theta(&self, round: usize) -> &[f64] {
        let fit = self.starts.partition_point(|&start| start <= round) - 1;
        &self.thetas[fit * self.dim..][..self.dim]
    }
}

impl Pass {
    /// A pass by weights with a model, or without one a replay.
    pub fn run(
        log: &Log,
        rows: &[f64],
        name: Name,
        model: Option<&Model>,
        seed: u64,
        observer: &dyn Observer,
    ) -> Result<Option<Self>, EvaluateError> {
        let mut policy = make(log, name, seed)?;
        let dim = log.items.dim();
        let propensities = log.shown.iter().map(|shown| shown.propensity);
        let smallest = propensities.fold(1.0, f64::min);
        let mut chooser = Chooser::new(log)?;
        let (mut terms, mut accepted) = (Vec::new(), Vec::new());
        for (number, round) in log.rounds.iter().enumerate() {
            if (number as u64).is_multiple_of(PIECE) && number > 0 {
                observer.played(PIECE);
                if observer.is_cancelled() {
                    return Ok(None);
                }
            }
            let draw = mix(&[seed, Purpose::Decisions as u64, number as u64]);
            let chosen = chooser.choose(&*policy, draw, round)?;
            let shown = &log.shown[round.shown.clone()];
            match model {
                Some(model) => {
                    let theta = model.theta(number);
                    let predict = |item: u32| dot(theta, &rows[item as usize * dim..][..dim]);
                    terms.push(term(shown, chosen, log.by_position, predict));
                }
                None => {
                    // Decided by a number of its own, so that it does not depend on the draw of the choice.
                    let word = mix(&[seed, Purpose::Choices as u64, number as u64]);
                    let uniform = (word >> 11) as f64 / (1u64 << 53) as f64;
                    let one = shown[0];
                    if chosen != [one.item] || uniform >= smallest / one.propensity {
                        continue;
                    }
                    accepted.push(one.reward);
                }
            }
            learn(&mut *policy, log, rows, round)?;
        }
        observer.played(log.rounds.len() as u64 % PIECE);
        Ok(Some(Self { terms, accepted }))
    }
}

/// Asks a policy for its choice among the candidates of a round.
struct Chooser<'a> {
    log: &'a Log,
    among: ItemSet,
    indexes: Vec<usize>,
    /// The first candidate of the items in `among`, and their number.
    selected: (usize, usize),
    list: Vec<sclub::Decision>,
    chosen: Vec<u32>,
}

impl<'a> Chooser<'a> {
    fn new(log: &'a Log) -> Result<Self, EvaluateError> {
        Ok(Self {
            log,
            among: ItemSet::new(log.items.dim())?,
            indexes: Vec::new(),
            selected: (0, 0),
            list: Vec::new(),
            chosen: Vec::new(),
        })
    }

    /// The items that a policy shows, in order.
    fn choose(
        &mut self,
        policy: &dyn Policy,
        draw: u64,
        round: &Round,
    ) -> Result<&[u32], EvaluateError> {
        let candidates = &self.log.candidates[round.candidates.clone()];
        let items = match candidates.is_empty() {
            true => &self.log.items,
            false => {
                let wanted = (round.candidates.start, candidates.len());
                if self.selected != wanted {
                    self.indexes.clear();
                    self.indexes
                        .extend(candidates.iter().map(|&item| item as usize));
                    self.among.select(&self.log.items, &self.indexes)?;
                    self.selected = wanted;
                }
                &self.among
            }
        };
        let place = |index: usize| match candidates.is_empty() {
            true => index as u32,
            false => candidates[index],
        };
        let user = UserId::from(round.user);
        let excluded = &self.log.excluded[round.excluded.clone()];
        self.chosen.clear();
        match (round.slots, excluded.is_empty()) {
            (1, true) => {
                let decision = policy.recommend_drawn(draw, user, items)?;
                self.chosen.push(place(decision.index));
            }
            (slots, _) => {
                let slots = (slots as usize).min(items.len());
                let is_excluded = |index: usize| excluded.contains(&place(index));
                policy.recommend_list_drawn(
                    draw,
                    user,
                    items,
                    slots,
                    &is_excluded,
                    &mut self.list,
                )?;
                let list = self.list.iter().map(|decision| place(decision.index));
                self.chosen.extend(list);
            }
        }
        Ok(&self.chosen)
    }
}

/// The terms of a round, with a model of the rewards. Items without a reward are taken to be missing by chance.
fn term(
    shown: &[ShownItem],
    chosen: &[u32],
    by_position: bool,
    model: impl Fn(u32) -> f64,
) -> Term {
    let mut term = Term::default();
    for shown in shown {
        let is_chosen = match by_position {
            true => chosen.get(shown.position as usize) == Some(&shown.item),
            false => chosen.contains(&shown.item),
        };
        if is_chosen {
            let weight = 1.0 / shown.propensity;
            term.weights += weight;
            term.rewards += weight * shown.reward;
            term.doubly_robust += weight * (shown.reward - model(shown.item));
        }
    }
    let slots = shown.len() as f64;
    let direct = chosen.iter().map(|&item| model(item)).sum::<f64>() / chosen.len().max(1) as f64;
    Term {
        rewards: term.rewards / slots,
        weights: term.weights / slots,
        doubly_robust: direct + term.doubly_robust / slots,
    }
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
