//! Filters of a request: conditions on the id, the tags and the JSON of items.
//!
//! | condition on a field | an item passes if |
//! |---|---|
//! | `"x"`, `3`, `true` | the value is this one, or a list with it |
//! | `["x", "y"]`, `{"any": […]}` | at least one of these values is there |
//! | `{"all": […]}` | all of these values are there |
//! | `{"none": […]}` | none of these values is there |
//! | `{"min": 1, "max": 5}` | the value is a number from 1 to 5; each can be left out |
//!
//! All conditions must hold. An item without the field passes `none` only.

use crate::id_text;
use serde_json::{Map, Value};

use crate::description::{Facts, field_hash, term};

/// The maximum number of values in a filter.
pub const MAX_VALUES: usize = 10_000;
/// The maximum number of conditions in a filter.
pub const MAX_CONDITIONS: usize = 64;
/// The number of values up to which they are compared one by one.
const FEW: usize = 8;

/// A filter that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct FilterError {
    /// The field of the request.
    pub field: String,
    /// The reason.
    pub message: String,
}

impl FilterError {
    fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
        }
    }
}

/// A filter that is ready to be applied.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    conditions: Vec<Condition>,
    /// The filter in JSON, for the journal.
    pub text: String,
}

#[derive(Debug, Clone, PartialEq)]
enum Condition {
    /// Hashes of values, in rising order.
    Any(Vec<u64>),
    All(Vec<u64>),
    None(Vec<u64>),
    Between {
        field: u64,
        min: f64,
        max: f64,
    },
}

impl Filter {
    /// Parses a filter.
    ///
    /// # Errors
    /// Names the field that is invalid.
    pub fn parse(filter: &Map<String, Value>) -> Result<Self, FilterError> {
        let mut conditions = Vec::new();
        let mut values = 0;
        for (field, value) in filter {
            let at = format!("filter.{field}");
            match value {
                Value::Object(parts) => {
                    if parts.is_empty() {
                        return Err(FilterError::new(at, EXPECTED));
                    }
                    parse_parts(field, parts, &at, &mut conditions, &mut values)?;
                }
                Value::Array(list) => {
                    conditions.push(Condition::Any(terms(field, list, &at, &mut values)?));
                }
                value => {
                    let list = std::slice::from_ref(value);
                    conditions.push(Condition::Any(terms(field, list, &at, &mut values)?));
                }
            }
            if conditions.len() > MAX_CONDITIONS || values > MAX_VALUES {
                let message = format!(
                    "the filter is too long; at most {MAX_CONDITIONS} conditions and {MAX_VALUES} values are allowed"
                );
                return Err(FilterError::new("filter", message));
            }
        }
        let text = serde_json::to_string(filter).unwrap_or_default();
        Ok(Self { conditions, text })
    }

    /// Returns true if an item passes. Availability is not looked at.
    pub fn passes(&self, facts: &Facts) -> bool {
        self.conditions.iter().all(|condition| match condition {
            Condition::Any(values) => has_any(&facts.terms, values),
            Condition::None(values) => !has_any(&facts.terms, values),
            Condition::All(values) => values
                .iter()
                .all(|value| facts.terms.binary_search(value).is_ok()),
            Condition::Between { field, min, max } => facts
                .number(*field)
                .is_some_and(|number| (*min..=*max).contains(&number)),
        })
    }
}

const EXPECTED: &str =
    "must be a value, a list of values, or an object with any, all, none, min or max";

fn parse_parts(
    field: &str,
    parts: &Map<String, Value>,
    at: &str,
    conditions: &mut Vec<Condition>,
    values: &mut usize,
) -> Result<(), FilterError> {
    let (mut min, mut max) = (f64::NEG_INFINITY, f64::INFINITY);
    for (name, value) in parts {
        let at = format!("{at}.{name}");
        let mut list = || match value {
            Value::Array(list) => terms(field, list, &at, values),
            _ => Err(FilterError::new(&*at, "must be a list of values")),
        };
        let number = || {
            let number = value.as_f64();
            number.ok_or_else(|| FilterError::new(&*at, "must be a number"))
        };
        match name.as_str() {
            "any" => conditions.push(Condition::Any(list()?)),
            "all" => conditions.push(Condition::All(list()?)),
            "none" => conditions.push(Condition::None(list()?)),
            "min" => min = number()?,
            "max" => max = number()?,
            _ => {
                return Err(FilterError::new(
                    at,
                    "unknown; a condition has any, all, none, min or max",
                ));
            }
        }
    }
    if parts.contains_key("min") || parts.contains_key("max") {
        let field = field_hash(field);
        conditions.push(Condition::Between { field, min, max });
    }
    Ok(())
}

