//! The kernels against faer's decompositions, and against themselves without vector registers.

mod batch;

use faer::Mat;
use faer::linalg::solvers::DenseSolveCore;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::WITHOUT_SIMD;
use crate::items::ItemSet;
use crate::kernels;
use crate::policy::{Change, Observation, Policy, Users};
use crate::spec::{Preset, Setup, Value};
use crate::statistics::{Aggregate, Scratch, Shape};
use crate::{Club, Graph, Groups, LinUcbInd, LinUcbShared, Params, Sclub, SclubSoft, SoftParams};

/// S as faer has it, summed from the items themselves.
fn gram_matrix(dim: usize, items: &[Vec<f64>]) -> Mat<f64> {
    let mut s = Mat::identity(dim, dim);
    for x in items {
        for i in 0..dim {
            for k in 0..dim {
                s[(i, k)] += x[i] * x[k];
            }
        }
    }
    s
}

fn inverse(matrix: &Mat<f64>) -> Mat<f64> {
    matrix
        .llt(faer::Side::Lower)
        .expect("positive definite")
        .inverse()
}

/// Mᵀ diag(g) M of a block.
fn inverse_of_block(shape: Shape, block: &[f64]) -> Mat<f64> {
    let view = shape.view(block);
    let d = shape.dim;
    let m = Mat::from_fn(d, d, |i, k| match i.cmp(&k) {
        std::cmp::Ordering::Less => 0.0,
        std::cmp::Ordering::Equal => 1.0,
        std::cmp::Ordering::Greater => view.factor[i * (i - 1) / 2 + k],
    });
    let g = Mat::from_fn(d, d, |i, k| if i == k { view.scale[i] } else { 0.0 });
    m.transpose() * g * &m
}

fn largest_difference(a: &Mat<f64>, b: &Mat<f64>) -> f64 {
    (a - b).norm_max()
}

