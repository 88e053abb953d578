//! An item becomes a sparse row: a block of entries for each column of the catalogue.
//!
//! | column | entries | length of the block |
//! |---|---|---|
//! | text | (1 + ln count) · idf of each bucket | 1 |
//! | tags | idf of each tag | the more tags, the longer: divided by the root mean square over all items, and at most 3 |
//! | number | the number capped at the fitted 1st and 99th percentile, less the mean, divided by the standard deviation | |
//!
//! The length of a block of tags says how much is known about an item, which goes with how popular it is: in world `ratings` all
//! blocks at length 1 cost a large part of the clicks (docs/data.md).
//!
//! idf = ln((1 + items) / (1 + items that have it)) + 1. An entry that occurred in fewer than 2 items of the fit is left
//! out. A block without a value is empty.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use crate::RawItem;
use crate::grams::{BUCKETS, buckets};
use crate::kinds::{Kind, SAME, is_missing};
use crate::numbers::{NumberFormat, Reading};
use crate::transform::ItemError;

/// Items that must have a bucket or a tag.
const MIN_ITEMS: u32 = 2;
/// The maximum number of different tags of a column: those of the most items.
const MAX_TAGS: usize = 4096;
/// A standardised number, and the length of a block of tags, is at most this.
const MAX_DEVIATIONS: f64 = 3.0;
/// The share of numbers below and above which numbers are capped.
const CAPPED: f64 = 0.01;

/// A column of the catalogue as it was at the fit.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    pub name: String,
    pub encoder: Encoder,
}

/// The way from a value to entries of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Encoder {
    Text {
        /// The buckets that count, ascending.
        buckets: Vec<u32>,
        idf: Vec<f32>,
    },
    Tags {
        separator: Option<String>,
        /// Ascending.
        tags: Vec<String>,
        idf: Vec<f32>,
        /// The factor of all entries.
        scale: f64,
    },
    Number {
        low: f64,
        high: f64,
        mean: f64,
        deviation: f64,
        format: NumberFormat,
    },
}

/// The entries of a row, ascending by column.
pub type Entries = Vec<(u32, f64)>;

