//! The policies by class: what each is made from.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sclub::{
    Assumptions, Error, Exploration, Graph, Index, LinUcbInd, LinUcbShared, Params, SoftParams,
    Users,
};

use crate::engine::Engine;
use crate::errors::{real, refused, whole, wrong_type, wrong_value};
use crate::names::Names;
use crate::policy::Policy;

/// The constants of a preset, with others in place of some.
#[derive(Default)]
struct Constants<'a, 'py> {
    preset: &'a str,
    assumptions: Option<&'a Bound<'py, PyDict>>,
    alpha_theta: Option<&'a Bound<'py, PyAny>>,
    alpha_p: Option<&'a Bound<'py, PyAny>>,
    beta: Option<&'a Bound<'py, PyAny>>,
    beta_scale: Option<&'a Bound<'py, PyAny>>,
    index: Option<&'a str>,
}

impl Constants<'_, '_> {
    fn params(&self, dim: usize) -> PyResult<Params> {
        let mut params = match (self.preset, self.assumptions) {
            ("theory", Some(given)) => Params::theory(&assumptions(given, dim)?)
                .map_err(|error| refused("assumptions", &error))?,
            ("theory", None) => {
                let why = "preset 'theory' needs them: noise, smallest_eigenvalue, horizon, clusters, users";
                return Err(wrong_value("assumptions", why));
            }
            (_, Some(_)) => {
                return Err(wrong_value(
                    "assumptions",
                    "only preset 'theory' takes them",
                ));
            }
            ("tuned", None) => Params::tuned(),
            ("released", None) => Params::released(),
            (other, None) => {
                let why = format!("there is no '{other}'; there are tuned, released, theory");
                return Err(wrong_value("preset", why));
            }
        };
        let (beta, beta_scale) = (
            real("beta", self.beta)?,
            real("beta_scale", self.beta_scale)?,
        );
        if beta.is_some() && beta_scale.is_some() {
            return Err(wrong_value(
                "beta_scale",
                "it cannot be given together with beta",
            ));
        }
        let alpha_theta = real("alpha_theta", self.alpha_theta)?;
        params.alpha_theta = alpha_theta.unwrap_or(params.alpha_theta);
        let alpha_p = real("alpha_p", self.alpha_p)?;
        params.alpha_p = alpha_p.unwrap_or(params.alpha_p);
        if let Some(scale) = beta_scale {
            params.exploration = Exploration::Growing { scale };
        }
        if let Some(beta) = beta {
            params.exploration = Exploration::Fixed(beta);
        }
        match self.index {
            None => {}
            Some("norm") => params.index = Index::Norm,
            Some("squared") => params.index = Index::SquaredNorm,
            Some(other) => {
                return Err(wrong_value(
                    "index",
                    format!("there is no '{other}'; there are norm, squared"),
                ));
            }
        }
        params.check().map_err(|error| refused("preset", &error))?;
        Ok(params)
    }
}

/// What Theorem 1 supposes known.
fn assumptions(given: &Bound<'_, PyDict>, dim: usize) -> PyResult<Assumptions> {
    for key in given.keys() {
        let key: String = key
            .extract()
            .map_err(|_| wrong_type("assumptions", "its keys are names"))?;
        if ![
            "noise",
            "smallest_eigenvalue",
            "horizon",
            "clusters",
            "users",
        ]
        .contains(&&*key)
        {
            return Err(wrong_value(
                "assumptions",
                format!("there is none called '{key}'"),
            ));
        }
    }
    fn get<T: for<'a, 'py> FromPyObject<'a, 'py>>(
        given: &Bound<'_, PyDict>,
        name: &str,
    ) -> PyResult<T> {
        let value = given.get_item(name)?;
        let value =
            value.ok_or_else(|| wrong_value("assumptions", format!("'{name}' is missing")))?;
        value.extract::<T>().map_err(|_| {
            wrong_type(
                "assumptions",
                format!("'{name}' is no number that it can be"),
            )
        })
    }
    Ok(Assumptions {
        dim,
        noise: get(given, "noise")?,
        smallest_eigenvalue: get(given, "smallest_eigenvalue")?,
        horizon: get(given, "horizon")?,
        clusters: get(given, "clusters")?,
        users: get(given, "users")?,
    })
}

