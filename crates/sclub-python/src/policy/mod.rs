//! The class that all policies share: its fields, its constructor, and how it is kept.
//!
//! `serve` has the methods that recommend, `learn` those that learn and forget, `inspect` those that
//! only look.

mod inspect;
mod learn;
mod serve;

use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, RwLock};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use serde_json::Value;

use crate::classes::{self, Keywords};
use crate::engine::Engine;
use crate::names::Names;
use crate::saved;

/// The base class of all policies: recommend, learn, inspect, save.
///
/// A user is any hashable object. The GIL is released while a policy works; any number of threads may
/// recommend at once, and learning waits for them. A call that raises has changed nothing, unless its
/// documentation says otherwise.
#[pyclass(module = "sclub", subclass, frozen)]
pub struct Policy {
    pub names: Mutex<Names>,
    /// The thread that holds the names, or 0.
    pub inside: AtomicUsize,
    pub engine: RwLock<Engine>,
}

#[pymethods]
impl Policy {
    #[new]
    #[classmethod]
    #[pyo3(signature = (dim, *, users=None, preset=None, seed=0, assumptions=None, **constants))]
    fn new(
        class: &Bound<'_, PyType>,
        dim: &Bound<'_, PyAny>,
        users: Option<&Bound<'_, PyAny>>,
        preset: Option<&str>,
        seed: u64,
        assumptions: Option<&Bound<'_, PyDict>>,
        constants: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let keywords = Keywords {
            users,
            preset,
            seed,
            assumptions,
            constants,
        };
        classes::make(class, dim, &keywords)
    }

    /// True if the policy uses item ids.
    #[classattr]
    fn uses_item_ids() -> bool {
        false
    }

    /// A digest of every bit of the state: equal for equal histories.
    fn digest(&self, py: Python<'_>) -> PyResult<u64> {
        self.read(py, |engine| engine.policy().digest())
    }

    /// Writes the whole state to a file, from which `load` restores it to the bit.
    ///
    /// Users can be numbers, strings, bytes, None, and tuples of such; for others use pickle. An
    /// existing file is replaced in one step, after everything is written.
    ///
    /// Parameters
    /// ----------
    /// path : str or path
    fn save(slf: &Bound<'_, Self>, path: PathBuf) -> PyResult<()> {
        saved::save(slf, &path)
    }

    /// Loads a file that `save` wrote.
    ///
    /// Examples
    /// --------
    /// >>> import os, tempfile, numpy as np, sclub
    /// >>> policy = sclub.Sclub(dim=2)
    /// >>> policy.learn("anna", np.array([0.6, 0.8]), 1.0)
    /// >>> with tempfile.TemporaryDirectory() as folder:
    /// ...     path = os.path.join(folder, "state")
    /// ...     policy.save(path)
    /// ...     again = sclub.Sclub.load(path)
    /// >>> again.digest() == policy.digest(), again.users
    /// (True, ['anna'])
    #[classmethod]
    fn load<'py>(class: &Bound<'py, PyType>, path: PathBuf) -> PyResult<Bound<'py, PyAny>> {
        saved::read_file(class.py(), &path, Some(class))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<saved::Reduced<'py>> {
        saved::reduce(slf)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let py = slf.py();
        let name = slf.get_type().name()?;
        let this = slf.get();
        let users = this.names(py)?.len();
        let (dim, rounds, clusters) = this.read(py, |engine| {
            let policy = engine.policy();
            (policy.dim(), policy.rounds(), policy.clusters())
        })?;
        let mut constants = String::new();
        for (name, value) in this.read(py, changed)? {
            let value = from_json(py, &value.to_string())?.repr()?;
            constants.push_str(&format!(" {name}={value}"));
        }
        Ok(format!(
            "<{name} dim={dim} rounds={rounds} users={users} clusters={clusters}{constants}>"
        ))
    }
}

/// The constants that are not the defaults, without those that are off.
fn changed(engine: &Engine) -> Vec<(String, Value)> {
    let Some(constants) = engine.constants() else {
        return Vec::new();
    };
    let names = constants.changed.iter();
    let values = names.filter_map(|name| Some((name.clone(), constants.all.get(name)?.clone())));
    values.filter(|(_, value)| !value.is_null()).collect()
}

/// The Python object of a JSON text.
fn from_json<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (text,))
}
