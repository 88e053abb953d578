//! Item ids. Python's are whole numbers, strings or other plain values; the library's are numbers.

use pyo3::prelude::*;
use pyo3::types::{PyAny, PyString};
use sclub::ItemId;

use crate::errors::{are, many, wrong_type, wrong_value};
use crate::names::list_of;
use crate::plain::write_plain;

/// The number that policies know an item id by.
///
/// A whole number from 0 to 2**64 - 1 is its own number. A string has the first 8 bytes of the BLAKE3
/// hash of its UTF-8 text, read as a little-endian number: the same as in `sclub serve`. Other plain
/// values (negative and larger numbers, floats, bytes, None, tuples of such) are hashed too. The number
/// of an id never changes.
///
/// Examples
/// --------
/// >>> import sclub
/// >>> sclub.item_id(7)
/// 7
/// >>> sclub.item_id("tea") == sclub.item_id("tea") != sclub.item_id("coffee")
/// True
#[pyfunction]
pub fn item_id(id: &Bound<'_, PyAny>) -> PyResult<ItemId> {
    number_of(id, "id")
}

/// As [`item_id`], with errors that name the argument.
pub fn number_of(id: &Bound<'_, PyAny>, argument: &str) -> PyResult<ItemId> {
    if let Ok(text) = id.cast::<PyString>() {
        let text = text.to_str().map_err(|_| {
            wrong_value(
                argument,
                "a string with lone surrogates cannot be an item id",
            )
        })?;
        return Ok(first_word(text.as_bytes()));
    }
    if let Ok(number) = id.extract::<ItemId>() {
        return Ok(number);
    }
    let mut bytes = Vec::new();
    match write_plain(id, &mut bytes)? {
        true => Ok(first_word(&bytes)),
        false => Err(wrong_type(
            argument,
            format!(
                "{} cannot be an item id; use a whole number, a string, bytes, or a tuple of such",
                id.repr()?
            ),
        )),
    }
}

/// The numbers of several ids, of which there must be `expected`.
pub fn numbers_of(
    ids: &Bound<'_, PyAny>,
    argument: &str,
    expected: usize,
) -> PyResult<Vec<ItemId>> {
    let ids = list_of(ids, argument)?;
    if ids.len() != expected {
        return Err(wrong_value(
            argument,
            format!(
                "there {} for {}; give one for each item",
                are(ids.len(), "id"),
                many(expected, "item")
            ),
        ));
    }
    ids.iter().map(|id| number_of(&id, argument)).collect()
}

/// The first 8 bytes of the BLAKE3 hash, as a little-endian number.
pub fn first_word(bytes: &[u8]) -> ItemId {
    let hash = blake3::hash(bytes);
    let first = hash.as_bytes().first_chunk();
    first.map_or(0, |first| u64::from_le_bytes(*first))
}
