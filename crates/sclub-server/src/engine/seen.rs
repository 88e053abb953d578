//! The items of each user's last decisions, for the rule `seen` of a request.
//!
//! They are in memory, and are read from the journal when the server starts. If there is no room for more, the oldest
//! decisions are dropped.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use super::lock;
use crate::decision::DecisionContents;

/// The number of parts that are locked each by itself.
const PARTS: usize = 16;

/// The maximum number of items in a part: a million in all, some 100 MB.
const MAX_ITEMS: usize = (1 << 20) / PARTS;

/// The last decisions of users.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The number of decisions that are kept of each user.
    each: usize,
    parts: Vec<Mutex<Part>>,
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
    items: Box<[Arc<str>]>,
}

impl Seen {
    /// Keeps so many decisions of each user.
    pub fn new(each: usize) -> Self {
        Self {
            each,
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
        }
    }

    fn part(&self, user: &str) -> &Mutex<Part> {
        let mut hasher = DefaultHasher::new();
        user.hash(&mut hasher);
        &self.parts[hasher.finish() as usize % PARTS]
    }

    /// Adds a decision.
    pub fn add(&self, decision: &DecisionContents<'_>) {
        if self.each > 0 {
            let items = decision.shown.iter().map(|shown| &*shown.item);
            self.add_items(&decision.user, items);
        }
    }

    /// Adds the items of a decision.
    pub fn add_items<'a>(&self, user: &str, items: impl Iterator<Item = &'a str>) {
        if self.each == 0 {
            return;
        }
        let items: Box<[Arc<str>]> = items.map(Arc::from).collect();
        lock(self.part(user)).add(self.each, user, items);
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
    fn add(&mut self, each: usize, user: &str, items: Box<[Arc<str>]>) {
        let user: Arc<str> = match self.users.get_key_value(user) {
            Some((known, _)) => Arc::clone(known),
            None => user.into(),
        };
        self.last += 1;
        self.items += items.len();
        let number = self.last;
        let lists = self.users.entry(Arc::clone(&user)).or_default();
        lists.push_back(List { number, items });
        if lists.len() > each
            && let Some(oldest) = lists.pop_front()
        {
            self.items -= oldest.items.len();
        }
        self.order.push_back((user, number));
        // Each user has at most `each` entries that count, so the order is not much longer than that.
        while self.items > MAX_ITEMS || self.order.len() > MAX_ITEMS {
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
        seen.add_items(user, items.iter().copied());
    }

    fn last(seen: &Seen, user: &str, count: usize) -> Vec<String> {
        let items = seen.last(user, count);
        items.iter().map(|item| item.to_string()).collect()
    }

    #[test]
    fn the_last_decisions_of_a_user_are_remembered() {
        let seen = Seen::new(2);
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
        let none = Seen::new(0);
        add(&none, "u", &["a"]);
        assert_eq!(last(&none, "u", 9), [""; 0]);
    }

    #[test]
    fn the_oldest_decisions_make_room() {
        let seen = Seen::new(3);
        for user in 0..4 * PARTS * MAX_ITEMS / 100 {
            let user = format!("u{user}");
            seen.add_items(&user, std::iter::repeat_n("item", 100));
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
