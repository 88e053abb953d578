//! CLUB, the graph-based predecessor (Gentile, Li, Zappella: "Online Clustering of Bandits", ICML
//! 2014), generalised by the paper to users of unequal frequency.

mod components;
mod graph;
mod saved;

pub use graph::Graph;

use std::collections::BTreeMap;

use crate::abilities::{ClusterView, Inspect};
use crate::base::Base;
use crate::bytes::{self, Save as _};
use crate::error::{Error, check_dim};
use crate::items::ItemSet;
use crate::kernels;
use crate::params::{self, Params};
use crate::policy::{
    Change, Clock, ClusterId, Comparison, Decision, Observation, Policy, Score, UserId, Users, Why,
    check_items, check_round, offers, rank_by_basis,
};
use crate::radius::{Thresholds, distance, radius};
use crate::roster::Roster;
use crate::spec::{Abilities, Constant, Load, Preset, Range, Setup, Spec, Value, Values};
use crate::statistics::{Blocks, Shape, View};
use crate::ucb::Ranking;
use components::Components;
use graph::Edges;

/// Clustering of bandits by the connected components of a graph of users.
///
/// Users start connected to each other, all or at random. In each round:
/// 1. a user is recommended the item with the largest upper confidence bound on the estimate of
///    the user's connected component;
/// 2. the reward enters the statistics of the user and of the component;
/// 3. edges from the user to users whose estimates disagree are cut. That may split the component.
///
/// A user who was not declared draws edges to all earlier users at the first appearance, as if
/// declared; components that the new user connects become one.
///
/// Its state can be saved and comes back to the bit, but it cannot forget a user ([`crate::Forget`]): the
/// edges that the user's observations have cut stay cut.
///
/// ```
/// use sclub::{Club, Graph, Inspect, Params, Persist, Policy, Users};
///
/// let mut policy = Club::new(2, Users::Declared(3), Graph::Complete, &Params::tuned())?;
/// policy.learn(1, &[0.6, 0.8], 1.0)?;
/// let mut file = Vec::new();
/// policy.save_to(&mut file)?;
/// let again = Club::load_from(&mut file.as_slice())?;
/// assert_eq!(again.digest(), policy.digest());
/// assert_eq!(again.count(1), Some(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Club {
    params: Params,
    shape: Shape,
    ranking: Ranking,
    thresholds: Thresholds,
    clock: Clock,
    declared: u64,
    /// Users beyond the declared ones; their nodes follow.
    newcomers: Roster,
    edges: Edges,
    nodes: Nodes,
    components: Components,
    /// Edges to be cut; a buffer that is reused.
    cut: Vec<(u32, Comparison)>,
}

/// (S, b, T) of every node; memory for a block only once a user has appeared.
#[derive(Debug, Clone)]
struct Nodes {
    blocks: Blocks,
    /// The slot of a node's block; `UNSEEN` before the user has appeared.
    slots: Vec<u32>,
    counts: Vec<u64>,
    /// F(T) of each node.
    radii: Vec<f64>,
}

const UNSEEN: u32 = u32::MAX;

const COMPLETE_USERS: &str = "the number of users of a complete graph";

impl Nodes {
    fn grow_to(&mut self, nodes: usize) {
        self.slots.resize(nodes, UNSEEN);
        self.counts.resize(nodes, 0);
        self.radii.resize(nodes, radius(0));
    }

    fn is_seen(&self, node: u32) -> bool {
        self.slots[node as usize] != UNSEEN
    }

    fn block(&self, node: u32) -> &[f64] {
        match self.slots[node as usize] {
            UNSEEN => self.blocks.empty(),
            slot => self.blocks.get(slot as usize),
        }
    }

    fn count(&self, node: u32) -> u64 {
        self.counts[node as usize]
    }
}

impl Club {
    /// The maximum number of users with [`Graph::Complete`].
    pub const MAX_COMPLETE_USERS: u64 = 30_000;

