//! SCLUB, the paper's Algorithm 1, with its steps in the files beside this one.
//!
//! | paper | here |
//! |---|---|
//! | (S_i, b_i, T_i) of a user | [`profile`] |
//! | (S^j, b^j, T^j, C^j) of a cluster, pivot (θ̃^j, T̃^j) | [`cluster`] |
//! | J, j(i) | [`partition`] |
//! | phase s, lines 4 to 7 | [`phase`] |
//! | Algorithm 2, Update | [`update`] |
//! | Algorithm 3, Split | [`split`] |
//! | Algorithm 4, Merge | [`merge`], with [`nearby`] to find clusters to merge |
//!
//! Decisions that the pseudo-code leaves open are in `docs/algorithm.md`.

mod abilities;
mod cluster;
mod forget;
mod inspect;
mod merge;
mod nearby;
mod partition;
mod phase;
mod profile;
mod snapshot;
mod split;
mod update;

pub(crate) use cluster::Pivot;
pub use inspect::Statistics;
pub(crate) use nearby::{Nearby, SketchIndex};
pub(crate) use phase::phase_of;

use crate::base::Base;
use crate::bytes::{self, Save as _};
use crate::error::{Error, check_dim};
use crate::items::ItemSet;
use crate::params::{self, Params};
use crate::policy::{
    Change, Clock, ClusterId, Decision, Observation, Policy, Score, UserId, Users, check_items,
    check_round, offers, rank_by_basis,
};
use crate::published::{Deviations, PublishedSclub};
use crate::radius::Thresholds;
use crate::spec::{Abilities, Constant, Load, Preset, Range, Spec, Value};
use crate::statistics::{Shape, View};
use crate::ucb::Ranking;
use partition::Partition;

/// Set-based clustering of bandits (Li, Chen, Li, Leung: "Improved Algorithm on Online Clustering of
/// Bandits", IJCAI 2019).
///
/// Users start in one cluster. In each round:
/// 1. a user is recommended the item with the largest upper confidence bound on the estimate of
///    the user's cluster;
/// 2. the reward enters the statistics of the user and of the cluster;
/// 3. the user is split out if their estimate or frequency disagrees with the cluster's;
/// 4. the cluster is merged with every other that agrees with it, among those all of whose users
///    have been checked in the current phase. Phases last 2, 4, 8, … rounds.
///
/// A round costs O(L d²) for L candidates, and a short comparison with every checked cluster.
///
/// ```
/// use sclub::{ItemSet, Params, Policy, Sclub, Users};
///
/// let mut policy = Sclub::new(3, Users::Declared(100), &Params::tuned())?;
/// let items = ItemSet::from_rows(3, &[0.6, 0.8, 0.0, 0.0, 0.6, 0.8])?;
/// let shown = policy.recommend(42, &items)?;
/// let changes = policy.learn(42, &items.item(shown.index).collect::<Vec<_>>(), 1.0)?;
/// assert!(changes.is_empty());
/// # Ok::<(), sclub::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Sclub {
    params: Params,
    shape: Shape,
    ranking: Ranking,
    thresholds: Thresholds,
    clock: Clock,
    partition: Partition,
    /// Slots of the users of the round; a buffer that is reused.
    served: Vec<u32>,
    /// Clusters that may be merged; a buffer that is reused.
    near: Vec<u32>,
}

impl Sclub {
    /// One cluster of all users, before the first round.
    ///
    /// # Errors
    /// [`Error::Dimension`], [`Error::NoUsers`], [`Error::TooMany`], [`Error::BadParameter`].
    pub fn new(dim: usize, users: Users, params: &Params) -> Result<Self, Error> {
        Self::with_slack(dim, users, params, 0.0)
    }

    /// As [`Sclub::new`], with a distance that two estimates may have beyond their radii.
    pub(crate) fn with_slack(
        dim: usize,
        users: Users,
        params: &Params,
        slack: f64,
    ) -> Result<Self, Error> {
        params.check()?;
        let thresholds = Thresholds {
            slack,
            ..Thresholds::new(params)
        };
        let shape = Shape {
            dim: check_dim(dim)?,
        };
        Ok(Self {
            params: *params,
            shape,
            ranking: Ranking::new(dim, params),
            thresholds,
            clock: Clock::new(),
            partition: Partition::new(shape, users.declared()?, thresholds),
            served: Vec::new(),
            near: Vec::new(),
        })
    }

