//! The background's EM against an independent one, and against the truth it was drawn from.

use super::super::background::{self, Background, Scale};
use super::super::panel::Panel;
use super::super::params::SoftParams;
use super::super::symmetric;
use super::*;
use crate::refit::Sequential;

/// μ0 and C.
type Gaussian = (Mat<f64>, Mat<f64>);

/// Empirical Bayes from the observations themselves, as docs/sclub-soft.md has it.
struct Plain<'a> {
    world: &'a World,
    noise: f64,
    /// v / mean squared length of an item.
    unit: f64,
    /// Variance of the ten pseudo-users.
    pseudo: f64,
}

impl Plain<'_> {
    fn new(world: &World, scale: Scale, pseudo: f64) -> Plain<'_> {
        let (noise, unit) = (scale.noise, scale.noise / scale.square);
        Plain {
            world,
            noise,
            unit,
            pseudo,
        }
    }

    fn background(&self, (mean, covariance): &Gaussian) -> Background {
        let mean = (0..self.world.dim).map(|i| mean[(i, 0)]).collect();
        Background::new(mean, packed(covariance)).unwrap()
    }

    /// ln of the likelihood of all rewards (less that of noise alone), by y ~ N(Xμ0, XCXᵀ + vI), plus ln
    /// of the prior of (μ0, C).
    fn value(&self, gaussian: &Gaussian) -> f64 {
        let (mean, covariance) = gaussian;
        let dim = self.world.dim;
        let mut sum = 0.0;
        for said in self.world.said.iter().filter(|said| !said.is_empty()) {
            let n = said.len();
            let x = Mat::from_fn(n, dim, |t, i| said[t].0[i]);
            let y = Mat::from_fn(n, 1, |t, _| said[t].1);
            let mut spread = &x * covariance * x.transpose();
            (0..n).for_each(|t| spread[(t, t)] += self.noise);
            let off = &y - &x * mean;
            let fit = (off.transpose() * inverse(&spread) * &off)[(0, 0)];
            let alone = (y.transpose() * &y)[(0, 0)] / self.noise + n as f64 * self.noise.ln();
            sum += 0.5 * (alone - fit - log_determinant(&spread));
        }
        let pulled: f64 = (0..dim).map(|i| inverse(covariance)[(i, i)]).sum();
        let length = (mean.transpose() * mean)[(0, 0)];
        sum - 5.0 * (log_determinant(covariance) + self.pseudo * pulled) - 0.5 * length / self.unit
    }

    /// μ0 where the likelihood and the ridge are largest for the old C, then C as the mean square of
    /// the users' posteriors about it.
    fn step(&self, old: &Gaussian) -> Gaussian {
        let dim = self.world.dim;
        let before = self.background(old);
        let mut information = Mat::<f64>::zeros(dim, dim);
        let mut target = Mat::<f64>::zeros(dim, 1);
        let mut posteriors = Vec::new();
        for said in &self.world.said {
            // Xᵀ(XCXᵀ + vI)⁻¹X and Xᵀ(XCXᵀ + vI)⁻¹y
            let n = said.len();
            if n > 0 {
                let x = Mat::from_fn(n, dim, |t, i| said[t].0[i]);
                let y = Mat::from_fn(n, 1, |t, _| said[t].1);
                let mut spread = &x * &old.1 * x.transpose();
                (0..n).for_each(|t| spread[(t, t)] += self.noise);
                let weighted = x.transpose() * inverse(&spread);
                information += &weighted * &x;
                target += &weighted * &y;
            }
            posteriors.push(posterior(said, &before, self.noise));
        }
        (0..dim).for_each(|i| information[(i, i)] += 1.0 / self.unit);
        let mean = inverse(&information) * target;
        let mut covariance = Mat::<f64>::identity(dim, dim) * faer::Scale(10.0 * self.pseudo);
        for (p, m) in &posteriors {
            let off = column(m) - &mean;
            covariance += p + &off * off.transpose();
        }
        let all = self.world.said.len() as f64 + 10.0;
        covariance *= faer::Scale(1.0 / all);
        let jitter = 1e-5 * (0..dim).map(|i| covariance[(i, i)]).sum::<f64>() / dim as f64;
        (0..dim).for_each(|i| covariance[(i, i)] += jitter);
        (mean, covariance)
    }
}

fn gaussian_of(background: &Background) -> Gaussian {
    let dim = background.mean.len();
    (column(&background.mean), full(dim, &background.covariance))
}

/// Users from one Gaussian, some of whom have said nothing.
fn world(seed: u64, dim: usize, users: usize) -> World {
    let mut rng = rng(seed);
    let factor = Mat::from_fn(dim, dim, |_, _| 0.6 * normal(&mut rng));
    let mean = normals(&mut rng, dim);
    let tastes = gaussian_tastes(seed, users, &mean, &factor);
    World::new(seed ^ 4, tastes, 0.8, 0.5, |i| [0, 1, 4, 9, 15][i % 5])
}

