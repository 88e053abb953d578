//! The lab for Python: worlds by name or written in Python, and policies of both kinds in them.
//!
//! A policy or a world that is written in Python is a guest: an adapter that is to the lab what its own
//! are. What a guest raises is kept in [`halt::Halt`], which stops the run; [`run`] raises it again.

mod guest_policy;
mod guest_world;
mod halt;
mod job;
mod run;
mod settings;

pub use run::{lab_policies, lab_run};
pub use settings::{LabSetting, LabWorld, lab_read};
