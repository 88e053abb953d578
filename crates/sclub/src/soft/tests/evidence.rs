//! Evidence against brute-force integration, and its change by one more observation.

use super::super::background::{self, Background};
use super::super::belief::{Belief, Model};
use super::super::panel::Panel;
use super::*;
use crate::refit::Sequential;

/// ln ∫ N(θ; μ0, C) e^{l(θ)} dθ over a fine grid.
fn integral(background: &Background, log_density: &dyn Fn(&[f64]) -> f64) -> f64 {
    let dim = background.mean.len();
    let covariance = full(dim, &background.covariance);
    let precision = inverse(&covariance);
    let volume = log_determinant(&covariance) + dim as f64 * (2.0 * std::f64::consts::PI).ln();
    let joint = |theta: &[f64]| {
        let off = |i: usize| theta[i] - background.mean[i];
        let mut distance = 0.0;
        for i in 0..dim {
            for j in 0..dim {
                distance += off(i) * precision[(i, j)] * off(j);
            }
        }
        -0.5 * (distance + volume) + log_density(theta)
    };
    // Each coordinate over nine prior standard deviations.
    let points = if dim == 1 { 4001 } else { 301 };
    let axis = |i: usize| {
        let reach = 9.0 * covariance[(i, i)].sqrt();
        let step = 2.0 * reach / (points - 1) as f64;
        let start = background.mean[i] - reach;
        (step, move |n: usize| start + n as f64 * step)
    };
    let mut logs = Vec::new();
    let cell = if dim == 1 {
        let (step, at) = axis(0);
        logs.extend((0..points).map(|n| joint(&[at(n)])));
        step
    } else {
        let ((one, at), (other, beside)) = (axis(0), axis(1));
        for n in 0..points {
            logs.extend((0..points).map(|m| joint(&[at(n), beside(m)])));
        }
        one * other
    };
    let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    top + (logs.iter().map(|log| (log - top).exp()).sum::<f64>() * cell).ln()
}

fn worlds() -> impl Iterator<Item = (World, Background, f64)> {
    [(1, 0), (1, 1), (1, 12), (2, 0), (2, 1), (2, 7)]
        .into_iter()
        .map(|(dim, count)| {
            let background = random_background(3 * dim as u64, dim, 0.8);
            let noise = 0.4;
            let tastes = vectors(count as u64, 3, dim, 1.0);
            let world = World::new(5, tastes, 0.9, noise, |_| count);
            (world, background, noise)
        })
}

#[test]
fn the_backgrounds_evidence_is_the_integral_of_prior_times_likelihood() {
    for (world, background, noise) in worlds() {
        let (sums, slots) = (world.sums(), world.slots());
        let panel = Panel::new(&sums, &slots);
        let pass = background::pass(&panel, &background, noise, false, &Sequential);
        for (said, &evidence) in world.said.iter().zip(&pass.evidence) {
            let expected = integral(&background, &|theta| log_likelihood(said, theta, noise));
            assert!(close(evidence, expected, 1e-6), "{evidence} {expected}");
        }
        assert!(close(pass.total, pass.evidence.iter().sum(), 1e-12));
    }
}

fn believe(model: &Model, row: &[f64]) -> (Vec<f64>, Belief) {
    let mut block = model.block.clone();
    let belief = model.believe(1, row, &mut block);
    (block, belief)
}

#[test]
fn a_belief_holds_the_evidence_of_each_hypothesis_and_of_all() {
    for (world, background, noise) in worlds() {
        let centres = vectors(8, 11, world.dim, 0.7);
        let shares: Vec<f64> = (1..=11).map(|k| f64::from(k) / 80.0).collect();
        let mixture = mixture(&centres, &shares);
        let fit = fit_of(&background, noise, &mixture);
        let model = Model::new(world.layout(), &fit, 1);
        let sums = world.sums();
        for (user, said) in world.said.iter().enumerate() {
            let (_, belief) = believe(&model, sums.row(user));
            let none = integral(&background, &|theta| log_likelihood(said, theta, noise));
            let mut logs = vec![none + mixture.none.ln()];
            for centre in &mixture.centres {
                logs.push(log_likelihood(said, &centre.mean, noise) + centre.share.ln());
            }
            let whole = logs.iter().map(|log| log.exp()).sum::<f64>();
            assert!(close(belief.log_sum, whole.ln(), 1e-6));
            for (k, log) in logs.iter().enumerate() {
                assert!(close(belief.logs[k], *log, 1e-6), "hypothesis {k}");
                assert!(close(belief.weights[k], log.exp() / whole, 1e-6));
            }
        }
        assert_eq!(
            model.newcomer,
            believe(&model, &vec![0.0; world.layout().row()]).1
        );
        assert!(
            close(model.newcomer.log_sum, 0.0, 1e-9),
            "nothing said, nothing learned"
        );
        for (k, weight) in model.newcomer.weights.iter().enumerate() {
            let share = if k == 0 { mixture.none } else { shares[k - 1] };
            assert!(close(*weight, share, 1e-9));
        }
    }
}

