//! The items of each user's last decisions, for the rule `seen` of a request, and their rewards, for the page.
//!
//! They are in memory, and are read from the journal when the server starts. If there is no room for more, the oldest
//! decisions are dropped.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use super::lock;
use crate::decision::DecisionContents;

/// The number of parts that are locked each by itself.
const PARTS: usize = 16;

/// The maximum number of items in a part of a server: a million in all, some 100 MB.
const MAX_ITEMS: usize = (1 << 20) / PARTS;

/// The last decisions of users.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The number of decisions that are kept of each user.
    each: usize,
    /// The maximum number of items in a part.
    max_items: usize,
    parts: Vec<Mutex<Part>>,
    /// The number of users that were forgotten.
    forgets: AtomicU64,
}

#[derive(Debug, Default)]
struct Part {
    users: HashMap<Arc<str>, VecDeque<List>>,
    /// The user and the number of each decision, oldest first. Some are no longer kept.
    order: VecDeque<(Arc<str>, u64)>,
    items: usize,
    last: u64,
}

/// The items of a decision.
#[derive(Debug)]
struct List {
    number: u64,
    /// The number of the decision, which is that of its first item.
    decision: u64,
    at: u64,
    items: Box<[Arc<str>]>,
    /// The reward of each item, if any has one.
    rewards: Option<Box<[Option<f64>]>>,
}

/// A decision that a user has seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeenDecision {
    /// The time of the decision, in milliseconds since 1970.
    pub at: u64,
    /// The items shown, each with its reward if it has one.
    pub items: Vec<(String, Option<f64>)>,
}

impl Seen {
    /// Keeps so many decisions of each user. `engines` is the number of engines that share the memory of a server.
    pub fn new(each: usize, engines: usize) -> Self {
        Self {
            each,
            max_items: (MAX_ITEMS / engines.max(1)).max(1),
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            forgets: AtomicU64::new(0),
        }
    }

    fn part(&self, user: &str) -> &Mutex<Part> {
        let mut hasher = DefaultHasher::new();
        user.hash(&mut hasher);
        &self.parts[hasher.finish() as usize % PARTS]
    }

    /// The number of users that were forgotten.
    pub fn forgets(&self) -> u64 {
        self.forgets.load(Ordering::Relaxed)
    }

    /// Adds a decision.
    pub fn add(&self, decision: &DecisionContents<'_>) {
        if self.each > 0 {
            let items = decision.shown.iter().map(|shown| &*shown.item);
            self.add_items(&decision.user, decision.number, decision.at, items);
        }
    }

    /// Adds the items of a decision.
    pub fn add_items<'a>(
        &self,
        user: &str,
        decision: u64,
        at: u64,
        items: impl Iterator<Item = &'a str>,
    ) {
        if self.each == 0 {
            return;
        }
        let list = List {
            number: 0,
            decision,
            at,
            items: items.map(Arc::from).collect(),
            rewards: None,
        };
        lock(self.part(user)).add(self.each, self.max_items, user, list);
    }

    /// Sets the reward of an item by its number, if its decision is kept.
    pub fn reward(&self, user: &str, number: u64, reward: f64) {
        if self.each == 0 {
            return;
        }
        let mut part = lock(self.part(user));
        let lists = part.users.get_mut(user).into_iter().flatten();
        for list in lists {
            let place = number.checked_sub(list.decision).map(|n| n as usize);
            if let Some(place) = place.filter(|&place| place < list.items.len()) {
                let none = || vec![None; list.items.len()].into();
                list.rewards.get_or_insert_with(none)[place] = Some(reward);
            }
        }
    }

    /// The decisions of a user that are kept, newest first.
    pub fn decisions(&self, user: &str) -> Vec<SeenDecision> {
        let part = lock(self.part(user));
        let lists = part.users.get(user).into_iter().flatten().rev();
        let seen = lists.map(|list| {
            let reward = |place: usize| list.rewards.as_ref().and_then(|rewards| rewards[place]);
            let items = list.items.iter().enumerate();
            SeenDecision {
                at: list.at,
                items: items
                    .map(|(place, id)| (id.to_string(), reward(place)))
                    .collect(),
            }
        });
        seen.collect()
    }

    /// The items of the last `count` decisions of a user.
    pub fn last(&self, user: &str, count: usize) -> Vec<Arc<str>> {
        let part = lock(self.part(user));
        let lists = part.users.get(user).into_iter().flatten().rev();
        let items = lists.take(count).flat_map(|list| &*list.items);
        items.cloned().collect()
    }

    /// Drops the decisions of a user.
    pub fn forget(&self, user: &str) {
        // Before the decisions are removed: one that is added later finds that the number has changed.
        self.forgets.fetch_add(1, Ordering::Relaxed);
        if self.each > 0 {
            let mut part = lock(self.part(user));
            if let Some(lists) = part.users.remove(user) {
                part.items -= lists.iter().map(|list| list.items.len()).sum::<usize>();
                part.order.retain(|(other, _)| &**other != user);
            }
        }
    }
}

