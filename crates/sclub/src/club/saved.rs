//! Saving and loading. A loaded state continues with the same bits.
//!
//! The format, in words of eight bytes, little-endian:
//!
//! | field | words |
//! |---|---|
//! | [`Club::MAGIC`], version, words in all | 3 |
//! | d; α_θ, α_p, index, kind of exploration, its number | 6 |
//! | rounds, users declared | 2 |
//! | random (0) and its seed, or complete (1); random numbers drawn | 2 or 3 |
//! | users who were not declared, in order of appearance | 1 + n |
//! | for each node, declared or not: its component; its neighbours | 2 + n |
//! | nodes whose users have appeared, in that order; for each its number, T, block | 1 + … |
//! | places of components; for each whether there is one | 1 + n |
//! | for each component: nodes whose users have appeared; if they are two or more, the sums | |
//! | checksum of all before | 1 |
//!
//! The order of neighbours is that in which edges are cut, the order in a component that in which
//! sums are made: both are kept. Radii and positions follow from the rest.

use std::io::{self, Read, Write};

use super::components::{Component, label_at};
use super::{Club, Graph, UNSEEN};
use crate::abilities::Persist;
use crate::bytes::{self, Reader, Save, Writer, bad};
use crate::error::{Error, LoadError};
use crate::ledger::load_roster;
use crate::params::Params;
use crate::policy::{Clock, Users};
use crate::radius::radius;
use crate::statistics::Aggregate;

/// The maximum of every counter: counting on from here cannot overflow.
const MAX_COUNT: u64 = u64::MAX / 2;

impl Persist for Club {
    fn save_to(&self, out: &mut dyn Write) -> io::Result<()> {
        bytes::save(self, out)
    }
}

impl Club {
    /// Loads the state that [`Persist::save_to`] wrote, in small pieces, and reads not a byte more. A
    /// damaged state costs no more memory than a whole one of its length.
    ///
    /// # Errors
    /// [`LoadError::Io`] if the input fails; [`LoadError::State`] if it is not such a state.
    pub fn load_from(input: &mut dyn Read) -> Result<Self, LoadError> {
        let reader = Reader::new(input)?;
        reader.expect(Self::MAGIC)?;
        Self::load_words(reader)
    }

    /// Loads the words after the header.
    pub(super) fn load_words(mut reader: Reader<'_>) -> Result<Self, LoadError> {
        let dim = reader.u32()? as usize;
        let params = Params::load(&mut reader)?;
        let rounds = reader.at_most(MAX_COUNT)?;
        let declared = reader.at_most(Users::LIMIT)?;
        let graph = match reader.at_most(1)? {
            0 => Graph::Random {
                seed: reader.word()?,
            },
            _ => Graph::Complete,
        };
        // No memory is reserved for users who have not been read.
        let mut state = Self::new(dim, Users::Appear, graph, &params)?;
        state.clock = Clock::at(rounds)?;
        state.declared = declared;
        state.edges.draws = reader.at_most(MAX_COUNT)?;
        state.newcomers = load_roster(&mut reader)?;
        state.load_graph(&mut reader)?;
        state.load_nodes(&mut reader)?;
        state.load_components(&mut reader)?;
        reader.end()?;
        state.check_users()?;
        state.check_edges()?;
        state.check_components()?;
        Ok(state)
    }

    fn load_graph(&mut self, reader: &mut Reader<'_>) -> Result<(), LoadError> {
        let nodes = self.declared + self.newcomers.len() as u64;
        if nodes > Users::LIMIT {
            return Err(bad("it has too many users").into());
        }
        for _ in 0..nodes {
            self.components.of_node.push(reader.u32()?);
            self.edges.neighbours.push(load_listed(reader)?);
        }
        self.edges.reached = vec![0; nodes as usize];
        Ok(())
    }