fn mean_variance(background: &Background) -> f64 {
    let dim = background.mean.len();
    symmetric::trace(dim, &background.covariance) / dim as f64
}

#[test]
fn em_is_empirical_bayes_step_by_step_and_never_makes_it_worse() {
    for (seed, dim) in [(1, 1), (2, 2), (3, 3), (4, 5)] {
        let world = world(seed, dim, 60);
        let (sums, slots) = (world.sums(), world.slots());
        let panel = Panel::new(&sums, &slots);
        let scale = background::pooled(&panel, world.layout());
        let start = scale.start(dim);
        let plain = Plain::new(&world, scale, mean_variance(&start));
        let mut expected = gaussian_of(&start);
        let mut value = plain.value(&expected);
        let mut trail = vec![expected.clone()];
        for steps in 0..12 {
            let (found, pass) = background::fit(&panel, &start, scale, steps, false, &Sequential);
            let (mean, covariance) = gaussian_of(&found);
            let size = covariance.norm_max();
            assert!(
                (&mean - &expected.0).norm_max() < 1e-7,
                "d = {dim}, {steps} steps"
            );
            assert!(
                (&covariance - &expected.1).norm_max() < 1e-7 * size,
                "d = {dim}, {steps} steps"
            );
            // The pass that comes with it is of this background, not of one before.
            let again = background::pass(&panel, &found, scale.noise, true, &Sequential);
            assert_eq!(pass.evidence, again.evidence);
            let next = plain.step(&expected);
            let next_value = plain.value(&next);
            if next_value - value < background::MIN_GAIN {
                break;
            }
            (expected, value) = (next, next_value);
            trail.push(expected.clone());
            // After every second step, a jump in the direction of both, if that is better.
            if let [zero, one, two] = &trail[..] {
                if let Some(jump) = jump(zero, one, two)
                    && plain.value(&jump) > value
                {
                    (expected, value) = (jump.clone(), plain.value(&jump));
                }
                trail = vec![expected.clone()];
            }
        }
    }
}

/// SQUAREM from its definition: x₀ + 2a r + a² v, r = x₁ − x₀, v = x₂ − 2x₁ + x₀, a = ‖r‖/‖v‖ > 1, in units of the
/// mean variance.
fn jump(zero: &Gaussian, one: &Gaussian, two: &Gaussian) -> Option<Gaussian> {
    let first = (&one.0 - &zero.0, &one.1 - &zero.1);
    let change = (&two.0 - &one.0 - &first.0, &two.1 - &one.1 - &first.1);
    let variance = (0..zero.1.nrows()).map(|i| zero.1[(i, i)]).sum::<f64>() / zero.1.nrows() as f64;
    let length = |(mean, matrix): &Gaussian| {
        let lower = (0..matrix.nrows()).flat_map(|i| (0..=i).map(move |j| matrix[(i, j)]));
        let squares: f64 = lower.map(|x| x * x).sum();
        (mean.norm_l2().powi(2) / variance + squares / variance.powi(2)).sqrt()
    };
    let a = length(&first) / length(&change);
    let at = |x: &Mat<f64>, r: &Mat<f64>, v: &Mat<f64>| {
        x + faer::Scale(2.0 * a) * r + faer::Scale(a * a) * v
    };
    let found = (
        at(&zero.0, &first.0, &change.0),
        at(&zero.1, &first.1, &change.1),
    );
    let is_definite = found.1.llt(faer::Side::Lower).is_ok();
    (a > 1.0 && is_definite).then_some(found)
}

#[test]
fn what_em_finds_cannot_be_bettered_much() {
    for (seed, dim) in [(5, 2), (6, 4)] {
        let world = world(seed, dim, 80);
        let (sums, slots) = (world.sums(), world.slots());
        let panel = Panel::new(&sums, &slots);
        let scale = background::pooled(&panel, world.layout());
        let start = scale.start(dim);
        let plain = Plain::new(&world, scale, mean_variance(&start));
        let (found, _) = background::fit(&panel, &start, scale, 1000, false, &Sequential);
        let value = plain.value(&gaussian_of(&found));
        // Any nearby Gaussian, a thousand steps of EM, or the truth's shape: none is better by a nat.
        let mut rng = rng(seed);
        for _ in 0..40 {
            let (mut mean, covariance) = gaussian_of(&found);
            (0..dim).for_each(|i| mean[(i, 0)] += 0.05 * normal(&mut rng));
            let by = Mat::from_fn(dim, dim, |i, j| {
                0.1 * normal(&mut rng) + f64::from(u8::from(i == j))
            });
            let tried = plain.value(&(mean, &by * covariance * by.transpose()));
            assert!(tried < value + 1.0, "{tried} {value}");
        }
        let mut best = gaussian_of(&found);
        for _ in 0..60 {
            best = plain.step(&best);
        }
        assert!(plain.value(&best) < value + 1.0);
    }
}

