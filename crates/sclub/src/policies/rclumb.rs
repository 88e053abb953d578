//! RCLUMB: clustering of bandits whose users are linear up to an error of at most ε* for each item.
//!
//! After Wang, Xie, Liu, Li and Lui, "Online Clustering of Bandits with Misspecified User Models", NeurIPS 2023
//! (arXiv 2310.02717). Steps and constants of `released` are those of the authors' public code
//! (XJ34/Clustering-of-bandits-with-misspecified-user-models). The constants of the theorem are recalled, not read.
//!
//! The graph of users is complete at first. In each round:
//! 1. The user is served with the sums over V, the user and their direct neighbours. The score of an item x is
//!    θ̂_Vᵀx + β ‖x‖ + ε* Σ_s |xᵀM_V⁻¹x_s|, with the norm of M_V⁻¹ and the sum over the past items x_s of V.
//! 2. The user learns from the reward.
//! 3. An edge (i, j) of the user is cut if ‖θ̂_i − θ̂_j‖ > α₁ (F(T_i) + F(T_j)) + α₂ ε*.
//!
//! # Decisions
//! - The radius is the public code's. As recalled, the paper multiplies the ε* term by α₁ too.
//! - The sum over past items is exact while every item learned had an id: counts for each item and user are kept, with the
//!   features that the item had when first learned. After an observation without an id, or with
//!   `history=bound`, it is replaced by its upper bound by Cauchy and Schwarz, √(N xᵀM⁻¹(M − I)M⁻¹x), with N observations
//!   in V. The bound is at most √N ‖x‖.
//! - The public code loses the history of users when their group splits. Here it is kept; `--history none` is without the bonus.
//! - β grows as CLUB's here (`beta_scale`), or is fixed (`beta`); the public code has 1.5 with the squared norm.
//! - Users who have not appeared have T = 0 and θ̂ = 0, and are tested as all others.
//! - In a round of several observations, all are learned before an edge is tested.
//! - Cut edges stay cut.
//!
//! # Cost
//! Memory: O(d²) for each user, a bit for each pair, and a number for each item a user has seen. A round:
//! O(min(|V|, n − |V|) d² + d³ + L d²) to recommend from L items, and O(n d) to learn; the exact sum over past
//! items adds O(L d) for each item that was ever shown.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::neighbours::{Neighbours, rank_by_neighbours};
use super::past_items;
use crate::error::Error;
use crate::items::{GROUP, Group};
use crate::kernels::{self, Overlaps};
use crate::params::{self, Params};
use crate::policy::{Change, ClusterId, ItemId, Observation, Policy, UserId, check_round};
use crate::radius::radius;
use crate::roster::MixHasher;
use crate::spec::{Abilities, Constant, Preset, Range, Spec, Value};
use crate::statistics::Aggregate;
use crate::ucb::{Ranking, Scores};

/// The constants of a preset.
struct Presets {
    alpha: f64,
    alpha_error: f64,
    error: f64,
    beta: Value,
    beta_scale: Value,
}

const TUNED: Presets = Presets {
    alpha: 2.5,
    alpha_error: 1.5,
    error: 0.01,
    beta: Value::Unset,
    beta_scale: Value::Number(params::TUNED_EXPLORATION),
};

const RELEASED: Presets = Presets {
    alpha: 1.0,
    alpha_error: 1.5,
    error: 0.2,
    beta: Value::Number(1.5),
    beta_scale: Value::Unset,
};

fn preset(preset: Preset) -> Presets {
    match preset {
        Preset::Released => RELEASED,
        _ => TUNED,
    }
}

/// Clustering of misspecified bandits by a graph.
#[derive(Debug, Clone)]
struct Rclumb {
    users: Neighbours,
    params: Params,
    ranking: Ranking,
    /// α₁
    alpha: f64,
    /// α₂ ε*
    allowance: f64,
    /// ε* in the bonus.
    error: f64,
    /// α₁ F(T) of each node.
    radii: Vec<f64>,
    /// The observations of each item; `None` if not every observation had an id, or the bound is used in their place.
    history: Option<History>,
    /// Squared distances; a buffer that is reused.
    distances: [f64; GROUP],
}

