//! The library's errors as Python exceptions that name the argument.

use pyo3::exceptions::{PyOSError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use sclub::{Error, LoadError};

/// What is wrong with an argument. Errors about a reward name that argument in its place.
pub fn refused(argument: &str, error: &Error) -> PyErr {
    match error {
        Error::BadParameter { .. } => PyValueError::new_err(error.to_string()),
        Error::Dimension { .. } => PyValueError::new_err(format!("dim: {error}")),
        Error::NoUsers => {
            PyValueError::new_err("users: there must be at least one; None lets them appear")
        }
        _ => PyValueError::new_err(format!("{argument}: {error}")),
    }
}

/// An argument of a kind that cannot be used.
pub fn wrong_type(argument: &str, why: impl std::fmt::Display) -> PyErr {
    PyTypeError::new_err(format!("{argument}: {why}"))
}

/// An argument with a value that cannot be.
pub fn wrong_value(argument: &str, why: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("{argument}: {why}"))
}

/// A state that cannot be read.
pub fn not_loaded(error: LoadError) -> PyErr {
    match error {
        LoadError::Io(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
            PyOSError::new_err(error.to_string())
        }
        other => PyValueError::new_err(other.to_string()),
    }
}

/// A call before this one panicked while it changed the state.
pub fn broken() -> PyErr {
    PyRuntimeError::new_err("an earlier call broke off while it changed this policy; load it anew")
}
