//! A JSON object a line, with fields of any names.

use std::borrow::Cow;
use std::fmt;

use sclub_features::whole_text;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::collect::{Reason, Row, Wanted};
use super::columns::{ColumnNames, Columns};
use super::names::Name;
use super::times::{of_number, parse};

/// The fields that hold the user, the item and the rating.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldNames {
    user: String,
    item: String,
    rating: Option<String>,
    time: Option<String>,
}

impl FieldNames {
    /// The fields of Yelp's reviews.
    pub fn yelp() -> Self {
        Self {
            user: "user_id".into(),
            item: "business_id".into(),
            rating: Some("stars".into()),
            time: Some("date".into()),
        }
    }

    /// The fields of a file whose first line is this.
    ///
    /// # Errors
    /// The field that is missing, and the fields there are; `None` if the line is not an object.
    pub fn find(names: &ColumnNames, first: &[u8]) -> Option<Result<Self, String>> {
        let fields = fields(first)?;
        let text = |at: usize| fields[at].clone().into_owned();
        let found = names.find(&fields);
        Some(found.map(
            |Columns {
                 user,
                 item,
                 rating,
                 time,
                 ..
             }| Self {
                user: text(user),
                item: text(item),
                rating: rating.map(text),
                time: time.map(text),
            },
        ))
    }

    /// The name of the field of ratings.
    pub fn rating(&self) -> Option<&str> {
        self.rating.as_deref()
    }

    /// The name of the field of times.
    pub fn time(&self) -> Option<&str> {
        self.time.as_deref()
    }

    /// The row of a line. A time that is not wanted is not looked at.
    ///
    /// # Errors
    /// The reason why it is not an interaction.
    pub fn row<'a>(&self, line: &'a [u8], wanted: Wanted) -> Result<Row<'a>, Reason> {
        let mut json = serde_json::Deserializer::from_slice(line);
        let (user, item, rating, time) = json
            .deserialize_map(Picker(self))
            .and_then(|picked| json.end().map(|()| picked))
            .map_err(|error| no_object(&error))?;
        Ok(Row {
            user: name("user", &self.user, user)?,
            item: name("item", &self.item, item)?,
            rating: match (rating, &self.rating) {
                (Some(cell), Some(field)) => number(field, cell)?,
                _ => None,
            },
            time: match time.filter(|_| wanted.time) {
                Some(cell) => moment(cell)?,
                None => None,
            },
        })
    }
}

/// The names of an object's fields; `None` if the line is not an object.
pub fn fields(line: &[u8]) -> Option<Vec<Cow<'static, str>>> {
    let mut json = serde_json::Deserializer::from_slice(line);
    json.deserialize_map(Keys).ok()
}

fn no_object(error: &serde_json::Error) -> Reason {
    let column = error.column();
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or_default();
    format!("no object in JSON: {what}, at column {column}").into()
}

fn name<'a>(kind: &str, field: &str, cell: Option<Cell<'a>>) -> Result<Name<'a>, Reason> {
    let missing = || format!("there is no {kind}");
    let name = match cell {
        None | Some(Cell::Null) => return Err(missing().into()),
        Some(Cell::Text(text)) if text.is_empty() => return Err(missing().into()),
        Some(Cell::Text(text)) => Name::of_text(text),
        Some(Cell::Whole(number)) => Name::of_number(number),
        Some(Cell::Negative(number)) => Name::Text(number.to_string().into()),
        // 7.0 is the same number as 7.
        Some(Cell::Real(number)) => match whole_text(number) {
            Some(text) => Name::of_text(text.into()),
            None => return Err(wrong(kind, field, &format!("{number:?}"))),
        },
        Some(Cell::Other(what)) => return Err(wrong(kind, field, what)),
    };
    Ok(name)
}

fn wrong(kind: &str, field: &str, what: &str) -> Reason {
    format!("the {kind} (field '{field}') is {what}; a string or a whole number is expected").into()
}

fn number(field: &str, cell: Cell<'_>) -> Result<Option<f64>, Reason> {
    let shown: Cow<'_, str> = match cell {
        Cell::Null => return Ok(None),
        Cell::Whole(number) => return Ok(Some(number as f64)),
        Cell::Negative(number) => return Ok(Some(number as f64)),
        Cell::Real(number) => return Ok(Some(number)),
        Cell::Text(text) if text.is_empty() => return Ok(None),
        Cell::Text(text) => match text.trim().parse::<f64>() {
            Ok(number) if number.is_finite() => return Ok(Some(number)),
            _ => format!("'{}'", text.chars().take(40).collect::<String>()).into(),
        },
        Cell::Other(what) => what.into(),
    };
    Err(format!("the rating {shown} (field '{field}') is not a number").into())
}

fn moment(cell: Cell<'_>) -> Result<Option<i64>, Reason> {
    let time = match cell {
        Cell::Null => return Ok(None),
        Cell::Whole(number) => of_number(number as f64),
        Cell::Negative(number) => of_number(number as f64),
        Cell::Real(number) => of_number(number),
        Cell::Text(text) if text.is_empty() => return Ok(None),
        Cell::Text(text) => parse(&text),
        Cell::Other(what) => Err(format!("the time is {what}").into()),
    };
    time.map(Some)
}

/// A value of a field.
enum Cell<'a> {
    Text(Cow<'a, str>),
    Whole(u64),
    Negative(i64),
    Real(f64),
    Null,
    /// A value that is neither a name nor a number.
    Other(&'static str),
}

impl<'de> Deserialize<'de> for Cell<'de> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(CellVisitor)
    }
}

struct CellVisitor;

