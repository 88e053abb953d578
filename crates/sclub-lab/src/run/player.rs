//! A policy that plays a world, and its results so far.

use std::time::Instant;

use sclub::{Change, ItemId, Observation, Policy, Preset};

use super::{CURVE_POINTS, Run};
use crate::adjusted_rand::adjusted_rand;
use crate::clustering::Clustering;
use crate::policies::Name;
use crate::world::{AGES, Block, Tally, World};

/// A policy that plays a world. `N` is the type of its name.
pub struct Player<N = Name> {
    name: N,
    policy: Box<dyn Policy>,
    preset: Preset,
    rounds: u64,
    tally: Tally,
    by_age: [(u64, f64); AGES.len()],
    seconds: f64,
    curve: Vec<(u64, f64)>,
    even_curve: Vec<(u64, f64)>,
    item: Vec<f64>,
    /// Items and rewards of a round with several users.
    together: Vec<f64>,
    rewards: Vec<f64>,
    ids: Vec<Option<ItemId>>,
    changes: Vec<Change>,
}

impl<N> Player<N> {
    /// A policy before its first round, and the preset that its constants began from.
    pub fn new(name: N, preset: Preset, policy: Box<dyn Policy>) -> Self {
        let item = vec![0.0; policy.dim()];
        Self {
            name,
            policy,
            preset,
            rounds: 0,
            tally: Tally::default(),
            by_age: Default::default(),
            seconds: 0.0,
            curve: Vec::new(),
            even_curve: vec![(0, 0.0)],
            item,
            together: Vec::new(),
            rewards: Vec::new(),
            ids: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// Plays a block. The clock runs for the block as a whole: looking up the reward that the world
    /// has drawn takes a few nanoseconds a round, reading the clock twice a round would take more.
    pub(super) fn play(&mut self, block: &Block, total: u64) -> Result<(), sclub::Error> {
        let start = Instant::now();
        let step = total.div_ceil(CURVE_POINTS);
        let several = !block.ends.is_empty();
        for round in 0..block.rounds() {
            if several {
                self.play_together(block, block.users_of(round))?;
            } else {
                let user = block.users[round];
                let (id, reward) = self.serve(block, round)?;
                let observation = Observation {
                    user,
                    item: &self.item,
                    id,
                    reward,
                };
                self.policy.learn_round(&[observation], &mut self.changes)?;
            }
            self.changes.clear();
            self.rounds += 1;
            if self.rounds.is_power_of_two() || self.rounds == total {
                self.curve.push((self.rounds, self.tally.regret));
            }
            if self.rounds.is_multiple_of(step) || self.rounds == total {
                self.even_curve.push((self.rounds, self.tally.regret));
            }
        }
        self.seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Serves one user, counts the reward, and leaves the item in `self.item`. Returns the item's
    /// id, if it has one, and the reward.
    #[inline]
    fn serve(&mut self, block: &Block, at: usize) -> Result<(Option<ItemId>, f64), sclub::Error> {
        let items = &block.items[at];
        let choice = self.policy.recommend(block.users[at], items)?.index;
        let reward = self.tally.count(block, at, choice);
        items.copy_item(choice, &mut self.item);
        if let Some(&age) = block.ages.get(at) {
            let (rounds, rewards) = &mut self.by_age[usize::from(age)];
            *rounds += 1;
            *rewards += reward;
        }
        Ok((items.id(choice), reward))
    }

    /// Serves several users on the same history, then learns from all.
    fn play_together(
        &mut self,
        block: &Block,
        users: std::ops::Range<usize>,
    ) -> Result<(), sclub::Error> {
        self.together.clear();
        self.rewards.clear();
        self.ids.clear();
        for at in users.clone() {
            let (id, reward) = self.serve(block, at)?;
            self.ids.push(id);
            self.rewards.push(reward);
            self.together.extend_from_slice(&self.item);
        }
        let observations: Vec<Observation<'_>> = block.users[users]
            .iter()
            .zip(self.together.chunks_exact(self.item.len()))
            .zip(self.ids.iter().zip(&self.rewards))
            .map(|((&user, item), (&id, &reward))| Observation {
                user,
                item,
                id,
                reward,
            })
            .collect();
        self.policy.learn_round(&observations, &mut self.changes)
    }

    pub(super) fn finish(self, seed: u64, world: &dyn World) -> Run<N> {
        let adjusted_rand = world.truth().map(|truth| {
            // Users without a cluster count as one.
            let labels: Vec<u64> = (0..world.users())
                .map(|user| self.policy.cluster_of(user).unwrap_or(0))
                .collect();
            let at_the_end = truth.clusters_in(self.rounds.saturating_sub(1));
            let true_ones: Vec<u64> = at_the_end.iter().map(|&c| u64::from(c)).collect();
            adjusted_rand(&labels, &true_ones)
        });
        let inspect = self.policy.as_inspect();
        let outlook = inspect.and_then(|inspect| inspect.outlook());
        Run {
            policy: self.name,
            preset: self.preset,
            seed,
            rounds: self.rounds,
            served: self.tally.served,
            regret: self.tally.regret,
            reward: self.tally.reward,
            random_regret: self.tally.random_regret,
            clusters: self.policy.clusters(),
            adjusted_rand,
            clustering: outlook.map(Clustering::from),
            policy_seconds: self.seconds,
            curve: self.curve,
            even_curve: self.even_curve,
            by_age: if self.by_age.iter().any(|&(rounds, _)| rounds > 0) {
                self.by_age.to_vec()
            } else {
                Vec::new()
            },
            digest: self.policy.digest(),
        }
    }
}
