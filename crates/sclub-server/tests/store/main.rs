//! A log in files, and a data folder: they keep what they are given, and notice what is not as it was.

#[path = "../common/mod.rs"]
mod common;
mod copies;
mod damage;
mod folder;
mod histories;
mod segments;
