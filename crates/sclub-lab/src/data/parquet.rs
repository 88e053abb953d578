//! Tables in Parquet files, read column by column.

use std::borrow::Cow;
use std::fs::File;

use ::parquet::basic::{ConvertedType, Type};
use ::parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use ::parquet::data_type::{ByteArray, DataType};
use ::parquet::errors::ParquetError;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};

use super::collect::{Reason, Row, Wanted};
use super::columns::{ColumnNames, Columns};
use super::names::Name;
use super::read::ReadError;

/// The first bytes of such a file.
pub const MAGIC: &[u8] = b"PAR1";

/// Rows decoded at a time.
const BATCH: usize = 1 << 13;

/// The reason why a file cannot be read.
pub enum Failure {
    /// The caller refused a row.
    Refused(ReadError),
    /// Ratings are needed, and no column has them.
    NoRatings,
    /// A column is missing or of an unsupported type.
    Columns(String),
    /// The file is damaged or has an unsupported feature.
    Damaged(String),
}

impl From<ParquetError> for Failure {
    fn from(error: ParquetError) -> Self {
        Failure::Damaged(error.to_string())
    }
}

/// Takes the number of a row and its content.
pub type AddRow<'a> = dyn FnMut(u64, Result<Row<'_>, Reason>) -> Result<(), ReadError> + 'a;

/// Reads a table. Calls `add` with the number of each row, from 1, and its content, and `progress` with the share of
/// rows that were read.
pub fn read(
    file: File,
    names: &ColumnNames,
    wanted: Wanted,
    add: &mut AddRow<'_>,
    progress: &dyn Fn(f64),
) -> Result<(), Failure> {
    let file = SerializedFileReader::new(file)?;
    let metadata = file.metadata().file_metadata();
    let schema = metadata.schema_descr();
    let roots: Vec<Cow<'_, str>> = schema
        .root_schema()
        .get_fields()
        .iter()
        .map(|field| Cow::Borrowed(field.name()))
        .collect();
    let Columns {
        user,
        item,
        rating,
        time,
        ..
    } = names.find(&roots).map_err(Failure::Columns)?;
    if wanted.rating && rating.is_none() {
        return Err(Failure::NoRatings);
    }
    // Columns that are not used are not read.
    let rating = rating.filter(|_| wanted.rating);
    let time = time.filter(|_| wanted.time);
    let user = leaf(schema, user, &roots, Holds::Names)?;
    let item = leaf(schema, item, &roots, Holds::Names)?;
    let rating = match rating {
        Some(at) => Some(leaf(schema, at, &roots, Holds::Numbers)?),
        None => None,
    };
    let time = match time {
        Some(at) => Some(leaf(schema, at, &roots, Holds::Times)?),
        None => None,
    };
    let total = metadata.num_rows().max(1) as f64;
    let mut number = 0;
    for group in 0..file.num_row_groups() {
        let group = file.get_row_group(group)?;
        let mut left = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        let mut users = Column::new(
            group.get_column_reader(user)?,
            schema.columns()[user].as_ref(),
        );
        let mut items = Column::new(
            group.get_column_reader(item)?,
            schema.columns()[item].as_ref(),
        );
        let mut ratings = match rating {
            Some(at) => Some(Column::new(
                group.get_column_reader(at)?,
                schema.columns()[at].as_ref(),
            )),
            None => None,
        };
        let mut times = match time {
            Some(at) => Some(Column::new(
                group.get_column_reader(at)?,
                schema.columns()[at].as_ref(),
            )),
            None => None,
        };
        while left > 0 {
            let count = left.min(BATCH);
            users.fill(count)?;
            items.fill(count)?;
            if let Some(ratings) = &mut ratings {
                ratings.fill(count)?;
            }
            if let Some(times) = &mut times {
                times.fill(count)?;
            }
            for at in 0..count {
                number += 1;
                let rating = ratings.as_ref().and_then(|ratings| ratings.number(at));
                let row = users.name("user", at).and_then(|user| {
                    let item = items.name("item", at)?;
                    let time = match &times {
                        Some(times) => times.time(at)?,
                        None => None,
                    };
                    Ok(Row {
                        user,
                        item,
                        rating,
                        time,
                    })
                });
                add(number, row).map_err(Failure::Refused)?;
            }
            left -= count;
            progress(number as f64 / total);
        }
    }
    Ok(())
}

/// The use of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    Names,
    Numbers,
    Times,
}

/// The leaf of a column, if it holds what it should.
fn leaf(
    schema: &SchemaDescriptor,
    root: usize,
    roots: &[Cow<'_, str>],
    holds: Holds,
) -> Result<usize, Failure> {
    let name = &roots[root];
    let at = (0..schema.num_columns())
        .find(|&at| schema.get_column_root_idx(at) == root)
        .ok_or_else(|| Failure::Columns(format!("column '{name}' is empty")))?;
    let column = schema.column(at);
    let wrong = |what: String| {
        let expected = match holds {
            Holds::Names => "strings or whole numbers are",
            Holds::Numbers => "numbers are",
            Holds::Times => "times, numbers or strings are",
        };
        Failure::Columns(format!("column '{name}' holds {what}; {expected} expected"))
    };
    if column.path().parts().len() > 1 || column.max_rep_level() > 0 {
        return Err(wrong("lists or objects".into()));
    }
    if column.converted_type() == ConvertedType::DECIMAL {
        return Err(wrong("decimals".into()));
    }
    let is_good = matches!(
        (column.physical_type(), holds),
        (Type::INT32 | Type::INT64, _)
            | (Type::BYTE_ARRAY, Holds::Names | Holds::Times)
            | (Type::FLOAT | Type::DOUBLE, Holds::Numbers | Holds::Times)
            | (Type::BOOLEAN, Holds::Numbers)
    );
    match is_good {
        true => Ok(at),
        false => Err(wrong(kind(&column).into())),
    }
}

fn kind(column: &ColumnDescriptor) -> &'static str {
    match column.physical_type() {
        Type::BOOLEAN => "booleans",
        Type::INT32 | Type::INT64 => "whole numbers",
        Type::INT96 => "times",
        Type::FLOAT | Type::DOUBLE => "floating-point numbers",
        Type::BYTE_ARRAY => "strings",
        Type::FIXED_LEN_BYTE_ARRAY => "bytes of a fixed length",
    }
}

