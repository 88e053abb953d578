//! What the methods of a policy are made of: who is meant, where the numbers are, and the library's work
//! while Python goes on.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, RwLock};

use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyList;
use sclub::{Error, ItemSet, Observation, UserId};

use crate::engine::Engine;
use crate::errors::{broken, refused, wrong_value};
use crate::items::{Candidates, Rows, Table, vector, with_scratch};
use crate::names::{Names, several};
use crate::policy::Policy;

/// Events between two looks for Ctrl-C: some milliseconds of work.
pub const PIECE: usize = 2048;

/// The names of a policy while they are looked at.
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

/// An argument and what is wrong with it.
type Refused = (&'static str, Error);

impl Policy {
    pub fn with(engine: Engine, names: Names) -> Self {
        Self {
            names: Mutex::new(names),
            inside: AtomicUsize::new(0),
            engine: RwLock::new(engine),
        }
    }

    /// Who is who, for a moment: nothing that takes time is done meanwhile. Only the users' own `__hash__`
    /// and `__eq__` run then, and must not come back here.
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

    /// Takes numbers back that were given for something that was not learned after all, unless
    /// somebody else has learned with them meanwhile.
    pub fn take_back(&self, py: Python<'_>, numbers: &[UserId]) -> PyResult<()> {
        let unseen: Vec<UserId> = self.read(py, |engine| {
            let numbers = numbers.iter().copied();
            numbers
                .filter(|&number| engine.count(number).is_none())
                .collect()
        })?;
        self.names(py)?.take_back(py, &unseen)
    }

    /// The numbers of several users, who have them from now on, and those of the newcomers among them.
    pub fn admit_all(&self, users: &Bound<'_, PyList>) -> PyResult<(Vec<UserId>, Vec<UserId>)> {
        let py = users.py();
        let mut numbers = Vec::with_capacity(users.len());
        let mut newcomers = Vec::new();
        let mut names = self.names(py)?;
        for user in users.iter() {
            match names.admit(&user, "users") {
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

    /// Reads the policy while Python goes on.
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

    /// Changes the policy while Python goes on.
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
        question: impl FnOnce(&Engine, UserId, &ItemSet) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let py = user.py();
        let number = self.number(user)?;
        let answer = match Candidates::of_one(items)? {
            Candidates::Ready(set) => self.read(py, |engine| question(engine, number, &set))?,
            Candidates::Shared(rows) => {
                let (table, found) = (rows.table(), rows.dim());
                self.read(py, |engine| {
                    let dim = engine.policy().dim();
                    check_dim(found, dim)?;
                    with_scratch(dim, |set| {
                        table.fill(set)?;
                        question(engine, number, set)
                    })
                })?
            }
            Candidates::Own(_) => {
                return Err(wrong_value("items", "one user has one set of items"));
            }
        };
        answer.map_err(|error| refused("items", &error))
    }

    /// Learns rows of a table one after another, each a round, until something goes wrong.
    pub fn learn_rows(
        &self,
        py: Python<'_>,
        users: &[UserId],
        table: Table<'_>,
        rewards: &[f64],
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
                    let (user, reward) = (users[learned], rewards[learned]);
                    policy.learn_round(&[Observation::new(user, item, reward)], &mut changes)?;
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

    /// Reads and checks what is to be learned, before anything is.
    pub fn observations<'py>(
        &self,
        users: &Bound<'py, PyAny>,
        items: &Bound<'py, PyAny>,
        rewards: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyList>, Rows<'py>, Vec<f64>)> {
        let py = users.py();
        let users = several(users)?;
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
                    format!("there are {len} for {} users", users.len()),
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

/// Checks all observations as learning them would, with their places.
fn check_all(table: Table<'_>, rewards: &[f64], dim: usize) -> Result<(), Refused> {
    let mut item = vec![0.0; dim];
    for (place, &reward) in rewards.iter().enumerate() {
        let observation = Observation {
            id: None,
            user: 0,
            item: table.row(place, &mut item),
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
