//! DyClu: users are served with those whom a chi-square test does not tell apart from them.
//!
//! Li, Wu and Wang, "Unifying Clustered and Non-stationary Bandits", AISTATS 2021. The steps are those of the public
//! code (HCDM/BanditLib, lib/DyClu.py). The variance σ² of the noise is known.
//!
//! In each round:
//! 1. The user is served with the sums over the user and their direct neighbours, by θ̂ᵀx + α_N ‖x‖ in the norm of
//!    M⁻¹, α_N = σ √(d ln(1 + N/d) + 2 ln(1/δ₁)) + 1 with N observations and δ₁ = 0.01.
//! 2. The user learns from the reward.
//! 3. The user is tested against every other user. They are neighbours unless P(χ² > s) ≤ `level`, where
//!    s = (E_i + E_j − E_ij)/σ², E = bᵀG⁺b of the sums of i, of j and of both, and χ² has
//!    rank G_i + rank G_j − rank(G_i + G_j) degrees of freedom. With none of them, they are neighbours. s is the rise of the
//!    squared residuals when the two share one weight vector. A test may restore an edge.
//!
//! **Change detector** (`detect`; on in preset `released`, off otherwise). An observation is surprising if its squared residual, divided by
//! σ²(1 + xᵀG⁻¹x), is in the upper 1% of χ² with one degree of freedom; it is not learned. If the share of surprising
//! ones among the last τ (`window`) exceeds δ₁ + √(ln(1/δ₂)/(2τ)), δ₂ = 0.1, then the user's model is archived and
//! the user starts again. Archived models learn no more, and remain in the graph.
//!
//! # Decisions
//! - Tests are lazy. `retest=0` and `min_count=0` are the algorithm above (preset `released`).
//!   - A pair of neighbours is tested again when their observations have grown by the share `retest`.
//!   - A pair is tested when both users have `min_count` observations, by default d; they are neighbours until then.
//!   - A pair without an edge is not tested while the result is certain: the squared residuals of both together only
//!     grow, so s falls by no more than the residuals of each alone have grown. This changes nothing.
//! - s by E is the public code's by θ, also for singular G. The rank of a singular G and its E are found by elimination with the
//!   largest pivot first; pivots below 10⁻¹³ of the first count as 0.
//! - Level 1 tells all users apart, even those without degrees of freedom: then the policy is LinUCB-Ind.
//! - Users who have not appeared have G = 0. In a round of several observations, all are learned before the tests.
//! - The detector works once G has full rank. It counts missing observations of the window as not surprising, and the
//!   one that raises the alarm is the first of the new model.
//!
//! # Cost
//! Memory: O(d²) for each user, and 4 bytes for each pair twice. A round: O(min(|V|, n − |V|) d² + d³ + L d²) to
//! recommend from L items to a user with neighbours V; O(d³/6) for each pair that is tested, eight at a time, and O(n) for the others.
//! A pair of singular G needs an elimination of its own, O(d³/3), only if a bound of s does not settle that they are alike: E with a
//! small ridge is below E, and the degrees of freedom are at least rank G_i + rank G_j − d.

use super::chi_square;
use super::neighbours::{Neighbours, Pairs, learn_then_test, rank_by_neighbours};
use crate::error::Error;
use crate::items::Group;
use crate::kernels::{self, Energies, LANES};
use crate::params::{self, Exploration, Params};
use crate::policy::{Change, ClusterId, Observation, Policy, UserId, check_round};
use crate::spec::{Abilities, Constant, Preset, Range, Spec, Value};
use crate::ucb::Scores;

/// δ₁, of the index and of a surprising observation.
const DELTA: f64 = 0.01;
/// δ₂, of an alarm.
const ALARM_DELTA: f64 = 0.1;
/// The ridge of a bound for a singular G, as a share of the mean diagonal of all sums, and the rounding error allowed for, as a
/// share of Σ y².
const BOUND_RIDGE: f64 = 1e-6;
const BOUND_ERROR: f64 = 1e-5;
/// A pivot below this share of the first counts as 0.
const RANK_TOLERANCE: f64 = 1e-13;

/// The constants of a preset. `min_count` is in units of d.
struct Presets {
    noise: f64,
    level: f64,
    retest: f64,
    min_count: usize,
    beta_scale: f64,
    window: f64,
}

const TUNED: Presets = Presets {
    noise: 0.5,
    level: 0.01,
    retest: 0.25,
    min_count: 1,
    beta_scale: 0.2,
    window: 40.0,
};

const RELEASED: Presets = Presets {
    retest: 0.0,
    min_count: 0,
    beta_scale: 1.0,
    ..TUNED
};

fn preset(preset: Preset) -> Presets {
    match preset {
        Preset::Released => RELEASED,
        _ => TUNED,
    }
}

