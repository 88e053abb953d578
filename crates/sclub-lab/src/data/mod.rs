//! Data of real users: the items that each user took, and the feature vectors made from them.
//!
//! [`read()`] reads a file of ratings in one of several [`Format`]s into [`Interactions`].
//! [`features::Selection`] picks the users and items with the most of them, [`svd::truncated_svd`]
//! finds the leading directions, and [`features`] turns these into vectors for users and items.

mod eigen;
pub mod features;
mod fields;
mod formats;
mod interactions;
mod lines;
pub mod matrix;
mod names;
mod npy;
mod read;
pub mod svd;
pub mod write;

pub use formats::Format;
pub use interactions::Interactions;
pub use names::Name;
pub use read::{Options, Read, ReadError, read};

#[cfg(test)]
mod tests;
