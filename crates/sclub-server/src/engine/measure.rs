//! The metrics of an engine.

use std::sync::atomic::Ordering;

use super::Engine;
use crate::locks::lock;

impl Engine {
    /// The metrics in Prometheus' text format, with current gauges.
    pub fn render_metrics(&self) -> String {
        let (shared, meters) = (&self.shared, &self.shared.meters);
        meters.state(&shared.read());
        meters.experiment(shared.read().experiments());
        let fitting = &shared.fitting;
        meters.fitting(fitting.is_running(), fitting.took());
        meters.rewards(self.reward_warning().is_some(), self.unanswered());
        meters.queue(shared.waiting());
        let since_snapshot = shared.log_bytes.load(Ordering::Relaxed);
        let is_writable = lock(&shared.read_only).is_none();
        meters.store(shared.folder.sizes(), since_snapshot, is_writable);
        meters.render()
    }
}
