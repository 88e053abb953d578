//! What is kept about each user who has appeared (Algorithm 1, line 2).

use crate::statistics::{Blocks, Shape, View};

/// Beside (S, b): where a user belongs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// T, how often she has appeared.
    pub count: u64,
    /// Her cluster.
    pub cluster: u32,
    /// Her position in her cluster's list of members.
    pub position: u32,
    /// The last phase in which she was marked checked.
    pub checked_in: u32,
    /// Whether her cluster is she alone. Then what to recommend from is her own.
    pub is_alone: bool,
}

/// (S, b, T) and place of all users seen, by slot.
#[derive(Debug, Clone)]
pub(super) struct Profiles {
    pub blocks: Blocks,
    pub places: Vec<Place>,
}

impl Profiles {
    pub fn new(shape: Shape) -> Self {
        Self {
            blocks: Blocks::new(shape),
            places: Vec::new(),
        }
    }

    /// Adds an empty profile.
    pub fn push(&mut self, cluster: u32) {
        self.blocks.push();
        self.places.push(Place {
            count: 0,
            cluster,
            position: 0,
            checked_in: 0,
            is_alone: false,
        });
    }

    #[inline]
    pub fn view(&self, slot: u32) -> View<'_> {
        self.blocks.view(slot as usize)
    }

    #[inline]
    pub fn place(&self, slot: u32) -> Place {
        self.places[slot as usize]
    }

    #[inline]
    pub fn place_mut(&mut self, slot: u32) -> &mut Place {
        &mut self.places[slot as usize]
    }
}
