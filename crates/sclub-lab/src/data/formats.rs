//! The formats of files, and the meaning of a line in each.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use super::collect::{Reason, Row, Wanted};
use super::columns::{ColumnNames, Columns};
use super::fields::{Fields, Separator, is_number, number};
use super::json::{self, FieldNames};
use super::names::Name;
use crate::named::{Named, named};

/// The format of a file of interactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `userId,movieId,rating,timestamp` and lines like it; also `userId,movieId` alone.
    MovieLensCsv,
    /// Lines like `1::1193::5::978300760`.
    MovieLensDat,
    /// A JSON object a line with `user_id`, `business_id` and `stars`.
    YelpJson,
    /// A user, an item and perhaps a rating, between tabs, semicolons, commas, `|` or spaces.
    Separated,
    /// A JSON object a line, with fields of any names.
    JsonLines,
    /// A table in a Parquet file.
    Parquet,
    /// A matrix of NumPy: a row for each user, a column for each item, not 0 if the user took the item.
    Npy,
}

named!(
    Format,
    "format",
    [
        (
            "movielens-csv",
            "userId,movieId,rating,timestamp, or the first two alone",
            Format::MovieLensCsv
        ),
        (
            "movielens-dat",
            "1::1193::5::978300760",
            Format::MovieLensDat
        ),
        (
            "yelp-json",
            "A JSON object a line with user_id, business_id and stars",
            Format::YelpJson
        ),
        (
            "separated",
            "User, item and perhaps a rating, between tabs, commas, semicolons, | or spaces",
            Format::Separated
        ),
        (
            "json-lines",
            "A JSON object a line, with fields of any names",
            Format::JsonLines
        ),
        ("parquet", "A table in a Parquet file", Format::Parquet),
        (
            "npy",
            "A matrix of NumPy, not 0 where a user (row) took an item (column)",
            Format::Npy
        ),
    ]
);

impl fmt::Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl Format {
    /// The format of a text file with this name and first line, if it is a known one.
    pub(super) fn detect(path: &Path, first: &[u8], names: &ColumnNames) -> Option<Self> {
        let ending = path
            .extension()
            .and_then(|ending| ending.to_str())
            .unwrap_or("");
        if first.trim_ascii_start().starts_with(b"{") {
            let fields = json::fields(first);
            let is_yelp =
                fields.is_none_or(|fields| fields.iter().any(|name| name == "business_id"));
            return Some(match is_yelp && names.is_empty() {
                true => Format::YelpJson,
                false => Format::JsonLines,
            });
        }
        if header_columns(first, Separator::Byte(b',')).is_some_and(|columns| columns.movies) {
            return Some(Format::MovieLensCsv);
        }
        let colons = count(first, Separator::Colons);
        if colons >= 3 || (colons == 2 && separator(first).is_none()) {
            return Some(Format::MovieLensDat);
        }
        match separator(first) {
            Some(_) => Some(Format::Separated),
            // A single column cannot be a file of interactions, but its name can be listed.
            None if !names.is_empty() => Some(Format::Separated),
            None if ending.eq_ignore_ascii_case("json") => Some(Format::YelpJson),
            None => None,
        }
    }
}

/// The reason why the layout of a file is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayoutError {
    /// The first line is bad. The next one may be better.
    Line(Reason),
    /// Columns are missing. It is of no use to read on.
    Columns(String),
}

/// Without a header: user, item, rating, time.
const USUAL: Columns = Columns {
    user: 0,
    item: 1,
    rating: Some(2),
    time: Some(3),
    movies: false,
};

/// The fields of a line as texts; `None` if its quotes are wrong.
fn texts(line: &[u8], separator: Separator) -> Option<Vec<Cow<'_, str>>> {
    let mut fields = Fields::new(line, separator);
    let mut texts = Vec::new();
    while let Some(field) = fields.take().ok()? {
        texts.push(Cow::Owned(String::from_utf8_lossy(&field).into_owned()));
    }
    Some(texts)
}

/// The columns that a header names by their words; `None` if it names no user or no item.
fn header_columns(line: &[u8], separator: Separator) -> Option<Columns> {
    ColumnNames::default().find(&texts(line, separator)?).ok()
}

/// The number of fields of a line that are not empty; 0 if its quotes are wrong.
fn count(line: &[u8], separator: Separator) -> usize {
    let mut fields = Fields::new(line, separator);
    let mut count = 0;
    loop {
        match fields.take() {
            Ok(Some(field)) => count += usize::from(!field.is_empty()),
            Ok(None) => return count,
            Err(_) => return 0,
        }
    }
}

