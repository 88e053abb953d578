//! The service as an operator has it: real processes, real sockets, a real disk.

mod accessible;
#[path = "../common/axe.rs"]
mod axe;
mod browser;
mod crash;
mod drill;
mod evaluate;
mod experiments;
mod figures;
mod hard_pages;
mod keeping;
mod learning;
mod old;
mod page;
mod page_first;
mod page_true;
mod raw_items;
mod requests;
mod safety;
mod server;
#[cfg(target_os = "linux")]
mod systemd;
mod teach;
mod teach_items;
mod traces;
