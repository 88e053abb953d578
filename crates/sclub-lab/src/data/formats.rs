//! The formats of files, and the meaning of a line in each.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use serde::Deserialize;

use super::fields::{Fields, Separator, is_number};
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
    pub(super) fn detect(path: &Path, first: &[u8]) -> Option<Self> {
        let ending = path
            .extension()
            .and_then(|ending| ending.to_str())
            .unwrap_or("");
        if first.trim_ascii_start().starts_with(b"{") {
            return Some(Format::YelpJson);
        }
        if Columns::of(first, Separator::Byte(b',')).is_some_and(|columns| columns.movies) {
            return Some(Format::MovieLensCsv);
        }
        let colons = count(first, Separator::Colons);
        if colons >= 3 || (colons == 2 && separator(first).is_none()) {
            return Some(Format::MovieLensDat);
        }
        match separator(first) {
            Some(_) => Some(Format::Separated),
            None if ending.eq_ignore_ascii_case("json") => Some(Format::YelpJson),
            None => None,
        }
    }
}

/// The reason why a line is not an interaction.
pub type Reason = Cow<'static, str>;

/// The meaning of each field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns {
    user: usize,
    item: usize,
    rating: Option<usize>,
    /// True if a header calls the items movies.
    movies: bool,
}

/// Without a header: user, item, rating.
const USUAL: Columns = Columns {
    user: 0,
    item: 1,
    rating: Some(2),
    movies: false,
};

impl Columns {
    /// The columns that a header names; `None` if it names no user or no item.
    fn of(line: &[u8], separator: Separator) -> Option<Self> {
        let mut fields = Fields::new(line, separator);
        let (mut user, mut item, mut rating, mut movies) = (None, None, None, false);
        let mut at = 0;
        while let Ok(Some(field)) = fields.take() {
            let name: Vec<u8> = field
                .iter()
                .filter(|byte| !b"_- .".contains(byte))
                .map(u8::to_ascii_lowercase)
                .collect();
            if user.is_none() && is_called(&name, USERS) {
                user = Some(at);
            } else if item.is_none() && is_called(&name, ITEMS) {
                item = Some(at);
                movies = name.starts_with(b"movie");
            } else if rating.is_none() && is_called(&name, RATINGS) {
                rating = Some(at);
            }
            at += 1;
        }
        Some(Self {
            user: user?,
            item: item?,
            rating,
            movies,
        })
    }
}

const USERS: &[&str] = &["user", "uid", "reviewer", "customer", "member", "visitor"];
const ITEMS: &[&str] = &[
    "item", "iid", "movie", "film", "business", "product", "asin", "isbn", "book", "song", "track",
    "artist", "article", "place", "venue", "poi", "game", "anime", "recipe", "joke", "page",
    "show",
];
const RATINGS: &[&str] = &["rating", "star", "score", "grade", "vote"];
/// Words that may follow in the name of a column; `user1` is the name of a user, not of a column.
const SUFFIXES: &[&str] = &[
    "", "s", "id", "ids", "name", "idx", "index", "no", "number", "key", "code",
];

fn is_called(name: &[u8], words: &[&str]) -> bool {
    words.iter().any(|word| {
        name.strip_prefix(word.as_bytes())
            .is_some_and(|suffix| SUFFIXES.iter().any(|known| known.as_bytes() == suffix))
    })
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
            Columns::of(line, separator).is_some() || row(line, separator, USUAL).is_ok()
        })
        .or_else(|| several().next())
}

/// The layout of a file's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    Fields(Separator, Columns),
    Json,
}

impl Layout {
    /// The layout for the format and the first line; true if that line is a header.
    ///
    /// # Errors
    /// The reason why the layout cannot be detected from the line.
    pub fn of(format: Format, first: &[u8]) -> Result<(Self, bool), Reason> {
        let separator = match format {
            Format::MovieLensCsv => Separator::Byte(b','),
            Format::MovieLensDat => Separator::Colons,
            Format::Separated => separator(first)
                .ok_or("there is neither a tab, a semicolon, a comma, a | nor a space")?,
            Format::YelpJson => return Ok((Layout::Json, false)),
            Format::Npy => return Err("a matrix has no lines".into()),
        };
        let header = Columns::of(first, separator);
        let columns = header.unwrap_or(USUAL);
        Ok((Layout::Fields(separator, columns), header.is_some()))
    }

    /// The user and the item of a line.
    ///
    /// # Errors
    /// The reason why the line is not an interaction.
    #[inline]
    pub fn row<'a>(&self, line: &'a [u8]) -> Result<(Name<'a>, Name<'a>), Reason> {
        match self {
            Layout::Fields(separator, columns) => row(line, *separator, *columns),
            Layout::Json => json(line),
        }
    }
}

