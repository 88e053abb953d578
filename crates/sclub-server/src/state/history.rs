//! The history of splits and merges, with their reasons.

use std::collections::{BTreeMap, VecDeque};

use sclub::{Change, ClusterId, Comparison, Why};
use serde::{Deserialize, Serialize};

/// The maximum number of changes in memory.
pub const MAX_CHANGES: usize = 1 << 19;

/// The user of a change whose user is unknown or forgotten.
pub const NO_USER: u32 = u32::MAX;

/// A split or a merge.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its number among all changes, from 1.
    pub change: u64,
    /// The time of the change, in milliseconds since 1970.
    pub at: u64,
    /// The round in which it happened.
    pub round: u64,
    /// The number of the user who was being served.
    pub user: u32,
    /// The kind of change.
    pub what: What,
    /// The comparison of the estimates, if there was one.
    pub estimates: Option<Sides>,
    /// The comparison of the frequencies, if there was one.
    pub frequencies: Option<Sides>,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// Users left a cluster.
    Split {
        /// The old cluster.
        from: u64,
        /// The new cluster.
        into: u64,
        /// The number of users who moved.
        users: u64,
    },
    /// Two clusters became one.
    Merge {
        /// The cluster that stays.
        kept: u64,
        /// The cluster that was merged into it.
        gone: u64,
    },
}

/// The two sides of an inequality.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sides {
    /// The distance.
    pub distance: f64,
    /// The maximum distance that is allowed.
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

/// The latest changes; the oldest are dropped beyond `MAX_CHANGES`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    total: u64,
    recent: VecDeque<Record>,
    /// The last merge into each cluster.
    merged: BTreeMap<ClusterId, Record>,
}

impl History {
    /// Adds a change and returns its record.
    pub fn note(&mut self, at: u64, round: u64, user: u32, change: &Change) -> Record {
        let (what, why) = match *change {
            Change::Split {
                from,
                into,
                users,
                why,
                ..
            } => (What::Split { from, into, users }, why),
            Change::Merge {
                kept, gone, why, ..
            } => (What::Merge { kept, gone }, why),
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
        if self.recent.len() == MAX_CHANGES {
            self.recent.pop_front();
        }
        self.recent.push_back(record);
        record
    }

    /// An empty history of another policy. Its changes are numbered on.
    pub fn after(earlier: &Self) -> Self {
        Self {
            total: earlier.total,
            ..Self::default()
        }
    }

    /// The number of changes so far.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Up to `limit` changes before the one with a number, newest first.
    pub fn before(&self, change: u64, limit: usize) -> impl Iterator<Item = &Record> {
        let newer = self.total.saturating_sub(change.saturating_sub(1));
        let newer = usize::try_from(newer).unwrap_or(usize::MAX);
        self.recent.iter().rev().skip(newer).take(limit)
    }

    /// The last merge into a cluster.
    pub fn merged(&self, cluster: ClusterId) -> Option<&Record> {
        self.merged.get(&cluster)
    }

    /// Removes a user from every record.
    pub fn forget(&mut self, user: u32) {
        let all = self.recent.iter_mut().chain(self.merged.values_mut());
        for record in all.filter(|record| record.user == user) {
            record.user = NO_USER;
            record.estimates = None;
            record.frequencies = None;
        }
    }
}
