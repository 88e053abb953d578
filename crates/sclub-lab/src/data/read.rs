//! Reads files of ratings.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

use super::collect::{Collector, RatingUse, Reason, Row, Sink, Wanted};
use super::columns::ColumnNames;
use super::formats::{Format, Layout, LayoutError};
use super::interactions::Interactions;
use super::lines::Lines;
use super::names::Name;
use super::source::{Content, Source, binary_kind};
use super::{npy, parquet};

/// Options for reading a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// The format. By default it is detected from the name and the first line.
    pub format: Option<Format>,
    /// True to skip lines that cannot be parsed instead of failing.
    pub skip_bad_lines: bool,
    /// The columns. By default they are found by their names or, without a header, by their order.
    pub columns: ColumnNames,
    /// The meaning of ratings.
    pub ratings: RatingUse,
}

/// The content of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    /// The interactions.
    pub interactions: Interactions,
    /// Interactions before repeated ones were merged.
    pub rows: u64,
    /// Rows left out because their ratings are below the threshold.
    pub below: u64,
    /// The number of lines skipped.
    pub bad_lines: u64,
    /// The number of the first of them, and the reason.
    pub first_bad: Option<(u64, String)>,
    /// True if the first line was read as an interaction though it looks like a header: its names are
    /// words, and all others are numbers.
    pub odd_first_line: bool,
    /// The format of the file.
    pub format: Format,
}