    /// The graph before the first round.
    ///
    /// # Errors
    /// [`Error::Dimension`], [`Error::NoUsers`], [`Error::TooMany`], [`Error::BadParameter`].
    pub fn new(dim: usize, users: Users, graph: Graph, params: &Params) -> Result<Self, Error> {
        params.check()?;
        let shape = Shape {
            dim: check_dim(dim)?,
        };
        let declared = users.declared()?;
        if graph == Graph::Complete && declared > Self::MAX_COMPLETE_USERS {
            return Err(Error::TooMany {
                what: COMPLETE_USERS,
                limit: Self::MAX_COMPLETE_USERS,
            });
        }
        let mut edges = Edges::new(graph);
        edges.declare(declared as usize);
        let mut nodes = Nodes {
            blocks: Blocks::new(shape),
            slots: Vec::new(),
            counts: Vec::new(),
            radii: Vec::new(),
        };
        nodes.grow_to(declared as usize);
        let components = Components::of(shape, &mut edges);
        Ok(Self {
            params: *params,
            shape,
            ranking: Ranking::new(dim, params),
            thresholds: Thresholds::new(params),
            clock: Clock::new(),
            declared,
            newcomers: Roster::default(),
            edges,
            nodes,
            components,
            cut: Vec::new(),
        })
    }

    /// The policy of a setup, with the constants that the values have.
    pub(crate) fn from_values(setup: &Setup<'_>, values: &Values) -> Result<Self, Error> {
        Self::with_params(setup, values, &Params::from_values(values))
    }

    /// The policy of a setup, with the graph that the values have.
    pub(crate) fn with_params(
        setup: &Setup<'_>,
        values: &Values,
        params: &Params,
    ) -> Result<Self, Error> {
        let graph = match values.choice("graph") {
            "complete" => Graph::Complete,
            _ => Graph::Random { seed: setup.seed },
        };
        Self::new(setup.dim, setup.users, graph, params)
    }

    /// Edges left in the graph.
    pub fn edges(&self) -> usize {
        (0..self.edges.len())
            .map(|node| self.edges.of(node as u32).len())
            .sum::<usize>()
            / 2
    }

    /// The users that a user is still connected to directly, in no particular order.
    pub fn neighbours(&self, user: UserId) -> Vec<UserId> {
        let Some(node) = self.node(user) else {
            return Vec::new();
        };
        let nodes = self.edges.of(node).iter();
        nodes.map(|&node| self.user_of(node)).collect()
    }

    fn user_of(&self, node: u32) -> UserId {
        match u64::from(node).checked_sub(self.declared) {
            Some(newcomer) => self.newcomers.users()[newcomer as usize],
            None => UserId::from(node),
        }
    }

