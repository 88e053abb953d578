//! Finds out that all rewards are equal: then there is nothing to learn from them.

use std::sync::Mutex;

use super::lock;

/// The number of rewards from which on it is a warning that all are equal.
pub(crate) const MIN_REWARDS: u64 = 100;

/// The difference up to which rewards are equal. The mean of earlier ones is rounded.
const ROUNDING: f64 = 1e-9;

/// The rewards so far, as far as equality is concerned.
#[derive(Debug, Default)]
pub(crate) struct EqualRewards(Mutex<RewardValues>);

/// The rewards of an engine, or of several ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RewardValues {
    count: u64,
    /// The mean of the folder's rewards, then the last reward.
    value: Option<f64>,
    /// The number of further rewards after which the mean of the folder's is taken for the value of each: it may be that of rewards
    /// that differ. 0 if they are known to be equal.
    unproven: u64,
    /// True if rewards will be assumed, and none has been since the start: those of the first time are all sent.
    awaits_assumed: bool,
    /// True if rewards are assumed.
    has_assumed: bool,
    is_mixed: bool,
}

impl EqualRewards {
    /// Begins with the number of rewards that the folder has, their sum, and the largest reward that there can be. Says nothing
    /// before the first assumed reward if there will be any (`--unanswered`).
    pub fn new((count, sum): (u64, f64), max: f64, has_assumed: bool) -> Self {
        let value = (count > 0).then(|| sum / count as f64);
        // Only equal rewards have the largest one as their mean. The smallest proves less: likes and dislikes have a mean of 0, and
        // 0 is the smallest if this start lacks --reward-min.
        let is_proven = value.is_none_or(|value| !differ(max, value));
        Self(Mutex::new(RewardValues {
            count,
            value,
            unproven: if is_proven { 0 } else { MIN_REWARDS },
            awaits_assumed: has_assumed,
            has_assumed,
            is_mixed: false,
        }))
    }

    /// Warns at a start if all rewards of the folder are equal, or if their mean is not in the range.
    pub fn tell(&self, (count, sum): (u64, f64), [min, max]: [f64; 2]) {
        if let Some(warning) = self.warning() {
            tracing::warn!("{warning}");
        }
        let mean = sum / count.max(1) as f64;
        // The sum is rounded.
        let rounding = ROUNDING * (max - min);
        if count > 0 && !(min - rounding..=max + rounding).contains(&mean) {
            tracing::warn!(
                "the mean of the {count} rewards that were learned is {mean}, and rewards must be from {min} to {max} now: is \
                 --reward-min or --reward-max missing?"
            );
        }
    }

    /// Takes note of a reward. Returns true if it became a warning, or is none any longer.
    pub fn add(&self, reward: f64, is_assumed: bool) -> bool {
        let mut rewards = lock(&self.0);
        let before = rewards.warns();
        rewards.count += 1;
        rewards.awaits_assumed &= !is_assumed;
        rewards.unproven = rewards.unproven.saturating_sub(1);
        rewards.is_mixed |= rewards.value.is_some_and(|value| differ(value, reward));
        rewards.value = Some(reward);
        rewards.warns() != before
    }

    /// The rewards so far.
    pub fn rewards(&self) -> RewardValues {
        *lock(&self.0)
    }

    /// The warning, if all rewards are equal and there are many.
    pub fn warning(&self) -> Option<String> {
        self.rewards().warning()
    }
}

impl RewardValues {
    /// The rewards of a part of a cluster, of which only this is known: their number, their sum, and whether the part warns.
    pub fn of_part(count: u64, sum: f64, warns: bool) -> Self {
        Self {
            count,
            value: (count > 0).then(|| sum / count as f64),
            // A part with few rewards does not tell. Their mean does.
            is_mixed: count >= MIN_REWARDS && !warns,
            ..Self::default()
        }
    }

