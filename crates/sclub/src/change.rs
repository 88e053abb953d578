//! Changes of clusters, with their reasons.

use crate::policy::{ClusterId, UserId};

/// The two sides of an inequality.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// The distance.
    pub distance: f64,
    /// The threshold that it was compared with.
    pub threshold: f64,
}

/// The reason for a change of clusters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Why {
    /// A split: two estimates were farther apart than they may be.
    Estimates(Comparison),
    /// A split: two frequencies were farther apart than they may be.
    Frequencies(Comparison),
    /// A merge: estimates and average frequencies were both close enough.
    Both {
        /// The comparison of the estimates.
        estimates: Comparison,
        /// The comparison of the average frequencies.
        frequencies: Comparison,
    },
    /// A merge: a newcomer was connected to both.
    Connected,
}

/// A change of the clusters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// Users left a cluster and form a new one.
    Split {
        /// The cluster they left.
        from: ClusterId,
        /// The new cluster.
        into: ClusterId,
        /// The number of users who left.
        users: u64,
        /// The user whose observation caused it.
        user: UserId,
        /// The reason.
        why: Why,
    },
    /// Two clusters became one.
    Merge {
        /// The cluster that goes on.
        kept: ClusterId,
        /// The cluster that is no more.
        gone: ClusterId,
        /// The user whose observation caused it.
        user: UserId,
        /// The reason.
        why: Why,
    },
}
