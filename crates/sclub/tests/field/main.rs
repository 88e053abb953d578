//! The policies of other papers: their exact limits and invariants, a file for each.

mod bass;
mod common;
mod dyclu;
mod graphs;
mod rclumb;
