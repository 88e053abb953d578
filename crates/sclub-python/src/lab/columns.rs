//! The policies of a table: built-in ones by name, and guests under names of their own.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyString;
use sclub_lab::policies::{Guest, Name};
use sclub_lab::setting::Setting;

use super::halt::Halt;
use super::maker::Maker;
use super::settings::{in_full, policy_named, refused};

/// A label, the name of a built-in policy or a function that makes a policy ([`Maker`]), and a line about the policy.
pub type Column<'py> = (String, Bound<'py, PyAny>, String);

/// Colours of guests on a light and a dark ground, in the order of the columns.
const COLORS: [[&str; 2]; 6] = [
    ["#B00020", "#FF8A80"],
    ["#8A6D00", "#FFD54F"],
    ["#00838F", "#80DEEA"],
    ["#AD1457", "#F48FB1"],
    ["#33691E", "#AED581"],
    ["#4E342E", "#BCAAA4"],
];

/// The citation of a guest, in tables that have one.
const CITATION: &str = "written in Python";

/// The policies of a table. Guests play until it is dropped.
pub struct Columns {
    names: Vec<Name>,
    guests: Vec<(Guest, Arc<Maker>)>,
    /// The exception of a guest that stops the work.
    pub halt: Arc<Halt>,
}

impl Columns {
    /// The columns of a table that accepts some of the built-in policies.
    pub fn new(policies: Vec<Column<'_>>, is_accepted: impl Fn(Name) -> bool) -> PyResult<Self> {
        let mut columns = Self {
            names: Vec::new(),
            guests: Vec::new(),
            halt: Arc::default(),
        };
        for (label, object, summary) in policies {
            if let Ok(name) = object.cast::<PyString>() {
                let name = name.to_str()?;
                if name != label {
                    return Err(refused(format!(
                        "policy '{label}' is the built-in policy '{name}'; in a table built-in policies have their own names"
                    )));
                }
                columns.names.push(policy_named(name, &is_accepted)?);
                continue;
            }
            if label.parse::<Name>().is_ok() {
                return Err(refused(format!(
                    "policy '{label}' has the name of a built-in policy; give it another name with a mapping, \
                     policies={{'my {label}': ...}}"
                )));
            }
            let halt = Arc::clone(&columns.halt);
            let maker = Arc::new(Maker::new(label.clone(), object.unbind(), halt));
            let colors = COLORS[columns.guests.len() % COLORS.len()];
            let guest = Guest::new(&label, &summary, CITATION, colors, maker.clone());
            columns.names.push(guest.name());
            columns.guests.push((guest, maker));
        }
        Ok(columns)
    }

    pub fn names(&self) -> Vec<Name> {
        self.names.clone()
    }

    pub fn has_guests(&self) -> bool {
        !self.guests.is_empty()
    }

    /// The guests that do not play some rounds of a setting. Faults of guests are raised.
    pub fn left_out(
        &self,
        py: Python<'_>,
        setting: &Setting,
        seed: u64,
        rounds: u64,
    ) -> PyResult<Vec<Name>> {
        let mut names = Vec::new();
        if self.guests.is_empty() {
            return Ok(names);
        }
        let world = py.detach(|| setting.world(seed)).map_err(in_full)?;
        for (guest, maker) in &self.guests {
            if !maker.plays(&*world, seed, rounds)? {
                names.push(guest.name());
            }
        }
        Ok(names)
    }
}
