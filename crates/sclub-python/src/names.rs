//! Users and their numbers: Python's users are any hashable object, the library's are numbers.

use std::collections::HashMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple};

use crate::errors::{wrong_type, wrong_value};

/// The number of users without one: no policy has learned from it.
pub const UNKNOWN: u64 = u64::MAX;

/// Users that are whole numbers below this have their own number, as in the lab and in Rust; all others
/// are numbered from here on.
const FIRST_GIVEN: u64 = 1 << 62;

/// Users by number.
pub struct Names {
    numbers: Py<PyDict>,
    /// The users with a number, each with the position at which it came.
    users: HashMap<u64, (u64, Py<PyAny>)>,
    came: u64,
    /// Numbers below this belong to users that were declared by name.
    reserved: u64,
    /// The next number for a user that is not a whole number.
    next: u64,
}

/// The saved part of [`Names`] beside the users themselves: their numbers, `reserved` and `next`.
pub type Numbers = (Vec<u64>, u64, u64);

impl Names {
    /// No users.
    pub fn new(py: Python<'_>) -> Self {
        Self {
            numbers: PyDict::new(py).unbind(),
            users: HashMap::new(),
            came: 0,
            reserved: 0,
            next: FIRST_GIVEN,
        }
    }

    /// Declared users: a number n for 0 to n - 1, or the users themselves.
    pub fn declared(users: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = users.py();
        let mut names = Self::new(py);
        if users.is_instance_of::<PyInt>() {
            let count: u64 = users.extract().map_err(|_| {
                wrong_value(
                    "users",
                    format!("it is {}; a number of users must be positive", users),
                )
            })?;
            if count > sclub::Users::LIMIT {
                let why = format!(
                    "it is {count}; there can be at most {}",
                    sclub::Users::LIMIT
                );
                return Err(wrong_value("users", why));
            }
            for number in 0..count {
                names.admit(number.into_pyobject(py)?.as_any(), "users")?;
            }
            return Ok(names);
        }
        for (row, user) in list_of(users, "users")?.iter().enumerate() {
            check_present(&user, || format!("users: row {row}"))?;
            names.reserve(&user, "users")?;
        }
        Ok(names)
    }

    /// Users that were saved, with their numbers.
    pub fn restored(users: &Bound<'_, PyList>, kept: Numbers) -> PyResult<Self> {
        let (numbers, reserved, next) = kept;
        let mut names = Self::new(users.py());
        (names.reserved, names.next) = (reserved, next);
        if numbers.len() != users.len() {
            return Err(wrong_value(
                "users",
                "the saved state is damaged: users and their numbers do not match",
            ));
        }
        for (user, number) in users.iter().zip(numbers) {
            let is_new = names.known(&user, "users")?.is_none();
            if !is_new || number == UNKNOWN || names.users.contains_key(&number) {
                return Err(wrong_value(
                    "users",
                    "the saved state is damaged: a user or a number is in it twice",
                ));
            }
            names.give(&user, number)?;
        }
        Ok(names)
    }

    /// The number of users.
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

    /// The number that a user is, if it is a whole number and the number is free.
    fn own(&self, user: &Bound<'_, PyAny>) -> Option<u64> {
        // Most other users are strings, and to find that out by an exception takes longer.
        if user.is_instance_of::<PyString>() {
            return None;
        }
        let value: u64 = user.extract().ok()?;
        let is_free =
            (self.reserved..FIRST_GIVEN).contains(&value) && !self.users.contains_key(&value);
        is_free.then_some(value)
    }

    /// The number of a user, the one that the user would get, or [`UNKNOWN`].
    #[inline]
    pub fn number(&self, user: &Bound<'_, PyAny>, argument: &str) -> PyResult<u64> {
        self.number_at(user, argument, None)
    }

    /// As [`Names::number`], of the user in a row of the argument.
    #[inline]
    pub fn number_at(
        &self,
        user: &Bound<'_, PyAny>,
        argument: &str,
        row: Option<usize>,
    ) -> PyResult<u64> {
        if let Some(number) = self.known(user, argument)? {
            return Ok(number);
        }
        check_present(user, || place(argument, row))?;
        Ok(self.own(user).unwrap_or(UNKNOWN))
    }

    /// True if a number belongs to a user.
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

    /// The number of a user, who gets one if there is none, and whether the user is new.
    pub fn admit(&mut self, user: &Bound<'_, PyAny>, argument: &str) -> PyResult<(u64, bool)> {
        self.admit_at(user, argument, None)
    }

