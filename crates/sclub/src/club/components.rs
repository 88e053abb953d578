//! The connected components, with the sums over their users, kept up to date as edges fall.

use super::Nodes;
use super::graph::Edges;
use crate::policy::{Change, ClusterId, UserId, Why};
use crate::statistics::{Aggregate, Scratch, Shape};

/// All nodes in disjoint components.
#[derive(Debug, Clone)]
pub(super) struct Components {
    scratch: Scratch,
    shape: Shape,
    pub of_node: Vec<u32>,
    /// The position of a node in its component's list of those seen.
    pub position: Vec<u32>,
    /// The components in the order of creation; `None` for one that has joined another.
    pub list: Vec<Option<Component>>,
    pub live: usize,
}

#[derive(Debug, Clone)]
pub(super) struct Component {
    pub label: ClusterId,
    /// Users of the component who have appeared.
    pub seen: Vec<u32>,
    /// Present if more than one user has appeared.
    pub sums: Option<Box<Aggregate>>,
}

impl Components {
    /// The components of a graph whose users have not appeared.
    pub fn of(shape: Shape, edges: &mut Edges) -> Self {
        let mut components = Self {
            scratch: Scratch::new(shape),
            shape,
            of_node: vec![u32::MAX; edges.len()],
            position: vec![0; edges.len()],
            list: Vec::new(),
            live: 0,
        };
        for node in 0..edges.len() as u32 {
            if components.of_node[node as usize] == u32::MAX {
                let nodes = edges.component(node);
                let index = components.add_component();
                for node in nodes {
                    components.of_node[node as usize] = index;
                }
            }
        }
        components
    }

    pub fn len(&self) -> usize {
        self.live
    }

    #[inline]
    fn index_of(&self, node: u32) -> u32 {
        self.of_node[node as usize]
    }

    pub fn label_of(&self, node: u32) -> ClusterId {
        self.get(self.index_of(node)).label
    }

    fn get(&self, index: u32) -> &Component {
        self.list[index as usize]
            .as_ref()
            .expect("a node's component is alive")
    }

    fn get_mut(&mut self, index: u32) -> &mut Component {
        self.list[index as usize]
            .as_mut()
            .expect("a node's component is alive")
    }

    /// Adds a component whose users have not appeared. Labels follow the order of creation, from 1.
    fn add_component(&mut self) -> u32 {
        let index = self.list.len() as u32;
        self.list.push(Some(Component {
            label: label_at(index),
            seen: Vec::new(),
            sums: None,
        }));
        self.live += 1;
        index
    }

