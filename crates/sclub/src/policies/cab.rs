//! CAB: neighbours of a user anew for each item.
//!
//! Each user has an estimate and a confidence width for each item. For an item, the neighbours of a user are the users
//! whose means lie within the sum of the two widths of the user's own. The item is scored by the average mean plus the
//! average width of the neighbours. A reward of an item about which the user is sure is learned by all neighbours who
//! are sure about it too. There are no clusters to keep: users may agree about one item and not about another.
//!
//! After Gentile, Li, Kar, Karatzoglou, Zappella and Etrue: "On Context-Dependent Clustering of Bandits", ICML 2017.
//! The steps were recalled, not read in the authors' code, which was not found; an independent port agrees.
//!
//! # Decisions
//! - The width is CB_j(x) = α √ln(t + 1) ‖x‖_j (`log_index.rs`).
//! - A user is sure about an item if their width is below γ/4. Widths and neighbours are those before the reward.
//! - Where γ/4 is above the widths of the first round, all declared users are sure from the start. They all learn the
//!   first reward, stay alike for ever, and CAB is LinUCB with one estimate for all.
//! - Declared users exist from the start, with the estimate 0, and can be neighbours before they appear. Other users
//!   exist from their first reward. A user who does not exist yet is their own neighbour.
//! - What other users think of an item, their means and widths, is in single precision, in scoring and in learning. The
//!   user's own opinion and all sums are in double precision, so that one user alone is LinUCB-Ind to the bit. Means that
//!   differ by less than about 10⁻⁶ of ‖θ̂‖ ‖x‖ cannot be told apart.
//! - Observations of one round are learned one after another.
//! - Users are not sampled: the published port looks at a fifth of them, and at those who have been seen often.
//! - `estimate` reports the user's own estimate. There is no `cluster_of`.
//! - An observation enters the sums of several users, so that a user cannot be forgotten.
//!
//! # Cost
//! Memory ¾d² + 4¼d + 5 numbers a user, declared ones included. A recommendation takes O(n L d) for n users and L items,
//! to bound the scores by the users' means and by bounds on their widths; then O(n d²) for each item whose bound is not
//! below the best score, a few of 20 items. A reward takes O(d²), now and then O(d³); if the user is sure about the item,
//! also O(n d²) to find the neighbours, each of whom learns it at the same price.

use std::io;

use super::crowd::Crowd;
use super::log_index::{self, Factor};
use super::side_by_side::SideBySide;
use crate::bytes::{self, Save, Writer};
use crate::error::{Error, check_dim};
use crate::items::{GROUP, ItemSet};
use crate::kernels::{self, Bounds, Guess, Lengths, Poll, Questions, SureNeighbours, Voters};
use crate::params::Index;
use crate::policy::{
    Change, Decision, Observation, Policy, Score, UserId, better_first, check_items, check_round,
};
use crate::spec::{Abilities, Constant, Preset, Range, Setup, Spec, Value, Values};
use crate::statistics::{Scratch, Shape, View};
use crate::ucb::Scores;
use crate::ucb::prune::largest_eigenvalue_of;

struct Cab {
    shape: Shape,
    factor: Factor,
    index: Index,
    gamma: f64,
    rounds: u64,
    crowd: Crowd,
    opinions: Opinions,
}

/// What users say to others about items, in single precision, and bounds on it; made from their sums.
struct Opinions {
    shape: Shape,
    is_squared: bool,
    /// Beyond the rounding errors of a width and of sums over users, a share of the width of a user without observations.
    ///
    /// With R of S⁻¹ = RᵀR, u the unit of rounding and ‖R‖ the norm that sums the squares of all entries, the error of
    /// ‖Rx‖ is at most (d + 3) u ‖R‖ ‖x‖, and ‖R‖² is the trace of S⁻¹, d at most.
    slack: f64,
    /// θ̂ of each user.
    estimates: SideBySide<f32>,
    /// R of each user.
    roots: SideBySide<f32>,
    /// Bounds on the width of each user, a share of that of a user without observations. Whole groups.
    least: Vec<f32>,
    largest: Vec<f32>,
    /// A lower bound of the eigenvalues of S⁻¹ of each user. Whole groups.
    eigenvalue: Vec<f32>,
    /// A bound on the largest eigenvalue of each S.
    longest: Vec<f64>,
    /// Observations of each user, and the number at which the bounds are made anew.
    counts: Vec<u64>,
    renew_at: Vec<u64>,
    /// Σ S⁻¹ over all users, lower triangle packed by rows.
    total: Vec<f64>,
    scratch: Scratch,
}

