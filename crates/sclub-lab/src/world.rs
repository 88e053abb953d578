//! Worlds: the environments that policies are run in.

use std::ops::Range;
use std::sync::Arc;

use rand::RngExt;
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub::{ItemSet, UserId};

use crate::cascade::click_probability;
use crate::catalogue::Stock;
use crate::named::named;

/// Rounds drawn and played at a time: few enough to stay in cache, many enough to share work.
pub const BLOCK: usize = 256;

/// The distribution of rewards around their mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rewards {
    /// 1 with the probability of the mean, else 0.
    Bernoulli,
    /// The mean plus Gaussian noise of this standard deviation.
    Gaussian(f64),
}

/// The default noise of Gaussian rewards.
pub const DEFAULT_NOISE: f64 = 0.5;

named!(
    Rewards,
    "kind of rewards",
    [
        (
            "bernoulli",
            "1 with the probability of the mean, else 0",
            Rewards::Bernoulli
        ),
        (
            "gaussian",
            "The mean with Gaussian noise",
            Rewards::Gaussian(DEFAULT_NOISE)
        ),
    ]
);

impl Rewards {
    /// The draw that the noise of a round is made from, [`Block::noise`].
    pub fn draw(self, rng: &mut Xoshiro256PlusPlus) -> f64 {
        match self {
            Rewards::Bernoulli => rng.random::<f64>(),
            Rewards::Gaussian(_) => StandardNormal.sample(rng),
        }
    }
}

/// The ages of users for which rates are reported separately, in rounds of the user: 1 to 5, 6 to 20, and so
/// on.
pub const AGES: [(u32, u32); 6] = [
    (1, 5),
    (6, 20),
    (21, 50),
    (51, 100),
    (101, 200),
    (201, u32::MAX),
];

/// The index in [`AGES`] of a user's rounds so far, the present one counted.
pub fn age_class(rounds: u32) -> usize {
    let class = AGES.iter().position(|&(_, last)| rounds <= last);
    class.expect("the last class has no end")
}

/// A block of consecutive rounds, the same for every policy.
///
/// In rounds with several users the vectors have one entry per user, not per round; only `ends` has one
/// per round. If several items are shown to a user, `best` and `noise` have one entry per slot.
#[derive(Debug, Clone)]
pub struct Block {
    /// The users who appear.
    pub users: Vec<UserId>,
    /// For rounds with several users: the number of users in the block up to the end of each round. Empty if
    /// one user appears in each round.
    pub ends: Vec<usize>,
    /// For each round, which of [`AGES`] its user is in. Empty if ages do not matter.
    pub ages: Vec<u8>,
    /// The candidates of each round, unless all rounds share a stock ([`Block::items_of`]).
    pub items: Vec<ItemSet>,
    /// The mean reward of each candidate for the user who appears, round by round; empty if all rounds share
    /// a stock ([`Block::mean`]).
    pub means: Vec<f64>,
    /// The items that all rounds share, if they do, with the mean rewards.
    pub stock: Option<Arc<Stock>>,
    /// The number of items shown to a user at once, each with a reward of its own.
    pub slots: usize,
    /// The number of rounds by which rewards are late: those of round t are learned after round t + delay.
    pub delay: u64,
    /// The largest mean of each round; with several slots the largest, the second largest, and so on.
    pub best: Vec<f64>,
    /// The average mean of each round: the expected reward of a random choice.
    pub average: Vec<f64>,
    /// The draw that the noise of each round is made from: a uniform one for [`Rewards::Bernoulli`],
    /// a standard normal one for [`Rewards::Gaussian`].
    pub noise: Vec<f64>,
    /// The distribution of rewards around their mean.
    pub rewards: Rewards,
    /// The reward of each candidate, round by round, if the world draws rewards itself; `noise` is not used
    /// then. Else empty.
    pub given: Vec<f64>,
    /// For each round, true if its rewards have the mean `mirror` − μ in place of the true mean μ. Empty if no
    /// rewards are corrupted.
    pub corrupted: Vec<bool>,
    /// The sum of a true and a corrupted mean.
    pub mirror: f64,
    /// True if lists of `slots` items are shown, of which the user clicks the first attractive one
    /// ([`crate::cascade`]). `given` tells which are; `best` and `average` have one entry per round, the best and the
    /// average list's probability of a click.
    pub is_cascade: bool,
    /// Candidates in a round.
    pub candidates: usize,
}

