//! Ids and whole numbers as requests have them.

use std::borrow::Cow;
use std::fmt;

use sclub_features::whole_text;
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use crate::refusal::Refusal;

/// The id of a user or an item. A whole number is the same id as its decimal digits: `7` is `"7"`.
#[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
#[schema(as = Id, value_type = String, min_length = 1)]
pub struct GivenId<'a>(pub Cow<'a, str>);

impl std::ops::Deref for GivenId<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for GivenId<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(OfId).map(Self)
    }
}

/// Deserializes an id that is kept.
pub fn owned_id<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    from.deserialize_any(OfId).map(Cow::into_owned)
}

struct OfId;

impl<'de> Visitor<'de> for OfId {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a whole number")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        match whole_text(number) {
            Some(text) => Ok(Cow::Owned(text)),
            // A larger number has lost digits.
            None if number.fract() == 0.0 => Err(E::custom(
                "an id that is a number must be from -2^63 to 2^64-1; give a larger one as a string",
            )),
            None => Err(E::invalid_value(Unexpected::Float(number), &self)),
        }
    }
}

/// A number that must be whole and in a range. It is checked by [`Whole::within`], so that an error names its field. In JSON
/// 5.0 is the same number as 5.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Whole(f64);

impl Whole {
    /// The number, if it is whole and in a range.
    ///
    /// # Errors
    /// Names the field, the number and the range.
    pub fn within(self, field: &str, min: u64, max: u64) -> Result<u64, Refusal> {
        let Self(number) = self;
        if number.fract() == 0.0 && (min as f64..=max as f64).contains(&number) {
            return Ok(number as u64);
        }
        let number = shown(number);
        let message = format!("{field} is {number}; it must be a whole number from {min} to {max}");
        Err(Refusal::invalid(field, message))
    }
}

/// A number for an error message, without hundreds of digits.
fn shown(number: f64) -> String {
    match number == 0.0 || (1e-5..1e16).contains(&number.abs()) {
        true => number.to_string(),
        false => format!("{number:e}"),
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        f64::deserialize(from).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_is_the_id_of_its_digits() {
        for (json, id) in [
            ("\"anna\"", "anna"),
            ("\"a\\u0062\"", "ab"),
            ("7", "7"),
            ("-7", "-7"),
            ("7.0", "7"),
            ("7e2", "700"),
            ("-0.0", "0"),
            ("18446744073709551615", "18446744073709551615"),
            ("-9223372036854775808", "-9223372036854775808"),
        ] {
            let read: GivenId<'_> = serde_json::from_str(json).unwrap();
            assert_eq!(&*read, id, "{json}");
        }
        let refused = |json: &str| {
            let error = serde_json::from_str::<GivenId<'_>>(json).unwrap_err();
            error.to_string()
        };
        for json in ["7.5", "true", "null", "[7]"] {
            let message = refused(json);
            assert!(message.contains("a string or a whole number"), "{message}");
        }
        for json in ["18446744073709551616", "-9223372036854775809", "1e300"] {
            let message = refused(json);
            assert!(
                message.starts_with("an id that is a number must be from -2^63 to 2^64-1"),
                "{message}"
            );
        }
    }

    #[test]
    fn a_number_out_of_range_is_refused_with_its_field() {
        let read = |json: &str| serde_json::from_str::<Whole>(json);
        for (json, number) in [("1", 1), ("5.0", 5), ("1000", 1000)] {
            assert_eq!(read(json).unwrap().within("k", 1, 1000), Ok(number));
        }
        for json in [
            "0",
            "-1",
            "1.5",
            "1001",
            "1e300",
            "1e-300",
            "18446744073709551616",
        ] {
            let refused = read(json).unwrap().within("k", 1, 1000).unwrap_err();
            let Refusal::Invalid { field, message } = refused else {
                panic!("{refused:?}");
            };
            assert_eq!(field, "k");
            assert!(message.contains("whole number from 1 to 1000"), "{message}");
            assert!(message.len() < 80, "{message}");
        }
        assert!(read("\"1\"").is_err() && read("true").is_err());
    }
}