/// The hashes of values, in rising order.
fn terms(
    field: &str,
    list: &[Value],
    at: &str,
    count: &mut usize,
) -> Result<Vec<u64>, FilterError> {
    *count += list.len();
    let mut hashes = Vec::with_capacity(list.len());
    for value in list {
        let message = "a value must be a string, a number, true or false";
        // A whole number is the id of its digits.
        let id = match value {
            Value::Number(_) if field == "id" => id_text(value).map(Value::from),
            _ => None,
        };
        let hash = term(field, id.as_ref().unwrap_or(value))
            .ok_or_else(|| FilterError::new(at, message))?;
        hashes.push(hash);
    }
    hashes.sort_unstable();
    hashes.dedup();
    Ok(hashes)
}

/// Returns true if a value is in both lists, which are in rising order.
fn has_any(own: &[u64], values: &[u64]) -> bool {
    match values.len() <= FEW {
        true => own.iter().any(|term| values.contains(term)),
        false => own.iter().any(|term| values.binary_search(term).is_ok()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::description::Description;

    fn facts() -> Facts {
        let data = json!({"price": 12.5, "brand": "acme", "sizes": [38, 40], "sale": true, "deep": {"a": 1}});
        let description = Description {
            title: Some("A red shoe".to_owned()),
            tags: vec!["shoe".to_owned(), "red".to_owned()],
            is_unavailable: false,
            data: data.to_string(),
        };
        Facts::new("i1", &description)
    }

    fn passes(filter: Value) -> bool {
        let filter = Filter::parse(filter.as_object().unwrap()).unwrap();
        filter.passes(&facts())
    }

    #[test]
    fn conditions_hold_as_described() {
        for passing in [
            json!({}),
            json!({"tags": {"any": ["blue", "red"]}}),
            json!({"tags": {"all": ["shoe", "red"]}}),
            json!({"tags": {"none": ["blue"]}}),
            json!({"tags": {"any": ["red"], "none": ["blue"]}, "price": {"max": 12.5}}),
            json!({"tags": "red"}),
            json!({"tags": ["blue", "red"]}),
            json!({"id": ["i1", "i2"]}),
            json!({"id": {"none": ["i2"]}}),
            json!({"price": {"min": 12.5, "max": 13}}),
            json!({"price": 12.50}),
            json!({"brand": {"any": ["acme"]}}),
            json!({"sizes": 40.0}),
            json!({"sizes": {"all": [38, 40]}}),
            json!({"sale": true}),
            json!({"missing": {"none": ["x"]}}),
            json!({"tags": {"all": []}}),
        ] {
            assert!(passes(passing.clone()), "{passing}");
        }
        for failing in [
            json!({"tags": {"any": ["blue"]}}),
            json!({"tags": {"any": []}}),
            json!({"tags": {"all": ["shoe", "blue"]}}),
            json!({"tags": {"none": ["red"]}}),
            json!({"tags": {"any": ["red"]}, "price": {"max": 12.4}}),
            json!({"id": "i2"}),
            json!({"price": {"min": 12.6}}),
            json!({"price": "12.5"}),
            json!({"brand": "Acme"}),
            json!({"sizes": {"min": 1}}),
            json!({"sale": false}),
            json!({"missing": 1}),
            json!({"missing": {"min": 0}}),
            json!({"title": "A red shoe"}),
            json!({"deep": 1}),
            // A value of another field.
            json!({"brand": "shoe"}),
        ] {
            assert!(!passes(failing.clone()), "{failing}");
        }
        let long: Vec<String> = (0..100).map(|n| format!("tag{n}")).collect();
        assert!(!passes(json!({"tags": long})));
        let with = [&long[..], &["red".to_owned()]].concat();
        assert!(passes(json!({"tags": with})));
    }

    #[test]
    fn a_whole_number_is_the_id_of_its_digits() {
        let filter = json!({"id": [7, 8.0, "x"]});
        let filter = Filter::parse(filter.as_object().unwrap()).unwrap();
        let passes = |id| filter.passes(&Facts::new(id, &Description::default()));
        assert!(passes("7") && passes("8") && passes("x"));
        assert!(!passes("8.0") && !passes("9"));
    }

    #[test]
    fn an_error_names_the_field() {
        for (filter, field) in [
            (json!({"price": {"min": "3"}}), "filter.price.min"),
            (json!({"price": {"least": 3}}), "filter.price.least"),
            (json!({"tags": {"any": "red"}}), "filter.tags.any"),
            (json!({"tags": {}}), "filter.tags"),
            (json!({"tags": [["red"]]}), "filter.tags"),
            (json!({"tags": null}), "filter.tags"),
            (json!({"tags": vec!["x"; MAX_VALUES + 1]}), "filter"),
        ] {
            let refused = Filter::parse(filter.as_object().unwrap()).unwrap_err();
            assert_eq!(refused.field, field, "{refused}");
        }
    }
}
