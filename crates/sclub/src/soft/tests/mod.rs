//! The soft policy's parts against independent answers: integrals, plain loops, faer.

mod background;
mod decide;
mod evidence;
mod fits;
mod gather;
mod look;
mod mixture;
mod path;
mod plain;
mod population;

use faer::Mat;
use faer::linalg::solvers::DenseSolveCore;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::background::Background;
use super::belief::Model;
use super::fit::{Elsewhere, Fit};
use super::mixture::{Centre, Mixture};
use super::sums::{Layout, Sums};
use crate::kernels;

/// The observations of some users.
struct World {
    dim: usize,
    /// (x, y) of each user.
    said: Vec<Vec<(Vec<f64>, f64)>>,
}

fn rng(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

fn normal(rng: &mut Xoshiro256PlusPlus) -> f64 {
    StandardNormal.sample(rng)
}

fn normals(rng: &mut Xoshiro256PlusPlus, count: usize) -> Vec<f64> {
    (0..count).map(|_| normal(rng)).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

impl World {
    /// All users see items with features of variance `size²`, with Gaussian noise of variance `noise`;
    /// user i as many as `count(i)`.
    fn new(
        seed: u64,
        tastes: Vec<Vec<f64>>,
        size: f64,
        noise: f64,
        count: impl Fn(usize) -> usize,
    ) -> Self {
        let dim = tastes[0].len();
        let mut rng = rng(seed);
        let said = tastes
            .iter()
            .enumerate()
            .map(|(user, taste)| {
                (0..count(user))
                    .map(|_| {
                        let item: Vec<f64> =
                            normals(&mut rng, dim).iter().map(|x| size * x).collect();
                        let reward = dot(&item, taste) + noise.sqrt() * normal(&mut rng);
                        (item, reward)
                    })
                    .collect()
            })
            .collect();
        Self { dim, said }
    }

    fn layout(&self) -> Layout {
        Layout { dim: self.dim }
    }

    fn sums(&self) -> Sums {
        let mut sums = Sums::new(self.layout());
        for (user, said) in self.said.iter().enumerate() {
            sums.push();
            for (item, reward) in said {
                sums.observe(user, item, *reward, 1.0);
            }
        }
        sums
    }

    fn slots(&self) -> Vec<u32> {
        (0..self.said.len() as u32).collect()
    }
}

/// Tastes drawn from N(mean, C), C = factor factorᵀ.
fn gaussian_tastes(seed: u64, users: usize, mean: &[f64], factor: &Mat<f64>) -> Vec<Vec<f64>> {
    let mut rng = rng(seed);
    let dim = mean.len();
    (0..users)
        .map(|_| {
            let z = normals(&mut rng, dim);
            (0..dim)
                .map(|i| mean[i] + (0..dim).map(|k| factor[(i, k)] * z[k]).sum::<f64>())
                .collect()
        })
        .collect()
}

/// Tastes at one of some centres: user i at centre i modulo their number.
fn clustered_tastes(centres: &[Vec<f64>], users: usize) -> Vec<Vec<f64>> {
    (0..users)
        .map(|i| centres[i % centres.len()].clone())
        .collect()
}

/// Vectors with independent entries of a standard deviation.
fn vectors(seed: u64, count: usize, dim: usize, deviation: f64) -> Vec<Vec<f64>> {
    let mut rng = rng(seed);
    (0..count)
        .map(|_| {
            normals(&mut rng, dim)
                .iter()
                .map(|x| deviation * x)
                .collect()
        })
        .collect()
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    let squares = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b));
    squares.sum::<f64>().sqrt()
}

/// Centres of which no two are closer than 2.
fn separated(seed: u64, count: usize, dim: usize) -> Vec<Vec<f64>> {
    let mut centres: Vec<Vec<f64>> = Vec::new();
    for centre in vectors(seed, 100 * count, dim, 2.0) {
        if centres.iter().all(|other| distance(&centre, other) > 2.0) {
            centres.push(centre);
        }
    }
    centres.truncate(count);
    assert_eq!(centres.len(), count);
    centres
}

fn random_background(seed: u64, dim: usize, scale: f64) -> Background {
    let mut rng = rng(seed);
    let factor = Mat::from_fn(dim, dim, |_, _| normal(&mut rng));
    let c = &factor * factor.transpose();
    let covariance = Mat::from_fn(dim, dim, |i, j| {
        scale * scale * (c[(i, j)] / dim as f64 + if i == j { 0.3 } else { 0.0 })
    });
    let mean = normals(&mut rng, dim).iter().map(|m| scale * m).collect();
    Background::new(mean, packed(&covariance)).unwrap()
}

fn packed(matrix: &Mat<f64>) -> Vec<f64> {
    (0..matrix.nrows())
        .flat_map(|i| (0..=i).map(move |j| matrix[(i, j)]))
        .collect()
}

fn full(dim: usize, packed: &[f64]) -> Mat<f64> {
    Mat::from_fn(dim, dim, |i, j| {
        let (i, j) = (i.max(j), i.min(j));
        packed[i * (i + 1) / 2 + j]
    })
}

fn column(numbers: &[f64]) -> Mat<f64> {
    Mat::from_fn(numbers.len(), 1, |i, _| numbers[i])
}

