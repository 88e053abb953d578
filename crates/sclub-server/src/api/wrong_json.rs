//! Errors about JSON that is not as described, with the field that is wrong.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde_json::Error;

use crate::edge::ApiError;

/// The maximum length of an error message and of a field, in characters. Names in a request can be as long as the request.
const MAX_MESSAGE: usize = 500;
const MAX_FIELD: usize = 200;

/// The error for a text that is not what is expected. `what` begins the message: "the body is invalid".
pub(super) fn wrong_json(what: &str, text: &[u8], error: &Error) -> ApiError {
    let message = error.to_string();
    let reason = message.rsplit_once(" at line ");
    let reason = reason.map_or(&*message, |(reason, _)| reason);
    // A number that is too large, or another value where one of some strings is expected, is wrong as data only.
    let is_json = error.is_data() || serde_json::from_slice::<IgnoredAny>(text).is_ok();
    let reason = match reason {
        "expected value" if is_json => "invalid type: expected a string",
        reason => reason,
    };
    let reason = if text.trim_ascii().is_empty() {
        "it is empty; an object is expected".to_owned()
    } else if text.starts_with(b"\xef\xbb\xbf") {
        "it begins with a byte order mark; send UTF-8 without one".to_owned()
    } else {
        let place = match error.line() {
            // It is about the whole text.
            _ if error.column() == 0 => String::new(),
            // A text of one line has no line numbers.
            1 => format!(" at column {}", error.column()),
            line => format!(" at line {line} column {}", error.column()),
        };
        plain(&shortened(reason, MAX_MESSAGE)) + &place
    };
    let refused = ApiError::bad_json(format!("{what}: {reason}"));
    // What is not JSON at all has no fields.
    let field = match is_json {
        true => field(text, error, &message),
        false => None,
    };
    match field {
        Some(field) => refused.field(field),
        None => refused,
    }
}

/// A reason of serde without the names of Rust types.
pub fn plain(reason: &str) -> String {
    [
        (
            "expected u64",
            "expected a whole number that is not negative",
        ),
        (
            "expected usize",
            "expected a whole number that is not negative",
        ),
        (
            "expected u32",
            "expected a whole number that is not negative",
        ),
        ("expected f64", "expected a number"),
        ("expected a borrowed string", "expected a string"),
        ("expected path string", "expected a string"),
        ("expected a sequence", "expected a list"),
        ("expected a map", "expected an object"),
        ("invalid type: sequence", "invalid type: list"),
        ("invalid type: map", "invalid type: object"),
    ]
    .iter()
    .fold(reason.to_owned(), |text, (name, word)| {
        text.replace(name, word)
    })
}

/// The first characters of a text.
fn shortened(text: &str, max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
    }
}

/// The field that an error is about, such as `requests[1].k`; `None` if it is about the whole text.
fn field(text: &[u8], error: &Error, message: &str) -> Option<String> {
    let line = error.line().checked_sub(1)?;
    let lines = text.split_inclusive(|&byte| byte == b'\n').take(line);
    let start: usize = lines.map(<[u8]>::len).sum();
    let read = text.get(..start + error.column()).unwrap_or(text);
    let is_list = ["invalid type: sequence", "expected value"]
        .iter()
        .any(|start| message.starts_with(start));
    // Where a number is expected, a list is not read yet.
    let is_list = is_list && text.get(read.len()) != Some(&b'[');
    let mut path = path_at_end(read, is_list);
    // The place of a missing field is the end of the object.
    if let Some(rest) = message.strip_prefix("missing field `") {
        let name = rest.split('`').next().unwrap_or_default();
        path.push_str(if path.is_empty() { "" } else { "." });
        path.push_str(name);
    }
    (!path.is_empty()).then(|| shortened(&path, MAX_FIELD).into_owned())
}

