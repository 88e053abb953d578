//! States of a policy as the dataclasses of `sclub._types`.

use std::collections::HashMap;

use numpy::IntoPyArray;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use sclub::{Change, ClusterId, Comparison, Outlook, Placement, Score, UserId, Why};

use crate::engine::Engine;
use crate::policy::Policy;

fn make<'py>(
    py: Python<'py>,
    name: &str,
    fields: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import(pyo3::intern!(py, "sclub._types"))?
        .getattr(name)?
        .call((), Some(fields))
}

macro_rules! fields {
    ($py:expr, $($name:literal: $value:expr),* $(,)?) => {{
        let fields = PyDict::new($py);
        $(fields.set_item(pyo3::intern!($py, $name), $value)?;)*
        fields
    }};
}

/// Scores, means and widths, an array each.
pub fn scores<'py>(py: Python<'py>, scores: &[Score]) -> PyResult<Bound<'py, PyAny>> {
    let column = |get: fn(&Score) -> f64| {
        scores
            .iter()
            .map(get)
            .collect::<Vec<f64>>()
            .into_pyarray(py)
    };
    let fields = fields!(py,
        "score": column(|s| s.score),
        "mean": column(|s| s.mean),
        "width": column(|s| s.width),
    );
    make(py, "Scores", &fields)
}

fn comparison<'py>(py: Python<'py>, of: Comparison) -> PyResult<Bound<'py, PyAny>> {
    let fields = fields!(py, "distance": of.distance, "threshold": of.threshold);
    make(py, "Comparison", &fields)
}

/// Changes of the clusters.
pub fn changes<'py>(py: Python<'py>, changes: &[Change]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for change in changes {
        let why = match change {
            Change::Split { why, .. } | Change::Merge { why, .. } => *why,
        };
        let (estimates, frequencies) = match why {
            Why::Estimates(estimates) => (Some(estimates), None),
            Why::Frequencies(frequencies) => (None, Some(frequencies)),
            Why::Both {
                estimates,
                frequencies,
            } => (Some(estimates), Some(frequencies)),
            Why::Connected => (None, None),
        };
        let fields = fields!(py,
            "estimates": estimates.map(|c| comparison(py, c)).transpose()?,
            "frequencies": frequencies.map(|c| comparison(py, c)).transpose()?,
        );
        let name = match *change {
            Change::Split {
                from, into, users, ..
            } => {
                fields.set_item("source", from)?;
                fields.set_item("into", into)?;
                fields.set_item("users", users)?;
                "Split"
            }
            Change::Merge { kept, gone, .. } => {
                fields.set_item("kept", kept)?;
                fields.set_item("gone", gone)?;
                "Merge"
            }
        };
        list.append(make(py, name, &fields)?)?;
    }
    Ok(list)
}

/// A cluster and its users.
#[derive(Default)]
struct Found {
    members: Vec<UserId>,
    count: u64,
    estimate: Vec<f64>,
}

/// Every cluster, the largest first.
pub fn clusters<'py>(policy: &Policy, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
    let (all, (numbers, ..)) = policy.names(py)?.kept(py)?;
    let users: HashMap<UserId, Bound<'_, PyAny>> =
        numbers.iter().copied().zip(all.iter()).collect();
    let found = policy.read(py, |engine| found(engine, &numbers))?;
    let list = PyList::empty(py);
    for (label, found) in found {
        let members = found.members.iter().filter_map(|number| users.get(number));
        let fields = fields!(py,
            "label": label,
            "users": PyList::new(py, members)?,
            "count": found.count,
            "estimate": found.estimate.into_pyarray(py),
        );
        list.append(make(py, "Cluster", &fields)?)?;
    }
    Ok(list)
}

fn found(engine: &Engine, users: &[UserId]) -> Vec<(ClusterId, Found)> {
    let policy = engine.policy();
    let mut clusters: HashMap<ClusterId, Found> = HashMap::new();
    for &user in users {
        let Some(label) = policy.cluster_of(user) else {
            continue;
        };
        let cluster = clusters.entry(label).or_insert_with(|| Found {
            estimate: policy.estimate(user).unwrap_or_default(),
            ..Found::default()
        });
        cluster.members.push(user);
        cluster.count += engine.count(user).unwrap_or(0);
    }
    // The policy itself also counts users that are not in `users`.
    if let Some(policy) = policy.as_inspect() {
        policy.each_cluster(&mut |view| {
            let cluster = clusters.entry(view.label).or_default();
            cluster.count = view.count;
            cluster.estimate = view.estimate.to_vec();
        });
    }
    let mut clusters: Vec<(ClusterId, Found)> = clusters.into_iter().collect();
    clusters
        .sort_unstable_by_key(|(label, found)| (std::cmp::Reverse(found.members.len()), *label));
    clusters
}

/// The state of a user.
pub fn explanation<'py>(
    policy: &Policy,
    user: &Bound<'py, PyAny>,
    number: UserId,
    scores: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = user.py();
    let (label, estimate, own, count, placement) = policy.read(py, |engine| {
        let policy = engine.policy();
        let placement = policy.as_inspect().and_then(|p| p.placement(number));
        (
            policy.cluster_of(number).unwrap_or(0),
            policy.estimate(number).unwrap_or_default(),
            engine.own_estimate(number),
            engine.count(number),
            placement,
        )
    })?;
    let fields = fields!(py,
        "user": user,
        "count": count.unwrap_or(0),
        "cluster": label,
        "estimate": estimate.into_pyarray(py),
        "own_estimate": own.map(|own| own.into_pyarray(py)),
        "placement": placement.map(|p| self::placement(py, &p)).transpose()?,
        "scores": scores,
    );
    make(py, "Explanation", &fields)
}

fn placement<'py>(py: Python<'py>, placement: &Placement) -> PyResult<Bound<'py, PyAny>> {
    let places = PyList::empty(py);
    for place in &placement.places {
        let fields = fields!(py,
            "cluster": place.label,
            "share": place.share,
            "evidence": place.evidence,
            "probability": place.probability,
        );
        places.append(make(py, "Place", &fields)?)?;
    }
    let fields = fields!(py, "places": places, "none": placement.none, "used": placement.used);
    make(py, "Placement", &fields)
}

/// The quality of the clustering.
pub fn outlook(py: Python<'_>, outlook: Outlook) -> PyResult<Bound<'_, PyAny>> {
    let fields = fields!(py,
        "fits": outlook.fits,
        "fitted_at": outlook.fitted_at,
        "clusters": outlook.clusters,
        "history": outlook.history,
        "unplaced": outlook.unplaced,
        "effective_parameters": outlook.effective_parameters,
        "noise": outlook.noise,
        "gain": outlook.gain,
        "used": outlook.used,
        "warning": outlook.warning,
    );
    make(py, "Outlook", &fields)
}
