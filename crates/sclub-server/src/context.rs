//! Context features of a request (time, device, page): which ones a folder has, and how values that are
//! given by name become numbers.
//!
//! A feature is declared as `hour` (a number) or as `device=phone|tablet` (a category: one number for
//! each value, 1 for the one that is given and 0 for the others). A feature that a request does not give
//! is 0 throughout.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use sclub::{ContextMode, MAX_DIM, MAX_MAGNITUDE};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use crate::identity::Misfit;
use crate::refusal::Refusal;

/// The longest name of a feature or of a category's value, in bytes.
const MAX_NAME: usize = 64;

/// The context features of a folder. With no features, requests have no context.
#[derive(Debug, Clone, PartialEq)]
pub struct Context {
    features: Vec<Feature>,
    mode: ContextMode,
}

/// A context feature.
#[derive(Debug, Clone, PartialEq)]
struct Feature {
    name: String,
    /// The values of a category; empty for a number.
    values: Vec<String>,
}

/// The value of a context feature in a request: a number, true or false, or a value of a category.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "a number, true, false or a string is expected")]
pub enum ContextValue {
    /// A number.
    Number(f64),
    /// 1 if true, 0 if false.
    Flag(bool),
    /// A value of a category.
    Text(String),
    /// `null`, as if it were left out.
    Unset,
}

/// The context of a request: values by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GivenContext {
    values: BTreeMap<String, ContextValue>,
    /// A name that was given twice.
    duplicate: Option<String>,
}

impl GivenContext {
    /// The values.
    ///
    /// # Errors
    /// [`Refusal`] if a name was given twice.
    pub fn values(&self) -> Result<&BTreeMap<String, ContextValue>, Refusal> {
        match &self.duplicate {
            None => Ok(&self.values),
            Some(name) => {
                let message = "it is given twice; give each context feature once";
                Err(Refusal::invalid(format!("context.{name}"), message))
            }
        }
    }
}

impl<'de> Deserialize<'de> for GivenContext {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Names;

        impl<'de> Visitor<'de> for Names {
            type Value = GivenContext;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<GivenContext, M::Error> {
                let mut given = GivenContext::default();
                while let Some((name, value)) = map.next_entry::<String, ContextValue>()? {
                    match given.values.entry(name) {
                        Entry::Vacant(entry) => {
                            entry.insert(value);
                        }
                        Entry::Occupied(entry) => given.duplicate = Some(entry.key().clone()),
                    }
                }
                Ok(given)
            }
        }

        from.deserialize_map(Names)
    }
}

impl Default for Context {
    fn default() -> Self {
        Self {
            features: Vec::new(),
            mode: ContextMode::Cross,
        }
    }
}

impl Context {
    /// Context features from their declarations.
    ///
    /// # Errors
    /// [`Misfit`] if a declaration is malformed, or a name or value is declared twice.
    pub fn new(declarations: &[String], mode: ContextMode) -> Result<Self, Misfit> {
        let mut context = Self {
            features: Vec::with_capacity(declarations.len()),
            mode,
        };
        for text in declarations {
            let feature = Feature::parse(text)
                .map_err(|why| Misfit(format!("context '{text}' is invalid: {why}")))?;
            if context.find(&feature.name).is_some() {
                let name = &feature.name;
                return Err(Misfit(format!("context '{name}' is declared twice")));
            }
            context.features.push(feature);
        }
        if context.len() > MAX_DIM {
            let len = context.len();
            return Err(Misfit(format!(
                "the context has {len} numbers; the maximum is {MAX_DIM}"
            )));
        }
        Ok(context)
    }

    /// The declarations of the features, as [`Context::new`] takes them.
    pub fn declarations(&self) -> Vec<String> {
        let declarations = self.features.iter().map(|feature| match &*feature.values {
            [] => feature.name.clone(),
            values => format!("{}={}", feature.name, values.join("|")),
        });
        declarations.collect()
    }

    /// The mode in which the features are joined with those of an item.
    pub fn mode(&self) -> ContextMode {
        self.mode
    }

    /// The number of numbers that a context is encoded as.
    pub fn len(&self) -> usize {
        self.features.iter().map(Feature::len).sum()
    }

    /// True if the folder has no context features.
    pub fn is_empty(&self) -> bool {
        self.features.is_empty()
    }

    /// The number of features that a policy sees, for items of `item` features.
    pub fn policy_dim(&self, item: usize) -> usize {
        self.mode.dim(item, self.len())
    }