    /// A component by one of its nodes, and the number of its users.
    fn view_of(&self, node: u32, users: u64) -> ClusterView<'_> {
        let (block, count) = self.components.sums_of(node, &self.nodes);
        ClusterView {
            label: self.components.label_of(node),
            users,
            count,
            estimate: self.shape.view(block).estimate,
        }
    }

    /// The nodes of a component.
    fn nodes_of(&self, id: ClusterId) -> impl Iterator<Item = u32> + '_ {
        let nodes = 0..self.edges.len() as u32;
        nodes.filter(move |&node| self.components.label_of(node) == id)
    }

    /// The node of a user who has appeared.
    fn seen_node(&self, user: UserId) -> Option<u32> {
        self.node(user).filter(|&node| self.nodes.is_seen(node))
    }

    #[inline]
    fn node(&self, user: UserId) -> Option<u32> {
        if user < self.declared {
            return Some(user as u32);
        }
        self.newcomers
            .slot(user)
            .map(|slot| (self.declared + slot as u64) as u32)
    }

    /// Adds a user who was not declared, with edges.
    fn admit(&mut self, user: UserId, changes: &mut Vec<Change>) -> u32 {
        self.newcomers.admit(user);
        let node = self.edges.push();
        self.nodes.grow_to(node as usize + 1);
        self.components
            .add_node(node, user, self.edges.of(node), &self.nodes, changes);
        node
    }

    fn update(&mut self, node: u32, item: &[f64], reward: f64) {
        if !self.nodes.is_seen(node) {
            self.nodes.slots[node as usize] = self.nodes.blocks.len() as u32;
            self.nodes.blocks.push();
            self.components.mark_seen(node, &self.nodes);
        }
        self.components.observe(node, item, reward);
        let slot = self.nodes.slots[node as usize] as usize;
        kernels::observe(
            self.shape.dim,
            self.nodes.blocks.get_mut(slot),
            item,
            reward,
        );
        self.nodes.counts[node as usize] += 1;
        self.nodes.radii[node as usize] = radius(self.nodes.counts[node as usize]);
    }

    /// Cuts the edges to users who disagree, and parts the component if that parts the graph.
    fn cut_edges(&mut self, node: u32, user: UserId, changes: &mut Vec<Change>) {
        let estimate = self.shape.view(self.nodes.block(node)).estimate;
        let own_radius = self.nodes.radii[node as usize];
        let mut cut = std::mem::take(&mut self.cut);
        cut.clear();
        cut.extend(self.edges.of(node).iter().filter_map(|&other| {
            let apart = distance(estimate, self.shape.view(self.nodes.block(other)).estimate);
            let other_radius = self.nodes.radii[other as usize];
            let comparison = self
                .thresholds
                .estimates_disagree(apart, own_radius, other_radius)?;
            Some((other, comparison))
        }));
        // One at a time: a single cut parts a component in two at the most.
        for &(other, comparison) in &cut {
            self.edges.cut(node, other);
            if let Some(part) = self.edges.part_between(node, other) {
                let why = Why::Estimates(comparison);
                changes.push(self.components.part(&part, &self.nodes, user, why));
            }
        }
        self.cut = cut;
    }

    #[inline]
    fn basis(&self, user: UserId) -> (View<'_>, f64) {
        let (view, count) = self.sums(user);
        (view, self.beta(count))
    }

    /// β for an estimate from `count` observations.
    #[inline]
    pub(crate) fn beta(&self, count: u64) -> f64 {
        self.ranking.beta(count, self.clock.log_rounds())
    }
}

impl Base for Club {
    #[inline]
    fn sums(&self, user: UserId) -> (View<'_>, u64) {
        let (block, count) = match self.node(user) {
            Some(node) => self.components.sums_of(node, &self.nodes),
            None => (self.nodes.blocks.empty(), 0),
        };
        (self.shape.view(block), count)
    }

    fn appearance(&self, user: UserId) -> (u64, u64) {
        match self.seen_node(user) {
            Some(node) => (
                u64::from(self.nodes.slots[node as usize]),
                self.nodes.count(node),
            ),
            None => (self.nodes.blocks.len() as u64, 0),
        }
    }
}

impl Policy for Club {
    fn dim(&self) -> usize {
        self.shape.dim
    }

    fn rounds(&self) -> u64 {
        self.clock.rounds()
    }

    rank_by_basis!();

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        check_round(round, self.shape.dim)?;
        let (what, limit) = match self.edges.kind {
            Graph::Complete => (COMPLETE_USERS, Self::MAX_COMPLETE_USERS),
            Graph::Random { .. } => ("the number of users", Users::LIMIT),
        };
        let all = self.edges.len() as u64;
        if all + round.len() as u64 > limit {
            // Only users who are new need room.
            let mut new: Vec<UserId> = round.iter().map(|observation| observation.user).collect();
            new.retain(|&user| self.node(user).is_none());
            new.sort_unstable();
            new.dedup();
            if all + new.len() as u64 > limit {
                return Err(Error::TooMany { what, limit });
            }
        }
        self.clock.tick();
        for observation in round {
            let node = match self.node(observation.user) {
                Some(node) => node,
                None => self.admit(observation.user, changes),
            };
            self.update(node, observation.item, observation.reward);
        }
        let mut last = None;
        for observation in round {
            let node = self.node(observation.user).expect("admitted above");
            // One comparison is enough for observations of one user in a row, such as those of a list.
            if last.replace(node) != Some(node) {
                self.cut_edges(node, observation.user, changes);
            }
        }
        Ok(())
    }

    /// The component of the user; `None` for a user who has neither been declared nor appeared.
    fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
        Some(self.components.label_of(self.node(user)?))
    }

    fn clusters(&self) -> usize {
        self.components.len()
    }

    fn digest(&self) -> u64 {
        bytes::digest(self)
    }

    fn state_bytes(&self) -> Option<u64> {
        Some(bytes::length(self))
    }

    offers!(inspect, persist);
}

