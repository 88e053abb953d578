//! DyClu.

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub::{Policy, Users, Value};

use crate::common::{DIM, USERS, assert_same, make, make_for, number, regrets, rounds};
use crate::graphs::{self, Naive, dot, times};

/// Every edge is tested after each observation.
const EXACT: [(&str, Value); 2] = [
    ("retest", Value::Number(0.0)),
    ("min_count", Value::Number(0.0)),
];

#[test]
fn it_learns() {
    graphs::learns("dyclu", &[("noise", number(0.1))], 0.3);
}

#[test]
fn names_do_not_matter() {
    graphs::ignores_names("dyclu", &[("noise", number(0.1))]);
    graphs::ignores_names(
        "dyclu",
        &[("noise", number(0.1)), ("detect", Value::Flag(true))],
    );
}

/// P(χ² > x) in closed form.
fn tail(degrees: usize, x: f64) -> f64 {
    let (e, normal) = (libm::exp(-x / 2.0), libm::erfc((x / 2.0).sqrt()));
    match degrees {
        1 => normal,
        2 => e,
        3 => normal + (2.0 * x / std::f64::consts::PI).sqrt() * e,
        4 => e * (1.0 + x / 2.0),
        _ => 1.0,
    }
}

/// The probability of data like those of two users, were they alike, from G and b; θ by a small ridge in place of
/// the pseudo-inverse. 2 without degrees of freedom.
fn probability(naive: &Naive, i: usize, j: usize, noise: f64, ridge: f64) -> f64 {
    let rank = |count: u64| (count as usize).min(DIM);
    let theta = [&[i][..], &[j], &[i, j]].map(|users| naive.estimate(ridge, users));
    let form = |user: usize, own: &[f64; DIM]| {
        let gap: Vec<f64> = own.iter().zip(&theta[2]).map(|(a, b)| a - b).collect();
        dot(&times(&naive.grams[user], &gap), &gap)
    };
    let s = (form(i, &theta[0]) + form(j, &theta[1])) / (noise * noise);
    let (t_i, t_j) = (naive.counts[i], naive.counts[j]);
    let degrees = rank(t_i) + rank(t_j) - rank(t_i + t_j);
    if degrees == 0 { 2.0 } else { tail(degrees, s) }
}

