//! Scores of items against their formula, by dense linear algebra.

use super::super::SclubSoft;
use super::super::params::{Explore, SoftParams};
use super::fits::{gaussian_around, teach};
use super::plain::plain_prior;
use super::*;
use crate::abilities::Inspect;
use crate::items::ItemSet;
use crate::policy::{Policy, largest};

/// The background with the population's live mean.
pub(super) fn live(policy: &SclubSoft) -> Background {
    let background = &policy.served.as_ref().unwrap().fit.background;
    let mean = policy.population.mean().to_vec();
    Background::new(mean, background.covariance.clone()).unwrap()
}

/// Both ways to explore the population: m_0 = xᵀ(m + A(μ̃ − μ̂)) of a draw, or a bonus √(xᵀAVAᵀx).
#[test]
fn the_gaussian_policy_estimates_by_the_posterior_mean_and_explores_on_two_levels() {
    // The prior is worth much, so it is used alone.
    let world = gaussian_around(10.0, 6, 3, 60, 20);
    for explore in [Explore::Draw, Explore::Bonus] {
        let params = SoftParams {
            alone: 0.7,
            population: 1.3,
            explore,
            ..SoftParams::gaussian()
        };
        let mut policy = SclubSoft::new(3, &params).unwrap();
        teach(&mut policy, &world);
        let fit = policy.served.as_ref().unwrap().fit.clone();
        let live = live(&policy);
        let precision = full(3, &live.precision);
        let mut spread = Mat::zeros(3, 3);
        for root in policy.population.columns() {
            spread += column(&root) * column(&root).transpose();
        }
        let mut rng = rng(2);
        for user in 0..61 {
            let said = world.said.get(user).map_or(&[][..], |said| said);
            let (covariance, mean) = posterior(said, &live, fit.noise);
            let pulled = &covariance * &precision;
            let user = user as u64;
            assert!(all_close(&policy.estimate(user).unwrap(), &mean, 1e-8));
            if !said.is_empty() {
                assert!(all_close(&policy.own_estimate(user).unwrap(), &mean, 1e-8));
            }
            let rows = random_items(&mut rng, 3, 9);
            let items = ItemSet::from_rows(3, &rows).unwrap();
            let mut scores = Vec::new();
            policy.explain_drawn(77, user, &items, &mut scores).unwrap();
            let draw = crate::draws::deviation(77, policy.population.view(), 1.3);
            let moved = &pulled * column(&draw);
            for (x, score) in rows.chunks(3).zip(&scores) {
                let form = |matrix: &Mat<f64>| (column(x).transpose() * matrix * column(x))[(0, 0)];
                let shared = match explore {
                    Explore::Draw => (column(x).transpose() * &moved)[(0, 0)],
                    Explore::Bonus => 1.3 * form(&(&pulled * &spread * pulled.transpose())).sqrt(),
                };
                let width = 0.7 * form(&covariance).sqrt() + shared;
                assert!(close(score.mean, dot(x, &mean), 1e-8));
                assert!(close(score.width, width, 1e-8), "{explore:?}");
            }
        }
    }
}

