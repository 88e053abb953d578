//! The class that all policies share.

use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, RwLock};

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyType};
use sclub::{Change, Decision, Error, ItemSet, Observation, Score, UserId};

use crate::classes::{self, Keywords};
use crate::engine::Engine;
use crate::errors::{refused, wrong_type, wrong_value};
use crate::items::{Candidates, vector, with_scratch};
use crate::look;
use crate::names::{Names, several};
use crate::saved;
use crate::work::{PIECE, check_dim, of_learning};

/// What all policies do: recommend, learn, and say what they think.
///
/// A user is any hashable object. The GIL is released while a policy works; any number of threads may
/// recommend at once, and learning waits for them. A call that raises has changed nothing, unless it
/// says otherwise.
#[pyclass(module = "sclub", subclass, frozen)]
pub struct Policy {
    pub names: Mutex<Names>,
    /// The thread that looks at the names, or 0.
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

    /// Features of an item.
    #[getter]
    pub fn dim(&self, py: Python<'_>) -> PyResult<usize> {
        self.read(py, |engine| engine.policy().dim())
    }

    /// Rounds learned so far.
    #[getter]
    fn rounds(&self, py: Python<'_>) -> PyResult<u64> {
        self.read(py, |engine| engine.policy().rounds())
    }

    /// Number of clusters.
    #[getter]
    fn n_clusters(&self, py: Python<'_>) -> PyResult<usize> {
        self.read(py, |engine| engine.policy().clusters())
    }

