//! The authors' published code in outline, with arrays that are really shared, and a switch for each
//! of its deviations.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use sclub::{Deviations, Params};

use super::{CLOSE, Info, Matrix, distance, f, inverse, times};

/// S and b, which two owners may add to.
type Arrays = Rc<RefCell<Info>>;

pub struct User {
    arrays: Arrays,
    n: u64,
    theta: Vec<f64>,
}

pub struct Cluster {
    arrays: Arrays,
    n: u64,
    s_inverse: Matrix,
    pub theta: Vec<f64>,
    checks: BTreeMap<u64, bool>,
    checked: bool,
    pivot: (Vec<f64>, u64),
}

impl Cluster {
    fn new(arrays: Arrays, n: u64, checks: BTreeMap<u64, bool>) -> Self {
        let mut cluster = Self {
            arrays,
            n,
            s_inverse: Matrix::new(),
            theta: Vec::new(),
            checks,
            checked: false,
            pivot: (Vec::new(), 0),
        };
        cluster.invert();
        cluster.pivot = (cluster.theta.clone(), n);
        cluster
    }

    fn invert(&mut self) {
        self.s_inverse = inverse(&self.arrays.borrow().s);
        self.theta = times(&self.s_inverse, &self.arrays.borrow().b);
    }
}

pub struct NaivePublished {
    d: usize,
    params: Params,
    deviations: Deviations,
    pub users: BTreeMap<u64, User>,
    pub clusters: BTreeMap<u64, Cluster>,
    tau: u64,
    pub last_label: u64,
    pub doubtful: bool,
}

impl NaivePublished {
    pub fn new(d: usize, declared: u64, params: Params, deviations: Deviations) -> Self {
        let checks = (0..declared).map(|user| (user, false)).collect();
        let first = Cluster::new(Rc::new(RefCell::new(Info::new(d))), 0, checks);
        let mut policy = Self {
            d,
            params,
            deviations,
            users: BTreeMap::new(),
            clusters: BTreeMap::from([(1, first)]),
            tau: 0,
            last_label: 1,
            doubtful: false,
        };
        for user in 0..declared {
            policy.add_user(user);
        }
        policy
    }

    fn add_user(&mut self, user: u64) {
        let arrays = Rc::new(RefCell::new(Info::new(self.d)));
        let theta = vec![0.0; self.d];
        self.users.insert(
            user,
            User {
                arrays,
                n: 0,
                theta,
            },
        );
    }

    pub fn label_of(&self, user: u64) -> u64 {
        self.clusters
            .iter()
            .find(|(_, cluster)| cluster.checks.contains_key(&user))
            .map_or(1, |(&label, _)| label)
    }

    pub fn scores(&self, user: u64, items: &[Vec<f64>]) -> Vec<f64> {
        // Scoring is the same for all; give it (S, b) that have just this inverse and estimate.
        let cluster = &self.clusters[&self.label_of(user)];
        let s = inverse(&cluster.s_inverse);
        let b = times(&s, &cluster.theta);
        let info = Info { s, b, t: cluster.n };
        info.scores(&self.params, self.tau, items)
    }

    pub fn learn(&mut self, round: &[(u64, Vec<f64>, f64)]) {
        self.tau += 1;
        let new_phase = (self.tau + 1).is_power_of_two();
        for cluster in self.clusters.values_mut() {
            if new_phase {
                cluster.pivot = (cluster.theta.clone(), cluster.n);
            }
            if new_phase || self.deviations.marks_cleared {
                cluster.checks.values_mut().for_each(|check| *check = false);
                cluster.checked = false;
            }
        }
        for (user, x, y) in round {
            self.store(*user, x, *y);
        }
        for (user, ..) in round {
            if self.deviations.stale_marks {
                self.check(*user);
            }
            self.split(*user);
            if !self.deviations.stale_marks {
                self.check(*user);
            }
        }
        for (user, ..) in round {
            while self.merge(*user) {}
        }
    }

    fn store(&mut self, user: u64, x: &[f64], y: f64) {
        if !self.users.contains_key(&user) {
            self.add_user(user);
            let first = self.clusters.get_mut(&1).expect("alive");
            if first.checks.len() <= 1 {
                first.pivot = (first.theta.clone(), first.n);
            }
            first.checks.insert(user, false);
        }
        let label = self.label_of(user);
        let own = self.users.get_mut(&user).expect("added");
        own.arrays.borrow_mut().observe(x, y);
        own.n += 1;
        own.theta = own.arrays.borrow().theta();
        let cluster = self.clusters.get_mut(&label).expect("alive");
        // One array for both, or a copy for the cluster: `split` has decided.
        cluster.arrays.borrow_mut().observe(x, y);
        cluster.n += 1;
        cluster.invert();
    }

