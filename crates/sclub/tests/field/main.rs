//! The policies of other papers: their exact limits and invariants, a file for each.

mod club_cascade;
mod common;
mod dccb;
mod fclub;
mod hier_ts;
mod rsclumb;
mod ts;
mod uniclub;
