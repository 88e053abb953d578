//! Files of items: a row or a JSON object for each item, with columns of any names.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::BufRead;
use std::path::Path;

use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::Field;
use sclub_features::RawItem;
use serde_json::Value;

use super::fields::{Fields, Separator};
use super::lines::Lines;
use super::read::ReadError;
use super::source::{Content, Source, binary_kind};

/// Options for reading a file of items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ItemOptions {
    /// The names of the columns of a text without a header; empty if the first line is a header.
    pub columns: Vec<String>,
    /// Rows that have the same value in this column are one item, and their other values are lists.
    pub gather: Option<String>,
    /// True to count and skip lines that cannot be parsed instead of failing.
    pub skip_bad_lines: bool,
}

/// The items of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadItems {
    /// The items, in the order of the file.
    pub items: Vec<RawItem>,
    /// The line of each item, or its row in a Parquet file.
    pub lines: Vec<u64>,
    /// The number of lines skipped, the first of them, and the reason.
    pub bad_lines: u64,
    /// The number of the first bad line, and the reason.
    pub first_bad: Option<(u64, String)>,
    /// True if a line was not in UTF-8 and was read as Latin-1.
    pub has_latin1: bool,
    /// The names of the columns in the first line, if they look like an item and not like a header.
    pub odd_header: Option<Vec<String>>,
}

/// Returns true if names of columns look like the values of an item: one is empty, a number or an address, or is a value of its
/// own column too.
fn looks_like_an_item(names: &[String], items: &[RawItem]) -> bool {
    let is_value = |name: &String| {
        name.trim().is_empty()
            || name.parse::<f64>().is_ok()
            || name.contains("://")
            || items
                .iter()
                .any(|item| item.get(name).and_then(Value::as_str) == Some(name))
    };
    names.iter().any(is_value)
}

/// The maximum number of lines of a field in quotes.
const MAX_LINES_OF_FIELD: usize = 1000;

/// Reads a file of items: CSV and the like, JSON lines or Parquet, also compressed with gzip or zstd. Calls `progress`
/// with the bytes of the file that were read and the bytes in all (0 if that is not known).
///
/// # Errors
/// Names the file and, if it is a line that is wrong, its number.
pub fn read_items(
    path: &Path,
    options: &ItemOptions,
    progress: &dyn Fn(u64, u64),
) -> Result<ReadItems, ReadError> {
    let source = Source::open(path, None)?;
    let mut all = Collected {
        path,
        options,
        read: ReadItems {
            items: Vec::new(),
            lines: Vec::new(),
            bad_lines: 0,
            first_bad: None,
            has_latin1: false,
            odd_header: None,
        },
        header: Vec::new(),
        places: HashMap::new(),
    };
    let (done, total) = (source.done, source.total);
    match source.content {
        Content::Parquet(file) => all.parquet(file, &|share| {
            progress((share * total as f64) as u64, total);
        })?,
        Content::Stream(stream) => all.text(stream, &|| progress(done.get(), total))?,
    }
    if looks_like_an_item(&all.header, &all.read.items) {
        all.read.odd_header = Some(all.header);
    }
    match all.read.items.is_empty() {
        true => Err(ReadError::Columns {
            path: path.into(),
            reason: "it has no items".into(),
        }),
        false => Ok(all.read),
    }
}

struct Collected<'a> {
    path: &'a Path,
    options: &'a ItemOptions,
    read: ReadItems,
    /// The names in the first line of a text.
    header: Vec<String>,
    /// The place of each gathered item.
    places: HashMap<String, usize>,
}

