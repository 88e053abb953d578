//! A run on threads of its own, while the thread that asked for it looks for Ctrl-C.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use sclub_lab::policies::Name;
use sclub_lab::run::RunError;
use serde_json::Value;

use super::job::{Job, Options};
use super::settings::{in_full, refused};

/// The interval at which the calling thread checks for Ctrl-C and reports progress.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

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
    let (sender, receiver) = mpsc::channel();
    let thread = {
        let job = Arc::clone(&job);
        std::thread::Builder::new()
            .name("sclub lab".into())
            .spawn(move || {
                // It fails only if the caller has panicked.
                let _ = sender.send(job.run());
            })?
    };
    let receiver = Mutex::new(receiver);
    let outcome = loop {
        let heard = py.detach(|| {
            let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            receiver.recv_timeout(CHECK_INTERVAL)
        });
        match heard {
            Ok(outcome) => break Some(outcome),
            Err(mpsc::RecvTimeoutError::Disconnected) => break None,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let looked = py
                    .check_signals()
                    .and_then(|()| watch.call1(job.progress()).map(|_| ()));
                if let Err(error) = looked {
                    job.halt.fail(error);
                }
            }
        }
    };
    let ended = py.detach(|| thread.join());
    if let Some(error) = job.halt.take() {
        return Err(error);
    }
    let (Some(outcome), Ok(())) = (outcome, ended) else {
        return Err(PyRuntimeError::new_err(
            "the run panicked; this is a bug in sclub, please report it",
        ));
    };
    let runs = outcome.map_err(|error| match error {
        RunError::World(error) => in_full(error),
        error => refused(error),
    })?;
    watch.call1(job.progress())?;
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
