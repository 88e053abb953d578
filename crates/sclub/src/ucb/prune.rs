//! The best of a large set without scoring all of it.
//!
//! For any λ at least the largest eigenvalue of S⁻¹, xᵀS⁻¹x ≤ λ xᵀx. So the score with
//! λ xᵀx for the squared norm is an upper bound, which costs d multiplications where the score costs d²/2.
//! Items that cannot be among the best are skipped. The rest is put side by side and scored by the same
//! kernel, whose lanes are independent: the answer has the bits of the full scan.
//!
//! **Rounding.** The mean in the bound has the bits of the mean in the score, and square root,
//! product with β ≥ 0 and sum keep the order of their inputs. So it is enough that the bound
//! on the norm is above the norm as it is computed. There z = M x errs by at most d·2⁻⁵³ ‖M_i‖ ‖x‖
//! in row i, hence √(Σ g z²) by at most d·2⁻⁵³ √(tr S⁻¹) ‖x‖, and tr S⁻¹ ≤ d λ: relative to √λ ‖x‖
//! that is d^1.5·2⁻⁵³ < 2·10⁻¹² for every dimension there is. S⁻¹ and its powers are computed with
//! errors below d²·2⁻⁵³ of their trace, some 3·10⁻¹¹. [`MARGIN`] is far above all of them together,
//! and [`MIN_SQUARE`] above every underflow.

use std::collections::BinaryHeap;

use super::{Ranking, Scores};
use crate::items::{GROUP, Group, ItemSet};
use crate::kernels::{self, Lengths};
use crate::policy::{Decision, better_first, largest};
use crate::statistics::View;

/// Enlarges the bound on the eigenvalues beyond every rounding error.
const MARGIN: f64 = 1e-6;
/// Enlarges the bound on a squared norm beyond every underflow.
const MIN_SQUARE: f64 = 1e-280;
/// The minimum number of items per feature at which pruning by a bound is faster than scoring all items.
const MIN_ITEMS_PER_FEATURE: usize = 32;

/// A rule that scores items in groups and can bound their scores for less.
pub(crate) trait Rule {
    /// The scores of a group.
    fn fill(&self, group: Group<'_>, scores: &mut Scores);

    /// Upper bounds of the scores of a group, in `scores.score`.
    fn bound(&self, group: Group<'_>, scores: &mut Scores);

    /// True if bounds are the scores themselves, with their means and widths.
    fn is_exact(&self) -> bool {
        false
    }
}

/// Returns true if a search with bounds is faster than scoring all items.
pub(crate) fn is_worthwhile(items: &ItemSet, k: usize) -> bool {
    items.len() / MIN_ITEMS_PER_FEATURE >= items.dim().max(GROUP) && k > 0 && k < items.len() / 8
}

/// The `k` best of `items`, as [`crate::Policy::best`] has it.
pub(crate) fn best(
    rule: &impl Rule,
    items: &ItemSet,
    k: usize,
    exclude: &dyn Fn(usize) -> bool,
    best: &mut Vec<Decision>,
) {
    Search::new(rule, items.dim(), k, exclude).run(items, best);
}

impl Ranking {
    /// The `k` best of `items`, as [`crate::Policy::best`] has it.
    pub fn best(
        &self,
        view: View<'_>,
        beta: f64,
        items: &ItemSet,
        k: usize,
        exclude: &dyn Fn(usize) -> bool,
        out: &mut Vec<Decision>,
    ) {
        if is_worthwhile(items, k) {
            let rule = Ucb {
                ranking: self,
                view,
                beta,
                largest: largest_eigenvalue(view),
            };
            best(&rule, items, k, exclude, out);
        } else {
            let mut scores = Vec::new();
            self.explain(view, beta, items, &mut scores);
            largest(&scores, k, exclude, out);
        }
    }
}

/// The index of a weight vector with its uncertainty.
struct Ucb<'a> {
    ranking: &'a Ranking,
    view: View<'a>,
    beta: f64,
    /// A bound on the largest eigenvalue of S⁻¹; `None` if S = I.
    largest: Option<f64>,
}

impl Rule for Ucb<'_> {
    fn fill(&self, group: Group<'_>, scores: &mut Scores) {
        self.ranking.fill(self.view, self.beta, group, scores);
    }

