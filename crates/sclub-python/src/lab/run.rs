//! A run: policies in worlds.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sclub_lab::policies::Name;
use sclub_lab::run::RunError;
use serde_json::Value;

use super::job::{Job, Options};
use super::settings::{in_full, refused};
use super::watched;

/// A run as JSON, its curve at equal distances, whether the policy is a guest, and whether it has
/// clusters.
type Played = (String, Vec<(u64, f64)>, bool, bool);

/// The policies of the lab: their names, their colours on a light ground, and whether they are in the
/// registry (the others are yardsticks that know the world).
#[pyfunction]
pub fn lab_policies() -> Vec<(&'static str, &'static str, bool)> {
    let all = Name::all().into_iter();
    let learns = |name: Name| sclub::find_policy(name.as_str()).is_some();
    all.map(|name| (name.as_str(), name.spec().colors[0], learns(name)))
        .collect()
}

/// Runs policies in worlds. `watch` is called with the rounds played and those in all, by the thread
/// that called. Returns the runs, and a description of the experiment as JSON.
#[pyfunction]
pub fn lab_run(
    py: Python<'_>,
    world: &Bound<'_, PyAny>,
    policies: Option<Vec<(String, Bound<'_, PyAny>)>>,
    options: Options,
    watch: &Bound<'_, PyAny>,
) -> PyResult<(Vec<Played>, String)> {
    let job = Arc::new(Job::new(world, policies, options)?);
    let running = Arc::clone(&job);
    let runs = watched::work(py, &job.watched, watch, move || running.run())?;
    let runs = runs.map_err(|error| match error {
        RunError::World(error) => in_full(error),
        error => refused(error),
    })?;
    let written = |why: serde_json::Error| PyValueError::new_err(why.to_string());
    let config = job.config().unwrap_or(Value::Null);
    let config = serde_json::to_string(&config).map_err(written)?;
    let mut played = Vec::with_capacity(runs.len());
    for mut run in runs {
        let curve = std::mem::take(&mut run.even_curve);
        let text = serde_json::to_string(&run).map_err(written)?;
        played.push((text, curve, run.policy.is_guest, run.policy.has_clusters));
    }
    Ok((played, config))
}
