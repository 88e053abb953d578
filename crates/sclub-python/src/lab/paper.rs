//! `sclub paper` with policies that are written in Python beside the paper's.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use pyo3::prelude::*;
use sclub_lab::data::Read;
use sclub_lab::data::features::FeatureError;
use sclub_lab::named::Named;
use sclub_lab::paper::{self, PaperError, Part, Plan, Source};
use sclub_lab::report::model::Origin;
use sclub_lab::report::{machine, render};
use sclub_lab::run::threads;

use super::columns::{Column, Columns};
use super::field::{failed, open_cells};
use super::settings::{DataArgs, refused};
use super::watched::{self, Watched};

/// The options of a report, as the Python part of the package passes them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct PaperOptions<'py> {
    rounds: u64,
    seeds: Vec<u64>,
    quick: bool,
    parts: Vec<String>,
    movielens: Option<DataArgs<'py>>,
    yelp: Option<DataArgs<'py>>,
    threads: Option<u64>,
    /// The file of stored results, if there is one.
    cells: Option<PathBuf>,
    /// The call, for the page.
    command: String,
}

/// The names of the parts, and rounds and seeds: the paper's, then those of a short version.
#[pyfunction]
pub fn lab_paper_defaults() -> (Vec<&'static str>, [(u64, u64); 2]) {
    let parts = Part::ALL.iter().map(|&(name, ..)| name);
    let sizes = [
        (paper::ROUNDS, paper::SEEDS),
        (paper::QUICK_ROUNDS, paper::QUICK_SEEDS),
    ];
    (parts.collect(), sizes)
}

/// Files by path, and how many results were run and how many reused.
type Made = (Vec<(String, Vec<u8>)>, (usize, usize));

/// Makes a report. Returns its files and warnings about the data. `watch_reading` is called with the bytes read and
/// the bytes in all, `watch` as in `lab_run`.
#[pyfunction]
pub fn lab_paper(
    py: Python<'_>,
    policies: Vec<Column<'_>>,
    options: PaperOptions<'_>,
    watch_reading: Py<PyAny>,
    watch: &Bound<'_, PyAny>,
) -> PyResult<(Made, Vec<String>)> {
    let start = Instant::now();
    let is_accepted = |name| paper::check(1, 1, &[], &[name], true).is_ok();
    let columns = Columns::new(policies, is_accepted)?;
    let parts = options.parts.iter().map(|name| Part::named(name));
    let parts: Vec<Part> = parts.collect::<Result<_, _>>().map_err(refused)?;
    let has_data = options.movielens.is_some() || options.yelp.is_some();
    let (rounds, seeds) = (options.rounds, options.seeds.len() as u64);
    paper::check(rounds, seeds, &parts, &columns.names(), has_data).map_err(refused)?;
    let mut warnings = Vec::new();
    let mut source = |data: Option<DataArgs<'_>>, make: fn(Read, &str) -> _| {
        let Some(data) = data else { return Ok(None) };
        let (read, more) = data.read(py, &watch_reading)?;
        warnings.extend(more);
        let name = data.name();
        let made: Result<Source, FeatureError> = py.detach(|| make(read, &name));
        made.map(Some).map_err(refused)
    };
    let plan = Plan {
        rounds,
        seeds: options.seeds,
        threads: threads(options.threads).map_err(refused)?,
        quick: options.quick,
        parts,
        policies: columns.names(),
        movielens: source(options.movielens, Source::movielens)?,
        yelp: source(options.yelp, Source::yelp)?,
    };
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
        let mut done = plan.run(&cells, &*observer)?;
        if done.missing == 0 {
            let later = plan.later_rounds_to_play(&cells)?;
            observer.total.fetch_add(later, Ordering::Relaxed);
            let second = plan.run_later(&cells, &*observer)?;
            done.new += second.new;
            done.reused += second.reused;
            done.missing += second.missing;
        }
        let origin = Origin {
            command,
            quick: plan.quick,
            rounds: plan.rounds,
            seeds: plan.seeds.clone(),
            machine: machine::facts(plan.threads),
            versions: vec![("sclub".into(), env!("CARGO_PKG_VERSION").into())],
            seconds: start.elapsed().as_secs_f64(),
            cells: (done.new, done.reused),
            complete: done.missing == 0,
            to_come: Vec::new(),
        };
        let report = plan.report(&cells, origin)?;
        Ok::<_, PaperError>((render(&report), done))
    });
    let (rendered, done) = made?.map_err(failed)?;
    drop(columns);
    let files = rendered.map_err(refused)?.files();
    Ok(((files, (done.new, done.reused)), warnings))
}