    /// As [`Names::admit`], of the user in a row of the argument.
    pub fn admit_at(
        &mut self,
        user: &Bound<'_, PyAny>,
        argument: &str,
        row: Option<usize>,
    ) -> PyResult<(u64, bool)> {
        if let Some(number) = self.known(user, argument)? {
            return Ok((number, false));
        }
        check_present(user, || place(argument, row))?;
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

    /// Gives the next of the first numbers to a user that is declared by name.
    pub fn reserve(&mut self, user: &Bound<'_, PyAny>, argument: &str) -> PyResult<()> {
        if self.known(user, argument)?.is_some() {
            return Err(wrong_value(
                argument,
                format!("user {} is named twice", user.repr()?),
            ));
        }
        check_present(user, || format!("{argument}: a user"))?;
        self.reserved += 1;
        self.give(user, self.reserved - 1)
    }

    /// Undoes [`Names::admit`] of these numbers.
    pub fn take_back(&mut self, py: Python<'_>, numbers: &[u64]) -> PyResult<()> {
        for &number in numbers.iter().rev() {
            self.forget(py, number)?;
            if number + 1 == self.next && number >= FIRST_GIVEN {
                self.next -= 1;
            }
        }
        Ok(())
    }

    /// Removes the user with this number.
    pub fn forget(&mut self, py: Python<'_>, number: u64) -> PyResult<()> {
        if let Some((_, user)) = self.users.remove(&number) {
            self.numbers.bind(py).del_item(user)?;
        }
        Ok(())
    }

    /// All users with their numbers, in the order in which they came.
    pub fn in_order(&self) -> Vec<(u64, &Py<PyAny>)> {
        let mut all: Vec<_> = self.users.iter().collect();
        all.sort_unstable_by_key(|(_, (came, _))| *came);
        all.into_iter()
            .map(|(&number, (_, user))| (number, user))
            .collect()
    }

    /// All users in that order, and the rest of the saved state.
    pub fn kept<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyList>, Numbers)> {
        let all = self.in_order();
        let numbers = all.iter().map(|&(number, _)| number).collect();
        let users = PyList::new(py, all.iter().map(|(_, user)| user.clone_ref(py)))?;
        Ok((users, (numbers, self.reserved, self.next)))
    }
}

/// The place of a user in messages.
fn place(argument: &str, row: Option<usize>) -> String {
    match row {
        Some(row) => format!("{argument}: row {row}"),
        None => format!("{argument}: it"),
    }
}

/// Refuses a missing user: NaN, NaT and pandas' NA. They are not equal to themselves, so each would be a user of its own.
pub fn check_present(user: &Bound<'_, PyAny>, place: impl Fn() -> String) -> PyResult<()> {
    if !is_missing(user)? {
        return Ok(());
    }
    let value = match user.extract::<f64>() {
        Ok(_) => "NaN".to_owned(),
        Err(_) => user.str()?.to_string(),
    };
    let place = place();
    Err(PyValueError::new_err(format!(
        "{place} is {value}, not a user"
    )))
}

/// Refuses missing users of a sequence, with their rows.
#[pyfunction(name = "_check_users")]
pub fn check_users(users: &Bound<'_, PyList>, argument: &str) -> PyResult<()> {
    let mut users = users.iter().enumerate();
    users.try_for_each(|(row, user)| check_present(&user, || place(argument, Some(row))))
}

/// Libraries whose values may be missing: not equal to themselves. Objects of other classes are not compared, which would
/// run code of others.
const WITH_MISSING_VALUES: [&str; 3] = ["numpy", "pandas", "decimal"];

fn is_missing(user: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Ok(number) = user.cast::<PyFloat>() {
        return Ok(number.value().is_nan());
    }
    if let Ok(parts) = user.cast_exact::<PyTuple>() {
        for part in parts.iter() {
            if is_missing(&part)? {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    if user.is_instance_of::<PyString>() || user.is_instance_of::<PyInt>() {
        return Ok(false);
    }
    let module = user.get_type().module()?.to_string();
    let library = module.split('.').next().unwrap_or_default();
    // pandas' NA answers with itself, and its truth is an error.
    Ok(WITH_MISSING_VALUES.contains(&library) && user.ne(user).unwrap_or(true))
}

/// Adds the name of the argument to the error for an unhashable user. Other errors of the user's own methods
/// stay as they are.
fn unhashable(user: &Bound<'_, PyAny>, argument: &str, error: PyErr) -> PyErr {
    let py = user.py();
    if error.is_instance_of::<pyo3::exceptions::PyTypeError>(py) && user.hash().is_err() {
        return wrong_type(argument, error.value(py));
    }
    error
}

/// A sequence as a list of Python objects. NumPy's and pandas' scalars become plain ones.
pub fn list_of<'py>(object: &Bound<'py, PyAny>, argument: &str) -> PyResult<Bound<'py, PyList>> {
    if let Ok(list) = object.cast::<PyList>() {
        return Ok(list.clone());
    }
    if object.is_instance_of::<PyString>() {
        return Err(wrong_type(
            argument,
            "a sequence is expected, not one string",
        ));
    }
    if object.is_instance_of::<PySet>() || object.is_instance_of::<PyFrozenSet>() {
        let why = "a sequence is expected, not a set, which has no order";
        return Err(wrong_type(argument, why));
    }
    let py = object.py();
    let plain = match object.getattr_opt(pyo3::intern!(py, "tolist"))? {
        Some(tolist) => tolist.call0()?,
        None => object.clone(),
    };
    if let Ok(list) = plain.cast::<PyList>() {
        return Ok(list.clone());
    }
    let list = PyList::empty(py);
    let all = plain.try_iter().map_err(|_| {
        let got = object.get_type().name();
        let got = got.map_or_else(|_| "this".to_owned(), |name| name.to_string());
        wrong_type(argument, format!("a sequence is expected, not {got}"))
    })?;
    for one in all {
        list.append(one?)?;
    }
    Ok(list)
}
