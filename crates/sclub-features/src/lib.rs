//! Feature vectors of items, from what a catalogue has: titles, tags, categories, prices, and who took what.
//!
//! [`fit`] looks at a whole catalogue and makes a [`Transform`]. It turns any item of the same columns into a
//! vector for the policies of `sclub`, also items that were not there at the fit. It is one small file
//! ([`Transform::encode`]).
//!
//! ```
//! use sclub_features::{Options, RawItem, fit};
//!
//! let item = |title: &str, genres: &str, price: f64| -> RawItem {
//!     let fields = serde_json::json!({"id": title, "title": title, "genres": genres, "price": price});
//!     serde_json::from_value(fields).unwrap()
//! };
//! let films = [
//!     item("Alien", "horror|space", 5.0),
//!     item("Aliens", "action|space", 7.0),
//!     item("Clue", "comedy|crime", 3.0),
//!     item("Heat", "action|crime", 9.0),
//! ];
//! let fitted = fit(&films, &Options { dim: 4, ..Options::default() }, None)?;
//! let vector = fitted.transform.apply(&item("Alien 3", "horror|space", 6.0))?;
//! assert_eq!(vector.len(), 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | step | file |
//! |---|---|
//! | the kind of each column, guessed or given | `kinds`, `hints` |
//! | the number in a text | `numbers` |
//! | an item becomes a sparse row: hashed n-grams by TF-IDF, tags, numbers | `grams`, `encode` |
//! | rows become vectors: by a truncated SVD of all rows or, if it is known who took what, by a ridge regression to the vectors of a truncated SVD of that | `fit`, `ridge` |
//! | the vector of an item | `transform` |
//! | the file | `file` |
//!
//! [`description`] and [`filter`] are what the service shows of an item beside its vector, and the conditions on it in requests.
//!
//! Everything runs in one order on one thread: the same catalogue gives the same bits.

pub mod description;
mod eigen;
mod encode;
mod file;
pub mod filter;
mod fit;
mod grams;
mod hints;
mod kinds;
pub mod matrix;
mod numbers;
mod ridge;
pub mod svd;
mod transform;

pub use file::{FileError, VERSION};
pub use fit::{
    FitError, Fitted, LeftOut, MIN_TAKERS, Part, Report, TakenReport, bad_items, blend, fit,
    fit_watched,
};
pub use hints::Hint;
pub use kinds::{Kind, Options, id_column};
pub use matrix::{Matrix, Sparse};
pub use numbers::NumberFormat;
pub use transform::{ItemError, Transform, id_text, whole_text};

/// An item as a catalogue has it: its fields by name.
pub type RawItem = serde_json::Map<String, serde_json::Value>;

/// The field that says whether an item can be shown. No feature is made from it.
pub const AVAILABLE: &str = "available";

/// The minimum and maximum number of features, the constant one included.
pub const DIMS: std::ops::RangeInclusive<usize> = 2..=512;

#[cfg(test)]
mod tests;
