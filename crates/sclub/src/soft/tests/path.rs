//! One user's rank-1 path against a fresh belief from the user's sums.

use proptest::prelude::*;

use super::super::belief::{Belief, Model};
use super::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() })]

    #[test]
    fn observing_one_by_one_comes_to_what_the_sums_say(
        dim in 1usize..24, count in 0usize..400, clusters in 0usize..12, seed: u64,
        size in -3.0f64..3.0, reward_size in -3.0f64..3.0,
    ) {
        let (size, reward_size) = (10f64.powf(size), 10f64.powf(reward_size));
        // Tastes, prior and noise in the units of features and rewards.
        let taste_size = reward_size / size;
        let noise = 0.3 * reward_size * reward_size;
        let background = random_background(seed, dim, taste_size);
        let tastes = vectors(seed ^ 1, 1, dim, taste_size);
        let world = World::new(seed ^ 2, tastes, size, noise, |_| count);
        let centres = vectors(seed ^ 3, clusters, dim, taste_size);
        let mixture = mixture(&centres, &vec![0.5 / clusters as f64; clusters]);
        let layout = world.layout();
        let mut model = Model::new(layout, &fit_with_known_centres(&background, noise, &mixture), 1);

        let (mut block, mut belief) = (model.block.clone(), model.newcomer.clone());
        let mut scaled = vec![0.0; dim];
        let mut gained = 0.0;
        for (item, reward) in &world.said[0] {
            let alone = alone(&model, &block, item, *reward);
            gained += model.observe(&mut block, &mut belief, item, &mut scaled, *reward, alone);
        }
        let sums = world.sums();
        let mut fresh = (model.block.clone(), Belief::default());
        fresh.1 = model.believe(1, sums.row(0), &mut fresh.0);
        let (mine, other) = (model.shape.view(&block), model.shape.view(&fresh.0));
        prop_assert!(all_close(mine.factor, other.factor, 1e-8));
        prop_assert!(all_close(mine.scale, other.scale, 1e-8));
        prop_assert!(all_close(mine.moment, other.moment, 1e-8));
        prop_assert!(all_close(mine.estimate, other.estimate, 1e-8));
        let largest = fresh.1.logs.iter().fold(1.0f64, |most, log| most.max(log.abs()));
        for (a, b) in belief.logs.iter().zip(&fresh.1.logs) {
            prop_assert!((a - b).abs() < 1e-9 * largest, "{} {}", a, b);
        }
        prop_assert!((belief.log_sum - fresh.1.log_sum).abs() < 1e-9 * largest);
        for (a, b) in belief.weights.iter().zip(&fresh.1.weights) {
            prop_assert!((a - b).abs() < 1e-8 * largest);
        }
        let whole: f64 = belief.weights.iter().sum();
        prop_assert!((whole - 1.0).abs() < 1e-12);
        // The sum of the gains is the final log-likelihood with clusters less that without.
        let none = fresh.1.logs[0] - model.log_shares[0];
        prop_assert!((gained - (fresh.1.log_sum - none)).abs() < 1e-8 * largest);

        // And it is the posterior.
        let (covariance, mean) = posterior(&world.said[0], &background, noise);
        prop_assert!(all_close(mine.estimate, &mean, 1e-6));
        let x = normals(&mut rng(seed ^ 5), dim);
        let direct = (column(&x).transpose() * &covariance * column(&x))[(0, 0)];
        let mut start = 0;
        let mut norm = 0.0;
        for i in 0..dim {
            let z = x[i] + dot(&mine.factor[start..start + i], &x[..i]);
            norm += mine.scale[i] * z * z;
            start += i;
        }
        prop_assert!((norm - direct).abs() < 1e-6 * direct);
    }
}
