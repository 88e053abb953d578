//! A policy that plays a world, and its results so far.

use std::collections::VecDeque;
use std::time::Instant;

use sclub::{Change, Decision, ItemId, List, Observation, Policy, Preset, Shown, UserId};

use super::counts::Counts;
use super::{CURVE_POINTS, Run};
use crate::adjusted_rand::adjusted_rand;
use crate::clustering::Clustering;
use crate::policies::Name;
use crate::streams::mix_one_more;
use crate::world::{Block, World};

/// A policy that plays a world. `N` is the type of its name.
pub struct Player<N = Name> {
    name: N,
    policy: Box<dyn Policy>,
    preset: Preset,
    rounds: u64,
    /// Decisions made so far.
    decisions: u64,
    counts: Counts,
    seconds: f64,
    curve: Vec<(u64, f64)>,
    even_curve: Vec<(u64, f64)>,
    item: Vec<f64>,
    /// Items and rewards of a round with several users.
    together: Vec<f64>,
    rewards: Vec<f64>,
    ids: Vec<Option<ItemId>>,
    changes: Vec<Change>,
    /// The items of a decision.
    list: Vec<Decision>,
    /// Rounds whose rewards have not been learned, the oldest first, and memory for others.
    waiting: VecDeque<ShownRound>,
    spare: Option<ShownRound>,
}

/// The items that were shown to a user in a round, with their rewards.
#[derive(Debug, Default)]
struct ShownRound {
    user: UserId,
    /// The items' features, one after the other.
    features: Vec<f64>,
    ids: Vec<Option<ItemId>>,
    rewards: Vec<f64>,
    /// The number of items, from the first, that the user looked at, if it is known. The rewards of the others are
    /// not.
    looked_at: Option<usize>,
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
            decisions: 0,
            counts: Counts::default(),
            seconds: 0.0,
            curve: Vec::new(),
            even_curve: vec![(0, 0.0)],
            item,
            together: Vec::new(),
            rewards: Vec::new(),
            ids: Vec::new(),
            changes: Vec::new(),
            list: Vec::new(),
            waiting: VecDeque::new(),
            spare: None,
        }
    }

    /// Plays a block. The random numbers of its decisions follow from `draws`, the mix of a seed and a
    /// purpose, and from the number of decisions before.
    ///
    /// The clock runs for the block as a whole: looking up the reward that the world has drawn takes a few
    /// nanoseconds a round, reading the clock twice a round would take more.
    pub(super) fn play(
        &mut self,
        block: &Block,
        total: u64,
        draws: u64,
    ) -> Result<(), sclub::Error> {
        let start = Instant::now();
        let step = total.div_ceil(CURVE_POINTS);
        let several = !block.ends.is_empty();
        for round in 0..block.rounds() {
            if several {
                self.play_together(block, block.users_of(round), draws)?;
            } else if block.is_cascade {
                self.play_cascade(block, round, draws)?;
            } else if block.slots > 1 || block.delay > 0 {
                self.play_list(block, round, draws)?;
            } else {
                let user = block.users[round];
                let (id, reward) = self.serve(block, round, draws)?;
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
                self.curve.push((self.rounds, self.counts.tally.regret));
            }
            if self.rounds.is_multiple_of(step) || self.rounds == total {
                self.even_curve
                    .push((self.rounds, self.counts.tally.regret));
            }
        }
        self.seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Serves one user, counts the reward, and leaves the item in `self.item`. Returns the item's
    /// id, if it has one, and the reward.
    #[inline]
    fn serve(
        &mut self,
        block: &Block,
        at: usize,
        draws: u64,
    ) -> Result<(Option<ItemId>, f64), sclub::Error> {
        let (user, items) = (block.users[at], block.items_of(at));
        let draw = self.next_draw(draws);
        let choice = self.policy.recommend_drawn(draw, user, items)?.index;
        self.counts.begin(block, at);
        let reward = self.counts.count(block, at, 0, choice);
        items.copy_item(choice, &mut self.item);
        Ok((items.id(choice), reward))
    }

    /// The random number of the next decision.
    #[inline]
    fn next_draw(&mut self, draws: u64) -> u64 {
        let draw = mix_one_more(draws, &self.decisions);
        self.decisions += 1;
        draw
    }

    /// Shows a user some items at once, and learns from the oldest round whose rewards have come.
    fn play_list(&mut self, block: &Block, at: usize, draws: u64) -> Result<(), sclub::Error> {
        let (user, items) = (block.users[at], block.items_of(at));
        let draw = self.next_draw(draws);
        if block.slots == 1 {
            let decision = self.policy.recommend_drawn(draw, user, items)?;
            self.list.clear();
            self.list.push(decision);
        } else {
            let (slots, list) = (block.slots, &mut self.list);
            (self.policy).recommend_list_drawn(draw, user, items, slots, &|_| false, list)?;
        }
        self.counts.begin(block, at);
        let mut shown = self.spare.take().unwrap_or_default();
        shown.begin(user);
        for (slot, decision) in self.list.iter().enumerate() {
            let choice = decision.index;
            let reward = self.counts.count(block, at, slot, choice);
            shown.features.extend(items.item(choice));
            shown.ids.push(items.id(choice));
            shown.rewards.push(reward);
        }
        self.waiting.push_back(shown);
        if self.waiting.len() as u64 > block.delay
            && let Some(shown) = self.waiting.pop_front()
        {
            shown.learn(&mut *self.policy, block.slots > 1, &mut self.changes)?;
            self.spare = Some(shown);
        }
        Ok(())
    }

    /// Shows a user a list, of which the first attractive item is clicked, and learns from the items up to the
    /// click.
    fn play_cascade(&mut self, block: &Block, at: usize, draws: u64) -> Result<(), sclub::Error> {
        let (user, items) = (block.users[at], block.items_of(at));
        let draw = self.next_draw(draws);
        let (slots, list) = (block.slots, &mut self.list);
        (self.policy).recommend_list_drawn(draw, user, items, slots, &|_| false, list)?;
        let choices: Vec<usize> = self.list.iter().map(|decision| decision.index).collect();
        self.counts.begin(block, at);
        let clicked = self.counts.count_cascade(block, at, &choices);
        let mut shown = self.spare.take().unwrap_or_default();
        shown.begin(user);
        for (place, &choice) in choices.iter().enumerate() {
            shown.features.extend(items.item(choice));
            shown.ids.push(items.id(choice));
            let is_clicked = clicked == Some(place);
            shown.rewards.push(f64::from(u8::from(is_clicked)));
        }
        shown.looked_at = Some(clicked.map_or(choices.len(), |place| place + 1));
        shown.learn(&mut *self.policy, true, &mut self.changes)?;
        self.spare = Some(shown);
        Ok(())
    }

    /// Serves several users on the same history, then learns from all.
    fn play_together(
        &mut self,
        block: &Block,
        users: std::ops::Range<usize>,
        draws: u64,
    ) -> Result<(), sclub::Error> {
        self.together.clear();
        self.rewards.clear();
        self.ids.clear();
        for at in users.clone() {
            let (id, reward) = self.serve(block, at, draws)?;
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
            served: self.counts.tally.served,
            regret: self.counts.tally.regret,
            reward: self.counts.tally.reward,
            random_regret: self.counts.tally.random_regret,
            clusters: self.policy.clusters(),
            adjusted_rand,
            clustering: outlook.map(Clustering::from),
            policy_seconds: self.seconds,
            curve: self.curve,
            even_curve: self.even_curve,
            by_age: self.counts.by_age(),
            distinct_items: self.counts.distinct_items(),
            stages: self.counts.stages().to_vec(),
            messages: self.policy.messages().map(|m| (m.sent, m.numbers)),
            state_bytes: self.policy.state_bytes(),
            digest: self.policy.digest(),
        }
    }
}

