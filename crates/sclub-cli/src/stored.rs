//! Flags and stored results of the commands that make a table from many runs.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use sclub_lab::paper::cells::Cells;

use crate::args::whole;
use crate::files::prepare_file;

/// The flags that these commands have in common.
#[derive(Debug, clap::Args)]
pub struct StoredArgs {
    /// Seed of the first world; the others count up from it [default: 1; 5001 for `sclub field`]
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true, help_heading = "Run")]
    pub first_seed: Option<u64>,

    /// Threads to use; the results are the same with any number [default: all cores]
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true, help_heading = "Run")]
    pub threads: Option<u64>,

    /// Delete the stored results in the folder and run everything again
    #[arg(long, help_heading = "Run")]
    pub fresh: bool,

    /// Show no progress
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

/// Opens the stored results of a folder; without the earlier ones if it is to be a fresh start.
pub fn open_cells(folder: &Path, fresh: bool) -> Result<Cells> {
    let path = folder.join("cells.jsonl");
    prepare_file(&path)?;
    if fresh && path.exists() {
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(Cells::open(&path)?)
}
