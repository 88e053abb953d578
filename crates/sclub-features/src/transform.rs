//! A fitted transform: the vector of an item.

use std::collections::HashMap;
use std::f64::consts::FRAC_1_SQRT_2;

use serde_json::Value;

use crate::RawItem;
use crate::encode::{Column, Encoder, Entries, row};

/// A field that has another type than the fit has seen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct ItemError {
    /// The name of the field.
    pub column: String,
    /// The value, and what is expected.
    pub reason: String,
}

/// A fitted transform from items to vectors.
///
/// The vector of an item is `(z, 1) / √2`. z has `dim − 1` numbers and is at most 1 long. It is the sum of the
/// projections of the entries of the item's row or, for an item that enough users took at the fit, the vector made
/// from who took it.
#[derive(Debug, Clone, PartialEq)]
pub struct Transform {
    pub(crate) dim: usize,
    /// The column of ids.
    pub(crate) id: Option<String>,
    pub(crate) columns: Vec<Column>,
    /// The part of z that every item has.
    pub(crate) offset: Vec<f32>,
    /// `dim − 1` numbers for each entry of a row.
    pub(crate) projection: Vec<f32>,
    /// The ids of the items that enough users took, in the order of `known_vectors`.
    pub(crate) known_ids: Vec<String>,
    pub(crate) known: HashMap<String, u32>,
    /// `dim − 1` numbers for each of these items.
    pub(crate) known_vectors: Vec<f32>,
}

impl Transform {
    /// The number of features, the constant one included.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The column of ids.
    pub fn id_column(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The columns that features are made from, and their kinds: `text`, `tags` or `number`.
    pub fn columns(&self) -> impl Iterator<Item = (&str, &'static str)> {
        let columns = self.columns.iter();
        columns.map(|column| (&*column.name, column.encoder.kind()))
    }

    /// An item without an id, for documentation: a value for each column that features are made from.
    pub fn example(&self) -> RawItem {
        let columns = self.columns.iter();
        let values = columns.map(|column| (column.name.clone(), column.encoder.example()));
        values.collect()
    }

    /// The value of a field as filters need it: a number for a text in a column of numbers, a list for a text with separators
    /// in a column of tags, and otherwise the value itself. `None` if no feature is made from such a field.
    pub fn typed(&self, field: &str, value: &Value) -> Option<Value> {
        let column = self.columns.iter().find(|column| column.name == field)?;
        Some(match (&column.encoder, value) {
            (Encoder::Number { format, .. }, Value::String(_) | Value::Array(_)) => {
                let number = format.number(value);
                number.map_or_else(|| value.clone(), Value::from)
            }
            (
                Encoder::Tags {
                    separator: Some(separator),
                    ..
                },
                Value::String(text),
            ) => {
                let tags = text.split(separator.as_str()).map(str::trim);
                tags.filter(|tag| !tag.is_empty()).collect()
            }
            _ => value.clone(),
        })
    }

    /// Returns true if the vector of an item is made from who took it.
    pub fn is_known(&self, id: &str) -> bool {
        self.known.contains_key(id)
    }

    /// The number of items whose vectors are made from who took them.
    pub fn known_items(&self) -> usize {
        self.known_ids.len()
    }

    /// The names of the features.
    pub fn feature_names(&self) -> Vec<String> {
        let size = self.dim - 1;
        let entries = self.columns.iter();
        let names: Vec<String> = entries
            .flat_map(|column| column.encoder.names(&column.name))
            .collect();
        // A feature that is one entry of the row has its name.
        let is_direct = self.known_ids.is_empty() && names.len() <= size && self.is_diagonal();
        let name = |at: usize| match is_direct {
            true => names.get(at).cloned(),
            false => None,
        };
        let named = (0..size).map(|at| name(at).unwrap_or_else(|| format!("x{}", at + 1)));
        named.chain(["constant".to_owned()]).collect()
    }

    fn is_diagonal(&self) -> bool {
        let size = self.dim - 1;
        let entries = self.projection.iter().enumerate();
        let mut others = entries.filter(|(at, _)| at / size != at % size);
        others.all(|(_, value)| *value == 0.0)
    }

    /// The vector of an item. Fields that the fit has not seen are ignored; missing ones say nothing.
    ///
    /// # Errors
    /// A field that is not of the kind of its column.
    pub fn apply(&self, item: &RawItem) -> Result<Vec<f64>, ItemError> {
        let id = self.id.as_ref().and_then(|column| item.get(column));
        self.apply_to(id.and_then(id_text).as_deref(), item)
    }

    /// As [`Transform::apply`], for an item whose id is known otherwise.
    ///
    /// # Errors
    /// As [`Transform::apply`].
    pub fn apply_to(&self, id: Option<&str>, item: &RawItem) -> Result<Vec<f64>, ItemError> {
        // Bad fields are refused also where they are not used.
        let row = row(&self.columns, item)?;
        let known = id.and_then(|id| self.known.get(id));
        Ok(match known {
            Some(&at) => {
                let from = at as usize * (self.dim - 1);
                let values = self.known_vectors[from..][..self.dim - 1].iter();
                finish(values.map(|&value| f64::from(value)).collect())
            }
            None => finish(self.project(&row)),
        })
    }

    fn project(&self, row: &Entries) -> Vec<f64> {
        let size = self.dim - 1;
        let mut sum: Vec<f64> = self.offset.iter().map(|&value| f64::from(value)).collect();
        for &(column, value) in row {
            let factors = &self.projection[column as usize * size..][..size];
            for (sum, &factor) in sum.iter_mut().zip(factors) {
                *sum += value * f64::from(factor);
            }
        }
        sum
    }
}

/// Caps the length at 1, appends a 1, and divides by √2.
pub fn finish(mut vector: Vec<f64>) -> Vec<f64> {
    let length = vector.iter().map(|value| value * value).sum::<f64>().sqrt();
    if length > 1.0 {
        vector.iter_mut().for_each(|value| *value /= length);
    }
    vector.push(1.0);
    vector.iter_mut().for_each(|value| *value *= FRAC_1_SQRT_2);
    vector
}

/// An id, which is a text or a whole number.
pub fn id_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) if !number.is_f64() => Some(number.to_string()),
        Value::Number(number) => number.as_f64().and_then(whole_text),
        _ => None,
    }
}

/// The digits of a number without a fraction, such as 7.0: in JSON it is the same number as 7.
pub fn whole_text(number: f64) -> Option<String> {
    // Integers between these bounds are read as integers, and larger ones are rounded.
    let is_whole = number.fract() == 0.0 && -2f64.powi(63) < number && number < 2f64.powi(64);
    // 0 and -0 are equal.
    is_whole.then(|| format!("{:.0}", number + 0.0))
}
