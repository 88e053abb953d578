//! Items with the raw fields of a catalogue, such as title, tags and price: a transform makes their features, and the fields
//! are kept as the item's description, so that filters can use them.
//!
//! `title`, `tags` and `available` are those of the description. All other fields are in its data, together with the fields of
//! `data`. A transform sees all of them but `available` by their names ([`fields`]).

use sclub_features::{AVAILABLE, RawItem, Transform, id_text};
use serde_json::{Map, Value};

use crate::description::Description;
use crate::event::DescribedItem;
use crate::refusal::Refusal;

/// Makes an item of raw fields. Returns it with the names of fields that the transform does not know. They are in the item's
/// data too.
///
/// # Errors
/// A field that is missing or of another type than expected.
pub fn described(
    transform: &Transform,
    mut raw: RawItem,
) -> Result<(DescribedItem, Vec<String>), Refusal> {
    let id_column = transform.id_column().unwrap_or("id");
    let id = raw.get("id").or_else(|| raw.get(id_column));
    let Some(id) = id.and_then(id_text) else {
        let name = match id_column {
            "id" => String::new(),
            name => format!(" or '{name}'"),
        };
        let message = format!("there is no id: the field 'id'{name} must be a text");
        return Err(Refusal::invalid("id", message));
    };
    raw.remove("id");
    let (description, mut unknown) = description(Some(transform), raw)?;
    unknown.retain(|name| name != id_column);
    let features = features(transform, &id, &description)?;
    let item = DescribedItem {
        id,
        features,
        description,
    };
    Ok((item, unknown))
}

/// Makes a description of raw fields. Returns it with the names of fields that the transform does not know.
///
/// # Errors
/// As [`described`].
pub fn description(
    transform: Option<&Transform>,
    mut raw: RawItem,
) -> Result<(Description, Vec<String>), Refusal> {
    let mut data = match raw.remove("data") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(data)) => data,
        Some(other) => return Err(wrong("data", &other, "an object")),
    };
    let mut description = Description::default();
    let mut unknown = Vec::new();
    for (name, value) in raw {
        if set(&mut description, transform, &name, &value)? {
            continue;
        }
        if data.contains_key(&name) {
            let message = format!("the field '{name}' is given twice: in the item and in its data");
            return Err(Refusal::invalid(name, message));
        }
        let typed = transform.and_then(|transform| transform.typed(&name, &value));
        if typed.is_none() {
            unknown.push(name.clone());
        }
        data.insert(name, value);
    }
    set_data(&mut description, transform, data);
    Ok((description, unknown))
}