#[test]
fn scores_are_those_of_the_formula() {
    // mean + c_b √(spread of the hypotheses' means) + c √(variance under each), by weight.
    let dim = 3;
    let centres = vectors(3, 4, dim, 1.5);
    let world = World::new(4, clustered_tastes(&centres, 40), 1.0, 0.5, |i| i % 6);
    let background = random_background(5, dim, 1.0);
    let noise = 0.5;
    let played = mixture(&centres, &[0.2, 0.3, 0.1, 0.25]);
    let mut fit = fit_of(&background, noise, &played);
    // The population's mean is known: there is nothing to draw.
    fit.information.iter_mut().for_each(|v| *v *= 1e12);
    // Two centres are well known, two are not.
    for k in [0, 2] {
        fit.spreads[k].iter_mut().for_each(|v| *v *= 1e-4);
    }
    let params = SoftParams {
        inline: false,
        ..SoftParams::default()
    };
    let mut policy = SclubSoft::new(dim, &params).unwrap();
    teach(&mut policy, &world);
    policy.install(fit);
    // Neither all trust nor none.
    policy.gain = 0.7 * params.caution;
    let trust = 1.0 / (1.0 + 0.3f64.exp());
    let mut rng = rng(6);
    for (user, said) in world.said.iter().enumerate() {
        let (covariance, mean) = posterior(said, &background, noise);
        let mut weights = Vec::new();
        for centre in &played.centres {
            weights.push(centre.share * log_likelihood(said, &centre.mean, noise).exp());
        }
        let none = played.none * dense_evidence(said, &background, noise).exp();
        let whole = none + weights.iter().sum::<f64>();
        let weights: Vec<f64> = weights.iter().map(|w| trust * w / whole).collect();
        let none = 1.0 - weights.iter().sum::<f64>();
        let rows = random_items(&mut rng, dim, 40);
        let items = ItemSet::from_rows(dim, &rows).unwrap();
        let mut scores = Vec::new();
        policy.explain(user as u64, &items, &mut scores).unwrap();
        for (x, score) in rows.chunks(dim).zip(&scores) {
            let form = |matrix: &Mat<f64>| (column(x).transpose() * matrix * column(x))[(0, 0)];
            let mut means = vec![(none, dot(x, &mean))];
            let mut within = none * form(&covariance);
            for (k, (centre, weight)) in played.centres.iter().zip(&weights).enumerate() {
                means.push((*weight, dot(x, &centre.mean)));
                if k % 2 == 1 {
                    within += weight * form(&full(dim, &background.covariance));
                }
            }
            let mean: f64 = means.iter().map(|(w, m)| w * m).sum();
            let between: f64 = means.iter().map(|(w, m)| w * (m - mean) * (m - mean)).sum();
            let c = trust * params.within + (1.0 - trust) * params.alone;
            let b = trust * params.between + (1.0 - trust) * params.between_alone;
            let width = b * between.sqrt() + c * within.sqrt();
            // Hypotheses of a weight below 1e-5 are not asked.
            assert!((score.mean - mean).abs() < 1e-3, "{} {mean}", score.mean);
            assert!(
                (score.width - width).abs() < 2e-2,
                "{} {width}",
                score.width
            );
            assert!((score.score - score.mean - score.width).abs() < 1e-12);
        }
    }
}

/// Large sets are searched with bounds. The answer has the bits of the full scan.
#[test]
fn the_best_of_a_large_set_are_those_of_all_scores() {
    let dim = 3;
    let centres = vectors(3, 4, dim, 1.5);
    let world = World::new(4, clustered_tastes(&centres, 40), 1.0, 0.5, |i| i % 6);
    let background = random_background(5, dim, 1.0);
    let played = mixture(&centres, &[0.2, 0.3, 0.1, 0.25]);
    for explore in [Explore::Draw, Explore::Bonus] {
        let params = SoftParams {
            inline: false,
            explore,
            ..SoftParams::default()
        };
        let mut policy = SclubSoft::new(dim, &params).unwrap();
        let mut rng = rng(6);
        let items = ItemSet::from_rows(dim, &random_items(&mut rng, dim, 3000)).unwrap();
        let check = |policy: &SclubSoft| {
            let (mut scores, mut expected, mut found) = (Vec::new(), Vec::new(), Vec::new());
            for user in 0..42 {
                policy
                    .explain_drawn(user, user, &items, &mut scores)
                    .unwrap();
                let exclude = |at: usize| at % 7 == 3;
                largest(&scores, 10, &exclude, &mut expected);
                policy
                    .recommend_list_drawn(user, user, &items, 10, &exclude, &mut found)
                    .unwrap();
                assert_eq!(found, expected);
                largest(&scores, 1, &|_| false, &mut expected);
                let one = policy.recommend_drawn(user, user, &items).unwrap();
                assert_eq!(one, expected[0]);
            }
        };
        check(&policy);
        teach(&mut policy, &world);
        check(&policy);
        for plain in [None, Some(plain_prior(dim))] {
            let mut fit = fit_of(&background, 0.5, &played);
            fit.plain = plain;
            policy.install(fit);
            for gain in [-1e9, 0.7 * params.caution, 1e9] {
                policy.gain = gain;
                check(&policy);
            }
        }
    }
}
