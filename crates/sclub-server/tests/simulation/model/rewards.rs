//! The rewards that count: each at most once, acknowledged ones for certain.

use std::collections::BTreeMap;

use super::{CallId, DecisionId, End, ExportLine, Life, SentReward, Tally};

/// Rewards by decision and item.
#[derive(Debug, Clone, Default)]
pub struct Rewards(BTreeMap<(DecisionId, String), Reward>);

#[derive(Debug, Clone)]
struct Reward {
    /// The reward as it was first sent.
    sent: SentReward,
    /// Calls that may have applied it, with the value that they sent.
    tries: Vec<(CallId, f64)>,
    applied: Applied,
}

/// The knowledge about whether a reward counts.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Applied {
    /// No answer said so.
    Unknown,
    /// An answer said that another call had applied it.
    ByAnother,
    /// By the one call that is left in the list.
    ByOne,
}

impl Rewards {
    pub fn begin(&mut self, call: CallId, all: &[SentReward]) {
        for sent in all {
            let key = (sent.decision, sent.item.clone());
            let reward = self.0.entry(key).or_insert_with(|| Reward {
                sent: sent.clone(),
                tries: Vec::new(),
                applied: Applied::Unknown,
            });
            // A reward that certainly counts cannot be applied again.
            if reward.applied == Applied::Unknown {
                reward.tries.push((call, sent.reward));
            }
        }
    }

    pub fn end(&mut self, call: CallId, all: &[SentReward], end: &End) -> Result<(), String> {
        for (index, sent) in all.iter().enumerate() {
            let key = (sent.decision, sent.item.clone());
            let reward = self.0.get_mut(&key).expect("it was begun");
            let ended = match end {
                End::Applied(applied) => match applied.get(index) {
                    Some(true) => reward.applied_by(call, sent.reward),
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
                    sent.reward, sent.item, sent.decision, sent.user
                )
            })?;
        }
        Ok(())
    }

    pub fn tallies(&self, life: impl Fn(DecisionId, &str, u64) -> Life) -> BTreeMap<String, Tally> {
        let mut tallies = BTreeMap::new();
        for reward in self.0.values().filter(|reward| reward.is_sent()) {
            let sent = &reward.sent;
            let life = life(sent.decision, &sent.user, sent.made);
            if life == Life::Dead {
                continue;
            }
            let tally: &mut Tally = tallies.entry(sent.user.clone()).or_default();
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
    pub fn sent(&self) -> Vec<(SentReward, bool)> {
        let sent = self.0.values().filter(|reward| reward.is_sent());
        sent.map(|reward| {
            let sent = SentReward {
                reward: reward.tries[0].1,
                ..reward.sent.clone()
            };
            (sent, reward.applied != Applied::Unknown)
        })
        .collect()
    }

    pub fn export_counts(
        &self,
        life: impl Fn(DecisionId, &str, u64) -> Life,
    ) -> BTreeMap<u64, ExportLine> {
        let mut lines = BTreeMap::new();
        for reward in self.0.values() {
            let sent = &reward.sent;
            let is_alive = life(sent.decision, &sent.user, sent.made) == Life::Alive;
            for &(_, value) in &reward.tries {
                let is_only = reward.tries.iter().all(|&(_, other)| other == value);
                let line = ExportLine {
                    user: sent.user.clone(),
                    item: sent.item.clone(),
                    is_certain: is_alive && is_only && reward.applied != Applied::Unknown,
                };
                lines.insert(value.to_bits(), line);
            }
        }
        lines
    }
}

impl Reward {
    /// Returns true if it may count.
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
            true => {
                Err("the answer says that another call applied it, and none can have".to_owned())
            }
            false => Ok(()),
        }
    }

    fn was_not_applied_by(&mut self, call: CallId) -> Result<(), String> {
        if self.applied == Applied::ByOne {
            return Ok(());
        }
        self.tries.retain(|&(by, _)| by != call);
        match self.tries.is_empty() && self.applied == Applied::ByAnother {
            true => {
                Err("an answer said that another call applied it, and all were refused".to_owned())
            }
            false => Ok(()),
        }
    }
}
