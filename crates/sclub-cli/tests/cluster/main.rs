//! Clusters of real processes: NATS servers and nodes that are killed, paused, restarted and moved under load.

mod audit;
mod client;
mod faults;
mod handover;
mod load;
mod majority;
#[path = "../../../sclub-server/tests/common/nats.rs"]
mod nats;
mod nodes;
mod takeover;
mod up;
