//! Switches for the deviations of the published code from the pseudo-code.

#[cfg(doc)]
use crate::params::Params;

/// Departures of the published code from the pseudo-code. Two more departures, the squared norm and
/// the constants, are [`Params::index`] and the rest of [`Params`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Deviations {
    /// The cluster of a user who was split out shares the arrays S and b with the user's own, so each
    /// later observation of the user is added twice to both, until the cluster is merged. T is counted once.
    pub shared_arrays: bool,
    /// The marks "checked" are cleared in every round, not in every phase. With one user a round
    /// there are then never two checked clusters, and nothing is ever merged.
    pub marks_cleared: bool,
    /// After a split or a merge a cluster's inverse and estimate stay what they were until its next
    /// observation.
    pub stale_estimates: bool,
    /// A cluster becomes checked or unchecked only when one of its users is marked: not when a user
    /// leaves. A user who is split out starts unmarked.
    pub stale_marks: bool,
    /// A user is compared with the cluster's current estimate, not with the phase's pivot.
    pub running_estimate: bool,
    /// A user's frequency is compared with the cluster's average, not with every member's.
    pub average_frequency: bool,
}

impl Deviations {
    /// The pseudo-code.
    pub const NONE: Self = Self {
        shared_arrays: false,
        marks_cleared: false,
        stale_estimates: false,
        stale_marks: false,
        running_estimate: false,
        average_frequency: false,
    };

    /// Their names, in the order of the fields.
    pub const NAMES: [&str; 6] = [
        "shared-arrays",
        "marks-cleared",
        "stale-estimates",
        "stale-marks",
        "running-estimate",
        "average-frequency",
    ];

    /// The deviations of a set: bit k stands for the k-th of [`Deviations::NAMES`].
    pub fn from_set(set: u64) -> Self {
        let has = |place: u32| set >> place & 1 == 1;
        Self {
            shared_arrays: has(0),
            marks_cleared: has(1),
            stale_estimates: has(2),
            stale_marks: has(3),
            running_estimate: has(4),
            average_frequency: has(5),
        }
    }

    /// A bit for each of [`Deviations::NAMES`].
    pub fn to_set(self) -> u64 {
        let all = [
            self.shared_arrays,
            self.marks_cleared,
            self.stale_estimates,
            self.stale_marks,
            self.running_estimate,
            self.average_frequency,
        ];
        let bits = all.into_iter().enumerate();
        bits.map(|(place, is_on)| u64::from(is_on) << place).sum()
    }

    /// The published code.
    pub const ALL: Self = Self {
        shared_arrays: true,
        marks_cleared: true,
        stale_estimates: true,
        stale_marks: true,
        running_estimate: true,
        average_frequency: true,
    };
}
