//! Histograms of latencies.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The number of buckets: eight for each doubling of the nanoseconds.
const CELLS: usize = 8 * 40;

/// A histogram of the latencies since it was last taken. Many threads record.
pub struct Window([AtomicU64; CELLS]);

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Window")
    }
}

impl Default for Window {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Window {
    /// Adds a latency.
    pub fn record(&self, took: Duration) {
        let cell = cell(took.as_nanos() as u64);
        self.0[cell].fetch_add(1, Ordering::Relaxed);
    }

    /// The latencies since the last call.
    pub fn take(&self) -> Latencies {
        let taken = self.0.iter().map(|cell| cell.swap(0, Ordering::Relaxed));
        let mut cells: Vec<u64> = taken.collect();
        let used = cells.iter().rposition(|&count| count > 0);
        cells.truncate(used.map_or(0, |last| last + 1));
        Latencies(cells)
    }
}

/// The number of latencies in each bucket, without empty buckets at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies(Vec<u64>);

impl Latencies {
    /// Adds the latencies of another histogram.
    pub fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (own, more) in self.0.iter_mut().zip(&other.0) {
            *own = own.saturating_add(*more);
        }
    }

    /// The upper end of the bucket that a quantile is in, in seconds. It is at most an eighth more than the quantile.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let total = self.0.iter().fold(0, |sum: u64, n| sum.saturating_add(*n));
        if total == 0 {
            return None;
        }
        let rank = (share * total as f64).ceil() as u64;
        let mut seen: u64 = 0;
        let found = self.0.iter().position(|&count| {
            seen = seen.saturating_add(count);
            seen >= rank
        })?;
        let (exponent, eighth) = (found / 8 + 3, found % 8);
        Some((9 + eighth) as f64 * 2f64.powi(exponent as i32 - 3) * 1e-9)
    }
}

fn cell(nanoseconds: u64) -> usize {
    let value = nanoseconds.max(8);
    let exponent = 63 - value.leading_zeros();
    let eighth = (value >> (exponent - 3)) & 7;
    ((exponent - 3) as usize * 8 + eighth as usize).min(CELLS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_an_eighth() {
        let window = Window::default();
        assert_eq!(window.take().quantile(0.5), None);
        let mut both = Latencies::default();
        for half in [1..=400, 401..=1000] {
            for microseconds in half {
                window.record(Duration::from_micros(microseconds));
            }
            both.add(&window.take());
        }
        for (share, expected) in [(0.5, 500e-6), (0.99, 990e-6), (0.001, 1e-6)] {
            let found = both.quantile(share).unwrap();
            assert!(
                found >= expected && found <= expected * 1.126,
                "{share}: {found} for {expected}"
            );
        }
        assert_eq!(window.take(), Latencies::default());
    }
}
