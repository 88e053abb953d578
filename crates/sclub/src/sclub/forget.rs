//! Forgetting a user: what is left is made from the others alone.

use super::Sclub;
use super::cluster::{Many, Members, Pivot};
use super::partition::Partition;
use crate::frequencies::Frequencies;
use crate::policy::UserId;
use crate::radius::radius;
use crate::statistics::Aggregate;

impl Sclub {
    /// Forgets a user: her statistics, her mark, and her share in her cluster's sums, which are summed
    /// anew over the users who stay. Returns whether there was anything to forget.
    ///
    /// What the others were shown while she was among them, and so what they taught, stays. A user
    /// who was declared is again one who has not appeared. The time it takes grows with the users of
    /// her cluster.
    pub fn forget(&mut self, user: UserId) -> bool {
        let Some(slot) = self.partition.roster.slot(user) else {
            return false;
        };
        let slot = slot as u32;
        let (phase, alpha_theta) = (self.phase, self.thresholds.alpha_theta);
        let index = self.partition.profiles.place(slot).cluster;
        let is_first = index == self.partition.first;
        self.partition.take_out(slot, phase);
        if self.partition.get(index).size() == 0 && !is_first {
            self.partition.dissolve(index);
        } else {
            self.partition.refresh(index, phase, alpha_theta);
        }
        if user < self.partition.declared {
            self.partition.await_again(phase);
            let first = self.partition.first;
            self.partition.refresh(first, phase, alpha_theta);
        }
        self.partition.dismiss(slot);
        true
    }
}

impl Partition {
    /// Takes a user out of her cluster, whose sums are made anew from those who stay.
    fn take_out(&mut self, slot: u32, phase: u32) {
        let place = self.profiles.place(slot);
        let (cluster, profiles, scratch) = self.parts(place.cluster);
        cluster.enter(phase);
        cluster.checked -= u32::from(place.checked_in == phase);
        let stay: Vec<u32> = match &mut cluster.members {
            Members::One(_) => Vec::new(),
            Members::Many(many) => {
                many.unseat_member(profiles, slot);
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
    fn await_again(&mut self, phase: u32) {
        let first = self.first;
        let (cluster, profiles, scratch) = self.parts(first);
        let many = cluster.as_many(profiles, scratch, phase);
        many.unseen += 1;
        many.frequencies.add(0, 1);
    }

    /// Gives a slot that nobody's cluster knows any more to whoever has the last one.
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
