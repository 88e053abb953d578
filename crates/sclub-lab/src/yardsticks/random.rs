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
    /// True if choices are fixed by the number of each decision.
    draws: bool,
}

impl Random {
    /// Choices are fixed by the seed, the round and the user.
    pub fn new(dim: usize, seed: u64) -> Self {
        Self {
            dim,
            seed,
            rounds: 0,
            draws: false,
        }
    }

    /// Choices are fixed by the seed and the number of the decision, also where many decisions are made
    /// before the next round is learned.
    pub fn by_decision(dim: usize, seed: u64) -> Self {
        Self {
            draws: true,
            ..Self::new(dim, seed)
        }
    }

    /// A number from 0 to `count` − 1.
    fn choose(&self, draw: &[u64], count: usize) -> usize {
        let word = mix(&[self.seed, Purpose::Choices as u64, mix(draw)]);
        ((u128::from(word) * count as u128) >> 64) as usize
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

    fn recommend_drawn(&self, draw: u64, user: UserId, items: &ItemSet) -> Result<Decision, Error> {
        if !self.draws {
            return self.recommend(user, items);
        }
        if items.is_empty() {
            return Err(Error::NoCandidates);
        }
        let index = self.choose(&[draw], items.len());
        let score = Score::certain(0.0);
        Ok(Decision { index, score })
    }

    fn recommend_list_drawn(
        &self,
        draw: u64,
        user: UserId,
        items: &ItemSet,
        k: usize,
        exclude: &dyn Fn(usize) -> bool,
        list: &mut Vec<Decision>,
    ) -> Result<(), Error> {
        if !self.draws {
            return self.recommend_list(user, items, k, exclude, list);
        }
        let decision = |index| Decision {
            index,
            score: Score::certain(0.0),
        };
        list.clear();
        // Nearly always enough are found by a few draws, however many items there are.
        for attempt in 0..4 * k as u64 {
            let index = self.choose(&[draw, attempt], items.len());
            let is_new = list.iter().all(|shown| shown.index != index);
            if list.len() < k && is_new && !exclude(index) {
                list.push(decision(index));
            }
        }
        if list.len() < k {
            let others = (0..items.len()).filter(|&index| !exclude(index));
            let mut order: Vec<usize> = others.collect();
            order.sort_by_key(|&index| mix(&[self.seed, draw, index as u64]));
            list.clear();
            list.extend(order.into_iter().take(k).map(decision));
        }
        Ok(())
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
        let known = Known::of(setup);
        let seed = known.map_or(setup.seed, |known| known.seed);
        Ok(Box::new(match known {
            Some(known) if known.is_catalogue => Random::by_decision(setup.dim, seed),
            _ => Random::new(setup.dim, seed),
        }))
    },
    load: None,
    gather: None,
};
