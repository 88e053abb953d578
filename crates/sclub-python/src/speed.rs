//! The time of the same work in a Rust loop, for the benchmark of Python calls.

use std::time::Instant;

use pyo3::prelude::*;
use sclub::{ItemSet, Observation};

use crate::errors::{refused, wrong_value};
use crate::items::{Candidates, Rows};
use crate::policy::Policy;

/// The seconds that a loop in Rust takes over events that are already in Rust's form. With `rewards` it
/// learns, and changes the policy; else it recommends.
#[pyfunction(name = "_seconds_in_rust")]
#[pyo3(signature = (policy, users, items, rewards=None))]
pub fn seconds_in_rust(
    py: Python<'_>,
    policy: &Bound<'_, Policy>,
    users: Vec<u64>,
    items: &Bound<'_, PyAny>,
    rewards: Option<Vec<f64>>,
) -> PyResult<f64> {
    let policy = policy.get();
    let mut engine = policy.engine.write().map_err(|_| crate::errors::broken())?;
    let policy = engine.policy_mut();
    let dim = policy.dim();
    if let Some(rewards) = rewards {
        let rows = Rows::of(items, "items")?;
        let mut all = vec![0.0; dim * rows.len()];
        let table = rows.table();
        all.chunks_exact_mut(dim)
            .enumerate()
            .for_each(|(row, to)| table.copy_row(row, to));
        let mut changes = Vec::new();
        let start = Instant::now();
        for ((&user, item), &reward) in users.iter().zip(all.chunks_exact(dim)).zip(&rewards) {
            let learned = policy.learn_round(&[Observation::new(user, item, reward)], &mut changes);
            learned.map_err(|error| refused("items", &error))?;
            changes.clear();
        }
        return Ok(start.elapsed().as_secs_f64());
    }
    let Candidates::Own(blocks) = Candidates::of_many(items, users.len())? else {
        return Err(wrong_value(
            "items",
            "an array of shape (n, L, d) is expected",
        ));
    };
    let tables = blocks.tables();
    let mut set = ItemSet::new(dim).map_err(|error| refused("items", &error))?;
    py.detach(|| {
        let start = Instant::now();
        let mut sum = 0;
        for (place, &user) in users.iter().enumerate() {
            tables.get(place).fill(&mut set)?;
            sum += policy.recommend(user, &set)?.index;
        }
        std::hint::black_box(sum);
        Ok(start.elapsed().as_secs_f64())
    })
    .map_err(|error: sclub::Error| refused("items", &error))
}
