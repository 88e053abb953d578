//! Lists of items that users were shown, read and validated before anything is learned.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;
use sclub::{Error, ItemId, Observation, Shown, check_round};

use crate::errors::{are, many, refused, whole, wrong_type, wrong_value};
use crate::ids::numbers_of;
use crate::items::Rows;
use crate::names::{check_present, list_of};
use crate::work::check_dim;

/// A `ShownList` of Python without its user.
pub struct ReadList {
    dim: usize,
    features: Vec<f64>,
    rewards: Vec<Option<f64>>,
    ids: Option<Vec<ItemId>>,
    /// The number of items, from the first, that the user looked at.
    pub looked_at: Option<usize>,
}

impl ReadList {
    /// The items in their order.
    pub fn shown(&self) -> Vec<Shown<'_>> {
        let items = self.features.chunks_exact(self.dim).zip(&self.rewards);
        items
            .enumerate()
            .map(|(place, (item, &reward))| Shown {
                item,
                id: self.ids.as_ref().map(|ids| ids[place]),
                reward,
            })
            .collect()
    }

    fn of(list: &Bound<'_, PyAny>, name: &str, dim: usize) -> PyResult<Self> {
        let py = list.py();
        let (items, rewards) = (format!("{name}.items"), format!("{name}.rewards"));
        let rows = Rows::of(&list.getattr(intern!(py, "items"))?, &items)?;
        check_dim(rows.dim(), dim).map_err(|error| refused(&items, &error))?;
        let mut features = vec![0.0; dim * rows.len()];
        let table = rows.table();
        for (row, item) in features.chunks_exact_mut(dim).enumerate() {
            table.copy_row(row, item);
        }
        let looked_at = list.getattr(intern!(py, "looked_at"))?;
        let ids = list.getattr(intern!(py, "ids"))?;
        let list = Self {
            dim,
            features,
            rewards: rewards_of(&list.getattr(intern!(py, "rewards"))?, &rewards, rows.len())?,
            ids: match ids.is_none() {
                true => None,
                false => Some(numbers_of(&ids, &format!("{name}.ids"), rows.len())?),
            },
            looked_at: match looked_at.is_none() {
                true => None,
                false => Some(whole(&format!("{name}.looked_at"), &looked_at)?),
            },
        };
        if let Some(looked_at) = list.looked_at
            && looked_at > rows.len()
        {
            return Err(wrong_value(
                &format!("{name}.looked_at"),
                format!(
                    "it is {looked_at}; it must be at most the number of items, {}",
                    rows.len()
                ),
            ));
        }
        // Also the items that are not learned from: a mistake there is a mistake.
        let observations = list.shown().into_iter().map(|shown| Observation {
            user: 0,
            item: shown.item,
            id: shown.id,
            reward: shown.reward.unwrap_or(0.0),
        });
        check_round(&observations.collect::<Vec<_>>(), dim).map_err(|error| match error {
            Error::BadReward { .. } => refused(&rewards, &error),
            _ => refused(&items, &error),
        })?;
        Ok(list)
    }
}

fn rewards_of(
    rewards: &Bound<'_, PyAny>,
    argument: &str,
    expected: usize,
) -> PyResult<Vec<Option<f64>>> {
    let rewards = list_of(rewards, argument)?;
    if rewards.len() != expected {
        return Err(wrong_value(
            argument,
            format!(
                "there {} for {}; give one for each item, or None",
                are(rewards.len(), "reward"),
                many(expected, "item")
            ),
        ));
    }
    let reward = |reward: Bound<'_, PyAny>| {
        let number = reward.extract::<Option<f64>>();
        number.map_err(|_| {
            let reward = reward.to_string();
            wrong_type(argument, format!("{reward} is not a number or None"))
        })
    };
    rewards.iter().map(reward).collect()
}

/// The users of some lists, and the lists.
pub fn read<'py>(
    lists: &Bound<'py, PyAny>,
    dim: usize,
) -> PyResult<(Bound<'py, PyList>, Vec<ReadList>)> {
    let py = lists.py();
    let kind = py
        .import(intern!(py, "sclub._types"))?
        .getattr("ShownList")?;
    let (users, mut read) = (PyList::empty(py), Vec::new());
    for (place, list) in list_of(lists, "lists")?.iter().enumerate() {
        let name = format!("lists[{place}]");
        if !list.is_instance(&kind)? {
            let got = list.get_type().name()?;
            return Err(wrong_type(
                &name,
                format!("a ShownList is expected, not {got}"),
            ));
        }
        read.push(ReadList::of(&list, &name, dim)?);
        let user = list.getattr(intern!(py, "user"))?;
        check_present(&user, || format!("{name}.user: it"))?;
        users.append(user)?;
    }
    Ok((users, read))
}