/// Beyond the rounding errors of Σ S⁻¹ after any number of updates, a share of the number of users.
const TOTAL_MARGIN: f64 = 1e-8;
/// The largest Σ xᵀx for which S is known from its factors well enough to bound its eigenvalues.
const MAX_TRACE: f64 = 1e6;
/// The bounds of a user are made anew after this share of their observations.
const RENEW_SHARE: u64 = 8;

impl Opinions {
    fn new(shape: Shape, index: Index, crowd: &Crowd) -> Self {
        let dim = shape.dim as f64;
        let mut opinions = Self {
            shape,
            is_squared: index == Index::SquaredNorm,
            slack: f64::from(f32::EPSILON) * (dim + 40.0) * dim.sqrt(),
            estimates: SideBySide::new(shape.dim),
            roots: SideBySide::new(shape.gram()),
            least: Vec::new(),
            largest: Vec::new(),
            eigenvalue: Vec::new(),
            longest: Vec::new(),
            counts: Vec::new(),
            renew_at: Vec::new(),
            total: vec![0.0; shape.gram()],
            scratch: Scratch::new(shape),
        };
        (0..crowd.len()).for_each(|slot| opinions.admit(slot, crowd));
        opinions
    }

    /// Adds a user without observations: S = I.
    fn admit(&mut self, slot: usize, crowd: &Crowd) {
        self.estimates.grow(slot + 1);
        self.roots.grow(slot + 1);
        let lanes = (slot + 1).next_multiple_of(GROUP);
        self.least.resize(lanes, f32::NEG_INFINITY);
        self.largest.resize(lanes, f32::NEG_INFINITY);
        self.eigenvalue.resize(lanes, 0.0);
        self.longest.push(1.0);
        self.counts.push(0);
        self.renew_at.push(1);
        for i in 0..self.shape.dim {
            self.total[i * (i + 3) / 2] += 1.0;
        }
        self.set_largest(slot, 1.0);
        self.set(slot, crowd.block(slot));
    }

    /// Follows the block of a user, and the bound on the largest eigenvalue of S.
    fn set(&mut self, slot: usize, block: &[f64]) {
        let view = self.shape.view(block);
        let estimate: Vec<f32> = view.estimate.iter().map(|&x| x as f32).collect();
        self.estimates.set(slot, &estimate);
        let mut root = Vec::with_capacity(self.shape.gram());
        let mut rest = view.factor;
        for (i, scale) in view.scale.iter().enumerate() {
            let (row, after) = rest.split_at(i);
            rest = after;
            let scale = scale.sqrt();
            root.extend(row.iter().map(|x| (x * scale) as f32));
            root.push(scale as f32);
        }
        self.roots.set(slot, &root);
        let eigenvalue = 1.0 / self.longest[slot];
        self.least[slot] = (self.form(eigenvalue) - self.slack).max(0.0) as f32;
        self.eigenvalue[slot] = (eigenvalue * (1.0 - self.slack)) as f32;
    }

    /// Takes a bound on the largest eigenvalue of S⁻¹.
    fn set_largest(&mut self, slot: usize, eigenvalue: f64) {
        self.largest[slot] = (self.form(eigenvalue) + self.slack) as f32;
    }

