//! The interface of policies that others are built on: CLUB and SCLUB choose by an upper confidence bound, and
//! some policies keep their clusters but choose in another way.

use crate::policy::{Policy, UserId};
use crate::statistics::View;

/// A policy that scores each user with the sums of one cluster.
pub(crate) trait Base: Policy {
    /// θ̂, S⁻¹ and T of the cluster that a user is scored with. The user need not have appeared.
    fn sums(&self, user: UserId) -> (View<'_>, u64);

    /// The user's place in the order of first appearance, and T_i. The next free place and 0 if the user has not
    /// appeared. Random draws are keyed by the place: unlike an id, it does not depend on how users are named.
    fn appearance(&self, user: UserId) -> (u64, u64);
}
