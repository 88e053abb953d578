//! How far a run has come, on the standard error stream.

use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use sclub_lab::run::Observer;
use sclub_lab::summary::thousands;

/// Between two lines where there is no terminal to draw a bar on.
pub const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows a bar on a terminal, a line now and then elsewhere; stops the run on Ctrl-C.
pub struct Progress {
    bar: ProgressBar,
    lines: Option<Lines>,
    cancelled: Arc<AtomicBool>,
}

struct Lines {
    total: u64,
    done: AtomicU64,
    start: Instant,
    last: Mutex<Instant>,
}

impl Progress {
    /// For a run of `total` rounds in all.
    pub fn new(total: u64, quiet: bool, cancelled: Arc<AtomicBool>) -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        let bar = if quiet || !on_terminal {
            ProgressBar::hidden()
        } else {
            ProgressBar::new(total)
        };
        let style = "{bar:32} {percent:>3}%  {human_pos} of {human_len} rounds, {rate} rounds/s, {eta} left";
        let rate = |state: &ProgressState, text: &mut dyn Write| {
            // A terminal that cannot be written to shows no rate; there is nobody to tell.
            let _ = write!(text, "{}", thousands(state.per_sec()));
        };
        let style = ProgressStyle::with_template(style).expect("a good template");
        bar.set_style(style.with_key("rate", rate));
        let now = Instant::now();
        let lines = (!quiet && !on_terminal).then(|| Lines {
            total,
            done: AtomicU64::new(0),
            start: now,
            last: Mutex::new(now),
        });
        Self {
            bar,
            lines,
            cancelled,
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Lines {
    fn played(&self, rounds: u64) {
        let done = self.done.fetch_add(rounds, Ordering::Relaxed) + rounds;
        let Ok(mut last) = self.last.try_lock() else {
            return;
        };
        if last.elapsed() >= LINE_EVERY {
            *last = Instant::now();
            let seconds = self.start.elapsed().as_secs_f64();
            let left = seconds * self.total.saturating_sub(done) as f64 / done as f64;
            let percent = 100.0 * done as f64 / self.total as f64;
            let rate = done as f64 / seconds;
            eprintln!("{percent:.0}% after {seconds:.0} s, {rate:.0} rounds/s, {left:.0} s left");
        }
    }
}

impl Observer for Progress {
    fn played(&self, rounds: u64) {
        self.bar.inc(rounds);
        if let Some(lines) = &self.lines {
            lines.played(rounds);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}
