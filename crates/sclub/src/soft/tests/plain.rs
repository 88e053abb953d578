//! The plain prior: when it is used, and the scores with it.

use super::super::SclubSoft;
use super::super::background::pass;
use super::super::panel::Panel;
use super::super::params::SoftParams;
use super::super::plain::Plain;
use super::fits::teach;
use super::*;
use crate::items::ItemSet;
use crate::policy::Policy;
use crate::refit::Sequential;

/// A plain prior of weight 0.6.
pub(super) fn plain_prior(dim: usize) -> Plain {
    Plain {
        weight: 0.6,
        prior: Background::wide(dim, 0.8),
    }
}

/// Users with 30 observations of 4 features, of which the last is 0.5 in all. `level` is the taste for it.
fn with_constant(tastes: Vec<Vec<f64>>, level: f64) -> World {
    let mut world = World::new(7, tastes, 1.0, 0.3, |_| 30);
    for (item, reward) in world.said.iter_mut().flatten() {
        item.push(0.5);
        *reward += 0.5 * level;
    }
    world.dim = 4;
    world
}

fn compare(world: &World, learned: &Background, noise: f64, half: f64) -> Option<Plain> {
    let (sums, slots) = (world.sums(), world.slots());
    let panel = Panel::new(&sums, &slots);
    let pass = pass(&panel, learned, noise, true, &Sequential);
    Plain::of(&panel, learned, &pass, noise, half, &Sequential)
}

#[test]
fn its_weight_is_that_of_the_definition() {
    // The nearer the learned prior's mean is to that of the users, the more it is worth.
    let noise = 0.3;
    let mut tastes = vectors(1, 40, 3, 0.3);
    for taste in &mut tastes {
        taste.iter_mut().for_each(|t| *t += 0.8);
    }
    let world = with_constant(tastes, 0.4);
    let mut last = 1.0;
    for size in [0.0, 0.3, 0.5, 0.8] {
        let mut covariance = full(4, &Background::wide(4, 0.09).covariance);
        covariance[(3, 3)] = 0.04;
        let mean = vec![size, size, size, 0.4];
        let learned = Background::new(mean, packed(&covariance)).unwrap();
        let plain = compare(&world, &learned, noise, 0.15);
        // c = the mean of C_ii + μ_i² over the features that vary.
        let c = 0.09 + size * size;
        let prior = Background::diagonal(&[c, c, c, 1e-9 * c]).unwrap();
        let worth: f64 = world
            .said
            .iter()
            .map(|said| dense_evidence(said, &learned, noise) - dense_evidence(said, &prior, noise))
            .sum();
        // Of 30 rounds of each of 40 users, 20 count.
        let worth = (worth + 0.3 * 300.0) / (20.0 * 40.0 + 300.0);
        let expected = 1.0 / (1.0 + (worth / 0.15).max(0.0).powi(8));
        match plain {
            Some(plain) => {
                assert!(close(plain.weight, expected, 1e-4), "{expected} {plain:?}");
                let pairs = plain.prior.covariance.iter().zip(&prior.covariance);
                pairs.for_each(|(a, b)| assert!(close(*a, *b, 1e-12)));
            }
            None => assert!(expected < 0.01, "{expected}"),
        }
        assert!(expected <= last + 1e-3, "{size}: {expected}");
        last = expected;
    }
    assert!(last < 0.5, "{last}");
}

#[test]
fn a_feature_is_constant_only_if_it_is_so_in_all_observations() {
    let noise = 0.3;
    let mut world = with_constant(vectors(2, 40, 3, 0.6), 0.0);
    let learned = Background::wide(4, 0.36);
    // With any worth.
    let compared = |world: &World| compare(world, &learned, noise, 1e3);
    let variance = |world: &World| compared(world).unwrap().prior.covariance[9];
    assert!(variance(&world) < 1e-8);
    world.said[17][29].0[3] = 0.5001;
    assert!(close(variance(&world), 0.36, 1e-9));
    // Features of −1 and 1 vary, though their squares do not.
    for (at, (item, _)) in world.said.iter_mut().flatten().enumerate() {
        item[3] = if at % 3 == 0 { 1.0 } else { -1.0 };
        item[2] = if at % 2 == 0 { 1.0 } else { -1.0 };
    }
    assert!(close(variance(&world), 0.36, 1e-9));
    // Of one user's sums nothing can be said.
    world.said.truncate(1);
    assert!(close(variance(&world), 0.36, 1e-9));
    // Without a feature that varies there is nothing to compare.
    let mut world = with_constant(vectors(2, 40, 3, 0.6), 0.0);
    for (item, _) in world.said.iter_mut().flatten() {
        *item = vec![1.0, 2.0, 3.0, 4.0];
    }
    assert_eq!(compared(&world), None);
}

