//! The lab for Python: worlds by name or written in Python, and policies of both kinds in them.
//!
//! A policy or a world that is written in Python is a guest. An adapter makes it a policy or a world of
//! the lab. An exception of a guest is kept in [`halt::Halt`], which stops the run; [`run`] raises it again.

mod columns;
mod evaluate;
mod field;
mod guest_policy;
mod guest_world;
mod halt;
mod job;
mod maker;
mod paper;
mod run;
mod settings;
mod watched;

pub use evaluate::lab_evaluate;
pub use field::{lab_field, lab_field_defaults};
pub use guest_policy::policy_of;
pub use paper::{lab_paper, lab_paper_defaults};
pub use run::{lab_policies, lab_run};
pub use settings::{LabSetting, LabWorld, lab_columns, lab_read};
