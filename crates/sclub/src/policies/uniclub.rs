//! UniCLUB and UniSCLUB: each user sees random items for some rounds, then CLUB or SCLUB takes over.
//!
//! An upper confidence bound gathers little data on items that look bad, and those are needed to tell users apart.
//! A start with uniformly random items gathers it. All rounds are learned by the base policy, random ones too.
//!
//! After Li, Liu, Dai and Lui, "Demystifying Online Clustering of Bandits: Enhanced Exploration Under Stochastic and
//! Smoothed Adversarial Contexts", ICLR 2025 (arXiv 2501.00891). The paper's pseudo-code was not at hand.
//!
//! **Decisions**
//! - The paper explores in the rounds t ≤ T0 of all users together. The default here is `explore_rounds` for each
//!   user, so that users who come later explore too. `explore_global` is the paper's form.
//! - The paper's T0 is too long to use: with its constants it exceeds the million rounds of setting (1a), where
//!   even d/(γ²λ_x) is 760 rounds for each user. So the number of exploring rounds is a constant to tune, and
//!   `released` has CLUB's or SCLUB's published constants after the same start.
//! - Edges are cut, and clusters split and merged, during the random rounds too: the state is that of the base
//!   on the same history.
//! - The scores of a random round are independent uniform numbers, one for each position. They are keyed by the seed,
//!   the user's place in the order of first appearance, and T_i: asking twice gives the same answer, and renaming users changes
//!   nothing.
//!
//! **Cost**: memory and time of the base policy; O(L d) for a random round with L candidates.

use crate::base::Base;
use crate::club::{Club, GRAPH};
use crate::digest::{Digest, mix};
use crate::error::Error;
use crate::items::{Group, ItemSet};
use crate::params::{self, Params};
use crate::policy::{
    Change, ClusterId, Decision, Observation, Policy, Score, UserId, check_items, largest,
};
use crate::sclub::Sclub;
use crate::spec::{Abilities, Constant, Preset, Range, Setup, Spec, Value, Values};
use crate::ucb;

/// `explore_rounds` of the preset `tuned`.
const TUNED_EXPLORE_ROUNDS: f64 = 5.0;

/// The rounds with random items.
#[derive(Debug, Clone, Copy)]
enum Explore {
    /// The first rounds of each user.
    User(u64),
    /// The first rounds of all users together.
    Global(u64),
}

/// Uniform exploration, then the base policy.
struct Uniform<B> {
    base: B,
    explore: Explore,
    seed: u64,
}

impl<B: Base> Uniform<B> {
    fn new(base: B, setup: &Setup<'_>, values: &Values) -> Self {
        let explore = match values.number("explore_global") {
            Some(rounds) => Explore::Global(rounds as u64),
            None => Explore::User(values.number("explore_rounds").unwrap_or(0.0) as u64),
        };
        Self {
            base,
            explore,
            seed: setup.seed,
        }
    }

    /// The key of a user's random scores, if the user explores now.
    fn key(&self, user: UserId) -> Option<u64> {
        let (place, count) = self.base.appearance(user);
        let explores = match self.explore {
            Explore::User(rounds) => count < rounds,
            Explore::Global(rounds) => self.base.rounds() < rounds,
        };
        explores.then(|| mix(mix(mix(self.seed ^ PURPOSE) ^ place).wrapping_add(count)))
    }

    /// Random scores of a group.
    fn fill(&self, key: u64, user: UserId) -> impl FnMut(Group<'_>, &mut ucb::Scores) {
        let estimate = self.base.sums(user).0.estimate;
        move |group, scores| {
            ucb::products(estimate, &group, &mut scores.mean);
            for lane in 0..group.len {
                scores.score[lane] = uniform(key, group.first + lane);
                scores.width[lane] = scores.score[lane] - scores.mean[lane];
            }
        }
    }
}

/// Keeps these draws apart from others of the same seed.
const PURPOSE: u64 = u64::from_le_bytes(*b"uniform ");

/// A number of [0, 1) for each position.
fn uniform(key: u64, position: usize) -> f64 {
    let step = (position as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mix(key.wrapping_add(step)) >> 11) as f64 / (1u64 << 53) as f64
}

