//! The policies of other papers: their exact limits and invariants, a file for each.

mod common;
mod dccb;
mod fclub;
mod hier_ts;
