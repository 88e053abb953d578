//! A mixture's E-step, M-step, prices, prunes and merges against their definitions.

use super::super::background::{self, Background};
use super::super::mixture::{Expectation, Mixture};
use super::super::panel::Panel;
use super::super::params::SoftParams;
use super::super::search::{Draws, Search};
use super::*;
use crate::refit::Sequential;

struct Case {
    world: World,
    sums: Sums,
    slots: Vec<u32>,
    background: Background,
    noise: f64,
    evidence: Vec<f64>,
    mixture: Mixture,
}

impl Case {
    /// Users around some centres, and a mixture that knows them only roughly.
    fn new(seed: u64, dim: usize, clusters: usize, users: usize, count: usize) -> Self {
        let noise = 0.5;
        let background = random_background(seed, dim, 0.8);
        let centres = vectors(seed ^ 1, clusters, dim, 0.8);
        let mut tastes = clustered_tastes(&centres, users);
        let lonely = vectors(seed ^ 2, users, dim, 0.8);
        for (user, taste) in tastes.iter_mut().enumerate() {
            if user % 7 == 6 {
                taste.clone_from(&lonely[user]);
            }
        }
        let world = World::new(seed ^ 3, tastes, 0.9, noise, |i| 1 + (i * 5) % count);
        let rough = vectors(seed ^ 4, clusters, dim, 0.3);
        let means: Vec<Vec<f64>> = centres
            .iter()
            .zip(&rough)
            .map(|(c, r)| c.iter().zip(r).map(|(c, r)| c + r).collect())
            .collect();
        let shares: Vec<f64> = (0..clusters)
            .map(|k| (1.0 + k as f64) / (clusters * (clusters + 3)) as f64)
            .collect();
        let (sums, slots) = (world.sums(), world.slots());
        let pass = background::pass(
            &Panel::new(&sums, &slots),
            &background,
            noise,
            false,
            &Sequential,
        );
        Self {
            sums,
            slots,
            background,
            noise,
            evidence: pass.evidence,
            mixture: mixture(&means, &shares),
            world,
        }
    }

    fn expect(&self, mixture: &Mixture) -> Expectation {
        let panel = Panel::new(&self.sums, &self.slots);
        mixture.expect(&panel, &self.evidence, self.noise, true, &Sequential)
    }

    fn step(&self, mixture: &Mixture) -> Mixture {
        let expected = self.expect(mixture);
        mixture.maximise(self.world.layout(), &self.background, self.noise, &expected)
    }

    /// Σ ln Σ π e^L and w of each user (none first), from the observations.
    fn weights(&self, mixture: &Mixture) -> (f64, Vec<Vec<f64>>) {
        let mut total = 0.0;
        let weights = self
            .world
            .said
            .iter()
            .zip(&self.evidence)
            .map(|(said, evidence)| {
                let mut logs = vec![mixture.none.ln() + evidence];
                for centre in &mixture.centres {
                    logs.push(centre.share.ln() + log_likelihood(said, &centre.mean, self.noise));
                }
                let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let whole: f64 = logs.iter().map(|log| (log - top).exp()).sum();
                total += top + whole.ln();
                logs.iter().map(|log| (log - top).exp() / whole).collect()
            })
            .collect();
        (total, weights)
    }

    /// Σ f(w_ik) x xᵀ / v and Σ f(w_ik) x y / v over all observations.
    fn information(&self, weights: &[Vec<f64>], k: usize, of: impl Fn(f64) -> f64) -> Gaussian {
        let dim = self.world.dim;
        let mut sums = (Mat::<f64>::zeros(dim, dim), Mat::<f64>::zeros(dim, 1));
        for (said, weights) in self.world.said.iter().zip(weights) {
            let weight = of(weights[k + 1]) / self.noise;
            for (x, y) in said {
                for i in 0..dim {
                    sums.1[(i, 0)] += weight * x[i] * y;
                    for j in 0..dim {
                        sums.0[(i, j)] += weight * x[i] * x[j];
                    }
                }
            }
        }
        sums
    }

    fn precision(&self) -> Mat<f64> {
        inverse(&full(self.world.dim, &self.background.covariance))
    }

