//! The policies of other papers: their exact limits and invariants, a file for each.

mod cab;
mod club_cascade;
mod cofiba;
mod common;
mod dccb;
mod dynucb;
mod fclub;
mod hier_ts;
mod locb;
mod naive;
mod rsclumb;
mod ts;
mod uniclub;
