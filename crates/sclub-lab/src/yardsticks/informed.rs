//! A policy that knows the clusters' weight vectors.

use std::sync::Arc;

use sclub::{
    Abilities, Change, ClusterId, Decision, Error, ItemSet, Observation, Policy, Preset, Score,
    Spec, UserId,
};

use super::Known;
use crate::catalogue::Stock;
use crate::streams::mix;
use crate::world::{Rewards, Truth};

/// Knows the true weight vectors, not which user has which.
///
/// Keeps the exact posterior over the clusters for each user, starting from the clusters' sizes, and
/// plays the item with the largest mean under it. It does not explore, so its regret is not
/// a lower bound. If users change to other clusters, it knows when, and starts again.
///
/// In a catalogue it knows the link too: the likelihood of a click is the Bernoulli one with the link's
/// probability, and the mean of an item is that of the link over the posterior. It does not know the users' own
/// deviations from their tastes.
#[derive(Debug, Clone)]
pub struct Informed {
    truth: Truth,
    /// In a catalogue: the mean of each item for each cluster.
    means: Vec<Vec<f64>>,
    /// The logarithm of each cluster's weight, user by user.
    beliefs: Vec<f64>,
    rounds: u64,
}

impl Informed {
    /// Knows the weight vectors of `truth`.
    pub fn new(truth: &Truth) -> Self {
        let table = |stock: &Arc<Stock>| {
            let of = |weights: &Vec<f64>| {
                let mut means = Vec::new();
                stock.means(weights, &mut means);
                means
            };
            truth.weights.iter().map(of).collect()
        };
        Self {
            truth: truth.clone(),
            means: truth.stock.as_ref().map(table).unwrap_or_default(),
            beliefs: prior(truth, 0),
            rounds: 0,
        }
    }

    fn belief(&self, user: UserId) -> &[f64] {
        let clusters = self.truth.weights.len();
        let start = (user as usize).min(self.truth.cluster_of.len() - 1) * clusters;
        &self.beliefs[start..start + clusters]
    }

    /// The posterior mean of a user's weight vector.
    fn mean(&self, user: UserId) -> Vec<f64> {
        self.average(user, &self.truth.weights)
    }

    /// The posterior mean of a vector that each cluster has.
    fn average(&self, user: UserId, vectors: &[Vec<f64>]) -> Vec<f64> {
        let belief = self.belief(user);
        let top = belief.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut average = vec![0.0; vectors[0].len()];
        let mut whole = 0.0;
        for (&belief, vector) in belief.iter().zip(vectors) {
            let share = libm::exp(belief - top);
            if share == 0.0 {
                continue;
            }
            whole += share;
            for (weight, value) in average.iter_mut().zip(vector) {
                *weight += share * value;
            }
        }
        average.iter_mut().for_each(|weight| *weight /= whole);
        average
    }

    /// The posterior mean reward of each item of a set, in a catalogue.
    fn catalogue_means(&self, user: UserId, items: &ItemSet) -> Option<Vec<f64>> {
        let stock = self.truth.stock.as_ref()?;
        if std::ptr::eq(items, stock.items()) {
            return Some(self.average(user, &self.means));
        }
        let vectors: Vec<Vec<f64>> = (self.truth.weights.iter())
            .map(|weights| {
                let products = (0..items.len()).map(|item| {
                    let features = items.item(item).zip(weights);
                    features.fold(0.0, |sum, (x, w)| sum + x * w)
                });
                products.map(|product| stock.link().mean(product)).collect()
            })
            .collect();
        Some(self.average(user, &vectors))
    }

    /// ln p(reward | mean), up to a constant.
    fn log_likelihood(&self, mean: f64, reward: f64) -> f64 {
        match self.truth.rewards {
            Rewards::Bernoulli => {
                let mean = mean.clamp(1e-12, 1.0 - 1e-12);
                reward * libm::log(mean) + (1.0 - reward) * libm::log1p(-mean)
            }
            Rewards::Gaussian(scale) => -((reward - mean) / scale).powi(2) / 2.0,
        }
    }

    fn score(&self, weights: &[f64], items: &ItemSet, item: usize) -> Score {
        Score::certain(items.item(item).zip(weights).map(|(x, w)| x * w).sum())
    }

