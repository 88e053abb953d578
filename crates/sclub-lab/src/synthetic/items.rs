//! The candidates of each round: drawn anew, from a plane with noise, or from a fixed set.

use std::f64::consts::FRAC_1_SQRT_2;
use std::ops::Range;

use pulp::Arch;
use rand::RngExt;
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub::ItemId;

use super::recipe::Recipe;
use super::vectors::DrawVectors;
use crate::normals::Normals;
use crate::streams::{Purpose, stream};

/// The number of standard deviations at which the noise of smoothed items is cut off.
const MAX_DEVIATIONS: f64 = 2.0;

/// The source of all candidates of a world.
#[derive(Debug, Clone)]
pub(super) enum Items {
    /// Uniform on the sphere, anew in each round.
    Uniform,
    /// Near a plane, anew in each round.
    Smoothed(Smoothed),
    /// From a fixed set.
    Fixed(Fixed),
}

/// Items near a plane.
#[derive(Debug, Clone)]
pub(super) struct Smoothed {
    /// Orthonormal vectors that span the plane: two, or one if there is only one direction.
    axes: Vec<Vec<f64>>,
    sigma: f64,
}

/// A fixed set of items. An item's id is its place in the set.
#[derive(Debug, Clone)]
pub(super) struct Fixed {
    /// The items' features, one after the other.
    rows: Vec<f64>,
    count: usize,
}

impl Items {
    /// The source of a recipe and a seed.
    pub fn new(recipe: &Recipe, seed: u64) -> Self {
        let smoothed =
            (recipe.twists.smoothed).map(|sigma| Smoothed::new(recipe.dim - 1, sigma, seed));
        let Some(count) = recipe.twists.items_fixed else {
            return smoothed.map_or(Items::Uniform, Items::Smoothed);
        };
        let rows = match (smoothed, recipe.twists.item_clusters) {
            (Some(smoothed), _) => {
                let mut draws = stream(seed, Purpose::FixedItems, 0);
                let rows = (0..count).flat_map(|_| smoothed.draw(&mut draws));
                rows.collect()
            }
            (None, Some(clusters)) => clustered_rows(recipe.dim, clusters, count, seed),
            (None, None) => uniform_rows(recipe.dim, count, seed),
        };
        Items::Fixed(Fixed { rows, count })
    }

    /// The candidates of a block, from its first round on.
    pub fn of_block(&self, recipe: &Recipe, seed: u64, index: u64) -> Candidates<'_> {
        let draws = match self {
            Items::Uniform => Draws::Uniform(Normals::new(seed, Purpose::Items, index)),
            Items::Smoothed(smoothed) => {
                Draws::Smoothed(smoothed, stream(seed, Purpose::Items, index))
            }
            Items::Fixed(fixed) => Draws::Fixed(
                fixed,
                stream(seed, Purpose::Items, index),
                (0..fixed.count as ItemId).collect(),
            ),
        };
        Candidates {
            features: vec![0.0; recipe.candidates * recipe.dim],
            ids: Vec::new(),
            scratch: vec![0.0; recipe.candidates],
            draws,
        }
    }
}

/// The candidates of the rounds of a block, one round after the other.
pub(super) struct Candidates<'a> {
    /// The features of those of the present round, feature by feature.
    pub features: Vec<f64>,
    /// Their ids; empty if items have none.
    pub ids: Vec<ItemId>,
    scratch: Vec<f64>,
    draws: Draws<'a>,
}

enum Draws<'a> {
    Uniform(Normals),
    Smoothed(&'a Smoothed, Xoshiro256PlusPlus),
    /// The last is a permutation of all ids.
    Fixed(&'a Fixed, Xoshiro256PlusPlus, Vec<ItemId>),
}

impl Candidates<'_> {
    /// Draws the candidates of the next round, and their products with `weights` into `means`.
    pub fn draw(&mut self, weights: &[f64], means: &mut [f64]) {
        let (count, dim) = (means.len(), weights.len());
        match &mut self.draws {
            Draws::Uniform(normals) => {
                return Arch::new().dispatch(DrawVectors {
                    normals,
                    weights,
                    features: &mut self.features,
                    means,
                    scratch: &mut self.scratch,
                });
            }
            Draws::Smoothed(smoothed, draws) => {
                for item in 0..count {
                    let row = smoothed.draw(draws).into_iter().enumerate();
                    row.for_each(|(k, value)| self.features[k * count + item] = value);
                }
            }
            Draws::Fixed(fixed, draws, ids) => {
                for item in 0..count {
                    // Whatever the order before, the first `count` of a shuffle are a random set.
                    let other = draws.random_range(item..ids.len());
                    ids.swap(item, other);
                    let row = fixed.row(ids[item]).iter().enumerate();
                    row.for_each(|(k, &value)| self.features[k * count + item] = value);
                }
                self.ids.clear();
                self.ids.extend_from_slice(&ids[..count]);
            }
        }
        means.fill(0.0);
        for (row, &weight) in self.features.chunks_exact(count).zip(&weights[..dim]) {
            for (mean, &value) in means.iter_mut().zip(row) {
                *mean += weight * value;
            }
        }
    }
}