/// Those who are there before the first round.
fn declared(py: Python<'_>, users: Option<&Bound<'_, PyAny>>) -> PyResult<(Names, Users)> {
    match users {
        None => Ok((Names::new(py), Users::Appear)),
        Some(users) => {
            let names = Names::declared(users)?;
            let count = names.len() as u64;
            Ok((names, Users::Declared(count)))
        }
    }
}

/// An object of a class on top of what all policies share.
fn initial<C>(class: C, engine: Engine, names: Names) -> PyClassInitializer<C>
where
    C: pyo3::PyClass<BaseType = Policy>,
{
    PyClassInitializer::from(Policy::new(engine, names)).add_subclass(class)
}

fn made(error: Error) -> PyErr {
    refused("users", &error)
}

/// SCLUB: sets of users who seem alike, split and merged while it recommends.
///
/// Algorithm 1 of "Improved Algorithm on Online Clustering of Bandits" (IJCAI 2019).
///
/// Parameters
/// ----------
/// dim : int
///     Features of an item.
/// users : int or iterable, optional
///     Who is there before the first round, as in the paper: a number n for the users 0 to n - 1, or
///     the users themselves. Nobody by default: users appear.
/// preset : {"tuned", "released", "theory"}
///     Where the constants come from: chosen to do well, the authors' published code's, Theorem 1's.
/// alpha_theta, alpha_p : float, optional
///     How many radii two estimates, or two frequencies, may differ before they disagree.
/// beta : float, optional
///     How much uncertainty weighs, the same in every round.
/// beta_scale : float, optional
///     In place of beta: a share of the published code's, which grows with the observations.
/// index : {"norm", "squared"}, optional
///     How uncertainty enters the index of an item.
/// assumptions : dict, optional
///     With preset "theory": noise, smallest_eigenvalue, horizon, clusters, users.
///
/// Examples
/// --------
/// >>> import numpy as np, sclub
/// >>> policy = sclub.Sclub(dim=2, preset="tuned")
/// >>> items = np.array([[1.0, 0.0], [0.0, 1.0]])
/// >>> for _ in range(20):
/// ...     shown = policy.recommend("anna", items)
/// ...     policy.learn("anna", items[shown], float(shown == 1))
/// >>> policy.recommend("anna", items)
/// 1
/// >>> policy.cluster_of("anna"), policy.explain("anna").count
/// (1, 20)
#[pyclass(module = "sclub", extends = Policy, subclass, frozen)]
pub struct Sclub;

#[pymethods]
impl Sclub {
    #[new]
    #[pyo3(signature = (dim, *, users=None, preset="tuned", alpha_theta=None, alpha_p=None, beta=None, beta_scale=None, index=None, assumptions=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a constructor")]
    fn new(
        py: Python<'_>,
        dim: &Bound<'_, PyAny>,
        users: Option<&Bound<'_, PyAny>>,
        preset: &str,
        alpha_theta: Option<&Bound<'_, PyAny>>,
        alpha_p: Option<&Bound<'_, PyAny>>,
        beta: Option<&Bound<'_, PyAny>>,
        beta_scale: Option<&Bound<'_, PyAny>>,
        index: Option<&str>,
        assumptions: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let dim = whole("dim", dim)?;
        let constants = Constants {
            preset,
            assumptions,
            alpha_theta,
            alpha_p,
            beta,
            beta_scale,
            index,
        };
        let params = constants.params(dim)?;
        let (names, users) = declared(py, users)?;
        let policy = sclub::Sclub::new(dim, users, &params).map_err(made)?;
        Ok(initial(Self, Engine::Keep(Box::new(policy)), names))
    }
}

/// CLUB: connected components of a graph of users whose edges are cut (ICML 2014), the predecessor.
///
/// Parameters
/// ----------
/// dim, users, preset, alpha_theta, alpha_p, beta, beta_scale, index, assumptions
///     As for Sclub.
/// graph : {"random", "complete"}
///     The graph it starts from: each edge with probability 3 ln n / n, or all edges.
/// seed : int
///     Fixes the random graph.
///
/// Examples
/// --------
/// >>> import numpy as np, sclub
/// >>> policy = sclub.Club(dim=2, users=["anna", "bert"], graph="complete")
/// >>> policy.cluster_of("anna") == policy.cluster_of("bert")
/// True
#[pyclass(module = "sclub", extends = Policy, subclass, frozen)]
pub struct Club;