    /// These rewards and others.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let both = self.value.zip(other.value);
        Self {
            count: self.count + other.count,
            value: self.value.or(other.value),
            unproven: self.unproven.max(other.unproven),
            awaits_assumed: self.awaits_assumed || other.awaits_assumed,
            has_assumed: self.has_assumed || other.has_assumed,
            is_mixed: self.is_mixed
                || other.is_mixed
                || both.is_some_and(|(own, other)| differ(own, other)),
        }
    }

    /// Returns true if all are equal and there are many.
    pub fn warns(&self) -> bool {
        self.unproven == 0 && !self.awaits_assumed && !self.is_mixed && self.count >= MIN_REWARDS
    }

    /// The warning, if all are equal and there are many.
    pub fn warning(&self) -> Option<String> {
        let value = self.value.filter(|_| self.warns())?;
        let count = self.count;
        Some(match self.has_assumed {
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

/// Returns true for two rewards that are not equal.
fn differ(one: f64, other: f64) -> bool {
    (one - other).abs() > ROUNDING * other.abs().max(1.0)
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
    fn parts_are_equal_only_if_all_of_their_rewards_are() {
        let part = |rewards: &[(f64, usize)]| {
            let equal = EqualRewards::default();
            for &(reward, times) in rewards {
                for _ in 0..times {
                    equal.add(reward, false);
                }
            }
            equal.rewards()
        };
        let ones = part(&[(1.0, 110)]);
        let few_ones = part(&[(1.0, 40)]);
        let zeros = part(&[(0.0, 110)]);
        let few_mixed = part(&[(1.0, 25), (0.0, 26)]);
        let none = RewardValues::default();
        assert!(ones.and(few_ones).and(none).warns());
        let warning = none.and(ones).and(few_ones).warning().unwrap();
        assert!(warning.starts_with("all 150 rewards so far are 1:"));
        assert!(!ones.and(few_mixed).warns());
        assert!(!few_mixed.and(ones).warns());
        assert!(!ones.and(zeros).warns());
        assert!(!few_ones.and(few_ones).warns());
        assert!(few_ones.and(few_ones).and(few_ones).warns());

        // Of another node only the sums are known.
        let known = |of: RewardValues, sum| RewardValues::of_part(of.count, sum, of.warns());
        assert!(known(ones, 110.0).and(known(few_ones, 40.0)).warns());
        assert!(!known(ones, 110.0).and(known(few_mixed, 25.0)).warns());
        assert!(!known(ones, 110.0).and(known(zeros, 0.0)).warns());
        let many_mixed = part(&[(1.0, 100), (0.0, 100)]);
        assert!(!known(many_mixed, 100.0).and(known(none, 0.0)).warns());
    }

    #[test]
    fn earlier_rewards_of_the_folder_count() {
        let after = |rewards, max| EqualRewards::new(rewards, max, false);
        // If all are the largest one, they are equal.
        assert_eq!(after((99, 99.0), 1.0).warning(), None);
        assert!(after((99, 99.0), 1.0).add(1.0, false));
        let sum: f64 = (0..300).map(|_| 0.1).sum();
        for (sum, max) in [(300.0, 1.0), (0.0, 0.0), (sum, 0.1)] {
            let equal = after((300, sum), max);
            assert!(equal.warning().is_some(), "{sum}");
            assert!(equal.add(0.7, false) && equal.warning().is_none());
        }
        // Otherwise the mean alone says nothing.
        assert_eq!(after((300, 0.0), 1.0).warning(), None);
        let equal = after((300, sum), 1.0);
        for number in 1..=MIN_REWARDS {
            assert_eq!(equal.warning(), None);
            assert_eq!(equal.add(0.1, false), number == MIN_REWARDS);
        }
        let warning = equal.warning().unwrap();
        assert!(warning.starts_with("all 400 rewards so far are 0.1:"));
        let mixed = after((1000, 400.0), 1.0);
        for _ in 0..1000 {
            mixed.add(1.0, false);
            assert_eq!(mixed.warning(), None);
        }
    }
}