    /// Takes (S⁻¹x)(S⁻¹x)ᵀ/(1 + xᵀS⁻¹x), by which S⁻¹ will fall, from the total.
    fn before(&mut self, view: View<'_>, item: &[f64]) {
        let mut image = vec![0.0; self.shape.dim];
        kernels::solve(self.shape.dim, view.factor, view.scale, item, &mut image);
        let variance = 1.0 + kernels::dot(&image, item);
        let mut rest = &mut *self.total;
        for (i, x) in image.iter().enumerate() {
            let (row, after) = rest.split_at_mut(i + 1);
            kernels::add_scaled(row, -x / variance, &image);
            rest = after;
        }
    }

    /// Follows an observation of a user; `block` has learned it.
    fn after(&mut self, slot: usize, block: &[f64], item: &[f64]) {
        self.counts[slot] += 1;
        // The eigenvalues of S grow, the largest by xᵀx at most.
        self.longest[slot] += kernels::dot(item, item);
        if self.counts[slot] >= self.renew_at[slot] {
            self.renew_at[slot] = self.counts[slot] + 1 + self.counts[slot] / RENEW_SHARE;
            self.renew(slot, block);
        }
        self.set(slot, block);
    }

    /// Makes the bounds on the eigenvalues of a user anew.
    fn renew(&mut self, slot: usize, block: &[f64]) {
        let dim = self.shape.dim;
        let View { factor, scale, .. } = self.shape.view(block);
        let mut matrix = vec![0.0; dim * dim];
        kernels::inverse(dim, factor, scale, &mut matrix);
        self.set_largest(slot, largest_eigenvalue_of(dim, matrix.clone()).min(1.0));
        let mut gram = self.scratch.gram_of(block);
        for i in 0..dim {
            let (row, rest) = gram.split_at(i + 1);
            gram = rest;
            for (j, &entry) in row.iter().enumerate() {
                (matrix[i * dim + j], matrix[j * dim + i]) = (entry, entry);
            }
            matrix[i * dim + i] += 1.0;
        }
        let trace: f64 = matrix.iter().step_by(dim + 1).sum();
        if trace < MAX_TRACE {
            self.longest[slot] = largest_eigenvalue_of(dim, matrix).min(self.longest[slot]);
        }
    }

    /// The uncertainty for xᵀS⁻¹x.
    fn form(&self, norm: f64) -> f64 {
        match self.is_squared {
            true => norm,
            false => norm.sqrt(),
        }
    }

    /// Who is asked by a user: all others.
    fn others(&self, slot: Option<usize>) -> Vec<f32> {
        let mut asked = vec![0.0; self.least.len()];
        asked[..self.counts.len()].fill(1.0);
        if let Some(slot) = slot {
            asked[slot] = 0.0;
        }
        asked
    }

    fn voters<'a>(&'a self, asked: &'a [f32]) -> Voters<'a> {
        Voters {
            estimates: self.estimates.lanes(),
            roots: self.roots.lanes(),
            asked,
        }
    }
}

/// Items that are handled together.
const AT_ONCE: usize = 4;

/// A recommendation under way.
struct Ballot<'a> {
    cab: &'a Cab,
    weight: f64,
    /// The features of the items, one after another, and the user's own scores.
    features: Vec<f32>,
    own: Vec<Score>,
    /// Who is asked, and the bounds of those.
    asked: Vec<f32>,
    least: Vec<f32>,
    largest: Vec<f32>,
    eigenvalue: Vec<f32>,
    /// xᵀx of each item, and xᵀ(Σ S⁻¹)x over all users, the one who is served included.
    squares: Vec<f64>,
    norms: Vec<f64>,
}