impl<B: Base> Policy for Uniform<B> {
    fn dim(&self) -> usize {
        self.base.dim()
    }

    fn rounds(&self) -> u64 {
        self.base.rounds()
    }

    fn recommend(&self, user: UserId, items: &ItemSet) -> Result<Decision, Error> {
        let Some(key) = self.key(user) else {
            return self.base.recommend(user, items);
        };
        check_items(items, self.dim())?;
        Ok(ucb::choose(items, self.fill(key, user)))
    }

    fn explain(&self, user: UserId, items: &ItemSet, scores: &mut Vec<Score>) -> Result<(), Error> {
        let Some(key) = self.key(user) else {
            return self.base.explain(user, items, scores);
        };
        check_items(items, self.dim())?;
        ucb::explain(items, scores, self.fill(key, user));
        Ok(())
    }

    fn best(
        &self,
        user: UserId,
        items: &ItemSet,
        k: usize,
        exclude: &dyn Fn(usize) -> bool,
        best: &mut Vec<Decision>,
    ) -> Result<(), Error> {
        if self.key(user).is_none() {
            return self.base.best(user, items, k, exclude, best);
        }
        let mut scores = Vec::new();
        self.explain(user, items, &mut scores)?;
        largest(&scores, k, exclude, best);
        Ok(())
    }

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
        let digest = Digest::new().word(self.base.digest()).word(self.seed);
        match self.explore {
            Explore::User(rounds) => digest.word(0).word(rounds),
            Explore::Global(rounds) => digest.word(1).word(rounds),
        }
        .finish()
    }
}

const ROUNDS: Range = Range::whole(0.0, 1e15, "a whole number from 0 to 10^15");

const EXPLORE_ROUNDS: Constant = Constant {
    instead_of: Some("explore_global"),
    ..Constant::new(
        "explore_rounds",
        "Rounds of each user with random items, before the clusters are used",
        ROUNDS,
        |_, _| Ok(Value::Number(TUNED_EXPLORE_ROUNDS)),
    )
};

const EXPLORE_GLOBAL: Constant = Constant {
    instead_of: Some("explore_rounds"),
    ..Constant::new(
        "explore_global",
        "Rounds of all users together with random items, in place of a number for each user",
        ROUNDS,
        |_, _| Ok(Value::Unset),
    )
};

/// `uniclub`
pub static UNICLUB: Spec = Spec {
    name: "uniclub",
    title: "UniCLUB",
    summary: "CLUB after some rounds of random items for each user",
    citation: "after Li, Liu, Dai and Lui, ICLR 2025",
    colors: ["#5B6B7B", "#A9B8C6"],
    revision: 1,
    presets: &[Preset::Tuned, Preset::Released],
    constants: &[
        EXPLORE_ROUNDS,
        EXPLORE_GLOBAL,
        params::ALPHA_THETA,
        params::BETA,
        params::BETA_SCALE,
        params::INDEX,
        GRAPH,
    ],
    can: Abilities {
        regroups: true,
        ..Abilities::NONE
    },
    new: |setup, values| {
        let base = Club::from_values(setup, values)?;
        Ok(Box::new(Uniform::new(base, setup, values)))
    },
    load: None,
    gather: None,
};

/// `unisclub`
pub static UNISCLUB: Spec = Spec {
    name: "unisclub",
    title: "UniSCLUB",
    summary: "SCLUB after some rounds of random items for each user",
    citation: "after Li, Liu, Dai and Lui, ICLR 2025",
    colors: ["#A65A00", "#D9A066"],
    revision: 1,
    presets: &[Preset::Tuned, Preset::Released],
    constants: &[
        EXPLORE_ROUNDS,
        EXPLORE_GLOBAL,
        params::ALPHA_THETA,
        params::ALPHA_P,
        params::BETA,
        params::BETA_SCALE,
        params::INDEX,
    ],
    can: Abilities {
        regroups: true,
        ..Abilities::NONE
    },
    new: |setup, values| {
        let base = Sclub::new(setup.dim, setup.users, &Params::from_values(values))?;
        Ok(Box::new(Uniform::new(base, setup, values)))
    },
    load: None,
    gather: None,
};
