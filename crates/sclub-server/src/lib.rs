//! The service: recommends over HTTP, learns from rewards that come later, and loses nothing.
//!
//! | | |
//! |---|---|
//! | [`api`] | HTTP requests to calls of the engine, and back |
//! | [`edge`] | the layer between sockets and the API: connections, TLS, API keys, limits |
//! | [`engine`] | writes: validate, log, apply; one thread writes, all threads read |
//! | [`spaces`] | several catalogues and models in one server |
//! | [`state`] | the state, a fold of the events |
//! | [`event`], [`decision`] | the contents of the log, and of the decisions that clients receive |
//! | [`raw`] | items with the fields of a catalogue, whose features a transform makes |
//! | [`old`] | reads backups of version 0.1 |
//! | [`mod@env`] | disk, clock, randomness and threads, injected |
//! | [`store`] | the data folder: log, snapshots, epochs |

// Shared by unit tests and integration tests.
#[cfg(test)]
extern crate self as sclub_server;

pub mod api;
pub mod client;
pub mod cluster;
pub mod context;
pub mod decision;
pub mod edge;
pub mod engine;
pub mod env;
pub mod event;
pub mod experiment;
pub mod identity;
mod latency;
mod locks;
pub mod meters;
pub mod old;
pub mod ports;
pub mod raw;
pub mod refusal;
mod serve;
pub mod settings;
pub mod spaces;
pub mod state;
pub mod store;
mod timeline;
pub mod traces;

pub use sclub_features::{description, filter};

pub use serve::{ServeError, check as check_settings, serve};
