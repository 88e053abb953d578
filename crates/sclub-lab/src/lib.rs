//! The lab: worlds in which policies are compared, the runs, and their results.
//!
//! A [`world::World`] draws the users, their candidates and the mean rewards. A
//! [`run::Experiment`] plays any number of policies in the same worlds, block by block, on any number
//! of threads with the same result. [`summary`], [`figure`] and [`report`] show the
//! results.

pub mod ablation;
pub mod adjusted_rand;
pub mod cascade;
pub mod catalogue;
pub mod clustering;
pub mod data;
pub mod document;
pub mod evaluate;
pub mod field;
pub mod figure;
pub mod held_out;
pub mod named;
pub mod normals;
pub mod paper;
pub mod policies;
pub mod report;
pub mod robust;
pub mod run;
pub mod setting;
pub mod streams;
pub mod summary;
pub mod synthetic;
pub mod world;
pub mod yardsticks;