    /// The features that a policy sees. `features` are an item's, then an encoded context.
    pub fn join<'a>(&self, features: &'a [f64]) -> Cow<'a, [f64]> {
        if self.is_empty() {
            return Cow::Borrowed(features);
        }
        let (item, context) = self.split(features);
        self.join_parts(item, context)
    }

    /// Like [`Context::join`], for features of an item and an encoded context that are apart.
    pub fn join_parts<'a>(&self, item: &'a [f64], context: &[f64]) -> Cow<'a, [f64]> {
        match self.is_empty() {
            true => Cow::Borrowed(item),
            false => Cow::Owned(self.mode.join(item, context)),
        }
    }

    /// Splits an item's features, followed by an encoded context, into the two.
    pub fn split<'a>(&self, features: &'a [f64]) -> (&'a [f64], &'a [f64]) {
        features.split_at(features.len().saturating_sub(self.len()))
    }

    /// Encodes the values of a request.
    ///
    /// # Errors
    /// [`Refusal`] if a name is unknown or a value is invalid.
    pub fn encode(&self, given: &BTreeMap<String, ContextValue>) -> Result<Vec<f64>, Refusal> {
        let mut encoded = vec![0.0; self.len()];
        for (name, value) in given {
            let Some((start, feature)) = self.find(name) else {
                return Err(self.unknown(name));
            };
            let refuse = |why: String| Refusal::invalid(format!("context.{name}"), why);
            match (value, &*feature.values) {
                (ContextValue::Unset, _) => {}
                (ContextValue::Number(number), []) if number.abs() <= MAX_MAGNITUDE => {
                    encoded[start] = *number;
                }
                (ContextValue::Number(number), []) => {
                    return Err(refuse(format!(
                        "{number} is too large; the maximum is {MAX_MAGNITUDE:e} in magnitude"
                    )));
                }
                (ContextValue::Flag(flag), []) => encoded[start] = f64::from(u8::from(*flag)),
                (ContextValue::Text(text), []) => {
                    return Err(refuse(format!("'{text}' is not a number")));
                }
                (ContextValue::Text(text), values) if values.contains(text) => {
                    let place = values.iter().position(|value| value == text);
                    encoded[start + place.unwrap_or(0)] = 1.0;
                }
                (value, values) => {
                    return Err(refuse(format!(
                        "{value} is unknown; it must be one of {}",
                        values.join(", ")
                    )));
                }
            }
        }
        Ok(encoded)
    }

    /// The JSON schema of the values that [`Context::encode`] takes.
    pub fn schema(&self) -> serde_json::Value {
        let features = self.features.iter().map(|feature| {
            let schema = match &*feature.values {
                [] => json!({
                    "type": ["number", "boolean", "null"],
                    "minimum": -MAX_MAGNITUDE,
                    "maximum": MAX_MAGNITUDE
                }),
                values => {
                    let values = values.iter().map(|value| json!(value));
                    json!({"enum": values.chain([json!(null)]).collect::<Vec<_>>()})
                }
            };
            (feature.name.clone(), schema)
        });
        let features: serde_json::Map<_, _> = features.collect();
        json!({"type": ["object", "null"], "additionalProperties": false, "properties": features})
    }

    /// An example of a context.
    pub fn example(&self) -> serde_json::Value {
        let features = self.features.iter();
        let values = features.map(|feature| match &*feature.values {
            [] => (feature.name.clone(), json!(0.75)),
            values => (feature.name.clone(), json!(values[0])),
        });
        values.collect::<serde_json::Map<_, _>>().into()
    }

    /// The values that an encoded context stands for. Features that are 0 throughout are left out.
    pub fn decode(&self, encoded: &[f64]) -> BTreeMap<&str, ContextValue> {
        let mut rest = encoded;
        let mut values = BTreeMap::new();
        for feature in &self.features {
            let Some((own, others)) = rest.split_at_checked(feature.len()) else {
                break;
            };
            rest = others;
            let value = match &*feature.values {
                [] => (own[0] != 0.0).then_some(ContextValue::Number(own[0])),
                values => {
                    let place = own.iter().position(|&number| number != 0.0);
                    place.map(|place| ContextValue::Text(values[place].clone()))
                }
            };
            if let Some(value) = value {
                values.insert(&*feature.name, value);
            }
        }
        values
    }

    /// A feature, and the place of its first number.
    fn find(&self, name: &str) -> Option<(usize, &Feature)> {
        let mut start = 0;
        for feature in &self.features {
            if feature.name == name {
                return Some((start, feature));
            }
            start += feature.len();
        }
        None
    }

    fn unknown(&self, name: &str) -> Refusal {
        let message = if self.is_empty() {
            "this server has no context features; start a new data folder with --context".to_owned()
        } else {
            let known: Vec<&str> = self.features.iter().map(|f| f.name.as_str()).collect();
            format!(
                "unknown context feature '{name}'; use one of {}",
                known.join(", ")
            )
        };
        Refusal::invalid("context", message)
    }
}

