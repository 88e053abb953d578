//! The index of a candidate and the choice among them.
//!
//! | symbol | name | meaning |
//! |---|---|---|
//! | θ̂ᵀx | `mean` | the expected reward of the item |
//! | β | `beta` | weight of the uncertainty |
//! | U(x) | `score` | mean + width, width = β √(xᵀS⁻¹x), or β xᵀS⁻¹x with [`Index::SquaredNorm`] |

pub(crate) mod prune;

use crate::items::{GROUP, Group, ItemSet};
use crate::kernels::{self, Scoring};
use crate::params::{Exploration, Index, Params};
use crate::policy::{Decision, Score};
use crate::statistics::View;

/// The scoring rule, for given parameters and dimension.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ranking {
    dim: f64,
    index: Index,
    exploration: Exploration,
}

impl Ranking {
    pub fn new(dim: usize, params: &Params) -> Self {
        Self {
            dim: dim as f64,
            index: params.index,
            exploration: params.exploration,
        }
    }

    /// β for an estimate from `count` observations. `log_rounds` is ln t of the rounds so far.
    #[inline]
    pub fn beta(&self, count: u64, log_rounds: f64) -> f64 {
        match self.exploration {
            Exploration::Fixed(beta) => beta,
            Exploration::Growing { scale } => {
                let growth = self.dim * libm::log(1.0 + count as f64 / self.dim);
                scale * ((growth + 4.0 * log_rounds + std::f64::consts::LN_2).sqrt() + 1.0)
            }
        }
    }

    /// The scores of a group.
    #[inline(always)]
    pub fn fill(&self, view: View<'_>, beta: f64, group: Group<'_>, scores: &mut Scores) {
        scores.fill(self.index, view, beta, group);
    }

    /// Algorithm 1, line 11: the candidate with the largest score, the first of them on a tie.
    ///
    /// `items` is not empty and has the dimension of `view`; the caller has checked.
    #[inline]
    pub fn choose(&self, view: View<'_>, beta: f64, items: &ItemSet) -> Decision {
        choose(items, |group, scores| {
            self.fill(view, beta, group, scores);
        })
    }

    /// Score, mean and width of every candidate.
    pub fn explain(&self, view: View<'_>, beta: f64, items: &ItemSet, out: &mut Vec<Score>) {
        explain(items, out, |group, scores| {
            self.fill(view, beta, group, scores);
        });
    }
}

/// The item with the largest score, the first of them on a tie; `fill` scores a group.
#[inline]
pub(crate) fn choose(items: &ItemSet, mut fill: impl FnMut(Group<'_>, &mut Scores)) -> Decision {
    let mut best = Decision {
        index: 0,
        score: Score {
            score: f64::NEG_INFINITY,
            mean: 0.0,
            width: 0.0,
        },
    };
    let mut scores = Scores::new();
    for group in items.groups() {
        fill(group, &mut scores);
        for lane in 0..group.len {
            if scores.score[lane] > best.score.score {
                best = Decision {
                    index: group.first + lane,
                    score: scores.of(lane),
                };
            }
        }
    }
    best
}

/// The products of a weight vector with the items of a group.
#[inline]
pub(crate) fn products(weights: &[f64], group: &Group<'_>, products: &mut [f64; GROUP]) {
    products.fill(0.0);
    for (weight, row) in weights.iter().zip(group.features.chunks_exact(group.width)) {
        for (product, x) in products.iter_mut().zip(row) {
            *product += weight * x;
        }
    }
}

/// The scores of all items, in their order; replaces the contents of `out`.
pub(crate) fn explain(
    items: &ItemSet,
    out: &mut Vec<Score>,
    mut fill: impl FnMut(Group<'_>, &mut Scores),
) {
    out.clear();
    out.reserve(items.len());
    let mut scores = Scores::new();
    for group in items.groups() {
        fill(group, &mut scores);
        out.extend((0..group.len).map(|lane| scores.of(lane)));
    }
}

/// The scores of one group.
pub(crate) struct Scores {
    pub score: [f64; GROUP],
    pub mean: [f64; GROUP],
    pub width: [f64; GROUP],
}

impl Scores {
    #[inline(always)]
    pub fn new() -> Self {
        Self {
            score: [0.0; GROUP],
            mean: [0.0; GROUP],
            width: [0.0; GROUP],
        }
    }

    #[inline(always)]
    pub fn of(&self, lane: usize) -> Score {
        Score {
            score: self.score[lane],
            mean: self.mean[lane],
            width: self.width[lane],
        }
    }

    /// Scores a group by an estimate and its uncertainty.
    #[inline(always)]
    pub fn fill(&mut self, index: Index, view: View<'_>, beta: f64, group: Group<'_>) {
        let View {
            factor,
            scale,
            estimate,
            ..
        } = view;
        let (mean, norm) = (
            &mut self.mean[..group.width],
            &mut self.width[..group.width],
        );
        kernels::score(Scoring {
            factor,
            scale,
            estimate,
            items: group.features,
            mean,
            norm,
        });
        self.finish(index, beta, group.width);
    }

    /// Widths and scores from the means and the squared norms, which stand where the widths will.
    #[inline(always)]
    fn finish(&mut self, index: Index, beta: f64, lanes: usize) {
        for lane in 0..lanes {
            let norm = self.width[lane];
            let width = beta
                * match index {
                    Index::Norm => norm.sqrt(),
                    Index::SquaredNorm => norm,
                };
            self.width[lane] = width;
            self.score[lane] = self.mean[lane] + width;
        }
    }
}
