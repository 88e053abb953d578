//! The worlds of the lab.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use numpy::ndarray::Array2;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray2};
use pyo3::exceptions::{PyFileNotFoundError, PyIndexError, PyOSError, PyValueError};
use pyo3::prelude::*;
use sclub_lab::catalogue::{Link, Shop};
use sclub_lab::data::{Options, Read, ReadError, read};
use sclub_lab::setting::{Setting, SettingError};
use sclub_lab::summary::thousands;
use sclub_lab::synthetic::{Recipe, Twists};
use sclub_lab::world::{Block, Rewards, World};

/// An error with names as Python spells them.
pub fn refused(error: impl std::fmt::Display) -> PyErr {
    let mut message = error.to_string();
    for name in [
        "users-a-round",
        "reward-scale",
        "newcomers-every",
        "change-at",
        "half-life",
        "price-bands",
        "number-scale",
        "taste-scale",
        "link-scale",
        "zipf-exponent",
    ] {
        message = message.replace(name, &name.replace('-', "_"));
    }
    PyValueError::new_err(message)
}

/// The recipe of a synthetic world, as the Python part of the package passes it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct RecipeArgs {
    users: usize,
    clusters: usize,
    dim: usize,
    items: usize,
    frequencies: String,
    rewards: String,
    noise: Option<f64>,
    users_a_round: Option<f64>,
    sizes: String,
    spread: f64,
    reward_scale: f64,
    newcomers_every: Option<f64>,
    change_at: Option<u64>,
}

impl RecipeArgs {
    fn recipe(&self) -> PyResult<Recipe> {
        let rewards = match (&*self.rewards, self.noise) {
            ("bernoulli", None) => Rewards::Bernoulli,
            ("bernoulli", Some(_)) => {
                return Err(refused(
                    "noise needs rewards='gaussian'; rewards is 'bernoulli'",
                ));
            }
            ("gaussian", noise) => Rewards::Gaussian(noise.unwrap_or(0.5)),
            (other, _) => {
                return Err(refused(format!(
                    "unknown kind of rewards '{other}'; use one of bernoulli, gaussian"
                )));
            }
        };
        Ok(Recipe {
            users: self.users,
            clusters: self.clusters,
            dim: self.dim,
            candidates: self.items,
            frequencies: self.frequencies.parse().map_err(refused)?,
            rewards,
            users_a_round: self.users_a_round,
            twists: Twists {
                sizes: self.sizes.parse().map_err(refused)?,
                spread: self.spread,
                reward_scale: self.reward_scale,
                newcomers_every: self.newcomers_every,
                change_at: self.change_at,
                ..Twists::default()
            },
        })
    }
}

/// The recipe of a shop, as the Python part of the package passes it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct ShopArgs {
    items: usize,
    categories: usize,
    price_bands: usize,
    numbers: usize,
    number_scale: f64,
    users: usize,
    tastes: usize,
    taste_scale: f64,
    deviation: f64,
    link: String,
    link_scale: Option<f64>,
    bias: Option<f64>,
    visits: String,
    zipf_exponent: f64,
    delay: u64,
    slots: usize,
    newcomers_every: Option<f64>,
}

impl ShopArgs {
    fn shop(&self) -> PyResult<Shop> {
        let link = Link::default_of(self.link.parse().map_err(refused)?);
        Ok(Shop {
            items: self.items,
            categories: self.categories,
            price_bands: self.price_bands,
            numbers: self.numbers,
            number_scale: self.number_scale,
            users: self.users,
            tastes: self.tastes,
            taste_scale: self.taste_scale,
            deviation: self.deviation,
            link: Link {
                scale: self.link_scale.unwrap_or(link.scale),
                bias: self.bias.unwrap_or(link.bias),
                ..link
            },
            visits: self.visits.parse().map_err(refused)?,
            zipf_exponent: self.zipf_exponent,
            delay: self.delay,
            slots: self.slots,
            newcomers_every: self.newcomers_every,
        })
    }
}

/// A family of worlds, one for each seed.
#[pyclass(module = "sclub._sclub", frozen)]
pub struct LabSetting {
    pub setting: Setting,
}

impl LabSetting {
    fn checked(setting: Setting) -> PyResult<Self> {
        setting.check().map_err(refused)?;
        Ok(Self { setting })
    }
}

/// A setting, and warnings about its data.
type Warned = (LabSetting, Vec<String>);

#[pymethods]
impl LabSetting {
    /// Tastes in clusters, drawn with everything else.
    #[staticmethod]
    fn synthetic(recipe: RecipeArgs) -> PyResult<Self> {
        let recipe = recipe.recipe()?;
        Self::checked(Setting::Synthetic(recipe))
    }