impl<'de> Visitor<'de> for CellVisitor {
    type Value = Cell<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Cell<'de>, E> {
        Ok(Cell::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Cell<'de>, E> {
        Ok(Cell::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Cell<'de>, E> {
        Ok(Cell::Whole(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Cell<'de>, E> {
        Ok(Cell::Negative(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Cell<'de>, E> {
        Ok(Cell::Real(number))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Cell<'de>, E> {
        Ok(Cell::Other(if value { "true" } else { "false" }))
    }

    fn visit_unit<E>(self) -> Result<Cell<'de>, E> {
        Ok(Cell::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Cell<'de>, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Cell::Other("a list"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Cell<'de>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Cell::Other("an object"))
    }
}

/// User, item, rating and time.
type Picked<'a> = (
    Option<Cell<'a>>,
    Option<Cell<'a>>,
    Option<Cell<'a>>,
    Option<Cell<'a>>,
);

struct Picker<'n>(&'n FieldNames);

impl<'de> Visitor<'de> for Picker<'_> {
    type Value = Picked<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Picked<'de>, A::Error> {
        let mut picked = (None, None, None, None);
        while let Some(key) = map.next_key::<Key<'de>>()? {
            if key.0 == self.0.user {
                picked.0 = Some(map.next_value()?);
            } else if key.0 == self.0.item {
                picked.1 = Some(map.next_value()?);
            } else if Some(&*key.0) == self.0.rating() {
                picked.2 = Some(map.next_value()?);
            } else if Some(&*key.0) == self.0.time() {
                picked.3 = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(picked)
    }
}

/// The name of a field, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

struct Keys;

impl<'de> Visitor<'de> for Keys {
    type Value = Vec<Cow<'static, str>>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut keys = Vec::new();
        while let Some((key, _)) = map.next_entry::<String, IgnoredAny>()? {
            keys.push(Cow::Owned(key));
        }
        Ok(keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(fields: &FieldNames, line: &str) -> Result<(String, String, Option<f64>), String> {
        let row = fields
            .row(line.as_bytes(), Wanted::default())
            .map_err(Cow::into_owned)?;
        Ok((row.user.to_string(), row.item.to_string(), row.rating))
    }

    #[test]
    fn reviews_may_hold_escapes_and_anything_besides() {
        let yelp = FieldNames::yelp();
        let line = r#"{"text": "\"user_id\": \"no\" {", "user_id": "a\u00e9\"\\", "stars": 4.0, "n": [{}], "business_id": "b"}"#;
        assert_eq!(
            row(&yelp, line),
            Ok(("aé\"\\".into(), "b".into(), Some(4.0)))
        );
        let bad = |line: &str| row(&yelp, line).unwrap_err();
        assert_eq!(bad(r#"{"user_id": "a", "stars": 1}"#), "there is no item");
        assert_eq!(bad(r#"{"business_id": "a"}"#), "there is no user");
        assert_eq!(
            bad(r#"{"user_id": "a", "business_id": "b", "stars": "x"}"#),
            "the rating 'x' (field 'stars') is not a number"
        );
        assert!(bad(r#"{"user_id": "a", "business_id": "b""#).contains("JSON"));
        assert!(bad(r#"{"user_id": "a", "business_id": "b"} x"#).contains("JSON"));
    }

    #[test]
    fn fields_are_found_by_name_or_by_words() {
        let first = br#"{"reviewerID": 7, "asin": "B1", "overall": 5}"#;
        let words = FieldNames::find(&ColumnNames::default(), first)
            .unwrap()
            .unwrap();
        assert_eq!(words.rating(), None);
        let names = ColumnNames {
            rating: Some("overall".into()),
            ..ColumnNames::default()
        };
        let named = FieldNames::find(&names, first).unwrap().unwrap();
        let line = std::str::from_utf8(first).unwrap();
        assert_eq!(row(&named, line), Ok(("7".into(), "B1".into(), Some(5.0))));
        let names = ColumnNames {
            rating: Some("stars".into()),
            ..ColumnNames::default()
        };
        assert_eq!(
            FieldNames::find(&names, first).unwrap().unwrap_err(),
            "there is no column 'stars'; the columns are reviewerID, asin, overall"
        );
        assert_eq!(FieldNames::find(&names, b"[1]"), None);
    }

    #[test]
    fn a_whole_number_is_the_id_of_its_digits() {
        let yelp = FieldNames::yelp();
        for number in ["7", "7.0", "7e0", "\"7\""] {
            let line = format!("{{\"user_id\": {number}, \"business_id\": {number}}}");
            let (user, item, _) = row(&yelp, &line).unwrap();
            assert_eq!((&*user, &*item), ("7", "7"), "{number}");
        }
    }

    #[test]
    fn a_value_of_another_type_is_named() {
        let yelp = FieldNames::yelp();
        let bad = |line: &str| row(&yelp, line).unwrap_err();
        assert_eq!(
            bad(r#"{"user_id": 1.5, "business_id": "b"}"#),
            "the user (field 'user_id') is 1.5; a string or a whole number is expected"
        );
        assert_eq!(
            bad(r#"{"user_id": 1, "business_id": ["b"]}"#),
            "the item (field 'business_id') is a list; a string or a whole number is expected"
        );
        assert_eq!(
            bad(r#"{"user_id": 1, "business_id": 2, "stars": true}"#),
            "the rating true (field 'stars') is not a number"
        );
        assert_eq!(
            row(
                &yelp,
                r#"{"user_id": -1, "business_id": 2, "stars": "4.5"}"#
            ),
            Ok(("-1".into(), "2".into(), Some(4.5)))
        );
        assert_eq!(
            row(&yelp, r#"{"user_id": 1, "business_id": 2, "stars": null}"#),
            Ok(("1".into(), "2".into(), None))
        );
    }
}
