//! Data of real users: the items that each user took, and the feature vectors made from them.
//!
//! [`read()`] reads a file of ratings in one of several [`Format`]s into [`Interactions`].
//! [`features::Selection`] picks the users and items with the most of them, [`svd::truncated_svd`]
//! finds the leading directions, and [`features`] turns these into vectors for users and items.

mod catalogue;
mod collect;
mod columns;
mod events;
pub mod features;
mod fields;
mod formats;
mod interactions;
mod json;
mod lines;
mod names;
mod npy;
mod parquet;
mod read;
mod source;
mod times;
mod unpack;
mod vectors;
pub mod write;

pub use catalogue::{ItemOptions, ReadItems, read_items};
pub use collect::RatingUse;
pub use columns::ColumnNames;
pub use events::{Interaction, ReadEvents, read_events};
pub use formats::Format;
pub use interactions::Interactions;
pub(crate) use lines::Lines;
pub use names::Name;
pub use read::{Options, Read, ReadError, Table, read, read_table};
pub use sclub_features::{matrix, svd};
pub(crate) use unpack::unpacked;
pub use vectors::{Vectors, read_vectors};

#[cfg(test)]
mod tests;