impl Part {
    fn add(&mut self, each: usize, max_items: usize, user: &str, mut list: List) {
        let user: Arc<str> = match self.users.get_key_value(user) {
            Some((known, _)) => Arc::clone(known),
            None => user.into(),
        };
        self.last += 1;
        self.items += list.items.len();
        let number = self.last;
        list.number = number;
        let lists = self.users.entry(Arc::clone(&user)).or_default();
        lists.push_back(list);
        if lists.len() > each
            && let Some(oldest) = lists.pop_front()
        {
            self.items -= oldest.items.len();
        }
        self.order.push_back((user, number));
        // Each user has at most `each` entries that count, so the order is not much longer than that.
        while self.items > max_items || self.order.len() > max_items {
            let Some((user, number)) = self.order.pop_front() else {
                break;
            };
            let Some(lists) = self.users.get_mut(&user) else {
                continue;
            };
            if lists.front().is_some_and(|list| list.number == number)
                && let Some(oldest) = lists.pop_front()
            {
                self.items -= oldest.items.len();
            }
            if lists.is_empty() {
                self.users.remove(&user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(seen: &Seen, user: &str, items: &[&str]) {
        seen.add_items(user, 0, 0, items.iter().copied());
    }

    fn last(seen: &Seen, user: &str, count: usize) -> Vec<String> {
        let items = seen.last(user, count);
        items.iter().map(|item| item.to_string()).collect()
    }

    #[test]
    fn the_last_decisions_of_a_user_are_remembered() {
        let seen = Seen::new(2, 1);
        add(&seen, "u", &["a", "b"]);
        add(&seen, "u", &["c"]);
        add(&seen, "v", &["x"]);
        assert_eq!(last(&seen, "u", 1), ["c"]);
        assert_eq!(last(&seen, "u", 9), ["c", "a", "b"]);
        add(&seen, "u", &["d"]);
        assert_eq!(last(&seen, "u", 9), ["d", "c"]);
        seen.forget("u");
        assert_eq!(last(&seen, "u", 9), [""; 0]);
        assert_eq!(last(&seen, "v", 9), ["x"]);
        let none = Seen::new(0, 1);
        add(&none, "u", &["a"]);
        assert_eq!(last(&none, "u", 9), [""; 0]);
    }

    #[test]
    fn rewards_belong_to_the_items_of_their_numbers() {
        let seen = Seen::new(2, 1);
        seen.add_items("u", 10, 1, ["a", "b"].into_iter());
        seen.add_items("u", 12, 2, ["c"].into_iter());
        seen.reward("u", 11, 0.5);
        seen.reward("u", 12, 1.0);
        seen.reward("u", 11, 0.75);
        seen.reward("u", 13, 9.0);
        seen.reward("v", 11, 9.0);
        let decisions = seen.decisions("u");
        let times: Vec<u64> = decisions.iter().map(|one| one.at).collect();
        assert_eq!(times, [2, 1]);
        assert_eq!(decisions[0].items, [("c".into(), Some(1.0))]);
        assert_eq!(
            decisions[1].items,
            [("a".into(), None), ("b".into(), Some(0.75))]
        );
        seen.forget("u");
        assert_eq!(seen.decisions("u"), []);
    }

    #[test]
    fn the_oldest_decisions_make_room() {
        let seen = Seen::new(3, 1);
        for user in 0..4 * PARTS * MAX_ITEMS / 100 {
            let user = format!("u{user}");
            seen.add_items(&user, 0, 0, std::iter::repeat_n("item", 100));
        }
        for part in &seen.parts {
            let part = lock(part);
            let lists = part.users.values().flatten();
            let items: usize = lists.map(|list| list.items.len()).sum();
            assert_eq!(items, part.items);
            assert!(items <= MAX_ITEMS && items > MAX_ITEMS / 2, "{items}");
        }
        assert_eq!(last(&seen, "u0", 1), [""; 0]);
    }
}
