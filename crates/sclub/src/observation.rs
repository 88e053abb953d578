//! Observations and lists: the items that were shown to a user, and their rewards.

use crate::policy::{ItemId, UserId};

/// A user was shown an item and gave a reward.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation<'a> {
    /// The user.
    pub user: UserId,
    /// The features of the item shown.
    pub item: &'a [f64],
    /// The id of the item shown, if it has one.
    pub id: Option<ItemId>,
    /// The reward.
    pub reward: f64,
}

impl<'a> Observation<'a> {
    /// An observation of an item without an id.
    pub fn new(user: UserId, item: &'a [f64], reward: f64) -> Self {
        Self {
            user,
            item,
            id: None,
            reward,
        }
    }
}

/// An item in a list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shown<'a> {
    /// Its features.
    pub item: &'a [f64],
    /// Its id, if it has one.
    pub id: Option<ItemId>,
    /// Its reward; `None` if it is not known.
    pub reward: Option<f64>,
}

/// A user was shown a list of items.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct List<'a> {
    /// The user.
    pub user: UserId,
    /// The items in the order in which they were shown.
    pub items: &'a [Shown<'a>],
    /// The number of items, from the first, that the user looked at; `None` if that is not known.
    pub looked_at: Option<usize>,
}

impl<'a> List<'a> {
    /// Each item that was looked at and whose reward is known, as an observation of its own.
    pub fn observations(&self) -> impl Iterator<Item = Observation<'a>> + '_ {
        let looked_at = self.looked_at.unwrap_or(self.items.len());
        let items = self.items.iter().take(looked_at);
        items.filter_map(|shown| {
            Some(Observation {
                user: self.user,
                item: shown.item,
                id: shown.id,
                reward: shown.reward?,
            })
        })
    }
}
