//! The classes of policies, made from the registry, and what an object is made from.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString, PyTuple, PyType};
use sclub::{
    Assumptions, Constant, ForgettableLinUcb, Groups, LinUcbInd, Params, Preset, Range, Setup,
    Spec, Users, Value, ValueError, Values,
};

use crate::engine::Engine;
use crate::errors::{real, refused, whole, wrong_type, wrong_value};
use crate::names::Names;
use crate::policy::Policy;

/// The attribute of a class that names its policy.
const POLICY_NAME: &str = "policy_name";

/// `linucb-ind` is called `LinucbInd`.
fn class_name(spec: &Spec) -> String {
    let words = spec.name.split('-').map(|word| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    });
    words.collect()
}

/// Adds a class for each policy of the registry, and a dictionary of all of them by policy name.
pub fn add_classes(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let base = py.get_type::<Policy>();
    let (by_name, metaclass) = (PyDict::new(py), py.get_type::<PyType>());
    for spec in sclub::registry() {
        let name = class_name(spec);
        let fields = PyDict::new(py);
        fields.set_item("__module__", "sclub")?;
        fields.set_item("__doc__", documentation(spec, &name))?;
        fields.set_item("__slots__", PyTuple::empty(py))?;
        fields.set_item("__signature__", signature(py, spec)?)?;
        fields.set_item(POLICY_NAME, spec.name)?;
        let class = metaclass.call1((&name, (&base,), fields))?;
        by_name.set_item(spec.name, &class)?;
        module.add(name.as_str(), class)?;
    }
    module.add("policy_classes", by_name)
}

/// The docstring of a class, as NumPy writes them.
fn documentation(spec: &Spec, class: &str) -> String {
    let presets: Vec<String> = spec.presets.iter().map(|p| format!("\"{p}\"")).collect();
    let mut text = format!(
        "{}: {}.\n\n{}.\n\n\
         Parameters\n----------\n\
         dim : int\n    Features of an item.\n\
         users : int or iterable, optional\n    \
         Who is there before the first round: a number n for the users 0 to n - 1, or the users\n    \
         themselves. Nobody by default: users appear.\n\
         preset : {{{}}}\n    The set of constants to start from.\n\
         seed : int\n    Fixes what the policy draws at random, if anything.\n\
         assumptions : dict, optional\n    \
         With preset \"theory\": noise, smallest_eigenvalue, horizon, clusters, users.\n",
        spec.title,
        spec.summary,
        spec.citation,
        presets.join(", ")
    );
    for constant in spec.constants {
        let kind = match constant.range {
            Range::Number { .. } => "float".to_owned(),
            Range::Flag => "bool".to_owned(),
            Range::OneOf(known) | Range::AnyOf(known) => {
                let known: Vec<String> = known.iter().map(|name| format!("\"{name}\"")).collect();
                format!("{{{}}}", known.join(", "))
            }
        };
        text += &format!(
            "{} : {kind}, optional\n    {}.\n",
            constant.name, constant.meaning
        );
    }
    text += &format!(
        "\nExamples\n--------\n\
         >>> import numpy as np, sclub\n\
         >>> policy = sclub.{class}(dim=2)\n\
         >>> policy.learn(\"anna\", np.array([0.6, 0.8]), 1.0)\n\
         >>> policy.rounds\n1\n"
    );
    text
}

/// `inspect.Signature` of a class.
fn signature<'py>(py: Python<'py>, spec: &Spec) -> PyResult<Bound<'py, PyAny>> {
    let inspect = py.import("inspect")?;
    let parameter = inspect.getattr("Parameter")?;
    let positional = parameter.getattr("POSITIONAL_OR_KEYWORD")?;
    let keyword = parameter.getattr("KEYWORD_ONLY")?;
    let mut all = vec![parameter.call1(("dim", positional))?];
    let mut add = |name: &str, default: Bound<'py, PyAny>| -> PyResult<()> {
        let fields = PyDict::new(py);
        fields.set_item("default", default)?;
        all.push(parameter.call((name, &keyword), Some(&fields))?);
        Ok(())
    };
    add("users", py.None().into_bound(py))?;
    add(
        "preset",
        PyString::new(py, spec.presets[0].as_str()).into_any(),
    )?;
    add("seed", 0u64.into_pyobject(py)?.into_any())?;
    add("assumptions", py.None().into_bound(py))?;
    for constant in spec.constants {
        add(constant.name, py.None().into_bound(py))?;
    }
    inspect.getattr("Signature")?.call1((all,))
}

/// The keywords of a constructor.
pub struct Keywords<'a, 'py> {
    pub users: Option<&'a Bound<'py, PyAny>>,
    pub preset: Option<&'a str>,
    pub seed: u64,
    pub assumptions: Option<&'a Bound<'py, PyDict>>,
    pub constants: Option<&'a Bound<'py, PyDict>>,
}