    fn check(&mut self, user: u64) {
        let label = self.label_of(user);
        let cluster = self.clusters.get_mut(&label).expect("alive");
        cluster.checks.insert(user, true);
        cluster.checked = cluster.checks.values().all(|&check| check);
    }

    fn is_checked(&self, label: u64) -> bool {
        let cluster = &self.clusters[&label];
        if self.deviations.stale_marks {
            cluster.checked
        } else {
            cluster.checks.values().all(|&check| check)
        }
    }

    fn exceeds(&mut self, a: f64, b: f64) -> bool {
        self.doubtful |= (a - b).abs() < CLOSE;
        a > b
    }

    fn split(&mut self, user: u64) {
        let label = self.label_of(user);
        let members: Vec<u64> = self.clusters[&label].checks.keys().copied().collect();
        if members.len() == 1 {
            return;
        }
        let (own_theta, own_n) = (self.users[&user].theta.clone(), self.users[&user].n);
        let cluster = &self.clusters[&label];
        let (theta, n) = if self.deviations.running_estimate {
            (cluster.theta.clone(), cluster.n)
        } else {
            cluster.pivot.clone()
        };
        let tau = self.tau as f64;
        let frequencies: Vec<f64> = if self.deviations.average_frequency {
            vec![cluster.n as f64 / (members.len() as f64 * tau)]
        } else {
            let each = members.iter().map(|member| self.users[member].n);
            each.map(|n| n as f64 / tau).collect()
        };
        let allowed = self.params.alpha_theta * (f(own_n as f64) + f(n as f64));
        let mut leaves = self.exceeds(distance(&own_theta, &theta), allowed);
        for other in frequencies {
            let gap = (own_n as f64 / tau - other).abs();
            leaves |= self.exceeds(gap, 2.0 * self.params.alpha_p * f(tau));
        }
        if !leaves {
            return;
        }
        let own = Rc::clone(&self.users[&user].arrays);
        let cluster = self.clusters.get_mut(&label).expect("alive");
        let mark = cluster.checks.remove(&user).expect("a member");
        let mut rest = cluster.arrays.borrow().clone();
        // The counts that go with the arrays mean nothing here: `n` counts.
        rest.t = own.borrow().t;
        rest.combine(&own.borrow(), -1.0);
        cluster.arrays = Rc::new(RefCell::new(rest));
        cluster.n -= own_n;
        if !self.deviations.stale_estimates {
            cluster.invert();
        }
        let mark = mark && !self.deviations.stale_marks;
        let arrays = if self.deviations.shared_arrays {
            own
        } else {
            Rc::new(RefCell::new(own.borrow().clone()))
        };
        self.last_label += 1;
        let alone = Cluster::new(arrays, own_n, BTreeMap::from([(user, mark)]));
        self.clusters.insert(self.last_label, alone);
    }

    fn merge(&mut self, user: u64) -> bool {
        let label = self.label_of(user);
        if !self.is_checked(label) {
            return false;
        }
        let others: Vec<u64> = self
            .clusters
            .keys()
            .copied()
            .filter(|&other| other != label && self.is_checked(other))
            .collect();
        for other in others {
            let (a, b) = (&self.clusters[&label], &self.clusters[&other]);
            let tau = self.tau as f64;
            let apart = distance(&a.theta, &b.theta);
            let allowed = self.params.alpha_theta / 2.0 * (f(a.n as f64) + f(b.n as f64));
            let frequency = |c: &Cluster| c.n as f64 / (c.checks.len() as f64 * tau);
            let gap = (frequency(a) - frequency(b)).abs();
            let near = self.exceeds(allowed, apart);
            let alike = self.exceeds(self.params.alpha_p * f(tau), gap);
            if !(near && alike) {
                continue;
            }
            let (kept, gone) = (label.min(other), label.max(other));
            let gone = self.clusters.remove(&gone).expect("alive");
            let kept = self.clusters.get_mut(&kept).expect("alive");
            let mut sum = kept.arrays.borrow().clone();
            sum.combine(&gone.arrays.borrow(), 1.0);
            kept.arrays = Rc::new(RefCell::new(sum));
            kept.n += gone.n;
            kept.checks.extend(gone.checks);
            if !self.deviations.stale_estimates {
                kept.invert();
            }
            kept.pivot = (kept.theta.clone(), kept.n);
            return true;
        }
        false
    }
}
