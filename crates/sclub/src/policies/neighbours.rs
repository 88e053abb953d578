//! Users who are served with the sums of their direct neighbours in a graph: RCLUMB, DyClu and BASS.
//!
//! | symbol | name | meaning |
//! |---|---|---|
//! | G_i, b_i, T_i | `sums`, `counts` | Σ x xᵀ (lower triangle packed), Σ y x and the number of user i's observations |
//! | θ̂_i | `estimates` | (I + G_i)⁻¹ b_i |
//! | V_i | | user i and their direct neighbours |
//! | M_V, θ̂_V | [`Neighbours::pool`] | I + Σ G over V, and M_V⁻¹ Σ b over V |
//!
//! A *node* is a model of a user. A user has one, unless the policy restarts a user: the earlier model then stays
//! as a node that learns no more.
//!
//! All users who have not appeared are alike: no observation, and the same edges. So they are one row of the
//! graph, and a user who appears starts with a copy of it. It makes no difference whether they are declared.
//!
//! Cost: d(d+1)/2 + d numbers twice for each node, and one bit for each pair. A pool is summed over the neighbours, or
//! is the total without the others, whichever are fewer: O(min(|V|, n − |V|) d² + d³).

use super::side_by_side::SideBySide;
use crate::digest::Digest;
use crate::error::{Error, check_dim};
use crate::kernels::{self, LANES};
use crate::policy::{Clock, ClusterId, Observation, UserId};
use crate::roster::Roster;
use crate::statistics::{Aggregate, Blocks, Scratch, Shape, View};

/// The maximum number of nodes: as CLUB's with a complete graph.
pub(crate) const MAX_NODES: u64 = 30_000;

const BITS: usize = u64::BITS as usize;

/// The users, their sums, and the graph.
#[derive(Debug, Clone)]
pub(crate) struct Neighbours {
    pub shape: Shape,
    pub clock: Clock,
    roster: Roster,
    /// The node of each user, by slot.
    nodes: Vec<u32>,
    blocks: Blocks,
    counts: Vec<u64>,
    /// θ̂ of each node.
    estimates: SideBySide,
    /// G and b of each node, padded to [`Neighbours::width`].
    sums: Vec<f64>,
    total: Vec<f64>,
    total_count: u64,
    /// A bit for each node, for each node; a node has no edge to itself.
    edges: Vec<Vec<u64>>,
    /// The edges of every user who has not appeared.
    unseen: Vec<u64>,
}

impl Neighbours {
    pub fn new(dim: usize) -> Result<Self, Error> {
        let shape = Shape {
            dim: check_dim(dim)?,
        };
        Ok(Self {
            shape,
            clock: Clock::new(),
            roster: Roster::default(),
            nodes: Vec::new(),
            blocks: Blocks::new(shape),
            counts: Vec::new(),
            estimates: SideBySide::new(shape.dim),
            sums: Vec::new(),
            total: vec![0.0; width(shape)],
            total_count: 0,
            edges: Vec::new(),
            unseen: Vec::new(),
        })
    }

    /// The size in bytes of what cannot be computed from the rest: users, sums, counts and edges.
    pub fn bytes(&self) -> u64 {
        let edges: usize = self.edges.iter().map(|row| size_of_val(&row[..])).sum();
        let users = size_of_val(&self.nodes[..]) + self.nodes.len() * size_of::<UserId>();
        let counts = size_of_val(&self.counts[..]);
        let sums = size_of_val(&self.sums[..]) + size_of_val(&self.total[..]);
        (users + counts + sums + edges + size_of_val(&self.unseen[..])) as u64
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// The node of a user who has appeared.
    pub fn node(&self, user: UserId) -> Option<usize> {
        Some(self.nodes[self.roster.slot(user)?] as usize)
    }

    pub fn count(&self, node: usize) -> u64 {
        self.counts[node]
    }

    /// T of each node.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// G, then b.
    pub fn sums(&self, node: usize) -> &[f64] {
        let width = width(self.shape);
        &self.sums[node * width..(node + 1) * width]
    }

    /// G, then b, over all nodes.
    pub fn total(&self) -> &[f64] {
        &self.total
    }

    /// (I + G)⁻¹, b and θ̂ of a node alone.
    pub fn view(&self, node: usize) -> View<'_> {
        self.blocks.view(node)
    }