impl Collected<'_> {
    fn columns_error(&self, reason: String) -> ReadError {
        ReadError::Columns {
            path: self.path.into(),
            reason,
        }
    }

    /// Adds an item or, if rows are gathered, a row of one.
    fn add(&mut self, line: u64, item: Result<RawItem, String>) -> Result<(), ReadError> {
        let added = item.and_then(|item| match &self.options.gather {
            None => {
                self.read.items.push(item);
                self.read.lines.push(line);
                Ok(())
            }
            Some(column) => self.gather(line, column.clone(), item),
        });
        let Err(reason) = added else { return Ok(()) };
        if !self.options.skip_bad_lines {
            return Err(ReadError::Line {
                path: self.path.into(),
                line,
                reason,
            });
        }
        self.read.bad_lines += 1;
        self.read.first_bad.get_or_insert((line, reason));
        Ok(())
    }

    fn gather(&mut self, line: u64, column: String, mut row: RawItem) -> Result<(), String> {
        let id = match row.remove(&column) {
            Some(Value::String(id)) if !id.is_empty() => id,
            Some(Value::Number(id)) => id.to_string(),
            _ => return Err(format!("there is no id (column '{column}')")),
        };
        let read = &mut self.read;
        let place = *self.places.entry(id.clone()).or_insert_with(|| {
            read.items.push(RawItem::from_iter([(column, id.into())]));
            read.lines.push(line);
            read.items.len() - 1
        });
        for (name, value) in row {
            let list = read.items[place]
                .entry(name)
                .or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(list) = list {
                list.push(value);
            }
        }
        Ok(())
    }

    fn text(&mut self, mut stream: Box<dyn BufRead>, report: &dyn Fn()) -> Result<(), ReadError> {
        let path = self.path;
        let failed = |source| ReadError::Io {
            path: path.into(),
            source,
        };
        let start = stream.fill_buf().map_err(failed)?;
        if let Some(what) = binary_kind(start) {
            let path = path.into();
            return Err(ReadError::Unknown { path, what });
        }
        let mut lines = Lines::new(stream);
        let mut layout: Option<(Separator, Vec<String>)> = None;
        let mut is_json = None;
        let mut reported = 0;
        loop {
            if lines.bytes() != reported {
                reported = lines.bytes();
                report();
            }
            let Some(text) = lines.next_line().map_err(failed)? else {
                return Ok(());
            };
            if text.trim_ascii().is_empty() {
                continue;
            }
            let mut text = text.to_vec();
            let line = lines.number();
            if *is_json.get_or_insert_with(|| text.trim_ascii_start().starts_with(b"{")) {
                let item = serde_json::from_slice(&text);
                self.add(
                    line,
                    item.map_err(|error| format!("no object in JSON: {error}")),
                )?;
                continue;
            }
            if layout.is_none() {
                let separator = separator(&text);
                let names = self.options.columns.clone();
                if names.is_empty() {
                    let header = self.fields(&mut text, separator, &mut lines, true);
                    let names = header.map_err(|reason| self.columns_error(reason))?;
                    self.check_names(&names)?;
                    self.header.clone_from(&names);
                    layout = Some((separator, names));
                    continue;
                }
                self.check_names(&names)?;
                layout = Some((separator, names));
            }
            let Some((separator, names)) = &layout else {
                continue;
            };
            let fields = self.fields(&mut text, *separator, &mut lines, false);
            let item = fields.and_then(|fields| match fields.len() == names.len() {
                true => Ok(names
                    .iter()
                    .cloned()
                    .zip(fields.into_iter().map(Value::from))
                    .collect()),
                false => Err(format!(
                    "there are {} fields, and {} columns",
                    fields.len(),
                    names.len()
                )),
            });
            self.add(line, item)?;
        }
    }

    /// Checks the names of the columns.
    fn check_names(&self, names: &[String]) -> Result<(), ReadError> {
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(self.columns_error(format!("two columns are called '{}'", pair[0])));
        }
        match &self.options.gather {
            Some(column) if !names.contains(column) => Err(self.columns_error(format!(
                "there is no column '{column}'; the columns are {}",
                names.join(", ")
            ))),
            _ => Ok(()),
        }
    }

    /// The fields of a row. A field in quotes may have several lines.
    fn fields(
        &mut self,
        text: &mut Vec<u8>,
        separator: Separator,
        lines: &mut Lines<Box<dyn BufRead>>,
        is_header: bool,
    ) -> Result<Vec<String>, String> {
        let mut fields = cut(text, separator);
        for _ in 0..MAX_LINES_OF_FIELD {
            // Only a quote that is not closed needs more lines.
            if is_header || !matches!(fields, Err("a quote is not closed")) {
                break;
            }
            let more = lines.next_line().map_err(|error| error.to_string())?;
            let Some(more) = more else { break };
            text.push(b'\n');
            text.extend_from_slice(more);
            fields = cut(text, separator);
        }
        let fields = fields?
            .into_iter()
            .map(|field| match String::from_utf8(field) {
                Ok(field) => field,
                Err(error) => {
                    // Every byte is a character of Latin-1.
                    self.read.has_latin1 = true;
                    error.into_bytes().into_iter().map(char::from).collect()
                }
            });
        Ok(fields.collect())
    }

    fn parquet(&mut self, file: File, progress: &dyn Fn(f64)) -> Result<(), ReadError> {
        let path = self.path;
        let damaged = |error: ::parquet::errors::ParquetError| ReadError::Parquet {
            path: path.into(),
            reason: error.to_string(),
        };
        let file = SerializedFileReader::new(file).map_err(damaged)?;
        let total = file.metadata().file_metadata().num_rows().max(1) as f64;
        for (row, number) in file.get_row_iter(None).map_err(damaged)?.zip(1..) {
            let row = row.map_err(damaged)?;
            let fields = row.get_column_iter();
            let item = fields
                .map(|(name, field)| Ok((name.clone(), value(field)?)))
                .collect();
            self.add(number, item)?;
            if number % 1024 == 0 {
                progress(number as f64 / total);
            }
        }
        Ok(())
    }
}

