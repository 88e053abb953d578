//! Recommend and learn against the machine's own speed.
//!
//! `cargo bench -p sclub --bench kernels` prints the time of 8,000 fused multiply-adds at the peak
//! of this machine (what 20 full products xᵀS⁻¹x at d = 20 come to), then scoring and learning.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub::{ContextMode, Groups, ItemSet, LinUcbInd, LinUcbShared, Params, Policy};

/// Independent accumulators of 8 numbers: enough to keep two units of latency 4 busy.
const CHAINS: usize = 12;

#[inline(always)]
fn multiply_adds(count: usize, factor: f64) -> f64 {
    let mut sums = [[1.0f64; 8]; CHAINS];
    for _ in 0..count / (8 * CHAINS) {
        for sum in &mut sums {
            for lane in sum {
                *lane = lane.mul_add(factor, factor);
            }
        }
    }
    sums.iter().flatten().sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
fn multiply_adds_512(count: usize, factor: f64) -> f64 {
    multiply_adds(count, factor)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn multiply_adds_256(count: usize, factor: f64) -> f64 {
    multiply_adds(count, factor)
}

fn peak(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("peak");
    // 100 times 8,000, so that starting and ending do not count.
    let count = 800_000;
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
        {
            group.bench_function("800,000 multiply-adds, 512 bits", |bencher| {
                // SAFETY: the processor has the features, as tested above.
                bencher.iter(|| unsafe { multiply_adds_512(black_box(count), black_box(0.5)) });
            });
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            group.bench_function("800,000 multiply-adds, 256 bits", |bencher| {
                // SAFETY: the processor has the features, as tested above.
                bencher.iter(|| unsafe { multiply_adds_256(black_box(count), black_box(0.5)) });
            });
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    group.bench_function("800,000 multiply-adds", |bencher| {
        bencher.iter(|| multiply_adds(black_box(count), black_box(0.5)));
    });
    group.finish();
}

fn trained(dim: usize, items: usize) -> (LinUcbInd, ItemSet, Vec<f64>) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(dim as u64);
    let mut policy = LinUcbInd::new(dim, &Params::tuned()).expect("good parameters");
    let mut draw = |n: usize| -> Vec<f64> { (0..n).map(|_| rng.random_range(-0.3..0.3)).collect() };
    for _ in 0..200 {
        policy
            .learn(1, &draw(dim), 1.0)
            .expect("a good observation");
    }
    let rows = draw(items * dim);
    (
        policy,
        ItemSet::from_rows(dim, &rows).expect("good items"),
        rows,
    )
}

fn recommend_and_learn(criterion: &mut Criterion) {
    for dim in [5, 10, 20, 32, 64, 128, 256, 512] {
        let mut group = criterion.benchmark_group(format!("d={dim}"));
        for count in [20, 100] {
            let (policy, items, _) = trained(dim, count);
            group.bench_function(BenchmarkId::new("recommend", count), |bencher| {
                bencher.iter(|| policy.recommend(black_box(1), black_box(&items)));
            });
        }
        let (mut policy, mut items, rows) = trained(dim, 20);
        group.bench_function("learn", |bencher| {
            let mut changes = Vec::new();
            let mut turn = 0;
            bencher.iter(|| {
                turn = (turn + 1) % 20;
                let item = &rows[turn * dim..(turn + 1) * dim];
                let round = [sclub::Observation {
                    id: None,
                    user: 1,
                    item,
                    reward: 0.5,
                }];
                policy.learn_round(black_box(&round), &mut changes)
            });
        });
        group.bench_function("lay out 20 items", |bencher| {
            bencher.iter(|| items.refill(black_box(&rows)));
        });
        group.finish();
    }
}

/// The 10 best of 100,000 items at d = 32: all scored, and most ruled out by a bound.
fn best_of_many(criterion: &mut Criterion) {
    let (dim, len, k) = (32, 100_000, 10);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut draw = |n: usize| -> Vec<f64> { (0..n).map(|_| rng.random_range(-0.3..0.3)).collect() };
    let catalogue = ItemSet::from_rows(dim, &draw(len * dim)).expect("good items");
    let tastes = draw(dim);
    let mut policy =
        LinUcbShared::new(dim, Groups::One, &Params::tuned()).expect("good parameters");
    let mut group = criterion.benchmark_group(format!("the {k} best of {len}, d={dim}"));
    for rounds in [0, 2_000, 100_000] {
        while policy.rounds() < rounds {
            let few = ItemSet::from_rows(dim, &draw(20 * dim)).expect("good items");
            let shown = policy.recommend(1, &few).expect("some items").index;
            let item: Vec<f64> = few.item(shown).collect();
            let reward: f64 = item.iter().zip(&tastes).map(|(x, w)| x * w).sum();
            policy
                .learn(1, &item, reward + draw(1)[0])
                .expect("a good observation");
        }
        let mut scores = Vec::new();
        group.bench_function(BenchmarkId::new("explain, select", rounds), |bencher| {
            bencher.iter(|| {
                let done = policy.explain(1, black_box(&catalogue), &mut scores);
                done.expect("some items");
                let mut order: Vec<usize> = (0..len).collect();
                order.select_nth_unstable_by(k, |&a, &b| {
                    scores[b].score.total_cmp(&scores[a].score).then(a.cmp(&b))
                });
                order.truncate(k);
                order
            });
        });
        let mut best = Vec::new();
        group.bench_function(BenchmarkId::new("best", rounds), |bencher| {
            bencher.iter(|| policy.best(1, black_box(&catalogue), k, &|_| false, &mut best));
        });
    }
    group.finish();
}

/// 20 of 10,000 items at d = 20, laid out and chosen from: without ids, with ids, and crossed with the
/// 3 features of a context.
fn ids_and_context(criterion: &mut Criterion) {
    let dim = 20;
    let (policy, mut catalogue, _) = trained(dim, 10_000);
    let (crossed_policy, ..) = trained(4 * dim, 1);
    let mut group = criterion.benchmark_group("20 of 10,000 items, d=20");
    let indexes: Vec<usize> = (0..20).map(|item| 499 * item).collect();
    let mut few = ItemSet::new(dim).expect("a good dimension");
    for has_ids in [false, true] {
        if has_ids {
            let ids: Vec<u64> = (0..10_000).collect();
            catalogue.set_ids(&ids).expect("one for each");
        }
        let name = if has_ids { "with ids" } else { "without ids" };
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                few.select(black_box(&catalogue), black_box(&indexes))
                    .expect("good items");
                policy.recommend(black_box(1), &few)
            });
        });
    }
    let mut crossed = ItemSet::new(4 * dim).expect("a good dimension");
    group.bench_function("crossed with a context of 3", |bencher| {
        bencher.iter(|| {
            few.select(black_box(&catalogue), black_box(&indexes))
                .expect("good items");
            crossed
                .refill_in_context(&few, black_box(&[1.0, 0.5, 0.0]), ContextMode::Cross)
                .expect("a good context");
            crossed_policy.recommend(black_box(1), &crossed)
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(30);
    targets = peak, recommend_and_learn, ids_and_context, best_of_many
}
criterion_main!(benches);
