//! The score of an item: the expected reward, and what showing it may teach.
//!
//! | symbol | name | meaning |
//! |---|---|---|
//! | μ̃ | | the population's mean, drawn from its posterior N(μ̂, V) for this decision |
//! | t | `trust` | the weight of the clusters as a whole |
//! | w_k | `weights` × t | the weight of cluster k; w_0 = 1 − Σ w_k is that of the background |
//! | m_k, m_0 | | the reward xᵀμ_k expected in cluster k, and xᵀ(m + A(μ̃ − μ0)) under the background |
//! | P | `view` | the posterior covariance of the user's tastes under the background |
//! | V_k | `spread` | the posterior covariance of the centre μ_k; taken as 0 once the centre is well known |
//! | c_b, c | `between`, `within` | t · between + (1 − t) · between_alone; t · within + (1 − t) · alone |
//!
//! score = Σ w m + c_b √(Σ w (m − Σ w m)²) + c √(w_0 xᵀPx + Σ_k w_k xᵀV_k x)
//!
//! All sums go over the background and the clusters, but the last, which is over the clusters. A
//! hypothesis of weight [`MIN_WEIGHT`] or less is left out of all of them. The first root is large
//! where the hypotheses disagree about an item: its reward tells which of them holds.
//!
//! With [`Explore::Bonus`] μ̂ stands for μ̃, and the score gets c_μ w_0 √(xᵀAVAᵀx) more.
//!
//! If the fit has a plain prior ([`super::plain`]) of weight p, this is the score with weight 1 − w_p, and
//! xᵀm_p + alone √(xᵀP_px) under the plain prior that with w_p = (1 − t) p/2. Both μ̃ − μ̂ and c_μ are multiplied by
//! 1 − (1 − t) p: what is learned about the population is worth little then.

use super::params::Explore;
use super::symmetric::{self, row_start};
use super::{Basis, SclubSoft};
use crate::draws;
use crate::items::{GROUP, Group, ItemSet};
use crate::kernels::{self, Lengths, Scoring};
use crate::policy::{Decision, Score, largest};
use crate::statistics::{Shape, View};
use crate::ucb::prune::{self, Rule, bound_on_square, largest_eigenvalue, largest_eigenvalue_of};
use crate::ucb::{self, Scores};

/// Hypotheses of this weight or less are skipped when items are scored.
const MIN_WEIGHT: f64 = 1e-5;

/// The scoring rule for one decision.
pub(super) struct Ranking<'a> {
    /// The user's posterior under the background; `None` before the first fit.
    view: Option<View<'a>>,
    /// m + A(μ̂ − μ0)
    expected: Vec<f64>,
    /// m + A(μ̃ − μ0)
    drawn: Vec<f64>,
    /// AVAᵀ, with [`Explore::Bonus`].
    shared: Option<Vec<f64>>,
    /// w_p, and the user's posterior under the plain prior.
    plain: Option<(f64, View<'a>)>,
    shape: Shape,
    /// The centres with their weights.
    means: &'a [f64],
    weights: &'a [f64],
    /// Σ w_k V_k over the centres that are not yet well known.
    spread: Option<Vec<f64>>,
    trust: f64,
    /// w_0
    none: f64,
    /// c_b
    between: f64,
    /// c
    within: f64,
    /// c_μ
    population: f64,
    /// c under the plain prior
    alone: f64,
    /// Bounds on the largest eigenvalues of P, `spread`, `shared` and P under the plain prior, for large sets of
    /// items.
    largest: [f64; 4],
}

/// How the squares under the roots are computed.
#[derive(Clone, Copy, PartialEq)]
enum Squares {
    Exact,
    Bound,
}

impl SclubSoft {
    /// The user's expected tastes under the background, with the population's live mean.
    pub(super) fn expected(&self, basis: Option<&Basis<'_>>) -> Vec<f64> {
        let mean = self.population.mean();
        let Some(Basis { served, block, .. }) = basis else {
            return mean.to_vec();
        };
        let centre = &served.model.background.mean;
        let shift: Vec<f64> = mean.iter().zip(centre).map(|(m, c)| m - c).collect();
        let view = served.model.shape.view(block);
        sum(view.estimate, &served.model.moved(view, &shift))
    }

