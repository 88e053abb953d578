//! Users by id and by number.

use std::collections::HashMap;
use std::sync::Arc;

use sclub::UserId;
use serde::{Deserialize, Serialize};

use super::history::Record;

/// The users who have given a reward.
#[derive(Debug, Clone, Default)]
pub struct Users {
    numbers: HashMap<Arc<str>, u32>,
    known: Vec<Option<User>>,
    /// The numbers of forgotten users, to be reused.
    free: Vec<u32>,
}

/// The data of a user outside the policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct User {
    /// The user's id.
    pub id: Arc<str>,
    /// The wall-clock time of the first reward, in milliseconds since 1970.
    pub first: u64,
    /// The wall-clock time of the last reward, in milliseconds since 1970.
    pub last: u64,
    /// The round of the first reward.
    pub since: u64,
    /// The number of rewards of the user.
    pub rewards: u64,
    /// Their sum.
    pub reward_sum: f64,
    /// The last split that put the user into a new cluster.
    pub split: Option<Box<Record>>,
}

impl Users {
    /// The number of users.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Returns true if there are no users.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The number of a user, if they have given a reward.
    pub fn number(&self, id: &str) -> Option<u32> {
        self.numbers.get(id).copied()
    }

    /// The user of a number.
    pub fn get(&self, number: u32) -> Option<&User> {
        self.known.get(number as usize)?.as_ref()
    }

    /// The user of a number.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut User> {
        self.known.get_mut(number as usize)?.as_mut()
    }

    /// The id of a policy's user.
    pub fn id(&self, user: UserId) -> Option<&str> {
        let number = u32::try_from(user).ok()?;
        self.get(number).map(|user| &*user.id)
    }

    /// The number of a user. A new user gets one. `round` is the round being learned.
    pub fn admit(&mut self, id: &str, at: u64, round: u64) -> u32 {
        if let Some(number) = self.number(id) {
            let user = self.known[number as usize].as_mut().expect("known by id");
            user.last = at;
            return number;
        }
        let id: Arc<str> = id.into();
        let user = Some(User {
            id: Arc::clone(&id),
            first: at,
            last: at,
            since: round,
            rewards: 0,
            reward_sum: 0.0,
            split: None,
        });
        let number = match self.free.pop() {
            Some(number) => {
                self.known[number as usize] = user;
                number
            }
            None => {
                self.known.push(user);
                u32::try_from(self.known.len() - 1).expect("admit() keeps them within the limit")
            }
        };
        self.numbers.insert(id, number);
        number
    }

    /// Removes a user. Their number is reused for the next one.
    pub fn dismiss(&mut self, id: &str) -> Option<u32> {
        let number = self.numbers.remove(id)?;
        self.known[number as usize] = None;
        self.free.push(number);
        Some(number)
    }

    /// Removes the splits of all users: their clusters are those of an earlier policy.
    pub fn clear_splits(&mut self) {
        for user in self.known.iter_mut().flatten() {
            user.split = None;
        }
    }

    /// The number of rewards of all users, and their sum.
    pub fn rewards(&self) -> (u64, f64) {
        let known = self.known.iter().flatten();
        known.fold((0, 0.0), |(count, sum), user| {
            (count + user.rewards, sum + user.reward_sum)
        })
    }

    /// The users by number, and the free numbers in the order in which they are reused.
    pub fn parts(&self) -> (&[Option<User>], &[u32]) {
        (&self.known, &self.free)
    }

    /// Restores the users from [`Users::parts`]; `None` if the parts are inconsistent.
    pub fn from_parts(known: Vec<Option<User>>, free: Vec<u32>) -> Option<Self> {
        let mut numbers = HashMap::with_capacity(known.len());
        for (number, user) in known.iter().enumerate() {
            let Some(user) = user else { continue };
            let number = u32::try_from(number).ok()?;
            if numbers.insert(Arc::clone(&user.id), number).is_some() {
                return None;
            }
        }
        let gaps = known.len() - numbers.len();
        let is_gap = |&number: &u32| known.get(number as usize) == Some(&None);
        (free.len() == gaps && free.iter().all(is_gap)).then_some(Self {
            numbers,
            known,
            free,
        })
    }
}
