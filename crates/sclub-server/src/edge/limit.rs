//! The limits on connections: how many there are, and the refusals of others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use super::error::ErrorCounts;
use crate::meters::metric;

/// The time without a refusal after which refusals have ended.
const QUIET: Duration = Duration::from_secs(10);

/// The number of connections of a server, and the maximum.
#[derive(Debug, Default)]
pub struct Connections {
    open: AtomicUsize,
    max: AtomicUsize,
}

impl Connections {
    pub(super) fn set_max(&self, max: usize) {
        self.max.store(max, Relaxed);
    }

    /// The gauges, in Prometheus' text format.
    pub fn render(&self) -> String {
        let gauge = |name, help, value: &AtomicUsize| {
            let value = value.load(Relaxed) as f64;
            metric(name, "gauge", help, [(String::new(), value)])
        };
        let max = "Maximum number of connections; further ones are refused";
        gauge("sclub_connections", "Connections", &self.open)
            + &gauge("sclub_max_connections", max, &self.max)
    }
}

/// A connection that is counted until this is dropped.
#[derive(Debug)]
pub(super) struct Open(Arc<ErrorCounts>);

impl Open {
    pub(super) fn new(counts: &Arc<ErrorCounts>) -> Self {
        counts.connections.open.fetch_add(1, Relaxed);
        Self(Arc::clone(counts))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.open.fetch_sub(1, Relaxed);
    }
}

/// Refused connections, of which the log has the beginning and the end.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// The number so far and the time of the last one, while they last.
    lasting: Option<(u64, Instant)>,
}

impl Refusals {
    /// Notes a refusal. Returns true if it is the first one.
    pub(super) fn add(&mut self, now: Instant) -> bool {
        let before = self.lasting.map_or(0, |(count, _)| count);
        self.lasting = Some((before + 1, now));
        before == 0
    }

    /// The time at which they have ended, unless there is another one before.
    pub(super) fn end(&self) -> Option<Instant> {
        self.lasting.map(|(_, last)| last + QUIET)
    }

    /// Returns their number, if they have ended, and begins anew.
    pub(super) fn take_ended(&mut self, now: Instant) -> Option<u64> {
        let (count, _) = self.lasting.filter(|_| self.end() <= Some(now))?;
        self.lasting = None;
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_begin_once_and_end_once() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut refusals = Refusals::default();
        assert_eq!((refusals.end(), refusals.take_ended(start)), (None, None));
        assert!(refusals.add(start));
        // Connections are accepted in between.
        for second in [1, 8, 17] {
            assert_eq!(refusals.take_ended(after(second)), None);
            assert!(!refusals.add(after(second)));
        }
        assert_eq!(refusals.take_ended(after(26)), None);
        assert_eq!(refusals.end(), Some(after(27)));
        assert_eq!(refusals.take_ended(after(27)), Some(4));
        assert_eq!(refusals.take_ended(after(28)), None);
        assert!(refusals.add(after(29)));
    }
}