/// Clustering of bandits by tests of homogeneity.
#[derive(Debug, Clone)]
struct DyClu {
    users: Neighbours,
    params: Params,
    /// σ
    noise: f64,
    /// The smallest s σ² that tells two users apart, by degrees of freedom.
    thresholds: Vec<f64>,
    min_count: u64,
    /// The growth of a pair's observations after which it is tested again.
    retest: f64,
    fits: Vec<Fit>,
    /// The next test of a pair: when its observations are so many if there is an edge, else when its residuals are.
    next: Pairs,
    detector: Option<Detector>,
    work: Energies,
    /// The nodes to be tested; a buffer that is reused.
    due: Vec<u32>,
}

/// The best fit to the observations of a node alone.
#[derive(Debug, Clone, Copy, Default)]
struct Fit {
    /// Σ y²
    squares: f64,
    /// bᵀG⁺b
    energy: f64,
    rank: usize,
}

impl Fit {
    /// The sum of squared residuals.
    fn residuals(&self) -> f64 {
        self.squares - self.energy
    }
}

/// The change detector.
#[derive(Debug, Clone)]
struct Detector {
    /// τ, at most 64.
    window: u32,
    /// The squared residual, divided by its variance, from which on an observation is surprising.
    surprise: f64,
    /// Surprising observations in the window that raise an alarm, exclusive.
    limit: f64,
    /// A bit for each of a node's last observations, the last one lowest: 1 if it was surprising.
    recent: Vec<u64>,
}

impl Detector {
    fn new(window: u32) -> Self {
        let tau = f64::from(window);
        let share = DELTA + (libm::log(1.0 / ALARM_DELTA) / (2.0 * tau)).sqrt();
        Self {
            window,
            surprise: chi_square::threshold(1, DELTA),
            limit: share * tau,
            recent: Vec::new(),
        }
    }

    /// Notes whether a node's observation is surprising. True if that raises an alarm.
    fn note(&mut self, node: usize, is_surprising: bool) -> bool {
        self.recent.resize(self.recent.len().max(node + 1), 0);
        let recent = &mut self.recent[node];
        *recent = *recent << 1 | u64::from(is_surprising);
        let window = *recent & (u64::MAX >> (u64::BITS - self.window));
        f64::from(window.count_ones()) > self.limit
    }
}

impl DyClu {
    /// Learns from an observation, unless the change detector finds it surprising.
    fn observe(&mut self, observation: &Observation<'_>) {
        let (item, reward) = (observation.item, observation.reward);
        let mut node = self.users.admit(observation.user);
        if let Some(surprise) = self.surprise(node, item, reward)
            && let Some(detector) = &mut self.detector
        {
            let is_surprising = surprise >= detector.surprise;
            if detector.note(node, is_surprising) {
                node = self.users.restart(observation.user);
            } else if is_surprising {
                return;
            }
        }
        self.users.observe(node, item, reward);
        self.fits.resize(self.users.len(), Fit::default());
        self.next.grow(self.users.len());
        let (dim, sums) = (self.users.shape.dim, self.users.sums(node));
        let fit = &mut self.fits[node];
        fit.squares += reward * reward;
        if fit.rank < dim {
            (fit.energy, fit.rank) = singular_fit(dim, sums.to_vec());
        } else {
            let none = vec![0.0; sums.len()];
            kernels::energies(dim, sums, &[&none], &mut self.work);
            fit.energy = self.work.energy[0];
        }
    }

    /// The squared residual of an observation divided by its variance, if there is a detector and G has full rank.
    fn surprise(&self, node: usize, item: &[f64], reward: f64) -> Option<f64> {
        let shape = self.users.shape;
        let dim = shape.dim;
        if self.detector.is_none() || self.fits.get(node)?.rank < dim {
            return None;
        }
        let (gram, moment) = self.users.sums(node).split_at(shape.gram());
        let mut lower = vec![0.0; shape.triangle()];
        let (mut factor, mut scale) = (lower.clone(), vec![0.0; dim]);
        if !kernels::factorise(dim, gram, 0.0, &mut lower, &mut factor, &mut scale) {
            return None;
        }
        let mut estimate = vec![0.0; dim];
        let mut solve = |vector| {
            kernels::solve(dim, &factor, &scale, vector, &mut estimate);
            item.iter().zip(&estimate).map(|(x, w)| x * w).sum::<f64>()
        };
        let residual = reward - solve(moment);
        let variance = self.noise * self.noise * (1.0 + solve(item));
        Some(residual * residual / variance)
    }

