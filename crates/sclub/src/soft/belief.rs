//! The belief about one user, and its update by an observation.

use std::borrow::Cow;

use super::background::Background;
use super::fit::Fit;
use super::mixture::{coefficients, normalise};
use super::plain::Plain;
use super::sums::Layout;
use super::symmetric;
use crate::kernels;
use crate::policy::ClusterId;
use crate::statistics::{Shape, View};

/// A centre is well known when its variance is below this share of the background's.
const MIN_SPREAD: f64 = 3e-3;
/// The minimum probability of a cluster for an observation to move its centre.
const MIN_MOVING_WEIGHT: f64 = 0.05;

/// A fit made ready for serving.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    layout: Layout,
    pub shape: Shape,
    pub noise: f64,
    /// 1/√v
    pub whiten: f64,
    pub background: Background,
    plain: Option<Plain>,
    /// C⁻¹, both triangles, in rows of whole groups of lanes.
    precision: Vec<f64>,
    /// ln π of the background and of each hypothesis.
    pub log_shares: Vec<f64>,
    /// The centres, one after another, moved by the observations since the fit.
    pub means: Vec<f64>,
    /// The centres with one of all in each lane: entry i of centre k at `i * width + k`.
    by_feature: Vec<f64>,
    pub labels: Vec<ClusterId>,
    /// V of each centre, both triangles, in rows of whole groups of lanes.
    centre_covariances: Vec<Vec<f64>>,
    /// V of each centre that is not yet well known.
    pub spreads: Vec<Option<Vec<f64>>>,
    coefficients: Vec<f64>,
    /// The block and the belief of a user without observations.
    pub block: Vec<f64>,
    pub newcomer: Belief,
}

/// The probability of each hypothesis about a user: the background first, then each cluster.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Belief {
    /// The fit it belongs to.
    pub fit: u64,
    /// ln π + L
    pub logs: Vec<f64>,
    /// w
    pub weights: Vec<f64>,
    /// ln Σ π e^L
    pub log_sum: f64,
    /// A buffer for the reward that each hypothesis predicts.
    pub expected: Vec<f64>,
}

/// V where it is not negligible beside C.
fn uncertain(dim: usize, spread: &[f64], fit: &Fit) -> Option<Vec<f64>> {
    let whole = symmetric::trace(dim, &fit.background.covariance);
    (symmetric::trace(dim, spread) > MIN_SPREAD * whole).then(|| spread.to_vec())
}

impl Model {
    pub fn new(layout: Layout, fit: &Fit, number: u64) -> Self {
        let noise = fit.noise;
        let centres = &fit.played.centres;
        let mut log_shares = vec![libm::log(fit.played.none)];
        log_shares.extend(centres.iter().map(|c| libm::log(c.share)));
        let mut model = Self {
            layout,
            shape: Shape { dim: layout.dim },
            noise,
            whiten: 1.0 / noise.sqrt(),
            background: fit.background.clone(),
            plain: fit.plain.clone(),
            precision: symmetric::full_rows(layout.dim, &fit.background.precision),
            log_shares,
            means: centres.iter().flat_map(|c| c.mean.clone()).collect(),
            by_feature: vec![0.0; layout.dim * centres.len().next_multiple_of(kernels::LANES)],
            labels: centres.iter().map(|c| c.label).collect(),
            centre_covariances: fit
                .spreads
                .iter()
                .map(|spread| symmetric::full_rows(layout.dim, spread))
                .collect(),
            spreads: fit
                .spreads
                .iter()
                .map(|spread| uncertain(layout.dim, spread, fit))
                .collect(),
            coefficients: coefficients(layout, centres.iter().map(|c| c.mean.as_slice()), noise),
            block: vec![0.0; Shape { dim: layout.dim }.block()],
            newcomer: Belief::default(),
        };
        for (k, centre) in centres.iter().enumerate() {
            model.set_centre(k, &centre.mean);
        }
        let mut block = std::mem::take(&mut model.block);
        model.newcomer = model.believe(number, &vec![0.0; layout.row()], &mut block);
        model.block = block;
        model
    }

