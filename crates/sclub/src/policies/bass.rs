//! BASS: users are neighbours until the confidence ellipsoids of their weight vectors are disjoint.
//!
//! After Cherkaoui, Barlier and Colin, arXiv 2309.08710v3, of which only the abstract was read. The steps are those of the class
//! LBC in public code (hcherkaoui/bandpy); that it is an earlier name of BASS is inferred.
//!
//! The graph of users is complete at first. In each round:
//! 1. The user is served with the sums over the user and their direct neighbours, by
//!    θ̂ᵀx + α √ln(t + 1) ‖x‖ in the norm of M⁻¹.
//! 2. The user learns from the reward.
//! 3. An edge (i, j) of the user is cut if no x has q_i(x) ≤ 1 and q_j(x) ≤ 1, where
//!    q(x) = (x − θ̂)ᵀM(x − θ̂)/r² and r = S + R √(2 ln(1/δ) + ln det M), times `radius_scale`. M = I + G.
//!
//! The test: with g(w) = min_x w q_i(x) + (1 − w) q_j(x), the ellipsoids are disjoint if g(w) > 1 for some w in (0, 1). g
//! is concave, and its slope is q_i − q_j at the minimum. Tangents bound its maximum from above; those at 0 and 1 meet at
//! ab/(a + b), a = q_i(θ̂_j) and b = q_j(θ̂_i). Most pairs are settled by a ≤ 1, or by 1/√a + 1/√b > 1: then a point of
//! the line between the centres is in both. Of those left, most are settled by the value and the tangent at 1/2, which are worked
//! out for eight pairs at a time. For the others g is worked out where the tangents meet, until it is above 1 or the bound is not.
//!
//! # Decisions
//! - r² stands where the public code has r: the ellipsoid of the confidence r is the set with q ≤ 1. `--ellipsoids plain` has r.
//! - Cut edges stay cut.
//! - Tests are lazy: a pair that a ≤ 1 does not settle is tested again when its observations have grown by the share
//!   `retest`. `retest=0` tests each edge of a user after each of their observations (preset `released`).
//! - α is 1 in `released`; the code's default was not read.
//! - Users who have not appeared have M = I, and are tested as all others. In a round of several
//!   observations, all are learned before the tests.
//! - With `radius_scale=0` the ellipsoids are points, and users with different estimates are told apart: LinUCB-Ind.
//!
//! # Cost
//! Memory: O(d²) for each user, and 4 bytes for each pair twice. A round: O(min(|V|, n − |V|) d² + d³ + L d²) to
//! recommend from L items to a user with neighbours V; O(n) to find the pairs that are due, O(d²) for each of them, and O(d³)
//! for the few that a and b do not settle.

use super::neighbours::{Neighbours, Pairs, learn_then_test, rank_by_neighbours};
use crate::error::Error;
use crate::items::{GROUP, Group};
use crate::kernels::batch::{Posteriors, Prior};
use crate::kernels::{self, Batch, LANES};
use crate::params::{self, Exploration, Params};
use crate::policy::{Change, ClusterId, Observation, Policy, UserId, check_round};
use crate::spec::{Abilities, Constant, Preset, Range, Spec, Value};
use crate::statistics::Shape;
use crate::ucb::Scores;

/// The maximum number of points at which g is worked out. Each cuts the interval of its maximum.
const MAX_STEPS: usize = 60;

/// The constants of a preset.
struct Presets {
    delta: f64,
    noise: f64,
    length: f64,
    radius_scale: f64,
    retest: f64,
    beta_scale: f64,
}

const TUNED: Presets = Presets {
    delta: 1e-3,
    noise: 0.5,
    length: 1.0,
    radius_scale: 0.4,
    retest: 0.1,
    beta_scale: 0.3,
};

const RELEASED: Presets = Presets {
    radius_scale: 1.0,
    retest: 0.0,
    beta_scale: 1.0,
    ..TUNED
};

fn preset(preset: Preset) -> Presets {
    match preset {
        Preset::Released => RELEASED,
        _ => TUNED,
    }
}

