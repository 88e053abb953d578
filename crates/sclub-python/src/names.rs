//! Who is who: Python's users are any hashable, the library's are numbers.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrozenSet, PyInt, PyList, PySet, PyString};

use crate::errors::{wrong_type, wrong_value};

/// The number of everybody who has none: a user whom no policy has met.
pub const NOBODY: u64 = u64::MAX;

/// Users who are whole numbers below this have their own number, as in the lab and in Rust; all others
/// are numbered from here on.
const OTHERS: u64 = 1 << 62;

/// Users by number.
pub struct Names {
    numbers: Py<PyDict>,
    /// Everybody who has a number, with her place in the order in which they came.
    users: HashMap<u64, (u64, Py<PyAny>)>,
    came: u64,
    /// Numbers below this belong to those who were named in advance.
    reserved: u64,
    /// The next number of somebody who is no number.
    next: u64,
}

/// What is kept of names beside the users themselves: their numbers, `reserved` and `next`.
pub type Numbers = (Vec<u64>, u64, u64);

impl Names {
    /// Nobody yet.
    pub fn new(py: Python<'_>) -> Self {
        Self {
            numbers: PyDict::new(py).unbind(),
            users: HashMap::new(),
            came: 0,
            reserved: 0,
            next: OTHERS,
        }
    }

    /// Those who are declared: so many, called 0, 1, 2, …, or each by name.
    pub fn declared(users: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = users.py();
        let mut names = Self::new(py);
        if users.is_instance_of::<PyInt>() {
            let count: u64 = users
                .extract()
                .map_err(|_| wrong_value("users", "a number of users must be positive"))?;
            if count > sclub::Users::LIMIT {
                return Err(wrong_value("users", "more than 4294967295 cannot be"));
            }
            for number in 0..count {
                names.admit(number.into_pyobject(py)?.as_any(), "users")?;
            }
            return Ok(names);
        }
        for user in several(users)?.iter() {
            names.reserve(&user, "users")?;
        }
        Ok(names)
    }

    /// What was kept of some users.
    pub fn restored(users: &Bound<'_, PyList>, kept: Numbers) -> PyResult<Self> {
        let (numbers, reserved, next) = kept;
        let mut names = Self::new(users.py());
        (names.reserved, names.next) = (reserved, next);
        if numbers.len() != users.len() {
            return Err(wrong_value("users", "not each of them has a number"));
        }
        for (user, number) in users.iter().zip(numbers) {
            let is_new = names.known(&user, "users")?.is_none();
            if !is_new || number == NOBODY || names.users.contains_key(&number) {
                return Err(wrong_value("users", "one of them is there twice"));
            }
            names.give(&user, number)?;
        }
        Ok(names)
    }