/// A value of a column.
enum Value {
    Signed(i64),
    Unsigned(u64),
    Real(f64),
    Text(ByteArray),
    Missing,
}

/// A column of a group of rows, and some of its values.
struct Column {
    reader: ColumnReader,
    /// The definition level of a value that is there.
    present: i16,
    unsigned: bool,
    /// True if numbers are days.
    days: bool,
    name: String,
    values: Vec<Value>,
}

impl Column {
    fn new(reader: ColumnReader, about: &ColumnDescriptor) -> Self {
        let unsigned = matches!(
            about.converted_type(),
            ConvertedType::UINT_8
                | ConvertedType::UINT_16
                | ConvertedType::UINT_32
                | ConvertedType::UINT_64
        );
        Self {
            reader,
            present: about.max_def_level(),
            unsigned,
            days: about.converted_type() == ConvertedType::DATE,
            name: about.name().into(),
            values: Vec::new(),
        }
    }

    /// Reads the next values.
    fn fill(&mut self, count: usize) -> Result<(), Failure> {
        let (present, unsigned) = (self.present, self.unsigned);
        self.values = match &mut self.reader {
            ColumnReader::BoolColumnReader(reader) => take(reader, count, present, |value| {
                Value::Real(f64::from(u8::from(value)))
            }),
            ColumnReader::Int32ColumnReader(reader) => {
                take(reader, count, present, |value| match unsigned {
                    true => Value::Unsigned(u64::from(value as u32)),
                    false => Value::Signed(i64::from(value)),
                })
            }
            ColumnReader::Int64ColumnReader(reader) => {
                take(reader, count, present, |value| match unsigned {
                    true => Value::Unsigned(value as u64),
                    false => Value::Signed(value),
                })
            }
            ColumnReader::FloatColumnReader(reader) => take(reader, count, present, |value| {
                Value::Real(f64::from(value))
            }),
            ColumnReader::DoubleColumnReader(reader) => take(reader, count, present, Value::Real),
            ColumnReader::ByteArrayColumnReader(reader) => {
                take(reader, count, present, Value::Text)
            }
            ColumnReader::Int96ColumnReader(_) | ColumnReader::FixedLenByteArrayColumnReader(_) => {
                return Err(Failure::Damaged(
                    "a column has another type than announced".into(),
                ));
            }
        }?;
        Ok(())
    }

    /// The name at a place.
    fn name(&self, kind: &str, at: usize) -> Result<Name<'_>, Reason> {
        let missing = || Err(format!("there is no {kind} (column '{}')", self.name).into());
        match &self.values[at] {
            Value::Signed(number) => Ok(match u64::try_from(*number) {
                Ok(number) => Name::of_number(number),
                Err(_) => Name::Text(number.to_string().into()),
            }),
            Value::Unsigned(number) => Ok(Name::of_number(*number)),
            Value::Text(text) if text.data().is_empty() => missing(),
            Value::Text(text) => Name::parse(Cow::Borrowed(text.data()))
                .ok_or_else(|| format!("the {kind} (column '{}') is not UTF-8", self.name).into()),
            Value::Real(number) => {
                Err(format!("the {kind} (column '{}') is {number}", self.name).into())
            }
            Value::Missing => missing(),
        }
    }

    /// The time at a place.
    fn time(&self, at: usize) -> Result<Option<i64>, Reason> {
        match &self.values[at] {
            Value::Text(text) => {
                super::times::parse(&String::from_utf8_lossy(text.data())).map(Some)
            }
            // Days, or a number whose size tells its unit.
            Value::Signed(days) if self.days => super::times::of_days(*days).map(Some),
            _ => self.number(at).map(super::times::of_number).transpose(),
        }
    }

    /// The number at a place; `None` if it is missing or NaN.
    fn number(&self, at: usize) -> Option<f64> {
        match &self.values[at] {
            Value::Signed(number) => Some(*number as f64),
            Value::Unsigned(number) => Some(*number as f64),
            Value::Real(number) => Some(*number).filter(|number| !number.is_nan()),
            Value::Text(_) | Value::Missing => None,
        }
    }
}

/// The next values of a column. Those with a lower definition level are missing.
fn take<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    count: usize,
    present: i16,
    value: impl Fn(T::T) -> Value,
) -> Result<Vec<Value>, Failure> {
    let (mut levels, mut found) = (Vec::new(), Vec::new());
    let (rows, ..) = reader.read_records(count, Some(&mut levels), None, &mut found)?;
    if rows != count {
        return Err(Failure::Damaged("a column ends early".into()));
    }
    let mut found = found.into_iter();
    if present == 0 {
        return Ok(found.map(value).collect());
    }
    let values = levels.into_iter().map(|level| match level == present {
        true => found.next().map_or(Value::Missing, &value),
        false => Value::Missing,
    });
    Ok(values.collect())
}