    /// ½(μ−μ0)ᵀC⁻¹(μ−μ0)
    fn distance(&self, mean: &[f64]) -> f64 {
        let off = column(mean) - column(&self.background.mean);
        0.5 * (off.transpose() * self.precision() * &off)[(0, 0)]
    }

    /// The objective of EM: ln of the posterior density of centres and shares, π ~ Dirichlet(3/2).
    fn objective(&self, mixture: &Mixture) -> f64 {
        let centres = mixture.centres.iter();
        let prior: f64 = centres
            .map(|c| 0.5 * c.share.ln() - self.distance(&c.mean))
            .sum();
        self.weights(mixture).0 + prior + 0.5 * mixture.none.ln()
    }

    fn prices(&self, mixture: &Mixture, expected: &Expectation) -> Vec<f64> {
        mixture.prices(self.world.layout(), &self.background, self.noise, expected)
    }
}

type Gaussian = (Mat<f64>, Mat<f64>);

fn cases() -> impl Iterator<Item = Case> {
    // Numbers of users and clusters that fill neither pieces, nor fours, nor lanes.
    [(1, 1, 2, 9), (2, 2, 3, 30), (3, 5, 9, 61), (4, 3, 17, 530)]
        .into_iter()
        .map(|(seed, dim, clusters, users)| Case::new(seed, dim, clusters, users, 12))
}

#[test]
fn the_expectation_is_that_of_the_definition() {
    for case in cases() {
        let expected = case.expect(&case.mixture);
        let (total, weights) = case.weights(&case.mixture);
        assert!(close(expected.total, total, 1e-9));
        let placed = weights.iter().filter(|w| w[1..].iter().any(|&w| w >= 0.5));
        assert_eq!(expected.placed, placed.count() as u64);
        for (user, none) in expected.none.iter().enumerate() {
            assert!(close(*none, weights[user][0], 1e-9));
        }
        let sizes = expected.sizes(case.world.layout());
        let layout = case.world.layout();
        let spreads = expected.spreads(layout, &case.background, case.noise);
        for k in 0..case.mixture.centres.len() {
            let own = |user: usize| weights[user][k + 1];
            let sum: f64 = (0..weights.len()).map(own).sum();
            // Weights below 1e-5 may be left out.
            let slack = 1e-5 * weights.len() as f64;
            assert!((expected.weights[k] - sum).abs() < slack);
            assert!((sizes[k].0 - sum).abs() < slack);
            let said = |user: usize| case.world.said[user].len() as f64;
            let count: f64 = (0..weights.len()).map(|u| own(u) * said(u)).sum();
            assert!((sizes[k].1 - count).abs() < 12.0 * slack);
            let explains: f64 = (0..weights.len()).map(|u| -(-own(u)).ln_1p()).sum();
            assert!((expected.explains[k] - explains).abs() < slack + 1e-6 * explains);
            let (gram, _) = case.information(&weights, k, |w| w);
            let spread = inverse(&(case.precision() + gram));
            assert!((full(layout.dim, &spreads[k]) - spread).norm_max() < 1e-4);
        }
    }
}

#[test]
fn the_maximum_is_that_of_the_definition() {
    for case in cases() {
        let found = case.step(&case.mixture);
        let (_, weights) = case.weights(&case.mixture);
        let users = weights.len() as f64;
        let whole = users + 0.5 * (case.mixture.centres.len() + 1) as f64;
        let none: f64 = weights.iter().map(|w| w[0]).sum();
        assert!(close(found.none, (none + 0.5) / whole, 1e-9));
        let pull = case.precision() * column(&case.background.mean);
        let mut shares = found.none;
        for (k, centre) in found.centres.iter().enumerate() {
            let sum: f64 = weights.iter().map(|w| w[k + 1]).sum();
            assert!(close(centre.share, (sum + 0.5) / whole, 1e-4));
            shares += centre.share;
            let (gram, moment) = case.information(&weights, k, |w| w);
            let mean = inverse(&(case.precision() + gram)) * (&pull + moment);
            assert!((column(&centre.mean) - mean).norm_max() < 1e-4);
            assert_eq!(centre.label, case.mixture.centres[k].label);
        }
        assert!(close(shares, 1.0, 1e-4));
    }
}