/// ∫ N(y; xᵀθ, v) p(θ) dθ over the posterior without clusters, and with them, from the definition.
#[test]
fn the_gain_is_the_logarithm_of_the_ratio_of_predictive_densities() {
    for (world, background, noise) in worlds() {
        let dim = world.dim;
        let mixture = mixture(&vectors(8, 3, dim, 0.7), &[0.2, 0.3, 0.1]);
        let mut model = Model::new(
            world.layout(),
            &fit_with_known_centres(&background, noise, &mixture),
            1,
        );
        let sums = world.sums();
        let mut rng = rng(99);
        for (user, said) in world.said.iter().enumerate() {
            let (mut block, mut belief) = believe(&model, sums.row(user));
            let (item, reward) = (normals(&mut rng, dim), normal(&mut rng));
            let mut more = said.clone();
            more.push((item.clone(), reward));
            let of_none = |said: &[(Vec<f64>, f64)]| {
                integral(&background, &|theta| log_likelihood(said, theta, noise))
            };
            let of_all = |said: &[(Vec<f64>, f64)], none: f64| {
                let clusters = mixture.centres.iter();
                let sum = clusters
                    .map(|c| c.share * log_likelihood(said, &c.mean, noise).exp())
                    .sum::<f64>();
                (sum + mixture.none * none.exp()).ln()
            };
            let (before, after) = (of_none(said), of_none(&more));
            let expected = of_all(&more, after) - of_all(said, before) - (after - before);
            let mut scaled = vec![0.0; dim];
            let alone = alone(&model, &block, &item, reward);
            let gain = model.observe(&mut block, &mut belief, &item, &mut scaled, reward, alone);
            assert!(close(gain, expected, 1e-6), "{gain} {expected}");
        }
    }
}

/// μ_k ~ N(μ_k, V_k), and y = xᵀμ_k + noise of variance v/w: after one observation the centre is the posterior
/// mean.
#[test]
fn an_observation_moves_the_centres_that_the_user_probably_belongs_to() {
    let (dim, noise) = (3, 0.4);
    let background = random_background(5, dim, 1.0);
    let mixture = mixture(&vectors(8, 3, dim, 0.7), &[0.5, 0.3, 0.02]);
    let fit = fit_of(&background, noise, &mixture);
    let mut model = Model::new(Layout { dim }, &fit, 1);
    let (mut block, mut belief) = (model.block.clone(), model.newcomer.clone());
    let (item, reward) = (vec![0.3, -0.8, 0.5], 0.9);
    let alone = alone(&model, &block, &item, reward);
    model.observe(&mut block, &mut belief, &item, &mut [0.0; 3], reward, alone);
    assert!(belief.weights[1].min(belief.weights[2]) > 0.1 && belief.weights[3] < 0.05);
    let covariance = full(dim, &background.covariance);
    for (k, centre) in mixture.centres.iter().enumerate() {
        let moved = &model.means[k * dim..(k + 1) * dim];
        if k == 2 {
            assert_eq!(moved, centre.mean);
            continue;
        }
        let weight = belief.weights[k + 1] / noise;
        let x = column(&item);
        let precision = inverse(&covariance) + faer::Scale(weight) * (&x * x.transpose());
        let pull = inverse(&covariance) * column(&centre.mean) + faer::Scale(weight * reward) * &x;
        let mean = inverse(&precision) * pull;
        let mean: Vec<f64> = (0..dim).map(|i| mean[(i, 0)]).collect();
        assert!(all_close(moved, &mean, 1e-9), "{moved:?} {mean:?}");
    }
}
