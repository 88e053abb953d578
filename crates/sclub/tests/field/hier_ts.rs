//! `hier-ts` and `mix-ts`: compared with the joint posterior of all weights, worked out densely.

use proptest::prelude::*;
use sclub::{ItemSet, Policy, UserId, Users, Value};

use crate::common::*;

const V: f64 = 0.3;

fn sds(prior: f64, user: f64, noise: f64) -> Vec<(&'static str, Value)> {
    vec![
        ("prior_sd", number(prior)),
        ("user_sd", number(user)),
        ("noise", number(noise)),
    ]
}

/// Draws of a user's weights: the scores of the unit vectors.
fn draw(policy: &dyn Policy, draw: u64, user: UserId) -> Vec<f64> {
    let dim = policy.dim();
    let unit: Vec<f64> = (0..dim * dim)
        .map(|at| f64::from(u8::from(at % (dim + 1) == 0)))
        .collect();
    let (items, mut scores) = (ItemSet::from_rows(dim, &unit).unwrap(), Vec::new());
    policy
        .explain_drawn(draw, user, &items, &mut scores)
        .unwrap();
    scores.iter().map(|score| score.score).collect()
}

/// Mean and covariance of a user's weights given everything: users' weights and one mean for each group are one Gaussian.
fn joint(
    dim: usize,
    groups: &[u64],
    [prior, spread, noise]: [f64; 3],
    seen: &[(UserId, Vec<f64>, f64)],
    user: usize,
) -> (Vec<f64>, Vec<Vec<f64>>) {
    let users = groups.len();
    let size = (users + users) * dim;
    let mut precision = vec![vec![0.0; size]; size];
    let mut moment = vec![0.0; size];
    for i in 0..dim {
        for (u, &group) in groups.iter().enumerate() {
            let (own, centre) = (u * dim + i, (users + group as usize) * dim + i);
            for (a, b, sign) in [
                (own, own, 1.0),
                (centre, centre, 1.0),
                (own, centre, -1.0),
                (centre, own, -1.0),
            ] {
                precision[a][b] += sign / (spread * spread);
            }
        }
        for centre in users..users + users {
            precision[centre * dim + i][centre * dim + i] += 1.0 / (prior * prior);
        }
    }
    for (u, item, reward) in seen {
        for i in 0..dim {
            let at = *u as usize * dim;
            moment[at + i] += reward * item[i] / (noise * noise);
            for j in 0..dim {
                precision[at + i][at + j] += item[i] * item[j] / (noise * noise);
            }
        }
    }
    let inverse = invert(precision);
    let rows = user * dim..(user + 1) * dim;
    let mean = rows
        .clone()
        .map(|i| inverse[i].iter().zip(&moment).map(|(a, b)| a * b).sum());
    let covariance = rows.clone().map(|i| inverse[i][rows.clone()].to_vec());
    (mean.collect(), covariance.collect())
}

fn invert(mut matrix: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let size = matrix.len();
    for (i, row) in matrix.iter_mut().enumerate() {
        row.extend((0..size).map(|j| f64::from(u8::from(i == j))));
    }
    for i in 0..size {
        let scale = matrix[i][i];
        matrix[i].iter_mut().for_each(|x| *x /= scale);
        let pivot = matrix[i].clone();
        for (other, row) in matrix.iter_mut().enumerate() {
            let weight = if other == i { 0.0 } else { row[i] };
            row.iter_mut()
                .zip(&pivot)
                .for_each(|(x, p)| *x -= weight * p);
        }
    }
    matrix.into_iter().map(|row| row[size..].to_vec()).collect()
}

/// Plays rounds and returns what was observed.
fn live(policy: &mut dyn Policy, rounds: &[Round]) -> Vec<(UserId, Vec<f64>, f64)> {
    let play = |round: &Round| {
        let index = round.play(policy).index;
        (round.user, round.features(index), round.reward(index))
    };
    rounds.iter().map(play).collect()
}

fn assert_near(got: &[f64], expected: &[f64], tolerance: f64) {
    for (a, b) in got.iter().zip(expected) {
        assert!((a - b).abs() < tolerance, "{got:?} {expected:?}");
    }
}

