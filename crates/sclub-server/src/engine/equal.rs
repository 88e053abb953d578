//! Finds out that all rewards are equal: then there is nothing to learn from them.

use std::sync::Mutex;

use super::lock;

/// The number of rewards from which on it is a warning that all are equal.
pub(crate) const MIN_REWARDS: u64 = 100;

/// The difference up to which rewards are equal. The mean of earlier ones is rounded.
const ROUNDING: f64 = 1e-9;

/// The rewards so far, as far as equality is concerned.
#[derive(Debug, Default)]
pub(crate) struct EqualRewards(Mutex<Rewards>);

#[derive(Debug, Default)]
struct Rewards {
    count: u64,
    /// The mean of the folder's rewards, then the last reward.
    value: Option<f64>,
    /// True once a reward has come since the start.
    is_known: bool,
    /// True if rewards will be assumed, and none has been since the start: those of the first time are all sent.
    awaits_assumed: bool,
    /// True if rewards are assumed.
    has_assumed: bool,
    is_mixed: bool,
}

impl EqualRewards {
    /// Begins with the number of rewards that the folder has, and their sum. Says nothing before the first assumed reward
    /// if there will be any (`--unanswered`).
    pub fn new((count, sum): (u64, f64), has_assumed: bool) -> Self {
        Self(Mutex::new(Rewards {
            count,
            value: (count > 0).then(|| sum / count as f64),
            is_known: false,
            awaits_assumed: has_assumed,
            has_assumed,
            is_mixed: false,
        }))
    }

    /// Takes note of a reward. Returns true if it became a warning, or is none any longer.
    pub fn add(&self, reward: f64, is_assumed: bool) -> bool {
        let mut rewards = lock(&self.0);
        let before = rewards.warns();
        rewards.count += 1;
        rewards.awaits_assumed &= !is_assumed;
        rewards.is_known = true;
        match rewards.value {
            Some(value) if (value - reward).abs() > ROUNDING * reward.abs().max(1.0) => {
                rewards.is_mixed = true;
            }
            _ => rewards.value = Some(reward),
        }
        rewards.warns() != before
    }

    /// The warning, if all rewards are equal and there are many.
    pub fn warning(&self) -> Option<String> {
        let rewards = lock(&self.0);
        let value = rewards.value.filter(|_| rewards.warns())?;
        let count = rewards.count;
        Some(match rewards.has_assumed {
            true => format!(
                "all {count} rewards so far are {value}, assumed ones included: there is nothing to learn from them"
            ),
            false => format!(
                "all {count} rewards so far are {value}: there is nothing to learn from them; send rewards for items that \
                 were shown and not taken too, with \"others\": 0 in the feedback or by --unanswered 0"
            ),
        })
    }
}

impl Rewards {
    fn warns(&self) -> bool {
        self.is_known && !self.awaits_assumed && !self.is_mixed && self.count >= MIN_REWARDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rewards_are_a_warning_until_another_comes() {
        let rewards = EqualRewards::default();
        for number in 1..=150 {
            assert_eq!(rewards.add(0.1, false), number == MIN_REWARDS, "{number}");
        }
        assert!(
            rewards
                .warning()
                .unwrap()
                .starts_with("all 150 rewards so far are 0.1:")
        );
        assert!(rewards.add(0.2, false));
        assert_eq!(rewards.warning(), None);
        assert!(!rewards.add(0.1, false));
        assert_eq!(rewards.warning(), None);
    }

    #[test]
    fn earlier_rewards_of_the_folder_count() {
        let sum: f64 = (0..99).map(|_| 0.1).sum();
        let equal = EqualRewards::new((99, sum), false);
        assert!(equal.add(0.1, false) && equal.warning().is_some());
        let mixed = EqualRewards::new((1000, 400.0), false);
        assert_eq!(mixed.warning(), None);
        mixed.add(1.0, false);
        assert_eq!(mixed.warning(), None);
    }
}