/// Clustering of bandits by separation of ellipsoids.
#[derive(Debug, Clone)]
struct Bass {
    users: Neighbours,
    params: Params,
    radius: Radius,
    /// 1/r² of each node.
    weights: Vec<f64>,
    retest: f64,
    /// The number of observations of a pair from which on it is tested.
    next: Pairs,
    work: Work,
}

/// r = `scale` · (`length` + `noise` √(`confidence` + ln det M))
#[derive(Debug, Clone, Copy)]
struct Radius {
    scale: f64,
    length: f64,
    noise: f64,
    /// 2 ln(1/δ)
    confidence: f64,
    /// True for r in place of r², as in the public code.
    is_plain: bool,
}

impl Radius {
    /// 1/r², or 1/r, from ln det M.
    fn weight(&self, log_determinant: f64) -> f64 {
        let spread = (self.confidence + log_determinant.max(0.0)).sqrt();
        let radius = self.scale * (self.length + self.noise * spread);
        1.0 / if self.is_plain {
            radius
        } else {
            radius * radius
        }
    }
}

/// Buffers that are reused.
#[derive(Debug, Clone)]
struct Work {
    shape: Shape,
    /// Differences of estimates of a group.
    gaps: Vec<f64>,
    gram: Vec<f64>,
    lower: Vec<f64>,
    factor: Vec<f64>,
    scale: Vec<f64>,
    moment: Vec<f64>,
    point: Vec<f64>,
    /// M/r² and b/r² of a node, and of up to [`LANES`] others.
    own: Vec<f64>,
    rows: Vec<f64>,
    batch: Batch,
    /// The nodes to be tested, each with a.
    due: Vec<(usize, f64)>,
}

impl Work {
    fn new(shape: Shape) -> Self {
        Self {
            shape,
            gaps: vec![0.0; GROUP * shape.dim],
            gram: vec![0.0; shape.gram()],
            lower: vec![0.0; shape.triangle()],
            factor: vec![0.0; shape.triangle()],
            scale: vec![0.0; shape.dim],
            moment: vec![0.0; shape.dim],
            point: vec![0.0; shape.dim],
            own: vec![0.0; shape.gram() + shape.dim],
            rows: vec![0.0; LANES * (shape.gram() + shape.dim)],
            batch: Batch::new(shape.dim),
            due: Vec::new(),
        }
    }

    /// g(w) and its slope.
    fn combine(&mut self, w: f64, i: &Ellipsoid<'_>, j: &Ellipsoid<'_>) -> (f64, f64) {
        let (own, other) = (w * i.weight, (1.0 - w) * j.weight);
        let dim = self.shape.dim;
        let mix = |target: &mut [f64], a: &[f64], b: &[f64]| {
            for (sum, (a, b)) in target.iter_mut().zip(a.iter().zip(b)) {
                *sum = own * a + other * b;
            }
        };
        mix(&mut self.gram, i.gram, j.gram);
        mix(&mut self.moment, i.moment, j.moment);
        let (lower, factor, scale) = (&mut self.lower, &mut self.factor, &mut self.scale);
        if !kernels::factorise(dim, &self.gram, own + other, lower, factor, scale) {
            // Only rounding errors can do this: then nothing is cut.
            return (0.0, 0.0);
        }
        kernels::solve(dim, factor, scale, &self.moment, &mut self.point);
        let (q_i, q_j) = (i.form(&self.point), j.form(&self.point));
        (w * q_i + (1.0 - w) * q_j, q_i - q_j)
    }

