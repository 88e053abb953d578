//! Algorithm 3: a user who disagrees with their cluster leaves it.

use super::Sclub;
use super::cluster::Members;
use crate::policy::{Change, UserId, Why};
use crate::radius::{distance, radius};

impl Sclub {
    /// The reason why a user's estimate or frequency disagrees with the cluster's, if one does. A
    /// cluster of one user always agrees.
    pub(super) fn disagreement(&self, slot: u32) -> Option<Why> {
        let place = self.partition.profiles.place(slot);
        let cluster = self.partition.get(place.cluster);
        let Members::Many(many) = &cluster.members else {
            return None;
        };

        let apart = distance(
            self.partition.profiles.view(slot).estimate,
            &many.pivot.estimate,
        );
        let thresholds = &self.thresholds;
        if let Some(comparison) =
            thresholds.estimates_disagree(apart, radius(place.count), many.pivot.radius)
        {
            return Some(Why::Estimates(comparison));
        }
        // Some member's frequency is too far from the user's exactly if the lowest or the highest is.
        let round = self.clock.rounds() as f64;
        let round_radius = radius(self.clock.rounds());
        let frequency = place.count as f64 / round;
        [many.frequencies.lowest(), many.frequencies.highest()]
            .into_iter()
            .flatten()
            .find_map(|other| {
                thresholds.frequencies_disagree(frequency, other as f64 / round, round_radius)
            })
            .map(Why::Frequencies)
    }

    /// Moves the user to a new cluster of one.
    pub(super) fn split_out(&mut self, slot: u32, user: UserId, why: Why) -> Change {
        let place = self.partition.profiles.place(slot);
        let old = place.cluster;
        let phase = self.partition.phase;
        let is_checked = u32::from(place.checked_in == phase);
        let (cluster, profiles, scratch) = self.partition.parts(old);
        cluster.enter(phase);
        cluster.checked -= is_checked;
        let many = cluster.as_many(profiles, scratch, phase);
        many.sums
            .remove_block(scratch, profiles.blocks.get(slot as usize), place.count);
        many.frequencies.remove(place.count);
        many.remove_member(profiles, slot);
        let from = cluster.label;
        self.partition.rederive(old);
        self.partition.refresh(old);

        let new = self.partition.add_singleton(slot);
        let (cluster, ..) = self.partition.parts(new);
        cluster.enter(phase);
        cluster.checked = is_checked;
        Change::Split {
            from,
            into: cluster.label,
            users: 1,
            user,
            why,
        }
    }
}
