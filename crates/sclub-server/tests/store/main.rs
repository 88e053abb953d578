//! A log in files, and a data folder: durability, and detection of damage.

#[path = "../common/mod.rs"]
mod common;
mod copies;
mod damage;
mod folder;
mod histories;
mod segments;
