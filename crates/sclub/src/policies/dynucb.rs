//! DynUCB: k-means over the users' estimates while it recommends.
//!
//! The number of clusters K is given. Each user belongs to one cluster and is served from the sums of all its users.
//! After each reward the user moves to the cluster with the nearest centroid, the mean of its users' estimates. Users
//! may move for ever.
//!
//! Nguyen and Lauw: "Dynamic Clustering of Contextual Multi-Armed Bandits", CIKM 2014. Preset `released` has the
//! constants of the authors' Java code.
//!
//! # Decisions
//! - The first K users who appear found the clusters. Later ones get a random cluster, fixed by the seed and the order
//!   of appearance. A user who has not appeared is served from the cluster of the user who appears next.
//! - The index is the paper's own: α √ln(t + 1) in place of the published β of SCLUB's code (`log_index.rs`).
//! - The new estimate of a user enters the centroid of the user's cluster before the distances are compared. The
//!   authors' code compares with the centroid before the reward: `--centroids stale` does so too.
//! - Both centroids and both sums change with a move. The authors' earlier version leaves the old centroid as it was.
//! - On a tie the user stays; else the lowest number wins. Otherwise users without a reward yet, whose estimates are all
//!   0, would gather in the first cluster.
//! - A cluster without users keeps its last centroid, and users can move to it.
//! - K is by default the number of clusters in the assumptions about the world, where that is less than the number of
//!   users: DynUCB is told K.
//!
//! # Cost
//! Memory d(d + 5)/2 numbers a user and d² + 6d a cluster. A recommendation takes O(L d²) for L items, a reward
//! O(d² + K d), a move O(d³).

use std::io;

use super::log_index::{self, Factor};
use crate::base::Base;
use crate::bytes::{self, Save, Writer};
use crate::digest::mix;
use crate::error::{Error, check_dim};
use crate::items::ItemSet;
use crate::kernels;
use crate::ledger::Ledger;
use crate::params::Params;
use crate::policy::{
    Change, ClusterId, Decision, Observation, Policy, Score, UserId, check_items, check_round,
    rank_by_basis,
};
use crate::radius::distance;
use crate::spec::{Abilities, Constant, Preset, Range, Spec, Value, Values};
use crate::statistics::{Aggregate, Scratch, Shape, View};
use crate::ucb::Ranking;

/// DynUCB's users, clusters and sums.
pub(crate) struct DynUcb {
    shape: Shape,
    ranking: Ranking,
    factor: Factor,
    /// K
    limit: usize,
    /// True if a user is compared with the centroids before the reward.
    is_stale: bool,
    seed: u64,
    rounds: u64,
    ledger: Ledger,
    /// The cluster of each user, by slot.
    labels: Vec<u32>,
    /// The clusters that have been founded, at most K.
    clusters: Vec<Cluster>,
    /// The cluster of a user who comes before all clusters are founded.
    empty: Aggregate,
    scratch: Scratch,
}

struct Cluster {
    sums: Aggregate,
    users: u64,
    /// Sum of the users' estimates.
    total: Box<[f64]>,
    centroid: Box<[f64]>,
}

impl Cluster {
    fn new(shape: Shape) -> Self {
        Self {
            sums: Aggregate::new(shape),
            users: 0,
            total: vec![0.0; shape.dim].into(),
            centroid: vec![0.0; shape.dim].into(),
        }
    }

    /// Adds or removes an estimate.
    fn add(&mut self, estimate: &[f64], weight: f64) {
        kernels::add_scaled(&mut self.total, weight, estimate);
    }

    /// Sets the centroid to the mean estimate; `only` is that of the user if there is only one.
    fn centre(&mut self, only: &[f64]) {
        match self.users {
            0 => self.total.fill(0.0),
            1 => self.total.copy_from_slice(only),
            _ => {}
        }
        if self.users > 0 {
            for (mean, total) in self.centroid.iter_mut().zip(&self.total) {
                *mean = total / self.users as f64;
            }
        }
    }
}

