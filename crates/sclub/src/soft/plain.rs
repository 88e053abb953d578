//! The plain prior: a second hypothesis about users without clusters. Their tastes are N(0, cI), as in ridge
//! regression on each user's own observations.
//!
//! The learned prior is bent by the choices that its data come from. If the reward of an item depends on the
//! items it was chosen over, the prior's mean learns the level of rewards, and its scale is too small. Such a
//! prior predicts rewards only a little better than the plain one. So both are compared by their evidence. If
//! the learned prior is worth less than [`super::SoftParams::plain`] nats a round, an item's score is the mean of its scores
//! under both.

use super::background::{self, Background, Pass};
use super::panel::Panel;
use super::symmetric::row_start;
use crate::refit::Workers;

/// The number of rounds of each user that count. Later rewards are predicted from the user's own rounds under
/// both hypotheses.
const FIRST_ROUNDS: f64 = 20.0;
/// The worth that is assumed before there are data, and the number of rounds that it counts for.
const WORTH_BEFORE: f64 = 0.3;
const ROUNDS_BEFORE: f64 = 300.0;
/// The plain prior is not used below this weight.
const MIN_WEIGHT: f64 = 0.01;
/// The relative error up to which a feature's square counts as the same in all observations.
const ROUNDING: f64 = 1e-9;
/// The variance of the taste for a constant feature, as a share of c.
const CONSTANT: f64 = 1e-9;

/// The plain prior and its weight.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plain {
    /// Between 0 and 1.
    pub weight: f64,
    /// N(0, cI). The variance is almost 0 for a constant feature: the level of rewards is no taste. A feature counts
    /// as constant if its square is: the sums of users do not show the sign of a single one.
    pub prior: Background,
}

impl Plain {
    /// Compares the priors by their evidence; with a worth of `half`, the plain prior has weight ½. c is the mean square of the tastes under the learned prior. `None` if
    /// the weight is negligible or every feature is constant.
    pub fn of(
        panel: &Panel<'_>,
        learned: &Background,
        pass: &Pass,
        noise: f64,
        half: f64,
        workers: &dyn Workers,
    ) -> Option<Self> {
        if half == 0.0 {
            return None;
        }
        let layout = panel.layout();
        let rows = || panel.slots().iter().map(|&slot| panel.row(slot));
        let count = |row: &[f64]| row[layout.count()];
        let rounds: f64 = rows().map(count).sum();
        let is_constant = |feature: usize| {
            let at = row_start(feature) + feature;
            let mean = rows().map(|row| row[at]).sum::<f64>() / rounds;
            let is_mean = |row: &[f64]| {
                let expected = count(row) * mean;
                (row[at] - expected).abs() <= ROUNDING * expected
            };
            mean > 0.0 && rows().all(is_mean)
        };
        let mut constants: Vec<bool> = (0..layout.dim).map(is_constant).collect();
        // Features of −1 and 1 have constant squares too. Two constant features are proportional.
        let gram = |i: usize, j: usize| rows().map(|row| row[row_start(i) + j]).sum::<f64>();
        let candidates: Vec<usize> = (0..layout.dim).filter(|&i| constants[i]).collect();
        let are_proportional = candidates.windows(2).all(|pair| {
            let (j, i) = (pair[0], pair[1]);
            let (product, expected) = (gram(i, j) * gram(i, j), gram(i, i) * gram(j, j));
            (product - expected).abs() <= ROUNDING * expected
        });
        if panel.len() == 1 || !are_proportional {
            constants.fill(false);
        }
        let squares = |feature: usize| {
            let mean = learned.mean[feature];
            learned.covariance[row_start(feature) + feature] + mean * mean
        };
        let varying: Vec<f64> = (0..layout.dim)
            .filter(|&feature| !constants[feature])
            .map(squares)
            .collect();
        if varying.is_empty() {
            return None;
        }
        let variance = varying.iter().sum::<f64>() / varying.len() as f64;
        let share = |&is_constant: &bool| if is_constant { CONSTANT } else { 1.0 };
        let variances: Vec<f64> = constants.iter().map(|c| share(c) * variance).collect();
        let prior = Background::diagonal(&variances)?;
        let evidence = background::pass(panel, &prior, noise, false, workers).total;
        let first: f64 = rows().map(|row| count(row).min(FIRST_ROUNDS)).sum();
        let worth =
            (pass.total - evidence + WORTH_BEFORE * ROUNDS_BEFORE) / (first + ROUNDS_BEFORE);
        if !worth.is_finite() {
            return None;
        }
        let square = |x: f64| x * x;
        let weight = 1.0 / (1.0 + square(square(square((worth / half).max(0.0)))));
        (weight >= MIN_WEIGHT).then_some(Self { weight, prior })
    }
}
