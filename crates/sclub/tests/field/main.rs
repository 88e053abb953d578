//! The policies of other papers: their exact limits and invariants, a file for each.

mod cab;
mod cofiba;
mod common;
mod dynucb;
mod locb;
mod naive;
