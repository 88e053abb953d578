//! The clusters, who is in which, and which are checked.

use super::cluster::{Cluster, Many, Members, Pivot};
use super::nearby::Nearby;
use super::profile::Profiles;
use crate::frequencies::Frequencies;
use crate::policy::{ClusterId, UserId};
use crate::radius::radius;
use crate::roster::Roster;
use crate::statistics::{Aggregate, Scratch, Shape, View};

/// All users in disjoint clusters.
#[derive(Debug, Clone)]
pub(super) struct Partition {
    pub roster: Roster,
    pub profiles: Profiles,
    pub scratch: Scratch,
    pub clusters: Vec<Option<Cluster>>,
    pub free: Vec<u32>,
    /// The cluster labelled 1, in which everybody starts.
    pub first: u32,
    pub declared: u64,
    pub last_label: ClusterId,
    pub live: usize,
    /// Sketches of the checked clusters.
    pub nearby: Nearby,
}

impl Partition {
    /// Algorithm 1, lines 2 and 3.
    pub fn new(shape: Shape, declared: u64) -> Self {
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
            seat: None,
        };
        Self {
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

    /// A cluster to be changed, with what changing it takes.
    #[inline]
    pub fn parts(&mut self, index: u32) -> (&mut Cluster, &mut Profiles, &mut Scratch) {
        let cluster = self.clusters[index as usize]
            .as_mut()
            .expect("a user's cluster is alive");
        (cluster, &mut self.profiles, &mut self.scratch)
    }

    /// The slot of a user, who joins the first cluster if she appears for the first time.
    #[inline]
    pub fn slot_of(&mut self, user: UserId, phase: u32) -> u32 {
        match self.roster.slot(user) {
            Some(slot) => slot as u32,
            None => self.admit(user, phase),
        }
    }

    fn admit(&mut self, user: UserId, phase: u32) -> u32 {
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
            // She has been counted with frequency 0 all along.
            many.unseen -= 1;
        } else {
            many.frequencies.add(0, 1);
        }
        many.seat_member(profiles, slot, first);
        cluster.collapse(profiles);
        // She is not checked yet; if the cluster was, it no longer is.
        self.refresh(first, phase, 0.0);
        slot
    }

    /// Brings everything derived from a cluster's sums up to date after its membership changed.
    pub fn rederive(&mut self, index: u32) {
        let (cluster, profiles, scratch) = self.parts(index);
        cluster.collapse(profiles);
        if let Members::Many(many) = &mut cluster.members {
            many.sums.factorise(scratch);
        }
        cluster.radius = radius(cluster.count(profiles));
    }

    /// Adds a cluster of one user.
    pub fn found(&mut self, slot: u32) -> u32 {
        self.last_label += 1;
        self.live += 1;
        let cluster = Cluster {
            label: self.last_label,
            members: Members::One(slot),
            radius: radius(self.profiles.place(slot).count),
            phase: 0,
            checked: 0,
            seat: None,
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

    /// Takes a cluster whose users have gone elsewhere off the books.
    pub fn dissolve(&mut self, index: u32) -> Cluster {
        self.leave_nearby(index);
        self.live -= 1;
        self.free.push(index);
        self.clusters[index as usize]
            .take()
            .expect("a cluster is dissolved once")
    }

    /// The first cluster lives on at `index`.
    pub fn move_first(&mut self, from: u32, to: u32) {
        if self.first == from {
            self.first = to;
        }
    }

    /// Marks a user checked (Algorithm 1, line 14).
    pub fn mark_checked(&mut self, slot: u32, phase: u32) {
        let place = self.profiles.place_mut(slot);
        let cluster = place.cluster;
        let fresh = place.checked_in != phase;
        place.checked_in = phase;
        let (cluster, ..) = self.parts(cluster);
        cluster.enter(phase);
        cluster.checked += u32::from(fresh);
    }

    /// Brings the sketch of a cluster up to date: there if it is checked, and covering its estimate
    /// and reach of now.
    pub fn refresh(&mut self, index: u32, phase: u32, alpha_theta: f64) {
        let cluster = self.clusters[index as usize]
            .as_mut()
            .expect("a user's cluster is alive");
        cluster.enter(phase);
        if !cluster.is_checked(phase) {
            self.leave_nearby(index);
            return;
        }
        let reach = alpha_theta / 2.0 * cluster.radius;
        let estimate = cluster.view(&self.profiles).estimate;
        match cluster.seat {
            Some(seat) => self.nearby.update(seat, estimate, reach),
            None => cluster.seat = Some(self.nearby.insert(index, estimate, reach)),
        }
    }

    fn leave_nearby(&mut self, index: u32) {
        let (cluster, ..) = self.parts(index);
        let Some(seat) = cluster.seat.take() else {
            return;
        };
        if let Some(moved) = self.nearby.remove(seat) {
            self.parts(moved).0.seat = Some(seat);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_without_users_is_never_checked() {
        let partition = Partition::new(Shape { dim: 2 }, 0);
        assert_eq!(partition.get(0).size(), 0);
        assert!(!partition.get(0).is_checked(0));
    }
}
