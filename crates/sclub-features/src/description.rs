//! Descriptions of items: title, tags, availability and any JSON. They are for filters and for display; a policy does
//! not see them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The maximum length of the JSON of an item, in bytes.
pub const MAX_DATA: usize = 16 << 10;
/// The maximum length of a title, in characters.
pub const MAX_TITLE: usize = 1024;
/// The maximum number of tags of an item.
pub const MAX_TAGS: usize = 256;
/// The maximum length of a tag, in characters.
pub const MAX_TAG: usize = 256;

/// The names in a filter that are not fields of [`Description::data`].
pub const RESERVED: [&str; 2] = ["id", "tags"];

/// The description of an item.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Description {
    /// The title.
    pub title: Option<String>,
    /// The tags.
    pub tags: Vec<String>,
    /// True if the item must not be shown.
    pub is_unavailable: bool,
    /// A JSON object as text; empty if there is none.
    pub data: String,
}

impl Description {
    /// Returns true if nothing is described.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The length in bytes, about.
    pub fn len(&self) -> usize {
        let tags: usize = self.tags.iter().map(|tag| tag.len() + 2).sum();
        self.title.as_ref().map_or(0, String::len) + tags + self.data.len()
    }

    /// The JSON object, if there is one.
    ///
    /// # Errors
    /// If the text is not a JSON object.
    pub fn object(&self) -> Result<Option<Map<String, Value>>, serde_json::Error> {
        match self.data.is_empty() {
            true => Ok(None),
            false => serde_json::from_str(&self.data).map(Some),
        }
    }

    /// Checks sizes and the JSON object.
    ///
    /// # Errors
    /// The field, and what is wrong with it.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let too_long = |field, what: &str, length: usize, unit: &str, max: usize| {
            let message = format!("{what} has {length} {unit}; at most {max} are allowed");
            Err((field, message))
        };
        let title = self.title.as_ref().map_or(0, |title| title.chars().count());
        if title > MAX_TITLE {
            return too_long("title", "the title", title, "characters", MAX_TITLE);
        }
        if self.tags.len() > MAX_TAGS {
            let count = self.tags.len();
            let message = format!("there are {count} tags; at most {MAX_TAGS} are allowed");
            return Err(("tags", message));
        }
        let mut tags = self.tags.iter().map(|tag| tag.chars().count());
        if let Some(tag) = tags.find(|&length| length > MAX_TAG) {
            return too_long("tags", "a tag", tag, "characters", MAX_TAG);
        }
        if self.data.len() > MAX_DATA {
            return too_long("data", "data", self.data.len(), "bytes", MAX_DATA);
        }
        let object = self
            .object()
            .map_err(|_| ("data", "data must be an object".to_owned()))?;
        let reserved = |name: &&&str| {
            object
                .as_ref()
                .is_some_and(|data| data.contains_key(**name))
        };
        match RESERVED.iter().find(reserved) {
            Some(name) => Err((
                "data",
                format!(
                    "data cannot have a field '{name}': in a filter this name is the item's own"
                ),
            )),
            None => Ok(()),
        }
    }
}

/// What filters compare: hashes of (field, value), and numbers by hash of the field.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// In rising order.
    pub terms: Box<[u64]>,
    /// In rising order.
    pub numbers: Box<[(u64, f64)]>,
    /// False if the item must not be shown.
    pub is_available: bool,
}

impl Facts {
    /// The facts of a described item.
    pub fn new(id: &str, description: &Description) -> Self {
        let mut terms = vec![term("id", &Value::from(id)).expect("a string")];
        let mut numbers = Vec::new();
        let tags = description.tags.iter();
        terms.extend(tags.filter_map(|tag| term("tags", &Value::from(tag.as_str()))));
        let data = description.object().ok().flatten().unwrap_or_default();
        for (field, value) in &data {
            match value {
                Value::Array(values) => {
                    terms.extend(values.iter().filter_map(|value| term(field, value)));
                }
                value => terms.extend(term(field, value)),
            }
            if let Some(number) = value.as_f64() {
                numbers.push((field_hash(field), number));
            }
        }
        terms.sort_unstable();
        terms.dedup();
        numbers.sort_unstable_by_key(|&(field, _)| field);
        Self {
            terms: terms.into(),
            numbers: numbers.into(),
            is_available: !description.is_unavailable,
        }
    }

    /// The number in a field.
    pub fn number(&self, field: u64) -> Option<f64> {
        let place = self
            .numbers
            .binary_search_by_key(&field, |&(field, _)| field);
        place.ok().map(|place| self.numbers[place].1)
    }
}

/// The first 8 bytes of a hash.
fn first_word(hash: &blake3::Hash) -> u64 {
    let first = hash.as_bytes().first_chunk();
    u64::from_le_bytes(*first.expect("a hash is longer"))
}

/// The hash of a field.
pub fn field_hash(field: &str) -> u64 {
    first_word(&blake3::hash(field.as_bytes()))
}

/// The hash of a value in a field; `None` if values of its kind cannot be compared. A number is the same value however it
/// is written.
pub fn term(field: &str, value: &Value) -> Option<u64> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(field.len() as u64).to_le_bytes());
    hasher.update(field.as_bytes());
    match value {
        Value::String(text) => hasher.update(b"s").update(text.as_bytes()),
        // 0 and -0 are equal.
        Value::Number(number) => {
            let number = number.as_f64()? + 0.0;
            hasher.update(b"n").update(&number.to_bits().to_le_bytes())
        }
        Value::Bool(flag) => hasher.update(&[b'b', u8::from(*flag)]),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    Some(first_word(&hasher.finalize()))
}
