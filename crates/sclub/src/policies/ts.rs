//! Thompson sampling from the posterior of a user's cluster: `ts:club`, `ts:sclub`, `ts:dynucb`.
//!
//! The base policy finds the clusters. In each round a weight vector is drawn from N(θ̂, v² S⁻¹), with the sums of
//! the user's cluster, and items are ranked by it. The bonus of the base is not used.
//!
//! Thompson sampling is after Agrawal and Goyal, ICML 2013. The combination is ours: Christakopoulou and Banerjee (SDM
//! 2018) sample in clusters too, but their algorithm was not at hand, and this is not it.
//!
//! **Decisions**
//! - A draw is fixed by its random number ([`Policy::recommend_drawn`]). Without one it is keyed by the seed, the number
//!   of rounds, and the user's place in the order of first appearance.
//! - v is not scaled by √(d ln t), as theory has it: it is the scale of the noise, a constant to tune.
//! - `lints` and `ts:linucb-one` are the same for LinUCB-Ind and LinUCB-One (`lints.rs`).
//!
//! To add a base, implement [`Base`] for it and write its [`Spec`] here.
//!
//! **Cost**: the base's memory and its time to learn; O(d²) for the draw and O(d) for each item.

use crate::base::Base;
use crate::club::{Club, GRAPH};
use crate::digest::{Digest, mix};
use crate::draws::{self, rank_by_draw};
use crate::error::Error;
use crate::items::ItemSet;
use crate::params::{self, Params};
use crate::policy::{Change, ClusterId, Decision, Observation, Policy, Score, UserId};
use crate::sclub::Sclub;
use crate::spec::{Abilities, Preset, Setup, Spec, Values};

use super::dynucb::{self, DynUcb};
use super::lints::DRAW_SCALE;

/// Thompson sampling with the clusters of a base policy.
struct Thompson<B> {
    base: B,
    /// v, the scale of the draws.
    draw_scale: f64,
    seed: u64,
}

impl<B: Base + 'static> Thompson<B> {
    fn boxed(base: B, setup: &Setup<'_>, values: &Values) -> Box<dyn Policy> {
        Box::new(Self {
            base,
            draw_scale: values.number("draw_scale").unwrap_or(0.0),
            seed: setup.seed,
        })
    }

    /// The random number of a decision that has none of its own.
    fn default_draw(&self, user: UserId) -> u64 {
        mix(self.base.rounds()) ^ self.base.appearance(user).0
    }

    /// The estimate of a user's cluster, and a draw from its posterior.
    fn draw(&self, draw: u64, user: UserId) -> (&[f64], Vec<f64>) {
        let view = self.base.sums(user).0;
        let key = mix(self.seed) ^ draw;
        (
            view.estimate,
            draws::from_posterior(key, view, self.draw_scale),
        )
    }
}

impl<B: Base + 'static> Policy for Thompson<B> {
    fn dim(&self) -> usize {
        self.base.dim()
    }

    fn rounds(&self) -> u64 {
        self.base.rounds()
    }

    rank_by_draw!();

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        self.base.learn_round(round, changes)
    }

    fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
        self.base.cluster_of(user)
    }

    fn clusters(&self) -> usize {
        self.base.clusters()
    }

    fn estimate(&self, user: UserId) -> Option<Vec<f64>> {
        self.base.estimate(user)
    }

    fn state_bytes(&self) -> Option<u64> {
        self.base.state_bytes()
    }

    fn digest(&self) -> u64 {
        let base = Digest::new().word(self.base.digest()).word(self.seed);
        base.numbers(&[self.draw_scale]).finish()
    }
}

/// The parts that all have in common.
const COMMON: Spec = Spec {
    name: "",
    title: "",
    summary: "",
    citation: "after Agrawal and Goyal, ICML 2013",
    colors: ["", ""],
    revision: 1,
    presets: &[Preset::Tuned, Preset::Released],
    constants: &[],
    can: Abilities {
        draws: true,
        ..Abilities::NONE
    },
    new: |_, _| Err(Error::NoUsers),
    load: None,
    gather: None,
};

/// `ts:club`
pub static CLUB: Spec = Spec {
    name: "ts:club",
    title: "TS of CLUB",
    summary: "Thompson sampling from the posterior of CLUB's clusters",
    colors: ["#4B4B8C", "#9F9FD6"],
    constants: &[DRAW_SCALE, params::ALPHA_THETA, GRAPH],
    new: |setup, values| {
        Ok(Thompson::boxed(
            Club::from_values(setup, values)?,
            setup,
            values,
        ))
    },
    can: Abilities {
        regroups: true,
        ..COMMON.can
    },
    ..COMMON
};

/// `ts:sclub`
pub static SCLUB: Spec = Spec {
    name: "ts:sclub",
    title: "TS of SCLUB",
    summary: "Thompson sampling from the posterior of SCLUB's clusters",
    colors: ["#3F6212", "#A3C76D"],
    constants: &[DRAW_SCALE, params::ALPHA_THETA, params::ALPHA_P],
    new: |setup, values| {
        let base = Sclub::new(setup.dim, setup.users, &Params::from_values(values))?;
        Ok(Thompson::boxed(base, setup, values))
    },
    can: Abilities {
        regroups: true,
        ..COMMON.can
    },
    ..COMMON
};

/// `ts:dynucb`
pub static DYNUCB: Spec = Spec {
    name: "ts:dynucb",
    title: "TS of DynUCB",
    summary: "Thompson sampling from the posterior of DynUCB's clusters",
    colors: ["#4A7A8C", "#A5CBD8"],
    constants: &[DRAW_SCALE, dynucb::CLUSTERS],
    new: |setup, values| {
        let base = DynUcb::new(setup.dim, setup.seed, values)?;
        Ok(Thompson::boxed(base, setup, values))
    },
    ..COMMON
};
