//! Learning: observations one by one, in rounds, in lists; and forgetting.

use pyo3::exceptions::PyNotImplementedError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use sclub::{Change, Observation};

use super::Policy;
use crate::errors::{refused, wrong_type};
use crate::ids::{number_of, numbers_of};
use crate::items::vector;
use crate::lists::{self, ReadList};
use crate::look;
use crate::names::list_of;
use crate::work::of_learning;

#[pymethods]
impl Policy {
    /// Learns the reward of an item, as a round of its own.
    ///
    /// Parameters
    /// ----------
    /// user : hashable
    /// item : array of shape (d,)
    ///     The features of the item that was shown.
    /// reward : float
    /// id : item id, optional
    ///     The id of the item. Policies that do not use ids ignore it.
    ///
    /// Examples
    /// --------
    /// >>> import sclub
    /// >>> policy = sclub.LinUcb(dim=2)
    /// >>> policy.learn("anna", [0.6, 0.8], 1.0)
    /// >>> policy.rounds
    /// 1
    #[pyo3(signature = (user, item, reward, *, id=None))]
    fn learn(
        &self,
        user: &Bound<'_, PyAny>,
        item: &Bound<'_, PyAny>,
        reward: &Bound<'_, PyAny>,
        id: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = user.py();
        let reward: f64 = reward
            .extract()
            .map_err(|why: PyErr| wrong_type("reward", why.value(py)))?;
        let mut features = Vec::new();
        vector(item, "item", "d", &mut features)?;
        let id = id.map(|id| number_of(id, "id")).transpose()?;
        let (user, is_new) = self.names(py)?.admit(user, "user")?;
        let learned = self.write(py, |engine| {
            let observation = Observation {
                user,
                item: &features,
                id,
                reward,
            };
            let mut changes = Vec::new();
            engine
                .policy_mut()
                .learn_round(&[observation], &mut changes)
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
    /// All are validated before the first is learned. Ctrl-C stops it between two rounds: the rounds
    /// before it stay learned, and `rounds` is their number.
    ///
    /// Parameters
    /// ----------
    /// users : sequence of n hashables
    /// items : array of shape (n, d)
    ///     The features of the item that each user was shown.
    /// rewards : array of n floats
    /// ids : sequence of n item ids, optional
    ///
    /// Examples
    /// --------
    /// >>> import sclub
    /// >>> policy = sclub.LinUcb(dim=2)
    /// >>> policy.learn_many(["anna", "bert"], [[0.6, 0.8], [1.0, 0.0]], [1.0, 0.0])
    /// >>> policy.users
    /// ['anna', 'bert']
    #[pyo3(signature = (users, items, rewards, *, ids=None))]
    fn learn_many(
        &self,
        py: Python<'_>,
        users: &Bound<'_, PyAny>,
        items: &Bound<'_, PyAny>,
        rewards: &Bound<'_, PyAny>,
        ids: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (users, rows, rewards) = self.observations(users, items, rewards)?;
        let ids = ids.map(|ids| numbers_of(ids, "ids", users.len()));
        let ids = ids.transpose()?;
        let dim = rows.dim();
        let (numbers, newcomers) = self.admit_all(&users)?;
        let outcome = self.learn_rows(py, &numbers, rows.table(), &rewards, ids.as_deref(), dim);
        if outcome.is_err() {
            self.take_back(py, &newcomers)?;
        }
        outcome
    }

    /// Learns the rewards of several users who were served on the same history, as one round (the
    /// paper's Theorem 3). A round may be empty: time passes.
    ///
    /// Parameters
    /// ----------
    /// users : sequence of n hashables
    /// items : array of shape (n, d)
    /// rewards : array of n floats
    /// ids : sequence of n item ids, optional
    ///
    /// Returns
    /// -------
    /// list of Split and Merge
    ///     The changes of the clusters, with the inequality behind each.
    ///
    /// Examples
    /// --------
    /// >>> import sclub
    /// >>> policy = sclub.Sclub(dim=2)
    /// >>> policy.learn_round(["anna", "bert"], [[0.6, 0.8], [1.0, 0.0]], [1.0, 0.0])
    /// []
    /// >>> policy.rounds
    /// 1
    #[pyo3(signature = (users, items, rewards, *, ids=None))]
    fn learn_round<'py>(
        &self,
        py: Python<'py>,
        users: &Bound<'py, PyAny>,
        items: &Bound<'py, PyAny>,
        rewards: &Bound<'py, PyAny>,
        ids: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let users = list_of(users, "users")?;
        let mut changes: Vec<Change> = Vec::new();
        if users.is_empty() {
            let learned = self.write(py, |engine| {
                engine.policy_mut().learn_round(&[], &mut changes)
            })?;
            learned.map_err(|error| refused("users", &error))?;
            return look::changes(py, &changes);
        }
        let (users, rows, rewards) = self.observations(users.as_any(), items, rewards)?;
        let ids = ids.map(|ids| numbers_of(ids, "ids", users.len()));
        let ids = ids.transpose()?;
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
            .enumerate()
            .map(|(place, ((&user, item), &reward))| Observation {
                user,
                item,
                id: ids.as_ref().map(|ids| ids[place]),
                reward,
            })
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

    /// Learns one round of lists that were shown on the same history.
    ///
    /// A policy for lists learns from a list as a whole. All others learn each item that the user looked
    /// at and whose reward is known, as an observation of its own: the same as `learn_round` of those.
    ///
    /// Parameters
    /// ----------
    /// lists : iterable of ShownList
    ///     The items shown to each user in order, their rewards, and how far the user looked.
    ///
    /// Returns
    /// -------
    /// list of Split and Merge
    ///     The changes of the clusters, with the inequality behind each.
    ///
    /// Examples
    /// --------
    /// >>> import numpy as np, sclub
    /// >>> items = np.array([[0.1, 0.0], [0.6, 0.8], [0.3, 0.4]])
    /// >>> policy = sclub.LinUcb(dim=2)
    /// >>> shown = policy.recommend_list("anna", items, k=3)
    /// >>> policy.learn_lists([sclub.ShownList("anna", items[shown], [0.0, 1.0, None], looked_at=2)])
    /// []
    /// >>> policy.rounds, policy.explain("anna").count
    /// (1, 2)
    fn learn_lists<'py>(
        &self,
        py: Python<'py>,
        lists: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let (users, read) = lists::read(lists, self.dim(py)?)?;
        let (numbers, newcomers) = self.admit_all(&users)?;
        let mut changes: Vec<Change> = Vec::new();
        let learned = self.write(py, |engine| {
            let shown: Vec<_> = read.iter().map(ReadList::shown).collect();
            let lists = numbers.iter().zip(&read).zip(&shown);
            let round: Vec<sclub::List<'_>> = lists
                .map(|((&user, list), items)| sclub::List {
                    user,
                    items,
                    looked_at: list.looked_at,
                })
                .collect();
            engine.policy_mut().learn_lists(&round, &mut changes)
        })?;
        if let Err(error) = learned {
            self.take_back(py, &newcomers)?;
            return Err(refused("lists", &error));
        }
        look::changes(py, &changes)
    }

    /// Forgets a user: their statistics, and their part of the sums that they share with others.
    ///
    /// Returns
    /// -------
    /// bool
    ///     True if the user was known.
    ///
    /// Raises
    /// ------
    /// NotImplementedError
    ///     If the policy cannot forget.
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
            None => Err(PyNotImplementedError::new_err(
                "this policy cannot forget a user: their observations stay in sums that others share",
            )),
            Some(forgotten) => {
                if forgotten {
                    self.names(py)?.forget(py, number)?;
                }
                Ok(forgotten)
            }
        }
    }
}
