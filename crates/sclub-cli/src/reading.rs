//! Progress of reading a file, on the standard error stream.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;

use sclub_lab::data::svd::Search;
use sclub_lab::data::{ColumnNames, Format, Options, RatingUse, Read, ReadError, read};
use sclub_lab::summary::thousands;

use crate::progress::BarOrLines;

/// Work that takes less time than this shows no progress.
const SHOW_AFTER: Duration = Duration::from_secs(2);

/// Flags for reading files of ratings.
#[derive(Debug, Args)]
pub struct DataArgs {
    /// Column of the users, by its name in the header, the JSON objects or the Parquet file [default: the one called
    /// user or the like; without a header the first]
    #[arg(long, value_name = "NAME", help_heading = "Data")]
    pub user_column: Option<String>,

    /// Column of the items [default: the one called item, movie or the like; without a header the second]
    #[arg(long, value_name = "NAME", help_heading = "Data")]
    pub item_column: Option<String>,

    /// Column of the ratings [default: the one called rating, stars or the like; without a header the third]
    #[arg(long, value_name = "NAME", help_heading = "Data")]
    pub rating_column: Option<String>,

    /// Count a rating of X or more as a like, and leave out all others. Without it every row counts, whatever its
    /// rating
    #[arg(
        long,
        value_name = "X",
        allow_negative_numbers = true,
        help_heading = "Data"
    )]
    pub like_from: Option<f64>,

    /// Use ratings, divided by the highest one, as values in place of 1: in the matrix that features are made from,
    /// and as rewards of the items taken
    #[arg(long, conflicts_with = "like_from", help_heading = "Data")]
    pub rating_values: bool,

    /// Count and skip lines that cannot be parsed instead of stopping at the first
    #[arg(long, help_heading = "Data")]
    pub skip_bad_lines: bool,
}

impl DataArgs {
    /// The options for reading.
    ///
    /// # Errors
    /// If the threshold is not a finite number.
    pub fn options(&self, format: Option<Format>) -> Result<Options> {
        let ratings = match self.like_from {
            Some(least) if !least.is_finite() => {
                bail!("like-from is {least}; it must be a finite number")
            }
            Some(least) => RatingUse::LikeFrom(least),
            None if self.rating_values => RatingUse::Values,
            None => RatingUse::Ignored,
        };
        Ok(Options {
            format,
            skip_bad_lines: self.skip_bad_lines,
            columns: ColumnNames {
                user: self.user_column.clone(),
                item: self.item_column.clone(),
                rating: self.rating_column.clone(),
                time: None,
            },
            ratings,
        })
    }
}

/// Shows how far the reading of a file has come.
pub struct Reading(BarOrLines);

impl Reading {
    /// With `quiet`, shows nothing.
    pub fn new(quiet: bool) -> Self {
        let template =
            "{bar:32} {percent:>3}%  {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
        Self(BarOrLines::new(quiet, Some(0), template))
    }

    /// `done` of `total` bytes have been read; `total` is 0 if it is not known.
    pub fn read(&self, done: u64, total: u64) {
        self.0.bar.set_length(total.max(done));
        self.0.bar.set_position(done);
        self.0.line(|seconds| {
            let (megabytes, rate) = (done as f64 / 1e6, done as f64 / 1e6 / seconds);
            if total > done {
                let percent = 100.0 * done as f64 / total as f64;
                let left = seconds * (total - done) as f64 / done.max(1) as f64;
                format!("{percent:.0}% after {seconds:.0} s, {rate:.0} MB/s, {left:.0} s left")
            } else {
                format!("{megabytes:.0} MB after {seconds:.0} s, {rate:.0} MB/s")
            }
        });
    }
}

/// Shows how far the search for the leading directions has come.
pub struct Searching(BarOrLines);

impl Searching {
    /// With `quiet`, shows nothing. Without, begins after two seconds.
    pub fn new(quiet: bool) -> Self {
        let template = "{spinner} {elapsed} finding the leading directions: {msg}";
        Self(BarOrLines::new(quiet, None, template))
    }

    /// One more pass over the data.
    pub fn passed(&self, search: Search) {
        let off = if search.missing.is_finite() {
            format!(", off by {:.0e}, to be 1e-12", search.missing)
        } else {
            String::new()
        };
        let text = format!("{} passes over the data{off}", search.passes);
        if self.0.bar.elapsed() > SHOW_AFTER {
            self.0.bar.set_message(text.clone());
            self.0.bar.tick();
        }
        self.0
            .line(|_| format!("finding the leading directions: {text}"));
    }
}

/// An error of reading interactions. If there is no header it names the flags, of which that of the ratings differs.
pub fn with_flags(error: ReadError, ratings: &str) -> anyhow::Error {
    match error {
        ReadError::NoHeader { .. } => {
            anyhow::anyhow!("{error} (--user-column, --item-column, {ratings})")
        }
        error => error.into(),
    }
}

/// Reads a file of ratings and shows how far it has come.
///
/// # Errors
/// As [`read()`].
pub fn read_file(path: &Path, options: &Options, quiet: bool) -> Result<Read> {
    let progress = Reading::new(quiet);
    let read = read(path, options, &|done, total| progress.read(done, total));
    drop(progress);
    let read = read.map_err(|error| with_flags(error, "--rating-column"))?;
    let file = path.display();
    if let Some((line, reason)) = &read.first_bad {
        let (many, first) = match read.bad_lines {
            1 => ("1 bad line".to_string(), ""),
            many => (format!("{} bad lines", thousands(many as f64)), " first"),
        };
        eprintln!("sclub: warning: {many} skipped,{first} {file}:{line}: {reason}");
    }
    if read.below > 0 {
        let (rows, all) = (read.below as f64, (read.below + read.rows) as f64);
        eprintln!(
            "sclub: {} of {} ratings are no likes and were left out",
            thousands(rows),
            thousands(all)
        );
    }
    if read.odd_first_line {
        let all = &read.interactions;
        eprintln!(
            "sclub: warning: the first line of {file} ({}, {}) was read as data, though all others are \
             numbers; if it is a header, name its columns with --user-column and --item-column",
            all.user_name(0),
            all.item_name(0),
        );
    }
    Ok(read)
}
