//! Progress of a run, on the standard error stream.

use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use sclub_lab::run::Observer;
use sclub_lab::summary::thousands;

/// The time between two lines, if there is no terminal to draw a bar on.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// A progress bar of `total` steps, if the number is known. Hidden if `quiet`, or if standard error is not a
/// terminal.
pub fn bar(quiet: bool, total: Option<u64>, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("a good template");
    let bar = match total {
        _ if quiet || !std::io::stderr().is_terminal() => ProgressBar::hidden(),
        Some(total) => ProgressBar::new(total),
        None => ProgressBar::no_length(),
    };
    bar.with_style(style)
}

/// A bar on a terminal, a line now and then elsewhere, nothing when quiet.
pub struct BarOrLines {
    /// The bar on a terminal.
    pub bar: ProgressBar,
    start: Instant,
    /// The time of the last line; `None` if no lines are written.
    last: Option<Mutex<Instant>>,
}

impl BarOrLines {
    /// `total` and `template` as [`bar`] has them.
    pub fn new(quiet: bool, total: Option<u64>, template: &str) -> Self {
        let start = Instant::now();
        let has_lines = !quiet && !std::io::stderr().is_terminal();
        Self {
            bar: bar(quiet, total, template),
            start,
            last: has_lines.then(|| Mutex::new(start)),
        }
    }

    /// Writes a line if it is time for one; `text` is given the seconds since the beginning.
    pub fn line(&self, text: impl FnOnce(f64) -> String) {
        // If another thread is writing a line right now, skip this one.
        let Some(Ok(mut last)) = self.last.as_ref().map(Mutex::try_lock) else {
            return;
        };
        if last.elapsed() >= LINE_EVERY {
            *last = Instant::now();
            eprintln!("{}", text(self.start.elapsed().as_secs_f64()));
        }
    }
}

impl Drop for BarOrLines {
    /// Removes the bar.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Shows how far a run has come; stops it on Ctrl-C.
pub struct Progress {
    shown: BarOrLines,
    total: u64,
    done: AtomicU64,
    cancelled: Arc<AtomicBool>,
}

impl Progress {
    /// For a run of `total` rounds in all.
    pub fn new(total: u64, quiet: bool, cancelled: Arc<AtomicBool>) -> Self {
        let template = "{bar:32} {percent:>3}%  {human_pos} of {human_len} rounds, {rate} rounds/s, {eta} left";
        let shown = BarOrLines::new(quiet, Some(total), template);
        let rate = |state: &ProgressState, text: &mut dyn Write| {
            // A terminal that cannot be written to shows no rate; the error has no other place to go.
            let _ = write!(text, "{}", thousands(state.per_sec()));
        };
        shown
            .bar
            .set_style(shown.bar.style().with_key("rate", rate));
        Self {
            shown,
            total,
            done: AtomicU64::new(0),
            cancelled,
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.shown.bar.finish_and_clear();
    }
}

impl Observer for Progress {
    fn played(&self, rounds: u64) {
        self.shown.bar.inc(rounds);
        let done = self.done.fetch_add(rounds, Ordering::Relaxed) + rounds;
        self.shown.line(|seconds| {
            let left = seconds * self.total.saturating_sub(done) as f64 / done as f64;
            let percent = 100.0 * done as f64 / self.total as f64;
            let rate = done as f64 / seconds;
            format!("{percent:.0}% after {seconds:.0} s, {rate:.0} rounds/s, {left:.0} s left")
        });
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}
