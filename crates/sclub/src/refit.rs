//! Work that a policy would like done beside serving: a new fit of its model to all users.
//!
//! A fit is computed from the state after one round and takes effect after a later one. What it
//! found is a few kilobytes: whoever keeps the history writes them down as an event of its own, so
//! that a replay takes the same fit at the same place and need not compute it.

use crate::policy::ClusterId;

/// A fit to be computed, with all that it takes of the state. Making one is cheap; the policy goes on
/// serving and learning while another thread computes.
pub trait Refit: Send {
    /// Rounds learned when it was made.
    fn rounds(&self) -> u64;

    /// Computes the fit, for [`crate::BackgroundFit::take_fit`]. The same state gives the same bytes, whoever
    /// works.
    fn compute(self: Box<Self>, workers: &dyn Workers) -> Vec<u8>;
}

/// Who does pieces of work that do not depend on one another.
pub trait Workers: Sync {
    /// Calls `work` with every number below `pieces`, once each, in any order and from any number of
    /// threads, and returns when all calls have.
    fn each(&self, pieces: usize, work: &(dyn Fn(usize) + Sync));
}

/// Does one piece after another on the caller's thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sequential;

impl Workers for Sequential {
    fn each(&self, pieces: usize, work: &(dyn Fn(usize) + Sync)) {
        (0..pieces).for_each(work);
    }
}

/// How much a user seems to belong to one cluster.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// The cluster's number.
    pub label: ClusterId,
    /// How probable it is before any of her observations: the cluster's share of all users.
    pub share: f64,
    /// What her observations say: the logarithm of how many times likelier they are in this cluster
    /// than in none.
    pub evidence: f64,
    /// How probable it is given both.
    pub probability: f64,
}

/// Where a user seems to belong.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// The clusters, the most probable first.
    pub places: Vec<Place>,
    /// The probability that she is in none of them.
    pub none: f64,
    /// Whether recommendations use the clusters; else they come from what all users have in common
    /// and her own observations.
    pub used: bool,
}

/// The state of a clustering as a whole, as of its last fit unless said.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlook {
    /// Fits taken so far.
    pub fits: u64,
    /// Rounds learned when the last one was computed from.
    pub fitted_at: u64,
    /// Clusters found.
    pub clusters: usize,
    /// (rounds, clusters) of fits so far, the oldest thinned out.
    pub history: Vec<(u64, usize)>,
    /// Share of the users who have appeared that no cluster had with a probability of ½ or more.
    pub unplaced: f64,
    /// How many numbers per user the data have really settled, on average, times the users: between
    /// 0 and users × dim.
    pub effective_parameters: f64,
    /// The variance of a reward around its mean, as estimated.
    pub noise: f64,
    /// By how many nats the rewards since were better predicted with clusters than without, older
    /// ones discounted; as of now.
    pub gain: f64,
    /// Whether recommendations use the clusters.
    pub used: bool,
    /// What somebody should know, such as that clustering is buying nothing.
    pub warning: Option<String>,
}