/// Tiny and large units give a prior that can be used, or none.
#[test]
fn extreme_units_do_no_harm() {
    let units = [1e-153, 1e-150, 1e-140, 1e-100, 1e-40, 1e-10, 1.0, 1e10];
    let pairs = units.map(|features| units.map(|rewards| (features, rewards)));
    for (features, rewards) in pairs.into_iter().flatten() {
        let mut policy = SclubSoft::new(4, &SoftParams::default()).unwrap();
        let mut rng = rng(3);
        for round in 0..100 {
            let mut item = normals(&mut rng, 4);
            item[3] = 1.0;
            item.iter_mut().for_each(|x| *x *= features);
            let reward = rewards * (1.0 + 0.3 * normal(&mut rng));
            policy.learn(round % 20, &item, reward).unwrap();
        }
        let rows: Vec<f64> = random_items(&mut rng, 4, 10);
        let rows: Vec<f64> = rows.iter().map(|x| features * x).collect();
        let items = ItemSet::from_rows(4, &rows).unwrap();
        for user in 0..21 {
            policy.recommend(user, &items).unwrap();
        }
        let plain = policy.served.as_ref().unwrap().fit.plain.as_ref();
        assert!(plain.is_none_or(|plain| plain.weight.is_finite()));
    }
}

/// The plain prior has its weight of what clusters leave, and draws of the population's mean shrink with it.
#[test]
fn clusters_and_draws_share_with_the_plain_prior() {
    let dim = 3;
    let world = World::new(4, vectors(3, 20, dim, 1.0), 1.0, 0.5, |i| i % 6);
    let background = random_background(5, dim, 1.0);
    let played = mixture(&vectors(8, 2, dim, 1.0), &[0.3, 0.3]);
    let noise = 0.5;
    let params = SoftParams {
        inline: false,
        ..SoftParams::default()
    };
    let policy_with = |plain: Option<Plain>, population: f64| {
        let params = SoftParams {
            population,
            ..params
        };
        let mut policy = SclubSoft::new(dim, &params).unwrap();
        teach(&mut policy, &world);
        let mut fit = fit_of(&background, noise, &played);
        fit.plain = plain;
        policy.install(fit);
        policy.gain = 0.7 * params.caution;
        policy
    };
    let trust = 1.0 / (1.0 + 0.3f64.exp());
    let plain = plain_prior(dim);
    // 1 − (1 − t) p, and (1 − t) p/2.
    let draws = 1.0 - (1.0 - trust) * plain.weight;
    let weight = 0.5 * (1.0 - trust) * plain.weight;
    let mixed = policy_with(Some(plain.clone()), 1.0);
    let without = policy_with(None, draws);
    let mut rng = rng(6);
    let (mut scores, mut others) = (Vec::new(), Vec::new());
    for (user, said) in world.said.iter().enumerate() {
        let (covariance, mean) = posterior(said, &plain.prior, noise);
        let rows = random_items(&mut rng, dim, 20);
        let items = ItemSet::from_rows(dim, &rows).unwrap();
        let user = user as u64;
        mixed.explain_drawn(9, user, &items, &mut scores).unwrap();
        without.explain_drawn(9, user, &items, &mut others).unwrap();
        for ((x, score), other) in rows.chunks(dim).zip(&scores).zip(&others) {
            let square = (column(x).transpose() * &covariance * column(x))[(0, 0)];
            let plain = dot(x, &mean) + params.alone * square.sqrt();
            let expected = (1.0 - weight) * other.score + weight * plain;
            assert!(
                close(score.score, expected, 1e-9),
                "{} {expected}",
                score.score
            );
        }
    }
}

#[test]
fn scores_are_the_mean_of_those_under_both_priors() {
    let dim = 3;
    let world = World::new(4, vectors(3, 20, dim, 1.0), 1.0, 0.5, |i| i % 6);
    let background = random_background(5, dim, 1.0);
    let noise = 0.5;
    let mut fit = fit_of(&background, noise, &Mixture::none());
    // The population's mean is known: there is nothing to draw.
    fit.information.iter_mut().for_each(|v| *v *= 1e12);
    let plain = plain_prior(dim);
    fit.plain = Some(plain.clone());
    let params = SoftParams {
        inline: false,
        ..SoftParams::default()
    };
    let mut policy = SclubSoft::new(dim, &params).unwrap();
    teach(&mut policy, &world);
    policy.install(fit);
    let mut rng = rng(6);
    for user in 0..21 {
        let said = world.said.get(user).map_or(&[][..], |said| said);
        let both = [(0.7, &background), (0.3, &plain.prior)];
        let both = both.map(|(weight, prior)| (weight, posterior(said, prior, noise)));
        let expected = |x: &[f64]| -> f64 {
            let means = both.iter().map(|(weight, (_, mean))| weight * dot(x, mean));
            means.sum()
        };
        let estimate = policy.estimate(user as u64).unwrap();
        for (i, m) in estimate.iter().enumerate() {
            let unit: Vec<f64> = (0..dim).map(|j| f64::from(u8::from(i == j))).collect();
            assert!(close(*m, expected(&unit), 1e-6));
        }
        let rows = random_items(&mut rng, dim, 20);
        let items = ItemSet::from_rows(dim, &rows).unwrap();
        let mut scores = Vec::new();
        policy.explain(user as u64, &items, &mut scores).unwrap();
        for (x, score) in rows.chunks(dim).zip(&scores) {
            let mean = expected(x);
            let width = both.iter().map(|(weight, (covariance, _))| {
                let square = (column(x).transpose() * covariance * column(x))[(0, 0)];
                weight * params.alone * square.sqrt()
            });
            let width: f64 = width.sum();
            assert!(close(score.mean, mean, 1e-5), "{} {mean}", score.mean);
            assert!(close(score.width, width, 1e-4), "{} {width}", score.width);
        }
    }
}