    /// Lines 4 to 8: the next round, and with it perhaps the next phase.
    fn begin_round(&mut self) {
        let round = self.clock.tick();
        self.partition.enter_phase(phase_of(round));
    }

    /// Line 10: the statistics that a user is scored with, and β.
    #[inline]
    fn basis(&self, user: UserId) -> (View<'_>, f64) {
        let (view, count) = self.sums(user);
        (view, self.beta(count))
    }

    /// β for an estimate from `count` observations.
    #[inline]
    pub(crate) fn beta(&self, count: u64) -> f64 {
        self.ranking.beta(count, self.clock.log_rounds())
    }
}

impl Base for Sclub {
    #[inline]
    fn sums(&self, user: UserId) -> (View<'_>, u64) {
        self.partition.basis(user)
    }

    fn appearance(&self, user: UserId) -> (u64, u64) {
        match self.partition.roster.slot(user) {
            Some(slot) => (slot as u64, self.partition.profiles.places[slot].count),
            None => (self.partition.roster.len() as u64, 0),
        }
    }
}

impl Policy for Sclub {
    fn dim(&self) -> usize {
        self.shape.dim
    }

    fn rounds(&self) -> u64 {
        self.clock.rounds()
    }

    // Lines 10 and 11.
    rank_by_basis!();

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        check_round(round, self.shape.dim)?;
        self.partition.roster.check_room(round)?;

        self.begin_round(); // lines 4 to 8
        let mut served = std::mem::take(&mut self.served);
        served.clear();
        served.extend(round.iter().map(|observation| self.update(observation))); // line 12
        for (&slot, &Observation { user, .. }) in served.iter().zip(round) {
            if let Some(why) = self.disagreement(slot) {
                changes.push(self.split_out(slot, user, why)); // line 13
            }
            self.partition.mark_checked(slot); // line 14
            let cluster = self.partition.profiles.place(slot).cluster;
            self.partition.refresh(cluster);
        }
        for (&slot, observation) in served.iter().zip(round) {
            self.merge_around(slot, observation.user, changes); // line 15
        }
        self.served = served;
        Ok(())
    }

    fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
        Some(self.partition.cluster_of(user).label)
    }

    fn clusters(&self) -> usize {
        self.partition.len()
    }

    fn digest(&self) -> u64 {
        bytes::digest(self)
    }

    fn state_bytes(&self) -> Option<u64> {
        Some(bytes::length(self))
    }

    offers!(inspect, persist, forget, correct);
}

/// `sclub`
pub static SPEC: Spec = Spec {
    name: "sclub",
    title: "SCLUB",
    summary: "Sets of users who seem alike, split and merged while it recommends",
    citation: "Li, Chen, Li and Leung, IJCAI 2019",
    colors: ["#D55E00", "#FF8A3D"],
    revision: 1,
    presets: params::PRESETS,
    constants: &[
        params::ALPHA_THETA,
        params::ALPHA_P,
        params::BETA,
        params::BETA_SCALE,
        params::INDEX,
        DEVIATIONS,
    ],
    can: Abilities {
        correct: true,
        regroups: true,
        ..Abilities::SERVED
    },
    new: |setup, values| {
        let params = Params::from_values(values);
        let (dim, users) = (setup.dim, setup.users);
        let deviations = Deviations::from_set(values.set("deviations"));
        if deviations == Deviations::NONE {
            return Ok(Box::new(Sclub::new(dim, users, &params)?));
        }
        if setup.can_forget {
            let reason = "sclub with deviations cannot be saved and cannot forget users";
            return Err(Error::Unsupported { reason });
        }
        let published = PublishedSclub::new(dim, users, &params, deviations)?;
        Ok(Box::new(published))
    },
    load: Some(Load {
        magic: Sclub::MAGIC,
        load: |reader| Ok(Box::new(Sclub::load_words(reader)?)),
    }),
    gather: None,
};

const DEVIATIONS: Constant = Constant {
    name: "deviations",
    meaning: "Deviations of the published code from the paper's pseudo-code: all, none, or some of them. \
              By default all in experiments with the published code's constants, else none",
    range: Range::AnyOf(&Deviations::NAMES),
    default: |preset, setup| {
        // The published code can neither be saved nor forget a user.
        let is_published = preset == Preset::Released && !setup.can_forget;
        Ok(Value::Set(match is_published {
            true => Deviations::ALL.to_set(),
            false => 0,
        }))
    },
    instead_of: None,
    advanced: false,
};
