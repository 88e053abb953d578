//! The population's live mean against one dense posterior of all rewards together, by faer.

use faer::Mat;
use proptest::prelude::*;

use super::super::belief::Model;
use super::super::population::Population;
use super::*;

/// The posterior of μ ~ N(μ0, V0) where rewards of user i are N(X_i μ, v I + X_i C X_iᵀ): covariance, mean,
/// and the log-likelihood of all rewards less that under noise alone.
fn dense(world: &World, background: &Background, noise: f64) -> (Mat<f64>, Vec<f64>, f64) {
    let dim = world.dim;
    let rows: Vec<(usize, &(Vec<f64>, f64))> = world
        .said
        .iter()
        .enumerate()
        .flat_map(|(user, said)| said.iter().map(move |one| (user, one)))
        .collect();
    let c = full(dim, &background.covariance);
    let x = Mat::from_fn(rows.len(), dim, |row, i| rows[row].1.0[i]);
    let y = Mat::from_fn(rows.len(), 1, |row, _| rows[row].1.1);
    let inside = &x * &c * x.transpose();
    let own = Mat::from_fn(rows.len(), rows.len(), |a, b| {
        let same = if rows[a].0 == rows[b].0 {
            inside[(a, b)]
        } else {
            0.0
        };
        same + if a == b { noise } else { 0.0 }
    });
    let weights = inverse(&own);
    // The prior of μ is the background itself: V0 = C.
    let precision = inverse(&c) + x.transpose() * &weights * &x;
    let covariance = inverse(&precision);
    let centre = column(&background.mean);
    let mean = &covariance * (inverse(&c) * &centre + x.transpose() * &weights * &y);
    let all = &own + &inside;
    let error = &y - &x * &centre;
    let fit = (error.transpose() * inverse(&all) * &error)[(0, 0)];
    let log = -0.5 * (all.determinant().ln() + fit);
    let alone = -0.5 * ((y.transpose() * &y)[(0, 0)] / noise + rows.len() as f64 * noise.ln());
    (
        covariance,
        (0..dim).map(|i| mean[(i, 0)]).collect(),
        log - alone,
    )
}

fn full(dim: usize, packed: &[f64]) -> Mat<f64> {
    Mat::from_fn(dim, dim, |i, j| {
        let (i, j) = (i.max(j), i.min(j));
        packed[i * (i + 1) / 2 + j]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() })]

    /// Rewards of several users, in turns: after each of them the mean and the covariance are exact.
    #[test]
    fn updates_of_rank_one_give_the_posterior_of_all_rewards(
        dim in 1usize..7, users in 1usize..5, count in 1usize..8, seed: u64,
        size in -2.0f64..2.0,
    ) {
        let size = 10f64.powf(size);
        let taste_size = 1.0 / size;
        let background = random_background(seed, dim, taste_size);
        let tastes = vectors(seed ^ 1, users, dim, taste_size);
        let noise = 0.3;
        let world = World::new(seed ^ 2, tastes, size, noise, |user| 1 + (user + count) % 8);
        let fit = fit_of(&background, noise, &mixture(&[], &[]));
        let mut model = Model::new(world.layout(), &fit, 1);
        let mut population = Population::from_fit(&fit);
        let mut blocks = vec![model.block.clone(); users];
        let mut beliefs = vec![model.newcomer.clone(); users];
        let mut scaled = vec![0.0; dim];
        let mut total = 0.0;
        for turn in 0..8 {
            for (user, said) in world.said.iter().enumerate() {
                let Some((item, reward)) = said.get(turn) else { continue };
                let view = model.shape.view(&blocks[user]);
                let log = population.observe(&model, view, item, *reward);
                total += log;
                let (block, belief) = (&mut blocks[user], &mut beliefs[user]);
                model.observe(block, belief, item, &mut scaled, *reward, log);
            }
        }
        let (covariance, mean, log) = dense(&world, &background, noise);
        prop_assert!(all_close(population.mean(), &mean, 1e-6), "{:?} {:?}", population.mean(), mean);
        prop_assert!((total - log).abs() < 1e-6 * (1.0 + log.abs()), "{} {}", total, log);
        let mut found = vec![vec![0.0; dim]; dim];
        for column in population.columns() {
            for i in 0..dim {
                for j in 0..dim {
                    found[i][j] += column[i] * column[j];
                }
            }
        }
        let largest = (0..dim).fold(0.0f64, |most, i| most.max(covariance[(i, i)]));
        for (i, row) in found.iter().enumerate() {
            for (j, value) in row.iter().enumerate() {
                prop_assert!((value - covariance[(i, j)]).abs() < 1e-6 * largest);
            }
        }

        // The user's expected tastes move with the live mean: P(C⁻¹μ̂ + b/v).
        let view = model.shape.view(&blocks[0]);
        let shift: Vec<f64> = population.mean().iter().zip(&background.mean).map(|(a, b)| a - b).collect();
        let moved: Vec<f64> =
            view.estimate.iter().zip(&model.moved(view, &shift)).map(|(a, b)| a + b).collect();
        let live = Background::new(population.mean().to_vec(), background.covariance.clone()).unwrap();
        let (_, expected) = posterior(&world.said[0], &live, noise);
        prop_assert!(all_close(&moved, &expected, 1e-6));
    }
}