    /// The sums of a node with a small ridge: E of them is a lower bound of E without it.
    fn ridged(&self, node: usize) -> Vec<f64> {
        let dim = self.users.shape.dim;
        let diagonal = (0..dim).map(|k| k * (k + 3) / 2);
        let trace: f64 = diagonal.clone().map(|at| self.users.total()[at]).sum();
        let mut sums = self.users.sums(node).to_vec();
        diagonal.for_each(|at| sums[at] += BOUND_RIDGE * trace / dim as f64);
        sums
    }

    /// True if two singular fits pass the test however many degrees of freedom they have, given a lower bound of E of both.
    fn are_surely_same(&self, a: Fit, b: Fit, bound: f64) -> bool {
        // Thresholds grow with the degrees of freedom, but for that of none, which all pass.
        let degrees = (a.rank + b.rank)
            .saturating_sub(self.users.shape.dim)
            .max(1);
        let rise = a.energy + b.energy - bound + BOUND_ERROR * (a.squares + b.squares);
        rise < self.thresholds[degrees]
    }

    /// Tests a node against all others that are due.
    fn test(&mut self, node: usize) {
        let (count, own) = (self.users.count(node), self.fits[node]);
        if count < self.min_count {
            return;
        }
        let dim = self.users.shape.dim;
        if self.min_count == 0 {
            let is_same = self.thresholds[0] > 0.0;
            self.users.set_unseen_edge(node, is_same);
        }
        let mut due = std::mem::take(&mut self.due);
        due.clear();
        for (other, &next) in self.next.row(node).iter().enumerate() {
            let other_count = self.users.count(other);
            let progress = match self.users.has_edge(node, other) {
                true => (count + other_count) as f64,
                false => own.residuals() + self.fits[other].residuals(),
            };
            if progress >= f64::from(next) && other != node && other_count >= self.min_count {
                due.push(other as u32);
            }
        }
        let ridged = self.ridged(node);
        for some in due.chunks(LANES) {
            let rows: [&[f64]; LANES] = std::array::from_fn(|lane| {
                self.users.sums(some[lane.min(some.len() - 1)] as usize)
            });
            let is_singular = |other: usize| own.rank.max(self.fits[other].rank) < dim;
            let bounds = match some.iter().any(|&other| is_singular(other as usize)) {
                true => {
                    kernels::energies(dim, &ridged, &rows, &mut self.work);
                    self.work.energy
                }
                false => [0.0; LANES],
            };
            if !some.iter().all(|&other| is_singular(other as usize)) {
                kernels::energies(dim, self.users.sums(node), &rows, &mut self.work);
            }
            for (lane, &other) in some.iter().enumerate() {
                let other = other as usize;
                let fit = self.fits[other];
                let (energy, rank) = match is_singular(other) {
                    true if self.are_surely_same(own, fit, bounds[lane]) => (f64::INFINITY, dim),
                    true => {
                        let sums = self.users.sums(node).iter().zip(self.users.sums(other));
                        singular_fit(dim, sums.map(|(a, b)| a + b).collect())
                    }
                    false => (self.work.energy[lane], dim),
                };
                let rise = own.energy + fit.energy - energy;
                let degrees = (own.rank + fit.rank).saturating_sub(rank);
                let is_same = rise < self.thresholds[degrees.min(dim)];
                self.users.set_edge(node, other, is_same);
                let next = match is_same {
                    true => (count + self.users.count(other)) as f64 * (1.0 + self.retest),
                    false => {
                        let both = rise + own.residuals() + fit.residuals();
                        let certain = both - self.thresholds[dim];
                        // Smaller than the rounding errors allow.
                        certain - 1e-6 * (certain.abs() + both)
                    }
                };
                self.next.set(node, other, next as f32);
            }
        }
        self.due = due;
    }

    /// Scores groups of items for a user.
    fn scorer(&self, user: UserId) -> impl FnMut(Group<'_>, &mut Scores) {
        let pool = self.users.pool(user);
        let d = self.users.shape.dim as f64;
        let beta = match self.params.exploration {
            Exploration::Fixed(beta) => beta,
            Exploration::Growing { scale } => {
                let growth = d * libm::log(1.0 + pool.count() as f64 / d);
                scale * (self.noise * (growth - 2.0 * libm::log(DELTA)).sqrt() + 1.0)
            }
        };
        let index = self.params.index;
        move |group, scores| scores.fill(index, pool.view(), beta, group)
    }
}