    /// The estimates of all nodes, side by side ([`SideBySide`]).
    pub fn estimate_groups(&self) -> std::slice::ChunksExact<'_, f64> {
        self.estimates.groups()
    }

    /// Checks that there is room for a round, as if each observation made a node.
    pub fn check_room(&self, round: &[Observation<'_>]) -> Result<(), Error> {
        if (self.len() + round.len()) as u64 <= MAX_NODES {
            return Ok(());
        }
        Err(Error::TooMany {
            what: "the number of users of a complete graph",
            limit: MAX_NODES,
        })
    }

    /// The node of a user, who may be new.
    pub fn admit(&mut self, user: UserId) -> usize {
        self.node(user).unwrap_or_else(|| {
            self.roster.admit(user);
            self.nodes.push(0);
            self.restart(user)
        })
    }

    /// Gives a user a new node without observations. The earlier one, if any, stays in the graph.
    pub fn restart(&mut self, user: UserId) -> usize {
        let node = self.len();
        let slot = self.roster.slot(user).expect("the user has appeared");
        self.nodes[slot] = node as u32;
        self.counts.push(0);
        self.blocks.push();
        self.sums.resize((node + 1) * width(self.shape), 0.0);
        self.estimates.grow(node + 1);
        if node.is_multiple_of(BITS) {
            self.edges.iter_mut().for_each(|row| row.push(0));
            self.unseen.push(0);
        }
        for (other, row) in self.edges.iter_mut().enumerate() {
            set(row, node, get(&self.unseen, other));
        }
        self.edges.push(self.unseen.clone());
        set(&mut self.unseen, node, true);
        node
    }

    pub fn observe(&mut self, node: usize, item: &[f64], reward: f64) {
        let dim = self.shape.dim;
        kernels::observe(dim, self.blocks.get_mut(node), item, reward);
        self.estimates.set(node, self.blocks.view(node).estimate);
        let (width, gram) = (width(self.shape), self.shape.gram());
        let own = &mut self.sums[node * width..(node + 1) * width];
        for sums in [own, &mut self.total] {
            kernels::add_outer(dim, &mut sums[..gram], item);
            kernels::add_scaled(&mut sums[gram..gram + dim], reward, item);
        }
        self.counts[node] += 1;
        self.total_count += 1;
    }

    pub fn has_edge(&self, a: usize, b: usize) -> bool {
        get(&self.edges[a], b)
    }

    pub fn set_edge(&mut self, a: usize, b: usize, is_there: bool) {
        set(&mut self.edges[a], b, is_there);
        set(&mut self.edges[b], a, is_there);
    }

    /// Returns true if there is an edge to the users who have not appeared.
    pub fn has_unseen_edge(&self, node: usize) -> bool {
        get(&self.unseen, node)
    }

    pub fn set_unseen_edge(&mut self, node: usize, is_there: bool) {
        set(&mut self.unseen, node, is_there);
    }

    /// The nodes that a user is served with, in order.
    pub fn members(&self, user: UserId) -> Members<'_> {
        let own = self.node(user);
        let row = own.map_or(&self.unseen, |node| &self.edges[node]);
        let links: u32 = row.iter().map(|word| word.count_ones()).sum();
        Members {
            row,
            own,
            nodes: self.len(),
            len: links as usize + usize::from(own.is_some()),
        }
    }

    /// M_V, θ̂_V and Σ T over the nodes that a user is served with.
    pub fn pool(&self, user: UserId) -> Aggregate {
        let mut pool = Aggregate::new(self.shape);
        let mut sums = vec![0.0; width(self.shape)];
        let members = self.members(user);
        let rest: Vec<usize> = members.fewer().collect();
        let sign = if members.are_fewer() { 1.0 } else { -1.0 };
        if sign < 0.0 {
            sums.copy_from_slice(&self.total);
        }
        let (fours, few) = rest.as_chunks::<4>();
        for four in fours {
            kernels::add_four(kernels::batch::AddFour {
                target: &mut sums,
                weights: [sign; 4],
                rows: four.map(|node| self.sums(node)),
            });
        }
        for &node in few {
            kernels::add_scaled(&mut sums, sign, self.sums(node));
        }
        let mut count = rest.iter().map(|&node| self.counts[node]).sum();
        if sign < 0.0 {
            count = self.total_count - count;
        }
        let (gram, moment) = sums.split_at(self.shape.gram());
        pool.add_sums(gram, &moment[..self.shape.dim], count);
        pool.factorise(&mut Scratch::new(self.shape));
        pool
    }

    /// A component of the graph, named by its first node: the smallest partition of the users that puts no two
    /// neighbours apart. `None` for a user who has not appeared.
    pub fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
        let mut reached = vec![0; self.unseen.len()];
        self.reach(self.node(user)?, &mut reached);
        let first = (0..self.len()).find(|&node| get(&reached, node));
        first.map(|node| node as ClusterId + 1)
    }

    /// The number of components of the graph.
    pub fn clusters(&self) -> usize {
        let mut reached = vec![0; self.unseen.len()];
        let mut clusters = 0;
        for node in 0..self.len() {
            if !get(&reached, node) {
                clusters += 1;
                self.reach(node, &mut reached);
            }
        }
        clusters
    }

    /// Adds the component of a node to a set of nodes.
    fn reach(&self, node: usize, reached: &mut [u64]) {
        let mut next = vec![node];
        set(reached, node, true);
        while let Some(node) = next.pop() {
            for (at, word) in self.edges[node].iter().enumerate() {
                let mut new = word & !reached[at];
                reached[at] |= new;
                while new != 0 {
                    next.push(at * BITS + new.trailing_zeros() as usize);
                    new &= new - 1;
                }
            }
        }
    }

    /// A digest of every bit.
    pub fn digest(&self) -> Digest {
        let mut digest = Digest::new().word(self.clock.rounds());
        for (&user, &node) in self.roster.users().iter().zip(&self.nodes) {
            digest = digest.word(user).word(u64::from(node));
        }
        for node in 0..self.len() {
            digest = digest
                .word(self.counts[node])
                .numbers(self.blocks.get(node));
            digest = self.edges[node]
                .iter()
                .fold(digest, |d, &word| d.word(word));
        }
        digest = self.unseen.iter().fold(digest, |d, &word| d.word(word));
        digest.numbers(&self.sums).numbers(&self.total)
    }
}