impl ShownRound {
    /// Forgets all but the memory.
    fn begin(&mut self, user: UserId) {
        self.user = user;
        self.features.clear();
        self.ids.clear();
        self.rewards.clear();
        self.looked_at = None;
    }

    /// Has a policy learn it as one round, as a list or as a single item.
    fn learn(
        &self,
        policy: &mut dyn Policy,
        is_list: bool,
        changes: &mut Vec<Change>,
    ) -> Result<(), sclub::Error> {
        let rows = self.features.chunks_exact(policy.dim());
        let rewarded = rows.zip(self.ids.iter().zip(&self.rewards));
        let looked_at = self.looked_at.unwrap_or(self.rewards.len());
        let rewarded = rewarded.enumerate();
        let mut shown = rewarded.map(|(place, (item, (&id, &reward)))| Shown {
            item,
            id,
            reward: (place < looked_at).then_some(reward),
        });
        if is_list {
            let items: Vec<Shown<'_>> = shown.collect();
            let list = List {
                user: self.user,
                items: &items,
                looked_at: self.looked_at,
            };
            return policy.learn_lists(&[list], changes);
        }
        let observation = shown.next().map(|shown| Observation {
            user: self.user,
            item: shown.item,
            id: shown.id,
            reward: shown.reward.unwrap_or(0.0),
        });
        policy.learn_round(observation.as_slice(), changes)
    }
}
