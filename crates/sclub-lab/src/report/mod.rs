//! The report: one page, its figures, and `results.json`.

pub mod model;