/// The separator of a line's fields: the first that gives a user, an item and no rating or one that is a
/// number, else the first that gives two fields.
fn separator(line: &[u8]) -> Option<Separator> {
    let bytes = [b'\t', b';', b',', b'|'].map(Separator::Byte);
    let several = || {
        bytes
            .into_iter()
            .chain([Separator::Spaces])
            .filter(|&separator| count(line, separator) >= 2)
    };
    several()
        .find(|&separator| {
            header_columns(line, separator).is_some()
                || row(line, separator, USUAL, Wanted::default()).is_ok()
        })
        .or_else(|| several().next())
}

/// The separator of a header with these names, if one gives them all.
fn separator_for(line: &[u8], names: &ColumnNames) -> Option<Separator> {
    let bytes = [b'\t', b';', b',', b'|'].map(Separator::Byte);
    bytes
        .into_iter()
        .chain([Separator::Colons, Separator::Spaces])
        .find(|&separator| {
            let texts = texts(line, separator);
            texts.is_some_and(|texts| {
                texts.len() >= 2
                    && names
                        .given()
                        .all(|name| texts.iter().any(|text| text == name))
            })
        })
}

/// The layout of a file's lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    Fields(Separator, Columns),
    Json(FieldNames),
}

impl Layout {
    /// The layout for the format and the first line; true if that line is a header.
    ///
    /// # Errors
    /// The reason why the layout cannot be detected from the line.
    pub fn of(
        format: Format,
        first: &[u8],
        names: &ColumnNames,
    ) -> Result<(Self, bool), LayoutError> {
        let separator = match format {
            Format::MovieLensCsv => Separator::Byte(b','),
            Format::MovieLensDat => Separator::Colons,
            Format::Separated if !names.is_empty() => separator_for(first, names)
                .or_else(|| separator(first))
                .unwrap_or(Separator::Byte(b',')),
            Format::Separated => separator(first).ok_or(LayoutError::Line(
                "there is neither a tab, a semicolon, a comma, a | nor a space".into(),
            ))?,
            Format::YelpJson if names.is_empty() => {
                return Ok((Layout::Json(FieldNames::yelp()), false));
            }
            Format::YelpJson | Format::JsonLines => {
                return match FieldNames::find(names, first) {
                    Some(Ok(fields)) => Ok((Layout::Json(fields), false)),
                    Some(Err(reason)) => Err(LayoutError::Columns(reason)),
                    None => Err(LayoutError::Line(
                        "the line is not an object in JSON".into(),
                    )),
                };
            }
            Format::Npy => return Err(LayoutError::Line("a matrix has no lines".into())),
            Format::Parquet => return Err(LayoutError::Line("a table has no lines".into())),
        };
        if names.is_empty() {
            let header = header_columns(first, separator);
            let columns = header.unwrap_or(USUAL);
            return Ok((Layout::Fields(separator, columns), header.is_some()));
        }
        let header = texts(first, separator)
            .ok_or_else(|| LayoutError::Line("a quote is not closed".into()))?;
        let columns = names.find(&header).map_err(LayoutError::Columns)?;
        Ok((Layout::Fields(separator, columns), true))
    }

    /// True if there is a rating, as far as the layout tells.
    pub fn has_rating(&self) -> bool {
        match self {
            Layout::Fields(_, columns) => columns.rating.is_some(),
            Layout::Json(fields) => fields.rating().is_some(),
        }
    }

    /// The interaction of a line. A rating that is not wanted is validated and no more.
    ///
    /// # Errors
    /// The reason why the line is not an interaction.
    #[inline]
    pub fn row<'a>(&self, line: &'a [u8], wanted: Wanted) -> Result<Row<'a>, Reason> {
        match self {
            Layout::Fields(separator, columns) => row(line, *separator, *columns, wanted),
            Layout::Json(fields) => fields.row(line, wanted),
        }
    }
}

#[inline]
fn row(
    line: &[u8],
    separator: Separator,
    columns: Columns,
    wanted: Wanted,
) -> Result<Row<'_>, Reason> {
    let mut fields = Fields::new(line, separator);
    let time_column = columns.time.filter(|_| wanted.time);
    let last = columns
        .user
        .max(columns.item)
        .max(columns.rating.unwrap_or(0))
        .max(time_column.unwrap_or(0));
    let (mut user, mut item, mut rating, mut time) = (None, None, None, None);
    for at in 0..=last {
        let Some(field) = fields.take()? else {
            break;
        };
        if at == columns.user {
            user = Some(field);
        } else if at == columns.item {
            item = Some(field);
        } else if Some(at) == columns.rating && !field.is_empty() {
            if wanted.rating {
                rating = number(&field, separator);
            }
            if rating.is_none() && !is_number(&field, separator) {
                let shown = String::from_utf8_lossy(&field);
                let shown: String = shown.chars().take(40).collect();
                let column = at + 1;
                return Err(
                    format!("the rating '{shown}' (column {column}) is not a number").into(),
                );
            }
        } else if Some(at) == time_column && !field.is_empty() {
            time = Some(super::times::parse(&String::from_utf8_lossy(&field))?);
        }
    }
    let (user, item) = names(user.unwrap_or_default(), item.unwrap_or_default())?;
    Ok(Row {
        user,
        item,
        rating,
        time,
    })
}

