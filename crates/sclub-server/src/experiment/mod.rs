//! Experiments: several policies serve at the same time, each to its own share of the users.
//!
//! | module | has |
//! |---|---|
//! | `sums` | the running sums of an arm |
//! | `intervals` | estimates with confidence sequences |
//! | `plan` | the arms, the split of the users |
//! | `running` | the experiment under way, as a part of the state |
//! | `report` | the results |
//!
//! `docs/experiments.md` is for users.

pub mod intervals;
pub mod plan;
pub mod report;
pub(crate) mod running;
pub mod sums;

pub use intervals::{CONFIDENCE, Interval, MIN_CLICKS, MIN_USERS, difference, rate};
pub use plan::{ArmPlan, Plan, WHOLE};
pub use report::{ArmReport, ExperimentReport};
pub use running::{Experiments, Past};
pub use sums::{Sums, UserSums};