/// Makes an object of the policy that a class is named for.
pub fn make(
    class: &Bound<'_, PyType>,
    dim: &Bound<'_, PyAny>,
    keywords: &Keywords<'_, '_>,
) -> PyResult<Policy> {
    let py = class.py();
    let Some(name) = class.getattr_opt(POLICY_NAME)? else {
        let why = "it has no policy; use the class of a policy, such as sclub.Sclub";
        return Err(wrong_type("Policy", why));
    };
    let name: String = name.extract()?;
    let spec = sclub::find_policy(&name)
        .ok_or_else(|| wrong_value(POLICY_NAME, format!("there is no policy '{name}'")))?;
    let dim = whole("dim", dim)?;
    let (names, users) = match keywords.users {
        None => (Names::new(py), Users::Appear),
        Some(users) => {
            let names = Names::declared(users)?;
            let count = names.len() as u64;
            (names, Users::Declared(count))
        }
    };
    let setup = Setup {
        users,
        seed: keywords.seed,
        ..Setup::new(dim)
    };
    let values = values(spec, keywords, &setup)?;
    let policy = values
        .make(&setup)
        .map_err(|error| refused("users", &error))?;
    Ok(Policy::with(Engine(policy), names))
}

/// The constants that keywords ask for.
fn values(spec: &'static Spec, keywords: &Keywords<'_, '_>, setup: &Setup<'_>) -> PyResult<Values> {
    let preset = match keywords.preset {
        None => spec.presets[0],
        Some(text) => *spec
            .presets
            .iter()
            .find(|preset| preset.as_str() == text)
            .ok_or_else(|| {
                let known: Vec<&str> = spec.presets.iter().map(|preset| preset.as_str()).collect();
                let known = known.join(", ");
                wrong_value("preset", format!("there is no '{text}'; there are {known}"))
            })?,
    };
    let assumptions = match (preset, keywords.assumptions) {
        (Preset::Theory, Some(given)) => Some(assumptions(given, setup.dim)?),
        (Preset::Theory, None) => {
            let why =
                "preset 'theory' needs them: noise, smallest_eigenvalue, horizon, clusters, users";
            return Err(wrong_value("assumptions", why));
        }
        (_, Some(_)) => {
            return Err(wrong_value(
                "assumptions",
                "only preset 'theory' takes them",
            ));
        }
        (_, None) => None,
    };
    let mut given = Vec::new();
    for (name, value) in keywords.constants.into_iter().flatten() {
        let name: String = name.extract()?;
        let Some(constant) = spec.constant(&name) else {
            let known: Vec<&str> = spec.constants.iter().map(|c| c.name).collect();
            let why = format!("there is no such constant; there are {}", known.join(", "));
            return Err(wrong_type(&name, why));
        };
        if !value.is_none() {
            given.push((constant.name, value_of(constant, &value)?));
        }
    }
    let setup = Setup {
        assumptions: assumptions.as_ref(),
        ..*setup
    };
    spec.values(preset, &given, &setup).map_err(value_error)
}

/// An error about a constant, as Python's.
pub fn value_error(error: ValueError) -> PyErr {
    wrong_value(&error.name, &error.why)
}

/// The value of a constant that an object stands for.
pub fn value_of(constant: &Constant, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    match constant.range {
        Range::Number { .. } => {
            let number = real(constant.name, Some(value))?;
            Ok(number.map_or(Value::Unset, Value::Number))
        }
        Range::Flag => match value.cast::<PyBool>() {
            Ok(flag) => Ok(Value::Flag(flag.is_true())),
            Err(_) => Err(wrong_type(constant.name, "True or False is expected")),
        },
        Range::OneOf(_) | Range::AnyOf(_) => {
            let text: String = match value.cast::<PyString>() {
                Ok(text) => text.to_str()?.to_owned(),
                Err(_) => {
                    let names: PyResult<Vec<String>> = value.extract();
                    let names = names.map_err(|_| {
                        wrong_type(constant.name, "a name, or several, is expected")
                    })?;
                    names.join(",")
                }
            };
            constant.parse(&text).map_err(value_error)
        }
    }
}

/// The assumptions of Theorem 1.
fn assumptions(given: &Bound<'_, PyDict>, dim: usize) -> PyResult<Assumptions> {
    const NAMES: [&str; 5] = [
        "noise",
        "smallest_eigenvalue",
        "horizon",
        "clusters",
        "users",
    ];
    for key in given.keys() {
        let key: String = key
            .extract()
            .map_err(|_| wrong_type("assumptions", "its keys are names"))?;
        if !NAMES.contains(&&*key) {
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
///     As for LinucbInd.
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
        index: Option<&Bound<'_, PyAny>>,
        assumptions: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let dim = whole("dim", dim)?;
        let constants = PyDict::new(py);
        constants.set_item("beta", beta)?;
        constants.set_item("beta_scale", beta_scale)?;
        constants.set_item("index", index)?;
        let keywords = Keywords {
            users: None,
            preset: Some(preset),
            seed: 0,
            assumptions,
            constants: Some(&constants),
        };
        let values = values(&sclub::specs::LINUCB_IND, &keywords, &Setup::new(dim))?;
        let params = Params::from_values(&values);
        let mut names = Names::new(py);
        let groups = match groups {
            Some(_) if shared => {
                return Err(wrong_value(
                    "groups",
                    "they cannot be given with shared=True",
                ));
            }
            Some(groups) => Some(Groups::Known(known_groups(groups, &mut names)?)),
            None if shared => Some(Groups::One),
            None => None,
        };
        let made = match groups {
            Some(groups) => ForgettableLinUcb::new(dim, groups, &params)
                .map(|policy| Box::new(policy) as Box<dyn sclub::Policy>),
            None => LinUcbInd::new(dim, &params).map(|policy| Box::new(policy) as _),
        };
        let policy = made.map_err(|error| refused("groups", &error))?;
        Ok(PyClassInitializer::from(Policy::with(Engine(policy), names)).add_subclass(Self))
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