impl Feature {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, values) = match text.split_once('=') {
            None => (text, Vec::new()),
            Some((name, values)) => (name, values.split('|').map(str::trim).collect()),
        };
        let name = name.trim();
        for word in std::iter::once(&name).chain(&values) {
            if word.is_empty() || word.len() > MAX_NAME {
                return Err(format!("'{word}' must have from 1 to {MAX_NAME} bytes"));
            }
            let is_plain = |c: char| c.is_alphanumeric() || "_-.: ".contains(c);
            if let Some(c) = word.chars().find(|&c| !is_plain(c)) {
                return Err(format!(
                    "'{word}' contains {c:?}; use letters, digits, spaces and _ - . :"
                ));
            }
        }
        let mut seen = std::collections::HashSet::new();
        if let Some(twice) = values.iter().find(|value| !seen.insert(**value)) {
            return Err(format!("'{twice}' is given twice"));
        }
        Ok(Self {
            name: name.to_owned(),
            values: values.into_iter().map(str::to_owned).collect(),
        })
    }

    /// The number of numbers that it is encoded as.
    fn len(&self) -> usize {
        self.values.len().max(1)
    }
}

impl std::fmt::Display for ContextValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ContextValue::Number(number) => number.fmt(f),
            ContextValue::Flag(flag) => flag.fmt(f),
            ContextValue::Text(text) => write!(f, "'{text}'"),
            ContextValue::Unset => f.write_str("null"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(declarations: &[&str]) -> Result<Context, Misfit> {
        let declarations: Vec<String> = declarations.iter().map(|&d| d.to_owned()).collect();
        Context::new(&declarations, ContextMode::Cross)
    }

    fn given(json: &str) -> BTreeMap<String, ContextValue> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn values_become_numbers_and_come_back() {
        let context = context(&["hour", "device=phone|tablet|tv", "member"]).unwrap();
        assert_eq!(context.len(), 5);
        let encode = |json: &str| context.encode(&given(json)).unwrap();
        assert_eq!(encode("{}"), [0.0; 5]);
        assert_eq!(encode(r#"{"device": null, "hour": null}"#), [0.0; 5]);
        let some = encode(r#"{"device": "tablet", "hour": 0.25, "member": true}"#);
        assert_eq!(some, [0.25, 0.0, 1.0, 0.0, 1.0]);
        let back = serde_json::to_string(&context.decode(&some)).unwrap();
        assert_eq!(back, r#"{"device":"tablet","hour":0.25,"member":1.0}"#);
        assert!(context.decode(&[0.0; 5]).is_empty());
        assert_eq!(context.split(&[7.0, 1.0, 2.0, 3.0, 4.0, 5.0]).0, [7.0]);
        let again = Context::new(&context.declarations(), ContextMode::Cross);
        assert_eq!(again, Ok(context));
    }

    #[test]
    fn a_name_that_is_given_twice_is_refused() {
        let given = |json: &str| serde_json::from_str::<GivenContext>(json);
        let once = given(r#"{"hour": 1, "day": 2}"#).unwrap();
        let names: Vec<&String> = once.values().unwrap().keys().collect();
        assert_eq!(names, ["day", "hour"]);
        let twice = given(r#"{"hour": 1, "day": 2, "hour": 1}"#).unwrap();
        let Err(Refusal::Invalid { field, .. }) = twice.values() else {
            panic!("{twice:?}");
        };
        assert_eq!(field, "context.hour");
        assert!(given("[1]").is_err() && given("1").is_err());
    }

    #[test]
    fn invalid_values_are_refused_by_name() {
        let context = context(&["hour", "device=phone|tablet"]).unwrap();
        for (json, part) in [
            (r#"{"moon": 1}"#, "use one of hour, device"),
            (
                r#"{"device": "car"}"#,
                "'car' is unknown; it must be one of phone, tablet",
            ),
            (r#"{"device": 1}"#, "1 is unknown"),
            (r#"{"hour": "late"}"#, "'late' is not a number"),
            (r#"{"hour": 1e300}"#, "too large"),
        ] {
            let refusal = context.encode(&given(json)).unwrap_err().to_string();
            assert!(refusal.contains(part), "{refusal}");
        }
        let none = Context::default().encode(&given(r#"{"hour": 1}"#));
        assert!(none.unwrap_err().to_string().contains("--context"));
    }

    #[test]
    fn invalid_declarations_are_refused() {
        let many = format!(
            "x={}",
            (0..5000)
                .map(|n| n.to_string())
                .collect::<Vec<_>>()
                .join("|")
        );
        for bad in [
            &["hour", "hour"][..],
            &[""],
            &["device="],
            &["device=a|a"],
            &["device=a||b"],
            &["a\"b"],
            &[&"x".repeat(65)],
            &[&many],
        ] {
            assert!(context(bad).is_err(), "{bad:?}");
        }
    }
}
