//! Inspecting, saving and forgetting.

use std::io::{self, Write};

use super::Sclub;
use super::cluster::{Cluster, Members};
use crate::abilities::{ClusterView, Correct, Forget, Inspect, Persist};
use crate::bytes;
use crate::error::Error;
use crate::policy::{ClusterId, UserId, check_correction};

impl Sclub {
    fn view_of<'a>(&'a self, cluster: &'a Cluster) -> ClusterView<'a> {
        let profiles = &self.partition.profiles;
        ClusterView {
            label: cluster.label,
            users: cluster.size(),
            count: cluster.count(profiles),
            estimate: cluster.view(profiles).estimate,
        }
    }

    fn labelled(&self, label: ClusterId) -> Option<&Cluster> {
        self.partition.iter().find(|cluster| cluster.label == label)
    }
}

impl Forget for Sclub {
    fn forget(&mut self, user: UserId) -> bool {
        Sclub::forget(self, user)
    }
}

impl Correct for Sclub {
    /// The user is compared with the cluster again in the user's next round.
    fn correct(&mut self, user: UserId, item: &[f64], from: f64, to: f64) -> Result<bool, Error> {
        check_correction(item, from, to, self.shape.dim)?;
        let Some(slot) = self.partition.roster.slot(user) else {
            return Ok(false);
        };
        let (phase, change) = (self.partition.phase, to - from);
        let block = self.partition.profiles.blocks.get_mut(slot);
        self.shape.correct(block, item, change);
        let index = self.partition.profiles.places[slot].cluster;
        let (cluster, ..) = self.partition.parts(index);
        if let Members::Many(many) = &mut cluster.members {
            many.pivot.renew(phase, &many.sums);
            many.sums.correct(item, change);
        }
        // Its estimate has moved.
        self.partition.refresh(index);
        Ok(true)
    }
}

impl Inspect for Sclub {
    fn users(&self) -> u64 {
        self.partition.roster.len() as u64
    }

    fn singletons(&self) -> u64 {
        let clusters = self.partition.iter();
        clusters.filter(|cluster| cluster.size() == 1).count() as u64
    }

    fn count(&self, user: UserId) -> Option<u64> {
        let slot = self.partition.roster.slot(user)?;
        Some(self.partition.profiles.places[slot].count)
    }

    fn own_estimate(&self, user: UserId) -> Option<Vec<f64>> {
        let slot = self.partition.roster.slot(user)?;
        let view = self.partition.profiles.view(slot as u32);
        Some(view.estimate.to_vec())
    }

    fn cluster_users(&self, user: UserId) -> u64 {
        self.cluster_size(user)
    }

    fn each_cluster(&self, visit: &mut dyn FnMut(ClusterView<'_>)) {
        let clusters = self.partition.iter();
        clusters.for_each(|cluster| visit(self.view_of(cluster)));
    }

    /// The time it takes grows with the number of clusters.
    fn cluster(&self, id: ClusterId) -> Option<ClusterView<'_>> {
        Some(self.view_of(self.labelled(id)?))
    }

    fn members(&self, id: ClusterId, limit: usize) -> Option<Vec<UserId>> {
        let users = self.partition.roster.users();
        let slots = match &self.labelled(id)?.members {
            Members::One(slot) => std::slice::from_ref(slot),
            Members::Many(many) => many.slots.as_slice(),
        };
        let some = slots.iter().take(limit);
        Some(some.map(|&slot| users[slot as usize]).collect())
    }
}

impl Persist for Sclub {
    fn save_to(&self, out: &mut dyn Write) -> io::Result<()> {
        bytes::save(self, out)
    }
}