    fn load_nodes(&mut self, reader: &mut Reader<'_>) -> Result<(), LoadError> {
        let nodes = &mut self.nodes;
        nodes.grow_to(self.edges.len());
        let mut total = 0u64;
        for slot in 0..reader.count()? {
            let node = reader.u32()? as usize;
            if nodes.slots.get(node) != Some(&UNSEEN) {
                return Err(bad("a node does not exist, or is listed twice").into());
            }
            let count = reader.at_most(MAX_COUNT - total)?;
            if count == 0 {
                return Err(bad("a user who has appeared has no observations").into());
            }
            total += count;
            nodes.slots[node] = slot as u32;
            nodes.counts[node] = count;
            nodes.radii[node] = radius(count);
            nodes.blocks.push();
            reader.fill(nodes.blocks.get_mut(slot))?;
        }
        Ok(())
    }

    fn load_components(&mut self, reader: &mut Reader<'_>) -> Result<(), LoadError> {
        self.components.position = vec![UNSEEN; self.edges.len()];
        let mut listed = 0;
        for index in 0..reader.count()? {
            let component = match reader.at_most(1)? {
                0 => None,
                _ => Some(self.load_component(index as u32, reader)?),
            };
            listed += component.as_ref().map_or(0, |one| one.seen.len());
            self.components.list.push(component);
        }
        if listed != self.nodes.blocks.len() {
            return Err(bad("a user who has appeared is in no component").into());
        }
        self.components.live = self.components.list.iter().flatten().count();
        Ok(())
    }

    /// The component at a place, whose users are given their positions.
    fn load_component(
        &mut self,
        index: u32,
        reader: &mut Reader<'_>,
    ) -> Result<Component, LoadError> {
        let seen = load_listed(reader)?;
        let components = &mut self.components;
        let mut count = 0;
        for (at, &node) in seen.iter().enumerate() {
            let belongs = components.of_node.get(node as usize) == Some(&index)
                && self.nodes.is_seen(node)
                && components.position[node as usize] == UNSEEN;
            if !belongs {
                return Err(
                    bad("a user is missing from the cluster that the user refers to").into(),
                );
            }
            components.position[node as usize] = at as u32;
            count += self.nodes.count(node);
        }
        let sums = if seen.len() < 2 {
            None
        } else {
            let sums = Aggregate::load(self.shape, reader)?;
            if sums.count() != count {
                return Err(
                    bad("the count of a component does not match those of its users").into(),
                );
            }
            Some(Box::new(sums))
        };
        Ok(Component {
            label: label_at(index),
            seen,
            sums,
        })
    }

    /// Checks that no user is both declared and a newcomer, and that every newcomer has appeared.
    fn check_users(&self) -> Result<(), Error> {
        if self.edges.kind == Graph::Complete && self.declared > Self::MAX_COMPLETE_USERS {
            return Err(bad("its complete graph has more than 30000 users"));
        }
        let newcomers = self.newcomers.users();
        if newcomers.iter().any(|&user| user < self.declared) {
            return Err(bad("a declared user is listed as a newcomer"));
        }
        let nodes = self.declared as u32..self.edges.len() as u32;
        if nodes.into_iter().all(|node| self.nodes.is_seen(node)) {
            Ok(())
        } else {
            Err(bad("a newcomer has no observations"))
        }
    }

    /// Checks that every edge is there once, between two nodes, and known at both ends.
    fn check_edges(&self) -> Result<(), Error> {
        let lists = &self.edges.neighbours;
        // From the lists of the nodes behind each node, which its own must agree with.
        let mut behind: Vec<Vec<u32>> = vec![Vec::new(); lists.len()];
        for (node, list) in lists.iter().enumerate() {
            for &other in list {
                if other as usize >= lists.len() || other as usize == node {
                    return Err(bad("an edge leads to a node that does not exist"));
                }
                if (other as usize) < node {
                    behind[other as usize].push(node as u32);
                }
            }
        }
        // The last node that had an edge to each.
        let mut marks = vec![UNSEEN; lists.len()];
        for (node, (list, behind)) in lists.iter().zip(&behind).enumerate() {
            let mark = node as u32;
            let mut expected = 0;
            for &other in list {
                if std::mem::replace(&mut marks[other as usize], mark) == mark {
                    return Err(bad("an edge is listed twice"));
                }
                expected += usize::from(other > mark);
            }
            let known = |&other: &u32| marks[other as usize] == mark;
            if behind.len() != expected || !behind.iter().all(known) {
                return Err(bad("an edge is listed at one end only"));
            }
        }
        Ok(())
    }