/// Looking at a cluster takes time that grows with the number of users.
impl Inspect for Club {
    fn users(&self) -> u64 {
        self.nodes.blocks.len() as u64
    }

    fn singletons(&self) -> u64 {
        let mut singletons = 0;
        self.each_cluster(&mut |view| singletons += u64::from(view.users == 1));
        singletons
    }

    fn count(&self, user: UserId) -> Option<u64> {
        Some(self.nodes.count(self.seen_node(user)?))
    }

    fn own_estimate(&self, user: UserId) -> Option<Vec<f64>> {
        let block = self.nodes.block(self.seen_node(user)?);
        Some(self.shape.view(block).estimate.to_vec())
    }

    fn cluster_users(&self, user: UserId) -> u64 {
        self.cluster_of(user)
            .map_or(0, |id| self.nodes_of(id).count() as u64)
    }

    fn each_cluster(&self, visit: &mut dyn FnMut(ClusterView<'_>)) {
        // By label: one of its nodes, and how many there are.
        let mut all: BTreeMap<ClusterId, (u32, u64)> = BTreeMap::new();
        for node in 0..self.edges.len() as u32 {
            let label = self.components.label_of(node);
            all.entry(label).or_insert((node, 0)).1 += 1;
        }
        for (node, users) in all.into_values() {
            visit(self.view_of(node, users));
        }
    }

    fn cluster(&self, id: ClusterId) -> Option<ClusterView<'_>> {
        let node = self.nodes_of(id).next()?;
        Some(self.view_of(node, self.nodes_of(id).count() as u64))
    }

    fn members(&self, id: ClusterId, limit: usize) -> Option<Vec<UserId>> {
        self.nodes_of(id).next()?;
        let seen = self.nodes_of(id).filter(|&node| self.nodes.is_seen(node));
        Some(seen.take(limit).map(|node| self.user_of(node)).collect())
    }
}

/// `club`
pub static SPEC: Spec = Spec {
    name: "club",
    title: "CLUB",
    summary: "Connected components of a graph of users whose edges are cut",
    citation: "Gentile, Li and Zappella, ICML 2014",
    colors: ["#222222", "#F0F0F0"],
    revision: 1,
    presets: params::PRESETS,
    constants: &[
        params::ALPHA_THETA,
        params::BETA,
        params::BETA_SCALE,
        params::INDEX,
        GRAPH,
    ],
    can: Abilities {
        forget: false,
        regroups: true,
        ..Abilities::SERVED
    },
    new: |setup, values| Ok(Box::new(Club::from_values(setup, values)?)),
    load: Some(Load {
        magic: Club::MAGIC,
        load: |reader| Ok(Box::new(Club::load_words(reader)?)),
    }),
    gather: None,
};

/// Users up to which the default graph of the published code's constants is complete: 10^8 ends of
/// edges.
const COMPLETE_BY_DEFAULT: u64 = 10_000;

pub(crate) const GRAPH: Constant = Constant {
    name: "graph",
    meaning: "The graph of users at the start: each edge with probability 3 ln n / n, or every \
              edge. Complete with the published code's constants and at most 10000 declared users, as the \
              paper's figures were made; else random",
    range: Range::OneOf(&["random", "complete"]),
    default: |preset, setup| {
        let few = matches!(setup.users, Users::Declared(users) if users <= COMPLETE_BY_DEFAULT);
        Ok(Value::Choice(match preset == Preset::Released && few {
            true => "complete",
            false => "random",
        }))
    },
    instead_of: None,
    advanced: false,
};
