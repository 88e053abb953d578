//! Building blocks of a policy's methods: locks, the GIL, and the arguments that several methods share.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, RwLock};

use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyList;
use sclub::{Error, ItemId, ItemSet, Observation, UserId};

use crate::engine::Engine;
use crate::errors::{are, broken, many, refused, wrong_value};
use crate::ids::numbers_of;
use crate::items::{Candidates, Rows, Table, vector, with_scratch};
use crate::names::{Names, list_of};
use crate::policy::Policy;

/// Events between two checks for Ctrl-C: some milliseconds of work.
pub const PIECE: usize = 2048;

/// The users of a policy, locked.
pub struct NamesGuard<'a> {
    names: MutexGuard<'a, Names>,
    inside: &'a AtomicUsize,
}

impl Deref for NamesGuard<'_> {
    type Target = Names;

    fn deref(&self) -> &Names {
        &self.names
    }
}

impl DerefMut for NamesGuard<'_> {
    fn deref_mut(&mut self) -> &mut Names {
        &mut self.names
    }
}

impl Drop for NamesGuard<'_> {
    fn drop(&mut self) {
        self.inside.store(0, Ordering::Relaxed);
    }
}

/// A number that no other thread has at the same time, and that is not 0.
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here) as usize)
}

/// An argument and its error.
type Refused = (&'static str, Error);

impl Policy {
    pub fn with(engine: Engine, names: Names) -> Self {
        Self {
            names: Mutex::new(names),
            inside: AtomicUsize::new(0),
            engine: RwLock::new(engine),
        }
    }

    /// Locks the users. Nothing slow may be done meanwhile. The users' own `__hash__` and `__eq__` run
    /// under the lock, and must not use the policy.
    pub fn names(&self, py: Python<'_>) -> PyResult<NamesGuard<'_>> {
        let here = this_thread();
        if self.inside.load(Ordering::Relaxed) == here {
            let why =
                "a policy cannot be used while it compares users (in their __hash__ or __eq__)";
            return Err(PyRuntimeError::new_err(why));
        }
        let names = self.names.lock_py_attached(py).map_err(|_| broken())?;
        self.inside.store(here, Ordering::Relaxed);
        Ok(NamesGuard {
            names,
            inside: &self.inside,
        })
    }

    /// Removes users that were added for observations that were then refused, unless another thread
    /// has learned from them meanwhile.
    pub fn take_back(&self, py: Python<'_>, numbers: &[UserId]) -> PyResult<()> {
        let unseen: Vec<UserId> = self.read(py, |engine| {
            let numbers = numbers.iter().copied();
            numbers
                .filter(|&number| engine.count(number).is_none())
                .collect()
        })?;
        self.names(py)?.take_back(py, &unseen)
    }

    /// The numbers of several users, added where they are new, and the numbers of the new ones.
    pub fn admit_all(&self, users: &Bound<'_, PyList>) -> PyResult<(Vec<UserId>, Vec<UserId>)> {
        let py = users.py();
        let mut numbers = Vec::with_capacity(users.len());
        let mut newcomers = Vec::new();
        let mut names = self.names(py)?;
        for (row, user) in users.iter().enumerate() {
            match names.admit_at(&user, "users", Some(row)) {
                Ok((number, is_new)) => {
                    numbers.push(number);
                    newcomers.extend(is_new.then_some(number));
                }
                Err(error) => {
                    names.take_back(py, &newcomers)?;
                    return Err(error);
                }
            }
        }
        Ok((numbers, newcomers))
    }

    /// Reads the policy with the GIL released.
    pub fn read<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Engine) -> T + Send,
    ) -> PyResult<T> {
        py.detach(|| {
            let engine = self.engine.read().map_err(|_| ())?;
            Ok::<T, ()>(work(&engine))
        })
        .map_err(|()| broken())
    }

    /// Changes the policy with the GIL released.
    pub fn write<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Engine) -> T + Send,
    ) -> PyResult<T> {
        py.detach(|| {
            let mut engine = self.engine.write().map_err(|_| ())?;
            Ok::<T, ()>(work(&mut engine))
        })
        .map_err(|()| broken())
    }

    pub fn number(&self, user: &Bound<'_, PyAny>) -> PyResult<UserId> {
        self.names(user.py())?.number(user, "user")
    }

    /// Lays the candidates of one user out and asks the policy about them.
    pub fn ask<T: Send>(
        &self,
        user: &Bound<'_, PyAny>,
        items: &Bound<'_, PyAny>,
        ids: Option<&Bound<'_, PyAny>>,
        question: impl FnOnce(&Engine, UserId, &ItemSet) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let py = user.py();
        let number = self.number(user)?;
        let answer = match Candidates::of_one(items)? {
            Candidates::Ready(_) if ids.is_some() => {
                let why =
                    "items is an Items, which has ids of its own; use Items(features, ids=...)";
                return Err(wrong_value("ids", why));
            }
            Candidates::Ready(set) => self.read(py, |engine| question(engine, number, &set))?,
            Candidates::Shared(rows) => {
                let ids = ids.map(|ids| numbers_of(ids, "ids", rows.len()));
                let ids = ids.transpose()?;
                let (table, found) = (rows.table(), rows.dim());
                self.read(py, |engine| {
                    let dim = engine.policy().dim();
                    check_dim(found, dim)?;
                    with_scratch(dim, |set| {
                        table.fill(set)?;
                        if let Some(ids) = &ids {
                            set.set_ids(ids)?;
                        }
                        question(engine, number, set)
                    })
                })?
            }
            Candidates::Own(_) => {
                return Err(wrong_value(
                    "items",
                    "one set of items is expected, an array of shape (L, d)",
                ));
            }
        };
        answer.map_err(|error| refused("items", &error))
    }

    /// Learns rows of a table one after another, each as a round, up to the first error.
    pub fn learn_rows(
        &self,
        py: Python<'_>,
        users: &[UserId],
        table: Table<'_>,
        rewards: &[f64],
        ids: Option<&[ItemId]>,
        dim: usize,
    ) -> PyResult<()> {
        let mut changes = Vec::new();
        let mut item = vec![0.0; dim];
        let mut learned = 0;
        while learned < users.len() {
            let end = (learned + PIECE).min(users.len());
            let outcome = self.write(py, |engine| {
                let policy = engine.policy_mut();
                while learned < end {
                    let item = table.row(learned, &mut item);
                    let observation = Observation {
                        user: users[learned],
                        item,
                        id: ids.map(|ids| ids[learned]),
                        reward: rewards[learned],
                    };
                    policy.learn_round(&[observation], &mut changes)?;
                    changes.clear();
                    learned += 1;
                }
                Ok::<(), Error>(())
            });
            outcome?.map_err(|error| refused("items", &error))?;
            py.check_signals()?;
        }
        Ok(())
    }

    /// Reads and validates observations, before anything is learned.
    pub fn observations<'py>(
        &self,
        users: &Bound<'py, PyAny>,
        items: &Bound<'py, PyAny>,
        rewards: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyList>, Rows<'py>, Vec<f64>)> {
        let py = users.py();
        let users = list_of(users, "users")?;
        let rows = Rows::of(items, "items")?;
        let rewards = match rewards.extract::<PyReadonlyArray1<'_, f64>>() {
            Ok(array) => array.as_array().to_vec(),
            Err(_) => {
                let mut read = Vec::new();
                vector(rewards, "rewards", "n", &mut read)?;
                read
            }
        };
        for (argument, len) in [("items", rows.len()), ("rewards", rewards.len())] {
            if len != users.len() {
                return Err(wrong_value(
                    argument,
                    format!(
                        "there {} for {}; give one for each",
                        are(len, &argument[..argument.len() - 1]),
                        many(users.len(), "user")
                    ),
                ));
            }
        }
        let dim = self.dim(py)?;
        check_dim(rows.dim(), dim).map_err(|error| refused("items", &error))?;
        let table = rows.table();
        let checked = py.detach(|| check_all(table, &rewards, dim));
        checked.map_err(|(argument, error)| refused(argument, &error))?;
        Ok((users, rows, rewards))
    }
}

/// Validates all observations as learning them would, with errors that name their positions.
fn check_all(table: Table<'_>, rewards: &[f64], dim: usize) -> Result<(), Refused> {
    let mut item = vec![0.0; dim];
    for (place, &reward) in rewards.iter().enumerate() {
        let observation = Observation {
            user: 0,
            item: table.row(place, &mut item),
            id: None,
            reward,
        };
        sclub::check_round(&[observation], dim).map_err(|error| match error {
            Error::BadFeature { feature, value, .. } => (
                "items",
                Error::BadFeature {
                    item: place,
                    feature,
                    value,
                },
            ),
            Error::BadReward { value, .. } => (
                "rewards",
                Error::BadReward {
                    observation: place,
                    value,
                },
            ),
            other => ("items", other),
        })?;
    }
    Ok(())
}

/// Checks the features of an item.
pub fn check_dim(got: usize, expected: usize) -> Result<(), Error> {
    if got == expected {
        Ok(())
    } else {
        Err(Error::DimensionMismatch { expected, got })
    }
}

/// The argument that an error of learning is about.
pub fn of_learning(error: &Error, item: &'static str, reward: &'static str) -> &'static str {
    match error {
        Error::BadReward { .. } => reward,
        _ => item,
    }
}