impl DynUcb {
    pub fn new(dim: usize, seed: u64, values: &Values) -> Result<Self, Error> {
        let shape = Shape {
            dim: check_dim(dim)?,
        };
        Ok(Self {
            shape,
            ranking: Ranking::new(dim, &Params::from_values(values)),
            factor: Factor::from_values(values),
            limit: values.number(CLUSTERS.name).unwrap_or(1.0) as usize,
            is_stale: values.choice(CENTROIDS.name) == "stale",
            seed,
            rounds: 0,
            ledger: Ledger::new(shape),
            labels: Vec::new(),
            clusters: Vec::new(),
            empty: Aggregate::new(shape),
            scratch: Scratch::new(shape),
        })
    }

    /// The cluster that the user with a slot begins in.
    fn first_label(&self, slot: usize) -> usize {
        match slot < self.limit {
            true => slot,
            false => (mix(mix(self.seed) ^ slot as u64) % self.limit as u64) as usize,
        }
    }

    /// The sums of the cluster that a user is served from.
    fn served_from(&self, user: UserId) -> &Aggregate {
        let label = match self.ledger.slot(user) {
            Some(slot) => self.labels[slot] as usize,
            None => self.first_label(self.ledger.len()),
        };
        self.clusters.get(label).map_or(&self.empty, |c| &c.sums)
    }

    fn basis(&self, user: UserId) -> (View<'_>, f64) {
        let view = self.served_from(user).view();
        (view, self.factor.after(self.rounds))
    }

    fn update(&mut self, observation: &Observation<'_>) {
        let founded = self.clusters.len();
        let slot = self.ledger.slot(observation.user).unwrap_or_else(|| {
            let slot = self.ledger.len();
            let label = self.first_label(slot);
            if label == self.clusters.len() {
                self.clusters.push(Cluster::new(self.shape));
            }
            self.clusters[label].users += 1;
            self.labels.push(label as u32);
            slot
        });
        let label = self.labels[slot] as usize;
        let cluster = &mut self.clusters[label];
        if slot < self.ledger.len() {
            cluster.add(self.ledger.view(slot).estimate, -1.0);
        }
        self.ledger.observe(observation);
        let estimate = self.ledger.view(slot).estimate;
        cluster.add(estimate, 1.0);
        // A new cluster has no centroid yet.
        if !self.is_stale || label == founded {
            cluster.centre(estimate);
        }
        let (item, reward) = (observation.item, observation.reward);
        cluster.sums.observe(&mut self.scratch, item, reward);
    }

    /// Moves a user to the cluster with the nearest centroid.
    fn settle(&mut self, slot: usize) {
        let estimate = self.ledger.view(slot).estimate;
        let from = self.labels[slot] as usize;
        let mut nearest = (distance(estimate, &self.clusters[from].centroid), from);
        for (label, cluster) in self.clusters.iter().enumerate() {
            let apart = distance(estimate, &cluster.centroid);
            if apart < nearest.0 {
                nearest = (apart, label);
            }
        }
        let to = nearest.1;
        if to == from {
            if self.is_stale {
                self.clusters[from].centre(estimate);
            }
            return;
        }
        self.labels[slot] = to as u32;
        let (block, count) = (self.ledger.block(slot), self.ledger.count(slot));
        let left = &mut self.clusters[from];
        left.users -= 1;
        left.add(estimate, -1.0);
        left.sums.remove_block(&mut self.scratch, block, count);
        left.sums.factorise(&mut self.scratch);
        // Where one user is left, their estimate is the total, up to rounding.
        let only = left.total.clone();
        left.centre(&only);
        let joined = &mut self.clusters[to];
        joined.users += 1;
        joined.add(estimate, 1.0);
        joined.sums.add_block(&mut self.scratch, block, count);
        joined.sums.factorise(&mut self.scratch);
        joined.centre(estimate);
    }
}

impl Policy for DynUcb {
    fn dim(&self) -> usize {
        self.shape.dim
    }

