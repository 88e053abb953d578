//! A world that is written in Python.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use sclub::{Assumptions, ItemSet, MAX_MAGNITUDE, UserId};
use sclub_lab::streams::{Purpose, stream};
use sclub_lab::world::{BLOCK, Block, Rewards, Truth, World};

use super::halt::Halt;
use crate::errors::{are, many};
use crate::items::{Items, Rows, vector};
use crate::work::check_dim;

/// The method and the attributes of a world, as the Python part of the package has read them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Attributes {
    draw: Py<PyAny>,
    dim: usize,
    users: u64,
    /// The standard deviation of Gaussian noise; rewards are Bernoulli if it is None.
    noise: Option<f64>,
    clusters: Option<Vec<u32>>,
    length: Option<u64>,
}

/// A round as it was drawn.
struct Round {
    user: UserId,
    items: ItemSet,
    means: Vec<f64>,
    rewards: Option<Vec<f64>>,
}

/// A Python object with a method `draw`.
pub struct GuestWorld {
    attributes: Attributes,
    truth: Option<Truth>,
    rewards: Rewards,
    seed: u64,
    candidates: usize,
    gives_rewards: bool,
    /// The first round, which was drawn to see how many items there are.
    first: Mutex<Option<Round>>,
    halt: Arc<Halt>,
}

impl GuestWorld {
    /// The world of a seed. Draws the first round.
    pub fn new(
        py: Python<'_>,
        mut attributes: Attributes,
        seed: u64,
        halt: Arc<Halt>,
    ) -> PyResult<Self> {
        let rewards = attributes
            .noise
            .map_or(Rewards::Bernoulli, Rewards::Gaussian);
        ItemSet::new(attributes.dim).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let truth = attributes.clusters.take().map(|cluster_of| Truth {
            cluster_of,
            weights: Vec::new(),
            rewards,
            changed: None,
            stock: None,
        });
        let mut world = Self {
            attributes,
            truth,
            rewards,
            seed,
            candidates: 0,
            gives_rewards: false,
            first: Mutex::new(None),
            halt,
        };
        let first = world.ask(py, 0)?;
        world.candidates = first.means.len();
        world.gives_rewards = first.rewards.is_some();
        world.first = Mutex::new(Some(first));
        Ok(world)
    }

    /// The number of items in a round.
    pub fn candidates(&self) -> usize {
        self.candidates
    }

    /// The standard deviation of the noise, if it is Gaussian and the lab draws it.
    pub fn noise(&self) -> Option<f64> {
        self.attributes.noise
    }

    /// True if `draw` returns rewards.
    pub fn gives_rewards(&self) -> bool {
        self.gives_rewards
    }

    /// The assumptions of Theorem 1, as far as they are known.
    pub fn assumptions(&self, rounds: u64) -> Assumptions {
        let clusters = self.truth.as_ref().map(|truth| {
            let largest = truth.cluster_of.iter().max();
            largest.map_or(1, |&largest| u64::from(largest) + 1)
        });
        Assumptions {
            dim: self.attributes.dim,
            noise: self.attributes.noise.unwrap_or(0.5),
            smallest_eigenvalue: 0.5 / (self.attributes.dim.max(2) - 1) as f64,
            horizon: rounds,
            clusters: clusters.unwrap_or(self.attributes.users),
            users: self.attributes.users,
        }
    }

    /// Calls `draw` and validates the round.
    fn ask(&self, py: Python<'_>, round: u64) -> PyResult<Round> {
        let drawn = self.attributes.draw.bind(py).call1((round,))?;
        let parts: Vec<Bound<'_, PyAny>> =
            if drawn.is_instance_of::<PyTuple>() || drawn.is_instance_of::<PyList>() {
                drawn.extract()?
            } else {
                Vec::new()
            };
        let [user, items, means, rest @ ..] = &parts[..] else {
            return Err(wrong(format!(
                "draw({round}) returned {}; (user, items, means) or (user, items, means, rewards) is \
                 expected",
                drawn.repr()?
            )));
        };
        if rest.len() > 1 {
            return Err(wrong(format!(
                "draw({round}) returned {} values; (user, items, means) or (user, items, means, rewards) \
                 is expected",
                parts.len()
            )));
        }
        let items = self.items(items, round)?;
        let len = items.len();
        if self.candidates != 0 && len != self.candidates {
            return Err(wrong(format!(
                "items of round {round}: there {}, and {} in round 0; every round must have the \
                 same number",
                are(len, "item"),
                self.candidates
            )));
        }
        let means = numbers(means, "means", round, len)?;
        let rewards = match rest.first() {
            Some(rewards) => Some(numbers(rewards, "rewards", round, len)?),
            None => None,
        };
        if self.candidates != 0 && rewards.is_some() != self.gives_rewards {
            return Err(wrong(format!(
                "rewards of round {round}: they must be given in every round or in none"
            )));
        }
        if rewards.is_none()
            && self.rewards == Rewards::Bernoulli
            && let Some(at) = means.iter().position(|mean| !(0.0..=1.0).contains(mean))
        {
            return Err(wrong(format!(
                "means of round {round}: number {at} is {}; the mean of a Bernoulli reward is between 0 \
                 and 1 (an attribute noise makes rewards Gaussian)",
                means[at]
            )));
        }
        Ok(Round {
            user: self.user(user, round)?,
            items,
            means,
            rewards,
        })
    }