#[inline]
fn row(
    line: &[u8],
    separator: Separator,
    columns: Columns,
) -> Result<(Name<'_>, Name<'_>), Reason> {
    let mut fields = Fields::new(line, separator);
    let last = columns
        .user
        .max(columns.item)
        .max(columns.rating.unwrap_or(0));
    let (mut user, mut item) = (None, None);
    for at in 0..=last {
        let Some(field) = fields.take()? else {
            break;
        };
        if at == columns.user {
            user = Some(field);
        } else if at == columns.item {
            item = Some(field);
        } else if Some(at) == columns.rating && !field.is_empty() && !is_number(&field, separator) {
            let shown = String::from_utf8_lossy(&field);
            let shown: String = shown.chars().take(40).collect();
            return Err(format!("the rating '{shown}' is not a number").into());
        }
    }
    names(user.unwrap_or_default(), item.unwrap_or_default())
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

/// The fields of a review that are used. The others are ignored.
#[derive(Deserialize)]
struct Review<'a> {
    #[serde(borrow, default)]
    user_id: Cow<'a, str>,
    #[serde(borrow, default)]
    business_id: Cow<'a, str>,
    #[serde(rename = "stars", default)]
    _stars: Option<f64>,
}

fn json(line: &[u8]) -> Result<(Name<'_>, Name<'_>), Reason> {
    let review: Review<'_> = serde_json::from_slice(line).map_err(|error| {
        let column = error.column();
        let text = error.to_string();
        let what = text.split(" at line ").next().unwrap_or_default();
        format!("no review in JSON: {what}, at column {column}")
    })?;
    let bytes = |text| match text {
        Cow::Borrowed(text) => Cow::Borrowed(str::as_bytes(text)),
        Cow::Owned(text) => Cow::Owned(String::into_bytes(text)),
    };
    names(bytes(review.user_id), bytes(review.business_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detected(name: &str, first: &str) -> Option<Format> {
        Format::detect(Path::new(name), first.as_bytes())
    }

    #[test]
    fn formats_are_told_by_the_first_line() {
        use Format::{MovieLensCsv, MovieLensDat, Separated, YelpJson};
        let header = "userId,movieId,rating,timestamp";
        assert_eq!(detected("ratings.csv", header), Some(MovieLensCsv));
        assert_eq!(detected("x", "userId,movieId"), Some(MovieLensCsv));
        assert_eq!(detected("x", "\"userId\",\"movieId\""), Some(MovieLensCsv));
        assert_eq!(
            detected("ratings.dat", "1::1193::5::978300760"),
            Some(MovieLensDat)
        );
        assert_eq!(detected("x", "1::1193"), Some(MovieLensDat));
        assert_eq!(detected("review.json", "{\"a\": 1}"), Some(YelpJson));
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
        let (layout, header) = Layout::of(Format::Separated, b"rating,Item ID,user_id").unwrap();
        assert!(header);
        let (user, item) = layout.row(b"4.5,x,y").unwrap();
        assert_eq!(
            (user.to_string(), item.to_string()),
            ("y".into(), "x".into())
        );
        assert!(layout.row(b"x,y,4.5").unwrap_err().contains("not a number"));
        let (_, header) = Layout::of(Format::Separated, b"user1,item1").unwrap();
        assert!(!header);
    }

    #[test]
    fn a_bad_line_says_why() {
        let (csv, _) = Layout::of(Format::MovieLensCsv, b"userId,movieId,rating").unwrap();
        for (line, reason) in [
            ("17", "there is no item"),
            ("17,", "there is no item"),
            (",5", "there is no user"),
            ("1,2,good", "the rating 'good' is not a number"),
            ("1,\"2", "a quote is not closed"),
        ] {
            assert_eq!(csv.row(line.as_bytes()).unwrap_err(), reason);
        }
        assert_eq!(csv.row(b"1,\xff,3").unwrap_err(), "the item is not UTF-8");
        assert!(csv.row(b"1,2,").is_ok());
    }

    #[test]
    fn json_may_hold_escapes_and_anything_besides() {
        let row = |line: &str| {
            let names = json(line.as_bytes());
            names.map(|(user, item)| (user.to_string(), item.to_string()))
        };
        let line = r#"{"text": "\"user_id\": \"no\" {", "user_id": "a\u00e9\"\\", "stars": 4.0, "n": [{}], "business_id": "b"}"#;
        assert_eq!(row(line), Ok(("aé\"\\".into(), "b".into())));
        let bad = |line: &str| row(line).unwrap_err().into_owned();
        assert_eq!(bad(r#"{"user_id": "a", "stars": 1}"#), "there is no item");
        assert_eq!(bad(r#"{"business_id": "a"}"#), "there is no user");
        assert!(bad(r#"{"user_id": "a", "business_id": "b", "stars": "x"}"#).contains("JSON"));
        assert!(bad(r#"{"user_id": "a", "business_id": "b""#).contains("JSON"));
    }
}