    /// Checks that the components are those of the graph, whose edges have been checked.
    fn check_components(&mut self) -> Result<(), Error> {
        let components = &self.components;
        let mut found = vec![false; self.edges.len()];
        let mut filled = vec![false; components.list.len()];
        for node in 0..self.edges.len() {
            if found[node] {
                continue;
            }
            let index = components.of_node[node];
            let is_alive = matches!(components.list.get(index as usize), Some(Some(_)));
            if !is_alive || std::mem::replace(&mut filled[index as usize], true) {
                return Err(bad("a component is missing, or not connected"));
            }
            for other in self.edges.component(node as u32) {
                found[other as usize] = true;
                if components.of_node[other as usize] != index {
                    return Err(bad("connected users are in two components"));
                }
            }
        }
        if filled.iter().filter(|&&filled| filled).count() == components.live {
            Ok(())
        } else {
            Err(bad("a component has no users"))
        }
    }
}

/// The nodes that [`save_listed`] wrote, unchecked.
fn load_listed(reader: &mut Reader<'_>) -> Result<Vec<u32>, LoadError> {
    let mut nodes = Vec::new();
    for _ in 0..reader.count()? {
        nodes.push(reader.u32()?);
    }
    Ok(nodes)
}

fn save_listed(nodes: &[u32], writer: &mut Writer<'_>) -> io::Result<()> {
    writer.words(nodes.iter().map(|&node| u64::from(node)))
}

