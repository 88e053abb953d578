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
//! | [`LinUcbShared::one`] | everybody together |
//! | [`LinUcbInd`] | each user alone |
//! | [`LinUcbShared::known`] | each of some groups that are told in advance |
//!
//! The library does no I/O (but through what the caller hands to [`Keep::save_to`] and
//! [`load_policy`]), reads no clock, starts no thread and draws no random number that a seed
//! does not fix. The same rounds give the same bits on every machine.
//!
//! ```
#![doc = include_str!("../examples/embed.rs")]
//! ```

mod bytes;
pub mod club;
mod digest;
pub mod error;
mod frequencies;
mod items;
mod keep;
mod kernels;
mod ledger;
mod linucb;
pub mod params;
mod policy;
mod published;
mod radius;
mod refit;
mod roster;
mod sclub;
mod soft;
mod statistics;
mod ucb;

pub use club::{Club, Graph};
pub use error::{Error, LoadError, MAX_MAGNITUDE};
pub use items::{ItemSet, MAX_ITEMS};
pub use keep::{ClusterView, Keep, load_policy};
pub use kernels::MAX_DIM;
pub use linucb::{LinUcbInd, LinUcbShared};
pub use params::{Assumptions, Exploration, Index, Params};
pub use policy::{
    Change, ClusterId, Comparison, Decision, Observation, Policy, Score, UserId, Users, Why,
    check_round,
};
pub use published::{Deviations, PublishedSclub};
pub use radius::radius;
pub use refit::{Alone, Outlook, Place, Placement, Refit, Workers};
pub use sclub::{Sclub, Statistics};
pub use soft::{SclubSoft, SoftParams};
pub use statistics::REFACTORISE_EVERY;