/// True if G of some users, who have enough observations, is almost singular.
fn is_almost_singular(naive: &Naive, users: &[usize]) -> bool {
    let count: u64 = users.iter().map(|&user| naive.counts[user]).sum();
    let (inverse, _) = naive.pool(0.0, users);
    let squares: f64 = inverse.iter().flatten().map(|x| x * x).sum();
    count >= DIM as u64 && (squares.is_nan() || squares.sqrt() > 1e8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..Default::default() })]

    #[test]
    fn level_0_makes_it_linucb_one(seed: u64, clusters in 1u64..4) {
        let beta = ("beta", number(0.3));
        let one = &mut *make("linucb-one", &[beta]);
        let given = [&EXACT[..], &[beta, ("level", number(0.0))]].concat();
        assert_same(&mut *make("dyclu", &given), one, &rounds(seed, clusters, 400), 1e-9);
    }

    #[test]
    fn level_1_makes_it_linucb_ind(seed: u64, clusters in 1u64..4) {
        let beta = ("beta", number(0.3));
        let ind = &mut *make("linucb-ind", &[beta]);
        let given = [&EXACT[..], &[beta, ("level", number(1.0))]].concat();
        assert_same(&mut *make("dyclu", &given), ind, &rounds(seed, clusters, 400), 1e-9);
    }

    /// Estimates of the pooled neighbours are those of a plain transcription with tests by estimates, in every round.
    #[test]
    fn estimates_are_those_of_a_plain_transcription(seed: u64, clusters in 1u64..4, level in 0.001f64..0.3) {
        let noise = 0.1;
        let given = [&EXACT[..], &[("level", number(level)), ("noise", number(noise))]].concat();
        let (mut policy, mut naive) = (make("dyclu", &given), Naive::new());
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        for round in rounds(seed, clusters, 250) {
            let index = rng.random_range(0..round.means.len());
            let (item, reward) = (round.features(index), round.reward(index));
            policy.learn(round.user, &item, reward).unwrap();
            naive.observe(round.user, &item, reward);
            let user = round.user as usize;
            let others = (0..=USERS as usize).filter(|&other| other != user);
            for other in others {
                let p = [1e-10, 1e-9].map(|ridge| probability(&naive, user, other, noise, ridge));
                let is_singular = [&[user][..], &[other], &[user, other]].map(|users| is_almost_singular(&naive, users));
                if is_singular.contains(&true) || (p[0] - p[1]).abs() > 1e-4 || (p[0] - level).abs() < 1e-4 {
                    // The ridge matters: the transcription cannot tell.
                    return Ok(());
                }
            }
            naive.set_edges(round.user, |naive, i, j| probability(naive, i, j, noise, 1e-10) > level);
            let user = rng.random_range(0..USERS + 1);
            let (got, expected) = (policy.estimate(user).unwrap(), naive.estimate(1.0, &naive.members(user)));
            for (a, b) in got.iter().zip(&expected) {
                prop_assert!((a - b).abs() < 1e-9, "{:?} {:?}", got, expected);
            }
        }
    }

    /// Tests do not depend on the coordinates of the items.
    #[test]
    fn a_change_of_coordinates_changes_no_edge(seed in prop_oneof![Just(11_128_374_170_315_878_469u64), any::<u64>()], level in prop_oneof![Just(0.235_109_124_019_280_36), 0.01f64..0.5]) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let given = [&EXACT[..], &[("level", number(level)), ("noise", number(0.1))]].concat();
        let (mut one, mut other) = (make("dyclu", &given), make("dyclu", &given));
        let matrix: [[f64; DIM]; DIM] = std::array::from_fn(|i| {
            std::array::from_fn(|k| rng.random_range(-1.0..1.0) + if i == k { 3.0 } else { 0.0 })
        });
        for round in rounds(seed, 3, 200) {
            let item = round.features(0);
            one.learn(round.user, &item, round.reward(0)).unwrap();
            other.learn(round.user, &times(&matrix, &item), round.reward(0)).unwrap();
            prop_assert_eq!(one.cluster_of(round.user), other.cluster_of(round.user));
            prop_assert_eq!(one.clusters(), other.clusters());
        }
    }
}

/// Three items that are independent, while the first three features of them hardly are: ranks must not depend on the
/// order of the features.
#[test]
fn ranks_do_not_depend_on_the_order_of_features() {
    let items = [
        [1.0, 0.2, 0.5, 0.3],
        [0.3, 1.0, 0.4, -0.6],
        [1.3, 1.2, 0.9 + 1e-4, 0.9],
        [0.1, -0.7, 0.2, 0.4],
        [-0.5, 0.3, 0.9, 0.1],
    ];
    // One degree of freedom. The level is chosen so that a second one would change the result.
    let rewards = [0.1, 0.2, 0.5, 0.0, 0.1];
    let apart = |order: [usize; DIM], noise: f64| {
        let given = [("noise", number(noise)), ("level", number(0.1))];
        let mut policy = make("dyclu", &[&EXACT[..], &given].concat());
        for (at, (item, reward)) in items.iter().zip(rewards).enumerate() {
            let item = order.map(|k| item[k]);
            policy.learn(u64::from(at >= 3), &item, reward).unwrap();
        }
        policy.clusters() == 2
    };
    let noises: Vec<f64> = (1..200).map(|step| 0.002 * f64::from(step)).collect();
    let all = |order| {
        noises
            .iter()
            .map(|&noise| apart(order, noise))
            .collect::<Vec<_>>()
    };
    let expected = all([3, 0, 1, 2]);
    assert!(expected.contains(&true) && expected.contains(&false));
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 1, 3], [1, 3, 0, 2]] {
        assert_eq!(all(order), expected, "{order:?}");
    }
}