fn inverse(matrix: &Mat<f64>) -> Mat<f64> {
    matrix
        .llt(faer::Side::Lower)
        .expect("positive definite")
        .inverse()
}

fn log_determinant(matrix: &Mat<f64>) -> f64 {
    let llt = matrix.llt(faer::Side::Lower).expect("positive definite");
    let lower = llt.L();
    (0..matrix.nrows()).map(|i| 2.0 * lower[(i, i)].ln()).sum()
}

/// ln N(y; mean, variance)
fn log_normal(y: f64, mean: f64, variance: f64) -> f64 {
    let off = y - mean;
    -0.5 * (off * off / variance + (2.0 * std::f64::consts::PI * variance).ln())
}

/// ln of how likely rewards are under tastes θ, less that of noise alone, from the observations.
fn log_likelihood(said: &[(Vec<f64>, f64)], theta: &[f64], noise: f64) -> f64 {
    said.iter()
        .map(|(x, y)| log_normal(*y, dot(x, theta), noise) - log_normal(*y, 0.0, noise))
        .sum()
}

/// ln of how likely rewards are under N(μ0, C), less that of noise alone: y ~ N(Xμ0, XCXᵀ + vI).
fn dense_evidence(said: &[(Vec<f64>, f64)], background: &Background, noise: f64) -> f64 {
    let (n, dim) = (said.len(), background.mean.len());
    if n == 0 {
        return 0.0;
    }
    let x = Mat::from_fn(n, dim, |t, i| said[t].0[i]);
    let y = Mat::from_fn(n, 1, |t, _| said[t].1);
    let mut spread = &x * full(dim, &background.covariance) * x.transpose();
    (0..n).for_each(|t| spread[(t, t)] += noise);
    let off = &y - &x * column(&background.mean);
    let fit = (off.transpose() * inverse(&spread) * &off)[(0, 0)];
    let alone = (y.transpose() * &y)[(0, 0)] / noise + n as f64 * noise.ln();
    0.5 * (alone - fit - log_determinant(&spread))
}

/// P and m of a user under N(μ0, C), from the observations.
fn posterior(
    said: &[(Vec<f64>, f64)],
    background: &Background,
    noise: f64,
) -> (Mat<f64>, Vec<f64>) {
    let dim = background.mean.len();
    let mut precision = inverse(&full(dim, &background.covariance));
    let mut pull = &precision * column(&background.mean);
    for (x, y) in said {
        for i in 0..dim {
            pull[(i, 0)] += x[i] * y / noise;
            for j in 0..dim {
                precision[(i, j)] += x[i] * x[j] / noise;
            }
        }
    }
    let covariance = inverse(&precision);
    let mean = &covariance * pull;
    (covariance, (0..dim).map(|i| mean[(i, 0)]).collect())
}

fn mixture(centres: &[Vec<f64>], shares: &[f64]) -> Mixture {
    let centres: Vec<Centre> = centres
        .iter()
        .zip(shares)
        .enumerate()
        .map(|(k, (mean, &share))| Centre {
            label: k as u64 + 1,
            mean: mean.clone(),
            share,
        })
        .collect();
    let none = 1.0 - centres.iter().map(|c| c.share).sum::<f64>();
    Mixture { centres, none }
}

/// A fit that plays one mixture, whose centres are known: observations do not move them.
fn fit_with_known_centres(background: &Background, noise: f64, mixture: &Mixture) -> Fit {
    let mut fit = fit_of(background, noise, mixture);
    fit.spreads.iter_mut().for_each(|spread| spread.fill(0.0));
    fit
}

/// A fit that plays one mixture.
fn fit_of(background: &Background, noise: f64, mixture: &Mixture) -> Fit {
    let count = mixture.centres.len();
    Fit {
        rounds: 1,
        users: 0,
        observations: 0,
        searched: 0,
        forgotten: 0,
        number: 0,
        noise,
        background: background.clone(),
        plain: None,
        information: background.precision.clone(),
        mixture: mixture.clone(),
        sizes: vec![(1.0, 1.0); count],
        others: Vec::new(),
        played: mixture.clone(),
        spreads: vec![background.covariance.clone(); count],
        next_label: count as u64 + 1,
        unplaced: 0.0,
        effective: 0.0,
        elsewhere: Elsewhere::default(),
    }
}

/// ln N(y; xᵀm, v + xᵀPx) less ln N(y; 0, v), with the posterior of a block.
fn alone(model: &Model, block: &[f64], item: &[f64], reward: f64) -> f64 {
    let view = model.shape.view(block);
    let mut image = vec![0.0; item.len()];
    kernels::solve(item.len(), view.factor, view.scale, item, &mut image);
    let variance = model.noise + dot(item, &image);
    log_normal(reward, dot(item, view.estimate), variance) - log_normal(reward, 0.0, model.noise)
}

fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * (1.0 + b.abs())
}

/// True if each number is close to its counterpart, relative to the largest of these.
fn all_close(a: &[f64], b: &[f64], tolerance: f64) -> bool {
    let size = b
        .iter()
        .fold(f64::MIN_POSITIVE, |most, x| most.max(x.abs()));
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| (a - b).abs() <= tolerance * size)
}

fn random_items(rng: &mut Xoshiro256PlusPlus, dim: usize, count: usize) -> Vec<f64> {
    (0..dim * count)
        .map(|_| rng.random_range(-1.0..1.0))
        .collect()
}
