//! Filters of a request: conditions on the id, the title, the tags, the availability and the JSON of items.
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

use crate::description::{Facts, Number, field_hash, term};

/// The maximum number of values in a filter.
pub const MAX_VALUES: usize = 10_000;
/// The maximum number of conditions in a filter.
pub const MAX_CONDITIONS: usize = 64;
/// The number of values up to which an item is compared with each.
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

/// A condition on a field.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// The name of the field.
    pub name: String,
    /// The hash of the field.
    pub field: u64,
    /// The test of its value.
    pub test: Test,
}

/// A test of the value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    /// The number is in a range, ends included.
    Between(Number, Number),
    /// All of these values are there.
    All(Vec<u64>),
    /// At least one of these values is there.
    Any(Values),
    /// None of these values is there.
    None(Values),
}

impl Test {
    /// Returns true if the test holds for an item with these values and this number in the field.
    pub fn holds(
        &self,
        mut terms: impl Iterator<Item = u64> + Clone,
        number: Option<Number>,
    ) -> bool {
        match self {
            Test::Any(values) => terms.any(|term| values.has(term)),
            Test::None(values) => !terms.any(|term| values.has(term)),
            Test::All(values) => values
                .iter()
                .all(|value| terms.clone().any(|term| term == *value)),
            Test::Between(min, max) => number.is_some_and(|number| (min..=max).contains(&&number)),
        }
    }

    /// The order of tests: those that are quick and leave few items come first.
    fn rank(&self) -> u8 {
        match self {
            Test::Between(..) => 0,
            Test::All(_) => 1,
            Test::Any(_) => 2,
            Test::None(_) => 3,
        }
    }
}

/// A set of hashes of values.
#[derive(Debug, Clone, PartialEq)]
pub struct Values {
    /// In rising order.
    sorted: Vec<u64>,
    /// A bit for each of the first bits of a hash: not set if no value begins with them.
    marks: Vec<u64>,
    shift: u32,
}

impl Values {
    fn new(sorted: Vec<u64>) -> Self {
        // At most one bit of 16 is set, and there are at least 4096.
        let size = (16 * sorted.len()).next_power_of_two().max(4096);
        let shift = 64 - size.trailing_zeros();
        let mut marks = vec![0; size / 64];
        for value in &sorted {
            let place = value >> shift;
            marks[place as usize / 64] |= 1 << (place % 64);
        }
        Self {
            sorted,
            marks,
            shift,
        }
    }

    /// The values, if they are so few that it is quickest to compare with each.
    pub fn few(&self) -> Option<&[u64]> {
        (self.sorted.len() <= FEW).then_some(&self.sorted)
    }

    /// Returns false if a value is not in the set. It is quick, and some that are not get true.
    pub fn may_have(&self, value: u64) -> bool {
        let place = value >> self.shift;
        self.marks[place as usize / 64] >> (place % 64) & 1 == 1
    }

    /// Returns true if a value is in the set.
    pub fn has(&self, value: u64) -> bool {
        self.may_have(value) && self.sorted.binary_search(&value).is_ok()
    }
}

impl Filter {
    /// Returns true if an item with these facts passes. Availability is not looked at.
    pub fn passes(&self, facts: &Facts) -> bool {
        self.conditions.iter().all(|condition| {
            let mut fields = facts.fields.iter();
            let fact = fields.find(|fact| fact.field == condition.field);
            let terms = fact.map_or(&[][..], |fact| &fact.terms);
            let number = fact.and_then(|fact| fact.number);
            condition.test.holds(terms.iter().copied(), number)
        })
    }

    /// Parses a filter.
    ///
    /// # Errors
    /// Names the field that is invalid.
    pub fn parse(filter: &Map<String, Value>) -> Result<Self, FilterError> {
        let mut conditions = Vec::new();
        let mut values = 0;
        for (field, value) in filter {
            let at = format!("filter.{field}");
            let mut add = |test: Test| {
                conditions.push(Condition {
                    name: field.clone(),
                    field: field_hash(field),
                    test,
                });
            };
            match value {
                Value::Object(parts) => {
                    if parts.is_empty() {
                        return Err(FilterError::new(at, EXPECTED));
                    }
                    parse_parts(field, parts, &at, &mut add, &mut values)?;
                }
                Value::Array(list) => {
                    add(Test::Any(Values::new(terms(
                        field,
                        list,
                        &at,
                        &mut values,
                    )?)));
                }
                value => {
                    let list = std::slice::from_ref(value);
                    add(Test::Any(Values::new(terms(
                        field,
                        list,
                        &at,
                        &mut values,
                    )?)));
                }
            }
            if conditions.len() > MAX_CONDITIONS || values > MAX_VALUES {
                let message = format!(
                    "the filter is too long; at most {MAX_CONDITIONS} conditions and {MAX_VALUES} values are allowed"
                );
                return Err(FilterError::new("filter", message));
            }
        }
        conditions.sort_by_key(|condition| condition.test.rank());
        let text = serde_json::to_string(filter).unwrap_or_default();
        Ok(Self { conditions, text })
    }

    /// The conditions. All must hold.
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }
}

const EXPECTED: &str =
    "must be a value, a list of values, or an object with any, all, none, min or max";

fn parse_parts(
    field: &str,
    parts: &Map<String, Value>,
    at: &str,
    add: &mut dyn FnMut(Test),
    values: &mut usize,
) -> Result<(), FilterError> {
    let (mut min, mut max) = (Number::MIN, Number::MAX);
    for (name, value) in parts {
        let at = format!("{at}.{name}");
        let mut list = || match value {
            Value::Array(list) => terms(field, list, &at, values),
            _ => Err(FilterError::new(&*at, "must be a list of values")),
        };
        let number = || {
            let number = value.as_number().and_then(Number::new);
            number.ok_or_else(|| FilterError::new(&*at, "must be a number"))
        };
        match name.as_str() {
            "any" => add(Test::Any(Values::new(list()?))),
            "all" => add(Test::All(list()?)),
            "none" => add(Test::None(Values::new(list()?))),
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
        if min > max {
            let (min, max) = (&parts["min"], &parts["max"]);
            let message = format!("min is {min} and max is {max}; min must not be greater");
            return Err(FilterError::new(at, message));
        }
        add(Test::Between(min, max));
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::description::{Description, Facts};

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
        let facts = facts();
        filter.conditions().iter().all(|condition| {
            let fact = facts
                .fields
                .iter()
                .find(|fact| fact.field == condition.field);
            let terms = fact.map_or(&[][..], |fact| &fact.terms);
            let number = fact.and_then(|fact| fact.number);
            condition.test.holds(terms.iter().copied(), number)
        })
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
            json!({"title": "A red shoe"}),
            json!({"available": true}),
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
            json!({"title": "A blue shoe"}),
            json!({"available": false}),
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
            (json!({"price": {"min": 5, "max": 1}}), "filter.price"),
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