    /// The scoring rule for a decision about a user, with its random number.
    pub(super) fn ranking<'a>(&'a self, draw: u64, basis: Option<&'a Basis<'a>>) -> Ranking<'a> {
        let params = &self.params;
        let mut ranking = Ranking {
            view: None,
            expected: Vec::new(),
            drawn: Vec::new(),
            shared: None,
            means: &[],
            weights: &[],
            spread: None,
            trust: 0.0,
            none: 1.0,
            between: params.between_alone,
            within: params.alone,
            population: params.population,
            plain: None,
            shape: Shape {
                dim: self.layout.dim,
            },
            alone: params.alone,
            largest: [0.0; 4],
        };
        if let Some(basis) = basis {
            let Basis {
                served,
                block,
                belief,
                plain,
            } = basis;
            if belief.weights.len() > 1 {
                ranking.trust = self.trust();
            }
            ranking.view = Some(served.model.shape.view(block));
            ranking.means = &served.model.means;
            ranking.weights = &belief.weights[1..];
            ranking.none = 1.0 - ranking.trust * (1.0 - belief.weights[0]);
            let blend =
                |with: f64, without: f64| ranking.trust * with + (1.0 - ranking.trust) * without;
            ranking.between = blend(params.between, params.between_alone);
            ranking.within = blend(params.within, params.alone);
            ranking.spread = ranking.spread_of(&served.model.spreads);
            if let Some((weight, block)) = plain {
                let weight = (1.0 - ranking.trust) * weight;
                ranking.population *= 1.0 - weight;
                ranking.plain = Some((0.5 * weight, ranking.shape.view(block)));
            }
        }
        if ranking.none > MIN_WEIGHT {
            // A δ
            let moved = |shift: Vec<f64>| match basis {
                Some(Basis { served, block, .. }) => {
                    served.model.moved(served.model.shape.view(block), &shift)
                }
                None => shift,
            };
            ranking.expected = self.expected(basis);
            match params.explore {
                Explore::Draw => {
                    let view = self.population.view();
                    let shift = draws::deviation(draw, view, ranking.population);
                    ranking.drawn = sum(&ranking.expected, &moved(shift));
                }
                Explore::Bonus => {
                    ranking.drawn = ranking.expected.clone();
                    let dim = self.layout.dim;
                    let mut shared = vec![0.0; row_start(dim)];
                    for column in self.population.columns() {
                        kernels::add_outer(dim, &mut shared, &moved(column));
                    }
                    ranking.shared = Some(shared);
                }
            }
        } else {
            ranking.expected = vec![0.0; self.layout.dim];
            ranking.drawn = ranking.expected.clone();
        }
        ranking
    }
}