#[pymethods]
impl Club {
    #[new]
    #[pyo3(signature = (dim, *, users=None, preset="tuned", graph="random", seed=0, alpha_theta=None, alpha_p=None, beta=None, beta_scale=None, index=None, assumptions=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a constructor")]
    fn new(
        py: Python<'_>,
        dim: &Bound<'_, PyAny>,
        users: Option<&Bound<'_, PyAny>>,
        preset: &str,
        graph: &str,
        seed: u64,
        alpha_theta: Option<&Bound<'_, PyAny>>,
        alpha_p: Option<&Bound<'_, PyAny>>,
        beta: Option<&Bound<'_, PyAny>>,
        beta_scale: Option<&Bound<'_, PyAny>>,
        index: Option<&str>,
        assumptions: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let dim = whole("dim", dim)?;
        let constants = Constants {
            preset,
            assumptions,
            alpha_theta,
            alpha_p,
            beta,
            beta_scale,
            index,
        };
        let params = constants.params(dim)?;
        let graph = match graph {
            "random" => Graph::Random { seed },
            "complete" => Graph::Complete,
            other => {
                return Err(wrong_value(
                    "graph",
                    format!("there is no '{other}'; there are random, complete"),
                ));
            }
        };
        let (names, users) = declared(py, users)?;
        let policy = sclub::Club::new(dim, users, graph, &params).map_err(made)?;
        Ok(initial(Self, Engine::Club(Box::new(policy)), names))
    }
}

/// LinUCB: an estimate for each user alone, for all together, or for each of some groups.
///
/// Parameters
/// ----------
/// dim : int
///     Features of an item.
/// shared : bool
///     False: each user alone, the paper's LinUCB-Ind. True: everybody together, LinUCB-One.
/// groups : mapping of user to group, optional
///     An estimate for each group; users who are not in the mapping share one more.
/// preset, beta, beta_scale, index, assumptions
///     As for Sclub.
///
/// Examples
/// --------
/// >>> import sclub
/// >>> policy = sclub.LinUcb(dim=3, groups={"anna": "north", "bert": "north", "carl": "south"})
/// >>> policy.cluster_of("anna") == policy.cluster_of("bert") != policy.cluster_of("carl")
/// True
#[pyclass(module = "sclub", extends = Policy, subclass, frozen)]
pub struct LinUcb;

#[pymethods]
impl LinUcb {
    #[new]
    #[pyo3(signature = (dim, *, shared=false, groups=None, preset="tuned", beta=None, beta_scale=None, index=None, assumptions=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a constructor")]
    fn new(
        py: Python<'_>,
        dim: &Bound<'_, PyAny>,
        shared: bool,
        groups: Option<&Bound<'_, PyAny>>,
        preset: &str,
        beta: Option<&Bound<'_, PyAny>>,
        beta_scale: Option<&Bound<'_, PyAny>>,
        index: Option<&str>,
        assumptions: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let dim = whole("dim", dim)?;
        let constants = Constants {
            preset,
            assumptions,
            beta,
            beta_scale,
            index,
            ..Constants::default()
        };
        let params = constants.params(dim)?;
        let mut names = Names::new(py);
        let engine: Box<dyn sclub::Keep> = match groups {
            Some(_) if shared => {
                return Err(wrong_value(
                    "groups",
                    "they cannot be given with shared=True",
                ));
            }
            Some(groups) => {
                let group_of = known_groups(groups, &mut names)?;
                Box::new(LinUcbShared::known_keeping_users(dim, group_of, &params).map_err(made)?)
            }
            None if shared => {
                Box::new(LinUcbShared::one_keeping_users(dim, &params).map_err(made)?)
            }
            None => Box::new(LinUcbInd::new(dim, &params).map_err(made)?),
        };
        Ok(initial(Self, Engine::Keep(engine), names))
    }
}