    /// A shop whose items are all candidates in every round.
    #[staticmethod]
    fn catalogue(shop: ShopArgs) -> PyResult<Self> {
        Self::checked(Setting::Catalogue(shop.shop()?))
    }

    /// Given tastes, a row for each user.
    #[staticmethod]
    fn vectors(recipe: RecipeArgs, weights: PyReadonlyArray2<'_, f64>) -> PyResult<Self> {
        let weights = weights.as_array();
        let recipe = Recipe {
            users: weights.nrows(),
            dim: weights.ncols(),
            ..recipe.recipe()?
        };
        let rows = weights.rows().into_iter().map(|row| row.to_vec()).collect();
        Self::checked(Setting::Vectors(recipe, Arc::new(rows)))
    }

    /// Tastes made from a file of ratings.
    #[staticmethod]
    fn vectors_of_file(
        py: Python<'_>,
        recipe: RecipeArgs,
        path: PathBuf,
        skip_bad_lines: bool,
    ) -> PyResult<Warned> {
        let recipe = recipe.recipe()?;
        py.detach(|| {
            let (read, mut warnings) = read_file(&path, skip_bad_lines)?;
            let (setting, shortages) =
                Setting::vectors(recipe, &read.interactions).map_err(refused)?;
            warnings.extend(shortages.iter().map(ToString::to_string));
            Ok((Self::checked(setting)?, warnings))
        })
    }

    /// The items that real users took.
    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "keywords of a constructor")]
    fn ratings(
        py: Python<'_>,
        path: PathBuf,
        dim: usize,
        items: usize,
        others: &str,
        feature_scale: f64,
        placebo: bool,
        leaky: bool,
        skip_bad_lines: bool,
    ) -> PyResult<Warned> {
        let others = others.parse().map_err(refused)?;
        py.detach(|| {
            let (read, warnings) = read_file(&path, skip_bad_lines)?;
            let shape = (dim, items);
            let setting =
                Setting::ratings(read.interactions, shape, others, feature_scale, placebo);
            let setting = if leaky { setting.leaky() } else { setting };
            Ok((Self::checked(setting)?, warnings))
        })
    }

    /// The world of a seed.
    fn world(&self, py: Python<'_>, seed: u64) -> PyResult<LabWorld> {
        let world = py.detach(|| self.setting.world(seed)).map_err(in_full)?;
        let block = world.new_block();
        Ok(LabWorld {
            world,
            drawn: Mutex::new((None, block)),
        })
    }
}

/// An error with its causes.
pub fn in_full(error: SettingError) -> PyErr {
    let mut message = error.to_string();
    let mut behind = std::error::Error::source(&error);
    while let Some(error) = behind {
        message.push_str(&format!(": {error}"));
        behind = error.source();
    }
    refused(message)
}

fn read_file(path: &std::path::Path, skip_bad_lines: bool) -> PyResult<(Read, Vec<String>)> {
    let options = Options {
        format: None,
        skip_bad_lines,
    };
    let read = read(path, &options, &|_, _| ()).map_err(|error| match &error {
        ReadError::Io { source, .. } => {
            let message = format!("{error}: {source}");
            if source.kind() == std::io::ErrorKind::NotFound {
                PyFileNotFoundError::new_err(message)
            } else {
                PyOSError::new_err(message)
            }
        }
        _ => PyValueError::new_err(error.to_string()),
    })?;
    let mut warnings = Vec::new();
    if let Some((line, reason)) = &read.first_bad {
        let many = thousands(read.bad_lines as f64);
        let file = path.display();
        warnings.push(format!(
            "bad lines skipped: {many}, the first {file}:{line}: {reason}"
        ));
    }
    if read.odd_first_line {
        let all = &read.interactions;
        warnings.push(format!(
            "the first line of {} ({}, {}) was read as data, though all others are numbers; if it is a \
             header, call its columns user and item",
            path.display(),
            all.user_name(0),
            all.item_name(0),
        ));
    }
    Ok((read, warnings))
}

/// Pairs of a user and an item by number, the names of users and of items, and warnings.
type Taken<'py> = (
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u32>>,
    Vec<String>,
    Vec<String>,
    Vec<String>,
);

