//! Deterministic simulation of the server: disk, clock, network, clients and scheduler are simulated,
//! and one seed is one run.

mod clock;
mod disk;
mod executor;
mod model;
mod seed;
