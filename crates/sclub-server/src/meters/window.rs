//! Latencies of the last second, for the page.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The number of buckets in a window: eight for each doubling of the nanoseconds.
const CELLS: usize = 8 * 40;

/// A histogram of the latencies since it was last taken.
pub(super) struct Window([AtomicU64; CELLS]);

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
    pub(super) fn record(&self, took: Duration) {
        let cell = cell(took.as_nanos() as u64);
        self.0[cell].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn take(&self) -> Vec<u64> {
        let taken = self.0.iter().map(|cell| cell.swap(0, Ordering::Relaxed));
        taken.collect()
    }
}

fn cell(nanoseconds: u64) -> usize {
    let value = nanoseconds.max(8);
    let exponent = 63 - value.leading_zeros();
    let eighth = (value >> (exponent - 3)) & 7;
    ((exponent - 3) as usize * 8 + eighth as usize).min(CELLS - 1)
}

/// The upper end of the cell that a quantile is in, in seconds.
pub(super) fn quantile(cells: &[u64], share: f64) -> Option<f64> {
    let total: u64 = cells.iter().sum();
    if total == 0 {
        return None;
    }
    let rank = (share * total as f64).ceil() as u64;
    let mut seen = 0;
    let found = cells.iter().position(|&count| {
        seen += count;
        seen >= rank
    })?;
    let (exponent, eighth) = (found / 8 + 3, found % 8);
    Some((9 + eighth) as f64 * 2f64.powi(exponent as i32 - 3) * 1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_an_eighth() {
        let window = Window::default();
        assert_eq!(quantile(&window.take(), 0.5), None);
        for microseconds in 1..=1000 {
            window.record(Duration::from_micros(microseconds));
        }
        let cells = window.take();
        for (share, expected) in [(0.5, 500e-6), (0.99, 990e-6), (0.001, 1e-6)] {
            let found = quantile(&cells, share).unwrap();
            assert!(
                found >= expected && found <= expected * 1.126,
                "{share}: {found} for {expected}"
            );
        }
        assert!(window.take().iter().all(|&count| count == 0));
    }
}