/// The number of times that each item was learned.
#[derive(Debug, Clone, Default)]
struct History {
    places: HashMap<ItemId, u32, BuildHasherDefault<MixHasher>>,
    /// The features of each item, by place.
    features: Vec<f64>,
    /// By place, for all nodes together.
    total: Vec<u64>,
    /// The items of each node by place, with their counts.
    nodes: Vec<Vec<(u32, u64)>>,
}

impl History {
    fn add(&mut self, node: usize, id: ItemId, item: &[f64]) {
        let next = self.total.len() as u32;
        let place = *self.places.entry(id).or_insert(next);
        if place == next {
            self.features.extend_from_slice(item);
            self.total.push(0);
        }
        self.total[place as usize] += 1;
        self.nodes
            .resize_with(self.nodes.len().max(node + 1), Vec::new);
        let own = &mut self.nodes[node];
        match own.binary_search_by_key(&place, |&(place, _)| place) {
            Ok(at) => own[at].1 += 1,
            Err(at) => own.insert(at, (place, 1)),
        }
    }

    /// The size in bytes.
    fn bytes(&self) -> u64 {
        let nodes: usize = self.nodes.iter().map(|own| size_of_val(&own[..])).sum();
        let items = self.places.len() * size_of::<(ItemId, u32)>();
        (nodes + items + size_of_val(&self.features[..]) + size_of_val(&self.total[..])) as u64
    }

    /// The counts by place over the nodes that a user is served with.
    fn counts(&self, users: &Neighbours, user: UserId) -> Vec<u64> {
        let members = users.members(user);
        let is_sum = members.are_fewer();
        let mut counts = match is_sum {
            true => vec![0; self.total.len()],
            false => self.total.clone(),
        };
        for &(place, count) in members.fewer().flat_map(|node| &self.nodes[node]) {
            let sum = &mut counts[place as usize];
            *sum = if is_sum { *sum + count } else { *sum - count };
        }
        counts
    }
}

/// The parts of the bonus for the error ε*.
enum Bonus<'a> {
    /// No error.
    None,
    /// By the past items: M⁻¹ by rows, their features and their counts.
    Items(Vec<f64>, &'a [f64], Vec<u64>),
    /// By the bound.
    Bound,
}

impl Rclumb {
    fn cut_edges(&mut self, node: usize) {
        let users = &mut self.users;
        let estimate = users.view(node).estimate.to_vec();
        let reach = self.radii[node] + self.allowance;
        for first in (0..users.len()).step_by(GROUP) {
            let points = users.estimate_groups().nth(first / GROUP);
            let points = points.expect("every node is in a group");
            kernels::distances(&estimate, points, &mut self.distances);
            let radii = &self.radii[first..users.len().min(first + GROUP)];
            for (lane, (distance, radius)) in self.distances.iter().zip(radii).enumerate() {
                let threshold = reach + radius;
                let other = first + lane;
                if *distance > threshold * threshold && users.has_edge(node, other) {
                    users.set_edge(node, other, false);
                }
            }
        }
        let length = estimate.iter().map(|x| x * x).sum::<f64>().sqrt();
        if length > reach + self.alpha * radius(0) {
            users.set_unseen_edge(node, false);
        }
    }

    /// Scores groups of items for a user.
    fn scorer(&self, user: UserId) -> impl FnMut(Group<'_>, &mut Scores) {
        let pool = self.users.pool(user);
        let beta = self
            .ranking
            .beta(pool.count(), self.users.clock.log_rounds());
        let bonus = self.bonus(user, &pool);
        let (dim, error, index) = (self.users.shape.dim, self.error, self.params.index);
        let mut images = vec![0.0; GROUP * dim];
        move |group, scores| {
            scores.fill(index, pool.view(), beta, group);
            match &bonus {
                Bonus::None => {}
                Bonus::Items(inverse, features, counts) => {
                    let mut sums = [0.0; GROUP];
                    let sums = &mut sums[..group.width];
                    let images = &mut images[..group.width * dim];
                    kernels::images(dim, inverse, group.features, group.width, images);
                    kernels::add_overlaps(Overlaps {
                        items: features,
                        counts,
                        images,
                        out: &mut *sums,
                    });
                    past_items::add_bonus(scores, error, sums);
                }
                Bonus::Bound => {
                    let spread = past_items::spread(pool.view(), &group, &mut images);
                    let scale = error * (pool.count() as f64).sqrt();
                    past_items::add_bonus(scores, scale, &spread[..group.width]);
                }
            }
        }
    }

