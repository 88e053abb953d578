//! What policies are run in.

use sclub::{ItemSet, UserId};

/// Rounds drawn and played at a time: few enough to stay in cache, many enough to share work.
pub const BLOCK: usize = 256;

/// How rewards vary around their mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rewards {
    /// 1 with the probability of the mean, else 0.
    Bernoulli,
    /// The mean plus Gaussian noise of this standard deviation.
    Gaussian(f64),
}

/// A block of consecutive rounds, the same for every policy.
#[derive(Debug, Clone)]
pub struct Block {
    /// Who appears.
    pub users: Vec<UserId>,
    /// The candidates.
    pub items: Vec<ItemSet>,
    /// The mean reward of each candidate for the user who appears, round by round.
    pub means: Vec<f64>,
    /// The largest mean of each round.
    pub best: Vec<f64>,
    /// The average mean of each round: what a choice at random brings.
    pub average: Vec<f64>,
    /// The draw that the noise of each round is made from: a uniform one for [`Rewards::Bernoulli`],
    /// a standard normal one for [`Rewards::Gaussian`].
    pub noise: Vec<f64>,
    /// How noise and mean make a reward.
    pub rewards: Rewards,
    /// Candidates in a round.
    pub candidates: usize,
}

impl Block {
    /// Rounds in the block.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Whether there is no round.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// The mean reward of a candidate.
    #[inline]
    pub fn mean(&self, round: usize, choice: usize) -> f64 {
        self.means[round * self.candidates + choice]
    }

    /// The reward of a candidate: the same for every policy that chooses it.
    #[inline]
    pub fn reward(&self, round: usize, choice: usize) -> f64 {
        let mean = self.mean(round, choice);
        match self.rewards {
            Rewards::Bernoulli => f64::from(u8::from(self.noise[round] < mean)),
            Rewards::Gaussian(scale) => mean + scale * self.noise[round],
        }
    }
}

/// What is true in a world, for the yardsticks that are told.
#[derive(Debug, Clone, PartialEq)]
pub struct Truth {
    /// The cluster of each user.
    pub cluster_of: Vec<u32>,
    /// The weight vector of each cluster.
    pub weights: Vec<Vec<f64>>,
    /// How rewards vary.
    pub rewards: Rewards,
}

/// Users, items and rewards. A world is fixed by its seed; any of its blocks can be drawn at any
/// time, on any thread.
pub trait World: Sync {
    /// Features per item.
    fn dim(&self) -> usize;

    /// Number of users, who are numbered from 0.
    fn users(&self) -> u64;

    /// What is true, if the world has clusters.
    fn truth(&self) -> Option<&Truth>;

    /// An empty block for [`World::draw`] to fill.
    fn new_block(&self) -> Block;

    /// Draws the `index`-th block of [`BLOCK`] rounds, or the first `rounds` of them.
    fn draw(&self, index: u64, rounds: usize, block: &mut Block);
}