    /// Everybody who was declared or learned from, in the order in which they came.
    #[getter]
    fn users<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        Ok(self.names(py)?.kept(py)?.0)
    }

    /// Chooses among items for a user.
    ///
    /// Parameters
    /// ----------
    /// user : hashable
    ///     Anybody; also someone who has never been seen.
    /// items : array of shape (L, d), or Items
    ///     One row a candidate. float64 and float32 are read where they lie.
    ///
    /// Returns
    /// -------
    /// int
    ///     The row to show.
    ///
    /// Examples
    /// --------
    /// >>> import numpy as np, sclub
    /// >>> policy = sclub.LinUcb(dim=2)
    /// >>> policy.recommend("anna", np.array([[0.1, 0.0], [0.6, 0.8]]))
    /// 1
    fn recommend(&self, user: &Bound<'_, PyAny>, items: &Bound<'_, PyAny>) -> PyResult<usize> {
        let decision = self.ask(user, items, |engine, user, set| {
            engine.policy().recommend(user, set)
        })?;
        Ok(decision.index)
    }

    /// Chooses for many users, all on what is known now.
    ///
    /// Parameters
    /// ----------
    /// users : sequence of n hashables
    /// items : array of shape (L, d), or (n, L, d), or Items
    ///     The same candidates for everybody, or for each user others.
    ///
    /// Returns
    /// -------
    /// array of n int64
    ///
    /// Examples
    /// --------
    /// >>> import numpy as np, sclub
    /// >>> policy = sclub.LinUcb(dim=2)
    /// >>> policy.recommend_many(["anna", "bert"], np.array([[0.1, 0.0], [0.6, 0.8]]))
    /// array([1, 1])
    fn recommend_many<'py>(
        &self,
        py: Python<'py>,
        users: &Bound<'py, PyAny>,
        items: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let users = several(users)?;
        let numbers = {
            let names = self.names(py)?;
            let numbers = users.iter().map(|user| names.number(&user, "users"));
            numbers.collect::<PyResult<Vec<UserId>>>()?
        };
        let candidates = Candidates::of_many(items, numbers.len())?;
        let dim = self.dim(py)?;
        let mut chosen: Vec<i64> = Vec::with_capacity(numbers.len());
        // Candidates that all share are laid out once.
        let shared = match &candidates {
            Candidates::Shared(rows) => {
                let mut set = ItemSet::new(dim).map_err(|error| refused("items", &error))?;
                rows.fill(&mut set)
                    .map_err(|error| refused("items", &error))?;
                Some(std::sync::Arc::new(set))
            }
            Candidates::Ready(set) => Some(std::sync::Arc::clone(set)),
            Candidates::Own(_) => None,
        };
        let own = match &candidates {
            Candidates::Own(blocks) => {
                check_dim(blocks.shape()[2], dim).map_err(|error| refused("items", &error))?;
                Some(blocks.tables())
            }
            _ => None,
        };
        for piece in numbers.chunks(PIECE) {
            let outcome = self.read(py, |engine| {
                let policy = engine.policy();
                for &user in piece {
                    let decision = match (&shared, &own) {
                        (Some(set), _) => policy.recommend(user, set),
                        (None, Some(tables)) => with_scratch(dim, |set| {
                            tables.get(chosen.len()).fill(set)?;
                            policy.recommend(user, set)
                        }),
                        (None, None) => Err(Error::NoCandidates),
                    };
                    chosen.push(decision?.index as i64);
                }
                Ok::<(), Error>(())
            })?;
            if let Err(error) = outcome {
                let place = if own.is_some() {
                    format!("items[{}]", chosen.len())
                } else {
                    "items".into()
                };
                return Err(refused(&place, &error));
            }
            py.check_signals()?;
        }
        Ok(chosen.into_pyarray(py))
    }

    /// The best `k` items for a user, the best first.
    ///
    /// Parameters
    /// ----------
    /// user : hashable
    /// items : array of shape (L, d), or Items
    /// k : int
    ///     How many; fewer come back where there are fewer.
    /// exclude : iterable of int
    ///     Rows that must not be among them; ones that there are not do no harm.
    ///
    /// Returns
    /// -------
    /// array of int64
    ///
    /// Examples
    /// --------
    /// >>> import numpy as np, sclub
    /// >>> items = np.array([[0.1, 0.0], [0.6, 0.8], [0.3, 0.4]])
    /// >>> sclub.LinUcb(dim=2).best("anna", items, k=2)
    /// array([1, 2])
    #[pyo3(signature = (user, items, k=10, *, exclude=None))]
    fn best<'py>(
        &self,
        py: Python<'py>,
        user: &Bound<'py, PyAny>,
        items: &Bound<'py, PyAny>,
        k: i64,
        exclude: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let k = usize::try_from(k)
            .map_err(|_| wrong_value("k", format!("it is {k}, and cannot be negative")))?;
        let mut without = std::collections::HashSet::new();
        if let Some(exclude) = exclude {
            let rows = exclude.try_iter();
            for row in
                rows.map_err(|_| wrong_type("exclude", "several row numbers are expected"))?
            {
                let row = row?.extract::<usize>();
                without
                    .insert(row.map_err(|_| wrong_value("exclude", "a row number is expected"))?);
            }
        }
        let best = self.ask(user, items, |engine, user, set| {
            let mut best: Vec<Decision> = Vec::new();
            let policy = engine.policy();
            policy.best(user, set, k, &|row| without.contains(&row), &mut best)?;
            Ok(best)
        })?;
        let rows: Vec<i64> = best.iter().map(|decision| decision.index as i64).collect();
        Ok(rows.into_pyarray(py))
    }

    /// How every item is ranked for a user: `score = mean + width`, three arrays of L.
    ///
    /// Examples
    /// --------
    /// >>> import numpy as np, sclub
    /// >>> policy = sclub.LinUcb(dim=1, beta=0.5)
    /// >>> policy.learn("anna", [1.0], 1.0)
    /// >>> scores = policy.scores("anna", [[1.0], [2.0]])
    /// >>> scores.mean
    /// array([0.5, 1. ])
    /// >>> bool(np.all(scores.score == scores.mean + scores.width))
    /// True
    fn scores<'py>(
        &self,
        py: Python<'py>,
        user: &Bound<'py, PyAny>,
        items: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let scores = self.ask(user, items, |engine, user, set| {
            let mut scores: Vec<Score> = Vec::new();
            engine.policy().explain(user, set, &mut scores)?;
            Ok(scores)
        })?;
        look::scores(py, &scores)
    }

    /// Learns what an item has brought, as a round of its own.
    ///
    /// Parameters
    /// ----------
    /// user : hashable
    /// item : array of shape (d,)
    ///     The features of the item that was shown.
    /// reward : float
    ///
    /// Examples
    /// --------
    /// >>> import sclub
    /// >>> policy = sclub.LinUcb(dim=2)
    /// >>> policy.learn("anna", [0.6, 0.8], 1.0)
    /// >>> policy.rounds
    /// 1
    fn learn(
        &self,
        user: &Bound<'_, PyAny>,
        item: &Bound<'_, PyAny>,
        reward: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let py = user.py();
        let reward: f64 = reward
            .extract()
            .map_err(|why: PyErr| wrong_type("reward", why.value(py)))?;
        let mut features = Vec::new();
        vector(item, "item", "d", &mut features)?;
        let (user, is_new) = self.names(py)?.admit(user, "user")?;
        let learned = self.write(py, |engine| {
            engine.policy_mut().learn(user, &features, reward)
        })?;
        if let Err(error) = learned {
            if is_new {
                self.take_back(py, &[user])?;
            }
            return Err(refused(of_learning(&error, "item", "reward"), &error));
        }
        Ok(())
    }

    /// Learns many observations in their order, each as a round of its own, as `learn` would.
    ///
    /// All are checked before the first is learned. Ctrl-C stops it between two rounds: those before
    /// have then been learned, and `rounds` says how many there are.
    ///
    /// Parameters
    /// ----------
    /// users : sequence of n hashables
    /// items : array of shape (n, d)
    ///     What each of them was shown.
    /// rewards : array of n floats
    ///
    /// Examples
    /// --------
    /// >>> import sclub
    /// >>> policy = sclub.LinUcb(dim=2)
    /// >>> policy.learn_many(["anna", "bert"], [[0.6, 0.8], [1.0, 0.0]], [1.0, 0.0])
    /// >>> policy.users
    /// ['anna', 'bert']
    fn learn_many(
        &self,
        py: Python<'_>,
        users: &Bound<'_, PyAny>,
        items: &Bound<'_, PyAny>,
        rewards: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (users, rows, rewards) = self.observations(users, items, rewards)?;
        let dim = rows.dim();
        let (numbers, newcomers) = self.admit_all(&users)?;
        let outcome = self.learn_rows(py, &numbers, rows.table(), &rewards, dim);
        if outcome.is_err() {
            self.take_back(py, &newcomers)?;
        }
        outcome
    }

    /// Learns what came back from several users who were served on the same history, as one round
    /// (the paper's Theorem 3). A round may be empty: time passes.
    ///
    /// Returns
    /// -------
    /// list of Split and Merge
    ///     What changed in the clusters, and why.
    ///
    /// Examples
    /// --------
    /// >>> import sclub
    /// >>> policy = sclub.Sclub(dim=2)
    /// >>> policy.learn_round(["anna", "bert"], [[0.6, 0.8], [1.0, 0.0]], [1.0, 0.0])
    /// []
    /// >>> policy.rounds
    /// 1
    fn learn_round<'py>(
        &self,
        py: Python<'py>,
        users: &Bound<'py, PyAny>,
        items: &Bound<'py, PyAny>,
        rewards: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let users = several(users)?;
        let mut changes: Vec<Change> = Vec::new();
        if users.is_empty() {
            let learned = self.write(py, |engine| {
                engine.policy_mut().learn_round(&[], &mut changes)
            })?;
            learned.map_err(|error| refused("users", &error))?;
            return look::changes(py, &changes);
        }
        let (users, rows, rewards) = self.observations(users.as_any(), items, rewards)?;
        let (dim, table) = (rows.dim(), rows.table());
        let mut features = vec![0.0; dim * users.len()];
        for (row, item) in features.chunks_exact_mut(dim).enumerate() {
            table.copy_row(row, item);
        }
        let (numbers, newcomers) = self.admit_all(&users)?;
        let round: Vec<Observation<'_>> = numbers
            .iter()
            .zip(features.chunks_exact(dim))
            .zip(&rewards)
            .map(|((&user, item), &reward)| Observation::new(user, item, reward))
            .collect();
        let learned = self.write(py, |engine| {
            engine.policy_mut().learn_round(&round, &mut changes)
        })?;
        if let Err(error) = learned {
            self.take_back(py, &newcomers)?;
            return Err(refused(of_learning(&error, "items", "rewards"), &error));
        }
        look::changes(py, &changes)
    }

    /// The cluster that a recommendation to a user would be made from; 0 where there is none.
    fn cluster_of(&self, py: Python<'_>, user: &Bound<'_, PyAny>) -> PyResult<u64> {
        let number = self.number(user)?;
        self.read(py, |engine| engine.policy().cluster_of(number).unwrap_or(0))
    }

    /// Every cluster with its users, observations and estimate, the largest first.
    ///
    /// Examples
    /// --------
    /// >>> import sclub
    /// >>> policy = sclub.Sclub(dim=1, users=["anna", "bert"])
    /// >>> policy.clusters()
    /// [<Cluster 1: 2 users, 0 observations>]
    fn clusters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        look::clusters(self, py)
    }

    /// The weight vector that a recommendation to a user would be made from.
    ///
    /// Examples
    /// --------
    /// >>> import sclub
    /// >>> policy = sclub.LinUcb(dim=1)
    /// >>> policy.learn("anna", [1.0], 1.0)
    /// >>> policy.estimate("anna")
    /// array([0.5])
    fn estimate<'py>(
        &self,
        py: Python<'py>,
        user: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let number = self.number(user)?;
        let estimate = self.read(py, |engine| engine.policy().estimate(number))?;
        let unsupported =
            || pyo3::exceptions::PyNotImplementedError::new_err("this policy has no estimates");
        Ok(estimate.ok_or_else(unsupported)?.into_pyarray(py))
    }

    /// What the policy knows and thinks about a user, and with `items` how it ranks them for her.
    ///
    /// Examples
    /// --------
    /// >>> import sclub
    /// >>> policy = sclub.Sclub(dim=1)
    /// >>> policy.learn("anna", [1.0], 1.0)
    /// >>> known = policy.explain("anna")
    /// >>> known.count, known.cluster, known.own_estimate
    /// (1, 1, array([0.5]))
    #[pyo3(signature = (user, items=None))]
    fn explain<'py>(
        &self,
        py: Python<'py>,
        user: &Bound<'py, PyAny>,
        items: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let number = self.number(user)?;
        let scores = match items {
            Some(items) => Some(self.scores(py, user, items)?),
            None => None,
        };
        look::explanation(self, user, number, scores)
    }

    /// How the clustering does as a whole; None where a policy fits nothing.
    fn outlook<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let outlook = self.read(py, |engine| engine.policy().as_inspect()?.outlook())?;
        outlook
            .map(|outlook| look::outlook(py, outlook))
            .transpose()
    }

    /// Forgets a user: her statistics and her share in the sums of others.
    ///
    /// Returns
    /// -------
    /// bool
    ///     Whether there was anything to forget.
    ///
    /// Examples
    /// --------
    /// >>> import sclub
    /// >>> policy = sclub.LinUcb(dim=1)
    /// >>> policy.learn("anna", [1.0], 1.0)
    /// >>> policy.forget("anna"), policy.forget("anna")
    /// (True, False)
    fn forget(&self, py: Python<'_>, user: &Bound<'_, PyAny>) -> PyResult<bool> {
        let number = {
            let names = self.names(py)?;
            let number = names.number(user, "user")?;
            if !names.has(number) {
                return Ok(false);
            }
            number
        };
        let forgotten = self.write(py, |engine| {
            let forget = engine.policy_mut().as_forget();
            forget.map(|policy| policy.forget(number))
        })?;
        match forgotten {
            None => Err(pyo3::exceptions::PyNotImplementedError::new_err(
                "this policy cannot forget a user: what others learned from her stays in its state",
            )),
            Some(forgotten) => {
                if forgotten {
                    self.names(py)?.forget(py, number)?;
                }
                Ok(forgotten)
            }
        }
    }

    /// A number that is equal for equal histories: a digest of every bit of the state.
    fn digest(&self, py: Python<'_>) -> PyResult<u64> {
        self.read(py, |engine| engine.policy().digest())
    }

    /// Writes the whole state to a file, which `load` has back to the bit.
    ///
    /// Users can be numbers, strings, bytes, None, and tuples of such; for others use pickle. A file
    /// that was there is replaced in one step, when all is written.
    ///
    /// Parameters
    /// ----------
    /// path : str or path
    fn save(slf: &Bound<'_, Self>, path: PathBuf) -> PyResult<()> {
        saved::save(slf, &path)
    }

    /// Reads what `save` wrote.
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
        Ok(format!(
            "<{name} dim={dim} rounds={rounds} users={users} clusters={clusters}>"
        ))
    }
}