fn sum(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

impl Ranking<'_> {
    fn dim(&self) -> usize {
        self.expected.len()
    }

    /// The clusters with their weights.
    fn centres(&self) -> impl Iterator<Item = (f64, &[f64])> {
        let weights = self.weights.iter().map(|weight| self.trust * weight);
        let centres = weights.zip(self.means.chunks_exact(self.dim().max(1)));
        centres.filter(|&(weight, _)| weight > MIN_WEIGHT)
    }

    fn spread_of(&self, spreads: &[Option<Vec<f64>>]) -> Option<Vec<f64>> {
        let mut sum: Option<Vec<f64>> = None;
        for (weight, own) in self.weights.iter().zip(spreads) {
            let weight = self.trust * weight;
            if let Some(own) = own
                && weight > MIN_WEIGHT
            {
                let sum = sum.get_or_insert_with(|| vec![0.0; own.len()]);
                kernels::add_scaled(sum, weight, own);
            }
        }
        sum
    }

    /// The item with the largest score, the first of them on a tie.
    pub fn choose(mut self, items: &ItemSet) -> Decision {
        if prune::is_worthwhile(items, 1) {
            let mut best = Vec::new();
            self.best(items, 1, &|_| false, &mut best);
            return best[0];
        }
        ucb::choose(items, |group, scores| self.fill(group, scores))
    }

    /// Score, mean and width of every item.
    pub fn explain(&self, items: &ItemSet, out: &mut Vec<Score>) {
        ucb::explain(items, out, |group, scores| self.fill(group, scores));
    }

    /// The `k` best items, as [`crate::Policy::best`] has it.
    pub fn best(
        &mut self,
        items: &ItemSet,
        k: usize,
        exclude: &dyn Fn(usize) -> bool,
        out: &mut Vec<Decision>,
    ) {
        if prune::is_worthwhile(items, k) {
            let dim = self.dim();
            let of = |matrix: &Option<Vec<f64>>| {
                let matrix = matrix.as_ref().map(|matrix| symmetric::full(dim, matrix));
                matrix.map_or(0.0, |matrix| largest_eigenvalue_of(dim, matrix))
            };
            let own = self
                .view
                .map_or(0.0, |view| largest_eigenvalue(view).unwrap_or(1.0));
            let plain = self
                .plain
                .map_or(0.0, |(_, view)| largest_eigenvalue(view).unwrap_or(1.0));
            self.largest = [own, of(&self.spread), of(&self.shared), plain];
            prune::best(self, items, k, exclude, out);
        } else {
            let mut scores = Vec::new();
            self.explain(items, &mut scores);
            largest(&scores, k, exclude, out);
        }
    }

    /// Σ w μ
    pub fn estimate(&self) -> Vec<f64> {
        let mut mean: Vec<f64> = self.expected.iter().map(|m| self.none * m).collect();
        for (weight, centre) in self.centres() {
            kernels::add_scaled(&mut mean, weight, centre);
        }
        if let Some((weight, view)) = self.plain {
            mean.iter_mut().for_each(|m| *m *= 1.0 - weight);
            kernels::add_scaled(&mut mean, weight, view.estimate);
        }
        mean
    }

    /// The scores of one group of items, or bounds on them. Only the squares under the roots differ.
    fn score(&self, group: Group<'_>, scores: &mut Scores, squares: Squares) {
        let lanes = group.width;
        let (mean, width) = (&mut scores.mean[..lanes], &mut scores.width[..lanes]);
        let mut buffers = [[0.0; GROUP]; 5];
        let [one, expected, second, shared, square] = &mut buffers;
        let (one, expected) = (&mut one[..lanes], &mut expected[..lanes]);
        let (second, shared) = (&mut second[..lanes], &mut shared[..lanes]);
        let square = &mut square[..lanes];
        mean.fill(0.0);
        width.fill(0.0);
        let none = self.none;
        let has_background = none > MIN_WEIGHT;
        if squares == Squares::Bound {
            kernels::lengths(Lengths {
                estimate: &self.drawn,
                items: group.features,
                mean: one,
                norm: square,
            });
            let [own, _, of_shared, _] = self.largest;
            for l in 0..lanes {
                if has_background {
                    width[l] = bound_on_square(own, square[l]);
                    shared[l] = bound_on_square(of_shared, square[l]);
                }
            }
        } else if let Some(view) = self.view.filter(|_| has_background) {
            kernels::score(Scoring {
                factor: view.factor,
                scale: view.scale,
                estimate: &self.drawn,
                items: group.features,
                mean: one,
                norm: width,
            });
        } else {
            kernels::means(&self.drawn, group.features, one);
        }
        if has_background {
            kernels::means(&self.expected, group.features, expected);
            if let Some(matrix) = &self.shared
                && squares == Squares::Exact
            {
                kernels::quadratic(self.dim(), matrix, group.features, shared);
            }
            for l in 0..lanes {
                expected[l] *= none;
                mean[l] = none * one[l];
                second[l] = none * one[l] * one[l];
                width[l] *= none;
                shared[l] = none * shared[l].max(0.0).sqrt();
            }
        }
        for (weight, centre) in self.centres() {
            kernels::means(centre, group.features, one);
            for l in 0..lanes {
                mean[l] += weight * one[l];
                expected[l] += weight * one[l];
                second[l] += weight * one[l] * one[l];
            }
        }
        match (&self.spread, squares) {
            (Some(spread), Squares::Exact) => {
                kernels::quadratic(self.dim(), spread, group.features, width);
            }
            (Some(_), Squares::Bound) => {
                for l in 0..lanes {
                    width[l] += bound_on_square(self.largest[1], square[l]);
                }
            }
            (None, _) => {}
        }
        for l in 0..lanes {
            let between = (second[l] - mean[l] * mean[l]).max(0.0).sqrt();
            let bonus = self.between * between
                + self.within * width[l].max(0.0).sqrt()
                + self.population * shared[l];
            scores.score[l] = mean[l] + bonus;
            mean[l] = expected[l];
        }
        if let Some((weight, view)) = self.plain {
            match squares {
                Squares::Exact => kernels::score(Scoring {
                    factor: view.factor,
                    scale: view.scale,
                    estimate: view.estimate,
                    items: group.features,
                    mean: one,
                    norm: shared,
                }),
                Squares::Bound => {
                    kernels::means(view.estimate, group.features, one);
                    for l in 0..lanes {
                        shared[l] = bound_on_square(self.largest[3], square[l]);
                    }
                }
            }
            for l in 0..lanes {
                let score = one[l] + self.alone * shared[l].max(0.0).sqrt();
                scores.score[l] = (1.0 - weight) * scores.score[l] + weight * score;
                mean[l] = (1.0 - weight) * mean[l] + weight * one[l];
            }
        }
        for l in 0..lanes {
            width[l] = scores.score[l] - mean[l];
        }
    }
}

impl Rule for Ranking<'_> {
    fn fill(&self, group: Group<'_>, scores: &mut Scores) {
        self.score(group, scores, Squares::Exact);
    }

    fn bound(&self, group: Group<'_>, scores: &mut Scores) {
        self.score(group, scores, Squares::Bound);
    }
}
