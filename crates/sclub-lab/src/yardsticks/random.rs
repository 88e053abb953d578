//! A policy that does not learn.

use sclub::{
    Abilities, Change, ClusterId, Decision, Error, ItemSet, Observation, Policy, Preset, Score,
    Spec, UserId,
};

use super::Known;
use crate::streams::{Purpose, mix};

/// Chooses uniformly at random and learns nothing.
#[derive(Debug, Clone)]
pub struct Random {
    dim: usize,
    seed: u64,
    rounds: u64,
}

impl Random {
    /// Choices are fixed by the seed, the round and the user.
    pub fn new(dim: usize, seed: u64) -> Self {
        Self {
            dim,
            seed,
            rounds: 0,
        }
    }
}

impl Policy for Random {
    fn dim(&self) -> usize {
        self.dim
    }

    fn rounds(&self) -> u64 {
        self.rounds
    }

    fn recommend(&self, user: UserId, items: &ItemSet) -> Result<Decision, Error> {
        if items.is_empty() {
            return Err(Error::NoCandidates);
        }
        let word = mix(&[self.seed, Purpose::Choices as u64, self.rounds, user]);
        let index = (u128::from(word) * items.len() as u128) >> 64;
        let score = Score::certain(0.0);
        Ok(Decision {
            index: index as usize,
            score,
        })
    }

    fn explain(&self, _: UserId, items: &ItemSet, scores: &mut Vec<Score>) -> Result<(), Error> {
        scores.clear();
        scores.resize(items.len(), Score::certain(0.0));
        Ok(())
    }

    fn learn_round(
        &mut self,
        _round: &[Observation<'_>],
        _changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        self.rounds += 1;
        Ok(())
    }

    fn cluster_of(&self, _user: UserId) -> Option<ClusterId> {
        Some(1)
    }

    fn clusters(&self) -> usize {
        1
    }

    fn digest(&self) -> u64 {
        mix(&[self.seed, self.rounds])
    }
}

/// `random`
pub static SPEC: Spec = Spec {
    name: "random",
    title: "Random",
    summary: "Chooses at random and learns nothing; for comparison only",
    citation: "none",
    colors: ["#999999", "#9A9A9A"],
    revision: 1,
    presets: &[Preset::Default],
    constants: &[],
    can: Abilities::NONE,
    new: |setup, _| {
        // In a world its choices are drawn from the seed of the world itself.
        let seed = Known::of(setup).map_or(setup.seed, |known| known.seed);
        Ok(Box::new(Random::new(setup.dim, seed)))
    },
    load: None,
};
