//! Algorithm 4: checked clusters that agree become one.

use super::Sclub;
use super::cluster::{Cluster, Members, Pivot};
use crate::policy::{Change, UserId, Why};
use crate::radius::{distance, radius};

impl Sclub {
    /// Merges the cluster of a user with others until none agrees with it.
    pub(super) fn merge_around(&mut self, slot: u32, user: UserId, changes: &mut Vec<Change>) {
        loop {
            let index = self.partition.profiles.place(slot).cluster;
            if !self.partition.is_checked(index) {
                return;
            }
            let Some((other, why)) = self.first_to_merge_with(index) else {
                return;
            };
            changes.push(self.merge(index, other, user, why));
        }
    }

    /// The cluster with the lowest label among the checked clusters that agree with `index`.
    fn first_to_merge_with(&mut self, index: u32) -> Option<(u32, Why)> {
        let partition = &self.partition;
        let cluster = partition.get(index);
        let estimate = cluster.view(&partition.profiles).estimate;
        let reach = partition.reach(cluster);
        partition.nearby.candidates(estimate, reach, &mut self.near);
        self.near
            .iter()
            .filter(|&&other| other != index)
            .map(|&other| (other, self.partition.get(other)))
            .filter_map(|(at, other)| Some((at, other.label, self.agreement(cluster, other)?)))
            .min_by_key(|&(_, label, _)| label)
            .map(|(at, _, why)| (at, why))
    }

    /// The comparisons by which two checked clusters agree, if estimates and average frequencies do.
    fn agreement(&self, a: &Cluster, b: &Cluster) -> Option<Why> {
        let profiles = &self.partition.profiles;
        let apart = distance(a.view(profiles).estimate, b.view(profiles).estimate);
        let estimates = self.thresholds.estimates_agree(apart, a.radius, b.radius)?;
        let round = self.clock.rounds();
        let frequencies = (a.frequency(profiles, round), b.frequency(profiles, round));
        let frequencies =
            self.thresholds
                .frequencies_agree(frequencies.0, frequencies.1, radius(round))?;
        Some(Why::Both {
            estimates,
            frequencies,
        })
    }

    /// Makes two checked clusters one, under the lower of their labels.
    fn merge(&mut self, a: u32, b: u32, user: UserId, why: Why) -> Change {
        let labels = (self.partition.get(a).label, self.partition.get(b).label);
        let (kept, gone) = (labels.0.min(labels.1), labels.0.max(labels.1));
        // The members of the smaller cluster move; the sum is the same either way.
        let (stay, go) = if self.partition.get(a).size() >= self.partition.get(b).size() {
            (a, b)
        } else {
            (b, a)
        };
        let phase = self.partition.phase;
        let leaving = self.partition.dissolve(go);
        self.partition.move_first(go, stay);

        let (cluster, profiles, scratch) = self.partition.parts(stay);
        let many = cluster.as_many(profiles, scratch, phase);
        match &leaving.members {
            Members::One(slot) => {
                let count = profiles.place(*slot).count;
                many.sums
                    .add_block(scratch, profiles.blocks.get(*slot as usize), count);
                many.frequencies.add(count, 1);
                many.add_member(profiles, *slot, stay);
            }
            Members::Many(others) => {
                many.sums.add_aggregate(&others.sums);
                many.frequencies.absorb(&others.frequencies);
                for &slot in &others.slots {
                    many.add_member(profiles, slot, stay);
                }
            }
        }
        cluster.label = kept;
        cluster.checked += leaving.checked;
        self.partition.rederive(stay);
        let (cluster, ..) = self.partition.parts(stay);
        if let Members::Many(many) = &mut cluster.members {
            many.pivot = Pivot::take(phase, &many.sums);
        }
        self.partition.refresh(stay);
        Change::Merge {
            kept,
            gone,
            user,
            why,
        }
    }
}
