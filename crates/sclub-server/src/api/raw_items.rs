//! Items that are sent with their raw fields, such as title, tags and price: the folder's transform makes their features.

use std::borrow::Cow;

use sclub_features::{RawItem, Transform, id_text};
use serde_json::Value;

use super::plain;
use crate::edge::ApiError;
use crate::edge::body::Line;

/// The fields that an item has beside its features.
const FIELDS: [&str; 1] = ["id"];

/// A line with features: the line itself if it has some, or if the folder has no transform.
pub(super) fn with_features<'a>(
    transform: Option<&Transform>,
    line: &'a Line,
) -> Result<Cow<'a, Line>, ApiError> {
    let Some(transform) = transform else {
        return Ok(Cow::Borrowed(line));
    };
    let number = line.number;
    // What is not an object is refused with the message for all lines.
    let Ok(mut item) = serde_json::from_slice::<RawItem>(&line.bytes) else {
        return Ok(Cow::Borrowed(line));
    };
    if item.contains_key("features") {
        return Ok(Cow::Borrowed(line));
    }
    let id = item.get("id").and_then(id_text);
    let features = transform.apply_to(id.as_deref(), &item).map_err(|error| {
        ApiError::invalid(
            error.column.clone(),
            plain(&format!("line {number}: {error}")),
        )
    })?;
    item.retain(|name, _| FIELDS.contains(&name.as_str()));
    if let Some(id) = id {
        item.insert("id".to_owned(), Value::from(id));
    }
    item.insert("features".to_owned(), Value::from(features));
    let bytes = serde_json::to_vec(&item).expect("plain data");
    Ok(Cow::Owned(Line {
        number,
        bytes: bytes.into(),
    }))
}
