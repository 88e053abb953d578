//! Measurements and the report of them: medians over the turns, as a table and as JSON.

use anyhow::{Result, anyhow};
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, Table};
use sclub_lab::summary::thousands;
use serde_json::{Value, json};

use crate::simulate::latency::{Latencies, shown};

/// Name of the row for the comparison with a disk: an append and a sync of a small record.
pub const DISK: &str = "append 512 bytes, sync";

/// Name of the row for recommendations at half of the rate that was reached.
pub const HALF: &str = "recommend at half load";

/// The result of a measurement.
#[derive(Default)]
pub struct Measured {
    pub latencies: Latencies,
    pub errors: u64,
    pub first_error: Option<anyhow::Error>,
    pub seconds: f64,
}

impl Measured {
    pub fn rate(&self) -> f64 {
        self.latencies.count() as f64 / self.seconds.max(1e-9)
    }

    pub fn merge(&mut self, other: Self) {
        self.latencies.merge(&other.latencies);
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.seconds = self.seconds.max(other.seconds);
    }

    pub fn fail(&mut self, error: anyhow::Error) {
        self.errors += 1;
        self.first_error.get_or_insert(error);
    }
}

/// All measurements, each with its turns.
#[derive(Default)]
pub struct Report {
    lines: Vec<Line>,
    pub first_error: Option<anyhow::Error>,
}

struct Line {
    name: &'static str,
    turns: Vec<Measured>,
}

/// The middle one, or the mean of the two in the middle.
fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[half]),
        _ => Some((values[half - 1] + values[half]) / 2.0),
    }
}

impl Line {
    fn rate(&self) -> Option<f64> {
        median(self.turns.iter().map(Measured::rate))
    }

    fn latency(&self, of: impl Fn(&Latencies) -> Option<f64>) -> Option<f64> {
        median(self.turns.iter().filter_map(|turn| of(&turn.latencies)))
    }

    fn errors(&self) -> u64 {
        self.turns.iter().map(|turn| turn.errors).sum()
    }
}

impl Report {
    /// Adds a turn; an error if no request of it succeeded.
    pub fn add(&mut self, name: &'static str, mut measured: Measured) -> Result<()> {
        let error = measured.first_error.take();
        if measured.latencies.count() == 0 {
            let error = error.unwrap_or_else(|| anyhow!("no request was answered in time"));
            return Err(error.context(format!("cannot measure {name}")));
        }
        self.first_error = self.first_error.take().or(error);
        match self.lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.turns.push(measured),
            None => self.lines.push(Line {
                name,
                turns: vec![measured],
            }),
        }
        Ok(())
    }

    fn line(&self, name: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.name == name)
    }

    pub fn rate(&self, name: &str) -> Option<f64> {
        self.line(name).and_then(Line::rate)
    }

    /// The rate to that of empty requests, turn by turn.
    fn share(&self, line: &Line) -> Option<f64> {
        let is_request = line.name != HALF && line.name != DISK;
        let healthz = self.line("healthz").filter(|_| is_request)?;
        let turns = line.turns.iter().zip(&healthz.turns);
        median(turns.map(|(turn, empty)| turn.rate() / empty.rate()))
    }

    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_HORIZONTAL_ONLY);
        table.set_header([
            "request",
            "requests/s",
            "of healthz",
            "p50",
            "p99",
            "max",
            "errors",
        ]);
        for line in &self.lines {
            let share = self.share(line);
            table.add_row([
                line.name.to_owned(),
                line.rate().map_or_else(String::new, thousands),
                share.map_or_else(|| "–".into(), |share| format!("{:.0}%", 100.0 * share)),
                shown(line.latency(|latencies| latencies.quantile(0.5))),
                shown(line.latency(|latencies| latencies.quantile(0.99))),
                shown(line.latency(Latencies::longest)),
                line.errors().to_string(),
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.to_string()
    }

    pub fn to_json(&self) -> Value {
        let line = |line: &Line| {
            json!({
                "what": line.name,
                "requests_per_second": line.rate(),
                "share_of_healthz": self.share(line),
                "p50_ms": line.latency(|latencies| latencies.quantile(0.5)),
                "p99_ms": line.latency(|latencies| latencies.quantile(0.99)),
                "max_ms": line.latency(Latencies::longest),
                "errors": line.errors(),
                "turns": line.turns.iter().map(Measured::rate).collect::<Vec<_>>(),
            })
        };
        self.lines.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
