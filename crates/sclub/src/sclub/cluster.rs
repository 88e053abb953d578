//! The statistics of each cluster (Algorithm 1, line 3).

use super::nearby::SketchIndex;
use super::profile::Profiles;
use crate::frequencies::Frequencies;
use crate::policy::ClusterId;
use crate::radius::radius;
use crate::statistics::{Aggregate, Scratch, View};

/// A set of users who are treated as having the same tastes.
#[derive(Debug, Clone)]
pub(super) struct Cluster {
    pub label: ClusterId,
    pub members: Members,
    /// F(T) for the observations T of all members.
    pub radius: f64,
    /// The phase that `checked` and `sketch_index` are about; in any other nothing is checked.
    pub phase: u32,
    /// Members marked checked.
    pub checked: u32,
    /// The index of the cluster's sketch, while it is checked.
    pub sketch_index: Option<SketchIndex>,
}

/// The members of a cluster. The sums over one user are the user's own: no copy is stored.
#[derive(Debug, Clone)]
pub(super) enum Members {
    One(u32),
    Many(Box<Many>),
}

/// A cluster that is not a single user.
#[derive(Debug, Clone)]
pub(super) struct Many {
    pub sums: Aggregate,
    pub slots: Vec<u32>,
    /// The number of declared users who have not appeared; 0 but in the first cluster.
    pub unseen: u64,
    /// The counts of the members.
    pub frequencies: Frequencies,
    pub pivot: Pivot,
}

/// (θ̃, T̃), the estimate that members are compared with during a phase (Algorithm 1, line 6).
#[derive(Debug, Clone)]
pub(crate) struct Pivot {
    pub phase: u32,
    pub estimate: Box<[f64]>,
    /// F(T̃)
    pub radius: f64,
}

impl Pivot {
    pub fn take(phase: u32, sums: &Aggregate) -> Self {
        Self {
            phase,
            estimate: sums.view().estimate.into(),
            radius: radius(sums.count()),
        }
    }

    /// Brings the pivot to the start of `phase`. To be called before anything in the cluster changes
    /// in a phase: until then the cluster is what it was when the phase began.
    pub fn renew(&mut self, phase: u32, sums: &Aggregate) {
        if self.phase != phase {
            self.phase = phase;
            self.estimate.copy_from_slice(sums.view().estimate);
            self.radius = radius(sums.count());
        }
    }
}

impl Many {
    pub fn size(&self) -> u64 {
        self.slots.len() as u64 + self.unseen
    }

    /// Adds a member to the list, and the position to the member's profile.
    pub fn add_member(&mut self, profiles: &mut Profiles, slot: u32, cluster: u32) {
        let place = profiles.place_mut(slot);
        place.cluster = cluster;
        place.is_alone = false;
        place.position = self.slots.len() as u32;
        self.slots.push(slot);
    }

    /// Takes a member off the list.
    pub fn remove_member(&mut self, profiles: &mut Profiles, slot: u32) {
        let position = profiles.place(slot).position as usize;
        self.slots.swap_remove(position);
        if let Some(&moved) = self.slots.get(position) {
            profiles.place_mut(moved).position = position as u32;
        }
    }
}

impl Cluster {
    pub fn size(&self) -> u64 {
        match &self.members {
            Members::One(_) => 1,
            Members::Many(many) => many.size(),
        }
    }

    /// T^j
    pub fn count(&self, profiles: &Profiles) -> u64 {
        match &self.members {
            Members::One(slot) => profiles.place(*slot).count,
            Members::Many(many) => many.sums.count(),
        }
    }

    /// (S^j)⁻¹, b^j and θ̂^j
    #[inline]
    pub fn view<'a>(&'a self, profiles: &'a Profiles) -> View<'a> {
        match &self.members {
            Members::One(slot) => profiles.view(*slot),
            Members::Many(many) => many.sums.view(),
        }
    }

    /// p̂^j, the average frequency of the members.
    pub fn frequency(&self, profiles: &Profiles, round: u64) -> f64 {
        self.count(profiles) as f64 / (self.size() as f64 * round as f64)
    }

    /// True if every member has been checked in `phase`. A cluster without members never is.
    pub fn is_checked(&self, phase: u32) -> bool {
        self.phase == phase && self.checked > 0 && u64::from(self.checked) == self.size()
    }

    /// Drops the marks of earlier phases.
    pub fn enter(&mut self, phase: u32) {
        if self.phase != phase {
            self.phase = phase;
            self.checked = 0;
            self.sketch_index = None;
        }
    }

    /// The members as a set of many, whose pivot is taken now if there was none.
    pub fn as_many(
        &mut self,
        profiles: &mut Profiles,
        scratch: &mut Scratch,
        phase: u32,
    ) -> &mut Many {
        if let Members::One(slot) = self.members {
            profiles.place_mut(slot).is_alone = false;
            let count = profiles.place(slot).count;
            let block = profiles.blocks.get(slot as usize);
            let sums = Aggregate::of_block(scratch, block, count);
            let mut frequencies = Frequencies::default();
            frequencies.add(count, 1);
            let pivot = Pivot::take(phase, &sums);
            // The one member keeps position 0.
            let many = Many {
                sums,
                slots: vec![slot],
                unseen: 0,
                frequencies,
                pivot,
            };
            self.members = Members::Many(Box::new(many));
        }
        match &mut self.members {
            Members::Many(many) => many,
            Members::One(_) => unreachable!("made many above"),
        }
    }

    /// Drops the sums of a cluster that has a single user: they are the user's own.
    pub fn collapse(&mut self, profiles: &mut Profiles) {
        if let Members::Many(many) = &self.members
            && let (&[slot], 0) = (many.slots.as_slice(), many.unseen)
        {
            self.become_one(profiles, slot);
        }
    }

    /// Makes a user the only member.
    pub fn become_one(&mut self, profiles: &mut Profiles, slot: u32) {
        let place = profiles.place_mut(slot);
        place.position = 0;
        place.is_alone = true;
        self.members = Members::One(slot);
    }
}