fn cut(text: &[u8], separator: Separator) -> Result<Vec<Vec<u8>>, &'static str> {
    let mut fields = Fields::new(text, separator);
    let mut all = Vec::new();
    while let Some(field) = fields.take()? {
        all.push(field.into_owned());
    }
    Ok(all)
}

/// The separator of the first line: `::`, or the one that makes the most fields.
fn separator(line: &[u8]) -> Separator {
    let count = |separator| cut(line, separator).map_or(0, |fields| fields.len());
    if count(Separator::Colons) > 1 {
        return Separator::Colons;
    }
    let all = [b'\t', b',', b';', b'|'].map(Separator::Byte);
    let most = all
        .into_iter()
        .rev()
        .max_by_key(|&separator| count(separator));
    most.unwrap_or(Separator::Byte(b','))
}

/// The value of a field of a Parquet file.
fn value(field: &Field) -> Result<Value, String> {
    Ok(match field {
        Field::Null => Value::Null,
        Field::Bool(value) => (*value).into(),
        Field::Byte(value) => (*value).into(),
        Field::Short(value) => (*value).into(),
        Field::Int(value) | Field::Date(value) | Field::TimeMillis(value) => (*value).into(),
        Field::Long(value)
        | Field::TimeMicros(value)
        | Field::TimestampMillis(value)
        | Field::TimestampMicros(value) => (*value).into(),
        Field::UByte(value) => (*value).into(),
        Field::UShort(value) => (*value).into(),
        Field::UInt(value) => (*value).into(),
        Field::ULong(value) => (*value).into(),
        Field::Float(value) => f64::from(*value).into(),
        Field::Double(value) => (*value).into(),
        Field::Str(text) => text.clone().into(),
        Field::Bytes(bytes) => match std::str::from_utf8(bytes.data()) {
            Ok(text) => text.into(),
            Err(_) => return Err("a value is not UTF-8".into()),
        },
        Field::ListInternal(list) => {
            let values: Result<Vec<Value>, String> = list.elements().iter().map(value).collect();
            values?.into()
        }
        // Of no use for features, and left out there.
        Field::Group(_) | Field::MapInternal(_) => Value::Object(RawItem::new()),
        other => Value::from(Cow::from(other.to_string())),
    })
}

#[cfg(test)]
mod tests;
