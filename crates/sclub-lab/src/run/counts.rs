//! The results of a policy that plays, so far.

use super::showing::{Showing, Stage};
use crate::world::{AGES, Block, Tally};

/// The results of a policy that plays: regret and rewards, and rewards by the age of users. In worlds whose rounds
/// all have the same items also the items shown.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// The sums over all rounds.
    pub tally: Tally,
    /// The items shown, in worlds whose rounds all have the same.
    showing: Option<Showing>,
    by_age: [(u64, f64); AGES.len()],
    /// The index in [`AGES`] of the user who is served, if ages matter.
    age: Option<usize>,
}

impl Counts {
    /// Begins to serve the `at`-th user of a block.
    #[inline]
    pub fn begin(&mut self, block: &Block, at: usize) {
        self.age = match block.stock {
            None => block.ages.get(at).map(|&age| usize::from(age)),
            Some(_) => {
                let showing = self.showing.get_or_insert_default();
                Some(showing.begin(block.users[at]))
            }
        };
    }

    /// Counts an item that is shown to that user in a slot, which counts from 0. Returns its reward.
    #[inline]
    pub fn count(&mut self, block: &Block, at: usize, slot: usize, choice: usize) -> f64 {
        let reward = self.tally.count_in_slot(block, at, slot, choice);
        if let Some(showing) = &mut self.showing {
            showing.count(block, at, choice, reward);
        }
        if let Some(age) = self.age {
            self.by_age[age].0 += 1;
            self.by_age[age].1 += reward;
        }
        reward
    }

    /// Counts a list that is shown to that user, in worlds of cascades. Returns the place in the list of the item that
    /// is clicked.
    pub fn count_cascade(&mut self, block: &Block, at: usize, list: &[usize]) -> Option<usize> {
        self.tally.count_cascade(block, at, list)
    }

    /// (recommendations, sum of rewards) at each of [`AGES`]; empty if ages do not matter.
    pub fn by_age(&self) -> Vec<(u64, f64)> {
        match self.by_age.iter().any(|&(served, _)| served > 0) {
            true => self.by_age.to_vec(),
            false => Vec::new(),
        }
    }

    /// The number of different items shown, in worlds whose rounds all have the same.
    pub fn distinct_items(&self) -> Option<u64> {
        self.showing.as_ref().map(|showing| showing.distinct_items)
    }

    /// The items shown and their clicks, stage by stage, in such worlds; else empty.
    pub fn stages(&self) -> &[Stage] {
        let showing = self.showing.as_ref();
        showing.map_or(&[], |showing| &showing.stages)
    }
}
