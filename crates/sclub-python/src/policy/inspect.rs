//! Inspecting: sizes, users, clusters, estimates.

use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyNotImplementedError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::{Policy, from_json};
use crate::look;

#[pymethods]
impl Policy {
    /// The number of features of an item.
    #[getter]
    pub fn dim(&self, py: Python<'_>) -> PyResult<usize> {
        self.read(py, |engine| engine.policy().dim())
    }

    /// The constants in force by name, and the preset that they began from. A constant that is off is None.
    ///
    /// They are arguments of the policy's class: ``type(policy)(policy.dim, **policy.constants)`` is a new policy with the
    /// same (with preset "theory" it needs its assumptions too). It is None instead of a dict for a policy that an earlier version of this package saved.
    ///
    /// Examples
    /// --------
    /// >>> import sclub
    /// >>> policy = sclub.LinUcb(dim=3, beta=0.5)
    /// >>> policy.constants
    /// {'beta': 0.5, 'beta_scale': None, 'index': 'norm', 'preset': 'tuned', 'shared': False}
    /// >>> policy
    /// <LinUcb dim=3 rounds=0 users=0 clusters=0 beta=0.5>
    #[getter]
    fn constants<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let text = self.read(py, |engine| {
            let all = &engine.constants()?.all;
            serde_json::to_string(all).ok()
        })?;
        text.map(|text| from_json(py, &text)).transpose()
    }

    /// The number of rounds learned.
    #[getter]
    fn rounds(&self, py: Python<'_>) -> PyResult<u64> {
        self.read(py, |engine| engine.policy().rounds())
    }

    /// The number of clusters; 0 if the policy has none.
    #[getter]
    fn n_clusters(&self, py: Python<'_>) -> PyResult<usize> {
        self.read(py, |engine| engine.policy().clusters())
    }

    /// The users that were declared or learned from, in the order in which they came.
    #[getter]
    fn users<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        Ok(self.names(py)?.kept(py)?.0)
    }

    /// The id of the cluster that a recommendation to a user would be made from; 0 if the policy has no
    /// clusters, or none for the user.
    fn cluster_of(&self, py: Python<'_>, user: &Bound<'_, PyAny>) -> PyResult<u64> {
        let number = self.number(user)?;
        self.read(py, |engine| engine.policy().cluster_of(number).unwrap_or(0))
    }

    /// All clusters with their users, observations and estimates, the largest first.
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
    /// Raises
    /// ------
    /// NotImplementedError
    ///     If the policy has no weight vectors.
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
        let unsupported = || PyNotImplementedError::new_err("this policy has no estimates");
        Ok(estimate.ok_or_else(unsupported)?.into_pyarray(py))
    }

    /// The state of a user: observations, cluster, estimates, and with `items` their scores.
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
        user: &Bound<'py, PyAny>,
        items: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let number = self.number(user)?;
        let scores = match items {
            Some(items) => Some(self.scores(user, items, None, None)?),
            None => None,
        };
        look::explanation(self, user, number, scores)
    }

    /// The quality of the clustering as a whole; None if a policy makes no fits.
    fn outlook<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let outlook = self.read(py, |engine| engine.policy().as_inspect()?.outlook())?;
        outlook
            .map(|outlook| look::outlook(py, outlook))
            .transpose()
    }
}