impl Encoder {
    /// Fits a column. Gives the reason if nothing in it distinguishes two items.
    pub fn fit(
        name: &str,
        kind: &Kind,
        items: &[RawItem],
    ) -> Result<Result<Self, &'static str>, ItemError> {
        let values = || {
            items
                .iter()
                .map(|item| item.get(name).unwrap_or(&Value::Null))
        };
        let fitted = match kind {
            Kind::Text => {
                let mut counts = vec![0; BUCKETS as usize];
                for value in values() {
                    for (bucket, _) in buckets(&text(name, value)?) {
                        counts[bucket as usize] += 1;
                    }
                }
                let used: Vec<u32> = (0..BUCKETS)
                    .filter(|&bucket| counts[bucket as usize] >= MIN_ITEMS)
                    .collect();
                let idf = used.iter().map(|&at| idf(items.len(), counts[at as usize]));
                Encoder::Text {
                    idf: idf.collect(),
                    buckets: used,
                }
            }
            Kind::Tags { separator } => {
                let mut counts: BTreeMap<String, u32> = BTreeMap::new();
                for value in values() {
                    for tag in tags(name, value, separator.as_deref())? {
                        *counts.entry(tag).or_default() += 1;
                    }
                }
                let mut used: Vec<(String, u32)> = counts.into_iter().collect();
                used.retain(|(_, count)| *count >= MIN_ITEMS);
                used.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
                used.truncate(MAX_TAGS);
                used.sort();
                let idf: Vec<f32> = used
                    .iter()
                    .map(|&(_, count)| idf(items.len(), count))
                    .collect();
                let squares = used.iter().zip(&idf);
                let squares =
                    squares.map(|((_, count), &idf)| f64::from(*count) * f64::from(idf).powi(2));
                let mean = squares.sum::<f64>() / items.len() as f64;
                Encoder::Tags {
                    separator: separator.clone(),
                    idf,
                    tags: used.into_iter().map(|(tag, _)| tag).collect(),
                    scale: 1.0 / mean.max(f64::MIN_POSITIVE).sqrt(),
                }
            }
            Kind::Number(format) => {
                let mut all = Vec::new();
                for value in values() {
                    all.extend(read_number(name, format, value)?);
                }
                return Ok(standardised(all, format));
            }
            Kind::Ignored(reason) => return Ok(Err(reason)),
        };
        Ok(match (fitted.width(), kind) {
            (0, Kind::Text) => Err("no word is in two items"),
            (0, _) => Err("no value is in two items"),
            _ => Ok(fitted),
        })
    }

    /// Finds a value that is not of the kind of its column.
    pub fn check(name: &str, kind: &Kind, value: &Value) -> Result<(), ItemError> {
        match kind {
            Kind::Text => text(name, value).map(drop),
            Kind::Tags { separator } => tags(name, value, separator.as_deref()).map(drop),
            Kind::Number(format) => read_number(name, format, value).map(drop),
            Kind::Ignored(_) => Ok(()),
        }
    }

    /// The number of entries that a block can have.
    pub fn width(&self) -> usize {
        match self {
            Encoder::Text { buckets, .. } => buckets.len(),
            Encoder::Tags { tags, .. } => tags.len(),
            Encoder::Number { .. } => 1,
        }
    }

    /// The kind, in a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Encoder::Text { .. } => "text",
            Encoder::Tags { .. } => "tags",
            Encoder::Number { .. } => "number",
        }
    }

    /// A value that says something: for tags the most frequent one, for a number the mean.
    pub fn example(&self) -> Value {
        match self {
            Encoder::Text { .. } => "Green tea".into(),
            Encoder::Tags { tags, idf, .. } => {
                let all = tags.iter().zip(idf);
                let most = all.min_by(|a, b| a.1.total_cmp(b.1));
                most.map(|(tag, _)| tag.as_str()).into_iter().collect()
            }
            Encoder::Number { mean, .. } if mean.abs() < 100.0 => {
                ((mean * 100.0).round() / 100.0).into()
            }
            Encoder::Number { mean, .. } => (mean.round() as i64).into(),
        }
    }

    /// The names of the entries.
    pub fn names(&self, column: &str) -> Vec<String> {
        match self {
            Encoder::Text { buckets, .. } => {
                let names = buckets.iter().map(|bucket| format!("{column}#{bucket}"));
                names.collect()
            }
            Encoder::Tags { tags, .. } => {
                let names = tags.iter().map(|tag| format!("{column}={tag}"));
                names.collect()
            }
            Encoder::Number { .. } => vec![column.to_owned()],
        }
    }
}

impl Column {
    /// Appends the entries of a value, from column `first` of the row on.
    pub fn encode(&self, item: &RawItem, first: u32, row: &mut Entries) -> Result<(), ItemError> {
        let name = &self.name;
        let value = item.get(name).unwrap_or(&Value::Null);
        let from = row.len();
        match &self.encoder {
            Encoder::Text { buckets: used, idf } => {
                for (bucket, count) in buckets(&text(name, value)?) {
                    if let Ok(at) = used.binary_search(&bucket) {
                        let count = 1.0 + libm::log(f64::from(count));
                        row.push((first + at as u32, count * f64::from(idf[at])));
                    }
                }
                normalise(&mut row[from..]);
            }
            Encoder::Tags {
                separator,
                tags: used,
                idf,
                scale,
            } => {
                for tag in tags(name, value, separator.as_deref())? {
                    if let Ok(at) = used.binary_search(&tag) {
                        row.push((first + at as u32, f64::from(idf[at]) * scale));
                    }
                }
                let block = &mut row[from..];
                let length = length(block);
                if length > MAX_DEVIATIONS {
                    let factor = MAX_DEVIATIONS / length;
                    block.iter_mut().for_each(|(_, value)| *value *= factor);
                }
            }
            Encoder::Number {
                low,
                high,
                mean,
                deviation,
                format,
            } => {
                if let Some(number) = read_number(name, format, value)? {
                    let number = (number.clamp(*low, *high) - mean) / deviation;
                    row.push((first, number.clamp(-MAX_DEVIATIONS, MAX_DEVIATIONS)));
                }
            }
        }
        Ok(())
    }
}

/// The whole rows of items.
pub fn rows(columns: &[Column], items: &[RawItem]) -> Result<Vec<Entries>, ItemError> {
    items.iter().map(|item| row(columns, item)).collect()
}

/// The row of an item.
pub fn row(columns: &[Column], item: &RawItem) -> Result<Entries, ItemError> {
    let mut row = Vec::new();
    let mut first = 0;
    for column in columns {
        column.encode(item, first, &mut row)?;
        first += column.encoder.width() as u32;
    }
    Ok(row)
}

