//! Statistics of users and clusters.

use super::Sclub;
use super::cluster::Members;
use crate::policy::{ClusterId, UserId};
use crate::statistics::{Scratch, Shape, View};

/// (S, b, T) of a user or of a cluster, written out.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// S = I + Σ x xᵀ, row by row.
    pub gram: Vec<f64>,
    /// b = Σ y x.
    pub moment: Vec<f64>,
    /// T, the number of observations.
    pub count: u64,
    /// θ̂ = S⁻¹ b.
    pub estimate: Vec<f64>,
}

impl Statistics {
    /// From G = S − I in packed form.
    pub(crate) fn from_packed(shape: Shape, gram: &[f64], view: View<'_>, count: u64) -> Self {
        let d = shape.dim;
        let mut full = vec![0.0; d * d];
        for i in 0..d {
            for k in 0..=i {
                let value = gram[i * (i + 1) / 2 + k] + f64::from(u8::from(i == k));
                full[i * d + k] = value;
                full[k * d + i] = value;
            }
        }
        Self {
            gram: full,
            moment: view.moment.to_vec(),
            count,
            estimate: view.estimate.to_vec(),
        }
    }
}

impl Sclub {
    /// The users who have appeared, in order of first appearance.
    pub fn users(&self) -> &[UserId] {
        self.partition.roster.users()
    }

    /// (S_i, b_i, T_i) of a user; `None` if the user has not appeared.
    pub fn user_statistics(&self, user: UserId) -> Option<Statistics> {
        let slot = self.partition.roster.slot(user)?;
        let block = self.partition.profiles.blocks.get(slot);
        let mut scratch = Scratch::new(self.shape);
        let gram = scratch.gram_of(block);
        let count = self.partition.profiles.places[slot].count;
        Some(Statistics::from_packed(
            self.shape,
            gram,
            self.shape.view(block),
            count,
        ))
    }

    /// (S^j, b^j, T^j) of the cluster that a user belongs to.
    pub fn cluster_statistics(&self, user: UserId) -> Statistics {
        match &self.partition.cluster_of(user).members {
            Members::One(slot) => {
                let alone = self.partition.roster.users()[*slot as usize];
                self.user_statistics(alone).expect("a member has appeared")
            }
            Members::Many(many) => {
                let sums = &many.sums;
                Statistics::from_packed(self.shape, sums.gram(), sums.view(), sums.count())
            }
        }
    }

    /// Number of users in the cluster of a user, with those declared who have not appeared.
    pub fn cluster_size(&self, user: UserId) -> u64 {
        self.partition.cluster_of(user).size()
    }

    /// The clusters with the users in each who have appeared, by label.
    pub fn partition(&self) -> Vec<(ClusterId, Vec<UserId>)> {
        let users = self.users();
        let mut clusters: Vec<_> = self
            .partition
            .iter()
            .map(|cluster| {
                let mut members: Vec<UserId> = match &cluster.members {
                    Members::One(slot) => vec![users[*slot as usize]],
                    Members::Many(many) => many
                        .slots
                        .iter()
                        .map(|&slot| users[slot as usize])
                        .collect(),
                };
                members.sort_unstable();
                (cluster.label, members)
            })
            .collect();
        clusters.sort_unstable();
        clusters
    }
}