/// Sets a field of a description: `title`, `tags` or `available`. Null is the default. Returns false for other fields.
///
/// # Errors
/// If the value is of another type.
pub fn set(
    description: &mut Description,
    transform: Option<&Transform>,
    name: &str,
    value: &Value,
) -> Result<bool, Refusal> {
    match name {
        "title" => {
            description.title = match value {
                Value::Null => None,
                Value::String(title) => Some(title.clone()),
                other => return Err(wrong(name, other, "a text")),
            }
        }
        "tags" => {
            let typed = transform.and_then(|transform| transform.typed(name, value));
            description.tags = match typed.as_ref().unwrap_or(value) {
                Value::Null => Vec::new(),
                Value::String(tag) if transform.is_some() => vec![tag.clone()],
                Value::Array(tags) => {
                    let texts = tags.iter().map(|tag| tag.as_str().map(str::to_owned));
                    let texts: Option<Vec<String>> = texts.collect();
                    texts.ok_or_else(|| wrong(name, value, "a list of texts"))?
                }
                other => return Err(wrong(name, other, "a list of texts")),
            }
        }
        AVAILABLE => {
            description.is_unavailable = match value {
                Value::Null => false,
                Value::Bool(available) => !available,
                other => return Err(wrong(name, other, "true or false")),
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Sets the data. Its fields are of the types that filters need.
pub fn set_data(
    description: &mut Description,
    transform: Option<&Transform>,
    mut data: Map<String, Value>,
) {
    if let Some(transform) = transform {
        for (name, value) in &mut data {
            if let Some(typed) = transform.typed(name, value) {
                *value = typed;
            }
        }
    }
    description.data = match data.is_empty() {
        true => String::new(),
        false => Value::Object(data).to_string(),
    };
}

/// The raw fields of an item that features are made from. Availability is none of them.
pub fn fields(id: &str, description: &Description) -> RawItem {
    let mut raw = description.object().ok().flatten().unwrap_or_default();
    if let Some(title) = &description.title {
        raw.insert("title".to_owned(), Value::from(title.as_str()));
    }
    if !description.tags.is_empty() {
        raw.insert("tags".to_owned(), Value::from(description.tags.as_slice()));
    }
    raw.remove(AVAILABLE);
    raw.insert("id".to_owned(), Value::from(id));
    raw
}

/// The features of an item by its raw fields.
///
/// # Errors
/// A field of another type than the fit has seen.
pub fn features(
    transform: &Transform,
    id: &str,
    description: &Description,
) -> Result<Vec<f64>, Refusal> {
    let made = transform.apply_to(Some(id), &fields(id, description));
    made.map_err(|error| Refusal::invalid(error.column.clone(), error.to_string()))
}

/// Returns true if an item has the features that the transform makes of its raw fields.
///
/// A transform of an earlier version may have a column of availability, and features that it made then depend on it.
pub fn is_made_by(transform: &Transform, item: &DescribedItem) -> bool {
    let mut raw = fields(&item.id, &item.description);
    let makes_features = |raw: &RawItem| {
        let made = transform.apply_to(Some(&item.id), raw);
        made.is_ok_and(|made| {
            let bits = |values: &[f64]| {
                values
                    .iter()
                    .map(|value| value.to_bits())
                    .collect::<Vec<_>>()
            };
            bits(&made) == bits(&item.features)
        })
    };
    let has_availability = transform.columns().any(|(name, _)| name == AVAILABLE);
    makes_features(&raw)
        || has_availability
            && [true, false].into_iter().any(|available| {
                raw.insert(AVAILABLE.to_owned(), Value::from(available));
                makes_features(&raw)
            })
}

/// Changes the given fields of an item. Objects in its data are merged, and null removes a field (RFC 7396). If a transform made
/// the features, it makes them anew.
///
/// # Errors
/// A field that is unknown, or of another type than expected.
pub fn patched(
    transform: Option<&Transform>,
    item: DescribedItem,
    patch: &Map<String, Value>,
) -> Result<DescribedItem, Refusal> {
    // No feature is made from availability.
    let is_for_features = patch.keys().any(|name| name != AVAILABLE && name != "id");
    let maker = transform.filter(|transform| {
        is_for_features && !patch.contains_key("features") && is_made_by(transform, &item)
    });
    let mut new = item;
    let mut data = new.description.object().ok().flatten().unwrap_or_default();
    for (name, value) in patch {
        match (name.as_str(), value) {
            ("id", value) if id_text(value).as_ref() == Some(&new.id) => {}
            ("id", _) => {
                let message = "the id is that in the path and cannot be changed; put a new item";
                return Err(Refusal::invalid("id", message));
            }
            ("features", value) => new.features = numbers(value)?,
            ("data", Value::Null) => data.clear(),
            ("data", Value::Object(changes)) => merge(&mut data, changes),
            ("data", other) => return Err(wrong("data", other, "an object")),
            (name, value) => {
                if set(&mut new.description, transform, name, value)? {
                    continue;
                }
                let typed = transform.and_then(|transform| transform.typed(name, value));
                if typed.is_none() && !(transform.is_some() && data.contains_key(name)) {
                    let message = format!(
                        "unknown field '{name}'; the fields are features, title, tags, available and data, which takes \
                         fields of any name"
                    );
                    return Err(Refusal::invalid(name, message));
                }
                merge(
                    &mut data,
                    &Map::from_iter([(name.to_owned(), value.clone())]),
                );
            }
        }
    }
    set_data(&mut new.description, transform, data);
    if let Some(maker) = maker {
        new.features = features(maker, &new.id, &new.description)?;
    }
    Ok(new)
}

/// Merges changes into an object, as in RFC 7396.
fn merge(object: &mut Map<String, Value>, changes: &Map<String, Value>) {
    for (name, change) in changes {
        match change {
            Value::Null => drop(object.remove(name)),
            Value::Object(changes) => {
                let own = object.entry(name.clone()).or_insert(Value::Null);
                if !own.is_object() {
                    *own = Value::Object(Map::new());
                }
                if let Value::Object(own) = own {
                    merge(own, changes);
                }
            }
            other => drop(object.insert(name.clone(), other.clone())),
        }
    }
}

fn numbers(value: &Value) -> Result<Vec<f64>, Refusal> {
    let list = value.as_array().map(|list| list.iter().map(Value::as_f64));
    let numbers: Option<Vec<f64>> = list.and_then(Iterator::collect);
    numbers.ok_or_else(|| wrong("features", value, "a list of numbers"))
}

fn wrong(field: &str, value: &Value, expected: &str) -> Refusal {
    let shown: String = value.to_string().chars().take(40).collect();
    let message = format!("the field '{field}' is {shown}; {expected} is expected");
    Refusal::invalid(field, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sclub_features::{Options, fit};
    use serde_json::json;

    fn object(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    /// A transform as earlier versions made it, with a column of availability.
    fn transform() -> Transform {
        let items = [("a", true, 3), ("b", false, 5), ("c", true, 9)];
        let items = items.map(|(id, available, price)| {
            object(json!({"id": id, "obtaining": available, "price": price}))
        });
        let options = Options {
            dim: 3,
            ..Options::default()
        };
        let file = fit(&items, &options, None).unwrap().transform.encode();
        let file = String::from_utf8(file)
            .unwrap()
            .replace("obtaining", AVAILABLE);
        let (head, body) = file.split_once('\n').unwrap();
        let mut head = object(serde_json::from_str(head).unwrap());
        let checksum = blake3::hash(body.trim_end().as_bytes()).to_hex()[..32].to_owned();
        head.insert("checksum".to_owned(), checksum.into());
        let file = format!("{}\n{body}", Value::Object(head));
        let transform = Transform::decode(file.as_bytes()).unwrap();
        assert_eq!(transform.columns().next(), Some((AVAILABLE, "number")));
        transform
    }

    #[test]
    fn availability_is_no_feature_also_of_a_transform_that_has_a_column_of_it() {
        let transform = transform();
        let made = |available: Value| {
            let raw = object(json!({"id": "x", "price": 5, "available": available}));
            described(&transform, raw).unwrap().0
        };
        let item = made(json!(true));
        assert_eq!(made(json!(false)).features, item.features);
        let without = transform.apply(&object(json!({"price": 5}))).unwrap();
        assert_eq!(item.features, without);
        let own = object(json!({"id": "x", "price": 5, "data": {"available": true}}));
        assert_eq!(described(&transform, own).unwrap().0.features, without);
    }

    #[test]
    fn features_of_an_earlier_version_stay_when_availability_changes_and_are_made_anew_otherwise() {
        let transform = transform();
        let raw = object(json!({"id": "x", "price": 5, "available": true}));
        let features = transform.apply(&raw).unwrap();
        let item = DescribedItem {
            features: features.clone(),
            ..described(&transform, raw).unwrap().0
        };
        let anew = super::features(&transform, "x", &item.description);
        assert_ne!(anew.unwrap(), features);
        assert!(is_made_by(&transform, &item));
        let patch = |item: DescribedItem, patch: Value| {
            patched(Some(&transform), item, &object(patch)).unwrap()
        };
        let item = patch(item, json!({"available": false}));
        assert_eq!(
            (&item.features, item.description.is_unavailable),
            (&features, true)
        );
        let item = patch(item, json!({"price": 9}));
        let expected = transform.apply(&object(json!({"price": 9}))).unwrap();
        assert_eq!(item.features, expected);
    }
}