    /// The block and the count that recommendations to a node's user are made from.
    #[inline]
    pub fn sums_of<'a>(&'a self, node: u32, nodes: &'a Nodes) -> (&'a [f64], u64) {
        let component = self.get(self.index_of(node));
        match (&component.sums, component.seen.as_slice()) {
            (Some(sums), _) => (sums.block(), sums.count()),
            (None, &[alone]) => (nodes.block(alone), nodes.count(alone)),
            (None, _) => (nodes.blocks.empty(), 0),
        }
    }

    /// Records that a node's user appears for the first time; observations come after.
    pub fn mark_seen(&mut self, node: u32, nodes: &Nodes) {
        let index = self.index_of(node);
        self.add_seen(node, index);
        self.need_sums(index, nodes);
    }

    /// Adds a node to a component's list of those seen.
    fn add_seen(&mut self, node: u32, index: u32) {
        let seen = &mut self.list[index as usize].as_mut().expect("alive").seen;
        self.position[node as usize] = seen.len() as u32;
        seen.push(node);
    }

    /// Takes a node off its component's list of those seen.
    fn remove_seen(&mut self, node: u32, index: u32) {
        let position = self.position[node as usize];
        let seen = &mut self.list[index as usize].as_mut().expect("alive").seen;
        seen.swap_remove(position as usize);
        if let Some(&moved) = seen.get(position as usize) {
            self.position[moved as usize] = position;
        }
    }

    /// Makes the sums of a component in which more than one user has appeared.
    fn need_sums(&mut self, index: u32, nodes: &Nodes) {
        let component = self.list[index as usize].as_mut().expect("alive");
        if component.sums.is_some() || component.seen.len() < 2 {
            return;
        }
        let mut sums = Aggregate::new(self.shape);
        for &node in &component.seen {
            sums.add_block(&mut self.scratch, nodes.block(node), nodes.count(node));
        }
        sums.factorise(&mut self.scratch);
        component.sums = Some(Box::new(sums));
    }

    #[inline]
    pub fn observe(&mut self, node: u32, item: &[f64], reward: f64) {
        let component = self.list[self.of_node[node as usize] as usize]
            .as_mut()
            .expect("alive");
        if let Some(sums) = &mut component.sums {
            sums.observe(&mut self.scratch, item, reward);
        }
    }

    /// Some nodes of one component become a component of their own.
    pub fn part(&mut self, nodes_leaving: &[u32], nodes: &Nodes, user: UserId, why: Why) -> Change {
        let old = self.index_of(nodes_leaving[0]);
        let new = self.add_component();
        for &node in nodes_leaving {
            self.of_node[node as usize] = new;
            if nodes.is_seen(node) {
                self.remove_seen(node, old);
                self.add_seen(node, new);
            }
        }
        let component = self.get_mut(old);
        let sums = component.sums.take();
        let from = component.label;
        self.need_sums(new, nodes);
        if let Some(mut sums) = sums
            && self.get(old).seen.len() >= 2
        {
            let leaving = self.list[new as usize].as_ref().expect("alive");
            match (&leaving.sums, leaving.seen.as_slice()) {
                (Some(others), _) => sums.remove_aggregate(others),
                (None, &[alone]) => {
                    sums.remove_block(&mut self.scratch, nodes.block(alone), nodes.count(alone));
                }
                (None, _) => {}
            }
            sums.factorise(&mut self.scratch);
            self.get_mut(old).sums = Some(sums);
        }
        let into = self.get(new).label;
        Change::Split {
            from,
            into,
            users: nodes_leaving.len() as u64,
            user,
            why,
        }
    }

    /// A new node joins the components of its neighbours, which become one.
    pub fn add_node(
        &mut self,
        node: u32,
        user: UserId,
        neighbours: &[u32],
        nodes: &Nodes,
        changes: &mut Vec<Change>,
    ) {
        self.of_node.push(u32::MAX);
        self.position.push(0);
        let mut home = None;
        for &other in neighbours {
            let index = self.index_of(other);
            home = Some(match home {
                None => index,
                Some(home) if home == index => home,
                Some(home) => self.join(home, index, nodes, user, changes),
            });
        }
        let home = home.unwrap_or_else(|| self.add_component());
        self.of_node[node as usize] = home;
    }

    /// Makes two components one under the lower label; returns its index.
    fn join(
        &mut self,
        a: u32,
        b: u32,
        nodes: &Nodes,
        user: UserId,
        changes: &mut Vec<Change>,
    ) -> u32 {
        let (kept, gone) = (a.min(b), a.max(b));
        let leaving = self.list[gone as usize].take().expect("alive");
        self.live -= 1;
        for index in &mut self.of_node {
            if *index == gone {
                *index = kept;
            }
        }
        for &node in &leaving.seen {
            self.add_seen(node, kept);
        }
        let component = self.list[kept as usize].as_mut().expect("alive");
        let (label, gone) = (component.label, leaving.label);
        changes.push(Change::Merge {
            kept: label,
            gone,
            user,
            why: Why::Connected,
        });
        match (&mut component.sums, leaving.sums) {
            (Some(sums), Some(others)) => {
                sums.add_aggregate(&others);
                sums.factorise(&mut self.scratch);
            }
            // At most one user on one side: the sums are made again from the users.
            _ => {
                component.sums = None;
                self.need_sums(kept, nodes);
            }
        }
        kept
    }
}

/// The label of the component at an index.
pub(super) fn label_at(index: u32) -> ClusterId {
    ClusterId::from(index) + 1
}
