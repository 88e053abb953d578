//! Constructors of policies: keywords to constants, and the class `LinUcb`.
//!
//! The other classes are written by `build.rs` from the registry.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString, PyType};
use sclub::{
    Assumptions, Constant, ForgettableLinUcb, Groups, LinUcbInd, Params, Preset, Range, Setup,
    Spec, Users, Value as ConstantValue, ValueError, Values,
};
use sclub_lab::document::constants_json;
use serde_json::{Map, Value};

use crate::engine::{Constants, Engine};
use crate::errors::{real, refused, whole, wrong_type, wrong_value};
use crate::names::Names;
use crate::policy::Policy;

/// The attribute of a class that names its policy.
const POLICY_NAME: &str = "policy_name";

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
        let why = "it is the base class and cannot be made; use a class of sclub.policy_classes";
        return Err(wrong_type("Policy", why));
    };
    let name: String = name.extract()?;
    let spec = sclub::find_policy(&name)
        .ok_or_else(|| wrong_value(POLICY_NAME, format!("unknown policy '{name}'")))?;
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
    let engine = Engine::new(policy, Some(constants(&values, &setup)));
    Ok(Policy::with(engine, names))
}

/// The constants in force with their preset, and which of them the preset and its default do not have.
fn constants(values: &Values, setup: &Setup<'_>) -> Constants {
    let (spec, preset) = (values.spec(), values.preset());
    let mut all = match constants_json(values) {
        Value::Object(all) => all,
        _ => Map::new(),
    };
    all.insert("preset".into(), preset.as_str().into());
    let mut changed = Vec::new();
    if preset != spec.presets[0] {
        changed.push("preset".to_owned());
    }
    // Those of preset theory follow from its assumptions.
    if let Ok(usual) = spec.values(preset, &[], setup) {
        let names = spec.constants.iter().map(|constant| constant.name);
        let given = names.filter(|name| usual.get(name) != values.get(name));
        changed.extend(given.map(str::to_owned));
    }
    Constants { all, changed }
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
                wrong_value(
                    "preset",
                    format!("unknown preset '{text}'; use one of {known}"),
                )
            })?,
    };
    let assumptions = match (preset, keywords.assumptions) {
        (Preset::Theory, Some(given)) => Some(assumptions(given, setup.dim)?),
        (Preset::Theory, None) => {
            let why = "preset 'theory' requires them: noise, smallest_eigenvalue, horizon, clusters, users";
            return Err(wrong_value("assumptions", why));
        }
        (_, Some(_)) => {
            return Err(wrong_value(
                "assumptions",
                format!("preset '{preset}' takes none; only 'theory' does"),
            ));
        }
        (_, None) => None,
    };
    let mut given = Vec::new();
    for (name, value) in keywords.constants.into_iter().flatten() {
        let name: String = name.extract()?;
        let Some(constant) = spec.constant(&name) else {
            let known: Vec<&str> = spec.constants.iter().map(|c| c.name).collect();
            let why = format!("unknown constant; use one of {}", known.join(", "));
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

/// A Python object as the value of a constant.
pub fn value_of(constant: &Constant, value: &Bound<'_, PyAny>) -> PyResult<ConstantValue> {
    match constant.range {
        Range::Number { .. } => {
            let number = real(constant.name, Some(value))?;
            Ok(number.map_or(ConstantValue::Unset, ConstantValue::Number))
        }
        Range::Flag => match value.cast::<PyBool>() {
            Ok(flag) => Ok(ConstantValue::Flag(flag.is_true())),
            Err(_) => Err(wrong_type(
                constant.name,
                format!("True or False is expected, not {}", value.repr()?),
            )),
        },
        Range::OneOf(_) | Range::AnyOf(_) => {
            let text: String = match value.cast::<PyString>() {
                Ok(text) => text.to_str()?.to_owned(),
                Err(_) => {
                    let names: PyResult<Vec<String>> = value.extract();
                    let names = names.map_err(|_| {
                        wrong_type(constant.name, "a string or a list of strings is expected")
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
            .map_err(|_| wrong_type("assumptions", "its keys must be strings"))?;
        if !NAMES.contains(&&*key) {
            return Err(wrong_value(
                "assumptions",
                format!(
                    "unknown assumption '{key}'; use one of {}",
                    NAMES.join(", ")
                ),
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
                format!("'{name}' is {value}; a positive number is expected"),
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

/// LinUCB: an estimate for each user, for all together, or for each of some groups.
///
/// Parameters
/// ----------
/// dim : int
///     The number of features of an item.
/// shared : bool
///     False: an estimate for each user, the paper's LinUCB-Ind. True: one for all, LinUCB-One.
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
        let setup = Setup::new(dim);
        let values = values(&sclub::specs::LINUCB_IND, &keywords, &setup)?;
        let mut known = self::constants(&values, &setup);
        known.all.insert("shared".into(), shared.into());
        if shared {
            known.changed.push("shared".into());
        }
        let params = Params::from_values(&values);
        let mut names = Names::new(py);
        let groups = match groups {
            Some(_) if shared => {
                return Err(wrong_value(
                    "groups",
                    "they cannot be given with shared=True; leave one of the two out",
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
        let engine = Engine::new(policy, Some(known));
        Ok(PyClassInitializer::from(Policy::with(engine, names)).add_subclass(Self))
    }
}

/// The group of each user, by number.
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
        return Err(wrong_value(
            "groups",
            "it is empty; there must be at least one user",
        ));
    }
    Ok(group_of)
}