fn names<'a>(user: Cow<'a, [u8]>, item: Cow<'a, [u8]>) -> Result<(Name<'a>, Name<'a>), Reason> {
    if user.is_empty() {
        return Err("there is no user".into());
    }
    if item.is_empty() {
        return Err("there is no item".into());
    }
    let user = Name::parse(user).ok_or("the user is not UTF-8")?;
    let item = Name::parse(item).ok_or("the item is not UTF-8")?;
    Ok((user, item))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATED: Wanted = Wanted {
        rating: true,
        time: false,
    };

    fn detected(name: &str, first: &str) -> Option<Format> {
        Format::detect(Path::new(name), first.as_bytes(), &ColumnNames::default())
    }

    #[test]
    fn formats_are_told_by_the_first_line() {
        use Format::{JsonLines, MovieLensCsv, MovieLensDat, Separated, YelpJson};
        let header = "userId,movieId,rating,timestamp";
        assert_eq!(detected("ratings.csv", header), Some(MovieLensCsv));
        assert_eq!(detected("x", "userId,movieId"), Some(MovieLensCsv));
        assert_eq!(detected("x", "\"userId\",\"movieId\""), Some(MovieLensCsv));
        assert_eq!(
            detected("ratings.dat", "1::1193::5::978300760"),
            Some(MovieLensDat)
        );
        assert_eq!(detected("x", "1::1193"), Some(MovieLensDat));
        assert_eq!(
            detected("review.json", "{\"business_id\": 1}"),
            Some(YelpJson)
        );
        assert_eq!(detected("review.json", "{\"a\": 1}"), Some(JsonLines));
        assert_eq!(detected("x", "{"), Some(YelpJson));
        assert_eq!(detected("x.json", "["), Some(YelpJson));
        for line in [
            "1\t2\t3",
            "1,2",
            "a;b;3,5",
            "a|b",
            "1 2 3",
            "user_id,item_id",
        ] {
            assert_eq!(detected("x", line), Some(Separated), "{line}");
        }
        assert_eq!(detected("x.csv", "alone"), None);
    }

    #[test]
    fn the_separator_is_the_one_that_makes_sense_of_the_rating() {
        let byte = |line: &str| separator(line.as_bytes());
        assert_eq!(byte("a b\tc d\t3"), Some(Separator::Byte(b'\t')));
        assert_eq!(byte("1;2;3,5"), Some(Separator::Byte(b';')));
        assert_eq!(byte("a;x,b;y,4"), Some(Separator::Byte(b',')));
        assert_eq!(byte("a|b|4"), Some(Separator::Byte(b'|')));
        assert_eq!(byte("a  b  4"), Some(Separator::Spaces));
        assert_eq!(byte("alone"), None);
    }

    #[test]
    fn a_header_tells_where_the_columns_are() {
        let of =
            |line: &[u8]| Layout::of(Format::Separated, line, &ColumnNames::default()).unwrap();
        let (layout, header) = of(b"rating,Item ID,user_id");
        assert!(header);
        let Row {
            user, item, rating, ..
        } = layout.row(b"4.5,x,y", RATED).unwrap();
        assert_eq!(rating, Some(4.5));
        assert_eq!(
            (user.to_string(), item.to_string()),
            ("y".into(), "x".into())
        );
        assert!(
            layout
                .row(b"x,y,4.5", RATED)
                .unwrap_err()
                .contains("not a number")
        );
        let (_, header) = of(b"user1,item1");
        assert!(!header);
    }

    #[test]
    fn a_bad_line_says_why() {
        let names = ColumnNames::default();
        let (csv, _) = Layout::of(Format::MovieLensCsv, b"userId,movieId,rating", &names).unwrap();
        for (line, reason) in [
            ("17", "there is no item"),
            ("17,", "there is no item"),
            (",5", "there is no user"),
            ("1,2,good", "the rating 'good' (column 3) is not a number"),
            ("1,\"2", "a quote is not closed"),
        ] {
            assert_eq!(
                csv.row(line.as_bytes(), Wanted::default()).unwrap_err(),
                reason
            );
        }
        assert_eq!(
            csv.row(b"1,\xff,3", Wanted::default()).unwrap_err(),
            "the item is not UTF-8"
        );
        assert!(csv.row(b"1,2,", Wanted::default()).is_ok());
    }
}