#[test]
fn the_best_of_several_widths_is_started_from() {
    let world = world(9, 3, 60);
    let (sums, slots) = (world.sums(), world.slots());
    let panel = Panel::new(&sums, &slots);
    let scale = background::pooled(&panel, world.layout());
    let start = scale.start(3);
    let plain = Plain::new(&world, scale, mean_variance(&start));
    let (mean, covariance) = gaussian_of(&start);
    let best = [1.0, 0.25, 0.5, 2.0, 4.0]
        .map(|factor| (mean.clone(), &covariance * faer::Scale(factor)))
        .into_iter()
        .max_by(|a, b| plain.value(a).total_cmp(&plain.value(b)))
        .unwrap();
    let (found, _) = background::fit(&panel, &start, scale, 0, true, &Sequential);
    assert!((gaussian_of(&found).1 - best.1).norm_max() < 1e-12);
}

#[test]
fn the_residual_is_what_is_expected_to_stay_unexplained() {
    for dim in [1, 2, 4, 9] {
        let world = world(11, dim, 21);
        let (sums, slots) = (world.sums(), world.slots());
        let panel = Panel::new(&sums, &slots);
        let (background, noise) = (random_background(2, dim, 0.9), 0.37);
        let pass = background::pass(&panel, &background, noise, true, &Sequential);
        let mut settled = 0.0;
        let precision = inverse(&full(dim, &background.covariance));
        for (said, &residual) in world.said.iter().zip(&pass.residual) {
            let (p, m) = posterior(said, &background, noise);
            let expected: f64 = said
                .iter()
                .map(|(x, y)| {
                    let x = column(x);
                    let error = y - (x.transpose() * column(&m))[(0, 0)];
                    error * error + (x.transpose() * &p * &x)[(0, 0)]
                })
                .sum();
            assert!(close(residual, expected, 1e-9), "{residual} {expected}");
            let left = &precision * &p;
            settled += dim as f64 - (0..dim).map(|i| left[(i, i)]).sum::<f64>();
        }
        assert!(close(pass.effective(&background), settled, 1e-9));
    }
}

#[test]
fn the_pooled_noise_is_that_of_least_squares() {
    let dim = 4;
    let taste = vectors(3, 1, dim, 1.0);
    let world = World::new(4, clustered_tastes(&taste, 50), 0.8, 0.25, |_| 40);
    let (sums, slots) = (world.sums(), world.slots());
    let scale = background::pooled(&Panel::new(&sums, &slots), world.layout());
    let all: Vec<&(Vec<f64>, f64)> = world.said.iter().flatten().collect();
    let x = Mat::from_fn(all.len(), dim, |t, i| all[t].0[i]);
    let y = Mat::from_fn(all.len(), 1, |t, _| all[t].1);
    let theta = inverse(&(x.transpose() * &x)) * (x.transpose() * &y);
    let off = &y - &x * theta;
    let residual = (off.transpose() * &off)[(0, 0)] / (all.len() - dim) as f64;
    // A ridge of a thousandth of an item is all that lies between.
    assert!(
        (scale.noise - residual).abs() < 1e-4 * residual,
        "{} {residual}",
        scale.noise
    );
    let square = all.iter().map(|(x, _)| dot(x, x)).sum::<f64>() / all.len() as f64;
    assert!(close(scale.square, square, 1e-12));
    assert!(
        (scale.noise - 0.25).abs() < 0.02,
        "the truth: {}",
        scale.noise
    );
}

#[test]
fn a_known_gaussian_is_recovered_from_many_users() {
    let mean = [0.7, -0.3, 0.2];
    let factor = Mat::from_fn(3, 3, |i, j| {
        [[0.5, 0.0, 0.0], [0.3, 0.4, 0.0], [-0.2, 0.1, 0.2]][i][j]
    });
    let tastes = gaussian_tastes(21, 3000, &mean, &factor);
    let world = World::new(22, tastes, 1.0, 0.3, |i| 5 + i % 20);
    let (sums, slots) = (world.sums(), world.slots());
    let panel = Panel::new(&sums, &slots);
    let truth = &factor * factor.transpose();
    // As the policy does: noise first pooled, then from the background before.
    let mut scale = background::pooled(&panel, world.layout());
    let count: f64 = world.said.iter().map(|said| said.len() as f64).sum();
    let mut start = scale.start(3);
    let mut found = start.clone();
    for fit in 0..6 {
        let steps = SoftParams::default().steps;
        found = background::fit(&panel, &start, scale, steps, fit == 0, &Sequential).0;
        let pass = background::pass(&panel, &found, scale.noise, true, &Sequential);
        scale.noise = pass.residual.iter().sum::<f64>() / count;
        start = found.clone();
    }
    assert!((scale.noise - 0.3).abs() < 0.01, "noise {}", scale.noise);
    for (found, mean) in found.mean.iter().zip(mean) {
        assert!((found - mean).abs() < 0.04, "{found} {mean}");
    }
    let off = (full(3, &found.covariance) - &truth).norm_max();
    assert!(off < 0.03, "{off}");
}