    fn bound(&self, group: Group<'_>, scores: &mut Scores) {
        kernels::lengths(Lengths {
            estimate: self.view.estimate,
            items: group.features,
            mean: &mut scores.mean[..group.width],
            norm: &mut scores.width[..group.width],
        });
        if let Some(largest) = self.largest {
            for norm in &mut scores.width {
                *norm = bound_on_square(largest, *norm);
            }
        }
        scores.finish(self.ranking.index, self.beta, group.width);
    }

    fn is_exact(&self) -> bool {
        self.largest.is_none()
    }
}

/// A bound on xᵀAx as it is computed, from a bound on the largest eigenvalue of A and xᵀx.
#[inline]
pub(crate) fn bound_on_square(largest: f64, square: f64) -> f64 {
    largest * square + MIN_SQUARE
}

/// Ordered so that the worst is the greatest.
struct Ranked(Decision);

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        better_first(&self.0, &other.0)
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ranked {}

/// A search under way.
struct Search<'a, R> {
    rule: &'a R,
    k: usize,
    exclude: &'a dyn Fn(usize) -> bool,
    best: BinaryHeap<Ranked>,
    /// The score that an item must exceed. Equal is not enough: items that come later have a higher
    /// position.
    threshold: f64,
    /// Items that may be among the best, side by side, and their positions.
    features: Vec<f64>,
    waiting: Vec<usize>,
}

impl<'a, R: Rule> Search<'a, R> {
    fn new(rule: &'a R, dim: usize, k: usize, exclude: &'a dyn Fn(usize) -> bool) -> Self {
        Self {
            rule,
            k,
            exclude,
            best: BinaryHeap::with_capacity(k + 1),
            threshold: f64::NEG_INFINITY,
            features: vec![0.0; dim * GROUP],
            waiting: Vec::with_capacity(GROUP),
        }
    }

    fn run(mut self, items: &ItemSet, best: &mut Vec<Decision>) {
        let mut scores = Scores::new();
        for group in items.groups() {
            self.rule.bound(group, &mut scores);
            let bounds = &scores.score[..group.len];
            if bounds.iter().all(|&bound| bound <= self.threshold) {
                continue;
            }
            for lane in 0..group.len {
                if scores.score[lane] <= self.threshold || (self.exclude)(group.first + lane) {
                    continue;
                }
                if self.rule.is_exact() {
                    let (index, score) = (group.first + lane, scores.of(lane));
                    self.offer(Decision { index, score });
                } else {
                    self.wait(group, lane);
                }
            }
        }
        self.score_waiting();
        best.clear();
        best.extend(self.best.into_sorted_vec().into_iter().map(|Ranked(d)| d));
    }

    /// Puts an item beside the others that may be among the best.
    #[inline]
    fn wait(&mut self, group: Group<'_>, lane: usize) {
        let to = self.waiting.len();
        let rows = self.features.chunks_exact_mut(GROUP);
        for (row, from) in rows.zip(group.features.chunks_exact(group.width)) {
            row[to] = from[lane];
        }
        self.waiting.push(group.first + lane);
        if self.waiting.len() == GROUP {
            self.score_waiting();
        }
    }

    fn score_waiting(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        let mut scores = Scores::new();
        let group = Group {
            first: 0,
            len: waiting.len(),
            width: GROUP,
            features: &self.features,
        };
        self.rule.fill(group, &mut scores);
        for (lane, &index) in waiting.iter().enumerate() {
            let score = scores.of(lane);
            self.offer(Decision { index, score });
        }
        self.waiting = waiting;
        self.waiting.clear();
    }

