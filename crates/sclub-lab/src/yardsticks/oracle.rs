//! LinUCB that knows every user's cluster.

use sclub::{
    Abilities, Change, ClusterId, Decision, Error, Groups, ItemSet, LinUcbShared, Observation,
    Params, Policy, Score, Spec, UserId, specs,
};

use super::Known;
use crate::world::Truth;

/// Knows the clusters, not their weight vectors: one LinUCB for each. Where users change to other
/// clusters it knows when and to which.
///
/// After the change, user u is passed to the inner LinUCB as u + `users`, so it joins the group of its new
/// cluster.
#[derive(Debug, Clone)]
pub struct Oracle {
    inner: LinUcbShared,
    users: u64,
    /// Rounds after which users have changed.
    change_after: Option<u64>,
}

impl Oracle {
    /// Knows the clusters of `truth`.
    ///
    /// # Errors
    /// [`Error::BadParameter`].
    pub fn new(dim: usize, truth: &Truth, params: &Params) -> Result<Self, Error> {
        let mut cluster_of = truth.cluster_of.clone();
        let users = cluster_of.len() as u64;
        if let Some(changed) = &truth.changed {
            cluster_of.extend_from_slice(&changed.cluster_of);
        }
        Ok(Self {
            inner: LinUcbShared::new(dim, Groups::Known(cluster_of), params)?,
            users,
            change_after: truth.changed.as_ref().map(|changed| changed.after),
        })
    }

    /// The id of a user in the inner LinUCB.
    fn now(&self, user: UserId) -> UserId {
        match self.change_after {
            None => user,
            Some(after) if self.rounds() >= after && user < self.users => user + self.users,
            // A user who is not in the ground truth.
            Some(_) if user >= self.users => UserId::MAX,
            Some(_) => user,
        }
    }
}

impl Policy for Oracle {
    fn dim(&self) -> usize {
        self.inner.dim()
    }

    fn rounds(&self) -> u64 {
        self.inner.rounds()
    }

    fn recommend(&self, user: UserId, items: &ItemSet) -> Result<Decision, Error> {
        self.inner.recommend(self.now(user), items)
    }

    fn explain(&self, user: UserId, items: &ItemSet, scores: &mut Vec<Score>) -> Result<(), Error> {
        self.inner.explain(self.now(user), items, scores)
    }

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        if self.change_after.is_none() {
            return self.inner.learn_round(round, changes);
        }
        let now: Vec<Observation<'_>> = round
            .iter()
            .map(|observation| Observation {
                user: self.now(observation.user),
                ..*observation
            })
            .collect();
        self.inner.learn_round(&now, changes)
    }

    fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
        self.inner.cluster_of(self.now(user))
    }

    fn clusters(&self) -> usize {
        self.inner.clusters()
    }

    fn estimate(&self, user: UserId) -> Option<Vec<f64>> {
        self.inner.estimate(self.now(user))
    }

    fn digest(&self) -> u64 {
        self.inner.digest()
    }
}

/// `oracle`
pub static SPEC: Spec = Spec {
    name: "oracle",
    title: "Oracle",
    summary: "LinUCB that knows every user's cluster; for comparison only",
    citation: "Li, Chu, Langford and Schapire, WWW 2010",
    colors: ["#CC79A7", "#E79CC6"],
    revision: 1,
    presets: specs::LINUCB_ONE.presets,
    constants: specs::LINUCB_ONE.constants,
    can: Abilities {
        needs_truth: true,
        ..Abilities::NONE
    },
    new: |setup, values| {
        let truth = Known::clusters(setup)?;
        let params = Params::from_values(values);
        Ok(Box::new(Oracle::new(setup.dim, truth, &params)?))
    },
    load: None,
    gather: None,
};
