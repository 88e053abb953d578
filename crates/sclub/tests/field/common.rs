//! A small world for the tests, and two policies compared on it.

#![allow(dead_code, reason = "not every test needs all of it")]

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub::{Decision, ItemSet, Policy, Preset, Setup, UserId, Users, Value, find_policy};

/// Features of an item.
pub const DIM: usize = 4;

/// Users of the world, known from the start.
pub const USERS: u64 = 12;

/// The items shown in a round.
pub const CANDIDATES: usize = 6;

/// A policy by name, with its default preset and given constants.
pub fn make(name: &str, given: &[(&str, Value)]) -> Box<dyn Policy> {
    make_for(name, DIM, Users::Declared(USERS), given)
}

/// As [`make`], for other dimensions and users.
pub fn make_for(name: &str, dim: usize, users: Users, given: &[(&str, Value)]) -> Box<dyn Policy> {
    let spec = find_policy(name).unwrap_or_else(|| panic!("there is no policy '{name}'"));
    let setup = Setup {
        users,
        seed: 5,
        ..Setup::new(dim)
    };
    let preset = spec.presets.first().copied().unwrap_or(Preset::Default);
    let values = spec.values(preset, given, &setup).expect("valid constants");
    values.make(&setup).expect("valid constants")
}

/// A number as a constant.
pub fn number(value: f64) -> Value {
    Value::Number(value)
}

/// One round of a world: the user, the candidates, the mean reward of each, and the noise of the reward.
#[derive(Clone)]
pub struct Round {
    pub user: UserId,
    pub items: ItemSet,
    pub means: Vec<f64>,
    pub noise: f64,
}

impl Round {
    /// The features of a candidate.
    pub fn features(&self, index: usize) -> Vec<f64> {
        self.items.item(index).collect()
    }

    /// The reward of a candidate.
    pub fn reward(&self, index: usize) -> f64 {
        self.means[index] + self.noise
    }

    /// Has the policy choose, and learn from its choice.
    pub fn play(&self, policy: &mut dyn Policy) -> Decision {
        let decision = policy
            .recommend(self.user, &self.items)
            .expect("valid items");
        let (item, reward) = (self.features(decision.index), self.reward(decision.index));
        policy
            .learn(self.user, &item, reward)
            .expect("a valid round");
        decision
    }
}

/// Rounds of a world with `clusters` clusters of users: unit items, unit weight vectors, Gaussian noise of 0.1.
/// User u belongs to cluster u mod `clusters`.
pub fn rounds(seed: u64, clusters: u64, count: usize) -> Vec<Round> {
    rounds_of(seed, USERS, DIM, clusters, count)
}

/// As [`rounds`], for other numbers of users and features.
pub fn rounds_of(seed: u64, users: u64, dim: usize, clusters: u64, count: usize) -> Vec<Round> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let weights: Vec<Vec<f64>> = (0..clusters).map(|_| unit(&mut rng, dim)).collect();
    let round = |_| {
        let user = rng.random_range(0..users);
        let rows: Vec<Vec<f64>> = (0..CANDIDATES).map(|_| unit(&mut rng, dim)).collect();
        let weight = &weights[(user % clusters) as usize];
        let mean = |row: &Vec<f64>| row.iter().zip(weight).map(|(x, w)| x * w).sum();
        let noise: f64 = StandardNormal.sample(&mut rng);
        Round {
            user,
            items: ItemSet::from_rows(dim, &rows.concat()).expect("valid items"),
            means: rows.iter().map(mean).collect(),
            noise: 0.1 * noise,
        }
    };
    (0..count).map(round).collect()
}

fn unit(rng: &mut Xoshiro256PlusPlus, dim: usize) -> Vec<f64> {
    let draws: Vec<f64> = (0..dim).map(|_| StandardNormal.sample(rng)).collect();
    let length = draws.iter().map(|x| x * x).sum::<f64>().sqrt();
    draws.iter().map(|x| x / length).collect()
}

/// Checks that two policies choose the same items, each learning from its own choices. If `tolerance` is 0, their
/// scores must have the same bits too.
pub fn assert_same(a: &mut dyn Policy, b: &mut dyn Policy, rounds: &[Round], tolerance: f64) {
    for (number, round) in rounds.iter().enumerate() {
        let (x, y) = (round.play(a), round.play(b));
        assert_eq!(x.index, y.index, "round {number}: {x:?} and {y:?}");
        let difference = (x.score.score - y.score.score).abs();
        assert!(difference <= tolerance, "round {number}: {x:?} and {y:?}");
    }
}

