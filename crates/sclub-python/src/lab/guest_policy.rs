//! A policy that is written in Python.

use std::collections::HashSet;
use std::sync::Arc;

use numpy::ndarray::{ArrayView1, ArrayView2};
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use sclub::{
    Change, ClusterId, Decision, Error, ItemId, ItemSet, List, Observation, Policy, Score, UserId,
};

use super::halt::Halt;
use crate::engine::Engine;

/// The error that the lab gets; the exception itself is in [`Halt`].
pub const FAILED: Error = Error::NoCandidates;

/// The size of the world that a guest plays in.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The number of features of an item.
    pub dim: usize,
    /// The number of users.
    pub users: u64,
    /// True if several users may appear in a round.
    pub is_for_several: bool,
    /// The number of items shown at once.
    pub slots: usize,
}

/// A Python object with `recommend` and `learn`, and optionally `recommend_list`, `learn_round`, `learn_lists` and
/// `cluster_of`.
pub struct GuestPolicy {
    label: String,
    object: Py<PyAny>,
    place: Place,
    has_lists: bool,
    learns_rounds: bool,
    learns_lists: bool,
    has_clusters: bool,
    /// True if its methods take `ids=` and `id=`.
    uses_ids: bool,
    /// The number of each cluster that `cluster_of` has returned.
    numbers: Py<PyDict>,
    rounds: u64,
    halt: Arc<Halt>,
}

impl GuestPolicy {
    /// A guest for one world.
    pub fn new(
        label: String,
        object: &Bound<'_, PyAny>,
        place: Place,
        halt: Arc<Halt>,
    ) -> PyResult<Self> {
        let py = object.py();
        for method in ["recommend", "learn"] {
            if !object.hasattr(method)? {
                return Err(PyTypeError::new_err(format!(
                    "policy '{label}' has no method {method}; it needs recommend(user, items) and \
                     learn(user, item, reward)"
                )));
            }
        }
        let has_lists = object.hasattr(intern!(py, "recommend_list"))?;
        if place.slots > 1 && !has_lists {
            return Err(PyTypeError::new_err(format!(
                "policy '{label}' has no method recommend_list(user, items, k), and this world shows {} items at once",
                place.slots
            )));
        }
        let has_rounds = place.is_for_several || place.slots > 1;
        Ok(Self {
            has_lists,
            learns_rounds: has_rounds && object.hasattr(intern!(py, "learn_round"))?,
            learns_lists: object.hasattr(intern!(py, "learn_lists"))?,
            has_clusters: object.hasattr(intern!(py, "cluster_of"))?,
            uses_ids: match object.getattr_opt(intern!(py, "uses_item_ids"))? {
                Some(uses) => uses.is_truthy()?,
                None => false,
            },
            object: object.clone().unbind(),
            numbers: PyDict::new(py).unbind(),
            rounds: 0,
            label,
            place,
            halt,
        })
    }

    /// True if it has `cluster_of`.
    pub fn has_clusters(&self) -> bool {
        self.has_clusters
    }

    /// Calls the object; an exception stops the run.
    fn with<T>(&self, work: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> Result<T, Error> {
        if self.halt.is_stopped() {
            return Err(FAILED);
        }
        Python::attach(|py| work(self.object.bind(py))).map_err(|error| {
            self.halt.fail(error);
            FAILED
        })
    }

    /// The items as an array, and the keywords of a method that chooses among them. A policy of the package, whose
    /// method is its own, is given the random number of the decision.
    fn arguments<'py>(
        &self,
        object: &Bound<'py, PyAny>,
        method: &Bound<'py, PyString>,
        draw: Option<u64>,
        items: &ItemSet,
    ) -> PyResult<(Bound<'py, PyAny>, Option<Bound<'py, PyDict>>)> {
        let py = object.py();
        let mut rows = Vec::with_capacity(items.len() * items.dim());
        for item in 0..items.len() {
            rows.extend(items.item(item));
        }
        let array = matrix(py, &rows, self.place.dim)?;
        let ids = match items.ids() {
            [] => None,
            ids => Some(frozen(py, ids)),
        };
        let mut keywords = self.keywords(py, intern!(py, "ids"), ids)?;
        let own = py.get_type::<crate::policy::Policy>().getattr(method)?;
        if let Some(draw) = draw
            && object
                .get_type()
                .getattr(method)
                .is_ok_and(|method| method.is(&own))
        {
            let with_draw = keywords.get_or_insert_with(|| PyDict::new(py));
            with_draw.set_item(intern!(py, "draw"), draw)?;
        }
        Ok((array, keywords))
    }