/// bᵀG⁺b and the rank of G, from G, lower triangle packed, and b after it. Overwrites them with what each pivot
/// leaves.
fn singular_fit(dim: usize, mut sums: Vec<f64>) -> (f64, usize) {
    let at = |i: usize, k: usize| i.max(k) * (i.max(k) + 1) / 2 + i.min(k);
    let moment = dim * (dim + 1) / 2;
    let mut left: Vec<usize> = (0..dim).collect();
    let (mut energy, mut first) = (0.0, 0.0f64);
    while let Some(place) = (0..left.len())
        .max_by(|&a, &b| sums[at(left[a], left[a])].total_cmp(&sums[at(left[b], left[b])]))
    {
        let k = left[place];
        let pivot = sums[at(k, k)];
        first = first.max(pivot);
        if pivot <= RANK_TOLERANCE * first {
            break;
        }
        left.remove(place);
        energy += sums[moment + k] * sums[moment + k] / pivot;
        for (n, &i) in left.iter().enumerate() {
            let weight = sums[at(i, k)] / pivot;
            for &m in &left[..=n] {
                sums[at(i, m)] -= weight * sums[at(m, k)];
            }
            sums[moment + i] -= weight * sums[moment + k];
        }
    }
    (energy, dim - left.len())
}

impl Policy for DyClu {
    rank_by_neighbours!();

    learn_then_test!();

    fn digest(&self) -> u64 {
        let mut digest = self.next.digest(self.users.digest());
        for fit in &self.fits {
            digest = digest
                .numbers(&[fit.squares, fit.energy])
                .word(fit.rank as u64);
        }
        if let Some(detector) = &self.detector {
            digest = detector.recent.iter().fold(digest, |d, &word| d.word(word));
        }
        digest.finish()
    }

    fn state_bytes(&self) -> Option<u64> {
        let detector = self.detector.as_ref();
        let recent = detector.map_or(0, |detector| size_of_val(&detector.recent[..]));
        let own = size_of_val(&self.fits[..]) + recent;
        Some(self.users.bytes() + self.next.bytes() + own as u64)
    }
}

/// `dyclu`
pub static SPEC: Spec = Spec {
    name: "dyclu",
    title: "DyClu",
    summary: "Users served with those whom a chi-square test does not tell apart from them",
    citation: "Li, Wu and Wang, AISTATS 2021",
    colors: ["#00798C", "#5CC8D7"],
    revision: 2,
    presets: &[Preset::Tuned, Preset::Released],
    constants: &[
        Constant::new(
            "noise",
            "Standard deviation of the noise: at most 0.5 for rewards of 0 or 1",
            Range::POSITIVE,
            |from, _| Ok(Value::Number(preset(from).noise)),
        ),
        Constant::new(
            "level",
            "Two users are told apart if their data are as likely as this or less, were they alike",
            Range::between(0.0, 1.0, "between 0 and 1"),
            |from, _| Ok(Value::Number(preset(from).level)),
        ),
        Constant {
            advanced: true,
            ..Constant::new(
                "retest",
                "Neighbours are tested again when their observations have grown by this share; 0 tests them after each",
                Range::NOT_NEGATIVE,
                |from, _| Ok(Value::Number(preset(from).retest)),
            )
        },
        Constant {
            advanced: true,
            ..Constant::new(
                "min_count",
                "Users are tested when they have so many observations; the number of features by default",
                Range::whole(0.0, 1e9, "a whole number from 0 to 1000000000"),
                |from, setup| Ok(Value::Number((preset(from).min_count * setup.dim) as f64)),
            )
        },
        params::BETA,
        Constant {
            default: |from, _| Ok(Value::Number(preset(from).beta_scale)),
            ..params::BETA_SCALE
        },
        Constant {
            default: |_, _| Ok(Value::Choice("norm")),
            ..params::INDEX
        },
        Constant::new(
            "detect",
            "Detects changes of a user's tastes, and then starts again with the user",
            Range::Flag,
            |from, _| Ok(Value::Flag(from == Preset::Released)),
        ),
        Constant {
            advanced: true,
            ..Constant::new(
                "window",
                "The number of last observations of a user in which changes are detected",
                Range::whole(1.0, 64.0, "a whole number from 1 to 64"),
                |from, _| Ok(Value::Number(preset(from).window)),
            )
        },
    ],
    can: Abilities::NONE,
    new: |setup, values| {
        let number = |name| values.number(name).unwrap_or(0.0);
        setup.users.declared()?;
        let users = Neighbours::new(setup.dim)?;
        let (noise, level) = (number("noise"), number("level"));
        let none = if level < 1.0 {
            f64::INFINITY
        } else {
            f64::NEG_INFINITY
        };
        let some = (1..=setup.dim).map(|degrees| chi_square::threshold(degrees, level));
        let detector = values.flag("detect");
        Ok(Box::new(DyClu {
            users,
            params: Params::from_values(values),
            noise,
            thresholds: std::iter::once(none)
                .chain(some.map(|threshold| noise * noise * threshold))
                .collect(),
            min_count: number("min_count") as u64,
            retest: number("retest"),
            fits: Vec::new(),
            next: Pairs::default(),
            detector: detector.then(|| Detector::new(number("window") as u32)),
            work: Energies::new(setup.dim),
            due: Vec::new(),
        }))
    },
    load: None,
    gather: None,
};
