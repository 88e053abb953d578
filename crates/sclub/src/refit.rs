//! Fits in the background: a new fit of a policy's model to all users, computed while it serves.
//!
//! A fit is computed from the state after one round and takes effect after a later one. Its
//! result is a few kilobytes. A service logs them as an event of their own, so that a replay takes
//! the same fit at the same place and need not compute it.

use crate::policy::ClusterId;

/// A fit to be computed, with a copy of the state that it needs. Making one is cheap; the policy goes on
/// serving and learning while another thread computes.
pub trait Refit: Send {
    /// Rounds learned when it was made.
    fn rounds(&self) -> u64;

    /// Computes the fit, for [`crate::BackgroundFit::take_fit`]. The same state gives the same bytes on any
    /// number of threads.
    fn compute(self: Box<Self>, workers: &dyn Workers) -> Vec<u8>;
}

/// Runs pieces of work that do not depend on one another.
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

/// The probability that a user belongs to one cluster, and its parts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// The cluster's number.
    pub label: ClusterId,
    /// The prior probability: the cluster's share of all users.
    pub share: f64,
    /// The log-likelihood of the user's observations in this cluster less that in none.
    pub evidence: f64,
    /// The posterior probability.
    pub probability: f64,
}

/// The clusters that a user may belong to.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// The clusters, the most probable first.
    pub places: Vec<Place>,
    /// The probability that the user is in none of them.
    pub none: f64,
    /// True if the clusters have at least half of the weight in recommendations. The rest has the prior of
    /// all users with the user's own observations.
    pub used: bool,
}

/// The state of a clustering as a whole, as of its last fit unless stated otherwise.
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
    /// The share of the known users without a cluster of probability ½ or more.
    pub unplaced: f64,
    /// The number of parameters of all users that the data determine: between 0 and users × dim.
    pub effective_parameters: f64,
    /// The variance of a reward around its mean, as estimated.
    pub noise: f64,
    /// The log-likelihood of recent rewards with clusters less that without, in nats, older ones
    /// discounted; as of now.
    pub gain: f64,
    /// True if the clusters have at least half of the weight in recommendations.
    pub used: bool,
    /// A warning for the operator, such as that clusters do not predict better than none.
    pub warning: Option<String>,
}
