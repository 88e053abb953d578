//! Algorithm 2: an observation enters the user's profile and the sums of the user's cluster.

use super::Sclub;
use super::cluster::Members;
use crate::kernels;
use crate::policy::Observation;
use crate::radius::radius;

impl Sclub {
    /// Learns one observation and returns the slot of its user.
    pub(super) fn update(&mut self, observation: &Observation<'_>) -> u32 {
        let Observation {
            user, item, reward, ..
        } = *observation;
        let phase = self.partition.phase;
        let slot = self.partition.slot_of(user);
        let place = self.partition.profiles.place_mut(slot);
        let (cluster, count) = (place.cluster, place.count);
        place.count += 1;
        let block = self.partition.profiles.blocks.get_mut(slot as usize);
        kernels::observe(self.shape.dim, block, item, reward);

        let (cluster, profiles, scratch) = self.partition.parts(cluster);
        if let Members::Many(many) = &mut cluster.members {
            many.pivot.renew(phase, &many.sums);
            many.sums.observe(scratch, item, reward);
            many.frequencies.raise(count);
        }
        cluster.radius = radius(cluster.count(profiles));
        slot
    }
}
