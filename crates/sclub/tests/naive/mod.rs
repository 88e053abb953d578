//! The paper's pseudo-code taken at its word: full matrices, full inverses, full scans.
//!
//! No code is shared with the library, only the decisions of `docs/algorithm.md`. A comparison that
//! hangs on less than [`CLOSE`] is remembered: rounding may decide it either way.

pub mod published;

use std::collections::{BTreeMap, BTreeSet};

use sclub::{Exploration, Index, Params};

/// Differences below this are ties.
pub const CLOSE: f64 = 1e-9;

pub type Matrix = Vec<Vec<f64>>;

pub fn identity(d: usize) -> Matrix {
    (0..d)
        .map(|i| (0..d).map(|k| f64::from(u8::from(i == k))).collect())
        .collect()
}

/// Gauss–Jordan elimination with pivoting.
pub fn inverse(matrix: &Matrix) -> Matrix {
    let d = matrix.len();
    let mut a = matrix.clone();
    let mut b = identity(d);
    for column in 0..d {
        let pivot = (column..d)
            .max_by(|&i, &k| a[i][column].abs().total_cmp(&a[k][column].abs()))
            .expect("rows are left");
        a.swap(column, pivot);
        b.swap(column, pivot);
        let scale = 1.0 / a[column][column];
        for k in 0..d {
            a[column][k] *= scale;
            b[column][k] *= scale;
        }
        for row in (0..d).filter(|&row| row != column) {
            let factor = a[row][column];
            if factor != 0.0 {
                for k in 0..d {
                    a[row][k] -= factor * a[column][k];
                    b[row][k] -= factor * b[column][k];
                }
            }
        }
    }
    b
}

pub fn times(matrix: &Matrix, vector: &[f64]) -> Vec<f64> {
    matrix
        .iter()
        .map(|row| row.iter().zip(vector).map(|(m, v)| m * v).sum())
        .collect()
}

pub fn inner(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).powi(2))
        .sum::<f64>()
        .sqrt()
}

pub fn f(t: f64) -> f64 {
    ((1.0 + (1.0 + t).ln()) / (1.0 + t)).sqrt()
}

/// (S, b, T)
#[derive(Debug, Clone)]
pub struct Info {
    pub s: Matrix,
    pub b: Vec<f64>,
    pub t: u64,
}

impl Info {
    pub fn new(d: usize) -> Self {
        Self {
            s: identity(d),
            b: vec![0.0; d],
            t: 0,
        }
    }

    pub fn observe(&mut self, x: &[f64], y: f64) {
        for (i, row) in self.s.iter_mut().enumerate() {
            for (k, entry) in row.iter_mut().enumerate() {
                *entry += x[i] * x[k];
            }
            self.b[i] += y * x[i];
        }
        self.t += 1;
    }

    pub fn theta(&self) -> Vec<f64> {
        times(&inverse(&self.s), &self.b)
    }

    /// Adds `other` with the sign given; the identity is counted once.
    pub fn combine(&mut self, other: &Info, sign: f64) {
        let d = self.b.len();
        for i in 0..d {
            for k in 0..d {
                let unit = f64::from(u8::from(i == k));
                self.s[i][k] += sign * (other.s[i][k] - unit);
            }
            self.b[i] += sign * other.b[i];
        }
        self.t = if sign > 0.0 {
            self.t + other.t
        } else {
            self.t - other.t
        };
    }

    /// The score of every item, by the paper's line 11 or the released code's variant of it.
    pub fn scores(&self, params: &Params, rounds_before: u64, items: &[Vec<f64>]) -> Vec<f64> {
        let d = self.b.len() as f64;
        let n = self.t as f64;
        let beta = match params.exploration {
            Exploration::Fixed(beta) => beta,
            Exploration::Growing { scale } => {
                let t = rounds_before.max(1) as f64;
                scale * ((d * (1.0 + n / d).ln() + 4.0 * t.ln() + 2f64.ln()).sqrt() + 1.0)
            }
        };
        let s_inverse = inverse(&self.s);
        let theta = times(&s_inverse, &self.b);
        items
            .iter()
            .map(|x| {
                let squared = inner(x, &times(&s_inverse, x));
                let width = match params.index {
                    Index::Norm => squared.max(0.0).sqrt(),
                    Index::SquaredNorm => squared,
                };
                inner(&theta, x) + beta * width
            })
            .collect()
    }
}

