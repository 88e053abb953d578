//! Recommending: one item, items for many users, the best k, a list.

use std::collections::HashSet;
use std::sync::Arc;

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use sclub::{Decision, Error, ItemSet, Score, UserId};

use super::Policy;
use crate::errors::{refused, wrong_type, wrong_value};
use crate::items::{Candidates, with_scratch};
use crate::look;
use crate::names::list_of;
use crate::work::{PIECE, check_dim};

#[pymethods]
impl Policy {
    /// Chooses one of the items for a user.
    ///
    /// Parameters
    /// ----------
    /// user : hashable
    ///     Known or not.
    /// items : array of shape (L, d), or Items
    ///     One row a candidate. float64 and float32 are read in place.
    /// ids : sequence of L ids, optional
    ///     The ids of the items, as of `Items`. Policies that do not use ids ignore them.
    /// draw : int, optional
    ///     The random number of this decision, for policies that draw at random. The same number gives the same
    ///     decision again. By default there is one draw for each user and round, and newcomers share one: give
    ///     each decision a number of its own if rewards come late.
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
    #[pyo3(signature = (user, items, *, ids=None, draw=None))]
    fn recommend(
        &self,
        user: &Bound<'_, PyAny>,
        items: &Bound<'_, PyAny>,
        ids: Option<&Bound<'_, PyAny>>,
        draw: Option<u64>,
    ) -> PyResult<usize> {
        let decision = self.ask(user, items, ids, |engine, user, set| match draw {
            Some(draw) => engine.policy().recommend_drawn(draw, user, set),
            None => engine.policy().recommend(user, set),
        })?;
        Ok(decision.index)
    }

    /// Chooses for many users, all on the same history.
    ///
    /// Parameters
    /// ----------
    /// users : sequence of n hashables
    /// items : array of shape (L, d), or (n, L, d), or Items
    ///     The same candidates for all users, or a set of candidates for each. Items with ids are an
    ///     `Items`.
    ///
    /// Returns
    /// -------
    /// array of n int64
    ///     The row to show to each user.
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
        let users = list_of(users, "users")?;
        let numbers = {
            let names = self.names(py)?;
            let numbers = users.iter().enumerate();
            let numbers = numbers.map(|(row, user)| names.number_at(&user, "users", Some(row)));
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
                Some(Arc::new(set))
            }
            Candidates::Ready(set) => Some(Arc::clone(set)),
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

