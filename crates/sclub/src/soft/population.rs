//! The live mean of the population: what all users have in common, learned with every reward.
//!
//! The tastes of a user are θ_i ~ N(μ, C). With C and the noise v of the last fit, the posterior of μ is
//! N(μ̂, V), kept exactly by updates of rank 1:
//!
//! | symbol | meaning |
//! |---|---|
//! | P, m | the user's posterior covariance and mean under the prior of the fit, N(μ0, C) |
//! | A = P C⁻¹ | the weight of μ in the user's posterior mean: m moves by A (μ − μ0) |
//! | z = Aᵀx | the features of μ in an observation of the user |
//!
//! An observation y of item x says y − xᵀ(m − Aμ0) = zᵀμ + noise of variance v + xᵀPx. So V⁻¹ grows by
//! z zᵀ/(v + xᵀPx). For a newcomer P = C and z = x.

use std::io;

use super::background::pooled_of;
use super::belief::Model;
use super::fit::Fit;
use super::sums::Layout;
use super::symmetric::{self, row_start};
use crate::bytes::{Reader, Writer};
use crate::error::LoadError;
use crate::kernels;
use crate::statistics::{Shape, View};

/// N(μ̂, V), as a block whose S is V⁻¹.
#[derive(Debug, Clone)]
pub(crate) struct Population {
    shape: Shape,
    block: Box<[f64]>,
}

impl Population {
    /// The prior before any reward: mean 0, and a covariance whose scale does not matter yet.
    pub fn new(dim: usize) -> Self {
        let shape = Shape { dim };
        Self {
            shape,
            block: shape.empty_block(),
        }
    }

    /// From V⁻¹ and V⁻¹μ̂; `None` if V⁻¹ was rounded so far that it is not positive definite.
    fn from_information(dim: usize, information: &[f64], pull: &[f64]) -> Option<Self> {
        let mut population = Self::new(dim);
        let shape = population.shape;
        let mut lower = vec![0.0; shape.triangle()];
        let (factor, rest) = population.block.split_at_mut(shape.triangle());
        let (scale, rest) = rest.split_at_mut(dim);
        if kernels::factorise(dim, information, 0.0, &mut lower, factor, scale) {
            let (moment, estimate) = rest.split_at_mut(dim);
            moment.copy_from_slice(pull);
            kernels::solve(dim, factor, scale, moment, estimate);
            Some(population)
        } else {
            None
        }
    }

    /// Before the first fit: one least-squares estimate for all users, from the sums over all of them.
    pub fn from_sums(layout: Layout, sums: &[f64]) -> Self {
        if sums[layout.count()] == 0.0 {
            return Self::new(layout.dim);
        }
        let scale = pooled_of(layout, sums);
        let mut information: Vec<f64> = sums[..layout.gram()]
            .iter()
            .map(|g| g / scale.noise)
            .collect();
        for i in 0..layout.dim {
            information[row_start(i) + i] += scale.ridge();
        }
        let moment = &sums[layout.gram()..layout.count()];
        let pull: Vec<f64> = moment.iter().map(|b| b / scale.noise).collect();
        Self::from_information(layout.dim, &information, &pull)
            .unwrap_or_else(|| Self::new(layout.dim))
    }

    /// After a fit: its mean and information. If the information is not positive definite, the mean counts as known
    /// from one user, V = C.
    pub fn from_fit(fit: &Fit) -> Self {
        let background = &fit.background;
        let dim = background.mean.len();
        let pull = symmetric::apply(dim, &fit.information, &background.mean);
        Self::from_information(dim, &fit.information, &pull)
            .or_else(|| Self::from_information(dim, &background.precision, &background.pull))
            .unwrap_or_else(|| Self::new(dim))
    }

    /// μ̂
    pub fn mean(&self) -> &[f64] {
        self.shape.view(&self.block).estimate
    }

    /// V as factors.
    pub fn view(&self) -> View<'_> {
        self.shape.view(&self.block)
    }

    /// Learns one observation of a user. `user` is the user's posterior before it, under the prior of the fit.
    /// Returns the log-likelihood of the reward less that under noise alone, N(0, v).
    pub fn observe(&mut self, model: &Model, user: View<'_>, item: &[f64], reward: f64) -> f64 {
        let (dim, noise) = (self.shape.dim, model.noise);
        let mut image = vec![0.0; dim];
        kernels::solve(dim, user.factor, user.scale, item, &mut image);
        let variance = noise + symmetric::dot(item, &image);
        let mut z = model.pull(&image);
        let without =
            symmetric::dot(item, user.estimate) - symmetric::dot(&z, &model.background.mean);
        let whiten = 1.0 / variance.sqrt();
        z.iter_mut().for_each(|z| *z *= whiten);
        let white = (reward - without) * whiten;
        let surprise = kernels::observe(dim, &mut self.block, &z, white);
        0.5 * (reward * reward / noise
            - surprise.error * surprise.error / surprise.variance
            - libm::log(surprise.variance * variance / noise))
    }

    /// Adds `change` to the reward of an observation of a user that was learned before. `user` is the user's
    /// posterior now, which stands for that before the observation.
    pub fn correct(&mut self, model: &Model, user: View<'_>, item: &[f64], change: f64) {
        let dim = self.shape.dim;
        let mut image = vec![0.0; dim];
        kernels::solve(dim, user.factor, user.scale, item, &mut image);
        let variance = model.noise + symmetric::dot(item, &image);
        let z = model.pull(&image);
        self.shape
            .correct(&mut self.block, &z[..dim], change / variance);
    }

    /// The columns of a matrix W with V = W Wᵀ.
    pub fn columns(&self) -> impl Iterator<Item = Vec<f64>> + '_ {
        let view = self.view();
        (0..self.shape.dim).map(move |row| {
            let scale = view.scale[row].sqrt();
            let mut column = vec![0.0; self.shape.dim];
            let factors = &view.factor[row * row.saturating_sub(1) / 2..][..row];
            for (value, factor) in column.iter_mut().zip(factors) {
                *value = scale * factor;
            }
            column[row] = scale;
            column
        })
    }

    pub fn save(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.numbers(&self.block)
    }

    pub fn load(dim: usize, reader: &mut Reader<'_>) -> Result<Self, LoadError> {
        let mut population = Self::new(dim);
        reader.fill(&mut population.block)?;
        population.shape.check(&population.block)?;
        Ok(population)
    }
}