/// Two users with one weight vector and Gaussian noise: the share told apart is the level, at every level. 400 pairs: the
/// distance of Kolmogorov and Smirnov exceeds 1.95/√400 with probability 0.001.
#[test]
fn p_values_of_equal_users_are_uniform() {
    const PAIRS: u64 = 400;
    let levels: Vec<f64> = (1..20).map(|step| f64::from(step) / 20.0).collect();
    let mut apart = vec![0u32; levels.len()];
    for seed in 0..PAIRS {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let weights: Vec<f64> = (0..DIM).map(|_| StandardNormal.sample(&mut rng)).collect();
        let mut policies: Vec<Box<dyn Policy>> = levels
            .iter()
            .map(|&level| {
                let given = [("level", number(level)), ("noise", number(0.7))];
                make_for("dyclu", DIM, Users::Appear, &[&EXACT[..], &given].concat())
            })
            .collect();
        for t in 0..30 {
            let item: Vec<f64> = (0..DIM).map(|_| StandardNormal.sample(&mut rng)).collect();
            let noise: f64 = StandardNormal.sample(&mut rng);
            let reward = dot(&item, &weights) + 0.7 * noise;
            for policy in &mut policies {
                policy.learn(u64::from(t % 3 == 0), &item, reward).unwrap();
            }
        }
        for (count, policy) in apart.iter_mut().zip(&policies) {
            *count += u32::from(policy.clusters() == 2);
        }
    }
    for (level, count) in levels.iter().zip(&apart) {
        let share = f64::from(*count) / PAIRS as f64;
        assert!(
            (share - level).abs() < 1.95 / (PAIRS as f64).sqrt(),
            "{level}: {share}"
        );
    }
}

/// Tests after a growth by the share `retest` only: fewer than 2% of the choices differ from those with all tests, and
/// the regret is the same within 5%.
#[test]
fn lazy_tests_change_little() {
    let (mut same, mut all, mut regret) = (0, 0, [0.0, 0.0]);
    for seed in 0..6 {
        let rounds = rounds(seed, 3, 1500);
        let make = |exact: bool| {
            let given = [("noise", number(0.1)), EXACT[1], EXACT[0]];
            make("dyclu", &given[..if exact { 3 } else { 2 }])
        };
        let (mut lazy, mut exact) = (make(false), make(true));
        regret[0] += regrets(&mut *make(false), &rounds).0;
        regret[1] += regrets(&mut *make(true), &rounds).0;
        for round in &rounds {
            let shown = lazy.recommend(round.user, &round.items).unwrap().index;
            all += 1;
            same += u32::from(exact.recommend(round.user, &round.items).unwrap().index == shown);
            let (item, reward) = (round.features(shown), round.reward(shown));
            lazy.learn(round.user, &item, reward).unwrap();
            exact.learn(round.user, &item, reward).unwrap();
        }
    }
    println!("{same} of {all} choices agree; regrets {regret:?}");
    assert!(f64::from(same) > 0.98 * f64::from(all), "{same} of {all}");
    assert!(
        (regret[0] - regret[1]).abs() < 0.05 * regret[1],
        "{regret:?}"
    );
}

/// Users change their tastes: with the detector the regret afterwards is smaller. Where they do not, it is
/// almost the same.
#[test]
fn the_detector_helps_where_users_change() {
    let regret = |detect: bool, second: u64| {
        let given = [
            ("noise", number(0.1)),
            ("detect", Value::Flag(detect)),
            ("window", number(10.0)),
        ];
        let mut policy = make("dyclu", &given);
        regrets(&mut *policy, &rounds(1, 3, 1500));
        regrets(&mut *policy, &rounds(second, 3, 1500)).0
    };
    let (with, without) = (regret(true, 2), regret(false, 2));
    assert!(with < 0.7 * without, "{with} {without}");
    let (with, without) = (regret(true, 1), regret(false, 1));
    assert!(with < 1.2 * without + 1.0, "{with} {without}");
}
