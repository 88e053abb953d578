//! How far the reading of a file has come, on the standard error stream.

use std::cell::Cell;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

use sclub_lab::data::svd::Search;
use sclub_lab::data::{Options, Read, read};
use sclub_lab::summary::thousands;

use crate::progress::LINE_EVERY;

/// What takes less needs no progress.
const SHOW_AFTER: Duration = Duration::from_secs(2);

/// Shows a bar on a terminal, a line now and then elsewhere.
pub struct Reading {
    bar: Option<ProgressBar>,
    start: Instant,
    /// When the last line was written; `None` where none are.
    last: Cell<Option<Instant>>,
}

impl Reading {
    /// Nothing is shown when `quiet`.
    pub fn new(quiet: bool) -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        let now = Instant::now();
        let bar = (!quiet && on_terminal).then(|| {
            let style =
                "{bar:32} {percent:>3}%  {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
            let style = ProgressStyle::with_template(style).expect("a good template");
            ProgressBar::new(0).with_style(style)
        });
        Self {
            bar,
            start: now,
            last: Cell::new((!quiet && !on_terminal).then_some(now)),
        }
    }

    /// `done` of `total` bytes have been read; `total` is 0 where it is not known.
    pub fn read(&self, done: u64, total: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(total.max(done));
            bar.set_position(done);
        }
        if self
            .last
            .get()
            .is_some_and(|last| last.elapsed() >= LINE_EVERY)
        {
            self.last.set(Some(Instant::now()));
            let seconds = self.start.elapsed().as_secs_f64();
            let (megabytes, rate) = (done as f64 / 1e6, done as f64 / 1e6 / seconds);
            if total > done {
                let percent = 100.0 * done as f64 / total as f64;
                let left = seconds * (total - done) as f64 / done.max(1) as f64;
                eprintln!("{percent:.0}% after {seconds:.0} s, {rate:.0} MB/s, {left:.0} s left");
            } else {
                eprintln!("{megabytes:.0} MB after {seconds:.0} s, {rate:.0} MB/s");
            }
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Shows how far the search for the leading directions has come.
pub struct Searching {
    bar: Option<ProgressBar>,
    last: Cell<Option<Instant>>,
}

impl Searching {
    /// Nothing is shown when `quiet`, and nothing within the first two seconds.
    pub fn new(quiet: bool) -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        let bar = (!quiet && on_terminal).then(|| {
            let style = "{spinner} {elapsed} finding the leading directions: {msg}";
            let style = ProgressStyle::with_template(style).expect("a good template");
            ProgressBar::new_spinner().with_style(style)
        });
        Self {
            bar,
            last: Cell::new((!quiet && !on_terminal).then(Instant::now)),
        }
    }

    /// One more pass over the data.
    pub fn passed(&self, search: Search) {
        let off = if search.missing.is_finite() {
            format!(", off by {:.0e}, to be 1e-12", search.missing)
        } else {
            String::new()
        };
        let text = format!("{} passes over the data{off}", search.passes);
        if let Some(bar) = &self.bar
            && bar.elapsed() > SHOW_AFTER
        {
            bar.set_message(text.clone());
            bar.tick();
        }
        if self
            .last
            .get()
            .is_some_and(|last| last.elapsed() >= LINE_EVERY)
        {
            self.last.set(Some(Instant::now()));
            eprintln!("finding the leading directions: {text}");
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Reads a file of ratings and shows how far it has come.
///
/// # Errors
/// As [`read()`].
pub fn read_file(path: &Path, options: &Options, quiet: bool) -> Result<Read> {
    let progress = Reading::new(quiet);
    let read = read(path, options, &|done, total| progress.read(done, total));
    progress.finish();
    let read = read?;
    let file = path.display();
    if let Some((line, reason)) = &read.first_bad {
        let (many, first) = match read.bad_lines {
            1 => ("1 bad line".to_string(), ""),
            many => (format!("{} bad lines", thousands(many as f64)), " first"),
        };
        eprintln!("sclub: warning: {many} passed over,{first} {file}:{line}: {reason}");
    }
    if read.odd_first_line {
        let all = &read.interactions;
        eprintln!(
            "sclub: warning: the first line of {file} ({}, {}) was read as data, though all others are \
             numbers; if it is a header, call its columns user and item",
            all.user_name(0),
            all.item_name(0),
        );
    }
    Ok(read)
}