impl Block {
    /// A block for worlds with `dim` features and `candidates` items in a round.
    ///
    /// # Errors
    /// [`sclub::Error::Dimension`] if `dim` is 0 or above the maximum.
    pub fn new(dim: usize, candidates: usize, rewards: Rewards) -> Result<Self, sclub::Error> {
        Ok(Self {
            users: Vec::with_capacity(BLOCK),
            ends: Vec::new(),
            ages: Vec::new(),
            items: vec![ItemSet::new(dim)?; BLOCK],
            means: Vec::with_capacity(BLOCK * candidates),
            stock: None,
            slots: 1,
            delay: 0,
            best: Vec::with_capacity(BLOCK),
            average: Vec::with_capacity(BLOCK),
            noise: Vec::with_capacity(BLOCK),
            rewards,
            given: Vec::new(),
            corrupted: Vec::new(),
            mirror: 1.0,
            is_cascade: false,
            candidates,
        })
    }

    /// A block for worlds whose rounds all have the items of `stock`. Rewards are 0 or 1.
    pub fn of_stock(stock: Arc<Stock>, slots: usize, delay: u64) -> Self {
        Self {
            users: Vec::with_capacity(BLOCK),
            ends: Vec::new(),
            ages: Vec::new(),
            items: Vec::new(),
            means: Vec::new(),
            slots,
            delay,
            best: Vec::with_capacity(BLOCK * slots),
            average: Vec::with_capacity(BLOCK),
            noise: Vec::with_capacity(BLOCK * slots),
            rewards: Rewards::Bernoulli,
            given: Vec::new(),
            corrupted: Vec::new(),
            mirror: 1.0,
            is_cascade: false,
            candidates: stock.items().len(),
            stock: Some(stock),
        }
    }

    /// Users served in the block.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// True if no user is served.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Rounds in the block.
    pub fn rounds(&self) -> usize {
        if self.ends.is_empty() {
            self.len()
        } else {
            self.ends.len()
        }
    }

    /// The places of a round's users in the block.
    #[inline]
    pub fn users_of(&self, round: usize) -> Range<usize> {
        if self.ends.is_empty() {
            return round..round + 1;
        }
        let first = round.checked_sub(1).map_or(0, |before| self.ends[before]);
        first..self.ends[round]
    }

    /// Forgets the rounds and makes room for `users` of them.
    pub fn clear(&mut self, users: usize) {
        self.users.clear();
        self.ends.clear();
        self.ages.clear();
        self.best.clear();
        self.average.clear();
        self.noise.clear();
        self.given.clear();
        self.corrupted.clear();
        if self.stock.is_some() {
            return;
        }
        self.means.clear();
        self.means.resize(users * self.candidates, 0.0);
        while self.items.len() < users {
            let empty = self.items[0].clone();
            self.items.push(empty);
        }
    }

    /// The candidates of the `at`-th user.
    #[inline]
    pub fn items_of(&self, at: usize) -> &ItemSet {
        match &self.stock {
            None => &self.items[at],
            Some(stock) => stock.items(),
        }
    }

    /// The mean reward of a candidate.
    #[inline]
    pub fn mean(&self, round: usize, choice: usize) -> f64 {
        match &self.stock {
            None => self.means[round * self.candidates + choice],
            Some(stock) => stock.mean(self.users[round], choice),
        }
    }

    /// The mean of the rewards that a candidate brings, from its true mean. They differ if rewards are corrupted.
    #[inline]
    pub fn mean_of_reward(&self, round: usize, mean: f64) -> f64 {
        match self.corrupted.get(round) {
            Some(true) => self.mirror - mean,
            _ => mean,
        }
    }

    /// The reward of a candidate: the same for every policy that chooses it.
    #[inline]
    pub fn reward(&self, round: usize, choice: usize) -> f64 {
        self.reward_in_slot(round, 0, choice)
    }

    /// The reward of a candidate in a slot, which counts from 0.
    #[inline]
    pub fn reward_in_slot(&self, round: usize, slot: usize, choice: usize) -> f64 {
        if !self.given.is_empty() {
            return self.given[round * self.candidates + choice];
        }
        let mean = self.mean_of_reward(round, self.mean(round, choice));
        let noise = self.noise[round * self.slots + slot];
        match self.rewards {
            Rewards::Bernoulli => f64::from(u8::from(noise < mean)),
            Rewards::Gaussian(scale) => mean + scale * noise,
        }
    }
}

/// The rounds of a world from the first on, block by block.
pub struct Blocks<'w> {
    world: &'w dyn World,
    rounds: u64,
    drawn: u64,
}