    /// Tests an ellipsoid against up to [`LANES`] others: true if they are disjoint, `None` where g at 1/2 and its tangent there
    /// do not settle it.
    fn try_half(&mut self, i: &Ellipsoid<'_>, others: &[Ellipsoid<'_>]) -> [Option<bool>; LANES] {
        let dim = self.shape.dim;
        if i.weight.is_infinite() || others.iter().any(|j| j.weight.is_infinite()) {
            return [None; LANES];
        }
        i.write_weighted(&mut self.own);
        let size = self.own.len();
        for (row, j) in self.rows.chunks_exact_mut(size).zip(others) {
            j.write_weighted(row);
        }
        let rows: [&[f64]; LANES] = std::array::from_fn(|lane| &self.rows[lane * size..][..size]);
        let (precision, pull) = self.own.split_at(self.shape.gram());
        kernels::posteriors(Posteriors {
            dim,
            prior: Prior {
                precision,
                pull,
                inverse_noise: 1.0,
            },
            rows: &rows[..others.len()],
            batch: &mut self.batch,
        });
        // q_i at the minimum.
        let gaps = &mut self.gaps[..LANES * dim];
        let points = self.batch.mean.as_flattened();
        for (k, (gap, x)) in gaps.iter_mut().zip(points).enumerate() {
            *gap = x - i.estimate[k / LANES];
        }
        let mut own = [0.0; LANES];
        kernels::quadratic(dim, precision, gaps, &mut own);
        std::array::from_fn(|lane| {
            let value = 0.5 * (i.height() + others.get(lane)?.height() - self.batch.fit[lane]);
            let slope = 2.0 * (own[lane] - value);
            match value + 0.5 * slope.abs() {
                _ if value > 1.0 => Some(true),
                bound if bound <= 1.0 => Some(false),
                _ => None,
            }
        })
    }

    /// True if no point is in both ellipsoids. `a` is q_i at the centre of j.
    fn are_disjoint(&mut self, a: f64, i: &Ellipsoid<'_>, j: &Ellipsoid<'_>) -> bool {
        if a <= 1.0 {
            return false;
        }
        let b = j.form(i.estimate);
        if a.is_infinite() || b.is_infinite() {
            // A point outside the other ellipsoid; both radii are 0 if one is.
            return a > 1.0 && b > 1.0;
        }
        // Points, values of g there and slopes, to the left and to the right of the maximum.
        let (mut left, mut right) = ((0.0, 0.0, a), (1.0, 0.0, -b));
        for _ in 0..MAX_STEPS {
            let at_zero = |(w, value, slope): (f64, f64, f64)| value - slope * w;
            let w = (at_zero(right) - at_zero(left)) / (left.2 - right.2);
            let bound = at_zero(left) + left.2 * w;
            // Not so if it is not a number.
            if !(bound > 1.0 && w > left.0 && w < right.0) {
                return false;
            }
            let (value, slope) = self.combine(w, i, j);
            if value > 1.0 || slope == 0.0 {
                return value > 1.0;
            }
            *(if slope > 0.0 { &mut left } else { &mut right }) = (w, value, slope);
        }
        false
    }
}

/// The points x with q(x) ≤ 1.
struct Ellipsoid<'a> {
    gram: &'a [f64],
    moment: &'a [f64],
    estimate: &'a [f64],
    /// 1/r²
    weight: f64,
}

impl Ellipsoid<'_> {
    /// M/r², lower triangle packed, then b/r².
    fn write_weighted(&self, row: &mut [f64]) {
        let all = self.gram.iter().chain(self.moment);
        for (target, x) in row.iter_mut().zip(all) {
            *target = self.weight * x;
        }
        let mut diagonal = 0;
        for k in 0..self.moment.len() {
            row[diagonal] += self.weight;
            diagonal += k + 2;
        }
    }

    /// θ̂θ̂ᵀ, lower triangle packed, each number outside of the diagonal twice.
    fn write_square(&self, square: &mut [f64]) {
        let mut start = 0;
        for (i, x) in self.estimate.iter().enumerate() {
            for (target, y) in square[start..].iter_mut().zip(&self.estimate[..i]) {
                *target = 2.0 * x * y;
            }
            square[start + i] = x * x;
            start += i + 1;
        }
    }

    /// At least q, by xᵀMx − 2xᵀb + θ̂ᵀb with x xᵀ from [`Ellipsoid::write_square`]. Its rounding errors are added.
    fn bound(&self, point: &[f64], square: &[f64]) -> f64 {
        let far = kernels::dot(point, point) + kernels::dot(self.gram, square);
        let height = kernels::dot(self.estimate, self.moment);
        let sum = far - 2.0 * kernels::dot(point, self.moment) + height;
        self.weight * (sum + 1e-11 * (far + height))
    }

    /// q(0)
    fn height(&self) -> f64 {
        let terms = self.estimate.iter().zip(self.moment);
        self.weight * terms.map(|(x, b)| x * b).sum::<f64>()
    }

    /// q
    fn form(&self, point: &[f64]) -> f64 {
        let gap: Vec<f64> = point
            .iter()
            .zip(self.estimate)
            .map(|(x, c)| x - c)
            .collect();
        let mut sum = [gap.iter().map(|x| x * x).sum::<f64>()];
        kernels::quadratic(gap.len(), self.gram, &gap, &mut sum);
        weighted(sum[0], self.weight)
    }
}