impl<'a> Ballot<'a> {
    fn new(cab: &'a Cab, user: UserId, items: &ItemSet) -> Self {
        let (slot, weight) = (cab.crowd.slot(user), cab.factor.after(cab.rounds));
        let opinions = &cab.opinions;
        let features = (0..items.len()).flat_map(|index| items.item(index));
        let mut ballot = Self {
            cab,
            weight,
            features: features.map(|x| x as f32).collect(),
            own: Vec::with_capacity(items.len()),
            asked: opinions.others(slot),
            least: opinions.least.clone(),
            largest: opinions.largest.clone(),
            eigenvalue: opinions.eigenvalue.clone(),
            squares: Vec::with_capacity(items.len()),
            norms: Vec::with_capacity(items.len()),
        };
        if let Some(slot) = slot {
            ballot.least[slot] = f32::NEG_INFINITY;
            ballot.largest[slot] = f32::NEG_INFINITY;
            ballot.eigenvalue[slot] = 0.0;
        }
        let mut scores = Scores::new();
        for group in items.groups() {
            scores.fill(cab.index, cab.crowd.view(slot), weight, group);
            let own = (0..group.len).map(|lane| scores.of(lane));
            ballot.own.extend(own);
            let mut norms = [0.0; GROUP];
            kernels::quadratic(
                cab.shape.dim,
                &opinions.total,
                group.features,
                &mut norms[..group.width],
            );
            ballot.norms.extend(&norms[..group.len]);
            let mut means = [0.0; GROUP];
            kernels::lengths(Lengths {
                estimate: cab.crowd.view(slot).estimate,
                items: group.features,
                mean: &mut means[..group.width],
                norm: &mut norms[..group.width],
            });
            ballot.squares.extend(&norms[..group.len]);
        }
        if slot.is_none() {
            let norms = ballot.norms.iter_mut().zip(&ballot.squares);
            norms.for_each(|(norm, square)| *norm += square);
        }
        ballot
    }

    fn feature(&self, index: usize, k: usize) -> f32 {
        self.features[index * self.cab.shape.dim + k]
    }

    /// The features of some items side by side.
    fn side_by_side<const C: usize>(&self, indexes: [usize; C]) -> Vec<[f32; C]> {
        let features = 0..self.cab.shape.dim;
        let features = features.map(|k| indexes.map(|index| self.feature(index, k)));
        features.collect()
    }