/// The share of items that have a value in a column.
pub fn filled(column: &Column, items: &[RawItem]) -> f64 {
    let says = |value: &Value| match &column.encoder {
        Encoder::Number { format, .. } => format.number(value).is_some(),
        _ => !is_missing(value),
    };
    let has = |item: &&RawItem| item.get(&column.name).is_some_and(says);
    items.iter().filter(has).count() as f64 / items.len().max(1) as f64
}

fn idf(items: usize, with: u32) -> f32 {
    (libm::log((1 + items) as f64 / f64::from(1 + with)) + 1.0) as f32
}

fn length(block: &[(u32, f64)]) -> f64 {
    let squares = block.iter().map(|(_, value)| value * value);
    squares.sum::<f64>().sqrt()
}

/// Divides a block by its length.
fn normalise(block: &mut [(u32, f64)]) {
    let length = length(block);
    if length > 0.0 {
        block.iter_mut().for_each(|(_, value)| *value /= length);
    }
}

/// Fits a column of numbers. Gives the reason if they are all the same.
fn standardised(mut all: Vec<f64>, format: &NumberFormat) -> Result<Encoder, &'static str> {
    all.sort_unstable_by(f64::total_cmp);
    let last = all.len().checked_sub(1).ok_or("empty")?;
    let is_same = all[0] == all[last];
    let cut = (CAPPED * last as f64).floor() as usize;
    let (low, high) = (all[cut], all[last - cut]);
    all.iter_mut()
        .for_each(|value| *value = value.clamp(low, high));
    let count = all.len() as f64;
    let mean = all.iter().sum::<f64>() / count;
    let squares = all.iter().map(|value| (value - mean) * (value - mean));
    let deviation = (squares.sum::<f64>() / count).sqrt();
    // The mean of very large numbers can overflow.
    let is_good = deviation > 0.0 && deviation.is_finite() && mean.is_finite();
    match is_good {
        true => Ok(Encoder::Number {
            low,
            high,
            mean,
            deviation,
            format: format.clone(),
        }),
        false if is_same => Err(SAME),
        false if low == high => Err("the same almost everywhere"),
        false => Err("its numbers are too large"),
    }
}

fn wrong(column: &str, value: &Value, expected: &'static str) -> ItemError {
    let shown: String = value.to_string().chars().take(40).collect();
    ItemError {
        column: column.to_owned(),
        reason: format!("the field '{column}' is {shown}; {expected} is expected"),
    }
}

/// A text; a list of texts is joined.
fn text(column: &str, value: &Value) -> Result<String, ItemError> {
    match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(value) => Ok(value.to_string()),
        Value::Array(list) => {
            let texts: Result<Vec<String>, ItemError> =
                list.iter().map(|value| text(column, value)).collect();
            Ok(texts?.join(" "))
        }
        Value::Object(_) => Err(wrong(column, value, "a text")),
    }
}

/// Different tags, in lower case and without spaces around them, ascending.
fn tags(column: &str, value: &Value, separator: Option<&str>) -> Result<Vec<String>, ItemError> {
    let mut all = Vec::new();
    match value {
        Value::Array(list) => {
            for tag in list {
                match tag {
                    Value::Array(_) | Value::Object(_) => {
                        return Err(wrong(column, value, "a text or a list of texts"));
                    }
                    tag => all.push(text(column, tag)?),
                }
            }
        }
        Value::Object(_) => return Err(wrong(column, value, "a text or a list of texts")),
        value => {
            let text = text(column, value)?;
            match separator {
                Some(separator) => all.extend(text.split(separator).map(str::to_owned)),
                None => all.push(text),
            }
        }
    }
    let plain = |tag: String| tag.trim().to_lowercase();
    let mut all: Vec<String> = all.into_iter().map(plain).collect();
    all.retain(|tag| !tag.is_empty());
    // A catalogue may name a tag twice.
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

fn read_number(
    column: &str,
    format: &NumberFormat,
    value: &Value,
) -> Result<Option<f64>, ItemError> {
    match format.read(value) {
        Reading::Number(number) => Ok(Some(number)),
        Reading::Missing => Ok(None),
        Reading::Bad => Err(wrong(column, value, "a number")),
    }
}

/// The position of each id.
pub fn positions(ids: &[String]) -> HashMap<String, u32> {
    ids.iter().cloned().zip(0..).collect()
}
