//! The edge over real sockets.

mod audit;
mod bodies;
mod connections;
mod counts;
mod harness;
mod keys;
mod requests;
mod shutdown;
mod sites;
mod slow_peers;
mod tls;