/// As the library spreads bits: the random number of the draw of the mean.
fn number_of_centre(draw: u64) -> u64 {
    let spread = |word: u64| (word ^ (word >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let word = spread(spread(draw ^ 1));
    word ^ (word >> 32)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..Default::default() })]

    #[test]
    fn without_a_mean_to_learn_it_is_lints(seed: u64) {
        let mut alone = make("lints", &[("draw_scale", number(V))]);
        let mut hier = make("hier-ts", &sds(0.0, V, V));
        assert_same(&mut *hier, &mut *alone, &rounds(seed, 3, 150), 1e-9);
    }

    #[test]
    fn without_differences_it_is_lints_for_all(seed: u64) {
        for name in ["hier-ts", "mix-ts"] {
            let mut shared = make("ts:linucb-one", &[("draw_scale", number(V))]);
            let mut given = sds(V, 0.0, V);
            if name == "mix-ts" {
                given.push(("components", number(1.0)));
            }
            let mut hier = make(name, &given);
            for (draw, round) in rounds(seed, 3, 150).iter().enumerate() {
                let draw = draw as u64;
                let one = hier.recommend_drawn(draw, round.user, &round.items).unwrap();
                let other = shared.recommend_drawn(number_of_centre(draw), round.user, &round.items).unwrap();
                prop_assert_eq!(one.index, other.index);
                prop_assert!((one.score.score - other.score.score).abs() < 1e-9);
                let item = round.features(one.index);
                for policy in [&mut hier, &mut shared] {
                    policy.learn(round.user, &item, round.reward(one.index)).unwrap();
                }
            }
        }
    }

    #[test]
    fn the_expectation_is_that_of_the_joint_posterior(seed: u64, prior in 0.1f64..1.0, user in 0.05f64..1.0, noise in 0.1f64..1.0) {
        let mut policy = make_for("hier-ts", 3, Users::Appear, &sds(prior, user, noise));
        let seen = live(&mut *policy, &rounds_of(seed, 5, 3, 2, 60));
        for user_id in 0..5 {
            let (mean, _) = joint(3, &[0; 5], [prior, user, noise], &seen, user_id);
            assert_near(&policy.estimate(user_id as u64).unwrap(), &mean, 1e-8);
        }
    }

    /// Whichever components users were moved to and from, each knows the rewards of its users and no others.
    #[test]
    fn a_component_knows_its_users(seed: u64, components in 2u64..10) {
        let mut given = sds(0.5, 0.1, 0.2);
        given.push(("components", number(components as f64)));
        let mut policy = make_for("mix-ts", 3, Users::Appear, &given);
        let seen = live(&mut *policy, &rounds_of(seed, 6, 3, 3, 80));
        // Groups by the first user of the same component; a user who was not seen is alone.
        let group = |user: u64| {
            let component = policy.cluster_of(user);
            let same = (0..user).find(|&other| component.is_some() && policy.cluster_of(other) == component);
            same.unwrap_or(user)
        };
        let groups: Vec<u64> = (0..6).map(group).collect();
        for user in 0..6 {
            if policy.cluster_of(user).is_some() {
                let (mean, _) = joint(3, &groups, [0.5, 0.1, 0.2], &seen, user as usize);
                assert_near(&policy.estimate(user).unwrap(), &mean, 1e-8);
            }
        }
    }

    #[test]
    fn one_component_is_a_hierarchical_prior(seed: u64) {
        let mut given = sds(0.3, 0.2, 0.4);
        let mut hier = make("hier-ts", &given);
        given.push(("components", number(1.0)));
        assert_same(&mut *make("mix-ts", &given), &mut *hier, &rounds(seed, 3, 100), 0.0);
    }
}

#[test]
fn draws_have_the_covariance_of_the_joint_posterior() {
    const DRAWS: u64 = 40_000;
    let sizes = [0.5, 0.4, 0.6];
    let mut policy = make_for(
        "hier-ts",
        2,
        Users::Appear,
        &sds(sizes[0], sizes[1], sizes[2]),
    );
    let seen = live(&mut *policy, &rounds_of(1, 3, 2, 2, 12));
    for user in 0..3 {
        let (mean, covariance) = joint(2, &[0; 3], sizes, &seen, user);
        let mut moments = [[0.0; 2]; 2];
        for number in 0..DRAWS {
            let drawn = draw(&*policy, number, user as u64);
            for i in 0..2 {
                for j in 0..2 {
                    moments[i][j] += (drawn[i] - mean[i]) * (drawn[j] - mean[j]) / DRAWS as f64;
                }
            }
        }
        for i in 0..2 {
            for j in 0..2 {
                // Five standard errors of a sample covariance.
                let variance =
                    covariance[i][i] * covariance[j][j] + covariance[i][j] * covariance[i][j];
                let error = 5.0 * (variance / DRAWS as f64).sqrt();
                let (got, expected) = (moments[i][j], covariance[i][j]);
                assert!((got - expected).abs() < error, "{i} {j}: {got} {expected}");
            }
        }
    }
}

/// Users of one component have the same tastes.
#[test]
fn components_tell_tastes_apart() {
    for seed in 0..5 {
        let mut given = sds(0.5, 0.0, 0.1);
        given.push(("components", number(6.0)));
        let mut policy = make("mix-ts", &given);
        live(&mut *policy, &rounds(seed, 3, 800));
        for a in 0..USERS {
            for b in 0..a {
                if policy.cluster_of(a) == policy.cluster_of(b) {
                    assert_eq!(a % 3, b % 3, "seed {seed}: users {a} and {b}");
                }
            }
        }
    }
}

#[test]
fn they_learn_and_replay() {
    let rounds = rounds(2, 3, 2000);
    for name in ["hier-ts", "mix-ts"] {
        let (mut policy, mut again) = (make(name, &[]), make(name, &[]));
        let (regret, random) = regrets(&mut *policy, &rounds);
        assert!(
            regret > 0.0 && regret < random / 3.0,
            "{name}: {regret} of {random}"
        );
        regrets(&mut *again, &rounds);
        assert_eq!(policy.digest(), again.digest());
    }
}