#[derive(Debug, Clone)]
pub struct Set {
    pub info: Info,
    pub users: BTreeSet<u64>,
    pub pivot: (Vec<f64>, u64),
}

/// Algorithms 1 to 4.
pub struct NaiveSclub {
    pub d: usize,
    pub params: Params,
    pub users: BTreeMap<u64, Info>,
    pub sets: BTreeMap<u64, Set>,
    pub checked: BTreeSet<u64>,
    pub tau: u64,
    pub last_label: u64,
    /// True if some decision hung on less than `CLOSE`.
    pub doubtful: bool,
}

impl NaiveSclub {
    pub fn new(d: usize, declared: u64, params: Params) -> Self {
        let set = Set {
            info: Info::new(d),
            users: (0..declared).collect(),
            pivot: (vec![0.0; d], 0),
        };
        Self {
            d,
            params,
            users: (0..declared).map(|user| (user, Info::new(d))).collect(),
            sets: BTreeMap::from([(1, set)]),
            checked: BTreeSet::new(),
            tau: 0,
            last_label: 1,
            doubtful: false,
        }
    }

    pub fn label_of(&self, user: u64) -> u64 {
        self.sets
            .iter()
            .find(|(_, set)| set.users.contains(&user))
            .map_or(1, |(&label, _)| label)
    }

    pub fn scores(&self, user: u64, items: &[Vec<f64>]) -> Vec<f64> {
        self.sets[&self.label_of(user)]
            .info
            .scores(&self.params, self.tau, items)
    }

    pub fn learn(&mut self, round: &[(u64, Vec<f64>, f64)]) {
        self.tau += 1;
        if (self.tau + 1).is_power_of_two() {
            self.checked.clear();
            for set in self.sets.values_mut() {
                set.pivot = (set.info.theta(), set.info.t);
            }
        }
        for (user, x, y) in round {
            self.admit(*user);
            self.users.get_mut(user).expect("admitted").observe(x, *y);
            let label = self.label_of(*user);
            self.sets
                .get_mut(&label)
                .expect("alive")
                .info
                .observe(x, *y);
        }
        for (user, ..) in round {
            self.split(*user);
            self.checked.insert(*user);
        }
        for (user, ..) in round {
            while self.merge(*user) {}
        }
    }

    fn admit(&mut self, user: u64) {
        if self.users.contains_key(&user) {
            return;
        }
        self.users.insert(user, Info::new(self.d));
        let set = self.sets.get_mut(&1).expect("the first cluster never ends");
        if set.users.len() <= 1 {
            set.pivot = (set.info.theta(), set.info.t);
        }
        set.users.insert(user);
    }

    fn exceeds(&mut self, a: f64, b: f64) -> bool {
        self.doubtful |= (a - b).abs() < CLOSE;
        a > b
    }

    fn split(&mut self, user: u64) {
        let label = self.label_of(user);
        let set = self.sets[&label].clone();
        if set.users.len() == 1 {
            return;
        }
        let own = self.users[&user].clone();
        let tau = self.tau as f64;
        let apart = distance(&own.theta(), &set.pivot.0);
        let allowed = self.params.alpha_theta * (f(own.t as f64) + f(set.pivot.1 as f64));
        let mut inconsistent = self.exceeds(apart, allowed);
        for other in &set.users {
            let gap = (own.t as f64 / tau - self.users[other].t as f64 / tau).abs();
            inconsistent |= self.exceeds(gap, 2.0 * self.params.alpha_p * f(tau));
        }
        if inconsistent {
            let old = self.sets.get_mut(&label).expect("alive");
            old.info.combine(&own, -1.0);
            old.users.remove(&user);
            self.last_label += 1;
            let users = BTreeSet::from([user]);
            let pivot = (own.theta(), own.t);
            self.sets.insert(
                self.last_label,
                Set {
                    info: own,
                    users,
                    pivot,
                },
            );
        }
    }

