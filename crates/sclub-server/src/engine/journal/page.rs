//! Batches of the journal.

use serde::{Deserialize, Serialize};

use crate::event::{
    Item, VERSION_WITH_PROPENSITIES, from_bytes_with_context, whole, write_version,
    write_with_context,
};
use crate::store::StoreError;

/// A batch of the journal.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::engine) struct Page {
    /// The batch of the log up to which rewards are in the journal.
    pub position: u64,
    /// The number of events up to there.
    pub events: u64,
    /// The service-clock time.
    pub clock: u64,
    /// The number of items that the file has before these.
    pub items_before: u32,
    /// The items that are new in this file.
    pub items: Vec<Item>,
    /// Decisions.
    pub shown: Vec<ShownRow>,
    /// Rewards.
    pub rewards: Vec<RewardRow>,
    /// Users who were forgotten, with the number of the event.
    pub forgotten: Vec<(String, u64)>,
}

/// A decision. Its items are given as their index among the items of the file.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::engine) struct ShownRow {
    pub number: u64,
    pub event: u64,
    pub at: u64,
    pub user: String,
    pub cluster: u64,
    pub items: Vec<(u32, f64)>,
    /// In [`Contexts`], if there is one.
    #[serde(skip)]
    pub context: Vec<f64>,
    /// The probability of each item to be in the list, in a part of its own; empty if propensities were off.
    #[serde(skip)]
    pub propensities: Vec<f64>,
}

/// A reward.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::engine) struct RewardRow {
    pub number: u64,
    pub event: u64,
    pub decided: u64,
    pub rewarded: u64,
    pub user: String,
    pub cluster: u64,
    pub item: u32,
    pub score: f64,
    pub reward: f64,
    /// In [`Contexts`], if there is one.
    #[serde(skip)]
    pub context: Vec<f64>,
}

/// The contexts of the rows of a page.
#[derive(Default, Serialize, Deserialize)]
struct Contexts {
    shown: Vec<Vec<f64>>,
    rewards: Vec<Vec<f64>>,
}

impl Page {
    pub fn encode(&self) -> Vec<u8> {
        let contexts = Contexts {
            shown: self.shown.iter().map(|row| row.context.clone()).collect(),
            rewards: self.rewards.iter().map(|row| row.context.clone()).collect(),
        };
        let mut all = contexts.shown.iter().chain(&contexts.rewards);
        let has_context = all.any(|context| !context.is_empty());
        let contexts = has_context.then_some(contexts);
        let mut bytes = Vec::with_capacity(256);
        if self.shown.iter().any(|row| !row.propensities.is_empty()) {
            let propensities: Vec<&[f64]> =
                self.shown.iter().map(|row| &*row.propensities).collect();
            let parts = (self, contexts.unwrap_or_default(), propensities);
            write_version(VERSION_WITH_PROPENSITIES, &parts, &mut bytes);
        } else {
            write_with_context(self, contexts.as_ref(), &mut bytes);
        }
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        let parts: Result<(Self, Contexts, Vec<Vec<f64>>), _> = match bytes {
            [VERSION_WITH_PROPENSITIES, rest @ ..] => whole(rest),
            _ => {
                from_bytes_with_context(bytes).map(|(page, contexts)| (page, contexts, Vec::new()))
            }
        };
        let (mut page, contexts, propensities) = parts
            .map_err(|error| StoreError::Refused(format!("a batch of the journal: {error}")))?;
        for (row, propensities) in page.shown.iter_mut().zip(propensities) {
            row.propensities = propensities;
        }
        for (row, context) in page.shown.iter_mut().zip(contexts.shown) {
            row.context = context;
        }
        for (row, context) in page.rewards.iter_mut().zip(contexts.rewards) {
            row.context = context;
        }
        Ok(page)
    }

    /// Removes the rows and the requests to forget that are named by user and event. Returns true if there were any.
    pub fn forget(
        &mut self,
        is_gone: impl Fn(&str, u64) -> bool,
        is_done: impl Fn(&str, u64) -> bool,
    ) -> bool {
        let rows = |page: &Self| page.shown.len() + page.rewards.len() + page.forgotten.len();
        let before = rows(self);
        self.shown.retain(|row| !is_gone(&row.user, row.event));
        self.rewards.retain(|row| !is_gone(&row.user, row.event));
        self.forgotten
            .retain(|(user, event)| !is_done(user, *event));
        before != rows(self)
    }
}
