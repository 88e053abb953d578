//! Claims that hold for every policy that serves users with their neighbours in a graph.

#![allow(clippy::needless_range_loop, reason = "matrices read as in a textbook")]

use sclub::{Policy, UserId, Users, Value};

use crate::common::{DIM, USERS, make, make_for, regrets, rounds};

/// Regret is between that of the best choice, 0, and that of random choices.
pub fn learns(name: &str, given: &[(&str, Value)], share: f64) {
    let rounds = rounds(1, 3, 2000);
    let (regret, random) = regrets(&mut *make(name, given), &rounds);
    assert!(
        regret >= 0.0 && regret < share * random,
        "{regret} of {random}"
    );
}

/// Other names for the users change no choice, and neither does declaring them. The same history gives the same
/// digest, and another one a different digest.
pub fn ignores_names(name: &str, given: &[(&str, Value)]) {
    // A hash: neither order nor residues of ids are kept.
    let rename = |user: UserId| user.wrapping_add(3).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 7;
    let make_all = || {
        let all = [
            Users::Declared(USERS),
            Users::Declared(USERS),
            Users::Appear,
        ];
        all.map(|users| make_for(name, DIM, users, given))
    };
    let [mut one, mut again, mut renamed] = make_all();
    for round in rounds(2, 3, 600) {
        let shown = one.recommend(round.user, &round.items).unwrap();
        let other = renamed.recommend(rename(round.user), &round.items).unwrap();
        assert_eq!(shown, other);
        let (item, reward) = (round.features(shown.index), round.reward(shown.index));
        let before = one.digest();
        let learn = |policy: &mut dyn Policy, user| policy.learn(user, &item, reward).unwrap();
        learn(&mut *one, round.user);
        learn(&mut *again, round.user);
        learn(&mut *renamed, rename(round.user));
        assert_eq!(one.digest(), again.digest());
        assert_ne!(one.digest(), before);
        let (a, b) = (one.clusters(), renamed.clusters());
        assert_eq!(a, b);
    }
}

/// Users and a graph, written down as plainly as possible. The last user never appears.
pub struct Naive {
    /// G of each user.
    pub grams: Vec<[[f64; DIM]; DIM]>,
    /// b of each user.
    pub moments: Vec<[f64; DIM]>,
    pub counts: Vec<u64>,
    pub edges: Vec<Vec<bool>>,
}

impl Naive {
    pub fn new() -> Self {
        let users = USERS as usize + 1;
        Self {
            grams: vec![[[0.0; DIM]; DIM]; users],
            moments: vec![[0.0; DIM]; users],
            counts: vec![0; users],
            edges: vec![vec![true; users]; users],
        }
    }

    pub fn observe(&mut self, user: UserId, item: &[f64], reward: f64) {
        let user = user as usize;
        for i in 0..DIM {
            for k in 0..DIM {
                self.grams[user][i][k] += item[i] * item[k];
            }
            self.moments[user][i] += reward * item[i];
        }
        self.counts[user] += 1;
    }

    /// Sets the edges of a user by a test of two users.
    pub fn set_edges(&mut self, user: UserId, test: impl Fn(&Self, usize, usize) -> bool) {
        let user = user as usize;
        for other in (0..self.counts.len()).filter(|&other| other != user) {
            let is_there = test(self, user, other);
            self.edges[user][other] = is_there;
            self.edges[other][user] = is_there;
        }
    }

    /// A user and their neighbours.
    pub fn members(&self, user: UserId) -> Vec<usize> {
        let user = user as usize;
        let all = 0..self.counts.len();
        all.filter(|&other| other == user || self.edges[user][other])
            .collect()
    }

    /// (ridge + Σ G)⁻¹ and Σ b over some users.
    pub fn pool(&self, ridge: f64, users: &[usize]) -> ([[f64; DIM]; DIM], [f64; DIM]) {
        let (mut gram, mut moment) = ([[0.0; DIM]; DIM], [0.0; DIM]);
        for i in 0..DIM {
            gram[i][i] = ridge;
            for &user in users {
                for k in 0..DIM {
                    gram[i][k] += self.grams[user][i][k];
                }
                moment[i] += self.moments[user][i];
            }
        }
        (inverse(gram), moment)
    }

    /// (ridge + Σ G)⁻¹ Σ b
    pub fn estimate(&self, ridge: f64, users: &[usize]) -> [f64; DIM] {
        let (inverse, moment) = self.pool(ridge, users);
        times(&inverse, &moment)
    }
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub fn times(matrix: &[[f64; DIM]; DIM], vector: &[f64]) -> [f64; DIM] {
    std::array::from_fn(|i| dot(&matrix[i], vector))
}

/// By Gauss and Jordan, with exchange of rows.
pub fn inverse(mut matrix: [[f64; DIM]; DIM]) -> [[f64; DIM]; DIM] {
    let mut result: [[f64; DIM]; DIM] =
        std::array::from_fn(|i| std::array::from_fn(|k| f64::from(u8::from(i == k))));
    for column in 0..DIM {
        let largest =
            |&a: &usize, &b: &usize| matrix[a][column].abs().total_cmp(&matrix[b][column].abs());
        let pivot = (column..DIM).max_by(largest).unwrap();
        matrix.swap(column, pivot);
        result.swap(column, pivot);
        let scale = 1.0 / matrix[column][column];
        matrix[column] = matrix[column].map(|x| x * scale);
        result[column] = result[column].map(|x| x * scale);
        for row in (0..DIM).filter(|&row| row != column) {
            let weight = matrix[row][column];
            for k in 0..DIM {
                matrix[row][k] -= weight * matrix[column][k];
                result[row][k] -= weight * result[column][k];
            }
        }
    }
    result
}