/// A squared distance over r², 0 for no distance even if r is 0.
fn weighted(square: f64, weight: f64) -> f64 {
    if square > 0.0 { square * weight } else { 0.0 }
}

impl Bass {
    fn observe(&mut self, observation: &Observation<'_>) {
        let node = self.users.admit(observation.user);
        self.users
            .observe(node, observation.item, observation.reward);
        self.weights.resize(self.users.len(), 0.0);
        self.next.grow(self.users.len());
        let scales = self.users.view(node).scale.iter();
        let log_determinant = -scales.map(|&scale| libm::log(scale)).sum::<f64>();
        self.weights[node] = self.radius.weight(log_determinant);
    }

    /// Tests the edges of a node that are due.
    fn test(&mut self, node: usize) {
        let dim = self.users.shape.dim;
        let count = self.users.count(node);
        let own = ellipsoid(&self.users, &self.weights, node);
        let none = vec![0.0; self.users.shape.gram()];
        // Those that neither a nor the line between the centres settles; all that a does not settle count as tested.
        let mut due = std::mem::take(&mut self.work.due);
        due.clear();
        let next = self.next.row(node);
        let counts = self.users.counts().iter().zip(next).enumerate();
        due.extend(counts.filter_map(|(other, (&theirs, &next))| {
            let is_due = (count + theirs) as f64 >= f64::from(next);
            (is_due && self.users.has_edge(node, other)).then_some((other, 0.0))
        }));
        for some in due.chunks_mut(GROUP) {
            for (lane, &mut (other, _)) in some.iter_mut().enumerate() {
                let gaps = self.work.gaps[lane..].iter_mut().step_by(GROUP);
                let centres = own.estimate.iter().zip(self.users.view(other).estimate);
                for (gap, (centre, x)) in gaps.zip(centres) {
                    *gap = x - centre;
                }
            }
            let mut squares = [0.0; GROUP];
            kernels::distances(&none[..dim], &self.work.gaps, &mut squares);
            kernels::quadratic(dim, own.gram, &self.work.gaps, &mut squares);
            for ((_, a), square) in some.iter_mut().zip(squares) {
                *a = weighted(square, own.weight);
            }
        }
        due.retain(|&(_, a)| a > 1.0);
        for &(other, _) in &due {
            let both = (count + self.users.count(other)) as f64;
            self.next
                .set(node, other, (both * (1.0 + self.retest)) as f32);
        }
        own.write_square(&mut self.work.gram);
        due.retain(|&(other, a)| {
            let theirs = ellipsoid(&self.users, &self.weights, other);
            let b = theirs.bound(own.estimate, &self.work.gram);
            // Above 1 the ellipsoids share a point of the line, with a margin for rounding errors.
            let overlap = a.sqrt().recip() + b.sqrt().recip();
            overlap.is_nan() || overlap <= 1.0 + 1e-9
        });
        let mut cut = Vec::new();
        for some in due.chunks(LANES) {
            let others: Vec<Ellipsoid<'_>> = some
                .iter()
                .map(|&(other, _)| ellipsoid(&self.users, &self.weights, other))
                .collect();
            let settled = self.work.try_half(&own, &others);
            for ((&(other, a), theirs), settled) in some.iter().zip(&others).zip(settled) {
                if settled.unwrap_or_else(|| self.work.are_disjoint(a, &own, theirs)) {
                    cut.push(other);
                }
            }
        }
        self.work.due = due;
        let unseen = Ellipsoid {
            gram: &none,
            moment: &none[..dim],
            estimate: &none[..dim],
            weight: self.radius.weight(0.0),
        };
        let a = own.form(unseen.estimate);
        if self.users.has_unseen_edge(node) && self.work.are_disjoint(a, &own, &unseen) {
            self.users.set_unseen_edge(node, false);
        }
        for other in cut {
            self.users.set_edge(node, other, false);
        }
    }

