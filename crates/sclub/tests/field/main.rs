//! The policies of other papers: their exact limits and invariants, a file for each.

mod bass;
mod cab;
mod club_cascade;
mod cofiba;
mod common;
mod dccb;
mod dyclu;
mod dynucb;
mod fclub;
mod graphs;
mod hier_ts;
mod locb;
mod naive;
mod public_code;
mod rclumb;
mod rsclumb;
mod ts;
mod uniclub;
mod user_ids;