    fn user(&self, user: &Bound<'_, PyAny>, round: u64) -> PyResult<UserId> {
        let users = self.attributes.users;
        match user.extract::<UserId>() {
            Ok(user) if user < users => Ok(user),
            _ => Err(wrong(format!(
                "user of round {round} is {}; a whole number from 0 to {} is expected",
                user.repr()?,
                users - 1
            ))),
        }
    }

    fn items(&self, items: &Bound<'_, PyAny>, round: u64) -> PyResult<ItemSet> {
        let what = format!("items of round {round}");
        let said = |error: sclub::Error| wrong(format!("{what}: {error}"));
        if let Ok(items) = items.cast::<Items>() {
            // With their ids.
            let set = &items.get().set;
            check_dim(set.dim(), self.attributes.dim).map_err(said)?;
            return match set.is_empty() {
                true => Err(said(sclub::Error::NoCandidates)),
                false => Ok(ItemSet::clone(set)),
            };
        }
        let rows = Rows::of(items, &what).map_err(|error| as_value_error(items.py(), error))?;
        let mut set = ItemSet::new(self.attributes.dim).map_err(said)?;
        rows.fill(&mut set).map_err(said)?;
        if set.is_empty() {
            return Err(said(sclub::Error::NoCandidates));
        }
        Ok(set)
    }

    fn fill(&self, py: Python<'_>, index: u64, rounds: usize, block: &mut Block) -> PyResult<()> {
        let mut noise = stream(self.seed, Purpose::Noise, index);
        for at in 0..rounds {
            if self.halt.is_stopped() {
                return Ok(());
            }
            let number = index * BLOCK as u64 + at as u64;
            let first = if number == 0 {
                let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
                first.take()
            } else {
                None
            };
            let round = match first {
                Some(round) => round,
                None => self.ask(py, number)?,
            };
            let means = &mut block.means[at * self.candidates..][..self.candidates];
            means.copy_from_slice(&round.means);
            let best = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let average = means.iter().sum::<f64>() / self.candidates as f64;
            block.best.push(best);
            block.average.push(average);
            block.users.push(round.user);
            block.items[at] = round.items;
            block.given.extend(round.rewards.into_iter().flatten());
            // Drawn as in the lab's own worlds, so that a guest that replays one has the same noise.
            block.noise.push(self.rewards.draw(&mut noise));
        }
        Ok(())
    }
}

/// As many finite numbers as there are items.
fn numbers(
    object: &Bound<'_, PyAny>,
    name: &str,
    round: u64,
    expected: usize,
) -> PyResult<Vec<f64>> {
    let what = format!("{name} of round {round}");
    let mut values = Vec::new();
    vector(object, &what, "L", &mut values).map_err(|error| as_value_error(object.py(), error))?;
    if values.len() != expected {
        return Err(wrong(format!(
            "{what}: there {} for {}",
            are(values.len(), "number"),
            many(expected, "item")
        )));
    }
    let is_good = |value: &f64| value.abs() <= MAX_MAGNITUDE;
    match values.iter().position(|value| !is_good(value)) {
        Some(at) => Err(wrong(format!(
            "{what}: number {at} is {}; it must be finite and at most {MAX_MAGNITUDE:e} in magnitude",
            values[at]
        ))),
        None => Ok(values),
    }
}

fn wrong(message: String) -> PyErr {
    PyValueError::new_err(message)
}

/// A round is no argument of the caller, so that a wrong type in it is a wrong value too.
fn as_value_error(py: Python<'_>, error: PyErr) -> PyErr {
    wrong(error.value(py).to_string())
}

impl World for GuestWorld {
    fn dim(&self) -> usize {
        self.attributes.dim
    }

    fn users(&self) -> u64 {
        self.attributes.users
    }

    fn truth(&self) -> Option<&Truth> {
        self.truth.as_ref()
    }

    fn new_block(&self) -> Block {
        Block::new(self.attributes.dim, self.candidates, self.rewards)
            .expect("the dimension has been checked")
    }

    fn length(&self) -> Option<u64> {
        self.attributes.length
    }

    fn draw(&self, index: u64, rounds: usize, block: &mut Block) {
        block.clear(rounds);
        if self.halt.is_stopped() {
            return;
        }
        if let Err(error) = Python::attach(|py| self.fill(py, index, rounds, block)) {
            self.halt.fail(error);
        }
    }
}