    fn rounds(&self) -> u64 {
        self.rounds
    }

    rank_by_basis!();

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        _changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        check_round(round, self.shape.dim)?;
        self.ledger.check_room(round)?;
        self.rounds += 1;
        for observation in round {
            self.update(observation);
        }
        for observation in round {
            if let Some(slot) = self.ledger.slot(observation.user) {
                self.settle(slot);
            }
        }
        Ok(())
    }

    fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
        Some(ClusterId::from(self.labels[self.ledger.slot(user)?]) + 1)
    }

    fn clusters(&self) -> usize {
        let some = self.clusters.iter().filter(|cluster| cluster.users > 0);
        some.count()
    }

    fn digest(&self) -> u64 {
        bytes::digest(self)
    }

    fn state_bytes(&self) -> Option<u64> {
        Some(bytes::length(self))
    }
}

impl Base for DynUcb {
    fn sums(&self, user: UserId) -> (View<'_>, u64) {
        let sums = self.served_from(user);
        (sums.view(), sums.count())
    }

    fn appearance(&self, user: UserId) -> (u64, u64) {
        match self.ledger.slot(user) {
            Some(slot) => (slot as u64, self.ledger.count(slot)),
            None => (self.ledger.len() as u64, 0),
        }
    }
}

impl Save for DynUcb {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub dy");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.seed)?;
        writer.word(self.rounds)?;
        self.ledger.save(writer)?;
        writer.words(self.labels.iter().map(|&label| u64::from(label)))?;
        for cluster in &self.clusters {
            writer.word(cluster.users)?;
            writer.numbers(&cluster.total)?;
            writer.numbers(&cluster.centroid)?;
            cluster.sums.save(writer)?;
        }
        Ok(())
    }
}

/// (tuned, released)
const DEFAULT_ALPHA: (f64, f64) = (0.2, 2.358);
const DEFAULT_CLUSTERS: (f64, f64) = (10.0, 16.0);

const ALPHA: Constant = Constant {
    default: |preset, _| {
        Ok(Value::Number(match preset {
            Preset::Released => DEFAULT_ALPHA.1,
            _ => DEFAULT_ALPHA.0,
        }))
    },
    ..log_index::ALPHA
};

/// K
pub(crate) const CLUSTERS: Constant = Constant::new(
    "clusters",
    "The number of clusters. By default the number in the world, where it is known; else 10, and 16 with the \
     published code's constants",
    Range::whole(1.0, 1e6, "a whole number from 1 to 1000000"),
    |preset, setup| {
        Ok(Value::Number(match (preset, setup.assumptions) {
            (_, Some(world)) if world.clusters < world.users => {
                (world.clusters as f64).clamp(1.0, 1e6)
            }
            (Preset::Released, _) => DEFAULT_CLUSTERS.1,
            _ => DEFAULT_CLUSTERS.0,
        }))
    },
);

const CENTROIDS: Constant = Constant {
    advanced: true,
    ..Constant::new(
        "centroids",
        "The centroids that a user is compared with: those after the reward, or those before it (stale), as in the \
         published code",
        Range::OneOf(&["fresh", "stale"]),
        |_, _| Ok(Value::Choice("fresh")),
    )
};

/// `dynucb`
pub static SPEC: Spec = Spec {
    name: "dynucb",
    title: "DynUCB",
    summary: "k-means over the estimates of users; the number of clusters is given",
    citation: "Nguyen and Lauw, CIKM 2014",
    colors: ["#6B4C9A", "#B39DDB"],
    revision: 1,
    presets: &[Preset::Tuned, Preset::Released],
    constants: &[
        ALPHA,
        log_index::BETA,
        log_index::INDEX,
        CLUSTERS,
        CENTROIDS,
    ],
    can: Abilities::NONE,
    new: |setup, values| Ok(Box::new(DynUcb::new(setup.dim, setup.seed, values)?)),
    load: None,
    gather: None,
};
