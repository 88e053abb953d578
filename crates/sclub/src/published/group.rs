//! A cluster of the published code.

use crate::digest::Digest;
use crate::frequencies::Frequencies;
use crate::policy::ClusterId;
use crate::radius::radius;
use crate::sclub::{Pivot, SketchIndex};
use crate::statistics::{Aggregate, Blocks, Scratch, Shape, View};

/// A cluster.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub index: u32,
    pub label: ClusterId,
    pub basis: Basis,
    /// True if inverse and estimate are older than the sums.
    pub is_stale: bool,
    /// F(T)
    pub radius: f64,
    /// Users, those declared who have not appeared included.
    pub size: u64,
    /// The users who have appeared.
    pub slots: Vec<u32>,
    pub frequencies: Frequencies,
    pub pivot: Pivot,
    /// The epoch of `marked`, `was_checked` and `sketch_index`. In any other epoch they are reset.
    pub epoch: u64,
    /// The number of users marked.
    pub marked: u64,
    /// True if all users were marked when one of them last was.
    pub was_checked: bool,
    pub sketch_index: Option<SketchIndex>,
}

/// The place of a cluster's S and b.
#[derive(Debug, Clone)]
pub(super) enum Basis {
    /// The block of its one user, who was split out.
    Shared {
        slot: u32,
        /// True if an observation enters once for the user and once for the cluster.
        twice: bool,
    },
    /// Sums of its own.
    Sums(Aggregate),
}

impl Group {
    /// The cluster in which users start.
    pub fn first(shape: Shape, declared: u64) -> Self {
        let sums = Aggregate::new(shape);
        let mut frequencies = Frequencies::default();
        frequencies.add(0, declared);
        Self {
            index: 0,
            label: 1,
            is_stale: false,
            radius: radius(0),
            size: declared,
            slots: Vec::new(),
            frequencies,
            pivot: Pivot::take(0, &sums),
            basis: Basis::Sums(sums),
            epoch: 0,
            marked: 0,
            was_checked: false,
            sketch_index: None,
        }
    }

    /// A user who was split out.
    pub fn alone(
        index: u32,
        label: ClusterId,
        slot: u32,
        count: u64,
        twice: bool,
        shape: Shape,
    ) -> Self {
        let mut frequencies = Frequencies::default();
        frequencies.add(count, 1);
        Self {
            index,
            label,
            radius: radius(count),
            size: 1,
            slots: vec![slot],
            frequencies,
            basis: Basis::Shared { slot, twice },
            // The only user of a cluster is compared with no pivot.
            ..Self::first(shape, 0)
        }
    }

    pub fn view<'a>(&'a self, blocks: &'a Blocks) -> View<'a> {
        match &self.basis {
            Basis::Shared { slot, .. } => blocks.view(*slot as usize),
            Basis::Sums(sums) => sums.view(),
        }
    }

    /// Sums of its own, copied from the user's where they were shared.
    pub fn own_sums(
        &mut self,
        scratch: &mut Scratch,
        blocks: &Blocks,
        count_of: impl Fn(u32) -> u64,
    ) -> &mut Aggregate {
        if let Basis::Shared { slot, .. } = self.basis {
            let block = blocks.get(slot as usize);
            self.basis = Basis::Sums(Aggregate::of_block(scratch, block, count_of(slot)));
        }
        match &mut self.basis {
            Basis::Sums(sums) => sums,
            Basis::Shared { .. } => unreachable!("made sums above"),
        }
    }

    /// Brings the pivot to the start of `phase`; to be called before anything changes in it.
    pub fn renew_pivot(&mut self, phase: u32) {
        if let Basis::Sums(sums) = &self.basis {
            self.pivot.renew(phase, sums);
        }
    }

    /// Takes the pivot now.
    pub fn retake_pivot(&mut self, phase: u32) {
        if let Basis::Sums(sums) = &self.basis {
            self.pivot = Pivot::take(phase, sums);
        }
    }

    /// Drops the marks of earlier epochs.
    pub fn enter(&mut self, epoch: u64) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.marked = 0;
            self.was_checked = false;
            self.sketch_index = None;
        }
    }

    pub fn digest(&self, digest: Digest) -> Digest {
        let digest = digest
            .word(self.label)
            .word(u64::from(self.is_stale))
            .word(self.radius.to_bits())
            .word(self.size)
            .word(self.epoch)
            .word(self.marked)
            .word(u64::from(self.was_checked))
            .word(u64::from(self.pivot.phase))
            .numbers(&self.pivot.estimate);
        match &self.basis {
            Basis::Shared { slot, twice } => digest.word(u64::from(*slot)).word(u64::from(*twice)),
            Basis::Sums(sums) => digest
                .word(sums.count())
                .numbers(sums.gram())
                .numbers(sums.block()),
        }
    }
}
