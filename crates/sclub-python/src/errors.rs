//! The library's errors as Python exceptions that name the argument.

use pyo3::exceptions::{PyOSError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use sclub::{Error, LoadError};

/// An error of the library about an argument.
pub fn refused(argument: &str, error: &Error) -> PyErr {
    match error {
        Error::BadParameter { .. } => PyValueError::new_err(error.to_string()),
        Error::Dimension { .. } => PyValueError::new_err(format!("dim: {error}")),
        Error::NoUsers => PyValueError::new_err(
            "users: there must be at least one; leave users out if they appear later",
        ),
        _ => PyValueError::new_err(format!("{argument}: {error}")),
    }
}

/// An argument of a wrong type.
pub fn wrong_type(argument: &str, why: impl std::fmt::Display) -> PyErr {
    PyTypeError::new_err(format!("{argument}: {why}"))
}

/// An argument with a wrong value.
pub fn wrong_value(argument: &str, why: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("{argument}: {why}"))
}

/// A count in words: `1 item`, `3 items`.
pub fn many(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// As [`many`], with its verb: `is 1 item`, `are 3 items`.
pub fn are(count: usize, what: &str) -> String {
    let verb = if count == 1 { "is" } else { "are" };
    format!("{verb} {}", many(count, what))
}

/// A state that cannot be loaded.
pub fn not_loaded(error: LoadError) -> PyErr {
    match error {
        LoadError::Io(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
            PyOSError::new_err(error.to_string())
        }
        other => PyValueError::new_err(other.to_string()),
    }
}

/// An earlier call panicked while it changed the state.
pub fn broken() -> PyErr {
    PyRuntimeError::new_err(
        "an earlier call failed while it changed this policy, whose state is unknown; load it again",
    )
}

/// A whole number from 0.
pub fn whole(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<usize> {
    match value.extract::<usize>() {
        Ok(number) => Ok(number),
        Err(_) if value.call_method0("__index__").is_err() => Err(wrong_type(
            argument,
            format!("a whole number is expected, not {}", value.repr()?),
        )),
        Err(_) => Err(wrong_value(
            argument,
            format!("it is {}; a whole number from 0 is expected", value.str()?),
        )),
    }
}

/// A number, if one is given.
pub fn real(argument: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<f64>> {
    let Some(value) = value else { return Ok(None) };
    match value.extract::<f64>() {
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(wrong_type(
            argument,
            format!("a number is expected, not {}", value.repr()?),
        )),
    }
}
