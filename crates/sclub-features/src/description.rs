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

/// The facts of an item that filters compare.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// One for each field.
    pub fields: Vec<Fact>,
    /// False if the item must not be shown.
    pub is_available: bool,
}

/// A field of an item.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// The hash of the field.
    pub field: u64,
    /// The hashes of its values.
    pub terms: Vec<u64>,
    /// Its value, if it is a number.
    pub number: Option<Number>,
}

impl Facts {
    /// The facts of a described item. Title and availability are fields unless the JSON has fields of these names.
    pub fn new(id: &str, description: &Description) -> Self {
        let mut data = description.object().ok().flatten().unwrap_or_default();
        data.insert("id".to_owned(), id.into());
        if !description.tags.is_empty() {
            data.insert("tags".to_owned(), description.tags.clone().into());
        }
        if let Some(title) = &description.title {
            data.entry("title").or_insert_with(|| title.clone().into());
        }
        let is_available = !description.is_unavailable;
        data.entry("available").or_insert(is_available.into());
        let fields = data.iter().filter_map(|(field, value)| {
            let values = match value {
                Value::Array(values) => values,
                value => std::slice::from_ref(value),
            };
            let mut terms: Vec<u64> = values.iter().filter_map(|v| term(field, v)).collect();
            terms.sort_unstable();
            terms.dedup();
            (!terms.is_empty()).then(|| Fact {
                field: field_hash(field),
                terms,
                number: value.as_number().and_then(Number::new),
            })
        });
        Self {
            fields: fields.collect(),
            is_available,
        }
    }
}

/// A number of JSON. Whole numbers of 64 bits are exact, so that they are compared as they are written.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Number {
    /// The nearest floating-point number.
    pub rounded: f64,
    /// The number less the rounded one. Rounding keeps the order, so it is compared second.
    pub rest: i16,
}

impl Number {
    /// The least of all.
    pub const MIN: Self = Self {
        rounded: f64::NEG_INFINITY,
        rest: 0,
    };
    /// The greatest of all.
    pub const MAX: Self = Self {
        rounded: f64::INFINITY,
        rest: 0,
    };

    /// A number of JSON; `None` if it is too large for a floating-point number.
    pub fn new(number: &serde_json::Number) -> Option<Self> {
        let whole = number.as_i64().map(i128::from);
        let Some(whole) = whole.or_else(|| number.as_u64().map(i128::from)) else {
            // 0 and -0 are equal.
            let rounded = number.as_f64()? + 0.0;
            return Some(Self { rounded, rest: 0 });
        };
        let rounded = whole as f64;
        let rest = whole - rounded as i128;
        let rest = i16::try_from(rest).expect("at most 1024 below 2^64");
        Some(Self { rounded, rest })
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

/// The hash of a value in a field, which is never 0; `None` if values of its kind cannot be compared. A number is the same
/// value however it is written.
pub fn term(field: &str, value: &Value) -> Option<u64> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(field.len() as u64).to_le_bytes());
    hasher.update(field.as_bytes());
    match value {
        Value::String(text) => hasher.update(b"s").update(text.as_bytes()),
        Value::Number(number) => {
            let number = Number::new(number)?;
            hasher
                .update(b"n")
                .update(&number.rounded.to_bits().to_le_bytes());
            hasher.update(&number.rest.to_le_bytes())
        }
        Value::Bool(flag) => hasher.update(&[b'b', u8::from(*flag)]),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    Some(first_word(&hasher.finalize()).max(1))
}
