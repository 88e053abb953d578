//! The graph of users: an edge means that two users may have the same tastes.

use crate::digest::mix;

/// The graph that CLUB starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Graph {
    /// Each edge is there with probability 3 ln n / n, for n users, drawn from the seed.
    Random {
        /// Fixes which edges there are.
        seed: u64,
    },
    /// Every edge is there.
    Complete,
}

/// The neighbours of each node, and searches for the parts that a cut leaves.
#[derive(Debug, Clone)]
pub(super) struct Edges {
    pub kind: Graph,
    /// Random numbers drawn so far.
    pub draws: u64,
    /// The order of each list is the order in which edges are looked at.
    pub neighbours: Vec<Vec<u32>>,
    /// The search in which a node was last reached, times two, plus its side.
    pub reached: Vec<u64>,
    searches: u64,
}

impl Edges {
    pub fn new(kind: Graph) -> Self {
        Self {
            kind,
            draws: 0,
            neighbours: Vec::new(),
            reached: Vec::new(),
            searches: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.neighbours.len()
    }

    pub fn of(&self, node: u32) -> &[u32] {
        &self.neighbours[node as usize]
    }

    /// A number uniform in (0, 1).
    fn draw(&mut self, seed: u64) -> f64 {
        self.draws += 1;
        let bits = mix(mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ self.draws);
        ((bits >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Adds `nodes` nodes at once, with edges among all of them as the kind of graph says.
    pub fn declare(&mut self, nodes: usize) {
        self.neighbours.resize_with(nodes, Vec::new);
        self.reached.resize(nodes, 0);
        for node in 1..nodes {
            self.connect(node, nodes);
        }
    }

    /// Adds a node with edges to those before it; returns its number.
    pub fn push(&mut self) -> u32 {
        let node = self.neighbours.len();
        self.neighbours.push(Vec::new());
        self.reached.push(0);
        self.connect(node, node + 1);
        node as u32
    }

    /// Draws the edges from `node` to all before it, in a graph of `total` nodes.
    fn connect(&mut self, node: usize, total: usize) {
        match self.kind {
            Graph::Complete => (0..node).for_each(|other| self.add(node, other)),
            Graph::Random { seed } => {
                let n = total as f64;
                let probability = 3.0 * libm::log(n) / n;
                if probability >= 1.0 {
                    return (0..node).for_each(|other| self.add(node, other));
                }
                // Gaps between the edges are geometric: one draw an edge, not one a pair.
                let log_miss = libm::log1p(-probability);
                let mut other = 0.0;
                loop {
                    other += (libm::log(self.draw(seed)) / log_miss).floor();
                    if other >= node as f64 {
                        return;
                    }
                    self.add(node, other as usize);
                    other += 1.0;
                }
            }
        }
    }

    fn add(&mut self, a: usize, b: usize) {
        self.neighbours[a].push(b as u32);
        self.neighbours[b].push(a as u32);
    }

    pub fn cut(&mut self, a: u32, b: u32) {
        for (from, to) in [(a, b), (b, a)] {
            let list = &mut self.neighbours[from as usize];
            let position = list.iter().position(|&node| node == to);
            list.swap_remove(position.expect("an edge is known at both ends"));
        }
    }

    /// The nodes connected to `a` or those connected to `b`, whichever search ends first, if the two
    /// are no longer connected.
    ///
    /// Two searches take turns, so the work is in the order of the smaller part, or of the distance
    /// between the two nodes.
    pub fn part_between(&mut self, a: u32, b: u32) -> Option<Vec<u32>> {
        self.searches += 1;
        let marks = [self.searches * 2, self.searches * 2 + 1];
        let mut parts = [vec![a], vec![b]];
        let mut next = [0, 0];
        self.reached[a as usize] = marks[0];
        self.reached[b as usize] = marks[1];
        for side in [0, 1].into_iter().cycle() {
            let Some(&node) = parts[side].get(next[side]) else {
                return Some(std::mem::take(&mut parts[side]));
            };
            next[side] += 1;
            for &other in &self.neighbours[node as usize] {
                let mark = &mut self.reached[other as usize];
                if *mark == marks[1 - side] {
                    return None;
                }
                if *mark != marks[side] {
                    *mark = marks[side];
                    parts[side].push(other);
                }
            }
        }
        None
    }

    /// The nodes connected to `node`.
    pub fn component(&mut self, node: u32) -> Vec<u32> {
        self.searches += 1;
        let mark = self.searches * 2;
        let mut found = vec![node];
        self.reached[node as usize] = mark;
        let mut next = 0;
        while let Some(&node) = found.get(next) {
            next += 1;
            for &other in &self.neighbours[node as usize] {
                if self.reached[other as usize] != mark {
                    self.reached[other as usize] = mark;
                    found.push(other);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_random_graph_has_as_many_edges_as_it_should() {
        let mut edges = Edges::new(Graph::Random { seed: 5 });
        edges.declare(2000);
        let ends: usize = (0..2000).map(|node| edges.of(node).len()).sum();
        // 2000 · 1999 · 3 ln 2000 / 2000 ends expected, standard deviation about 300.
        let expected = 1999.0 * 3.0 * 2000f64.ln();
        assert!(
            (ends as f64 - expected).abs() < 1200.0,
            "{ends} against {expected}"
        );
        let mut again = Edges::new(Graph::Random { seed: 5 });
        again.declare(2000);
        assert_eq!(edges.neighbours, again.neighbours);
        let mut other = Edges::new(Graph::Random { seed: 6 });
        other.declare(2000);
        assert_ne!(edges.neighbours, other.neighbours);
    }

    #[test]
    fn a_part_is_found_exactly_when_a_cut_makes_one() {
        let mut edges = Edges::new(Graph::Random { seed: 1 });
        edges.declare(40);
        let mut word = 1u64;
        while (0..40).any(|node| !edges.of(node).is_empty()) {
            word = mix(word.wrapping_add(1));
            let a = (word % 40) as u32;
            let Some(&b) = edges.of(a).first() else {
                continue;
            };
            edges.cut(a, b);
            let whole = edges.component(a);
            match edges.part_between(a, b) {
                None => assert!(whole.contains(&b)),
                Some(mut part) => {
                    assert!(!whole.contains(&b));
                    let mut expected = if part.contains(&a) {
                        whole
                    } else {
                        edges.component(b)
                    };
                    part.sort_unstable();
                    expected.sort_unstable();
                    assert_eq!(part, expected);
                }
            }
        }
    }
}
