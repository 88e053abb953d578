//! The users that a fit looks at, in pieces that can be worked on apart.

use std::ops::Range;

use super::sums::{Layout, Sums};

/// Users in a piece. Sums over users are made piece by piece and added in the order of the pieces, so
/// they do not depend on the number of threads.
const PIECE: usize = 512;

/// Some of the users.
#[derive(Clone, Copy)]
pub(crate) struct Panel<'a> {
    sums: &'a Sums,
    slots: &'a [u32],
}

impl<'a> Panel<'a> {
    pub fn new(sums: &'a Sums, slots: &'a [u32]) -> Self {
        Self { sums, slots }
    }

    /// Other users of the same sums.
    pub fn of(&self, slots: &'a [u32]) -> Self {
        Self {
            sums: self.sums,
            slots,
        }
    }

    pub fn layout(&self) -> Layout {
        self.sums.layout()
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn slots(&self) -> &'a [u32] {
        self.slots
    }

    pub fn pieces(&self) -> Range<usize> {
        0..self.slots.len().div_ceil(PIECE)
    }

    pub fn piece(&self, piece: usize) -> &'a [u32] {
        let start = piece * PIECE;
        &self.slots[start..(start + PIECE).min(self.slots.len())]
    }

    /// The index of the first user of a piece.
    pub fn start(&self, piece: usize) -> usize {
        piece * PIECE
    }

    #[inline]
    pub fn row(&self, slot: u32) -> &'a [f64] {
        self.sums.row(slot as usize)
    }
}