    /// The `k` items with the largest scores for a user, the best first.
    ///
    /// Parameters
    /// ----------
    /// user : hashable
    /// items : array of shape (L, d), or Items
    /// k : int
    ///     The number of items; fewer are returned if there are fewer.
    /// exclude : iterable of int
    ///     Rows to leave out. Rows that do not exist are ignored.
    /// ids : sequence of L ids, optional
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
    #[pyo3(signature = (user, items, k=10, *, exclude=None, ids=None))]
    fn best<'py>(
        &self,
        user: &Bound<'py, PyAny>,
        items: &Bound<'py, PyAny>,
        k: i64,
        exclude: Option<&Bound<'py, PyAny>>,
        ids: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        self.choose_several(user, items, k, exclude, ids, &<dyn sclub::Policy>::best)
    }

    /// The items to show to a user together, in order. `learn_lists` learns their rewards.
    ///
    /// A policy for lists chooses the items for each other. All others return their `best`.
    ///
    /// Parameters
    /// ----------
    /// user : hashable
    /// items : array of shape (L, d), or Items
    /// k : int
    ///     The number of items; fewer are returned if there are fewer.
    /// exclude : iterable of int
    ///     Rows to leave out. Rows that do not exist are ignored.
    /// ids : sequence of L ids, optional
    /// draw : int, optional
    ///     The random number of this decision, as for `recommend`.
    ///
    /// Returns
    /// -------
    /// array of int64
    ///     Rows, the first to be shown first.
    ///
    /// Examples
    /// --------
    /// >>> import numpy as np, sclub
    /// >>> items = np.array([[0.1, 0.0], [0.6, 0.8], [0.3, 0.4]])
    /// >>> sclub.LinUcb(dim=2).recommend_list("anna", items, k=2)
    /// array([1, 2])
    #[pyo3(signature = (user, items, k=10, *, exclude=None, ids=None, draw=None))]
    fn recommend_list<'py>(
        &self,
        user: &Bound<'py, PyAny>,
        items: &Bound<'py, PyAny>,
        k: i64,
        exclude: Option<&Bound<'py, PyAny>>,
        ids: Option<&Bound<'py, PyAny>>,
        draw: Option<u64>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let choose: &ChooseSeveral<'_> = &|policy, user, set, k, exclude, list| match draw {
            Some(draw) => policy.recommend_list_drawn(draw, user, set, k, exclude, list),
            None => policy.recommend_list(user, set, k, exclude, list),
        };
        self.choose_several(user, items, k, exclude, ids, choose)
    }

    /// Score, mean and width of every item for a user: `score = mean + width`, arrays of length L.
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
    #[pyo3(signature = (user, items, *, ids=None, draw=None))]
    pub fn scores<'py>(
        &self,
        user: &Bound<'py, PyAny>,
        items: &Bound<'py, PyAny>,
        ids: Option<&Bound<'py, PyAny>>,
        draw: Option<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let scores = self.ask(user, items, ids, |engine, user, set| {
            let (policy, mut scores) = (engine.policy(), Vec::<Score>::new());
            match draw {
                Some(draw) => policy.explain_drawn(draw, user, set, &mut scores)?,
                None => policy.explain(user, set, &mut scores)?,
            }
            Ok(scores)
        })?;
        look::scores(user.py(), &scores)
    }
}

fn count(k: i64) -> PyResult<usize> {
    usize::try_from(k).map_err(|_| wrong_value("k", format!("it is {k}; it must be 0 or more")))
}

/// The rows that must not be chosen.
fn rows(exclude: Option<&Bound<'_, PyAny>>) -> PyResult<HashSet<usize>> {
    let mut rows = HashSet::new();
    let Some(exclude) = exclude else {
        return Ok(rows);
    };
    let all = exclude.try_iter();
    for row in all.map_err(|_| wrong_type("exclude", "an iterable of row numbers is expected"))? {
        let row = row?;
        let number = row.extract::<usize>();
        rows.insert(number.map_err(|_| {
            let row = row.to_string();
            wrong_value(
                "exclude",
                format!("{row} is not a row number; whole numbers from 0 are expected"),
            )
        })?);
    }
    Ok(rows)
}

/// `best` or `recommend_list` of a policy.
type ChooseSeveral<'a> = dyn Fn(
        &(dyn sclub::Policy + 'static),
        UserId,
        &ItemSet,
        usize,
        &dyn Fn(usize) -> bool,
        &mut Vec<Decision>,
    ) -> Result<(), Error>
    + Send
    + Sync
    + 'a;

impl Policy {
    /// The rows that a method of the library chooses.
    fn choose_several<'py>(
        &self,
        user: &Bound<'py, PyAny>,
        items: &Bound<'py, PyAny>,
        k: i64,
        exclude: Option<&Bound<'py, PyAny>>,
        ids: Option<&Bound<'py, PyAny>>,
        choose: &ChooseSeveral<'_>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let (k, without) = (count(k)?, rows(exclude)?);
        let chosen = self.ask(user, items, ids, |engine, user, set| {
            let mut chosen = Vec::new();
            let is_excluded = |row: usize| without.contains(&row);
            choose(engine.policy(), user, set, k, &is_excluded, &mut chosen)?;
            Ok(chosen)
        })?;
        Ok(indexes(user.py(), &chosen))
    }
}

fn indexes<'py>(py: Python<'py>, decisions: &[Decision]) -> Bound<'py, PyArray1<i64>> {
    let rows = decisions.iter().map(|decision| decision.index as i64);
    rows.collect::<Vec<i64>>().into_pyarray(py)
}
