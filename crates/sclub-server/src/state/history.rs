//! Splits and merges, with what made them.

use std::collections::{BTreeMap, VecDeque};

use sclub::{Change, ClusterId, Comparison, Why};
use serde::{Deserialize, Serialize};

/// Most changes that are kept at hand; older ones can be had by folding the log again.
pub const KEPT: usize = 1 << 19;

/// Who was being served, where it was nobody who is still known.
pub const NOBODY: u32 = u32::MAX;

/// A split or a merge.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its place among all changes, from 1.
    pub change: u64,
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// In which round.
    pub round: u64,
    /// Number of the user who was being served.
    pub user: u32,
    /// What happened.
    pub what: What,
    /// Of the estimates, where they were looked at.
    pub estimates: Option<Sides>,
    /// Of the frequencies, where they were looked at.
    pub frequencies: Option<Sides>,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// Users left a cluster.
    Split {
        /// The one they left.
        from: u64,
        /// The new one.
        into: u64,
        /// How many.
        users: u64,
    },
    /// Two clusters became one.
    Merge {
        /// The one that goes on.
        kept: u64,
        /// The one that is no more.
        gone: u64,
    },
}

/// The two sides of an inequality.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sides {
    /// How far apart.
    pub distance: f64,
    /// How far apart they may be.
    pub threshold: f64,
}

impl From<Comparison> for Sides {
    fn from(comparison: Comparison) -> Self {
        Self {
            distance: comparison.distance,
            threshold: comparison.threshold,
        }
    }
}

/// Every change, the oldest let go of when there are too many.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    total: u64,
    recent: VecDeque<Record>,
    /// The last merge that made each cluster what it is.
    merged: BTreeMap<ClusterId, Record>,
}

impl History {
    /// Notes a change and returns its record.
    pub fn note(&mut self, at: u64, round: u64, user: u32, change: &Change) -> Record {
        let (what, why) = match *change {
            Change::Split {
                from,
                into,
                users,
                why,
            } => (What::Split { from, into, users }, why),
            Change::Merge { kept, gone, why } => (What::Merge { kept, gone }, why),
        };
        let (estimates, frequencies) = match why {
            Why::Estimates(sides) => (Some(sides), None),
            Why::Frequencies(sides) => (None, Some(sides)),
            Why::Both {
                estimates,
                frequencies,
            } => (Some(estimates), Some(frequencies)),
            Why::Connected => (None, None),
        };
        self.total += 1;
        let record = Record {
            change: self.total,
            at,
            round,
            user,
            what,
            estimates: estimates.map(Sides::from),
            frequencies: frequencies.map(Sides::from),
        };
        if let What::Merge { kept, gone } = what {
            self.merged.remove(&gone);
            self.merged.insert(kept, record);
        }
        if self.recent.len() == KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back(record);
        record
    }

    /// How many changes there have been.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Up to `limit` changes before the one of a number, newest first.
    pub fn before(&self, change: u64, limit: usize) -> impl Iterator<Item = &Record> {
        let newer = self.total.saturating_sub(change.saturating_sub(1));
        let newer = usize::try_from(newer).unwrap_or(usize::MAX);
        self.recent.iter().rev().skip(newer).take(limit)
    }

    /// The last merge that made a cluster what it is.
    pub fn merged(&self, cluster: ClusterId) -> Option<&Record> {
        self.merged.get(&cluster)
    }

    /// Takes a user out of every record.
    pub fn forget(&mut self, user: u32) {
        let all = self.recent.iter_mut().chain(self.merged.values_mut());
        for record in all.filter(|record| record.user == user) {
            record.user = NOBODY;
            record.estimates = None;
            record.frequencies = None;
        }
    }
}
