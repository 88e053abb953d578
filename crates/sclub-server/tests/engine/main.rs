//! The engine on a real folder: what was answered is kept, whatever happens.

mod bench;
#[path = "../common/mod.rs"]
mod common;
mod context;
mod copies;
mod faults;
mod history;
mod http;
mod keeping;
mod rules;
