//! Data of real users: the items that each user took, and the feature vectors made from them.
//!
//! [`read()`] reads a file of ratings in one of several [`Format`]s into [`Interactions`].
//! [`features::Selection`] picks the users and items with the most of them, [`svd::truncated_svd`]
//! finds the leading directions, and [`features`] turns these into vectors for users and items.

mod collect;
mod columns;
mod eigen;
pub mod features;
mod fields;
mod formats;
mod interactions;
mod json;
mod lines;
pub mod matrix;
mod names;
mod npy;
mod parquet;
mod read;
pub mod svd;
mod unpack;
pub mod write;

pub use collect::RatingUse;
pub use columns::ColumnNames;
pub use formats::Format;
pub use interactions::Interactions;
pub(crate) use lines::Lines;
pub use names::Name;
pub use read::{Options, Read, ReadError, Table, read, read_table};
pub(crate) use unpack::unpacked;

#[cfg(test)]
mod tests;