    fn check(&self, items: &ItemSet) -> Result<(), Error> {
        if items.dim() != self.dim() {
            return Err(Error::DimensionMismatch {
                expected: self.dim(),
                got: items.dim(),
            });
        }
        if items.is_empty() {
            Err(Error::NoCandidates)
        } else {
            Ok(())
        }
    }
}

/// The logarithms of the clusters' sizes in a round, for each user.
fn prior(truth: &Truth, round: u64) -> Vec<f64> {
    let mut sizes = vec![0.0; truth.weights.len()];
    truth
        .clusters_in(round)
        .iter()
        .for_each(|&cluster| sizes[cluster as usize] += 1.0);
    let prior: Vec<f64> = sizes.iter().map(|&size: &f64| libm::log(size)).collect();
    prior.repeat(truth.cluster_of.len())
}

impl Policy for Informed {
    fn dim(&self) -> usize {
        self.truth.weights[0].len()
    }

    fn rounds(&self) -> u64 {
        self.rounds
    }

    fn recommend(&self, user: UserId, items: &ItemSet) -> Result<Decision, Error> {
        self.check(items)?;
        if let Some(means) = self.catalogue_means(user, items) {
            // The first of equal ones.
            let larger = |best: usize, item: usize| match means[item] > means[best] {
                true => item,
                false => best,
            };
            let index = (0..means.len()).fold(0, larger);
            let score = Score::certain(means[index]);
            return Ok(Decision { index, score });
        }
        let weights = self.mean(user);
        let mut best = Decision {
            index: 0,
            score: self.score(&weights, items, 0),
        };
        for index in 1..items.len() {
            let score = self.score(&weights, items, index);
            if score.score > best.score.score {
                best = Decision { index, score };
            }
        }
        Ok(best)
    }

    fn explain(&self, user: UserId, items: &ItemSet, scores: &mut Vec<Score>) -> Result<(), Error> {
        self.check(items)?;
        scores.clear();
        if let Some(means) = self.catalogue_means(user, items) {
            scores.extend(means.into_iter().map(Score::certain));
            return Ok(());
        }
        let weights = self.mean(user);
        scores.extend((0..items.len()).map(|item| self.score(&weights, items, item)));
        Ok(())
    }

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        _changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        for observation in round {
            if observation.item.len() != self.dim() {
                let (expected, got) = (self.dim(), observation.item.len());
                return Err(Error::DimensionMismatch { expected, got });
            }
        }
        self.rounds += 1;
        let clusters = self.truth.weights.len();
        for observation in round {
            let start = (observation.user as usize).min(self.truth.cluster_of.len() - 1) * clusters;
            for cluster in 0..clusters {
                let weights = &self.truth.weights[cluster];
                let product: f64 = observation
                    .item
                    .iter()
                    .zip(weights)
                    .map(|(x, w)| x * w)
                    .sum();
                let stock = self.truth.stock.as_ref();
                let mean = stock.map_or(product, |stock| stock.link().mean(product));
                self.beliefs[start + cluster] += self.log_likelihood(mean, observation.reward);
            }
        }
        if let Some(changed) = &self.truth.changed
            && changed.after == self.rounds
        {
            self.beliefs = prior(&self.truth, self.rounds);
        }
        Ok(())
    }

    /// The most probable cluster.
    fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
        let belief = self.belief(user);
        let best = (0..belief.len()).max_by(|&a, &b| belief[a].total_cmp(&belief[b]));
        best.map(|cluster| cluster as ClusterId + 1)
    }

    fn clusters(&self) -> usize {
        self.truth.weights.len()
    }

    fn estimate(&self, user: UserId) -> Option<Vec<f64>> {
        Some(self.mean(user))
    }

    fn digest(&self) -> u64 {
        let words: Vec<u64> = self.beliefs.iter().map(|belief| belief.to_bits()).collect();
        mix(&[self.rounds, mix(&words)])
    }
}

/// `informed`
pub static SPEC: Spec = Spec {
    name: "informed",
    title: "Informed",
    summary: "Knows the clusters' tastes, not which user has which; for comparison only",
    citation: "Bayes' rule",
    colors: ["#E69F00", "#F2B632"],
    revision: 1,
    presets: &[Preset::Default],
    constants: &[],
    can: Abilities {
        needs_truth: true,
        ..Abilities::NONE
    },
    new: |setup, _| Ok(Box::new(Informed::new(Known::clusters(setup)?))),
    load: None,
    gather: None,
};
