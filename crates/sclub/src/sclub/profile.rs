//! The statistics of each user who has appeared (Algorithm 1, line 2).

use crate::statistics::{Blocks, Shape, View};

/// A user's count, cluster and mark; S and b are in [`Profiles::blocks`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// T, the number of the user's observations.
    pub count: u64,
    /// The user's cluster.
    pub cluster: u32,
    /// The user's position in the cluster's list of members.
    pub position: u32,
    /// The last phase in which the user was marked checked.
    pub checked_in: u32,
    /// True if the cluster has no other member. Then recommendations use the user's own statistics.
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
