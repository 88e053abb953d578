//! `sclub field` with policies that are written in Python as columns beside built-in ones.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use sclub_lab::field::{
    FIRST_SEED, Plan, QUICK_ROUNDS, QUICK_SEEDS, ROUNDS, SEEDS, Tuned, files, ranked, tuned, worlds,
};
use sclub_lab::paper::PaperError;
use sclub_lab::paper::cells::{Cells, CellsError};
use sclub_lab::policies::Name;
use sclub_lab::run::{RunError, threads};

use super::columns::{Column, Columns};
use super::settings::{in_full, refused};
use super::watched::{self, Watched};

/// The options of a table, as the Python part of the package passes them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct FieldOptions {
    worlds: Vec<String>,
    rounds: u64,
    seeds: Vec<u64>,
    threads: Option<u64>,
    /// `tuned`, `default` or `released`; or the content of a file of `sclub tune`.
    constants: String,
    /// The file of stored results, if there is one.
    cells: Option<PathBuf>,
    /// The call, for the page.
    command: String,
}

/// Names of worlds or policies.
type Names = Vec<&'static str>;

/// The names of the worlds, the names of the policies that are ranked, rounds and seeds (the default ones, then those of a
/// first look), and the first seed.
#[pyfunction]
pub fn lab_field_defaults() -> (Names, Names, [(u64, u64); 2], u64) {
    let worlds = worlds(ROUNDS).into_iter().map(|world| world.name);
    let policies = ranked(&[]).unwrap_or_default();
    let policies = policies.into_iter().map(Name::as_str);
    let sizes = [(ROUNDS, SEEDS), (QUICK_ROUNDS, QUICK_SEEDS)];
    (worlds.collect(), policies.collect(), sizes, FIRST_SEED)
}

/// The contents of files by name.
type Files = Vec<(&'static str, String)>;

/// Makes a table. Returns its files by name, and how many results were run and how many reused. `watch` is as in
/// `lab_run`.
#[pyfunction]
pub fn lab_field(
    py: Python<'_>,
    policies: Vec<Column<'_>>,
    options: FieldOptions,
    watch: &Bound<'_, PyAny>,
) -> PyResult<(Files, (usize, usize))> {
    let start = Instant::now();
    let columns = Columns::new(policies, |name| ranked(&[name]).is_ok())?;
    let (constants, released) = match &*options.constants {
        "tuned" => (tuned(), false),
        "default" => (Tuned::default(), false),
        "released" => (Tuned::default(), true),
        text => (serde_json::from_str(text).map_err(refused)?, false),
    };
    let mut plan = Plan {
        policies: ranked(&columns.names()).map_err(refused)?,
        rounds: options.rounds,
        seeds: options.seeds,
        threads: threads(options.threads).map_err(refused)?,
        only: options.worlds,
        left_out: Vec::new(),
        constants,
        released,
    };
    plan.check().map_err(refused)?;
    for world in plan.worlds() {
        let names = columns.left_out(py, &world.setting, plan.seeds[0], world.rounds)?;
        let pairs = names.into_iter().map(|name| (name, world.name));
        plan.left_out.extend(pairs);
    }
    let cells = open_cells(options.cells)?;
    let watched = Arc::new(Watched {
        halt: Arc::clone(&columns.halt),
        has_guests: columns.has_guests(),
        total: plan.rounds_to_play(&cells).map_err(failed)?.into(),
        ..Watched::default()
    });
    let observer = Arc::clone(&watched);
    let command = options.command;
    let made = watched::work(py, &watched, watch, move || {
        let done = plan.run(&cells, &*observer)?;
        let field = plan.field(&cells)?;
        let took = format!("{:.0} s", start.elapsed().as_secs_f64());
        Ok((files(&field, &command, &took, done.missing == 0), done))
    });
    let (files, done) = made?.map_err(failed)?;
    drop(columns);
    Ok((files.map_err(refused)?, (done.new, done.reused)))
}

/// The stored results of a file, or none.
pub fn open_cells(path: Option<PathBuf>) -> PyResult<Cells> {
    match path {
        None => Ok(Cells::in_memory()),
        Some(path) => Cells::open(&path).map_err(|error| failed(error.into())),
    }
}

/// The exception for an error of a table.
pub fn failed(error: PaperError) -> PyErr {
    match error {
        PaperError::World(error) | PaperError::Run(RunError::World(error)) => in_full(error),
        PaperError::Cells(CellsError::Io { ref source, .. }) => {
            PyOSError::new_err(format!("{error}: {source}"))
        }
        PaperError::Cells(error) => PyOSError::new_err(error.to_string()),
        error => refused(error),
    }
}