/// The reason why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The operating system reports an error.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A folder instead of a file.
    #[error("{} is a folder; name a file in it", path.display())]
    Folder {
        /// The file.
        path: PathBuf,
    },
    /// An empty file.
    #[error("{} is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A file without interactions.
    #[error("{} holds no interactions{}", path.display(), of_bad(*bad_lines))]
    NoInteractions {
        /// The file.
        path: PathBuf,
        /// The number of lines skipped.
        bad_lines: u64,
    },
    /// A file of an unsupported format.
    #[error("{} is {what}", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The kind of file that it seems to be.
        what: &'static str,
    },
    /// A line that cannot be parsed.
    #[error("{}:{line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line; the first is 1.
        line: u64,
        /// The reason.
        reason: String,
    },
    /// The first line of a table is neither a header that is understood nor an interaction.
    #[error(
        "{}:{line}: {reason}; no header was recognised: if this line is one, name the columns of users, items and ratings",
        path.display()
    )]
    NoHeader {
        /// The file.
        path: PathBuf,
        /// The number of the line.
        line: u64,
        /// The reason why it is not an interaction.
        reason: String,
    },
    /// A column that is missing or of an unsupported type.
    #[error("{}: {reason}", path.display())]
    Columns {
        /// The file.
        path: PathBuf,
        /// The reason, with the columns there are.
        reason: String,
    },
    /// A row of a table that is not an interaction.
    #[error("{}, row {row}: {reason}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The number of the row; the first is 1.
        row: u64,
        /// The reason.
        reason: String,
    },
    /// A Parquet file that cannot be parsed.
    #[error("{} is no Parquet file to read: {reason}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Every rating is below the threshold.
    #[error("{}: none of {rows} ratings is {least} or more", path.display())]
    NoLikes {
        /// The file.
        path: PathBuf,
        /// The number of rows.
        rows: u64,
        /// The threshold.
        least: f64,
    },
    /// A matrix that cannot be parsed.
    #[error("{} is no matrix of NumPy to read: {reason}", path.display())]
    Matrix {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

fn of_bad(bad_lines: u64) -> String {
    match bad_lines {
        0 => String::new(),
        1 => "; the only line is bad".into(),
        _ => format!("; {bad_lines} lines are bad"),
    }
}

/// Reads a file of ratings, also one that is compressed with gzip or zstd. Calls `progress` now and then with the
/// bytes of the file that were read and the bytes in all (0 if that is not known).
///
/// # Errors
/// Names the file and, if it is a line that is wrong, its number.
pub fn read(
    path: &Path,
    options: &Options,
    progress: &dyn Fn(u64, u64),
) -> Result<Read, ReadError> {
    let mut all = Collector::new(options.ratings);
    let mut rows = Rows::new(options, &mut all);
    match read_rows(path, &mut rows, progress)? {
        Outcome::Rows(format) => {
            let bad = rows.bad();
            done(options, all, bad, path, format)
        }
        Outcome::Matrix(read) => Ok(*read),
    }
}

/// The result of reading a file row by row.
pub enum Outcome {
    /// All rows are in the sink.
    Rows(Format),
    /// The file is a matrix, which has no rows.
    Matrix(Box<Read>),
}

/// Reads the rows of a file into a sink.
pub fn read_rows(
    path: &Path,
    rows: &mut Rows<'_>,
    progress: &dyn Fn(u64, u64),
) -> Result<Outcome, ReadError> {
    let options = rows.options;
    let is_parquet = options.format.map(|format| format == Format::Parquet);
    let source = Source::open(path, is_parquet)?;
    let (read, total) = (source.done, source.total);
    let mut stream = match source.content {
        Content::Parquet(file) => {
            let format = table_file(path, file, rows, &|share| {
                progress((share * total as f64) as u64, total);
            })?;
            return Ok(Outcome::Rows(format));
        }
        Content::Stream(stream) => stream,
    };
    let start = stream.fill_buf().map_err(|source| ReadError::Io {
        path: path.into(),
        source,
    })?;
    let is_npy = start.starts_with(npy::MAGIC)
        || source
            .inner
            .extension()
            .is_some_and(|ending| ending.eq_ignore_ascii_case("npy"));
    let report = || progress(read.get(), total);
    if options.format == Some(Format::Npy) || (options.format.is_none() && is_npy) {
        let read = matrix(path, stream, options, &report)?;
        return Ok(Outcome::Matrix(Box::new(read)));
    }
    if let Some(what) = binary_kind(start) {
        let path = path.into();
        return Err(ReadError::Unknown { path, what });
    }
    text(path, &source.inner, stream, rows, &report).map(Outcome::Rows)
}

fn matrix(
    path: &Path,
    stream: impl BufRead,
    options: &Options,
    report: &dyn Fn(),
) -> Result<Read, ReadError> {
    if let Some(name) = options.columns.given().next() {
        return Err(ReadError::Columns {
            path: path.into(),
            reason: format!("a matrix of NumPy has no column '{name}'; its columns are items"),
        });
    }
    let matrix =
        npy::read(stream, options.ratings, &|_| report()).map_err(|reason| ReadError::Matrix {
            path: path.into(),
            reason,
        })?;
    let rows = matrix.pairs.len() as u64;
    let interactions = match options.ratings {
        RatingUse::Values => {
            let pairs = matrix.pairs.into_iter().zip(matrix.values).collect();
            Interactions::with_values(matrix.users, matrix.items, pairs)
        }
        _ => Interactions::new(matrix.users, matrix.items, matrix.pairs),
    };
    if interactions.is_empty() {
        let path = path.into();
        let bad_lines = 0;
        return Err(ReadError::NoInteractions { path, bad_lines });
    }
    Ok(Read {
        odd_first_line: false,
        interactions,
        rows,
        below: 0,
        bad_lines: 0,
        first_bad: None,
        format: Format::Npy,
    })
}

fn text(
    path: &Path,
    inner: &Path,
    stream: impl io::Read,
    rows: &mut Rows<'_>,
    report: &dyn Fn(),
) -> Result<Format, ReadError> {
    let mut lines = Lines::new(stream);
    let options = rows.options;
    let mut layout = None;
    let mut format = options.format;
    let mut reported = 0;
    let wanted = rows.wanted;
    loop {
        if lines.bytes() != reported {
            reported = lines.bytes();
            report();
        }
        let line = lines.number() + 1;
        let next = lines.next_line().map_err(|source| ReadError::Io {
            path: path.into(),
            source,
        })?;
        let Some(text) = next else {
            break;
        };
        if text.trim_ascii().is_empty() {
            continue;
        }
        let added = match &layout {
            Some(layout) => Layout::row(layout, text, wanted).and_then(|row| rows.add(line, &row)),
            None => {
                let known = format.or_else(|| Format::detect(inner, text, &options.columns));
                let Some(known) = known else {
                    let what = "of no format known here: its first line has but one field";
                    let path = path.into();
                    return Err(ReadError::Unknown { path, what });
                };
                format = Some(known);
                match Layout::of(known, text, &options.columns) {
                    Ok((found, header)) => {
                        if wanted.rating && !found.has_rating() && !rows.optional {
                            return Err(no_ratings(path));
                        }
                        let found = layout.insert(found);
                        let is_table = matches!(found, Layout::Fields(..));
                        // Without a header the number of columns may differ.
                        rows.is_rated =
                            wanted.rating && found.has_rating() && (header || !is_table);
                        if header {
                            continue;
                        }
                        let row = found.row(text, wanted);
                        if let (true, false, Err(reason)) = (is_table, options.skip_bad_lines, &row)
                        {
                            return Err(ReadError::NoHeader {
                                path: path.into(),
                                line,
                                reason: reason.to_string(),
                            });
                        }
                        row.and_then(|row| rows.add(line, &row))
                    }
                    Err(LayoutError::Line(reason)) => Err(reason),
                    Err(LayoutError::Columns(reason)) => {
                        let path = path.into();
                        return Err(ReadError::Columns { path, reason });
                    }
                }
            }
        };
        if let Err(reason) = added {
            let path = path.into();
            rows.refused(line, reason, |line, reason| ReadError::Line {
                path,
                line,
                reason,
            })?;
        }
    }
    Ok(format.unwrap_or(Format::Separated))
}

fn no_ratings(path: &Path) -> ReadError {
    ReadError::Columns {
        path: path.into(),
        reason: "no column is called rating or the like; name the column of ratings".into(),
    }
}

fn table_file(
    path: &Path,
    file: File,
    rows: &mut Rows<'_>,
    progress: &dyn Fn(f64),
) -> Result<Format, ReadError> {
    let (names, wanted) = (&rows.options.columns, rows.wanted);
    // A table without a column of ratings is refused.
    rows.is_rated = wanted.rating;
    let mut add = |number: u64, row: Result<Row<'_>, Reason>| -> Result<(), ReadError> {
        match row.and_then(|row| rows.add(number, &row)) {
            Ok(()) => Ok(()),
            Err(reason) => rows.refused(number, reason, |row, reason| ReadError::Row {
                path: path.into(),
                row,
                reason,
            }),
        }
    };
    parquet::read(file, names, wanted, &mut add, progress).map_err(|failure| match failure {
        parquet::Failure::Refused(error) => error,
        parquet::Failure::NoRatings => no_ratings(path),
        parquet::Failure::Columns(reason) => ReadError::Columns {
            path: path.into(),
            reason,
        },
        parquet::Failure::Damaged(reason) => ReadError::Parquet {
            path: path.into(),
            reason,
        },
    })?;
    Ok(Format::Parquet)
}