/// The path of the value that the beginning of a JSON text ends in or behind. If a list is wrong, that is where it begins.
fn path_at_end(read: &[u8], is_list: bool) -> String {
    enum Within {
        Object(Option<String>),
        List(usize),
    }
    let mut within: Vec<Within> = Vec::new();
    let mut bytes = read.iter().copied().enumerate();
    while let Some((start, byte)) = bytes.next() {
        match byte {
            b'{' => within.push(Within::Object(None)),
            b'[' => within.push(Within::List(0)),
            b'}' | b']' => drop(within.pop()),
            b',' => match within.last_mut() {
                Some(Within::Object(name)) => *name = None,
                Some(Within::List(index)) => *index += 1,
                None => {}
            },
            b'"' => {
                let mut end = read.len();
                while let Some((at, byte)) = bytes.next() {
                    match byte {
                        b'\\' => drop(bytes.next()),
                        b'"' => {
                            end = at + 1;
                            break;
                        }
                        _ => {}
                    }
                }
                if let Some(Within::Object(name @ None)) = within.last_mut() {
                    *name = serde_json::from_slice(&read[start..end]).ok();
                }
            }
            _ => {}
        }
    }
    if is_list && read.trim_ascii_end().ends_with(b"[") {
        within.pop();
    }
    let mut path = String::new();
    for part in within {
        match part {
            Within::Object(Some(name)) if path.is_empty() => path = name,
            Within::Object(Some(name)) => path.extend([".", &name]),
            Within::Object(None) => {}
            Within::List(index) => path.push_str(&format!("[{index}]")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::model::{FeedbackRequest, ItemLine, RecommendBatchRequest, RecommendRequest};
    use serde::Deserialize;
    use std::collections::HashMap;

    fn refused<'a, T: Deserialize<'a>>(text: &'a str) -> (String, Option<String>) {
        let error = serde_json::from_slice::<T>(text.as_bytes())
            .err()
            .expect(text);
        let error = wrong_json("it", text.as_bytes(), &error);
        (error.message, error.field.map(Cow::into_owned))
    }

    #[test]
    fn the_field_of_an_error_is_named() {
        for (text, field) in [
            (r#"{"user": "u", "k": "1"}"#, "k"),
            (r#"{"user": "u", "k": 1e400}"#, "k"),
            (r#"{"user": ["u"]}"#, "user"),
            (r#"{"user": true}"#, "user"),
            (r#"{"user": null, "k": 1}"#, "user"),
            (r#"{"k": 1}"#, "user"),
            (r#"{}"#, "user"),
            (r#"{"user": "u", "usr": 1}"#, "usr"),
            (r#"{"user": "u", "a` field `b": 1}"#, "a` field `b"),
            (r#"{"user": "u", "\u0061\"": 1}"#, "a\""),
            (r#"{"user": "u", "user": "v"}"#, "user"),
            (r#"{"user": "}{][,\\\"", "strict": 1}"#, "strict"),
            (
                r#"{"user": "u", "candidates": ["a", "b", 0.5]}"#,
                "candidates[2]",
            ),
            (
                r#"{"user": "u", "items": [{"id": 1, "features": [0]}, {"id": 1}]}"#,
                "items[1].features",
            ),
            (
                r#"{"user": "u", "items": [{"id": 1, "features": [0, "1"]}]}"#,
                "items[0].features[1]",
            ),
            (
                r#"{"user": "u", "items": [{"id": 1, "features": [{}]}]}"#,
                "items[0].features[0]",
            ),
            (
                r#"{"user": "u", "items": [{"id": 1, "features": [[1]]}]}"#,
                "items[0].features[0]",
            ),
            (r#"{"user": "u", "candidates": [null]}"#, "candidates[0]"),
            (r#"{"user": "u", "candidates": [["a"]]}"#, "candidates[0]"),
            (r#"{"user": "u", "items": {}}"#, "items"),
            (r#"{"user": "u", "ties": 5, "k": 1}"#, "ties"),
            (r#"{"user": "u", "ties": ["draw"]}"#, "ties"),
            ("{\"user\": \"u\",\n\n \"k\":\n {}}", "k"),
            (r#"{"user": "u", "context": {"hour": [1]}}"#, "context"),
        ] {
            let (message, named) = refused::<RecommendRequest<'_>>(text);
            assert_eq!(named.as_deref(), Some(field), "{text}: {message}");
            assert!(!message.contains("line 1"), "{message}");
        }
        let text = r#"{"requests": [{"user": "u"}, {"user": "u", "kk": 1}]}"#;
        let (_, field) = refused::<RecommendBatchRequest<'_>>(text);
        assert_eq!(field.unwrap(), "requests[1].kk");
        let text = r#"{"requests": [{"user": "u"}, {"k": 1}]}"#;
        let (_, field) = refused::<RecommendBatchRequest<'_>>(text);
        assert_eq!(field.unwrap(), "requests[1].user");
        let (message, field) = refused::<FeedbackRequest<'_>>(r#"{"decision": 5}"#);
        assert_eq!(
            (field.as_deref(), &*message),
            (
                Some("decision"),
                "it: invalid type: integer `5`, expected a string at column 14"
            )
        );
        let text = r#"{"decision": "x", "rewards": [{"item": "a"}]}"#;
        let (_, field) = refused::<FeedbackRequest<'_>>(text);
        assert_eq!(field.unwrap(), "rewards[0]");
        let (_, field) = refused::<ItemLine>(r#"{"id": 1, "features": [1], "tags": [5]}"#);
        assert_eq!(field.unwrap(), "tags[0]");
        let (message, field) = refused::<ItemLine>(r#"{"id": 1, "features": [1], "tags": null}"#);
        assert_eq!(field.unwrap(), "tags");
        assert!(message.contains("expected a list"), "{message}");
    }

    #[test]
    fn what_is_not_json_has_no_field_and_long_names_are_cut() {
        for (text, reason) in [
            ("", "it: it is empty; an object is expected"),
            (" \n", "it: it is empty; an object is expected"),
            ("\u{feff}{}", "it: it begins with a byte order mark"),
            ("{\"user\": \"u\"", "it: EOF"),
            ("{\"user\": u}", "it: expected value at column 10"),
            (
                "\"x\"",
                "it: invalid type: string \"x\", expected an object",
            ),
            ("{\"ties\": 5", "it: expected value at column 10"),
        ] {
            let (message, field) = refused::<RecommendRequest<'_>>(text);
            assert_eq!(field, None, "{text}");
            assert!(message.starts_with(reason), "{message}");
        }
        let (message, _) = refused::<HashMap<String, IgnoredAny>>("[{}]");
        let reason = "it: invalid type: list, expected an object";
        assert_eq!(message, reason);
        let long = "é".repeat(100_000);
        let (message, field) = refused::<RecommendRequest<'_>>(&format!("{{\"{long}\": 1}}"));
        assert!(message.chars().count() < 600, "{}", message.len());
        assert_eq!(field.unwrap().chars().count(), MAX_FIELD + 1);
    }
}
