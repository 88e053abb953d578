//! The clusters, their members, and the current phase.

use super::cluster::{Cluster, Many, Members, Pivot};
use super::nearby::Nearby;
use super::profile::Profiles;
use crate::frequencies::Frequencies;
use crate::policy::{ClusterId, UserId};
use crate::radius::{Thresholds, radius};
use crate::roster::Roster;
use crate::statistics::{Aggregate, Scratch, Shape, View};

/// All users in disjoint clusters, and the phase that their marks and pivots are of.
#[derive(Debug, Clone)]
pub(super) struct Partition {
    /// The current phase; 0 before the first round.
    pub phase: u32,
    /// They give the reach of a cluster.
    thresholds: Thresholds,
    pub roster: Roster,
    pub profiles: Profiles,
    pub scratch: Scratch,
    pub clusters: Vec<Option<Cluster>>,
    pub free: Vec<u32>,
    /// The cluster labelled 1, in which users start.
    pub first: u32,
    pub declared: u64,
    pub last_label: ClusterId,
    pub live: usize,
    /// Sketches of the checked clusters.
    pub nearby: Nearby,
}

impl Partition {
    /// Algorithm 1, lines 2 and 3.
    pub fn new(shape: Shape, declared: u64, thresholds: Thresholds) -> Self {
        let sums = Aggregate::new(shape);
        let mut frequencies = Frequencies::default();
        frequencies.add(0, declared);
        let pivot = Pivot::take(0, &sums);
        let many = Many {
            sums,
            slots: Vec::new(),
            unseen: declared,
            frequencies,
            pivot,
        };
        let first = Cluster {
            label: 1,
            members: Members::Many(Box::new(many)),
            radius: radius(0),
            phase: 0,
            checked: 0,
            sketch_index: None,
        };
        Self {
            phase: 0,
            thresholds,
            roster: Roster::default(),
            profiles: Profiles::new(shape),
            scratch: Scratch::new(shape),
            clusters: vec![Some(first)],
            free: Vec::new(),
            first: 0,
            declared,
            last_label: 1,
            live: 1,
            nearby: Nearby::default(),
        }
    }

    /// Begins a phase if it is a new one. Marks and pivots of the phase before lapse by their number;
    /// no cluster is visited.
    pub fn enter_phase(&mut self, phase: u32) {
        if phase != self.phase {
            self.phase = phase;
            self.nearby.clear();
        }
    }

    /// The distance from its estimate within which a cluster may merge.
    #[inline]
    pub fn reach(&self, cluster: &Cluster) -> f64 {
        self.thresholds.reach(cluster.radius)
    }

    /// True if every member of a cluster has been checked in the current phase.
    pub fn is_checked(&self, index: u32) -> bool {
        self.get(index).is_checked(self.phase)
    }

    /// The cluster of a user, seen or not.
    #[inline]
    pub fn cluster_of(&self, user: UserId) -> &Cluster {
        let index = self
            .roster
            .slot(user)
            .map_or(self.first, |slot| self.profiles.places[slot].cluster);
        self.get(index)
    }

    /// (S^j)⁻¹, b^j, θ̂^j and T^j of the cluster of a user, seen or not.
    #[inline]
    pub fn basis(&self, user: UserId) -> (View<'_>, u64) {
        let index = match self.roster.slot(user) {
            Some(slot) => {
                let place = &self.profiles.places[slot];
                if place.is_alone {
                    return (self.profiles.view(slot as u32), place.count);
                }
                place.cluster
            }
            None => self.first,
        };
        let cluster = self.get(index);
        (cluster.view(&self.profiles), cluster.count(&self.profiles))
    }

    #[inline]
    pub fn get(&self, index: u32) -> &Cluster {
        self.clusters[index as usize]
            .as_ref()
            .expect("a user's cluster is alive")
    }

    /// Number of clusters.
    pub fn len(&self) -> usize {
        self.live
    }

