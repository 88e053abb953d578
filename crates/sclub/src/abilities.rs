//! Optional abilities of a policy beyond recommending and learning. Each trait is a separate ability; a policy
//! implements those that it has and returns itself from [`Policy::as_inspect`] and its siblings.

use std::io::Write;

use crate::error::Error;
use crate::policy::{ClusterId, Policy, UserId};
use crate::refit::{Answering, Outlook, Placement, Progress, Refit, Workers};

/// One cluster.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClusterView<'a> {
    /// Its number.
    pub label: ClusterId,
    /// Users in it, including declared ones who have not appeared.
    pub users: u64,
    /// T^j, observations of all of them.
    pub count: u64,
    /// θ̂^j, the estimate that recommendations are made from.
    pub estimate: &'a [f64],
}

/// Shows users and clusters.
pub trait Inspect: Policy {
    /// Number of users who have appeared.
    fn users(&self) -> u64;

    /// Number of clusters of a single user.
    fn singletons(&self) -> u64;

    /// T_i, how often a user has appeared; `None` if never.
    fn count(&self, user: UserId) -> Option<u64>;

    /// θ̂_i, the estimate from a user's own observations; `None` if the user has not appeared.
    fn own_estimate(&self, user: UserId) -> Option<Vec<f64>>;

    /// Users in the cluster that a recommendation to `user` would be made from.
    fn cluster_users(&self, user: UserId) -> u64;

    /// Visits every cluster once, in an order that the state fixes.
    fn each_cluster(&self, visit: &mut dyn FnMut(ClusterView<'_>));

    /// The cluster with a number, if there is one.
    fn cluster(&self, id: ClusterId) -> Option<ClusterView<'_>>;

    /// Up to `limit` users of a cluster who have appeared; `None` if there is no such cluster.
    fn members(&self, id: ClusterId, limit: usize) -> Option<Vec<UserId>>;

    /// The clusters that a user may belong to; `None` if a policy knows no probabilities.
    fn placement(&self, _user: UserId) -> Option<Placement> {
        None
    }

    /// The state of the clustering as a whole; `None` if a policy fits nothing.
    fn outlook(&self) -> Option<Outlook> {
        None
    }
}

/// Can be saved and loaded.
///
/// ```
/// use sclub::{LinUcbInd, Params, Persist, Policy, load_policy};
///
/// let mut policy = LinUcbInd::new(2, &Params::tuned())?;
/// policy.learn(7, &[0.6, 0.8], 1.0)?;
/// let mut file = Vec::new();
/// policy.save_to(&mut file)?;
/// let loaded = load_policy(&mut file.as_slice())?;
/// assert_eq!(loaded.digest(), policy.digest());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Persist: Policy {
    /// Writes the whole state in small pieces. [`crate::load_policy`] restores it to the bit.
    ///
    /// # Errors
    /// The errors of `out`.
    fn save_to(&self, out: &mut dyn Write) -> std::io::Result<()>;
}

/// Can forget a user exactly.
///
/// ```
/// use sclub::{Forget, Inspect, LinUcbInd, Params, Policy};
///
/// let mut policy = LinUcbInd::new(2, &Params::tuned())?;
/// policy.learn(7, &[0.6, 0.8], 1.0)?;
/// policy.learn(8, &[0.8, 0.6], 0.0)?;
/// assert!(policy.forget(7));
/// assert_eq!(policy.users(), 1);
/// # Ok::<(), sclub::Error>(())
/// ```
pub trait Forget: Policy {
    /// Forgets a user: their statistics and their share in the sums of others, which are summed again
    /// over the users who stay. Returns true if the user was known.
    fn forget(&mut self, user: UserId) -> bool;
}

/// Can replace the reward of an observation that it has learned.
///
/// ```
/// use sclub::{Correct, LinUcbInd, Params, Policy};
///
/// let mut late = LinUcbInd::new(2, &Params::tuned())?;
/// late.learn(7, &[0.6, 0.8], 0.0)?;
/// assert!(late.correct(7, &[0.6, 0.8], 0.0, 1.0)?);
/// let mut at_once = LinUcbInd::new(2, &Params::tuned())?;
/// at_once.learn(7, &[0.6, 0.8], 1.0)?;
/// let (late, at_once) = (late.estimate(7).unwrap(), at_once.estimate(7).unwrap());
/// assert!(late.iter().zip(&at_once).all(|(a, b)| (a - b).abs() < 1e-12));
/// # Ok::<(), sclub::Error>(())
/// ```
pub trait Correct: Policy {
    /// Replaces the reward `from` of an observation of an item by `to`. The sums over observations become those with `to`
    /// in its place, to rounding; it is not another observation, nor a round. Decisions that were made before,
    /// splits and merges among them, stay. Numbers that a fit computes from the sums follow with the next fit.
    ///
    /// Returns false if the user is unknown; nothing is changed then.
    ///
    /// # Errors
    /// [`Error::DimensionMismatch`], [`Error::BadFeature`], [`Error::BadReward`].
    fn correct(&mut self, user: UserId, item: &[f64], from: f64, to: f64) -> Result<bool, Error>;
}

/// Makes fits that another thread can compute while the policy goes on.
pub trait BackgroundFit: Policy {
    /// A fit to compute, if one is due and the policy does not make them inline.
    fn refit(&self) -> Option<Box<dyn Refit>>;

    /// Takes the result of [`Refit::compute`]. Recommendations are made from it from now on.
    ///
    /// # Errors
    /// [`Error::BadSnapshot`] if the bytes are not a fit of such a policy; nothing has changed then.
    fn take_fit(&mut self, fit: &[u8]) -> Result<(), Error>;
}

/// Takes part in fits over several partitions of the users.
///
/// Each partition is a policy of its own. One node asks all partitions the questions of a [`crate::Gathering`], computes
/// a fit, and gives it to each of them ([`BackgroundFit::take_fit`]). A policy that takes part in such fits must
/// not make fits of its own: do not call [`BackgroundFit::refit`], and leave [`crate::Setup::fits_inline`] off.
pub trait PartitionedFit: BackgroundFit {
    /// A short summary, for deciding whether a fit is due.
    fn progress(&self) -> Progress;

    /// The answer to a question of a [`crate::Gathering`] from the users of this partition, to be computed. Answers are
    /// absolute sums and samples.
    ///
    /// # Errors
    /// [`Error::BadSnapshot`] if the bytes are not a question for such a policy.
    fn prepare(&self, question: &[u8]) -> Result<Box<dyn Answering>, Error>;

    /// Prepares an answer and computes it.
    ///
    /// # Errors
    /// As [`PartitionedFit::prepare`].
    fn answer(&self, question: &[u8], workers: &dyn Workers) -> Result<Vec<u8>, Error> {
        Ok(self.prepare(question)?.compute(workers))
    }
}