    fn choose(
        &self,
        object: &Bound<'_, PyAny>,
        draw: Option<u64>,
        user: UserId,
        items: &ItemSet,
    ) -> PyResult<usize> {
        let name = intern!(object.py(), "recommend");
        let (array, keywords) = self.arguments(object, name, draw, items)?;
        let answer = object.call_method(name, (user, array), keywords.as_ref())?;
        let choice: i64 = answer.extract().map_err(|_| {
            PyTypeError::new_err(format!(
                "recommend of policy '{}' returned {answer} in round {}; the position of an item, \
                 a whole number, is expected",
                self.label, self.rounds,
            ))
        })?;
        match usize::try_from(choice) {
            Ok(index) if index < items.len() => Ok(index),
            _ => Err(PyValueError::new_err(format!(
                "recommend of policy '{}' returned {choice} in round {}; the position of an item, 0 to {}, \
                 is expected",
                self.label,
                self.rounds,
                items.len() - 1,
            ))),
        }
    }

    /// The positions of `k` different items.
    fn choose_list(
        &self,
        object: &Bound<'_, PyAny>,
        draw: Option<u64>,
        user: UserId,
        items: &ItemSet,
        k: usize,
    ) -> PyResult<Vec<usize>> {
        let name = intern!(object.py(), "recommend_list");
        let (array, keywords) = self.arguments(object, name, draw, items)?;
        let answer = object.call_method(name, (user, array, k), keywords.as_ref())?;
        let expected = |kind: fn(String) -> PyErr| {
            kind(format!(
                "recommend_list of policy '{}' returned {answer} in round {}; {k} different positions of items, 0 to \
                 {}, are expected",
                self.label,
                self.rounds,
                items.len() - 1,
            ))
        };
        let mut list = Vec::with_capacity(k);
        for position in answer
            .try_iter()
            .map_err(|_| expected(PyTypeError::new_err))?
        {
            let position: i64 = position?
                .extract()
                .map_err(|_| expected(PyTypeError::new_err))?;
            match usize::try_from(position) {
                Ok(index) if index < items.len() && !list.contains(&index) => list.push(index),
                _ => return Err(expected(PyValueError::new_err)),
            }
        }
        match list.len() == k {
            true => Ok(list),
            false => Err(expected(PyValueError::new_err)),
        }
    }

    fn decide(&self, draw: Option<u64>, user: UserId, items: &ItemSet) -> Result<Decision, Error> {
        let index = self.with(|object| self.choose(object, draw, user, items))?;
        Ok(Decision {
            index,
            score: NO_SCORE,
        })
    }

    /// A guest without `recommend_list` shows the first items.
    fn decide_list(
        &self,
        draw: Option<u64>,
        user: UserId,
        items: &ItemSet,
        k: usize,
        exclude: &dyn Fn(usize) -> bool,
        list: &mut Vec<Decision>,
    ) -> Result<(), Error> {
        if !self.has_lists || (0..items.len()).any(exclude) {
            return self.best(user, items, k, exclude, list);
        }
        let k = k.min(items.len());
        let chosen = self.with(|object| self.choose_list(object, draw, user, items, k))?;
        let decision = |index| Decision {
            index,
            score: NO_SCORE,
        };
        list.clear();
        list.extend(chosen.into_iter().map(decision));
        Ok(())
    }

    /// The keyword with ids, for a guest that takes it; None if items have no ids.
    fn keywords<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyString>,
        value: Option<impl IntoPyObject<'py>>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        if !self.uses_ids {
            return Ok(None);
        }
        let keywords = PyDict::new(py);
        keywords.set_item(name, value)?;
        Ok(Some(keywords))
    }

    /// The number of the cluster that `cluster_of` names for a user; 0 for None.
    fn number(&self, object: &Bound<'_, PyAny>, user: UserId) -> PyResult<ClusterId> {
        let py = object.py();
        let cluster = object.call_method1(intern!(py, "cluster_of"), (user,))?;
        if cluster.is_none() {
            return Ok(0);
        }
        let numbers = self.numbers.bind(py);
        if let Some(number) = numbers.get_item(&cluster)? {
            return number.extract();
        }
        let number = numbers.len() as ClusterId + 1;
        numbers.set_item(cluster, number)?;
        Ok(number)
    }
}

/// A matrix that Python may read and not write.
fn matrix<'py>(py: Python<'py>, rows: &[f64], dim: usize) -> PyResult<Bound<'py, PyAny>> {
    let view = ArrayView2::from_shape((rows.len() / dim, dim), rows)
        .map_err(|why| PyValueError::new_err(why.to_string()))?;
    let array = PyArray2::from_array(py, &view);
    array.readwrite().make_nonwriteable();
    Ok(array.into_any())
}

/// An array that Python may read and not write.
fn frozen<'py, T: numpy::Element>(py: Python<'py>, row: &[T]) -> Bound<'py, PyAny> {
    let array = PyArray1::from_array(py, &ArrayView1::from(row));
    array.readwrite().make_nonwriteable();
    array.into_any()
}

impl Policy for GuestPolicy {
    fn dim(&self) -> usize {
        self.place.dim
    }

    fn rounds(&self) -> u64 {
        self.rounds
    }

    fn recommend(&self, user: UserId, items: &ItemSet) -> Result<Decision, Error> {
        self.decide(None, user, items)
    }

    fn recommend_drawn(&self, draw: u64, user: UserId, items: &ItemSet) -> Result<Decision, Error> {
        self.decide(Some(draw), user, items)
    }

