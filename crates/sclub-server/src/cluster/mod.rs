//! Several servers as one, over NATS JetStream.

pub mod bus;
pub mod nats;

/// The milliseconds after which an entry of a node, or a lease, expires if it is not renewed.
pub const TTL: u64 = 3_000;