impl Save for Club {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub cl");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.shape.dim as u64)?;
        self.params.save(writer)?;
        writer.word(self.clock.rounds())?;
        writer.word(self.declared)?;
        match self.edges.kind {
            Graph::Random { seed } => {
                writer.word(0)?;
                writer.word(seed)?;
            }
            Graph::Complete => writer.word(1)?,
        }
        writer.word(self.edges.draws)?;
        writer.words(self.newcomers.users().iter().copied())?;
        for (component, list) in self.components.of_node.iter().zip(&self.edges.neighbours) {
            writer.word(u64::from(*component))?;
            save_listed(list, writer)?;
        }
        let nodes = &self.nodes;
        let mut appeared = vec![0; nodes.blocks.len()];
        for (node, &slot) in nodes.slots.iter().enumerate() {
            if slot != UNSEEN {
                appeared[slot as usize] = node as u32;
            }
        }
        writer.word(appeared.len() as u64)?;
        for (slot, &node) in appeared.iter().enumerate() {
            writer.word(u64::from(node))?;
            writer.word(nodes.count(node))?;
            writer.numbers(nodes.blocks.get(slot))?;
        }
        writer.word(self.components.list.len() as u64)?;
        for component in &self.components.list {
            writer.word(u64::from(component.is_some()))?;
            if let Some(component) = component {
                save_listed(&component.seen, writer)?;
                if let Some(sums) = &component.sums {
                    sums.save(writer)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abilities::Inspect;
    use crate::items::ItemSet;
    use crate::policy::{Observation, Policy};
    use crate::roster::Roster;
    use proptest::prelude::*;

    /// Words with the header and the checksum of a state.
    struct Raw(Vec<u64>);

    impl Save for Raw {
        const MAGIC: u64 = Club::MAGIC;

        fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
            self.0.iter().try_for_each(|&word| writer.word(word))
        }
    }

    fn words(state: &Club) -> Vec<u64> {
        let bytes = bytes::save_to_vec(state);
        let words = bytes.chunks(8).map(|word| word.try_into().unwrap());
        let words: Vec<u64> = words.map(u64::from_le_bytes).collect();
        words[3..words.len() - 1].to_vec()
    }

    fn load(state: &impl Save) -> Result<Club, LoadError> {
        Club::load_from(&mut bytes::save_to_vec(state).as_slice())
    }

    /// Rounds of three of the first `users` users each, who have two tastes.
    fn live(state: &mut Club, rounds: u64, users: u64) {
        for round in 0..rounds {
            let item = [1.0, 0.1 * (round % 7) as f64 - 0.3];
            let observed = [round, round * 3 + 1, round * round].map(|user| user % users);
            let round = observed.map(|user| Observation {
                id: None,
                user,
                item: &item,
                reward: if user % 2 == 0 { 1.0 } else { -0.5 },
            });
            state.learn_round(&round, &mut Vec::new()).unwrap();
        }
    }

    /// Six declared users, one of whom never appears, and two newcomers, who have connected two
    /// components and were then cut off from one of them.
    fn lived(graph: Graph) -> Club {
        let params = Params {
            alpha_theta: 0.6,
            ..Params::tuned()
        };
        let mut state = Club::new(2, Users::Declared(6), graph, &params).unwrap();
        live(&mut state, 40, 5);
        for user in [100, 7] {
            for _ in 0..40 {
                state.learn(user, &[1.0, 0.2], 1.0).unwrap();
            }
        }
        state
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_reason() {
        let state = lived(Graph::Complete);
        assert!(state.components.list.len() > state.clusters() && state.clusters() > 1);
        assert!(state.users() == 7 && (0..8).all(|node| !state.edges.of(node).is_empty()));
        assert_eq!(load(&state).unwrap().digest(), state.digest());
        let refused = |change: &dyn Fn(&mut Club)| {
            let mut changed = state.clone();
            change(&mut changed);
            match load(&changed) {
                Err(LoadError::State(Error::BadSnapshot { reason })) => reason,
                other => panic!("{:?}", other.map(|_| ())),
            }
        };
        let busy = |state: &Club| {
            let mut places = 0..state.components.list.len();
            let seen = |at: usize| state.components.list[at].as_ref().map(|one| one.seen.len());
            places.find(|&at| seen(at) >= Some(2)).unwrap()
        };

        let nowhere = "an edge leads to a node that does not exist";
        assert_eq!(refused(&|c| c.edges.neighbours[0][0] = 8), nowhere);
        assert_eq!(refused(&|c| c.edges.neighbours[2].push(2)), nowhere);
        let twice = "an edge is listed twice";
        assert_eq!(
            refused(&|c| {
                let other = c.edges.neighbours[0][0];
                c.edges.neighbours[0].push(other);
                c.edges.neighbours[other as usize].push(0);
            }),
            twice
        );
        let one_end = "an edge is listed at one end only";
        for node in 0..8 {
            let cut = |c: &mut Club| assert!(c.edges.neighbours[node].pop().is_some());
            assert_eq!(refused(&cut), one_end, "node {node}");
        }

        let parts = "a component is missing, or not connected";
        assert_eq!(
            refused(&|c| {
                for other in std::mem::take(&mut c.edges.neighbours[5]) {
                    c.edges.neighbours[other as usize].retain(|&node| node != 5);
                }
            }),
            parts
        );
        assert_eq!(
            refused(&|c| {
                let fresh = Club::new(2, Users::Declared(3), Graph::Complete, &c.params);
                *c = fresh.unwrap();
                c.components.list[0] = None;
            }),
            parts
        );
        // Node 5's user has not appeared: no list of those seen has node 5.
        let two = "connected users are in two components";
        let own = state.components.of_node[5];
        let mut others = state.components.of_node.iter();
        let other = *others.find(|&&index| index != own).unwrap();
        for index in [other, 99] {
            assert_eq!(refused(&|c| c.components.of_node[5] = index), two);
        }
        assert_eq!(
            refused(&|c| {
                c.components.list.push(Some(Component {
                    label: 0,
                    seen: Vec::new(),
                    sums: None,
                }));
            }),
            "a component has no users"
        );

        let misplaced = "a user is missing from the cluster that the user refers to";
        for node in [5, 8, u32::MAX] {
            let misplace = |c: &mut Club| {
                let at = busy(c);
                c.components.list[at].as_mut().unwrap().seen[0] = node;
            };
            assert_eq!(refused(&misplace), misplaced, "node {node}");
        }
        assert_eq!(
            refused(&|c| {
                let at = busy(c);
                let seen = &mut c.components.list[at].as_mut().unwrap().seen;
                seen[0] = seen[1];
            }),
            misplaced
        );
        let lost = "a user who has appeared is in no component";
        assert_eq!(
            refused(&|c| {
                let at = busy(c);
                c.components.list[at] = None;
            }),
            lost
        );

        let observations = "the count of a component does not match those of its users";
        assert_eq!(
            refused(&|c| {
                let at = busy(c);
                let node = c.components.list[at].as_ref().unwrap().seen[0];
                c.nodes.counts[node as usize] += 1;
            }),
            observations
        );
        assert_eq!(
            refused(&|c| c.nodes.counts[0] = 0),
            "a user who has appeared has no observations"
        );
        assert_eq!(
            refused(&|c| c.nodes.counts[0] = MAX_COUNT),
            "a number is above the maximum of its field"
        );

        let declared = "a declared user is listed as a newcomer";
        let roster = |users: Vec<u64>| Roster::from_users(users).unwrap();
        assert_eq!(refused(&|c| c.newcomers = roster(vec![100, 5])), declared);
        assert_eq!(
            refused(&|c| {
                c.declared = 5;
                c.newcomers = roster(vec![5, 100, 7]);
            }),
            "a newcomer has no observations"
        );
    }

    #[test]
    fn a_node_that_is_none_or_there_twice_is_refused() {
        let state = lived(Graph::Random { seed: 1 });
        let words = words(&state);
        // Behind the block of the first who appeared stand the second's number and T.
        let first: Vec<u64> = state
            .nodes
            .blocks
            .get(0)
            .iter()
            .map(|v| v.to_bits())
            .collect();
        let at = words.windows(first.len()).position(|these| these == first);
        let second = at.unwrap() + first.len();
        for node in [words[at.unwrap() - 2], 8, u64::from(UNSEEN)] {
            let mut words = words.clone();
            words[second] = node;
            assert!(matches!(
                load(&Raw(words)),
                Err(LoadError::State(Error::BadSnapshot {
                    reason: "a node does not exist, or is listed twice"
                }))
            ));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

        /// The checksum is right and the words are not: a state that is accepted must work.
        #[test]
        fn changed_words_are_refused_or_harmless(
            complete: bool,
            changes in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![
                0u64..10,
                Just(u64::from(u32::MAX)),
                any::<u64>(),
                any::<f64>().prop_map(f64::to_bits),
            ]), 1..3),
        ) {
            let graph = if complete { Graph::Complete } else { Graph::Random { seed: 1 } };
            let mut words = words(&lived(graph));
            for (at, word) in changes {
                let at = at.index(words.len());
                words[at] = word;
            }
            if let Ok(mut state) = load(&Raw(words)) {
                if state.dim() == 2 {
                    live(&mut state, 10, 12);
                    let items = ItemSet::from_rows(2, &[1.0, 0.0, 0.0, 1.0]).unwrap();
                    state.recommend(3, &items).unwrap();
                }
                state.digest();
            }
        }
    }
}
