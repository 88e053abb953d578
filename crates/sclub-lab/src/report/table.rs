//! A table of the page. All of them have one shape, so that one piece of the template draws them.

use minijinja::Value;
use serde::Serialize;

use super::words::prose;
use crate::figure::chart::Dash;
use crate::figure::inks::page_colour;
use crate::policies::Name;

/// A sample of a line, with its meaning.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Key {
    /// The label.
    pub label: String,
    /// Colour in CSS.
    pub colour: String,
    /// `solid`, `dashed` or `dotted`.
    pub dash: &'static str,
}

impl Key {
    /// A policy.
    pub fn of(policy: Name) -> Self {
        Self {
            label: policy.title.into(),
            colour: page_colour(Some(policy), 1.0),
            dash: Dash::of(policy).as_str(),
        }
    }
}

/// The content of a cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Place {
    /// The number or the words.
    text: Value,
    /// The standard error.
    error: Option<String>,
}

impl Place {
    /// Words.
    pub fn words(text: &str) -> Self {
        Self {
            text: prose(text),
            error: None,
        }
    }
}

impl From<String> for Place {
    fn from(text: String) -> Self {
        Self {
            text: Value::from(text),
            error: None,
        }
    }
}

impl From<(String, Option<String>)> for Place {
    fn from((text, error): (String, Option<String>)) -> Self {
        Self {
            text: Value::from(text),
            error,
        }
    }
}

/// A column.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Column {
    head: String,
    /// Words stand to the left, numbers to the right.
    words: bool,
    /// True for the first row of its group.
    starts: bool,
    /// Characters of the longest error: the means before them stand in line.
    error_length: usize,
}

/// A row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The sample of its line.
    pub key: Option<Key>,
    /// The subject of the row.
    pub head: String,
    /// A sentence on it.
    pub hint: Option<Value>,
    /// One for each column.
    pub places: Vec<Place>,
}

/// Rows that belong together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Body {
    /// The title of the group.
    pub title: Option<String>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Table {
    caption: Value,
    corner: String,
    /// (heading, number of columns); empty if columns are not grouped.
    groups: Vec<(String, usize)>,
    columns: Vec<Column>,
    bodies: Vec<Body>,
}

impl Table {
    /// A table without rows.
    pub fn new(caption: &str, corner: &str) -> Self {
        Self {
            caption: prose(caption),
            corner: corner.into(),
            ..Self::default()
        }
    }

    /// With more columns of numbers, below a common head.
    pub fn group(mut self, name: &str, heads: &[&str]) -> Self {
        self.groups.push((name.into(), heads.len()));
        for (place, head) in heads.iter().enumerate() {
            self.columns.push(Column {
                head: (*head).into(),
                words: false,
                starts: place == 0,
                error_length: 0,
            });
        }
        self
    }

    /// With one more column of numbers.
    pub fn numbers(self, head: &str) -> Self {
        self.column(head, false)
    }

    /// With one more column of words.
    pub fn words(self, head: &str) -> Self {
        self.column(head, true)
    }

    fn column(mut self, head: &str, words: bool) -> Self {
        self.columns.push(Column {
            head: head.into(),
            words,
            starts: false,
            error_length: 0,
        });
        self
    }

    /// With rows that need no common title.
    pub fn rows(self, rows: Vec<Row>) -> Self {
        self.body(Body { title: None, rows })
    }

    /// With more rows.
    pub fn body(mut self, body: Body) -> Self {
        for row in &body.rows {
            for (column, place) in self.columns.iter_mut().zip(&row.places) {
                let length = place
                    .error
                    .as_ref()
                    .map_or(0, |error| error.chars().count());
                column.error_length = column.error_length.max(length);
            }
        }
        self.bodies.push(body);
        self
    }
}
