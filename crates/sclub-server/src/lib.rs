//! The service: recommend over HTTP, learn from rewards that come later, lose nothing.
//!
//! | | |
//! |---|---|
//! | [`api`] | requests to calls of the engine, and back |
//! | [`edge`] | connections, TLS, keys, limits: what lies between sockets and the API |
//! | [`engine`] | log, then apply: one thread writes, everybody reads |
//! | [`state`] | what is known, a fold of the events |
//! | [`event`], [`decision`] | what is in the log, and what is handed out |
//! | [`old`] | reads what version 0.1 wrote |
//! | [`mod@env`] | disk, clock, randomness and threads, handed in |
//! | [`store`] | where events are kept |

// Tests share files, whether they are inside or outside.
#[cfg(test)]
extern crate self as sclub_server;

pub mod api;
pub mod client;
pub mod context;
pub mod decision;
pub mod edge;
pub mod engine;
pub mod env;
pub mod event;
pub mod identity;
pub mod meters;
pub mod old;
pub mod refusal;
mod serve;
pub mod settings;
pub mod state;
pub mod store;

pub use serve::{ServeError, serve};
