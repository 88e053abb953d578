//! The users who have appeared, each with a slot, in order of appearance.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::digest::mix;
use crate::error::Error;
use crate::policy::{Observation, UserId, Users};

/// Slots of the users seen so far. A slot is a user's place in order of first appearance.
#[derive(Debug, Clone, Default)]
pub(crate) struct Roster {
    slots: HashMap<UserId, u32, BuildHasherDefault<MixHasher>>,
    users: Vec<UserId>,
}

/// Hashes a number by [`mix`]. Deterministic; nothing depends on the order of the table.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MixHasher(u64);

impl Hasher for MixHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = mix(self.0 ^ u64::from(byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0 ^ word);
    }
}

impl Roster {
    /// The roster of users in order of appearance; `None` if one is listed twice.
    pub fn from_users(users: Vec<UserId>) -> Option<Self> {
        let mut roster = Self::default();
        roster.slots.reserve(users.len());
        for (slot, &user) in users.iter().enumerate() {
            if roster.slots.insert(user, slot as u32).is_some() {
                return None;
            }
        }
        roster.users = users;
        Some(roster)
    }

    pub fn len(&self) -> usize {
        self.users.len()
    }

    #[inline]
    pub fn slot(&self, user: UserId) -> Option<usize> {
        self.slots.get(&user).map(|&slot| slot as usize)
    }

    /// The users seen, by slot.
    pub fn users(&self) -> &[UserId] {
        &self.users
    }

    /// Gives a user who has not appeared before the next slot.
    pub fn admit(&mut self, user: UserId) -> usize {
        let slot = self.users.len();
        self.slots.insert(
            user,
            u32::try_from(slot).expect("check_room comes before admit"),
        );
        self.users.push(user);
        slot
    }

    /// Removes a user; the user in the last slot moves into theirs. Returns true if one did.
    pub fn dismiss(&mut self, slot: usize) -> bool {
        let user = self.users.swap_remove(slot);
        self.slots.remove(&user);
        let Some(&moved) = self.users.get(slot) else {
            return false;
        };
        self.slots.insert(moved, slot as u32);
        true
    }

    /// Checks that there are enough slots, as if all users of the round were new.
    pub fn check_room(&self, round: &[Observation<'_>]) -> Result<(), Error> {
        if (self.users.len() + round.len()) as u64 <= Users::LIMIT {
            Ok(())
        } else {
            Err(Error::TooMany {
                what: "the number of users",
                limit: Users::LIMIT,
            })
        }
    }
}