/// A table in memory: names, and rows of positions in them.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a> {
    /// The name of the table in messages.
    pub name: &'a str,
    /// The different users.
    pub users: &'a [String],
    /// The different items.
    pub items: &'a [String],
    /// The user and the item of each row.
    pub rows: &'a [(u32, u32)],
    /// The rating of each row, NaN where there is none; empty if there are no ratings.
    pub ratings: &'a [f64],
}

/// Reads a table that is in memory. Columns and format in the options are not used.
///
/// # Errors
/// Names the table and, if it is a row that is wrong, its number.
///
/// # Panics
/// If a row names a user or an item that is not there, or if there are ratings but not one for each row.
pub fn read_table(table: &Table<'_>, options: &Options) -> Result<Read, ReadError> {
    let path = Path::new(table.name);
    let mut all = Collector::new(options.ratings);
    let mut rows = Rows::new(options, &mut all);
    if options.ratings != RatingUse::Ignored && table.ratings.is_empty() {
        return Err(no_ratings(path));
    }
    for (at, &(user, item)) in table.rows.iter().enumerate() {
        let rating = table.ratings.get(at).copied();
        let row = Row {
            user: Name::of_text(Cow::Borrowed(&table.users[user as usize])),
            item: Name::of_text(Cow::Borrowed(&table.items[item as usize])),
            rating: rating.filter(|rating| !rating.is_nan()),
            time: None,
        };
        if let Err(reason) = rows.sink.add(at as u64 + 1, &row) {
            rows.refused(at as u64 + 1, reason, |row, reason| ReadError::Row {
                path: path.into(),
                row,
                reason,
            })?;
        }
    }
    let bad = rows.bad();
    done(options, all, bad, path, Format::Separated)
}