    /// The clusters alive, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Cluster> {
        self.clusters.iter().flatten()
    }

    /// A cluster, mutable, with the profiles and scratch memory that changing it needs.
    #[inline]
    pub fn parts(&mut self, index: u32) -> (&mut Cluster, &mut Profiles, &mut Scratch) {
        let cluster = self.clusters[index as usize]
            .as_mut()
            .expect("a user's cluster is alive");
        (cluster, &mut self.profiles, &mut self.scratch)
    }

    /// The slot of a user, who joins the first cluster at the first appearance.
    #[inline]
    pub fn slot_of(&mut self, user: UserId) -> u32 {
        match self.roster.slot(user) {
            Some(slot) => slot as u32,
            None => self.admit(user),
        }
    }

    fn admit(&mut self, user: UserId) -> u32 {
        let phase = self.phase;
        let slot = self.roster.admit(user) as u32;
        let first = self.first;
        self.profiles.push(first);
        let declared = user < self.declared;
        let (cluster, profiles, scratch) = self.parts(first);
        if cluster.size() == 0 {
            cluster.become_one(profiles, slot);
            return slot;
        }
        let many = cluster.as_many(profiles, scratch, phase);
        many.pivot.renew(phase, &many.sums);
        if declared {
            // The user has been counted with frequency 0 since the start.
            many.unseen -= 1;
        } else {
            many.frequencies.add(0, 1);
        }
        many.add_member(profiles, slot, first);
        cluster.collapse(profiles);
        // The user is not checked yet; if the cluster was, it no longer is.
        self.refresh(first);
        slot
    }

    /// Recomputes factors and radius of a cluster after its membership changed.
    pub fn rederive(&mut self, index: u32) {
        let (cluster, profiles, scratch) = self.parts(index);
        cluster.collapse(profiles);
        if let Members::Many(many) = &mut cluster.members {
            many.sums.factorise(scratch);
        }
        cluster.radius = radius(cluster.count(profiles));
    }

    /// Adds a cluster of one user.
    pub fn add_singleton(&mut self, slot: u32) -> u32 {
        self.last_label += 1;
        self.live += 1;
        let cluster = Cluster {
            label: self.last_label,
            members: Members::One(slot),
            radius: radius(self.profiles.place(slot).count),
            phase: 0,
            checked: 0,
            sketch_index: None,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.clusters[index as usize] = Some(cluster);
                index
            }
            None => {
                self.clusters.push(Some(cluster));
                self.clusters.len() as u32 - 1
            }
        };
        let place = self.profiles.place_mut(slot);
        place.cluster = index;
        place.position = 0;
        place.is_alone = true;
        index
    }

    /// Removes a cluster whose users have moved to another.
    pub fn dissolve(&mut self, index: u32) -> Cluster {
        self.leave_nearby(index);
        self.live -= 1;
        self.free.push(index);
        self.clusters[index as usize]
            .take()
            .expect("a cluster is dissolved once")
    }

    /// Records that the first cluster is now at `to`, if it was at `from`.
    pub fn move_first(&mut self, from: u32, to: u32) {
        if self.first == from {
            self.first = to;
        }
    }

    /// Marks a user checked (Algorithm 1, line 14).
    pub fn mark_checked(&mut self, slot: u32) {
        let phase = self.phase;
        let place = self.profiles.place_mut(slot);
        let cluster = place.cluster;
        let fresh = place.checked_in != phase;
        place.checked_in = phase;
        let (cluster, ..) = self.parts(cluster);
        cluster.enter(phase);
        cluster.checked += u32::from(fresh);
    }

    /// Updates the sketch of a cluster: present if the cluster is checked, with the current estimate
    /// and reach.
    pub fn refresh(&mut self, index: u32) {
        let phase = self.phase;
        let cluster = self.clusters[index as usize]
            .as_mut()
            .expect("a user's cluster is alive");
        cluster.enter(phase);
        if !cluster.is_checked(phase) {
            self.leave_nearby(index);
            return;
        }
        let reach = self.thresholds.reach(cluster.radius);
        let estimate = cluster.view(&self.profiles).estimate;
        match cluster.sketch_index {
            Some(sketch_index) => self.nearby.update(sketch_index, estimate, reach),
            None => cluster.sketch_index = Some(self.nearby.insert(index, estimate, reach)),
        }
    }

    fn leave_nearby(&mut self, index: u32) {
        let (cluster, ..) = self.parts(index);
        let Some(sketch_index) = cluster.sketch_index.take() else {
            return;
        };
        if let Some(moved) = self.nearby.remove(sketch_index) {
            self.parts(moved).0.sketch_index = Some(sketch_index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Params;

    #[test]
    fn a_cluster_without_users_is_never_checked() {
        let partition = Partition::new(Shape { dim: 2 }, 0, Thresholds::new(&Params::tuned()));
        assert_eq!(partition.get(0).size(), 0);
        assert!(!partition.is_checked(0));
    }
}
