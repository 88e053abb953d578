//! Online clustering of bandits: recommends items and learns which users like the same things.
//!
//! Every user has unknown tastes, a weight vector; many users share tastes. A [`Policy`] chooses
//! among items for a user and learns from the reward. Policies that find clusters of users with
//! the same tastes let each user learn from the rewards of all users of the cluster.
//!
//! # Policies
//!
//! All of them are in the [`registry`]; [`which_policy`] compares them. The types are [`Sclub`],
//! [`SclubSoft`] (also `gaussian`), [`Club`], [`LinUcbInd`], [`LinUcbShared`] (`linucb-one`) and [`LinTs`].
//!
#![doc = include_str!("policies.md")]
//!
//! # Use
//!
//! The library does no I/O of its own: [`Persist::save_to`] and [`load_policy`] write to and read
//! from the caller's streams. It reads no clock and starts no thread. Random numbers are fixed by a
//! seed. The same rounds give the same bits on every machine.
//!
//! ```
#![doc = include_str!("../examples/embed.rs")]
//! ```

mod abilities;
mod base;
pub mod bytes;
mod change;
pub mod club;
mod digest;
mod draws;
pub mod error;
mod frequencies;
mod items;
mod kernels;
mod ledger;
mod linucb;
mod observation;
pub mod params;
mod policies;
mod policy;
mod published;
mod radius;
mod refit;
mod registry;
mod roster;
mod sclub;
mod soft;
mod spec;
mod statistics;
mod ucb;

#[doc = include_str!("../docs/which-policy.md")]
pub mod which_policy {}

/// The [`Spec`] of each policy of this library, for code that needs a particular one.
pub mod specs {
    pub use crate::club::SPEC as CLUB;
    pub use crate::linucb::{IND as LINUCB_IND, ONE as LINUCB_ONE};
    pub use crate::sclub::SPEC as SCLUB;
    pub use crate::soft::{GAUSSIAN, SPEC as SCLUB_SOFT};
}

pub use abilities::{
    BackgroundFit, ClusterView, Correct, Forget, Inspect, PartitionedFit, Persist,
};
pub use club::{Club, Graph};
pub use error::{Error, LoadError, MAX_MAGNITUDE};
pub use items::{ContextMode, ItemSet, MAX_ITEMS};
pub use kernels::MAX_DIM;
pub use linucb::{ForgettableLinUcb, Groups, LinUcbInd, LinUcbShared};
pub use params::{Assumptions, Exploration, Index, Params};
pub use policies::lints::LinTs;
pub use policy::{
    Change, ClusterId, Comparison, Decision, ItemId, List, Messages, Observation, Policy,
    Propensity, Score, Shown, UserId, Users, Why, check_items, check_round, estimate_propensities,
};
pub use published::{Deviations, PublishedSclub};
pub use radius::radius;
pub use refit::{
    Answering, Gathering, Outlook, Place, Placement, Progress, Refit, Sequential, Workers,
};
pub use registry::{find_policy, is_for_comparison, load_policy, register, registry};
pub use sclub::{Sclub, Statistics};
pub use soft::{Explore, SclubSoft, SoftParams};
pub use spec::{
    Abilities, Constant, Load, NewGathering, NewPolicy, Partitions, Preset, Range, Setup, Spec,
    Value, ValueError, Values,
};
pub use statistics::REFACTORISE_EVERY;