/// The nodes that a user is served with.
pub(crate) struct Members<'a> {
    row: &'a [u64],
    own: Option<usize>,
    nodes: usize,
    len: usize,
}

impl<'a> Members<'a> {
    /// True if they are at most as many as the others.
    pub fn are_fewer(&self) -> bool {
        2 * self.len <= self.nodes
    }

    /// Them or the others, whichever are fewer.
    pub fn fewer(&self) -> impl Iterator<Item = usize> + use<'_, 'a> {
        let flip = if self.are_fewer() { 0 } else { u64::MAX };
        let words = self.row.iter().enumerate();
        words.flat_map(move |(at, &word)| {
            let first = at * BITS;
            let own = match self.own {
                Some(own) if own / BITS == at => 1 << (own % BITS),
                _ => 0,
            };
            // The last word may have room for nodes that are not there.
            let there = u64::MAX >> (BITS - (self.nodes - first).min(BITS));
            let mut left = ((word | own) ^ flip) & there;
            std::iter::from_fn(move || {
                let node = first + left.trailing_zeros() as usize;
                let is_there = left != 0;
                left &= left.wrapping_sub(1);
                is_there.then_some(node)
            })
        })
    }
}

/// Numbers of a node's sums: whole groups of lanes.
fn width(shape: Shape) -> usize {
    (shape.gram() + shape.dim).next_multiple_of(LANES)
}

fn get(row: &[u64], node: usize) -> bool {
    row[node / BITS] >> (node % BITS) & 1 == 1
}

fn set(row: &mut [u64], node: usize, is_there: bool) {
    let bit = 1 << (node % BITS);
    match is_there {
        true => row[node / BITS] |= bit,
        false => row[node / BITS] &= !bit,
    }
}

/// A number for each pair of nodes, 0 at first: the next test of the pair.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pairs {
    rows: Vec<Vec<f32>>,
}

impl Pairs {
    /// Makes room for so many nodes.
    pub fn grow(&mut self, nodes: usize) {
        if nodes > self.rows.len() {
            self.rows.resize_with(nodes, Vec::new);
            self.rows.iter_mut().for_each(|row| row.resize(nodes, 0.0));
        }
    }

    /// The numbers of a node's pairs.
    pub fn row(&self, node: usize) -> &[f32] {
        &self.rows[node]
    }

    pub fn set(&mut self, a: usize, b: usize, number: f32) {
        self.rows[a][b] = number;
        self.rows[b][a] = number;
    }

    /// The size in bytes.
    pub fn bytes(&self) -> u64 {
        let rows = self.rows.iter().map(|row| size_of_val(&row[..]) as u64);
        rows.sum()
    }

    pub fn digest(&self, digest: Digest) -> Digest {
        let numbers = self.rows.iter().flatten();
        numbers.fold(digest, |d, number| d.word(u64::from(number.to_bits())))
    }
}

/// `recommend`, `explain`, `estimate`, `cluster_of`, `clusters` and more of a policy that serves a user with neighbours:
/// it has `users` and `scorer(user)`.
macro_rules! rank_by_neighbours {
    () => {
        fn dim(&self) -> usize {
            self.users.shape.dim
        }

        fn rounds(&self) -> u64 {
            self.users.clock.rounds()
        }

        crate::policy::rank_by_scorer!();

        /// The component of the user in the graph. Users are served with their direct neighbours only, who are
        /// a part of it.
        fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
            self.users.cluster_of(user)
        }

        fn clusters(&self) -> usize {
            self.users.clusters()
        }

        fn estimate(&self, user: UserId) -> Option<Vec<f64>> {
            Some(self.users.pool(user).view().estimate.to_vec())
        }
    };
}
pub(crate) use rank_by_neighbours;

/// `learn_round` of a policy that tests the users of a round against their neighbours after it has learned: it has
/// `observe(observation)` and `test(node)`.
macro_rules! learn_then_test {
    () => {
        fn learn_round(
            &mut self,
            round: &[Observation<'_>],
            _changes: &mut Vec<Change>,
        ) -> Result<(), Error> {
            check_round(round, self.dim())?;
            self.users.check_room(round)?;
            self.users.clock.tick();
            for observation in round {
                self.observe(observation);
            }
            for observation in round {
                let node = self.users.admit(observation.user);
                self.test(node);
            }
            Ok(())
        }
    };
}
pub(crate) use learn_then_test;