    /// Scores groups of items for a user.
    fn scorer(&self, user: UserId) -> impl FnMut(Group<'_>, &mut Scores) {
        let pool = self.users.pool(user);
        let beta = match self.params.exploration {
            Exploration::Fixed(beta) => beta,
            // t counts from 1.
            Exploration::Growing { scale } => {
                scale * libm::log(self.users.clock.rounds() as f64 + 2.0).sqrt()
            }
        };
        let index = self.params.index;
        move |group, scores| scores.fill(index, pool.view(), beta, group)
    }
}

fn ellipsoid<'a>(users: &'a Neighbours, weights: &[f64], node: usize) -> Ellipsoid<'a> {
    let view = users.view(node);
    Ellipsoid {
        gram: &users.sums(node)[..users.shape.gram()],
        moment: view.moment,
        estimate: view.estimate,
        weight: weights[node],
    }
}

impl Policy for Bass {
    rank_by_neighbours!();

    learn_then_test!();

    fn digest(&self) -> u64 {
        let digest = self.next.digest(self.users.digest());
        digest.numbers(&self.weights).finish()
    }

    fn state_bytes(&self) -> Option<u64> {
        let own = size_of_val(&self.weights[..]) as u64;
        Some(self.users.bytes() + self.next.bytes() + own)
    }
}

/// `bass`
pub static SPEC: Spec = Spec {
    name: "bass",
    title: "BASS",
    summary: "Users served with those whose confidence ellipsoids meet theirs",
    citation: "After Cherkaoui, Barlier and Colin, 2023",
    colors: ["#6A4C93", "#B79CDB"],
    revision: 1,
    presets: &[Preset::Tuned, Preset::Released],
    constants: &[
        Constant::new(
            "delta",
            "The probability that a weight vector is outside its ellipsoid",
            Range::Number {
                low: 0.0,
                high: 1.0,
                open: true,
                whole: false,
                requirement: "above 0 and at most 1",
            },
            |from, _| Ok(Value::Number(preset(from).delta)),
        ),
        Constant::new(
            "noise",
            "Sub-Gaussian scale of the noise (R): 0.5 for rewards of 0 or 1",
            Range::NOT_NEGATIVE,
            |from, _| Ok(Value::Number(preset(from).noise)),
        ),
        Constant::new(
            "length",
            "The largest length of a weight vector (S)",
            Range::NOT_NEGATIVE,
            |from, _| Ok(Value::Number(preset(from).length)),
        ),
        Constant::new(
            "radius_scale",
            "Size of the ellipsoids as a share of the public code's",
            Range::NOT_NEGATIVE,
            |from, _| Ok(Value::Number(preset(from).radius_scale)),
        ),
        Constant {
            advanced: true,
            ..Constant::new(
                "ellipsoids",
                "The divisor of an ellipsoid's form: squared for r*r, or plain for r, as in the public code",
                Range::OneOf(&["squared", "plain"]),
                |_, _| Ok(Value::Choice("squared")),
            )
        },
        Constant {
            advanced: true,
            ..Constant::new(
                "retest",
                "Neighbours are tested again when their observations have grown by this share; 0 tests them after each",
                Range::NOT_NEGATIVE,
                |from, _| Ok(Value::Number(preset(from).retest)),
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
    ],
    can: Abilities::NONE,
    new: |setup, values| {
        let number = |name| values.number(name).unwrap_or(0.0);
        setup.users.declared()?;
        let users = Neighbours::new(setup.dim)?;
        Ok(Box::new(Bass {
            params: Params::from_values(values),
            radius: Radius {
                scale: number("radius_scale"),
                length: number("length"),
                noise: number("noise"),
                confidence: -2.0 * libm::log(number("delta")),
                is_plain: values.choice("ellipsoids") == "plain",
            },
            weights: Vec::new(),
            retest: number("retest"),
            next: Pairs::default(),
            work: Work::new(users.shape),
            users,
        }))
    },
    load: None,
    gather: None,
};