impl<'w> Blocks<'w> {
    /// The first `rounds` rounds of a world, or all that it has.
    pub fn new(world: &'w dyn World, rounds: u64) -> Self {
        Self {
            world,
            rounds: world.length().map_or(rounds, |length| rounds.min(length)),
            drawn: 0,
        }
    }

    /// Rounds in all.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Draws the next block and returns its number of rounds; none when all have been drawn.
    pub fn draw(&mut self, block: &mut Block) -> Option<u64> {
        let most = self.world.block_rounds() as u64;
        let some = (self.rounds - self.drawn).min(most);
        if some == 0 {
            return None;
        }
        self.world.draw(self.drawn / most, some as usize, block);
        self.drawn += some;
        Some(some)
    }
}

/// The sums over some rounds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tally {
    /// Recommendations made: items shown.
    pub served: u64,
    /// The regret: the sum of the best mean less the chosen item's.
    pub regret: f64,
    /// The sum of the rewards.
    pub reward: f64,
    /// The regret of a random choice, in expectation.
    pub random_regret: f64,
}

impl Tally {
    /// Counts a choice for the `at`-th user of a block in a slot, which counts from 0. Returns its reward. The
    /// regret of a slot is the difference to the best item of its rank, so their sum is the difference to the best
    /// list.
    #[inline]
    pub fn count_in_slot(&mut self, block: &Block, at: usize, slot: usize, choice: usize) -> f64 {
        let reward = block.reward_in_slot(at, slot, choice);
        let best = block.best[at * block.slots + slot];
        self.served += 1;
        self.reward += reward;
        self.regret += best - block.mean(at, choice);
        self.random_regret += best - block.average[at];
        reward
    }

    /// Counts a list shown to the `at`-th user of a block of cascades: one recommendation, with the reward 1 if an item
    /// is clicked. The regret is the difference between the probabilities of a click of the best list and this one.
    /// Returns the place in the list of the item that is clicked.
    pub fn count_cascade(&mut self, block: &Block, at: usize, list: &[usize]) -> Option<usize> {
        let attraction = list.iter().map(|&choice| block.mean(at, choice));
        let clicked = (list.iter()).position(|&choice| block.reward(at, choice) == 1.0);
        let best = block.best[at];
        self.served += 1;
        self.reward += f64::from(u8::from(clicked.is_some()));
        self.regret += best - click_probability(attraction);
        self.random_regret += best - block.average[at];
        clicked
    }
}

/// The ground truth about a world, for the yardsticks that need it.
#[derive(Debug, Clone, PartialEq)]
pub struct Truth {
    /// The cluster of each user, from the start.
    pub cluster_of: Vec<u32>,
    /// The weight vector of each cluster.
    pub weights: Vec<Vec<f64>>,
    /// The distribution of rewards around their mean.
    pub rewards: Rewards,
    /// The change of clusters during the run, if there is one.
    pub changed: Option<Changed>,
    /// The items of a world whose rounds all have the same. Mean rewards follow from weight vectors by its
    /// link; elsewhere they are wᵀx.
    pub stock: Option<Arc<Stock>>,
}

/// Users who change to other clusters.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// The number of rounds before the change.
    pub after: u64,
    /// The cluster of each user from then on.
    pub cluster_of: Vec<u32>,
}

impl Truth {
    /// The cluster of each user in a round, which counts from 0.
    pub fn clusters_in(&self, round: u64) -> &[u32] {
        match &self.changed {
            Some(changed) if round >= changed.after => &changed.cluster_of,
            _ => &self.cluster_of,
        }
    }
}

/// Users, items and rewards. A world is fixed by its seed; any of its blocks can be drawn at any
/// time, on any thread.
pub trait World: Send + Sync {
    /// Features per item.
    fn dim(&self) -> usize;

    /// Number of users, who are numbered from 0.
    fn users(&self) -> u64;

    /// The ground truth, if the world has clusters.
    fn truth(&self) -> Option<&Truth>;

    /// What papers take as known about the world, for policies that the caller makes. Those of the registry get it as
    /// constants ([`crate::setting::Setting::told`]).
    fn told(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// An empty block for [`World::draw`] to fill.
    fn new_block(&self) -> Block;

    /// Rounds in a block.
    fn block_rounds(&self) -> usize {
        BLOCK
    }

    /// The number of rounds; `None` if there is no end.
    fn length(&self) -> Option<u64> {
        None
    }

    /// Draws the `index`-th block of [`World::block_rounds`] rounds, or the first `rounds` of them.
    fn draw(&self, index: u64, rounds: usize, block: &mut Block);
}
