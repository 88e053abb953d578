//! Online clustering of bandits: who likes the same things, learned while recommending.
//!
//! Every user has unknown tastes, a weight vector; many users share tastes. A [`Policy`] is asked
//! to choose among items for a user, is told what the choice brought, and gets better. [`Sclub`]
//! finds out on the way which users are alike, and lets each learn from all of their kind.
//!
//! | policy | an estimate for |
//! |---|---|
//! | [`Sclub`] | each set of users it believes alike; users are split out and sets merged |
//! | [`Club`] | each connected component of a graph of users whose edges are cut |
//! | [`LinUcbInd`] | each user alone |
//! | [`LinUcbShared`] | all users together, or each of some known groups |
//!
//! The library does no I/O (but through what the caller hands to [`Persist::save_to`] and
//! [`load_policy`]), reads no clock, starts no thread and draws no random number that a seed
//! does not fix. The same rounds give the same bits on every machine.
//!
//! ```
#![doc = include_str!("../examples/embed.rs")]
//! ```

mod abilities;
pub mod bytes;
pub mod club;
mod digest;
pub mod error;
mod frequencies;
mod items;
mod kernels;
mod ledger;
mod linucb;
pub mod params;
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

/// The [`Spec`] of each policy of this library, for code that needs a particular one.
pub mod specs {
    pub use crate::club::SPEC as CLUB;
    pub use crate::linucb::{IND as LINUCB_IND, ONE as LINUCB_ONE};
    pub use crate::sclub::SPEC as SCLUB;
    pub use crate::soft::{GAUSSIAN, SPEC as SCLUB_SOFT};
}

pub use abilities::{BackgroundFit, ClusterView, Forget, Inspect, Persist};
pub use club::{Club, Graph};
pub use error::{Error, LoadError, MAX_MAGNITUDE};
pub use items::{ContextMode, ItemSet, MAX_ITEMS};
pub use kernels::MAX_DIM;
pub use linucb::{ForgettableLinUcb, Groups, LinUcbInd, LinUcbShared};
pub use params::{Assumptions, Exploration, Index, Params};
pub use policy::{
    Change, ClusterId, Comparison, Decision, ItemId, List, Observation, Policy, Score, Shown,
    UserId, Users, Why, check_round,
};
pub use published::{Deviations, PublishedSclub};
pub use radius::radius;
pub use refit::{Outlook, Place, Placement, Refit, Sequential, Workers};
pub use registry::{find_policy, load_policy, register, registry};
pub use sclub::{Sclub, Statistics};
pub use soft::{SclubSoft, SoftParams};
pub use spec::{
    Abilities, Constant, Load, NewPolicy, Preset, Range, Setup, Spec, Value, ValueError, Values,
};
pub use statistics::REFACTORISE_EVERY;
