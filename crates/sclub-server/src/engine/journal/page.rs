//! Batches of the journal.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::engine::import::is_imported;
use crate::engine::item_counts::ItemCounts;
use crate::event::{
    Item, VERSION_WITH_DETAILS, VERSION_WITH_PROPENSITIES, from_bytes_with_context, whole,
    write_version, write_with_context,
};
use crate::state::Answered;
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
    /// In a part of its own.
    #[serde(skip)]
    pub detail: Option<Detail<'static>>,
}

/// More about a decision: for evaluation, and for assumed rewards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(in crate::engine) struct Detail<'a> {
    /// The random number that identifies the run of the server.
    pub life: u64,
    /// The service-clock time of the decision.
    pub clock: u64,
    /// The random number of the decision. Ties and everything that a policy draws follow from it.
    pub draw: u64,
    /// The probability of each item to be in its slot; empty if propensities were off.
    pub slots: Vec<f64>,
    /// The candidates.
    #[serde(borrow)]
    pub candidates: CandidateRecord<'a>,
}

/// The candidates of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(in crate::engine) enum CandidateRecord<'a> {
    /// Not recorded.
    Unknown,
    /// These items.
    #[serde(borrow)]
    Ids(Vec<Cow<'a, str>>),
    /// The catalogue.
    Catalogue {
        /// Its revision.
        revision: u64,
        /// The filter in JSON; empty if there was none.
        #[serde(borrow)]
        filter: Cow<'a, str>,
        /// The items that were excluded.
        #[serde(borrow)]
        exclude: Vec<Cow<'a, str>>,
        /// The number of the user's last decisions whose items were excluded.
        seen: u64,
    },
}

impl Detail<'_> {
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("plain data")
    }

    /// Decodes what [`Detail::encode`] encoded.
    pub fn decode(bytes: &[u8]) -> Option<Detail<'static>> {
        postcard::from_bytes::<Detail<'_>>(bytes)
            .ok()
            .map(Detail::into_owned)
    }

    fn into_owned(self) -> Detail<'static> {
        let own = |id: Cow<'_, str>| Cow::Owned(id.into_owned());
        let candidates = match self.candidates {
            CandidateRecord::Unknown => CandidateRecord::Unknown,
            CandidateRecord::Ids(ids) => CandidateRecord::Ids(ids.into_iter().map(own).collect()),
            CandidateRecord::Catalogue {
                revision,
                filter,
                exclude,
                seen,
            } => CandidateRecord::Catalogue {
                revision,
                filter: own(filter),
                exclude: exclude.into_iter().map(own).collect(),
                seen,
            },
        };
        Detail {
            life: self.life,
            clock: self.clock,
            draw: self.draw,
            slots: self.slots,
            candidates,
        }
    }
}

impl Page {
    /// Adds the items shown to counts, as a batch of the journal, and their rewards if `has_rewards`. Imported rewards are left out: nothing was
    /// shown. A reward in place of an assumed one changes the sum only: by the difference to the one that it replaces, which is `assumed` if the row
    /// does not have it.
    ///
    /// With `known` a journal is counted from its start: these are the numbers of the assumed rewards before this page. A reward in place of another
    /// one, whose file was dropped, counts as any other.
    pub fn count_items<'a>(
        &self,
        counts: &ItemCounts,
        batch: Option<u64>,
        assumed: Option<f64>,
        has_rewards: bool,
        mut known: Option<&mut Answered>,
        id_of: impl Fn(u32) -> Option<&'a str>,
    ) {
        let rewards = match has_rewards {
            true => &*self.rewards,
            false => &[],
        };
        let rewards = rewards.iter().filter(|row| !is_imported(row.number));
        let decided = self.shown.iter().map(|row| row.at);
        let times = decided.chain(rewards.clone().map(|row| row.rewarded));
        let Some(first) = times.min() else { return };
        let shown = self.shown.iter().flat_map(|row| &row.items);
        let shown = shown.filter_map(|(place, _)| id_of(*place));
        let rewards = rewards.filter_map(|row| {
            let before = match (row.source, &mut known) {
                (Source::Sent, _) | (Source::Assumed, None) => None,
                (Source::Assumed, Some(known)) => {
                    known.insert(row.number, 0);
                    None
                }
                (_, Some(known)) if !known.contains(row.number) => None,
                (Source::Corrected, _) => Some(assumed.unwrap_or(0.0)),
                (Source::Replaced(before), _) => Some(before),
            };
            let number = u64::from(before.is_none());
            Some((id_of(row.item)?, number, row.reward - before.unwrap_or(0.0)))
        });
        counts.add(batch, first, shown, rewards);
    }
}

/// The source of a reward.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(in crate::engine) enum Source {
    /// It was sent.
    #[default]
    Sent,
    /// It is assumed.
    Assumed,
    /// It was sent, in place of an assumed one that is not recorded.
    Corrected,
    /// It was sent, in place of this assumed one.
    Replaced(f64),
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
    /// In a part of its own.
    #[serde(skip)]
    pub source: Source,
}

/// The contexts of the rows of a page.
#[derive(Default, Serialize, Deserialize)]
struct Contexts {
    shown: Vec<Vec<f64>>,
    rewards: Vec<Vec<f64>>,
}

/// The parts of an encoded page.
type Parts<'a> = (
    Page,
    Contexts,
    Vec<Vec<f64>>,
    Vec<Option<Detail<'a>>>,
    Vec<Source>,
);

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
        let has_details = self.shown.iter().any(|row| row.detail.is_some());
        let has_sources = self.rewards.iter().any(|row| row.source != Source::Sent);
        if has_details || has_sources {
            let shown = self.shown.iter();
            let details: Vec<&Option<Detail<'_>>> = shown.map(|row| &row.detail).collect();
            let shown = self.shown.iter();
            let propensities: Vec<&[f64]> = shown.map(|row| &*row.propensities).collect();
            let sources: Vec<Source> = self.rewards.iter().map(|row| row.source).collect();
            let contexts = contexts.unwrap_or_default();
            let parts = (self, contexts, propensities, details, sources);
            write_version(VERSION_WITH_DETAILS, &parts, &mut bytes);
        } else if self.shown.iter().any(|row| !row.propensities.is_empty()) {
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
        let parts: Result<Parts<'_>, _> = match bytes {
            [VERSION_WITH_DETAILS, rest @ ..] => whole(rest),
            [VERSION_WITH_PROPENSITIES, rest @ ..] => {
                whole(rest).map(|(page, contexts, propensities)| {
                    (page, contexts, propensities, Vec::new(), Vec::new())
                })
            }
            _ => from_bytes_with_context(bytes)
                .map(|(page, contexts)| (page, contexts, Vec::new(), Vec::new(), Vec::new())),
        };
        let (mut page, contexts, propensities, details, sources) = parts
            .map_err(|error| StoreError::Refused(format!("a batch of the journal: {error}")))?;
        for (row, propensities) in page.shown.iter_mut().zip(propensities) {
            row.propensities = propensities;
        }
        for (row, detail) in page.shown.iter_mut().zip(details) {
            row.detail = detail.map(Detail::into_owned);
        }
        for (row, source) in page.rewards.iter_mut().zip(sources) {
            row.source = source;
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
