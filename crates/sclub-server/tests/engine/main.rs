//! The engine on a real folder.

mod bench;
#[path = "../common/by_id.rs"]
mod by_id;
mod clicks;
#[path = "../common/mod.rs"]
mod common;
mod context;
mod copies;
mod draws;
mod empty;
mod experiments;
mod faults;
mod filters;
mod history;
mod http;
mod import;
mod keeping;
mod lists;
mod propensities;
mod rules;
mod shop;
