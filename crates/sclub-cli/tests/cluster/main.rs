//! Clusters of real processes: NATS servers and nodes that are killed, paused, restarted and moved under load.

mod audit;
mod client;
mod drill;
mod faults;
mod figures;
mod handover;
mod load;
mod majority;
mod metrics;
#[path = "../../../sclub-server/tests/common/nats.rs"]
mod nats;
mod nodes;
mod takeover;
mod up;
