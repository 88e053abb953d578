//! The items shown whose reward is assumed: nobody has sent it, and one that is sent replaces it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Answered;

/// The numbers of the items shown whose reward is assumed, by the bits of the reward. There are few different ones.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Assumed {
    by_reward: BTreeMap<u64, Answered>,
}

impl Assumed {
    /// The assumed reward of an item shown, if it is assumed.
    pub fn get(&self, number: u64) -> Option<f64> {
        let mut all = self.by_reward.iter();
        let found = all.find(|(_, numbers)| numbers.contains(number));
        found.map(|(bits, _)| f64::from_bits(*bits))
    }

    /// Adds the number of an item that was shown at a service-clock time.
    pub fn insert(&mut self, number: u64, clock: u64, reward: f64) {
        let numbers = self.by_reward.entry(reward.to_bits()).or_default();
        numbers.insert(number, clock);
    }

    /// Removes a number, and returns its reward.
    pub fn take(&mut self, number: u64) -> Option<f64> {
        let mut all = self.by_reward.iter_mut();
        let found = all.find_map(|(bits, numbers)| numbers.remove(number).then_some(*bits));
        found.map(f64::from_bits)
    }

    /// Visits the numbers ([`Answered::each`]).
    pub fn each(&self, mut visit: impl FnMut(u64, u64)) {
        for numbers in self.by_reward.values() {
            numbers.each(&mut visit);
        }
    }

    /// Drops numbers whose decisions no longer accept a reward ([`Answered::prune`]).
    pub fn prune(&mut self, before: u64) {
        self.by_reward.retain(|_, numbers| {
            numbers.prune(before);
            !numbers.is_empty()
        });
    }

    /// Returns true if the contents are consistent.
    pub fn is_valid(&self) -> bool {
        self.by_reward.values().all(Answered::is_valid)
    }
}
