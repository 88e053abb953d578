//! Which rewards count: each at most once, those that were acknowledged for certain.

use std::collections::BTreeMap;

use super::{CallId, DecisionId, End, ExportLine, Gift, Life, Tally};

/// Rewards by decision and item.
#[derive(Debug, Clone, Default)]
pub struct Rewards(BTreeMap<(DecisionId, String), Reward>);

#[derive(Debug, Clone)]
struct Reward {
    /// As it was first sent.
    gift: Gift,
    /// Calls that may have applied it, with the value that they sent.
    tries: Vec<(CallId, f64)>,
    applied: Applied,
}

/// Whether a reward counts.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Applied {
    /// Nobody was told so.
    Unknown,
    /// A call was told that another had applied it: one of those that may have.
    ByAnother,
    /// By the one call that is left in the list.
    ByOne,
}

impl Rewards {
    pub fn begin(&mut self, call: CallId, gifts: &[Gift]) {
        for gift in gifts {
            let key = (gift.decision, gift.item.clone());
            let reward = self.0.entry(key).or_insert_with(|| Reward {
                gift: gift.clone(),
                tries: Vec::new(),
                applied: Applied::Unknown,
            });
            // What certainly counts cannot be applied again.
            if reward.applied == Applied::Unknown {
                reward.tries.push((call, gift.reward));
            }
        }
    }

    pub fn end(&mut self, call: CallId, gifts: &[Gift], end: &End) -> Result<(), String> {
        for (index, gift) in gifts.iter().enumerate() {
            let key = (gift.decision, gift.item.clone());
            let reward = self.0.get_mut(&key).expect("it was begun");
            let ended = match end {
                End::Applied(applied) => match applied.get(index) {
                    Some(true) => reward.applied_by(call, gift.reward),
                    Some(false) => reward.was_applied_by_another(call),
                    None => Err("an answer for it is missing".to_owned()),
                },
                End::Refused => reward.was_not_applied_by(call),
                End::Unknown => Ok(()),
                End::Changed(_) => Err("that is no answer to it".to_owned()),
            };
            ended.map_err(|error| {
                format!(
                    "reward {} for item {} of decision {} for user {}: {error}",
                    gift.reward, gift.item, gift.decision, gift.user
                )
            })?;
        }
        Ok(())
    }

    pub fn tallies(&self, life: impl Fn(DecisionId, &str, u64) -> Life) -> BTreeMap<String, Tally> {
        let mut tallies = BTreeMap::new();
        for reward in self.0.values().filter(|reward| reward.is_sent()) {
            let gift = &reward.gift;
            let life = life(gift.decision, &gift.user, gift.made);
            if life == Life::Dead {
                continue;
            }
            let tally: &mut Tally = tallies.entry(gift.user.clone()).or_default();
            let values = || reward.tries.iter().map(|&(_, value)| value);
            let low = values().fold(f64::INFINITY, f64::min);
            let high = values().fold(f64::NEG_INFINITY, f64::max);
            tally.most += 1;
            if life == Life::Alive && reward.applied != Applied::Unknown {
                tally.least += 1;
                tally.low += low;
                tally.high += high;
            } else {
                tally.low += low.min(0.0);
                tally.high += high.max(0.0);
            }
        }
        tallies
    }

    /// Every reward that may count, with whether it certainly does.
    pub fn sent(&self) -> Vec<(Gift, bool)> {
        let sent = self.0.values().filter(|reward| reward.is_sent());
        sent.map(|reward| {
            let gift = Gift {
                reward: reward.tries[0].1,
                ..reward.gift.clone()
            };
            (gift, reward.applied != Applied::Unknown)
        })
        .collect()
    }

    pub fn export_counts(
        &self,
        life: impl Fn(DecisionId, &str, u64) -> Life,
    ) -> BTreeMap<u64, ExportLine> {
        let mut lines = BTreeMap::new();
        for reward in self.0.values() {
            let gift = &reward.gift;
            let is_alive = life(gift.decision, &gift.user, gift.made) == Life::Alive;
            for &(_, value) in &reward.tries {
                let is_only = reward.tries.iter().all(|&(_, other)| other == value);
                let line = ExportLine {
                    user: gift.user.clone(),
                    item: gift.item.clone(),
                    is_certain: is_alive && is_only && reward.applied != Applied::Unknown,
                };
                lines.insert(value.to_bits(), line);
            }
        }
        lines
    }
}

impl Reward {
    /// Whether it may count.
    fn is_sent(&self) -> bool {
        !self.tries.is_empty()
    }

    fn applied_by(&mut self, call: CallId, value: f64) -> Result<(), String> {
        let is_candidate = self.tries.iter().any(|&(by, _)| by == call);
        if self.applied == Applied::ByOne || !is_candidate {
            return Err("it was applied twice".to_owned());
        }
        self.tries = vec![(call, value)];
        self.applied = Applied::ByOne;
        Ok(())
    }

    fn was_applied_by_another(&mut self, call: CallId) -> Result<(), String> {
        if self.applied == Applied::ByOne {
            return Ok(());
        }
        self.tries.retain(|&(by, _)| by != call);
        self.applied = Applied::ByAnother;
        match self.tries.is_empty() {
            true => Err("it is said to have been applied, and nobody had".to_owned()),
            false => Ok(()),
        }
    }

    fn was_not_applied_by(&mut self, call: CallId) -> Result<(), String> {
        if self.applied == Applied::ByOne {
            return Ok(());
        }
        self.tries.retain(|&(by, _)| by != call);
        match self.tries.is_empty() && self.applied == Applied::ByAnother {
            true => Err("it was said to have been applied, and all were refused".to_owned()),
            false => Ok(()),
        }
    }
}