impl Fixed {
    /// The features of an item.
    fn row(&self, id: ItemId) -> &[f64] {
        let dim = self.rows.len() / self.count;
        &self.rows[id as usize * dim..][..dim]
    }
}

impl Smoothed {
    fn new(directions: usize, sigma: f64, seed: u64) -> Self {
        let mut draws = stream(seed, Purpose::Plane, 0);
        let mut axes: Vec<Vec<f64>> = Vec::new();
        for _ in 0..directions.min(2) {
            let mut axis: Vec<f64> = (0..directions)
                .map(|_| StandardNormal.sample(&mut draws))
                .collect();
            for other in &axes {
                let product: f64 = axis.iter().zip(other).map(|(a, b)| a * b).sum();
                let both = axis.iter_mut().zip(other);
                both.for_each(|(value, other)| *value -= product * other);
            }
            scale_to(&mut axis, 1.0);
            axes.push(axis);
        }
        Self { axes, sigma }
    }

    /// An item: a random direction in the plane plus noise, of length 1, a constant 1 appended, divided by √2.
    fn draw(&self, draws: &mut Xoshiro256PlusPlus) -> Vec<f64> {
        let mut base: Vec<f64> = (self.axes.iter())
            .map(|_| StandardNormal.sample(draws))
            .collect();
        scale_to(&mut base, 1.0);
        let mut item: Vec<f64> = (0..self.axes[0].len())
            .map(|k| {
                let parts = base.iter().zip(&self.axes);
                let value: f64 = parts.map(|(part, axis)| part * axis[k]).sum();
                value + self.sigma * truncated_normal(draws)
            })
            .collect();
        scale_to(&mut item, FRAC_1_SQRT_2);
        item.push(FRAC_1_SQRT_2);
        item
    }
}

/// A normal number, drawn again while it is beyond [`MAX_DEVIATIONS`].
fn truncated_normal(draws: &mut Xoshiro256PlusPlus) -> f64 {
    loop {
        let number: f64 = StandardNormal.sample(draws);
        if number.abs() <= MAX_DEVIATIONS {
            return number;
        }
    }
}

fn scale_to(vector: &mut [f64], length: f64) {
    let now = vector.iter().map(|v| v * v).sum::<f64>().sqrt();
    vector.iter_mut().for_each(|value| *value *= length / now);
}

/// The features that items of a cluster differ in.
pub(super) fn features_of(cluster: usize, clusters: usize, dim: usize) -> Range<usize> {
    let end = |cluster: usize| cluster * (dim - 1) / clusters;
    end(cluster)..end(cluster + 1)
}

/// A vector for the items of a cluster: uniform on the sphere of its features and 0 in all others, without the
/// constant. Of length √½.
pub(super) fn draw_within(features: Range<usize>, draws: &mut Xoshiro256PlusPlus) -> Vec<f64> {
    let mut part: Vec<f64> = features.map(|_| StandardNormal.sample(draws)).collect();
    scale_to(&mut part, FRAC_1_SQRT_2);
    part
}

/// Items in clusters: item i is in cluster i mod `clusters`.
fn clustered_rows(dim: usize, clusters: usize, count: usize, seed: u64) -> Vec<f64> {
    let mut draws = stream(seed, Purpose::FixedItems, 0);
    let mut rows = vec![0.0; count * dim];
    for (item, row) in rows.chunks_exact_mut(dim).enumerate() {
        let features = features_of(item % clusters, clusters, dim);
        row[features.clone()].copy_from_slice(&draw_within(features, &mut draws));
        row[dim - 1] = FRAC_1_SQRT_2;
    }
    rows
}

/// Items as those that are drawn anew in each round.
fn uniform_rows(dim: usize, count: usize, seed: u64) -> Vec<f64> {
    let mut normals = Normals::new(seed, Purpose::FixedItems, 0);
    let mut features = vec![0.0; count * dim];
    let (mut means, mut scratch) = (vec![0.0; count], vec![0.0; count]);
    Arch::new().dispatch(DrawVectors {
        normals: &mut normals,
        weights: &vec![0.0; dim],
        features: &mut features,
        means: &mut means,
        scratch: &mut scratch,
    });
    let places = (0..count).flat_map(|item| (0..dim).map(move |k| k * count + item));
    places.map(|place| features[place]).collect()
}