fn draws(seed: u64, count: usize, dim: usize, scale: f64) -> Vec<Vec<f64>> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..count)
        .map(|_| {
            (0..dim)
                .map(|_| scale * rng.random_range(-1.0..1.0))
                .collect()
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_block_holds_the_inverse_and_the_estimate(
        dim in 1usize..48, count in 0usize..200, seed: u64, scale in 0.05f64..3.0,
    ) {
        let shape = Shape { dim };
        let items = draws(seed, count, dim, scale);
        let mut block = shape.empty_block();
        let mut moment: Mat<f64> = Mat::zeros(dim, 1);
        for (n, x) in items.iter().enumerate() {
            let reward = (n % 3) as f64 - 0.7;
            kernels::observe(dim, &mut block, x, reward);
            for i in 0..dim {
                moment[(i, 0)] += reward * x[i];
            }
        }
        let s = gram_matrix(dim, &items);
        let fresh = inverse(&s);
        prop_assert!(largest_difference(&inverse_of_block(shape, &block), &fresh) < 1e-11);
        let estimate = &fresh * &moment;
        let view = shape.view(&block);
        for i in 0..dim {
            prop_assert!((view.estimate[i] - estimate[(i, 0)]).abs() < 1e-9);
            prop_assert!((view.moment[i] - moment[(i, 0)]).abs() < 1e-9);
        }

        // And back: the sums from the block, the block from the sums.
        let mut scratch = Scratch::new(shape);
        let gram = scratch.gram_of(&block).to_vec();
        for i in 0..dim {
            for k in 0..=i {
                let expected = s[(i, k)] - f64::from(u8::from(i == k));
                let tolerance = 1e-11 * s.norm_max();
                prop_assert!((gram[i * (i + 1) / 2 + k] - expected).abs() < tolerance);
            }
        }
        let mut sums = Aggregate::of_block(&mut scratch, &block, count as u64);
        sums.factorise(&mut scratch);
        prop_assert!(largest_difference(&inverse_of_block(shape, sums.block()), &fresh) < 1e-10);
    }

    #[test]
    fn scores_are_the_mean_and_the_squared_norm(
        dim in 1usize..40, candidates in 1usize..90, seed: u64,
    ) {
        let mut policy = LinUcbInd::new(dim, &Params::released()).unwrap();
        let items = draws(seed, 60, dim, 0.5);
        for (n, x) in items.iter().enumerate() {
            policy.learn(3, x, (n % 2) as f64).unwrap();
        }
        let s_inverse = inverse(&gram_matrix(dim, &items));
        let theta = policy.estimate(3).unwrap();
        let rows = draws(seed ^ 1, candidates, dim, 0.5);
        let set = ItemSet::from_rows(dim, &rows.concat()).unwrap();
        let mut scores = Vec::new();
        policy.explain(3, &set, &mut scores).unwrap();
        let d = dim as f64;
        let beta =
            (d * (1.0 + 60.0 / d).ln() + 4.0 * 60f64.ln() + 2f64.ln()).sqrt() + 1.0;
        for (x, score) in rows.iter().zip(&scores) {
            let mean: f64 = x.iter().zip(&theta).map(|(x, t)| x * t).sum();
            let column = Mat::from_fn(dim, 1, |i, _| x[i]);
            let norm = (column.transpose() * &s_inverse * &column)[(0, 0)];
            prop_assert!((score.mean - mean).abs() < 1e-10);
            prop_assert!((score.width - beta * norm).abs() < 1e-9);
            prop_assert!((score.score - score.mean - score.width).abs() < 1e-12);
        }
        let decision = policy.recommend(3, &set).unwrap();
        let best = scores.iter().map(|s| s.score).fold(f64::NEG_INFINITY, f64::max);
        let first = scores.iter().position(|s| s.score == best).unwrap();
        prop_assert_eq!(decision.index, first);
        prop_assert_eq!(decision.score, scores[first]);
    }
}

/// Items that keep to half of the dimensions, with a few that do not, at very unequal scales: the
/// Gram matrix of one-hot features without normalisation.
fn awkward(rng: &mut Xoshiro256PlusPlus, dim: usize, n: usize) -> Vec<f64> {
    let reach = if n.is_multiple_of(50_000) {
        dim
    } else {
        dim / 2
    };
    (0..dim)
        .map(|i| {
            if i < reach {
                rng.random_range(-1.0..1.0) * [1.0, 0.01, 10.0][i % 3]
            } else {
                0.0
            }
        })
        .collect()
}

#[test]
fn a_million_updates_keep_the_inverse_within_a_millionth_of_a_fresh_one() {
    let dim = 12;
    let shape = Shape { dim };
    let mut scratch = Scratch::new(shape);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
    let mut cluster = Aggregate::new(shape);
    let mut user = shape.empty_block();
    // Sums kept apart, with compensation, so that they are right to the last digits.
    let mut sum = vec![0.0; dim * dim];
    let mut lost = vec![0.0; dim * dim];
    let (mut worst_cluster, mut worst_user) = (0.0f64, 0.0f64);
    for n in 1..=1_000_000 {
        let x = awkward(&mut rng, dim, n);
        let reward = rng.random_range(0.0..1.0);
        cluster.observe(&mut scratch, &x, reward);
        kernels::observe(dim, &mut user, &x, reward);
        for i in 0..dim {
            for k in 0..dim {
                let at = i * dim + k;
                let term = x[i] * x[k] - lost[at];
                let next = sum[at] + term;
                lost[at] = (next - sum[at]) - term;
                sum[at] = next;
            }
        }
        if n % 100_000 == 0 || n == crate::REFACTORISE_EVERY as usize - 1 {
            let s = Mat::from_fn(dim, dim, |i, k| {
                sum[i * dim + k] + f64::from(u8::from(i == k))
            });
            let fresh = inverse(&s);
            let off = largest_difference(&inverse_of_block(shape, cluster.block()), &fresh);
            worst_cluster = worst_cluster.max(off);
            let off = largest_difference(&inverse_of_block(shape, &user), &fresh);
            worst_user = worst_user.max(off);
        }
    }
    assert!(worst_cluster < 1e-6, "cluster: {worst_cluster:e}");
    assert!(worst_user < 1e-6, "user: {worst_user:e}");
}

#[test]
fn what_is_taken_out_leaves_what_was_there_before() {
    let shape = Shape { dim: 15 };
    let mut scratch = Scratch::new(shape);
    let (mut a, mut b) = (shape.empty_block(), shape.empty_block());
    for (n, x) in draws(3, 300, 15, 1.0).iter().enumerate() {
        let block = if n % 3 == 0 { &mut a } else { &mut b };
        kernels::observe(15, block, x, n as f64 / 300.0);
    }
    let mut sums = Aggregate::of_block(&mut scratch, &a, 100);
    let before = sums.clone();
    sums.add_block(&mut scratch, &b, 200);
    sums.factorise(&mut scratch);
    assert_eq!(sums.count(), 300);
    sums.remove_block(&mut scratch, &b, 200);
    sums.factorise(&mut scratch);
    assert_eq!(sums.count(), 100);
    for (after, before) in sums.block().iter().zip(before.block()) {
        assert!((after - before).abs() < 1e-11);
    }
    sums.remove_block(&mut scratch, &a, 100);
    sums.factorise(&mut scratch);
    assert_eq!(
        sums.block(),
        &*shape.empty_block(),
        "nothing left means exactly nothing"
    );
}

/// The digest of every policy after a run in a small world.
fn digests(dim: usize, candidates: usize) -> Vec<u64> {
    let params = Params {
        alpha_theta: 0.8,
        ..Params::tuned()
    };
    let users = Users::Declared(12);
    // One rough fit in large dimensions, several in small ones.
    let soft = SoftParams {
        growth: if dim > 50 { 10.0 } else { 1.3 },
        first: if dim > 50 { 32 } else { 100 },
        ..SoftParams::default()
    };
    let mut policies: Vec<Box<dyn Policy>> = vec![
        Box::new(Sclub::new(dim, users, &params).unwrap()),
        Box::new(Club::new(dim, users, Graph::Random { seed: 1 }, &params).unwrap()),
        Box::new(LinUcbShared::new(dim, Groups::One, &params).unwrap()),
        Box::new(LinUcbInd::new(dim, &params).unwrap()),
        Box::new(SclubSoft::new(dim, &soft).unwrap()),
    ];
    let setup = Setup {
        users,
        ..Setup::new(dim)
    };
    let given = [("gamma", Value::Number(1.0))];
    let cab = crate::find_policy("cab").expect("a policy");
    let cab = cab.values(Preset::Tuned, &given, &setup).unwrap();
    policies.push(cab.make(&setup).unwrap());
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(dim as u64);
    let mut changes: Vec<Change> = Vec::new();
    for _ in 0..300 {
        let user = rng.random_range(0..14u64);
        let rows: Vec<f64> = (0..candidates * dim)
            .map(|_| rng.random_range(-0.5..0.5))
            .collect();
        let set = ItemSet::from_rows(dim, &rows).unwrap();
        for policy in &mut policies {
            let shown = policy.recommend(user, &set).unwrap().index;
            let item: Vec<f64> = set.item(shown).collect();
            let reward = item[user as usize % dim];
            policy
                .learn_round(
                    &[Observation {
                        id: None,
                        user,
                        item: &item,
                        reward,
                    }],
                    &mut changes,
                )
                .unwrap();
        }
    }
    policies.iter().map(|policy| policy.digest()).collect()
}

#[test]
fn every_instruction_set_gives_the_same_bits() {
    for (dim, candidates) in [
        (1, 3),
        (2, 9),
        (5, 20),
        (8, 8),
        (20, 20),
        (33, 40),
        (130, 5),
    ] {
        let with = digests(dim, candidates);
        WITHOUT_SIMD.set(true);
        let without = digests(dim, candidates);
        WITHOUT_SIMD.set(false);
        assert_eq!(with, without, "d = {dim}");
    }
}

#[test]
fn every_instruction_set_finds_the_same_best() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    for dim in [1, 5, 20, 33] {
        let mut draw = |n: usize| -> Vec<f64> { (0..n).map(|_| rng.random()).collect() };
        // Enough of them that most are ruled out by their length, and a last group that is not full.
        let items = ItemSet::from_rows(dim, &draw(1101 * dim)).unwrap();
        let mut policy = LinUcbInd::new(dim, &Params::tuned()).unwrap();
        for rounds in [0, 50] {
            for _ in 0..rounds {
                policy.learn(1, &draw(dim), 0.5).unwrap();
            }
            let [with, without] = [false, true].map(|without| {
                WITHOUT_SIMD.set(without);
                let mut best = Vec::new();
                policy.best(1, &items, 9, &|_| false, &mut best).unwrap();
                WITHOUT_SIMD.set(false);
                best
            });
            assert_eq!(with, without, "d = {dim} after {rounds}");
        }
    }
}