    fn questions<'b, const C: usize>(
        &self,
        indexes: [usize; C],
        items: &'b [[f32; C]],
    ) -> Questions<'b, C> {
        Questions {
            items,
            means: indexes.map(|index| self.own[index].mean as f32),
            widths: indexes.map(|index| self.own[index].width as f32),
            weight: self.weight as f32,
            is_squared: self.cab.opinions.is_squared,
        }
    }

    /// The averages over the neighbours, for each of some items.
    fn poll<const C: usize>(&self, indexes: [usize; C]) -> [Score; C] {
        let items = self.side_by_side(indexes);
        let votes = kernels::poll(Poll {
            voters: self.cab.opinions.voters(&self.asked),
            questions: self.questions(indexes, &items),
        });
        std::array::from_fn(|c| {
            // A user is their own neighbour.
            let (own, [others, gaps, widths]) = (self.own[indexes[c]], votes[c]);
            let mean = own.mean + gaps / (others + 1.0);
            let width = (own.width + widths) / (others + 1.0);
            Score {
                score: mean + width,
                mean,
                width,
            }
        })
    }

    /// Upper bounds of the scores, for each of some items.
    ///
    /// With k neighbours, Σ ‖x‖_j ≤ √(k Σ ‖x‖_j²), and the sum over all users is xᵀ(Σ S⁻¹)x, less those who are no
    /// neighbours. Users who may be neighbours count if they make the average of the means larger.
    fn bound<const C: usize>(&self, indexes: [usize; C]) -> [f64; C] {
        let opinions = &self.cab.opinions;
        let items = self.side_by_side(indexes);
        let squares = indexes.map(|index| self.squares[index]);
        let full = squares.map(|square| self.weight * opinions.form(square));
        let guesses = kernels::guess(Guess {
            estimates: opinions.estimates.lanes(),
            bounds: Bounds {
                least: &self.least,
                largest: &self.largest,
                eigenvalue: &self.eigenvalue,
            },
            questions: self.questions(indexes, &items),
            full: full.map(|full| full as f32),
        });
        std::array::from_fn(|c| {
            let (own, guesses, slack) = (self.own[indexes[c]], guesses[c], opinions.slack);
            let (certain, possible) = (guesses.certain + 1.0, guesses.possible + 1.0);
            let shift = guesses.gaps;
            let shift = shift / if shift > 0.0 { certain } else { possible };
            let ruled_out = guesses.ruled_out * (1.0 - slack);
            let rest = TOTAL_MARGIN * (opinions.counts.len() + 1) as f64 - ruled_out;
            let norms = self.norms[indexes[c]] + squares[c] * rest;
            let uncertainty = opinions.form(norms.max(0.0) / certain);
            // Gaps of neighbours are at most the sum of two widths.
            let margin = slack * (own.width + full[c]) * (1.0 + possible / certain);
            let margin = margin + f64::EPSILON * own.mean.abs();
            let bound = own.mean + shift + self.weight * uncertainty + margin;
            if bound.is_nan() { f64::INFINITY } else { bound }
        })
    }

    /// Calls `some` for all items, [`AT_ONCE`] at a time; the last one is repeated.
    fn for_all<T>(&self, some: impl Fn([usize; AT_ONCE]) -> [T; AT_ONCE]) -> Vec<T> {
        let len = self.own.len();
        let firsts = (0..len).step_by(AT_ONCE);
        let all = firsts.flat_map(|first| some(std::array::from_fn(|c| (first + c).min(len - 1))));
        all.take(len).collect()
    }

    /// The `k` items with the largest scores: those with the largest bounds are scored until no bound is larger than a score.
    fn best(&self, k: usize, exclude: &dyn Fn(usize) -> bool, best: &mut Vec<Decision>) {
        best.clear();
        let bounds = self.for_all(|some| self.bound(some));
        let mut waiting: Vec<(usize, f64)> = bounds.into_iter().enumerate().collect();
        waiting.retain(|&(index, _)| !exclude(index));
        waiting.sort_unstable_by(|a, b| b.1.total_cmp(&a.1));
        let mut waiting = &*waiting;
        loop {
            // Also equal ones: the first of equal scores comes first.
            let threshold = match best.len() == k {
                true => best.last().map_or(f64::INFINITY, |worst| worst.score.score),
                false => f64::NEG_INFINITY,
            };
            let count = waiting.iter().take(AT_ONCE);
            let count = count.take_while(|(_, bound)| *bound >= threshold).count();
            let (next, rest) = waiting.split_at(count);
            waiting = rest;
            let decide = |(index, score)| Decision { index, score };
            match *next {
                [] => return,
                [(a, _)] => best.extend([a].into_iter().zip(self.poll([a])).map(decide)),
                [(a, _), (b, _)] => {
                    let pair = [a, b];
                    best.extend(pair.into_iter().zip(self.poll(pair)).map(decide));
                }
                _ => {
                    let some: [usize; AT_ONCE] = std::array::from_fn(|c| next[c.min(count - 1)].0);
                    let scores = some.into_iter().zip(self.poll(some));
                    best.extend(scores.take(count).map(decide));
                }
            }
            best.sort_unstable_by(better_first);
            best.truncate(k);
        }
    }
}

impl Cab {
    fn new(setup: &Setup<'_>, values: &Values) -> Result<Self, Error> {
        let shape = Shape {
            dim: check_dim(setup.dim)?,
        };
        let index = log_index::index(values);
        let crowd = Crowd::new(shape, setup.users)?;
        Ok(Self {
            shape,
            factor: Factor::from_values(values),
            index,
            gamma: values.number(GAMMA.name).unwrap_or(0.0),
            rounds: 0,
            opinions: Opinions::new(shape, index, &crowd),
            crowd,
        })
    }

    fn observe(&mut self, slot: usize, item: &[f64], reward: f64) {
        self.opinions.before(self.crowd.view(Some(slot)), item);
        self.crowd.observe(slot, item, reward);
        self.opinions.after(slot, self.crowd.block(slot), item);
    }