    /// How many have a number.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    fn known(&self, user: &Bound<'_, PyAny>, argument: &str) -> PyResult<Option<u64>> {
        match self.numbers.bind(user.py()).get_item(user) {
            Ok(Some(number)) => Ok(Some(number.extract()?)),
            Ok(None) => Ok(None),
            Err(error) => Err(unhashable(user, argument, error)),
        }
    }

    /// The number that a user who is a whole number has of her own, if nobody else has it.
    fn own(&self, user: &Bound<'_, PyAny>) -> Option<u64> {
        // Most who are no number are strings: finding that out by an exception takes longer.
        if user.is_instance_of::<PyString>() {
            return None;
        }
        let value: u64 = user.extract().ok()?;
        let is_free = (self.reserved..OTHERS).contains(&value) && !self.users.contains_key(&value);
        is_free.then_some(value)
    }

    /// The number of a user, the one that she would have, or [`NOBODY`].
    #[inline]
    pub fn number(&self, user: &Bound<'_, PyAny>, argument: &str) -> PyResult<u64> {
        match self.known(user, argument)? {
            Some(number) => Ok(number),
            None => Ok(self.own(user).unwrap_or(NOBODY)),
        }
    }

    /// Whether somebody has a number.
    pub fn has(&self, number: u64) -> bool {
        self.users.contains_key(&number)
    }

    fn give(&mut self, user: &Bound<'_, PyAny>, number: u64) -> PyResult<()> {
        self.numbers.bind(user.py()).set_item(user, number)?;
        self.users
            .insert(number, (self.came, user.clone().unbind()));
        self.came += 1;
        Ok(())
    }

    /// The number of a user, who has one from now on, and whether she had none.
    pub fn admit(&mut self, user: &Bound<'_, PyAny>, argument: &str) -> PyResult<(u64, bool)> {
        if let Some(number) = self.known(user, argument)? {
            return Ok((number, false));
        }
        let number = match self.own(user) {
            Some(number) => number,
            None => {
                self.next += 1;
                self.next - 1
            }
        };
        self.give(user, number)?;
        Ok((number, true))
    }

    /// Gives the next of the first numbers to somebody who is named in advance.
    pub fn reserve(&mut self, user: &Bound<'_, PyAny>, argument: &str) -> PyResult<()> {
        if self.known(user, argument)?.is_some() {
            return Err(wrong_value(
                argument,
                format!("user {} is named twice", user.repr()?),
            ));
        }
        self.reserved += 1;
        self.give(user, self.reserved - 1)
    }

    /// As if these had never been given a number.
    pub fn take_back(&mut self, py: Python<'_>, numbers: &[u64]) -> PyResult<()> {
        for &number in numbers.iter().rev() {
            self.forget(py, number)?;
            if number + 1 == self.next && number >= OTHERS {
                self.next -= 1;
            }
        }
        Ok(())
    }

    /// Nobody has this number any more.
    pub fn forget(&mut self, py: Python<'_>, number: u64) -> PyResult<()> {
        if let Some((_, user)) = self.users.remove(&number) {
            self.numbers.bind(py).del_item(user)?;
        }
        Ok(())
    }

    /// Everybody who has a number, with it, in the order in which they came.
    pub fn in_order(&self) -> Vec<(u64, &Py<PyAny>)> {
        let mut all: Vec<_> = self.users.iter().collect();
        all.sort_unstable_by_key(|(_, (came, _))| *came);
        all.into_iter()
            .map(|(&number, (_, user))| (number, user))
            .collect()
    }

    /// Everybody in order, and what else there is to keep.
    pub fn kept<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyList>, Numbers)> {
        let all = self.in_order();
        let numbers = all.iter().map(|&(number, _)| number).collect();
        let users = PyList::new(py, all.iter().map(|(_, user)| user.clone_ref(py)))?;
        Ok((users, (numbers, self.reserved, self.next)))
    }
}

/// Says which argument cannot be hashed; other errors of the user's own methods stay as they are.
fn unhashable(user: &Bound<'_, PyAny>, argument: &str, error: PyErr) -> PyErr {
    let py = user.py();
    if error.is_instance_of::<pyo3::exceptions::PyTypeError>(py) && user.hash().is_err() {
        return wrong_type(argument, error.value(py));
    }
    error
}

/// Several users as a list of Python objects: NumPy's and pandas' become plain ones at once.
pub fn several<'py>(users: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    if let Ok(list) = users.cast::<PyList>() {
        return Ok(list.clone());
    }
    if users.is_instance_of::<PyString>() {
        return Err(wrong_type(
            "users",
            "several users are expected, not one string",
        ));
    }
    if users.is_instance_of::<PySet>() || users.is_instance_of::<PyFrozenSet>() {
        let why = "users in an order are expected, and a set has none";
        return Err(wrong_type("users", why));
    }
    let py = users.py();
    let plain = match users.getattr_opt(pyo3::intern!(py, "tolist"))? {
        Some(tolist) => tolist.call0()?,
        None => users.clone(),
    };
    if let Ok(list) = plain.cast::<PyList>() {
        return Ok(list.clone());
    }
    let list = PyList::empty(py);
    let all = plain
        .try_iter()
        .map_err(|_| wrong_type("users", "several users are expected"))?;
    for user in all {
        list.append(user?)?;
    }
    Ok(list)
}
