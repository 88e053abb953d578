//! Items with the raw fields of a catalogue, such as title, tags and price: a transform makes their features, and the fields
//! are kept as the item's description, so that filters can use them.
//!
//! `title`, `tags` and `available` are those of the description. All other fields are in its data, together with the fields of
//! `data`. A transform sees all of them by their names ([`fields`]).

use sclub_features::{RawItem, Transform, id_text};
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
        "available" => {
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

/// The raw fields of an item.
pub fn fields(id: &str, description: &Description) -> RawItem {
    let mut raw = description.object().ok().flatten().unwrap_or_default();
    if let Some(title) = &description.title {
        raw.insert("title".to_owned(), Value::from(title.as_str()));
    }
    if !description.tags.is_empty() {
        raw.insert("tags".to_owned(), Value::from(description.tags.as_slice()));
    }
    let available = Value::from(!description.is_unavailable);
    raw.insert("available".to_owned(), available);
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
pub fn is_made_by(transform: &Transform, item: &DescribedItem) -> bool {
    let made = features(transform, &item.id, &item.description);
    made.is_ok_and(|made| {
        let bits = |values: &[f64]| {
            values
                .iter()
                .map(|value| value.to_bits())
                .collect::<Vec<_>>()
        };
        bits(&made) == bits(&item.features)
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
    let maker = transform
        .filter(|transform| !patch.contains_key("features") && is_made_by(transform, &item));
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
