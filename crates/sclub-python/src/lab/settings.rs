//! The worlds of the lab.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use numpy::ndarray::Array2;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::{PyFileNotFoundError, PyIndexError, PyOSError, PyValueError};
use pyo3::prelude::*;
use sclub_lab::catalogue::{Link, Shop};
use sclub_lab::data::matrix::Matrix;
use sclub_lab::data::{
    ColumnNames, Options, RatingUse, Read, ReadError, Table, Vectors, read, read_table,
    read_vectors,
};
use sclub_lab::held_out::{Content, ContentMode};
use sclub_lab::policies::Name;
use sclub_lab::setting::{Setting, SettingError};
use sclub_lab::summary::thousands;
use sclub_lab::synthetic::{CASCADE_SCALE, Recipe, Twists};
use sclub_lab::world::{Block, Rewards, World};

use crate::errors::many;

/// An error with names as Python spells them.
pub fn refused(error: impl std::fmt::Display) -> PyErr {
    let mut message = error.to_string();
    for name in [
        "users-a-round",
        "reward-scale",
        "newcomers-every",
        "change-at",
        "corrupted-rounds",
        "items-fixed",
        "item-clusters",
        "half-life",
        "price-bands",
        "number-scale",
        "taste-scale",
        "link-scale",
        "zipf-exponent",
        "cold-items",
    ] {
        message = message.replace(name, &name.replace('-', "_"));
    }
    PyValueError::new_err(message)
}

