//! The best of a large set, found by ruling most of it out, are those of the full scan.

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub::{
    Decision, Error, Exploration, Groups, Index, ItemSet, LinUcbInd, LinUcbShared, Params, Policy,
    Sclub, Users,
};

/// The best by a full scan: all items scored, sorted, and cut off.
fn full_scan(
    policy: &dyn Policy,
    items: &ItemSet,
    k: usize,
    exclude: &dyn Fn(usize) -> bool,
) -> Vec<Decision> {
    let mut scores = Vec::new();
    policy.explain(3, items, &mut scores).unwrap();
    let mut all: Vec<Decision> = (0..items.len())
        .filter(|&index| !exclude(index))
        .map(|index| Decision {
            index,
            score: scores[index],
        })
        .collect();
    // Stable: equal scores stay in their order.
    all.sort_by(|a, b| b.score.score.partial_cmp(&a.score.score).unwrap());
    all.truncate(k);
    all
}

/// The distribution that the items of a set are drawn from.
#[derive(Debug, Clone, Copy)]
enum Draw {
    /// Each by itself, of any length.
    Apart,
    /// All of length 1.
    Unit,
    /// From few, so that many are equal, some of them zero.
    Few,
    /// Along few directions, so that most of the space is unknown.
    Flat,
}

fn rows(rng: &mut Xoshiro256PlusPlus, draw: Draw, dim: usize, len: usize) -> Vec<f64> {
    let mut free: Vec<f64> = (0..dim * len)
        .map(|_| rng.random_range(-1.0..1.0))
        .collect();
    match draw {
        Draw::Apart => {}
        Draw::Unit => {
            for row in free.chunks_exact_mut(dim) {
                let length = row.iter().map(|v| v * v).sum::<f64>().sqrt();
                row.iter_mut().for_each(|v| *v /= length);
            }
        }
        Draw::Few => {
            let few: Vec<f64> = free[..dim * len.min(7)].to_vec();
            for row in free.chunks_exact_mut(dim) {
                let from = rng.random_range(0..8) * dim;
                match few.get(from..from + dim) {
                    Some(one) => row.copy_from_slice(one),
                    None => row.fill(0.0),
                }
            }
        }
        Draw::Flat => {
            for row in free.chunks_exact_mut(dim) {
                let end = dim.min(2);
                row[end..].iter_mut().for_each(|v| *v *= 1e-3);
            }
        }
    }
    free
}

prop_compose! {
    fn params()(squared: bool, fixed: bool, beta in prop_oneof![Just(0.0), 0.01f64..3.0]) -> Params {
        Params {
            index: if squared { Index::SquaredNorm } else { Index::Norm },
            exploration: if fixed {
                Exploration::Fixed(beta)
            } else {
                Exploration::Growing { scale: beta }
            },
            ..Params::tuned()
        }
    }
}

fn draws() -> impl Strategy<Value = Draw> {
    prop_oneof![
        Just(Draw::Apart),
        Just(Draw::Unit),
        Just(Draw::Few),
        Just(Draw::Flat)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_best_are_those_of_the_full_scan(
        dim in 1usize..40, len in prop_oneof![1usize..60, 1000usize..3000], k in prop_oneof![0usize..20, 100usize..4000],
        rounds in prop_oneof![Just(0usize), 1usize..300], params in params(), draw in draws(), learned in draws(),
        without in prop_oneof![Just(0.0), 0.0f64..0.9, Just(1.0)], seed: u64,
    ) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let items = ItemSet::from_rows(dim, &rows(&mut rng, draw, dim, len)).unwrap();
        let tastes = rows(&mut rng, Draw::Unit, dim, 1);
        let taught = rows(&mut rng, learned, dim, rounds);
        let gone: Vec<bool> = (0..len).map(|_| rng.random_bool(without)).collect();
        let mut policies: [Box<dyn Policy>; 3] = [
            Box::new(Sclub::new(dim, Users::Appear, &params).unwrap()),
            Box::new(LinUcbInd::new(dim, &params).unwrap()),
            Box::new(LinUcbShared::new(dim, Groups::One, &params).unwrap()),
        ];
        let mut best = vec![Decision { index: 9, score: sclub::Score { score: 0.0, mean: 0.0, width: 0.0 } }];
        for policy in &mut policies {
            for item in taught.chunks_exact(dim) {
                let reward: f64 = item.iter().zip(&tastes).map(|(x, w)| x * w).sum();
                policy.learn(3, item, reward).unwrap();
            }
            policy.best(3, &items, k, &|index| gone[index], &mut best).unwrap();
            let expected = full_scan(&**policy, &items, k, &|index| gone[index]);
            prop_assert_eq!(&best, &expected);
            policy.best(3, &items, 1, &|_| false, &mut best).unwrap();
            prop_assert_eq!(best[0], policy.recommend(3, &items).unwrap());
        }
    }
}

#[test]
fn what_recommend_refuses_best_refuses() {
    let policy = LinUcbInd::new(2, &Params::tuned()).unwrap();
    let mut best = Vec::new();
    let empty = ItemSet::new(2).unwrap();
    let refused = policy.best(1, &empty, 3, &|_| false, &mut best);
    assert_eq!(refused, Err(Error::NoCandidates));
    let other = ItemSet::from_rows(3, &[0.0; 3]).unwrap();
    let refused = policy.best(1, &other, 3, &|_| false, &mut best);
    assert!(matches!(refused, Err(Error::DimensionMismatch { .. })));
}