/// The sum of regrets of a policy, and that of choosing at random.
pub fn regrets(policy: &mut dyn Policy, rounds: &[Round]) -> (f64, f64) {
    let (mut regret, mut random) = (0.0, 0.0);
    for round in rounds {
        let best = round.means.iter().copied().fold(f64::MIN, f64::max);
        regret += best - round.means[round.play(policy).index];
        random += best - round.means.iter().sum::<f64>() / round.means.len() as f64;
    }
    (regret, random)
}

/// The ridge estimate (I + Σ x xᵀ)⁻¹ Σ y x, by elimination.
pub fn ridge<'a>(dim: usize, observations: impl Iterator<Item = (&'a [f64], f64)>) -> Vec<f64> {
    let mut rows: Vec<Vec<f64>> = (0..dim)
        .map(|i| (0..=dim).map(|j| f64::from(u8::from(i == j))).collect())
        .collect();
    for (item, reward) in observations {
        for (row, x) in rows.iter_mut().zip(item) {
            for (sum, y) in row.iter_mut().zip(item.iter().chain([&reward])) {
                *sum += x * y;
            }
        }
    }
    for i in 0..dim {
        let pivot = rows[i].clone();
        for (other, row) in rows.iter_mut().enumerate() {
            if other != i {
                let weight = row[i] / pivot[i];
                row.iter_mut()
                    .zip(&pivot)
                    .for_each(|(x, p)| *x -= weight * p);
            }
        }
    }
    (0..dim).map(|i| rows[i][dim] / rows[i][i]).collect()
}

/// The world must be one that a policy can learn.
#[test]
fn linucb_learns_it() {
    let rounds = rounds(1, 3, 2000);
    let (regret, random) = regrets(&mut *make("linucb-ind", &[]), &rounds);
    assert!(regret < random / 4.0, "{regret} of {random}");
}

/// The checks that all policies share: it learns, the same history gives the same digest, and other names of the users
/// change nothing.
pub fn assert_sound(name: &str, given: &[(&str, Value)]) {
    let rounds = rounds(2, 3, 1500);
    let appear = || make_for(name, DIM, Users::Appear, given);
    for mut policy in [make(name, given), appear()] {
        let (regret, random) = regrets(&mut *policy, &rounds);
        assert!(0.0 <= regret && regret < 0.6 * random, "{regret} {random}");
    }
    let (mut one, mut again, mut renamed) = (appear(), appear(), appear());
    // A hash: neither order nor residues of ids are kept.
    let rename = |user: UserId| user.wrapping_add(3).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 7;
    for round in &rounds[..400] {
        let (item, user) = (round.features(0), rename(round.user));
        assert_eq!(
            one.recommend(round.user, &round.items),
            renamed.recommend(user, &round.items)
        );
        one.learn(round.user, &item, round.reward(0)).unwrap();
        again.learn(round.user, &item, round.reward(0)).unwrap();
        renamed.learn(user, &item, round.reward(0)).unwrap();
        assert_eq!(one.estimate(round.user), renamed.estimate(user));
        assert_eq!(one.cluster_of(round.user), renamed.cluster_of(user));
    }
    assert_eq!(one.digest(), again.digest());
    one.learn(1, &rounds[0].features(1), 0.5).unwrap();
    assert_ne!(one.digest(), again.digest());
}

/// (ridge I + Σ x xᵀ)⁻¹ v over some items, by Gauss elimination.
pub fn solve(ridge: f64, items: &[Vec<f64>], v: &[f64]) -> Vec<f64> {
    let dim = v.len();
    let mut rows: Vec<Vec<f64>> = (0..dim)
        .map(|i| {
            let diagonal = |j| if i == j { ridge } else { 0.0 };
            let entry = |j: usize| items.iter().map(|x| x[i] * x[j]).sum::<f64>() + diagonal(j);
            (0..dim).map(entry).chain([v[i]]).collect()
        })
        .collect();
    for pivot in 0..dim {
        let lead = rows[pivot][pivot];
        let own: Vec<f64> = rows[pivot].iter().map(|value| value / lead).collect();
        for (at, row) in rows.iter_mut().enumerate() {
            let factor = if at == pivot { 0.0 } else { row[pivot] };
            row.iter_mut()
                .zip(&own)
                .for_each(|(value, own)| *value -= factor * own);
        }
        rows[pivot] = own;
    }
    rows.iter().map(|row| row[dim]).collect()
}

/// aᵀb
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
