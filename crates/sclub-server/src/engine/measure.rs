//! The metrics of an engine.

use std::sync::atomic::Ordering;

use super::Engine;

impl Engine {
    /// The metrics in Prometheus' text format, with current gauges.
    pub fn render_metrics(&self) -> String {
        let (shared, meters) = (&self.shared, &self.shared.meters);
        meters.state(&shared.read());
        meters.experiment(shared.read().experiments());
        meters.journal(self.can_journal());
        let fitting = &shared.fitting;
        meters.fitting(fitting.is_running(), fitting.took());
        meters.rewards(self.reward_warning().is_some(), self.unanswered());
        meters.queue(shared.waiting());
        let is_writable = shared.not_writable().is_none();
        meters.store(shared.folder.sizes(), self.log_bytes(), is_writable);
        meters.render()
    }

    /// The number of bytes appended to the log since the newest snapshot was begun.
    pub fn log_bytes(&self) -> u64 {
        self.shared.log_bytes.load(Ordering::Relaxed)
    }

    /// Returns false while the journal cannot be written.
    pub fn can_journal(&self) -> bool {
        !self.shared.journal_fails.load(Ordering::Relaxed)
    }
}