#[test]
fn em_never_lowers_the_posterior_density() {
    for seed in 0..6 {
        let dim = 1 + seed as usize % 4;
        let case = Case::new(seed, dim, 5, 83, 15);
        // From anywhere, not only from near the truth.
        let mut mixture = mixture(&vectors(seed ^ 77, 6, dim, 1.0), &[0.13; 6]);
        let mut before = case.objective(&mixture);
        let first = before;
        for step in 0..40 {
            mixture = case.step(&mixture);
            let after = case.objective(&mixture);
            // The error from leaving out weights below a millionth is far less.
            assert!(after > before - 1e-5, "step {step}: {before} then {after}");
            before = after;
        }
        assert!(before > first + 1.0);
    }
}

#[test]
fn prices_are_those_of_the_definition() {
    for case in cases() {
        let expected = case.expect(&case.mixture);
        let (_, weights) = case.weights(&case.mixture);
        let prices = case.prices(&case.mixture, &expected);
        for (k, centre) in case.mixture.centres.iter().enumerate() {
            let (gram, _) = case.information(&weights, k, |w| w * w);
            let volume = log_determinant(&(case.precision() + gram))
                + log_determinant(&full(case.world.dim, &case.background.covariance));
            let price = 0.5 * volume + case.distance(&centre.mean);
            assert!(close(prices[k], price, 1e-6), "{} {price}", prices[k]);
        }
    }
}

#[test]
fn the_score_of_a_search_is_the_evidence_less_prices_and_parameters() {
    for case in cases() {
        let params = SoftParams::default();
        let search = Search {
            panel: Panel::new(&case.sums, &case.slots),
            background: &case.background,
            evidence: &case.evidence,
            noise: case.noise,
            params: &params,
            workers: &Sequential,
            draws: Draws(1),
        };
        for start in [case.mixture.clone(), Mixture::none()] {
            let found = search.refine(start, 3);
            let total = case.weights(&found.mixture).0;
            let expected = case.expect(&found.mixture);
            let prices: f64 = case.prices(&found.mixture, &expected).iter().sum();
            let dim = case.world.dim as f64;
            let parameters = dim + dim * (dim + 1.0) / 2.0;
            let score = total - prices - parameters * found.mixture.none;
            assert!(close(found.score, score, 1e-8), "{} {score}", found.score);
        }
    }
}

#[test]
fn what_a_cluster_explains_is_what_is_lost_without_it() {
    for case in cases() {
        let expected = case.expect(&case.mixture);
        let users = case.world.said.len() as f64;
        for k in 0..case.mixture.centres.len() {
            let rest = case.mixture.without(k);
            let shares: f64 = rest.centres.iter().map(|c| c.share).sum();
            assert!(close(rest.none + shares, 1.0, 1e-12));
            let lost = case.weights(&case.mixture).0 - case.weights(&rest).0;
            let share = case.mixture.centres[k].share;
            let found = expected.explains[k] + users * (-share).ln_1p();
            assert!((found - lost).abs() < 1e-5 * users, "{found} {lost}");
        }
    }
}

