//! Several servers as one, over NATS JetStream.

pub mod bus;
mod log;
pub mod nats;
mod snapshots;
mod wait;

pub use log::StreamLog;
pub use snapshots::ObjectSnapshots;

/// The milliseconds after which an entry of a node, or a lease, expires if it is not renewed.
pub const TTL: u64 = 3_000;
