//! The score of an item: the expected reward, and a bonus for the information from showing it.
//!
//! | symbol | name | meaning |
//! |---|---|---|
//! | t | `trust` | the weight of the clusters as a whole |
//! | w_k | `weights` × t | the weight of cluster k; w_0 = 1 − Σ w_k is that of the background |
//! | m_k, m_0 | | the expected reward xᵀμ_k in cluster k, and xᵀm under the background |
//! | P | `view` | the posterior covariance of the user's tastes under the background |
//! | V_k | `spreads` | the posterior covariance of the centre μ_k; taken as 0 once the centre is well known |
//! | c_b, c | `between`, `within` | [`SoftParams::between`](super::SoftParams::between); t · within + (1 − t) · alone |
//!
//! score = Σ w m + c_b √(Σ w (m − Σ w m)²) + c √(w_0 xᵀPx + Σ_k w_k xᵀV_k x)
//!
//! All sums go over the background and the clusters, but the last, which is over the clusters. A
//! hypothesis of weight [`MIN_WEIGHT`] or less is left out of all of them. The first root is large
//! where the hypotheses disagree about an item: its reward tells which of them holds.

use super::belief::Belief;
use super::{SclubSoft, Served};
use crate::digest::mix;
use crate::items::{GROUP, Group, ItemSet};
use crate::kernels::{self, Scoring};
use crate::policy::{Decision, Score, UserId};
use crate::statistics::View;
use crate::ucb::{self, Scores};

/// Hypotheses of this weight or less are skipped when items are scored.
const MIN_WEIGHT: f64 = 1e-5;

/// The scoring rule for one user.
pub(super) struct Ranking<'a> {
    view: View<'a>,
    /// The centres with their weights.
    means: &'a [f64],
    weights: &'a [f64],
    /// V of each centre that is not yet well known.
    spreads: &'a [Option<Vec<f64>>],
    trust: f64,
    /// w_0
    none: f64,
    /// c_b
    between: f64,
    /// c
    within: f64,
}

impl SclubSoft {
    pub(super) fn ranking<'a>(
        &self,
        served: &'a Served,
        block: &'a [f64],
        belief: &'a Belief,
    ) -> Ranking<'a> {
        let trust = if belief.weights.len() > 1 {
            self.trust()
        } else {
            0.0
        };
        let params = &self.params;
        Ranking {
            view: served.model.shape.view(block),
            means: &served.model.means,
            weights: &belief.weights[1..],
            spreads: &served.model.spreads,
            trust,
            none: 1.0 - trust * (1.0 - belief.weights[0]),
            between: params.between,
            within: trust * params.within + (1.0 - trust) * params.alone,
        }
    }

    /// The item to show before the first fit: any will do, so the round and the user fix one.
    pub(super) fn arbitrary_item(&self, user: UserId, items: &ItemSet) -> Decision {
        let word = mix(mix(self.rounds) ^ user);
        let index = ((u128::from(word) * items.len() as u128) >> 64) as usize;
        let score = Score {
            score: 1.0,
            mean: 0.0,
            width: 1.0,
        };
        Decision { index, score }
    }

    /// The scores before the first fit: 1 for [`SclubSoft::arbitrary_item`], 0 for the others.
    pub(super) fn explain_before_first_fit(
        &self,
        user: UserId,
        items: &ItemSet,
        out: &mut Vec<Score>,
    ) {
        let first = self.arbitrary_item(user, items);
        let nothing = Score {
            score: 0.0,
            mean: 0.0,
            width: 0.0,
        };
        out.clear();
        out.resize(items.len(), nothing);
        out[first.index] = first.score;
    }
}

impl Ranking<'_> {
    /// The item with the largest score, the first of them on a tie.
    pub fn choose(&self, items: &ItemSet) -> Decision {
        ucb::choose(items, |group, scores| self.fill(group, scores))
    }

    /// Score, mean and width of every item.
    pub fn explain(&self, items: &ItemSet, out: &mut Vec<Score>) {
        ucb::explain(items, out, |group, scores| self.fill(group, scores));
    }

    /// Σ w μ
    pub fn estimate(&self) -> Vec<f64> {
        let estimate = self.view.estimate;
        let mut mean: Vec<f64> = estimate.iter().map(|m| self.none * m).collect();
        let centres = self.means.chunks_exact(mean.len());
        for (&weight, centre) in self.weights.iter().zip(centres) {
            for (sum, m) in mean.iter_mut().zip(centre) {
                *sum += self.trust * weight * m;
            }
        }
        mean
    }

    /// The scores of one group of items.
    fn fill(&self, group: Group<'_>, scores: &mut Scores) {
        let lanes = group.width;
        let (mean, width) = (&mut scores.mean[..lanes], &mut scores.width[..lanes]);
        let mut one = [0.0; GROUP];
        let mut second = [0.0; GROUP];
        let (one, second) = (&mut one[..lanes], &mut second[..lanes]);
        mean.fill(0.0);
        width.fill(0.0);
        let none = self.none;
        if none > MIN_WEIGHT {
            kernels::score(Scoring {
                factor: self.view.factor,
                scale: self.view.scale,
                estimate: self.view.estimate,
                items: group.features,
                mean: one,
                norm: width,
            });
            for l in 0..lanes {
                mean[l] = none * one[l];
                second[l] = none * one[l] * one[l];
                width[l] *= none;
            }
        }
        let dim = self.view.estimate.len();
        let centres = self.means.chunks_exact(dim);
        let mut spread = Vec::new();
        for ((&weight, centre), own) in self.weights.iter().zip(centres).zip(self.spreads) {
            let weight = self.trust * weight;
            if weight > MIN_WEIGHT {
                kernels::means(centre, group.features, one);
                for l in 0..lanes {
                    mean[l] += weight * one[l];
                    second[l] += weight * one[l] * one[l];
                }
                if let Some(own) = own {
                    spread.resize(own.len(), 0.0);
                    kernels::add_scaled(&mut spread, weight, own);
                }
            }
        }
        if !spread.is_empty() {
            kernels::quadratic(dim, &spread, group.features, width);
        }
        for l in 0..lanes {
            let between = (second[l] - mean[l] * mean[l]).max(0.0).sqrt();
            width[l] = self.between * between + self.within * width[l].max(0.0).sqrt();
            scores.score[l] = mean[l] + width[l];
        }
    }
}
