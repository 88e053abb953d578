//! Who is who: Python's users are any hashable, the library's are numbers.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PyString};

use crate::errors::{wrong_type, wrong_value};

/// The number of everybody who has no number: a user whom no policy has met.
pub const NOBODY: u64 = u64::MAX;

/// Users by number, in the order in which they came.
pub struct Names {
    numbers: Py<PyDict>,
    /// Nothing stands for users who were forgotten: a number is never used again.
    users: Vec<Option<Py<PyAny>>>,
}

impl Names {
    /// Nobody yet.
    pub fn new(py: Python<'_>) -> Self {
        Self {
            numbers: PyDict::new(py).unbind(),
            users: Vec::new(),
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
        if users.is_instance_of::<PyString>() {
            return Err(wrong_type(
                "users",
                "a number or several users are expected, not one string",
            ));
        }
        let several = users
            .try_iter()
            .map_err(|_| wrong_type("users", "a number or an iterable of users is expected"))?;
        for (place, user) in several.enumerate() {
            let number = names.admit(&user?, "users")?;
            if number != place as u64 {
                let message = format!("user {} is named twice", user_text(&names, number, py));
                return Err(wrong_value("users", message));
            }
        }
        Ok(names)
    }

    /// What was kept of some users. `gone` are the numbers of those who were forgotten, in order: what
    /// stands for them in the list is nobody.
    pub fn restored(users: &Bound<'_, PyList>, gone: &[u64]) -> PyResult<Self> {
        let mut names = Self::new(users.py());
        let mut gone = gone.iter().peekable();
        for (number, user) in users.iter().enumerate() {
            if gone.next_if_eq(&&(number as u64)).is_some() {
                names.users.push(None);
            } else if names.admit(&user, "users")? != number as u64 {
                return Err(wrong_value("users", "one of them is there twice"));
            }
        }
        Ok(names)
    }

    /// How many numbers have been given.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// The number of a user, or [`NOBODY`].
    #[inline]
    pub fn number(&self, user: &Bound<'_, PyAny>, argument: &str) -> PyResult<u64> {
        match self.numbers.bind(user.py()).get_item(user) {
            Ok(Some(number)) => number.extract(),
            Ok(None) => Ok(NOBODY),
            Err(error) => Err(unhashable(user, argument, error)),
        }
    }

    /// The number of a user, who has one from now on.
    pub fn admit(&mut self, user: &Bound<'_, PyAny>, argument: &str) -> PyResult<u64> {
        let number = self.number(user, argument)?;
        if number != NOBODY {
            return Ok(number);
        }
        let number = self.users.len() as u64;
        self.numbers.bind(user.py()).set_item(user, number)?;
        self.users.push(Some(user.clone().unbind()));
        Ok(number)
    }

    /// Takes the numbers from `len` on back.
    pub fn truncate(&mut self, py: Python<'_>, len: usize) -> PyResult<()> {
        while self.users.len() > len {
            if let Some(Some(user)) = self.users.pop() {
                self.numbers.bind(py).del_item(user)?;
            }
        }
        Ok(())
    }

    /// Nobody is called so any more.
    pub fn forget(&mut self, user: &Bound<'_, PyAny>, number: u64) -> PyResult<()> {
        self.numbers.bind(user.py()).del_item(user)?;
        self.users[number as usize] = None;
        Ok(())
    }

    /// Everybody who has a number, with it.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Py<PyAny>)> {
        let users = self.users.iter().enumerate();
        users.filter_map(|(number, user)| Some((number as u64, user.as_ref()?)))
    }

    /// The numbers of those who were forgotten.
    pub fn gone(&self) -> Vec<u64> {
        let users = self.users.iter().enumerate();
        users
            .filter(|(_, user)| user.is_none())
            .map(|(number, _)| number as u64)
            .collect()
    }

    /// Everybody by number; `None` for those who were forgotten.
    pub fn list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(
            py,
            self.users
                .iter()
                .map(|user| user.as_ref().map(|user| user.clone_ref(py))),
        )
    }
}

fn user_text(names: &Names, number: u64, py: Python<'_>) -> String {
    match &names.users[number as usize] {
        Some(user) => user
            .bind(py)
            .repr()
            .map_or_else(|_| "?".into(), |text| text.to_string()),
        None => "?".into(),
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
