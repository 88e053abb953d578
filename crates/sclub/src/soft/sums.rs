//! The sums of each user, from which the likelihood of every hypothesis can be computed.
//!
//! | symbol | where in a row | meaning |
//! |---|---|---|
//! | G | first d(d+1)/2 | Σ x xᵀ, lower triangle packed by rows |
//! | b | next d | Σ y x |
//! | n | next | number of observations |
//! | | next | Σ y² |
//!
//! Rows lie in chunks that are shared with a fit in the making: a chunk is copied when a user in it
//! learns something while a fit still reads it.

use std::sync::Arc;

use crate::kernels::{self, LANES};

/// The layout of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub dim: usize,
}

impl Layout {
    /// Numbers in G, and where b begins.
    pub fn gram(self) -> usize {
        self.dim * (self.dim + 1) / 2
    }

    /// The offset of n.
    pub fn count(self) -> usize {
        self.gram() + self.dim
    }

    /// The offset of Σ y².
    pub fn squares(self) -> usize {
        self.count() + 1
    }

    /// Numbers in a row: whole groups of lanes.
    pub fn row(self) -> usize {
        (self.squares() + 1).next_multiple_of(LANES)
    }

    /// Numbers in a row that mean something.
    pub fn used(self) -> usize {
        self.squares() + 1
    }
}

/// The rows of all users, by slot.
#[derive(Debug, Clone)]
pub(crate) struct Sums {
    layout: Layout,
    /// A chunk holds 2 to this power rows.
    bits: u32,
    chunks: Vec<Arc<Vec<f64>>>,
    len: usize,
}

impl Sums {
    /// Numbers a chunk holds at the most, as long as [`LANES`] rows fit.
    const CHUNK: usize = 1 << 14;

    pub fn new(layout: Layout) -> Self {
        Self {
            layout,
            bits: (Self::CHUNK / layout.row()).max(LANES).ilog2(),
            chunks: Vec::new(),
            len: 0,
        }
    }

    pub fn layout(&self) -> Layout {
        self.layout
    }

    pub fn len(&self) -> usize {
        self.len
    }

    fn place(&self, slot: usize) -> (usize, usize) {
        let inside = slot & ((1 << self.bits) - 1);
        (slot >> self.bits, inside * self.layout.row())
    }

    /// Adds a user without observations.
    pub fn push(&mut self) {
        if self.len == self.chunks.len() << self.bits {
            let chunk = vec![0.0; self.layout.row() << self.bits];
            self.chunks.push(Arc::new(chunk));
        }
        self.len += 1;
    }

    #[inline]
    pub fn row(&self, slot: usize) -> &[f64] {
        let (chunk, start) = self.place(slot);
        &self.chunks[chunk][start..start + self.layout.row()]
    }

    #[inline]
    pub fn row_mut(&mut self, slot: usize) -> &mut [f64] {
        let (chunk, start) = self.place(slot);
        &mut Arc::make_mut(&mut self.chunks[chunk])[start..start + self.layout.row()]
    }

    /// Removes a user; the user in the last slot moves into theirs, and the last slot is cleared.
    pub fn swap_remove(&mut self, slot: usize) {
        let last = self.len - 1;
        if slot != last {
            let moved = self.row(last).to_vec();
            self.row_mut(slot).copy_from_slice(&moved);
        }
        self.row_mut(last).fill(0.0);
        self.len = last;
        self.chunks.truncate(self.len.div_ceil(1 << self.bits));
    }

    /// Replaces the reward of an observation in a user's sums. No observation has lost weight.
    pub fn correct(&mut self, slot: usize, item: &[f64], from: f64, to: f64) {
        let layout = self.layout;
        let rest = &mut self.row_mut(slot)[layout.gram()..];
        kernels::add_scaled(&mut rest[..layout.dim], to - from, item);
        rest[layout.dim + 1] += to * to - from * from;
    }

    /// Adds an observation to a user's sums, after the earlier ones were multiplied by `keep`.
    #[inline]
    pub fn observe(&mut self, slot: usize, item: &[f64], reward: f64, keep: f64) {
        let layout = self.layout;
        let row = self.row_mut(slot);
        if keep != 1.0 {
            row.iter_mut().for_each(|sum| *sum *= keep);
        }
        let (gram, rest) = row.split_at_mut(layout.gram());
        kernels::add_outer(layout.dim, gram, item);
        kernels::add_scaled(&mut rest[..layout.dim], reward, item);
        rest[layout.dim] += 1.0;
        rest[layout.dim + 1] += reward * reward;
    }
}