    fn bonus(&self, user: UserId, pool: &Aggregate) -> Bonus<'_> {
        if self.error == 0.0 || pool.count() == 0 {
            return Bonus::None;
        }
        let Some(history) = &self.history else {
            return Bonus::Bound;
        };
        let dim = self.users.shape.dim;
        let view = pool.view();
        let mut inverse = vec![0.0; dim * dim];
        kernels::inverse(dim, view.factor, view.scale, &mut inverse);
        let counts = history.counts(&self.users, user);
        Bonus::Items(inverse, &history.features, counts)
    }
}

impl Policy for Rclumb {
    rank_by_neighbours!();

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        _changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        check_round(round, self.dim())?;
        self.users.check_room(round)?;
        self.users.clock.tick();
        for observation in round {
            let node = self.users.admit(observation.user);
            self.users
                .observe(node, observation.item, observation.reward);
            self.radii.resize(self.users.len(), 0.0);
            self.radii[node] = self.alpha * radius(self.users.count(node));
            match (&mut self.history, observation.id) {
                (Some(history), Some(id)) => history.add(node, id, observation.item),
                _ => self.history = None,
            }
        }
        for observation in round {
            let node = self.users.admit(observation.user);
            self.cut_edges(node);
        }
        Ok(())
    }

    fn state_bytes(&self) -> Option<u64> {
        let history = self.history.as_ref().map_or(0, History::bytes);
        Some(self.users.bytes() + history)
    }

    fn digest(&self) -> u64 {
        let mut digest = self.users.digest().numbers(&self.radii);
        if let Some(history) = &self.history {
            // The total is the sum over the nodes.
            let mut ids: Vec<(ItemId, u32)> =
                history.places.iter().map(|(&i, &p)| (i, p)).collect();
            ids.sort_unstable();
            for (id, place) in ids {
                digest = digest.word(id).word(u64::from(place));
            }
            digest = digest.numbers(&history.features);
            for node in &history.nodes {
                digest = digest.word(node.len() as u64);
                for &(place, count) in node {
                    digest = digest.word(u64::from(place)).word(count);
                }
            }
        }
        digest.finish()
    }
}

/// `rclumb`
pub static SPEC: Spec = Spec {
    name: "rclumb",
    title: "RCLUMB",
    summary: "A graph of users served with their direct neighbours, robust to tastes that are not quite linear",
    citation: "After Wang, Xie, Liu, Li and Lui, NeurIPS 2023",
    colors: ["#B5651D", "#E8B27A"],
    revision: 2,
    presets: &[Preset::Tuned, Preset::Released],
    constants: &[
        Constant::new(
            "alpha_theta",
            "An edge is cut if two estimates differ by more than X times the sum of their radii F(T), plus alpha_error times error",
            Range::NOT_NEGATIVE,
            |from, _| Ok(Value::Number(preset(from).alpha)),
        ),
        Constant::new(
            "alpha_error",
            "The share of the error that two estimates may differ by beyond their radii",
            Range::NOT_NEGATIVE,
            |from, _| Ok(Value::Number(preset(from).alpha_error)),
        ),
        Constant::new(
            "error",
            "The largest difference between a user's mean reward of an item and a linear one (epsilon*)",
            Range::NOT_NEGATIVE,
            |from, _| Ok(Value::Number(preset(from).error)),
        ),
        Constant {
            default: |from, _| Ok(preset(from).beta),
            ..params::BETA
        },
        Constant {
            default: |from, _| Ok(preset(from).beta_scale),
            ..params::BETA_SCALE
        },
        params::INDEX,
        past_items::HISTORY,
    ],
    can: Abilities {
        item_ids: true,
        ..Abilities::NONE
    },
    new: |setup, values| {
        let params = Params::from_values(values);
        let number = |name| values.number(name).unwrap_or(0.0);
        setup.users.declared()?;
        Ok(Box::new(Rclumb {
            users: Neighbours::new(setup.dim)?,
            params,
            ranking: Ranking::new(setup.dim, &params),
            alpha: number("alpha_theta"),
            allowance: number("alpha_error") * number("error"),
            error: match values.choice(past_items::HISTORY.name) {
                "none" => 0.0,
                _ => number("error"),
            },
            radii: Vec::new(),
            history: (values.choice(past_items::HISTORY.name) == "items").then(History::default),
            distances: [0.0; GROUP],
        }))
    },
    load: None,
    gather: None,
};