    #[inline]
    fn offer(&mut self, decision: Decision) {
        if self.best.len() == self.k && decision.score.score <= self.threshold {
            return;
        }
        self.best.push(Ranked(decision));
        if self.best.len() > self.k {
            self.best.pop();
        }
        if self.best.len() == self.k
            && let Some(Ranked(worst)) = self.best.peek()
        {
            self.threshold = worst.score.score;
        }
    }
}

/// A bound on the largest eigenvalue of S⁻¹; `None` if S = I and lengths are norms.
pub(crate) fn largest_eigenvalue(view: View<'_>) -> Option<f64> {
    let fresh =
        view.factor.iter().all(|&entry| entry == 0.0) && view.scale.iter().all(|&g| g == 1.0);
    if fresh {
        return None;
    }
    let dim = view.estimate.len();
    let mut inverse = vec![0.0; dim * dim];
    kernels::inverse(dim, view.factor, view.scale, &mut inverse);
    Some(largest_eigenvalue_of(dim, inverse))
}

/// A bound on the largest eigenvalue of a positive semidefinite matrix, given with both triangles.
///
/// With μ and s² the mean and the variance of d numbers that are not negative, none is above
/// μ + s √(d − 1). The numbers are the eighth powers of the eigenvalues: their sum is ‖A⁴‖², that of their
/// squares ‖A⁸‖², for the norm that sums the squares of all entries.
pub(crate) fn largest_eigenvalue_of(dim: usize, mut power: Vec<f64>) -> f64 {
    let mut next = power.clone();
    // Scaled to a trace of 1, powers stay far from underflow.
    let trace: f64 = power.iter().step_by(dim + 1).sum();
    power.iter_mut().for_each(|entry| *entry /= trace);
    let mut sums = [0.0; 2];
    for times in 1..=3 {
        kernels::square(dim, &power, &mut next);
        std::mem::swap(&mut power, &mut next);
        if times > 1 {
            sums[times - 2] = power.iter().map(|entry| entry * entry).sum();
        }
    }
    let [eighths, sixteenths] = sums.map(|sum| sum / dim as f64);
    let variance = (sixteenths - eighths * eighths).max(0.0) + 1e-9 * sixteenths;
    let eighth = eighths + (variance * (dim - 1) as f64).sqrt();
    trace * libm::pow(eighth, 0.125) * (1.0 + MARGIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels;
    use crate::statistics::Shape;
    use proptest::prelude::*;

    proptest! {
        /// No direction is longer than the bound allows, and the longest is not far from it.
        #[test]
        fn the_bound_holds_and_is_close(
            (dim, items) in (1usize..12).prop_flat_map(|dim| {
                let item = prop::collection::vec(-2.0f64..2.0, dim);
                (Just(dim), prop::collection::vec(item, 1..40))
            }),
        ) {
            let shape = Shape { dim };
            let mut block = shape.empty_block();
            prop_assert_eq!(largest_eigenvalue(shape.view(&block)), None);
            for item in &items {
                kernels::observe(dim, &mut block, item, 1.0);
            }
            let view = shape.view(&block);
            let Some(bound) = largest_eigenvalue(view) else { return Ok(()) };
            // The power method on S⁻¹, through the factors.
            let mut x = vec![1.0; dim];
            x[0] = 1.5;
            let mut longest = 0.0;
            for _ in 0..2000 {
                let mut y = vec![0.0; dim];
                kernels::solve(dim, view.factor, view.scale, &x, &mut y);
                let length = y.iter().map(|v| v * v).sum::<f64>().sqrt();
                longest = length / x.iter().map(|v| v * v).sum::<f64>().sqrt();
                x = y.iter().map(|v| v / length).collect();
            }
            prop_assert!(longest <= bound, "{} {}", longest, bound);
            prop_assert!(bound <= 1.3 * longest.max(1e-9) + 1e-9, "{} {}", longest, bound);
        }
    }
}