    /// Merges the user's cluster with the first that agrees; false where none does.
    fn merge(&mut self, user: u64) -> bool {
        let label = self.label_of(user);
        let is_checked = |set: &Set| set.users.iter().all(|user| self.checked.contains(user));
        let set = self.sets[&label].clone();
        if !is_checked(&set) {
            return false;
        }
        let tau = self.tau as f64;
        let theta = set.info.theta();
        let frequency = |set: &Set| set.info.t as f64 / (set.users.len() as f64 * tau);
        let others: Vec<(u64, Set)> = self
            .sets
            .iter()
            .filter(|&(&other, set)| other != label && is_checked(set))
            .map(|(&other, set)| (other, set.clone()))
            .collect();
        for (other, candidate) in others {
            let apart = distance(&theta, &candidate.info.theta());
            let allowed =
                self.params.alpha_theta / 2.0 * (f(set.info.t as f64) + f(candidate.info.t as f64));
            let gap = (frequency(&set) - frequency(&candidate)).abs();
            let (far, unlike) = (
                !self.exceeds(allowed, apart),
                !self.exceeds(self.params.alpha_p * f(tau), gap),
            );
            if far || unlike {
                continue;
            }
            let (kept, gone) = (label.min(other), label.max(other));
            let gone = self.sets.remove(&gone).expect("alive");
            let kept = self.sets.get_mut(&kept).expect("alive");
            kept.info.combine(&gone.info, 1.0);
            kept.users.extend(gone.users);
            kept.pivot = (kept.info.theta(), kept.info.t);
            return true;
        }
        false
    }
}

/// CLUB on an explicit set of edges.
pub struct NaiveClub {
    pub d: usize,
    pub params: Params,
    pub users: BTreeMap<u64, Info>,
    pub edges: BTreeSet<(u64, u64)>,
    pub tau: u64,
    pub doubtful: bool,
}

impl NaiveClub {
    pub fn component(&self, user: u64) -> BTreeSet<u64> {
        let mut found = BTreeSet::from([user]);
        loop {
            let more: Vec<u64> = self
                .edges
                .iter()
                .flat_map(|&(a, b)| [(a, b), (b, a)])
                .filter(|(a, b)| found.contains(a) && !found.contains(b))
                .map(|(_, b)| b)
                .collect();
            if more.is_empty() {
                return found;
            }
            found.extend(more);
        }
    }

    pub fn sums(&self, user: u64) -> Info {
        let mut sums = Info::new(self.d);
        for member in self.component(user) {
            if let Some(info) = self.users.get(&member) {
                sums.combine(info, 1.0);
            }
        }
        sums
    }

    pub fn scores(&self, user: u64, items: &[Vec<f64>]) -> Vec<f64> {
        self.sums(user).scores(&self.params, self.tau, items)
    }

    pub fn learn(&mut self, round: &[(u64, Vec<f64>, f64)]) {
        self.tau += 1;
        for (user, x, y) in round {
            self.users
                .entry(*user)
                .or_insert_with(|| Info::new(self.d))
                .observe(x, *y);
        }
        let empty = Info::new(self.d);
        for (user, ..) in round {
            let edges: Vec<_> = self
                .edges
                .iter()
                .copied()
                .filter(|&(a, b)| a == *user || b == *user)
                .collect();
            for (a, b) in edges {
                let (one, two) = (
                    self.users.get(&a).unwrap_or(&empty),
                    self.users.get(&b).unwrap_or(&empty),
                );
                let apart = distance(&one.theta(), &two.theta());
                let allowed = self.params.alpha_theta * (f(one.t as f64) + f(two.t as f64));
                self.doubtful |= (apart - allowed).abs() < CLOSE;
                if apart > allowed {
                    self.edges.remove(&(a, b));
                }
            }
        }
    }
}