    fn recommend_list(
        &self,
        user: UserId,
        items: &ItemSet,
        k: usize,
        exclude: &dyn Fn(usize) -> bool,
        list: &mut Vec<Decision>,
    ) -> Result<(), Error> {
        self.decide_list(None, user, items, k, exclude, list)
    }

    fn recommend_list_drawn(
        &self,
        draw: u64,
        user: UserId,
        items: &ItemSet,
        k: usize,
        exclude: &dyn Fn(usize) -> bool,
        list: &mut Vec<Decision>,
    ) -> Result<(), Error> {
        self.decide_list(Some(draw), user, items, k, exclude, list)
    }

    fn explain(&self, _: UserId, items: &ItemSet, scores: &mut Vec<Score>) -> Result<(), Error> {
        scores.clear();
        scores.resize(items.len(), NO_SCORE);
        Ok(())
    }

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        _changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        self.with(|object| {
            let py = object.py();
            if self.learns_rounds {
                let users: Vec<UserId> = round.iter().map(|seen| seen.user).collect();
                let rows: Vec<f64> = round.iter().flat_map(|seen| seen.item).copied().collect();
                let rewards: Vec<f64> = round.iter().map(|seen| seen.reward).collect();
                let ids: Option<Vec<ItemId>> = round.iter().map(|seen| seen.id).collect();
                let ids = ids.map(|ids| frozen(py, &ids));
                let keywords = self.keywords(py, intern!(py, "ids"), ids)?;
                let items = matrix(py, &rows, self.place.dim)?;
                let seen = (users, items, frozen(py, &rewards));
                object.call_method(intern!(py, "learn_round"), seen, keywords.as_ref())?;
                return Ok(());
            }
            for seen in round {
                let keywords = self.keywords(py, intern!(py, "id"), seen.id)?;
                let seen = (seen.user, frozen(py, seen.item), seen.reward);
                object.call_method(intern!(py, "learn"), seen, keywords.as_ref())?;
            }
            Ok(())
        })?;
        self.rounds += 1;
        Ok(())
    }

    /// A guest without `learn_lists` learns each item that was looked at.
    fn learn_lists(&mut self, round: &[List<'_>], changes: &mut Vec<Change>) -> Result<(), Error> {
        if !self.learns_lists {
            let observations: Vec<Observation<'_>> =
                round.iter().flat_map(List::observations).collect();
            return self.learn_round(&observations, changes);
        }
        self.with(|object| {
            let py = object.py();
            let kind = py
                .import(intern!(py, "sclub._types"))?
                .getattr(intern!(py, "ShownList"))?;
            let lists = PyList::empty(py);
            for list in round {
                let rows: Vec<f64> = list
                    .items
                    .iter()
                    .flat_map(|shown| shown.item)
                    .copied()
                    .collect();
                let rewards: Vec<Option<f64>> =
                    list.items.iter().map(|shown| shown.reward).collect();
                let ids: Option<Vec<ItemId>> = list.items.iter().map(|shown| shown.id).collect();
                let items = matrix(py, &rows, self.place.dim)?;
                lists.append(kind.call1((list.user, items, rewards, list.looked_at, ids))?)?;
            }
            object.call_method1(intern!(py, "learn_lists"), (lists,))?;
            Ok(())
        })?;
        self.rounds += 1;
        Ok(())
    }

    /// `None` if the guest has no `cluster_of`, or returns None.
    fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
        if !self.has_clusters {
            return None;
        }
        let number = self.with(|object| self.number(object, user)).ok()?;
        (number != 0).then_some(number)
    }

    fn clusters(&self) -> usize {
        if !self.has_clusters {
            return 0;
        }
        let counted = self.with(|object| {
            // Policies of this package also count clusters of users who have not appeared.
            if let Ok(own) = object.cast::<crate::policy::Policy>() {
                let counted = |engine: &Engine| engine.policy().clusters();
                return own.get().read(object.py(), counted);
            }
            let users = 0..self.place.users;
            let numbers = users.map(|user| self.number(object, user));
            let mut numbers = numbers.collect::<PyResult<HashSet<ClusterId>>>()?;
            numbers.remove(&0);
            Ok(numbers.len())
        });
        counted.unwrap_or(0)
    }

    /// The state is in Python: only the number of rounds is known here.
    fn digest(&self) -> u64 {
        self.rounds
    }
}

/// The score of an item: guests have no method for it.
const NO_SCORE: Score = Score {
    score: 0.0,
    mean: 0.0,
    width: 0.0,
};

/// A policy around a Python object as the lab makes it. For tests of the arguments of its methods.
#[pyfunction(name = "_policy_of")]
pub fn policy_of(object: &Bound<'_, PyAny>, dim: usize) -> PyResult<crate::policy::Policy> {
    let place = Place {
        dim,
        users: 0,
        is_for_several: true,
        slots: 1,
    };
    let guest = GuestPolicy::new("guest".to_owned(), object, place, Arc::default())?;
    let names = crate::names::Names::new(object.py());
    let engine = Engine::new(Box::new(guest), None);
    Ok(crate::policy::Policy::with(engine, names))
}