/// The number of the group of each user who is named.
fn known_groups(groups: &Bound<'_, PyAny>, names: &mut Names) -> PyResult<Vec<u32>> {
    let py = groups.py();
    let items = groups
        .call_method0("items")
        .map_err(|_| wrong_type("groups", "a mapping of users to groups is expected"))?;
    let numbers = PyDict::new(py);
    let mut group_of = Vec::new();
    for item in items.try_iter()? {
        let (user, group): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item?.extract()?;
        names.reserve(&user, "groups")?;
        let found = numbers.get_item(&group);
        let number = match found.map_err(|error| wrong_type("groups", error.value(py)))? {
            Some(number) => number.extract()?,
            None => {
                let number = numbers.len() as u32;
                numbers.set_item(group, number)?;
                number
            }
        };
        group_of.push(number);
    }
    if group_of.is_empty() {
        return Err(wrong_value("groups", "there must be at least one user"));
    }
    Ok(group_of)
}

/// SCLUB-soft: users belong to clusters by probability, and clusters are used as far as they predict
/// better than none.
///
/// It learns from all users together, in fits: the first is made after 32 rounds, then whenever rounds have
/// doubled, from 500 rounds on whenever there are a fifth more. Before the first it only tries things out.
///
/// Parameters
/// ----------
/// dim : int
///     Features of an item.
/// clusters : bool
///     Whether clusters are looked for. Without them there is one Gaussian prior for all users.
/// half_life : float, optional
///     An observation counts half after so many later ones of the same user.
/// **constants : float
///     Other constants by name: between, within, alone, first, growth, patience, steps, seeds, members,
///     colds, cold_from, cold_to, temper, caution. They fit all worlds that were tried.
///
/// Examples
/// --------
/// >>> import numpy as np, sclub
/// >>> policy = sclub.SclubSoft(dim=2)
/// >>> policy.learn("anna", np.array([0.6, 0.8]), 1.0)
/// >>> policy.rounds
/// 1
#[pyclass(module = "sclub", extends = Policy, subclass, frozen)]
pub struct SclubSoft;

#[pymethods]
impl SclubSoft {
    #[new]
    #[pyo3(signature = (dim, *, clusters=true, half_life=None, **constants))]
    fn new(
        py: Python<'_>,
        dim: &Bound<'_, PyAny>,
        clusters: bool,
        half_life: Option<&Bound<'_, PyAny>>,
        constants: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let dim = whole("dim", dim)?;
        let mut params = SoftParams {
            clusters,
            half_life: real("half_life", half_life)?,
            ..SoftParams::default()
        };
        for (name, value) in constants.into_iter().flatten() {
            let name: String = name.extract()?;
            if let Some(value) = real(&name, Some(&value))? {
                set(&mut params, &name, value)?;
            }
        }
        params
            .check()
            .map_err(|error| refused("constants", &error))?;
        let policy = sclub::SclubSoft::new(dim, &params).map_err(made)?;
        Ok(initial(
            Self,
            Engine::Keep(Box::new(policy)),
            Names::new(py),
        ))
    }
}

/// Sets a constant by name.
fn set(params: &mut SoftParams, name: &str, value: f64) -> PyResult<()> {
    let whole = || {
        if value >= 0.0 && value.fract() == 0.0 && value <= 1e15 {
            Ok(value as u64)
        } else {
            Err(wrong_value(
                name,
                format!("it is {value}; it must be a whole number"),
            ))
        }
    };
    match name {
        "between" => params.between = value,
        "within" => params.within = value,
        "alone" => params.alone = value,
        "first" => params.first = whole()?,
        "growth" => params.growth = value,
        "patience" => params.patience = value,
        "steps" => params.steps = whole()? as usize,
        "seeds" => params.seeds = whole()? as usize,
        "members" => params.members = whole()? as usize,
        "colds" => params.colds = whole()? as usize,
        "cold_from" => params.cold_from = value,
        "cold_to" => params.cold_to = value,
        "temper" => params.temper = value,
        "caution" => params.caution = value,
        _ => return Err(wrong_type(name, "there is no such constant")),
    }
    Ok(())
}