/// A policy by name. The error for an unknown name lists the policies that are accepted.
pub fn policy_named(text: &str, is_accepted: impl Fn(Name) -> bool) -> PyResult<Name> {
    text.parse().map_err(|_: String| {
        let known = Name::all().into_iter().filter(|&name| is_accepted(name));
        let known: Vec<&str> = known.map(Name::as_str).collect();
        let known = known.join(", ");
        refused(format!("unknown policy '{text}'; use one of {known}"))
    })
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
    reward_scale: Option<f64>,
    newcomers_every: Option<f64>,
    change_at: Option<u64>,
    misspecified: f64,
    corrupted: f64,
    corrupted_rounds: u64,
    items_fixed: Option<usize>,
    item_clusters: Option<usize>,
    cascade: Option<usize>,
    overlap: f64,
    smoothed: Option<f64>,
    servers: Option<usize>,
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
                reward_scale: self.reward_scale.unwrap_or(match self.cascade {
                    Some(_) => CASCADE_SCALE,
                    None => 1.0,
                }),
                newcomers_every: self.newcomers_every,
                change_at: self.change_at,
                misspecified: self.misspecified,
                corrupted: self.corrupted,
                corrupted_rounds: self.corrupted_rounds,
                items_fixed: self.items_fixed,
                item_clusters: self.item_clusters,
                cascade: self.cascade,
                overlap: self.overlap,
                smoothed: self.smoothed,
                servers: self.servers,
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

    /// Tastes made from ratings.
    #[staticmethod]
    fn vectors_of_data(
        py: Python<'_>,
        recipe: RecipeArgs,
        data: DataArgs<'_>,
        watch: Py<PyAny>,
    ) -> PyResult<Warned> {
        let recipe = recipe.recipe()?;
        let (read, mut warnings) = data.read(py, &watch)?;
        py.detach(|| {
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
        data: DataArgs<'_>,
        watch: Py<PyAny>,
        dim: usize,
        items: usize,
        others: &str,
        feature_scale: f64,
        placebo: bool,
        leaky: bool,
        item_features: Option<ContentArgs<'_>>,
        with_interactions: bool,
        cold_items: f64,
    ) -> PyResult<Warned> {
        let others = others.parse().map_err(refused)?;
        let (read, mut warnings) = data.read(py, &watch)?;
        let vectors = match item_features {
            Some(given) => Some(given.vectors()?),
            None => None,
        };
        py.detach(|| {
            let shape = (dim, items);
            let all = read.interactions;
            let mode = match with_interactions {
                true => ContentMode::Both,
                false => ContentMode::Alone,
            };
            let content = vectors.map(|vectors| Content::new(&vectors, &all, mode));
            let mut setting = Setting::ratings(all, shape, others, feature_scale, placebo)
                .with_cold_items(cold_items);
            if let Some(content) = content {
                if content.missing > 0 {
                    let missing = thousands(content.missing as f64);
                    warnings.push(format!(
                        "items of the ratings without item_features: {missing}; they have no features but the constant"
                    ));
                }
                setting = setting.with_content(content);
            }
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

/// Ratings, as the Python part of the package passes them: a file, or a table in memory.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct DataArgs<'py> {
    /// The file; `None` for a table.
    path: Option<PathBuf>,
    table: Option<TableArgs<'py>>,
    skip_bad_lines: bool,
    user_column: Option<String>,
    item_column: Option<String>,
    rating_column: Option<String>,
    like_from: Option<f64>,
    rating_values: bool,
}

/// Vectors of items: a file, or ids and an array.
#[derive(FromPyObject)]
pub enum ContentArgs<'py> {
    File(PathBuf),
    Table(Vec<String>, PyReadonlyArray2<'py, f64>),
}

impl ContentArgs<'_> {
    fn vectors(&self) -> PyResult<Vectors> {
        match self {
            ContentArgs::File(path) => read_vectors(path, &|_, _| ()).map_err(refused),
            ContentArgs::Table(ids, rows) => {
                let rows = rows.as_array();
                let mut vectors = Matrix::zeros(rows.nrows(), rows.ncols());
                if ids.len() != rows.nrows() || rows.ncols() == 0 {
                    return Err(PyValueError::new_err(format!(
                        "item_features has {} and an array of shape ({}, {})",
                        many(ids.len(), "id"),
                        rows.nrows(),
                        rows.ncols()
                    )));
                }
                for (at, row) in rows.rows().into_iter().enumerate() {
                    for (to, from) in vectors.row_mut(at).iter_mut().zip(row) {
                        *to = *from;
                    }
                }
                Ok(Vectors {
                    ids: ids.clone(),
                    vectors,
                    others: Vec::new(),
                })
            }
        }
    }
}

/// The different users and items, the user and the item of each row, and the ratings.
#[derive(FromPyObject)]
struct TableArgs<'py>(
    Vec<String>,
    Vec<String>,
    PyReadonlyArray1<'py, u32>,
    PyReadonlyArray1<'py, u32>,
    Option<PyReadonlyArray1<'py, f64>>,
);

impl DataArgs<'_> {
    /// The name of the file, or of a table.
    pub fn name(&self) -> String {
        let name = self.path.as_ref().and_then(|path| path.file_name());
        name.map_or(TABLE.into(), |name| name.to_string_lossy().into_owned())
    }

    fn options(&self) -> Options {
        Options {
            format: None,
            skip_bad_lines: self.skip_bad_lines,
            columns: ColumnNames {
                user: self.user_column.clone(),
                item: self.item_column.clone(),
                rating: self.rating_column.clone(),
                time: None,
            },
            ratings: match self.like_from {
                Some(least) => RatingUse::LikeFrom(least),
                None if self.rating_values => RatingUse::Values,
                None => RatingUse::Ignored,
            },
        }
    }

    /// The interactions, and warnings about them. Calls `watch` with the bytes read and the bytes in all.
    pub fn read(&self, py: Python<'_>, watch: &Py<PyAny>) -> PyResult<(Read, Vec<String>)> {
        let options = self.options();
        let (read, place) = match (&self.path, &self.table) {
            (Some(path), _) => (read_file(py, path, &options, watch)?, path.as_path()),
            (None, Some(table)) => {
                let TableArgs(users, items, user, item, ratings) = table;
                let rows: Vec<(u32, u32)> = user
                    .as_array()
                    .iter()
                    .copied()
                    .zip(item.as_array().iter().copied())
                    .collect();
                let ratings: Vec<f64> = match ratings {
                    Some(ratings) => ratings.as_array().to_vec(),
                    None => Vec::new(),
                };
                let read = py.detach(|| {
                    read_table(
                        &Table {
                            name: TABLE,
                            users,
                            items,
                            rows: &rows,
                            ratings: &ratings,
                        },
                        &options,
                    )
                    .map_err(|error| PyValueError::new_err(error.to_string()))
                })?;
                (read, Path::new(TABLE))
            }
            (None, None) => return Err(PyValueError::new_err("there are no data")),
        };
        let mut warnings = Vec::new();
        if let Some((line, reason)) = &read.first_bad {
            let many = thousands(read.bad_lines as f64);
            let file = place.display();
            warnings.push(format!(
                "bad lines skipped: {many}, the first {file}:{line}: {reason}"
            ));
        }
        if read.odd_first_line && self.path.is_some() {
            let all = &read.interactions;
            warnings.push(format!(
                "the first line of {} ({}, {}) was read as data, though all others are numbers; if it is a \
                 header, name its columns with user_column and item_column",
                place.display(),
                all.user_name(0),
                all.item_name(0),
            ));
        }
        Ok((read, warnings))
    }
}

/// The name of a table in messages.
const TABLE: &str = "the table";

/// The number of bytes from one call of the progress function to the next, at least.
const BYTES_A_CALL: u64 = 4 << 20;

fn read_file(py: Python<'_>, path: &Path, options: &Options, watch: &Py<PyAny>) -> PyResult<Read> {
    // The first exception of the progress function. It is raised when the file has been read.
    let raised: Mutex<(u64, Option<PyErr>)> = Mutex::new((0, None));
    let result = py.detach(|| {
        read(path, options, &|done, total| {
            let mut state = raised.lock().unwrap_or_else(PoisonError::into_inner);
            if state.1.is_some() || done < state.0 + BYTES_A_CALL {
                return;
            }
            state.0 = done;
            let called = Python::attach(|py| {
                watch
                    .call1(py, (done, total))
                    .and_then(|_| py.check_signals())
            });
            state.1 = called.err();
        })
    });
    let raised = raised.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = raised.1 {
        return Err(error);
    }
    result.map_err(|error| match &error {
        ReadError::Io { source, .. } => {
            let message = format!("{error}: {source}");
            if source.kind() == std::io::ErrorKind::NotFound {
                PyFileNotFoundError::new_err(message)
            } else {
                PyOSError::new_err(message)
            }
        }
        _ => PyValueError::new_err(error.to_string()),
    })
}

/// The positions of the columns of users, items and ratings.
#[pyfunction]
pub fn lab_columns(
    columns: Vec<String>,
    user: Option<String>,
    item: Option<String>,
    rating: Option<String>,
) -> PyResult<(usize, usize, Option<usize>)> {
    let columns: Vec<Cow<'_, str>> = columns.into_iter().map(Cow::Owned).collect();
    let names = ColumnNames {
        user,
        item,
        rating,
        time: None,
    };
    names.positions(&columns).map_err(PyValueError::new_err)
}

/// Pairs of a user and an item by number, their values, the names of users and of items, and warnings.
type Taken<'py> = (
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u32>>,
    Option<Bound<'py, PyArray1<f64>>>,
    Vec<String>,
    Vec<String>,
    Vec<String>,
);

/// Reads ratings: pairs, values, names, and warnings.
#[pyfunction]
pub fn lab_read<'py>(
    py: Python<'py>,
    data: DataArgs<'py>,
    watch: Py<PyAny>,
) -> PyResult<Taken<'py>> {
    let (read, warnings) = data.read(py, &watch)?;
    let all = &read.interactions;
    let (mut users, mut items) = (Vec::new(), Vec::new());
    let mut values = all.has_values().then(Vec::new);
    for user in 0..all.users() {
        for &item in all.of_user(user) {
            users.push(user as u32);
            items.push(item);
        }
        if let Some(values) = &mut values {
            values.extend_from_slice(all.values_of_user(user).unwrap_or_default());
        }
    }
    let user_names = (0..all.users()).map(|user| all.user_name(user).to_string());
    let item_names = (0..all.items()).map(|item| all.item_name(item).to_string());
    Ok((
        PyArray1::from_vec(py, users),
        PyArray1::from_vec(py, items),
        values.map(|values| PyArray1::from_vec(py, values)),
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
