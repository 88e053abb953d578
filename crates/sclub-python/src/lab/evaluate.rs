//! `sclub.evaluate`: what other policies would have earned, from the log of a service.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use sclub_lab::evaluate::{
    EvaluateError, Log, LogError, LogOptions, Report, check_names, evaluate, passes,
};
use sclub_lab::policies::Name;
use sclub_lab::run::threads;

use super::settings::{policy_named, refused};
use super::watched::{self, Watched};

/// The options of an evaluation, as the Python part of the package passes them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct EvaluateOptions {
    items: Option<PathBuf>,
    unanswered: Option<f64>,
    by_position: bool,
    seed: u64,
    threads: Option<u64>,
}

/// The reason why there is no report.
enum Failure {
    Log(LogError),
    Evaluate(EvaluateError),
}

/// Evaluates policies on a log. Returns the report of `sclub evaluate --json`. `watch` is as in `lab_run`.
#[pyfunction]
pub fn lab_evaluate(
    py: Python<'_>,
    log: PathBuf,
    policies: Vec<String>,
    options: EvaluateOptions,
    watch: &Bound<'_, PyAny>,
) -> PyResult<String> {
    let is_accepted = |name| check_names(&[name]).is_ok();
    let names = policies.iter().map(|name| policy_named(name, is_accepted));
    let names: Vec<Name> = names.collect::<PyResult<_>>()?;
    check_names(&names).map_err(refused)?;
    let threads = threads(options.threads).map_err(refused)?;
    let watched = Arc::new(Watched::default());
    let observer = Arc::clone(&watched);
    let done = watched::work(py, &watched, watch, move || {
        let how = LogOptions {
            unanswered: options.unanswered,
            by_position: options.by_position,
        };
        let log = Log::read(&log, options.items.as_deref(), how).map_err(Failure::Log)?;
        let mut report = Report::of(&log);
        let total = passes(&log) * report.decisions * names.len() as u64;
        observer.total.store(total, Ordering::Relaxed);
        let done = evaluate(&log, &names, options.seed, threads, &*observer);
        report.policies = done.map_err(Failure::Evaluate)?.unwrap_or_default();
        Ok(report)
    })?;
    let report = done.map_err(|failure| match failure {
        Failure::Log(LogError::Io { path, source }) => {
            PyOSError::new_err(format!("cannot read {}: {source}", path.display()))
        }
        Failure::Log(error) => refused(error),
        Failure::Evaluate(error) => refused(error),
    })?;
    serde_json::to_string(&report).map_err(refused)
}