#[test]
fn merges_are_those_that_lose_less_than_a_price_the_cheapest_first() {
    let mut merged = 0;
    for seed in 0..8 {
        let dim = 1 + seed as usize % 4;
        let mut case = Case::new(seed, dim, 4, 60, 12);
        // Pairs that are close, at several distances.
        let mut rng = rng(seed);
        for k in 0..4 {
            let mut twin = case.mixture.centres[k].clone();
            twin.label += 10;
            for m in &mut twin.mean {
                *m += 0.1 * (k as f64 + 0.5) * normal(&mut rng);
            }
            twin.share *= 0.4;
            case.mixture.centres[k].share *= 0.6;
            case.mixture.centres.push(twin);
        }
        let expected = case.expect(&case.mixture);
        let prices = case.prices(&case.mixture, &expected);
        let layout = case.world.layout();
        let found = case
            .mixture
            .merges(layout, &case.background, case.noise, &expected, &prices);
        let (_, weights) = case.weights(&case.mixture);
        // Every pair, the least loss first. There are 28 of them, and the 24 nearest are looked at.
        let mut all = Vec::new();
        for a in 0..8 {
            for b in 0..a {
                let of = |k: usize| case.information(&weights, k, |w| w).0;
                let mean = |k: usize| column(&case.mixture.centres[k].mean);
                let off = mean(a) - mean(b);
                let both = of(a) + of(b) + case.precision() * faer::Scale(1e-3);
                let step = inverse(&both) * of(b) * &off;
                let lost = 0.5 * (off.transpose() * of(a) * &step)[(0, 0)];
                let near = (off.transpose() * case.precision() * &off)[(0, 0)];
                all.push((near, lost, a, b, mean(a) - step));
            }
        }
        all.sort_by(|x, y| x.0.total_cmp(&y.0));
        all.truncate(24);
        all.sort_by(|x, y| x.1.total_cmp(&y.1));
        let mut taken = [false; 8];
        let mut expected_merges = Vec::new();
        for (_, lost, a, b, mean) in all {
            if lost < prices[a].min(prices[b]) && !taken[a] && !taken[b] {
                taken[a] = true;
                taken[b] = true;
                expected_merges.push((a, b, mean));
            }
        }
        assert_eq!(found.len(), expected_merges.len());
        for ((a, b, mean), (x, y, other)) in found.iter().zip(&expected_merges) {
            assert_eq!((a, b), (x, y));
            assert!((column(mean) - other).norm_max() < 1e-4);
        }
        merged += found.len();
    }
    assert!(merged > 8, "hardly anything was tested: {merged}");
}

#[test]
fn the_loss_of_a_merge_is_what_the_best_common_centre_loses() {
    // All users surely in one of two clusters, so that nothing is soft: the loss in log-likelihood from
    // the best centre of each to the best centre of both is ½δᵀ(A_a⁻¹ + A_b⁻¹)⁻¹δ.
    let dim = 3;
    let centres = vectors(5, 2, dim, 3.0);
    let world = World::new(6, clustered_tastes(&centres, 20), 1.0, 0.1, |_| 30);
    let mut gram = [Mat::<f64>::zeros(dim, dim), Mat::zeros(dim, dim)];
    let mut moment = [Mat::<f64>::zeros(dim, 1), Mat::zeros(dim, 1)];
    for (user, said) in world.said.iter().enumerate() {
        for (x, y) in said {
            gram[user % 2] += column(x) * column(x).transpose();
            moment[user % 2] += column(x) * faer::Scale(*y);
        }
    }
    let noise = 0.1;
    let best: Vec<Mat<f64>> = (0..2).map(|k| inverse(&gram[k]) * &moment[k]).collect();
    let both = inverse(&(&gram[0] + &gram[1])) * (&moment[0] + &moment[1]);
    let value = |user: usize, theta: &Mat<f64>| {
        let theta: Vec<f64> = (0..dim).map(|i| theta[(i, 0)]).collect();
        log_likelihood(&world.said[user], &theta, noise)
    };
    let apart: f64 = (0..20).map(|user| value(user, &best[user % 2])).sum();
    let together: f64 = (0..20).map(|user| value(user, &both)).sum();
    let background = Background::wide(dim, 100.0);
    let means: Vec<Vec<f64>> = best
        .iter()
        .map(|m| (0..dim).map(|i| m[(i, 0)]).collect())
        .collect();
    let mixture = mixture(&means, &[0.45, 0.45]);
    let (sums, slots) = (world.sums(), world.slots());
    let panel = Panel::new(&sums, &slots);
    let pass = background::pass(&panel, &background, noise, false, &Sequential);
    let expected = mixture.expect(&panel, &pass.evidence, noise, true, &Sequential);
    // A price just above the loss merges, one just below does not.
    let lost = apart - together;
    assert!(lost > 1.0);
    for (price, count) in [(1.001 * lost, 1), (0.999 * lost, 0)] {
        let layout = world.layout();
        let found = mixture.merges(layout, &background, noise, &expected, &[price, price]);
        assert_eq!(found.len(), count, "{lost}");
        for (_, _, mean) in found {
            assert!((column(&mean) - &both).norm_max() < 1e-4);
        }
    }
}