/// Reads a file of ratings: pairs, names, and warnings.
#[pyfunction]
pub fn lab_read(py: Python<'_>, path: PathBuf, skip_bad_lines: bool) -> PyResult<Taken<'_>> {
    let (read, warnings) = py.detach(|| read_file(&path, skip_bad_lines))?;
    let all = &read.interactions;
    let (mut users, mut items) = (Vec::new(), Vec::new());
    for user in 0..all.users() {
        for &item in all.of_user(user) {
            users.push(user as u32);
            items.push(item);
        }
    }
    let user_names = (0..all.users()).map(|user| all.user_name(user).to_string());
    let item_names = (0..all.items()).map(|item| all.item_name(item).to_string());
    Ok((
        PyArray1::from_vec(py, users),
        PyArray1::from_vec(py, items),
        user_names.collect(),
        item_names.collect(),
        warnings,
    ))
}

/// A user, the items offered, and the mean reward of each.
type Drawn<'py> = (u64, Bound<'py, PyArray2<f64>>, Bound<'py, PyArray1<f64>>);

/// A world of the lab, to look at. It has the methods of a world written in Python.
#[pyclass(module = "sclub._sclub", frozen)]
pub struct LabWorld {
    world: Arc<dyn World>,
    /// The block that was drawn last.
    drawn: Mutex<(Option<u64>, Block)>,
}

#[pymethods]
impl LabWorld {
    /// Drawing does not change a world, so that a copy is the same world.
    fn __deepcopy__(&self, _memo: &Bound<'_, PyAny>) -> Self {
        Self {
            world: Arc::clone(&self.world),
            drawn: Mutex::new((None, self.world.new_block())),
        }
    }

    fn __repr__(&self) -> String {
        format!(
            "<LabWorld dim={} users={}>",
            self.world.dim(),
            self.world.users()
        )
    }

    /// The number of features of an item.
    #[getter]
    fn dim(&self) -> usize {
        self.world.dim()
    }

    /// The number of users.
    #[getter]
    fn users(&self) -> u64 {
        self.world.users()
    }

    /// The number of rounds; None if they do not end.
    #[getter]
    fn length(&self) -> Option<u64> {
        self.world.length()
    }

    /// The true cluster of each user at the start; None if the world has no clusters.
    #[getter]
    fn clusters<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<u32>>> {
        let truth = self.world.truth()?;
        Some(PyArray1::from_slice(py, &truth.cluster_of))
    }

    /// The standard deviation of the noise; None for Bernoulli rewards.
    #[getter]
    fn noise(&self) -> Option<f64> {
        match self.block().1.rewards {
            Rewards::Bernoulli => None,
            Rewards::Gaussian(scale) => Some(scale),
        }
    }

    /// A round, counted from 0: the user, the items as rows, and the mean reward of each.
    fn draw<'py>(&self, py: Python<'py>, round: u64) -> PyResult<Drawn<'py>> {
        let (user, rows, means) = self.with_round(round, |block, at| {
            let (items, count) = (block.items_of(at), block.candidates);
            let rows: Vec<f64> = (0..items.len()).flat_map(|item| items.item(item)).collect();
            let rows = Array2::from_shape_vec((items.len(), items.dim()), rows)
                .map_err(|why| PyValueError::new_err(why.to_string()));
            let means: Vec<f64> = (0..count).map(|item| block.mean(at, item)).collect();
            (block.users[at], rows, means)
        })?;
        Ok((user, rows?.into_pyarray(py), means.into_pyarray(py)))
    }

    /// The ids of the items of a round; None in worlds whose items are new in every round.
    fn ids<'py>(&self, py: Python<'py>, round: u64) -> PyResult<Option<Bound<'py, PyArray1<u64>>>> {
        let ids = self.with_round(round, |block, at| block.items_of(at).ids().to_vec())?;
        Ok((!ids.is_empty()).then(|| ids.into_pyarray(py)))
    }
}

impl LabWorld {
    fn block(&self) -> std::sync::MutexGuard<'_, (Option<u64>, Block)> {
        self.drawn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a round, given as a block and a position in it. Must not call Python: another thread may
    /// wait for the lock.
    fn with_round<T>(&self, round: u64, read: impl FnOnce(&Block, usize) -> T) -> PyResult<T> {
        if self.world.length().is_some_and(|length| round >= length) {
            let length = self.world.length().unwrap_or(0);
            return Err(PyIndexError::new_err(format!(
                "there is no round {round}; this world has {length}, counted from 0"
            )));
        }
        let rounds = self.world.block_rounds() as u64;
        let (index, at) = (round / rounds, (round % rounds) as usize);
        let mut drawn = self.block();
        if drawn.0 != Some(index) {
            let left = self
                .world
                .length()
                .map_or(u64::MAX, |length| length - index * rounds);
            self.world
                .draw(index, left.min(rounds) as usize, &mut drawn.1);
            drawn.0 = Some(index);
        }
        let block = &drawn.1;
        if !block.ends.is_empty() {
            return Err(PyValueError::new_err(
                "several users may appear in a round of this world; only worlds of one can be drawn",
            ));
        }
        Ok(read(block, at))
    }
}
