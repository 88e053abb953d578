//! Forgetting a user: the remaining state is computed from the other users alone.

use super::Sclub;
use super::cluster::{Many, Members, Pivot};
use super::partition::Partition;
use crate::frequencies::Frequencies;
use crate::policy::UserId;
use crate::radius::radius;
use crate::statistics::Aggregate;

impl Sclub {
    /// Forgets a user: statistics, mark, and the share in the cluster's sums, which are summed again
    /// over the users who stay. Returns true if the user was known.
    ///
    /// The other users' observations stay, although some were of items shown because of this user. A
    /// declared user becomes again one who has not appeared. The time grows with the number of users
    /// in the cluster.
    pub fn forget(&mut self, user: UserId) -> bool {
        let Some(slot) = self.partition.roster.slot(user) else {
            return false;
        };
        let slot = slot as u32;
        let index = self.partition.profiles.place(slot).cluster;
        let is_first = index == self.partition.first;
        self.partition.take_out(slot);
        if self.partition.get(index).size() == 0 && !is_first {
            self.partition.dissolve(index);
        } else {
            self.partition.refresh(index);
        }
        if user < self.partition.declared {
            self.partition.await_again();
            let first = self.partition.first;
            self.partition.refresh(first);
        }
        self.partition.dismiss(slot);
        true
    }
}

impl Partition {
    /// Takes a user out of their cluster, whose sums are computed again from those who stay.
    fn take_out(&mut self, slot: u32) {
        let phase = self.phase;
        let place = self.profiles.place(slot);
        let (cluster, profiles, scratch) = self.parts(place.cluster);
        cluster.enter(phase);
        cluster.checked -= u32::from(place.checked_in == phase);
        let stay: Vec<u32> = match &mut cluster.members {
            Members::One(_) => Vec::new(),
            Members::Many(many) => {
                many.remove_member(profiles, slot);
                many.slots.clone()
            }
        };
        let mut sums = Aggregate::new(scratch.shape());
        let mut frequencies = Frequencies::default();
        for &other in &stay {
            let count = profiles.place(other).count;
            sums.add_block(scratch, profiles.blocks.get(other as usize), count);
            frequencies.add(count, 1);
        }
        sums.factorise(scratch);
        let unseen = match &cluster.members {
            Members::One(_) => 0,
            Members::Many(many) => many.unseen,
        };
        frequencies.add(0, unseen);
        cluster.radius = radius(sums.count());
        let pivot = Pivot::take(phase, &sums);
        cluster.members = Members::Many(Box::new(Many {
            sums,
            slots: stay,
            unseen,
            frequencies,
            pivot,
        }));
        cluster.collapse(profiles);
    }

    /// One more declared user who has not appeared, in the first cluster.
    fn await_again(&mut self) {
        let (first, phase) = (self.first, self.phase);
        let (cluster, profiles, scratch) = self.parts(first);
        let many = cluster.as_many(profiles, scratch, phase);
        many.unseen += 1;
        many.frequencies.add(0, 1);
    }

    /// Frees a slot that no cluster refers to any more; the user in the last slot moves into it.
    fn dismiss(&mut self, slot: u32) {
        self.profiles.places.swap_remove(slot as usize);
        self.profiles.blocks.swap_remove(slot as usize);
        if !self.roster.dismiss(slot as usize) {
            return;
        }
        let place = self.profiles.place(slot);
        match &mut self.parts(place.cluster).0.members {
            Members::One(only) => *only = slot,
            Members::Many(many) => many.slots[place.position as usize] = slot,
        }
    }
}
