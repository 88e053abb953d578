//! Reads files of ratings.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::formats::{Format, Layout};
use super::interactions::Interactions;
use super::lines::Lines;
use super::names::{MAX_NAME_LENGTH, Name, Numbering};
use super::npy;

/// Options for reading a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// The format. By default it is detected from the name and the first line.
    pub format: Option<Format>,
    /// True to skip lines that cannot be parsed instead of failing.
    pub skip_bad_lines: bool,
}

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The interactions.
    pub interactions: Interactions,
    /// Interactions before repeated ones were merged.
    pub rows: u64,
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
    #[error("{} is a folder; name the file of ratings in it", path.display())]
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

/// Reads a file of ratings. Calls `progress` now and then with the bytes read and the bytes in all (0 if
/// that is not known).
///
/// # Errors
/// Names the file and, if it is a line that is wrong, its number.
pub fn read(
    path: &Path,
    options: &Options,
    progress: &dyn Fn(u64, u64),
) -> Result<Read, ReadError> {
    let failed = |source| ReadError::Io {
        path: path.into(),
        source,
    };
    let metadata = fs::metadata(path).map_err(failed)?;
    if metadata.is_dir() {
        return Err(ReadError::Folder { path: path.into() });
    }
    let total = if metadata.is_file() {
        metadata.len()
    } else {
        0
    };
    let mut stream = BufReader::with_capacity(1 << 16, File::open(path).map_err(failed)?);
    let start = stream.fill_buf().map_err(failed)?;
    if start.is_empty() {
        return Err(ReadError::Empty { path: path.into() });
    }
    let is_npy = start.starts_with(npy::MAGIC)
        || path
            .extension()
            .is_some_and(|ending| ending.eq_ignore_ascii_case("npy"));
    if options.format == Some(Format::Npy) || (options.format.is_none() && is_npy) {
        return matrix(path, stream, &|done| progress(done.min(total), total));
    }
    if let Some(what) = binary_kind(start) {
        let path = path.into();
        return Err(ReadError::Unknown { path, what });
    }
    text(path, stream, options, &|done| progress(done, total))
}

/// The kind of a file that does not begin as a text does.
fn binary_kind(start: &[u8]) -> Option<&'static str> {
    match start {
        [0x1f, 0x8b, ..] => Some("compressed; unpack it with gunzip first"),
        [b'P', b'K', 3, 4, ..] => Some("compressed; unpack it with unzip first"),
        [b'B', b'Z', b'h', ..] => Some("compressed; unpack it with bunzip2 first"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("compressed; unpack it with unzstd first"),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some("a text in UTF-16; save it in UTF-8 first"),
        _ if start.starts_with(npy::MAGIC) => {
            Some("a matrix of NumPy and not of the format asked for")
        }
        _ if memchr::memchr(0, start).is_some() => Some("no text and no matrix of NumPy"),
        _ => None,
    }
}

fn matrix(path: &Path, stream: impl BufRead, progress: &dyn Fn(u64)) -> Result<Read, ReadError> {
    let matrix = npy::read(stream, progress).map_err(|reason| ReadError::Matrix {
        path: path.into(),
        reason,
    })?;
    let rows = matrix.pairs.len() as u64;
    let interactions = Interactions::new(matrix.users, matrix.items, matrix.pairs);
    done(path, interactions, rows, (0, None), Format::Npy)
}

fn text(
    path: &Path,
    stream: impl io::Read,
    options: &Options,
    progress: &dyn Fn(u64),
) -> Result<Read, ReadError> {
    let mut lines = Lines::new(stream);
    let (mut users, mut items) = (Numbering::default(), Numbering::default());
    let mut pairs: Vec<u64> = Vec::new();
    let mut layout = None;
    let mut format = options.format;
    let (mut bad_lines, mut reported) = (0, 0);
    let mut first_bad = None;
    loop {
        if lines.bytes() != reported {
            reported = lines.bytes();
            progress(reported);
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
        let pair = match layout {
            Some(layout) => pair(layout, text, &mut users, &mut items),
            None => {
                let known = format.or_else(|| Format::detect(path, text));
                let Some(known) = known else {
                    let what = "of no format known here: its first line has but one field";
                    let path = path.into();
                    return Err(ReadError::Unknown { path, what });
                };
                format = Some(known);
                match Layout::of(known, text) {
                    Ok((found, header)) => {
                        layout = Some(found);
                        if header {
                            continue;
                        }
                        pair(found, text, &mut users, &mut items)
                    }
                    Err(reason) => Err(reason),
                }
            }
        };
        match pair {
            Ok(pair) => pairs.push(pair),
            Err(reason) if options.skip_bad_lines => {
                bad_lines += 1;
                first_bad.get_or_insert_with(|| (line, reason.into_owned()));
            }
            Err(reason) => {
                return Err(ReadError::Line {
                    path: path.into(),
                    line,
                    reason: reason.into_owned(),
                });
            }
        }
    }
    let rows = pairs.len() as u64;
    let interactions = Interactions::new(users.into_names(), items.into_names(), pairs);
    done(
        path,
        interactions,
        rows,
        (bad_lines, first_bad),
        format.unwrap_or(Format::Separated),
    )
}

/// The interaction of a line, packed as `user << 32 | item`.
#[inline]
fn pair(
    layout: Layout,
    line: &[u8],
    users: &mut Numbering,
    items: &mut Numbering,
) -> Result<u64, super::formats::Reason> {
    let (user, item) = layout.row(line)?;
    let user = users
        .number(&user)
        .ok_or_else(|| refused_name("user", &user))?;
    let item = items
        .number(&item)
        .ok_or_else(|| refused_name("item", &item))?;
    Ok(u64::from(user) << 32 | u64::from(item))
}

/// The reason why [`Numbering::number`] returned `None`.
#[cold]
fn refused_name(kind: &str, name: &Name<'_>) -> super::formats::Reason {
    match name {
        Name::Text(text) if text.len() > MAX_NAME_LENGTH => format!(
            "the {kind}'s name has {} bytes; it must have at most {MAX_NAME_LENGTH}",
            text.len()
        )
        .into(),
        _ => format!("there are more than {} {kind}s", u32::MAX).into(),
    }
}

fn done(
    path: &Path,
    interactions: Interactions,
    rows: u64,
    (bad_lines, first_bad): (u64, Option<(u64, String)>),
    format: Format,
) -> Result<Read, ReadError> {
    if interactions.is_empty() {
        let path = path.into();
        return Err(ReadError::NoInteractions { path, bad_lines });
    }
    Ok(Read {
        odd_first_line: format != Format::Npy && looks_like_a_header(&interactions),
        interactions,
        rows,
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