/// The way of a file's rows into a sink, and those that were skipped.
pub struct Rows<'o> {
    pub options: &'o Options,
    pub sink: &'o mut dyn Sink,
    /// The columns that the sink uses.
    pub wanted: Wanted,
    /// True if files without a column of ratings are good.
    pub optional: bool,
    /// True if the file has a column of ratings that are used.
    is_rated: bool,
    bad_lines: u64,
    first_bad: Option<(u64, String)>,
}

/// The number of bad lines, the first of them, and the reason.
pub type BadLines = (u64, Option<(u64, String)>);

impl<'o> Rows<'o> {
    pub fn new(options: &'o Options, sink: &'o mut dyn Sink) -> Self {
        Self {
            options,
            sink,
            wanted: Wanted {
                rating: options.ratings != RatingUse::Ignored,
                time: false,
            },
            optional: false,
            is_rated: false,
            bad_lines: 0,
            first_bad: None,
        }
    }

    fn add(&mut self, number: u64, row: &Row<'_>) -> Result<(), Reason> {
        // Other sinks have a message of their own.
        if self.optional && self.is_rated && row.rating.is_none() {
            return Err("there is no reward".into());
        }
        self.sink.add(number, row)
    }

    /// The lines that were skipped.
    pub fn bad(self) -> BadLines {
        (self.bad_lines, self.first_bad)
    }

    /// Skips a bad row.
    ///
    /// # Errors
    /// The error made of it, if bad rows are not to be skipped.
    fn refused(
        &mut self,
        number: u64,
        reason: Reason,
        error: impl FnOnce(u64, String) -> ReadError,
    ) -> Result<(), ReadError> {
        if !self.options.skip_bad_lines {
            return Err(error(number, reason.into_owned()));
        }
        self.bad_lines += 1;
        self.first_bad
            .get_or_insert_with(|| (number, reason.into_owned()));
        Ok(())
    }
}

/// The interactions of a file.
fn done(
    options: &Options,
    all: Collector,
    (bad_lines, first_bad): BadLines,
    path: &Path,
    format: Format,
) -> Result<Read, ReadError> {
    let (rows, below) = (all.rows(), all.below());
    let interactions = all.finish();
    let path = path.into();
    match options.ratings {
        _ if !interactions.is_empty() => {}
        RatingUse::LikeFrom(least) if below > 0 => {
            let rows = below;
            return Err(ReadError::NoLikes { path, rows, least });
        }
        _ => return Err(ReadError::NoInteractions { path, bad_lines }),
    }
    Ok(Read {
        odd_first_line: looks_like_a_header(&interactions),
        interactions,
        rows,
        below,
        bad_lines,
        first_bad,
        format,
    })
}

/// True if the first user's and the first item's names are words and all others are numbers.
fn looks_like_a_header(all: &Interactions) -> bool {
    let is_word = |name: Name<'_>| matches!(name, Name::Text(_));
    is_word(all.user_name(0))
        && is_word(all.item_name(0))
        && all.users() > 1
        && all.items() > 1
        && !(1..all.users()).any(|user| is_word(all.user_name(user)))
        && !(1..all.items()).any(|item| is_word(all.item_name(item)))
}