    /// C⁻¹ x, in a vector that may have zeros behind it.
    pub fn pull(&self, x: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; self.layout.dim.next_multiple_of(kernels::LANES)];
        kernels::means(x, &self.precision, &mut out);
        out
    }

    /// A δ = P C⁻¹ δ: the change of a user's posterior mean if the prior's mean changes by δ.
    pub fn moved(&self, user: View<'_>, shift: &[f64]) -> Vec<f64> {
        let pulled = self.pull(shift);
        let mut moved = vec![0.0; self.layout.dim];
        kernels::solve(
            self.layout.dim,
            user.factor,
            user.scale,
            &pulled,
            &mut moved,
        );
        moved
    }

    /// Moves the centres by an observation of a user who belongs to each with a weight w:
    /// μ_k += V_k x (y − xᵀμ_k)/(v/w + xᵀV_kx). V_k stays as of the fit, which sets the centres anew.
    fn move_centres(&mut self, belief: &Belief, item: &[f64], reward: f64) {
        let dim = self.layout.dim;
        for k in 0..self.labels.len() {
            let weight = belief.weights[k + 1];
            if weight < MIN_MOVING_WEIGHT {
                continue;
            }
            let mut image = vec![0.0; dim.next_multiple_of(kernels::LANES)];
            kernels::means(item, &self.centre_covariances[k], &mut image);
            let variance = self.noise / weight + symmetric::dot(item, &image);
            let step = (reward - belief.expected[k]) / variance;
            let mut mean = self.means[k * dim..(k + 1) * dim].to_vec();
            kernels::add_scaled(&mut mean, step, &image[..dim]);
            self.set_centre(k, &mean);
        }
    }

    /// Puts a centre elsewhere.
    pub fn set_centre(&mut self, k: usize, mean: &[f64]) {
        let dim = self.layout.dim;
        let width = self.labels.len().next_multiple_of(kernels::LANES);
        self.means[k * dim..(k + 1) * dim].copy_from_slice(mean);
        for (i, &value) in mean.iter().enumerate() {
            self.by_feature[i * width + k] = value;
        }
    }

    /// The weight of the plain prior, and the block of a user under it.
    pub fn plain(&self, row: Option<&[f64]>) -> Option<(f64, Vec<f64>)> {
        let plain = self.plain.as_ref()?;
        let mut block = vec![0.0; self.shape.block()];
        let row = row.map_or_else(|| Cow::Owned(vec![0.0; self.layout.row()]), Cow::Borrowed);
        self.posterior(&plain.prior, &row, &mut block);
        Some((plain.weight, block))
    }

    /// Writes the block of a user with a prior. Returns the log-likelihood of the user's rewards less that of
    /// noise alone.
    fn posterior(&self, background: &Background, row: &[f64], block: &mut [f64]) -> f64 {
        let (layout, dim) = (self.layout, self.layout.dim);
        let inverse = 1.0 / self.noise;
        // Λ = C⁻¹ + G/v, r = C⁻¹μ0 + b/v, m = Λ⁻¹r
        let mut precision = background.precision.clone();
        kernels::add_scaled(&mut precision, inverse, &row[..layout.gram()]);
        let mut lower = vec![0.0; self.shape.triangle()];
        let (factor, rest) = block.split_at_mut(self.shape.triangle());
        let (scale, rest) = rest.split_at_mut(dim);
        let (pull, mean) = rest.split_at_mut(dim);
        pull.copy_from_slice(&background.pull);
        kernels::add_scaled(pull, inverse, &row[layout.gram()..layout.count()]);
        if !kernels::factorise(dim, &precision, 0.0, &mut lower, factor, scale) {
            // Only where G has been rounded until it is not positive definite: the prior alone is left.
            let definite =
                kernels::factorise(dim, &background.precision, 0.0, &mut lower, factor, scale);
            assert!(definite, "a prior is positive definite");
            pull.copy_from_slice(&background.pull);
        }
        kernels::solve(dim, factor, scale, pull, mean);
        background.evidence_of(symmetric::dot(pull, mean), scale)
    }

    /// The belief about a user from the user's sums. Writes the user's block.
    pub fn believe(&self, fit: u64, row: &[f64], block: &mut [f64]) -> Belief {
        let layout = self.layout;
        let mut logs = self.log_shares.clone();
        logs[0] += self.posterior(&self.background, row, block);
        let width = self.labels.len().next_multiple_of(kernels::LANES);
        if width > 0 {
            let mut likelihoods = vec![0.0; width];
            kernels::means(&row[..layout.count()], &self.coefficients, &mut likelihoods);
            for (log, likelihood) in logs[1..].iter_mut().zip(&likelihoods) {
                *log += likelihood;
            }
        }
        let mut weights = logs.clone();
        let log_sum = normalise(&mut weights);
        Belief {
            fit,
            logs,
            weights,
            log_sum,
            expected: Vec::new(),
        }
    }

    /// One observation: the block and the belief change by rank 1, and so do the centres of the clusters that
    /// the user probably belongs to. `background` is the log-likelihood of the
    /// reward under the background less that of noise alone. Returns by how much the reward was likelier with
    /// clusters than without, as a logarithm.
    #[inline]
    pub fn observe(
        &mut self,
        block: &mut [f64],
        belief: &mut Belief,
        item: &[f64],
        scaled: &mut [f64],
        reward: f64,
        background: f64,
    ) -> f64 {
        for (s, x) in scaled.iter_mut().zip(item) {
            *s = x * self.whiten;
        }
        let white = reward * self.whiten;
        kernels::observe(self.layout.dim, block, scaled, white);
        let inverse = 1.0 / self.noise;
        let before = belief.log_sum;
        belief.logs[0] += background;
        if !self.labels.is_empty() {
            let width = self.labels.len().next_multiple_of(kernels::LANES);
            belief.expected.resize(width, 0.0);
            kernels::means(item, &self.by_feature, &mut belief.expected);
            for (log, &expected) in belief.logs[1..].iter_mut().zip(&belief.expected) {
                *log += expected * (reward - 0.5 * expected) * inverse;
            }
        }
        belief.weights.copy_from_slice(&belief.logs);
        let after = normalise(&mut belief.weights);
        belief.log_sum = after;
        self.move_centres(belief, item, reward);
        after - before - background
    }
}
