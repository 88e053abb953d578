//! Latencies of calls.

use std::time::Duration;

use serde_json::{Value, json};

/// Steps between a power of two and the next: a step is less than 2% of its latency.
const STEPS: u64 = 64;

const STEP_BITS: u32 = STEPS.ilog2();

/// A histogram of durations.
#[derive(Debug, Clone)]
pub struct Latencies {
    counts: Vec<u64>,
    total: u64,
    longest: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            counts: vec![0; 1 + place(u64::MAX)],
            total: 0,
            longest: 0,
        }
    }
}

/// The bucket of a number of nanoseconds.
fn place(nanos: u64) -> usize {
    if nanos < STEPS {
        return nanos as usize;
    }
    let shift = nanos.ilog2() - STEP_BITS;
    (u64::from(shift) * STEPS + (nanos >> shift)) as usize
}

/// The middle of the latencies counted at a place.
fn middle(place: usize) -> f64 {
    let place = place as u64;
    if place < 2 * STEPS {
        return place as f64;
    }
    let shift = place / STEPS - 1;
    let low = (place - shift * STEPS) as f64;
    (low + 0.5) * (shift as f64).exp2()
}

impl Latencies {
    /// Counts one.
    pub fn add(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.counts[place(nanos)] += 1;
        self.total += 1;
        self.longest = self.longest.max(nanos);
    }

    /// Counts all of another.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.longest = self.longest.max(other.longest);
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The milliseconds that a share of them did not exceed.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let rank = ((share * self.total as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let at = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(middle(at).min(self.longest as f64) / 1e6)
    }

    /// The longest, in milliseconds.
    pub fn longest(&self) -> Option<f64> {
        (self.total > 0).then_some(self.longest as f64 / 1e6)
    }

    /// For the JSON file.
    pub fn to_json(&self) -> Value {
        json!({
            "count": self.total,
            "p50_ms": self.quantile(0.5),
            "p99_ms": self.quantile(0.99),
            "max_ms": self.longest(),
        })
    }
}

/// Milliseconds for people.
pub fn shown(milliseconds: Option<f64>) -> String {
    match milliseconds {
        Some(value) if value < 10.0 => format!("{value:.2} ms"),
        Some(value) => format!("{value:.0} ms"),
        None => "–".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_durations() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile(0.5), None);
        assert_eq!(latencies.longest(), None);
        // A permutation of 1 to 1009, cubed: from nanoseconds to a second.
        let mut nanos: Vec<u64> = (1..1010u64).map(|k| (k * 97 % 1009 + 1).pow(3)).collect();
        let mut other = Latencies::default();
        for (at, &one) in nanos.iter().enumerate() {
            let target = if at % 2 == 0 {
                &mut latencies
            } else {
                &mut other
            };
            target.add(Duration::from_nanos(one));
        }
        latencies.merge(&other);
        nanos.sort_unstable();
        assert_eq!(latencies.count(), 1009);
        for share in [0.001, 0.01, 0.3, 0.5, 0.9, 0.99, 1.0] {
            let rank = (share * 1009.0f64).ceil() as usize;
            let exact = nanos[rank - 1] as f64 / 1e6;
            let got = latencies.quantile(share).unwrap();
            assert!((got / exact - 1.0).abs() < 0.01, "{share}: {got} {exact}");
        }
        assert_eq!(latencies.longest(), Some(1009f64.powi(3) / 1e6));
    }

    #[test]
    fn every_duration_has_a_place() {
        let mut before = 0;
        for bit in 0..64 {
            for nanos in [1 << bit, (1 << bit) + 1, u64::MAX >> (63 - bit)] {
                let at = place(nanos);
                assert!(at >= before || nanos < 2, "{nanos}");
                before = at;
                let off = middle(at) / nanos as f64 - 1.0;
                assert!(off.abs() < 0.01, "{nanos}: {off}");
            }
        }
    }
}
