//! What a service asks of a policy beyond recommending and learning: who is where, forgetting
//! somebody, and keeping the state.

use std::io::{Read, Write};

use crate::bytes::{Reader, Save, bad};
use crate::club::Club;
use crate::error::{Error, LoadError};
use crate::linucb::{LinUcbInd, LinUcbShared};
use crate::policy::{ClusterId, Policy, UserId};
use crate::refit::{Outlook, Placement, Refit};
use crate::sclub::Sclub;
use crate::soft::SclubSoft;

/// A look at one cluster.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClusterView<'a> {
    /// Its number.
    pub label: ClusterId,
    /// Users in it, with those declared who have not appeared.
    pub users: u64,
    /// T^j, observations of all of them.
    pub count: u64,
    /// θ̂^j, what is recommended from.
    pub estimate: &'a [f64],
}

/// A policy whose users can be looked at and forgotten, and whose state can be kept.
///
/// ```
/// use sclub::{Keep, LinUcbInd, Params, Policy, load_policy};
///
/// let mut policy = LinUcbInd::new(2, &Params::tuned())?;
/// policy.learn(7, &[0.6, 0.8], 1.0)?;
/// policy.learn(8, &[0.8, 0.6], 0.0)?;
/// let mut file = Vec::new();
/// policy.save_to(&mut file)?;
/// let mut again = load_policy(&mut file.as_slice())?;
/// assert_eq!(again.digest(), policy.digest());
/// assert!(again.forget(7));
/// assert_eq!(again.users(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Keep: Policy {
    /// Forgets a user: her statistics and her share in the sums of others, which are summed anew
    /// over those who stay. Returns whether there was anything to forget.
    fn forget(&mut self, user: UserId) -> bool;

    /// How many users have appeared.
    fn users(&self) -> u64;

    /// How many clusters are a single user.
    fn singletons(&self) -> u64;

    /// T_i, how often a user has appeared; nothing if she has not.
    fn count(&self, user: UserId) -> Option<u64>;

    /// θ̂_i, the estimate from a user's own observations; nothing if she has not appeared.
    fn own_estimate(&self, user: UserId) -> Option<Vec<f64>>;

    /// Users in the cluster that a recommendation to `user` would be made from.
    fn cluster_users(&self, user: UserId) -> u64;

    /// Shows every cluster once, in an order that the state fixes.
    fn each_cluster(&self, visit: &mut dyn FnMut(ClusterView<'_>));

    /// One cluster, if there is one of that number.
    fn cluster(&self, id: ClusterId) -> Option<ClusterView<'_>>;

    /// Some of the users of a cluster who have appeared, `limit` at the most; nothing if there is no
    /// such cluster.
    fn members(&self, id: ClusterId, limit: usize) -> Option<Vec<UserId>>;

    /// A fit to be computed beside serving, where one is due; nothing where none is, or where the
    /// policy makes none or makes them by itself.
    fn refit(&self) -> Option<Box<dyn Refit>> {
        None
    }

    /// Takes what [`Refit::compute`] found. From now on recommendations are made from it.
    ///
    /// # Errors
    /// [`Error::BadSnapshot`] where it is no fit of such a policy; then nothing has changed.
    fn take_fit(&mut self, _fit: &[u8]) -> Result<(), Error> {
        Err(bad("this policy takes no fit"))
    }

    /// Where a user seems to belong; nothing where a policy knows no probabilities.
    fn placement(&self, _user: UserId) -> Option<Placement> {
        None
    }

    /// The state of the clustering as a whole; nothing where a policy fits nothing.
    fn outlook(&self) -> Option<Outlook> {
        None
    }

    /// Writes the whole state by small pieces. [`load_policy`] has it back to the bit.
    ///
    /// # Errors
    /// Those of `out`.
    fn save_to(&self, out: &mut dyn Write) -> std::io::Result<()>;
}

/// Reads a state that [`Keep::save_to`] wrote, whichever policy's it is. Reads that and not a byte
/// more. Nothing is trusted that has not been read: a damaged state costs no more memory than a
/// whole one of its length.
///
/// # Errors
/// [`LoadError::Io`] where the input fails; [`LoadError::State`] where what comes is no state.
pub fn load_policy(input: &mut dyn Read) -> Result<Box<dyn Keep>, LoadError> {
    let reader = Reader::new(input)?;
    match reader.magic() {
        Sclub::MAGIC => Ok(Box::new(Sclub::load_words(reader)?)),
        LinUcbInd::MAGIC => Ok(Box::new(LinUcbInd::load_words(reader)?)),
        SclubSoft::MAGIC => Ok(Box::new(SclubSoft::load_words(reader)?)),
        LinUcbShared::MAGIC => Ok(Box::new(LinUcbShared::load_words(reader)?)),
        Club::MAGIC => {
            Err(bad("it is of CLUB, which cannot forget users; Club::load_from reads it").into())
        }
        _ => Err(bad("it is something else").into()),
    }
}