    fn update(&mut self, observation: &Observation<'_>, weight: f64) {
        let Observation {
            user, item, reward, ..
        } = *observation;
        let slot = self.crowd.slot(user).unwrap_or_else(|| {
            let slot = self.crowd.admit(user);
            self.opinions.admit(slot, &self.crowd);
            slot
        });
        let sure = self.gamma / 4.0;
        let width = self.crowd.width(slot, item, self.index, weight);
        if width < sure {
            let items: Vec<[f32; 1]> = item.iter().map(|&x| [x as f32]).collect();
            let neighbours = kernels::sure_neighbours(SureNeighbours {
                voters: self.opinions.voters(&self.opinions.others(Some(slot))),
                question: Questions {
                    items: &items,
                    means: [self.crowd.mean(slot, item) as f32],
                    widths: [width as f32],
                    weight: weight as f32,
                    is_squared: self.opinions.is_squared,
                },
                sure: sure as f32,
            });
            for other in neighbours {
                self.observe(other, item, reward);
            }
        }
        self.observe(slot, item, reward);
    }
}

impl Policy for Cab {
    fn dim(&self) -> usize {
        self.shape.dim
    }

    fn rounds(&self) -> u64 {
        self.rounds
    }

    fn explain(&self, user: UserId, items: &ItemSet, scores: &mut Vec<Score>) -> Result<(), Error> {
        check_items(items, self.shape.dim)?;
        let ballot = Ballot::new(self, user, items);
        *scores = ballot.for_all(|some| ballot.poll(some));
        Ok(())
    }

    fn best(
        &self,
        user: UserId,
        items: &ItemSet,
        k: usize,
        exclude: &dyn Fn(usize) -> bool,
        best: &mut Vec<Decision>,
    ) -> Result<(), Error> {
        check_items(items, self.shape.dim)?;
        Ballot::new(self, user, items).best(k, exclude, best);
        Ok(())
    }

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        _changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        check_round(round, self.shape.dim)?;
        self.crowd.check_room(round)?;
        let weight = self.factor.after(self.rounds);
        self.rounds += 1;
        for observation in round {
            self.update(observation, weight);
        }
        Ok(())
    }

    fn estimate(&self, user: UserId) -> Option<Vec<f64>> {
        Some(self.crowd.view(self.crowd.slot(user)).estimate.to_vec())
    }

    fn digest(&self) -> u64 {
        bytes::digest(self)
    }

    fn state_bytes(&self) -> Option<u64> {
        Some(bytes::length(self))
    }
}

impl Save for Cab {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub ca");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.rounds)?;
        self.crowd.save(writer)
    }
}

/// α and γ.
const TUNED: [f64; 2] = [0.2, 0.2];
const RELEASED: [f64; 2] = [1.0, 0.2];

const fn of(preset: Preset) -> [f64; 2] {
    match preset {
        Preset::Released => RELEASED,
        _ => TUNED,
    }
}

const ALPHA: Constant = Constant {
    default: |preset, _| Ok(Value::Number(of(preset)[0])),
    ..log_index::ALPHA
};

const GAMMA: Constant = Constant::new(
    "gamma",
    "Distance between the mean rewards of users who differ about an item. A user is sure about an item if its width \
     is below X/4; neighbours who are sure learn from each other's rewards",
    Range::NOT_NEGATIVE,
    |preset, _| Ok(Value::Number(of(preset)[1])),
);

/// `cab`
pub static SPEC: Spec = Spec {
    name: "cab",
    title: "CAB",
    summary: "For each item, the average over users who agree about it",
    citation: "after Gentile et al., ICML 2017",
    colors: ["#00796B", "#4DB6AC"],
    revision: 3,
    presets: &[Preset::Tuned, Preset::Released],
    constants: &[ALPHA, log_index::BETA, log_index::INDEX, GAMMA],
    can: Abilities::NONE,
    new: |setup, values| Ok(Box::new(Cab::new(setup, values)?)),
    load: None,
    gather: None,
};
