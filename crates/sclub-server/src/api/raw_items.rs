//! Items that are sent with their raw fields, such as title, tags and price: the folder's transform makes their features.

use std::borrow::Cow;
use std::collections::BTreeSet;

use sclub_features::{AVAILABLE, RawItem, Transform};
use serde_json::Value;

use super::items::card_of;
use super::plain;
use crate::edge::ApiError;
use crate::edge::body::Line;
use crate::engine::Refusal;
use crate::event::DescribedItem;
use crate::raw;

/// A line with features: the line itself if it has some, or if the folder has no transform. Fields that the transform does not
/// know are added to `unknown`.
pub(super) fn with_features<'a>(
    transform: Option<&Transform>,
    line: &'a Line,
    unknown: &mut BTreeSet<String>,
) -> Result<Cow<'a, Line>, ApiError> {
    let Some(transform) = transform else {
        return Ok(Cow::Borrowed(line));
    };
    // What is not an object is refused with the message for all lines.
    let Ok(raw) = serde_json::from_slice::<RawItem>(&line.bytes) else {
        return Ok(Cow::Borrowed(line));
    };
    if raw.contains_key("features") {
        return Ok(Cow::Borrowed(line));
    }
    let number = line.number;
    let (item, fields) = made(transform, raw).map_err(|refusal| {
        let mut error = ApiError::from(refusal);
        error.message = plain(&format!("line {number}: {}", error.message));
        error
    })?;
    unknown.extend(fields);
    let bytes = serde_json::to_vec(&card_of(item)).expect("plain data");
    Ok(Cow::Owned(Line {
        number,
        bytes: bytes.into(),
    }))
}

fn made(transform: &Transform, raw: RawItem) -> Result<(DescribedItem, Vec<String>), Refusal> {
    let data = raw.get("data").and_then(Value::as_object);
    let has =
        |name: &str| raw.contains_key(name) || data.is_some_and(|data| data.contains_key(name));
    let columns = || {
        let names = transform.columns().map(|(name, _)| name);
        names.filter(|name| *name != AVAILABLE)
    };
    let says_something = columns().any(has);
    let (item, unknown) = raw::described(transform, raw.clone())?;
    if says_something || transform.is_known(&item.id) {
        return Ok((item, unknown));
    }
    let columns: Vec<&str> = columns().collect();
    let message = format!(
        "the item has neither features nor a field that they are made from ({}); a PUT replaces the whole item, and PATCH \
         /v1/items/ID changes some of its fields",
        columns.join(", ")
    );
    Err(Refusal::invalid("features", message))
}
