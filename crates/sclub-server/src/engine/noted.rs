//! Notes that an engine takes when it applies an event, beside the state: rewards that are all equal, what users have seen and
//! gave, and counts of items.

use std::collections::HashMap;

use super::journal::Source;
use super::{Shared, lock};
use crate::event::Event;

/// Assumed rewards that others replace, by the number of the item shown.
pub(super) type Replaced = HashMap<u64, f64>;

/// The maximum number of replaced rewards that wait for the journal. For further ones it reads its files.
const MAX_REPLACED: usize = 1 << 16;

/// A reward of an event.
struct Given<'a> {
    user: &'a str,
    item: &'a str,
    /// The number of the item shown.
    number: u64,
    reward: f64,
    source: Source,
}

/// Visits the rewards of an event.
fn each_reward<'a>(event: &'a Event, visit: &mut dyn FnMut(Given<'a>)) {
    let mut one = |reward: &'a crate::event::Reward, source| {
        visit(Given {
            user: &reward.user,
            item: &reward.item,
            number: reward.number,
            reward: reward.reward,
            source,
        });
    };
    match event {
        Event::Learn { round } => round.iter().for_each(|reward| one(reward, Source::Sent)),
        Event::LearnAssumed {
            round,
            assumed,
            corrected,
        } => {
            for (reward, is_assumed) in round.iter().zip(assumed) {
                let source = match is_assumed {
                    true => Source::Assumed,
                    false => Source::Sent,
                };
                one(reward, source);
            }
            corrected
                .iter()
                .for_each(|reward| one(reward, Source::Corrected));
        }
        Event::LearnLists { lists } => {
            for list in lists {
                for (number, item, reward) in list.rewards() {
                    visit(Given {
                        user: &list.user,
                        item: &item.item,
                        number,
                        reward,
                        source: Source::Sent,
                    });
                }
            }
        }
        _ => {}
    }
}

impl Shared {
    /// The assumed rewards that these events replace. The state has them until the events are applied, and the journal needs them
    /// afterwards.
    pub(super) fn replaced(&self, events: &[Event]) -> Replaced {
        let state = self.read();
        let corrected = events.iter().flat_map(|event| match event {
            Event::LearnAssumed { corrected, .. } => &**corrected,
            _ => &[],
        });
        let replaced: Replaced = corrected
            .filter_map(|reward| Some((reward.number, state.assumed().get(reward.number)?)))
            .collect();
        if !replaced.is_empty() && !self.is_replicated && self.has_journal() {
            let mut waiting = lock(&self.replaced);
            let room = MAX_REPLACED.saturating_sub(waiting.len());
            waiting.extend(replaced.iter().take(room));
        }
        replaced
    }

    /// Takes note of an event that this engine has logged at a time, and of the assumed rewards that it replaces.
    pub(super) fn note(&self, event: &Event, at: u64, replaced: &Replaced) {
        if self.note_equal(event) {
            match self.equal.warning() {
                Some(warning) => tracing::warn!("{warning}"),
                None => tracing::info!("rewards differ now"),
            }
        }
        self.note_seen(event);
        // On a single server the journal counts them.
        if self.is_replicated && self.has_journal() {
            let mut rewards = Vec::new();
            each_reward(event, &mut |given| {
                rewards.push(match replaced.get(&given.number) {
                    Some(before) => (given.item, 0, given.reward - before),
                    None => (given.item, 1, given.reward),
                });
            });
            if !rewards.is_empty() {
                let none = std::iter::empty();
                self.item_counts.add(None, at, none, rewards.into_iter());
            }
        }
    }

    /// Takes note of an event that another node has logged: this one may have to continue after it.
    pub(super) fn note_followed(&self, event: &Event) {
        self.note_equal(event);
        self.note_seen(event);
    }

    /// Takes note of the rewards of an event. Returns true if they became all equal, or are so no longer.
    fn note_equal(&self, event: &Event) -> bool {
        let mut changed = false;
        each_reward(event, &mut |given| {
            let is_assumed = given.source == Source::Assumed;
            changed |= self.equal.add(given.reward, is_assumed);
        });
        changed
    }

    /// Takes note of an event for what users have seen and gave.
    pub(super) fn note_seen(&self, event: &Event) {
        each_reward(event, &mut |given| {
            self.seen.reward(given.user, given.number, given.reward);
        });
        if let Event::Forget { user } = event {
            self.seen.forget(user);
        }
    }
}

#[cfg(test)]
mod tests;
