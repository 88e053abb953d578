//! Saving and loading: `pickle`, `copy`, `save` and `load`.
//!
//! Both ways restore the library's state to the bit, with the users. `pickle` leaves the users to
//! `pickle`. A file of `save` holds only plain users (numbers, strings, bytes, `None` and tuples of
//! such), so that loading it runs no code of others.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyType};

use crate::engine::Engine;
use crate::errors::{broken, not_loaded};
use crate::names::{Names, Numbers};
use crate::plain::{read_plain, write_plain};
use crate::policy::Policy;

/// The first bytes of a file. The number of the format follows.
const HEAD: &[u8; 8] = b"sclub py";
const FORMAT: u64 = 1;

/// A state as bytes, the users, and their numbers.
type Kept<'py> = (Bound<'py, PyBytes>, Bound<'py, PyList>, Numbers);

impl Policy {
    fn kept<'py>(&self, py: Python<'py>) -> PyResult<Kept<'py>> {
        // The state first: a user added in between then has an unused name, and not a state without one.
        let state = self.read(py, |engine| {
            let mut state = Vec::new();
            engine.save_to(&mut state).map(|()| state)
        })??;
        let (users, numbers) = self.names(py)?.kept(py)?;
        Ok((PyBytes::new(py, &state), users, numbers))
    }

    fn replace(&self, py: Python<'_>, engine: Engine, names: Names) -> PyResult<()> {
        *self.names(py)? = names;
        *self.engine.write().map_err(|_| broken())? = engine;
        Ok(())
    }
}

/// Makes an object of a class from a saved state; called by `pickle`.
#[pyfunction(name = "_restore")]
pub fn restore<'py>(
    class: &Bound<'py, PyType>,
    state: &[u8],
    users: &Bound<'py, PyList>,
    numbers: Numbers,
) -> PyResult<Bound<'py, PyAny>> {
    let engine = Engine::load_from(&mut &state[..]).map_err(not_loaded)?;
    restored(class, engine, Names::restored(users, numbers)?)
}

fn restored<'py>(
    class: &Bound<'py, PyType>,
    engine: Engine,
    names: Names,
) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    let object = class.call_method1(pyo3::intern!(py, "__new__"), (class, 1))?;
    object.cast::<Policy>()?.get().replace(py, engine, names)?;
    Ok(object)
}

/// The function `_restore`, its arguments, and the attributes that a subclass has added.
pub type Reduced<'py> = (
    Bound<'py, PyAny>,
    (
        Bound<'py, PyType>,
        Bound<'py, PyBytes>,
        Bound<'py, PyList>,
        Numbers,
    ),
    Option<Bound<'py, PyAny>>,
);

/// The result of `__reduce__`.
pub fn reduce<'py>(policy: &Bound<'py, Policy>) -> PyResult<Reduced<'py>> {
    let py = policy.py();
    let restore = py.import("sclub._sclub")?.getattr("_restore")?;
    let (state, users, numbers) = policy.get().kept(py)?;
    let own = policy.as_any().getattr_opt("__dict__")?;
    Ok((restore, (policy.get_type(), state, users, numbers), own))
}

/// Writes a temporary file, and renames it when it is complete.
pub fn save(policy: &Bound<'_, Policy>, path: &Path) -> PyResult<()> {
    let py = policy.py();
    let class = builtin_class(&policy.get_type())?;
    let (state, list, (numbers, reserved, next)) = policy.get().kept(py)?;
    let numbers: Vec<u8> = [reserved, next]
        .iter()
        .chain(&numbers)
        .flat_map(|number| number.to_le_bytes())
        .collect();
    let mut users = Vec::new();
    for user in list.iter() {
        if !write_plain(&user, &mut users)? {
            return Err(cannot_be_saved(&user));
        }
    }
    let state = state.as_bytes();
    py.detach(|| {
        let mut beside = path.to_path_buf().into_os_string();
        beside.push(".part");
        let mut file = BufWriter::new(File::create(&beside)?);
        file.write_all(HEAD)?;
        file.write_all(&FORMAT.to_le_bytes())?;
        for bytes in [class.as_bytes(), &users, &numbers, state] {
            file.write_all(&(bytes.len() as u64).to_le_bytes())?;
            file.write_all(bytes)?;
        }
        let file = file.into_inner().map_err(|error| error.into_error())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    })
    .map_err(|error: std::io::Error| about_file(&error, path))
}

/// Loads a file that `save` wrote, of any policy.
///
/// Parameters
/// ----------
/// path : str or path
///
/// Returns
/// -------
/// Policy
///     An object of the class that was saved.
#[pyfunction]
pub fn load(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    read_file(py, &path, None)
}

/// An object of the class that was saved, or of `wanted` if that is the class or a subclass.
pub fn read_file<'py>(
    py: Python<'py>,
    path: &Path,
    wanted: Option<&Bound<'py, PyType>>,
) -> PyResult<Bound<'py, PyAny>> {
    let no_state = |why: &str| {
        PyValueError::new_err(format!(
            "{}: this is not a saved policy: {why}",
            path.display()
        ))
    };
    let (class, users, numbers, engine) = py.detach(|| {
        let file = File::open(path).map_err(|error| about_file(&error, path))?;
        let most = file.metadata()?.len();
        let mut file = BufReader::new(file);
        let mut head = [0; 16];
        file.read_exact(&mut head)
            .map_err(|_| no_state("it is shorter than 16 bytes"))?;
        if &head[..8] != HEAD {
            return Err(no_state("it does not begin with \"sclub py\""));
        }
        if head[8..] != FORMAT.to_le_bytes() {
            return Err(no_state(
                "its format is unknown; it may be of a later version",
            ));
        }
        let mut part = || -> PyResult<Vec<u8>> {
            let mut len = [0; 8];
            file.read_exact(&mut len)
                .map_err(|_| no_state("it ends too early"))?;
            let len = u64::from_le_bytes(len);
            if len > most {
                return Err(no_state("it ends too early"));
            }
            let mut bytes = vec![0; len as usize];
            file.read_exact(&mut bytes)
                .map_err(|_| no_state("it ends too early"))?;
            Ok(bytes)
        };
        let (class, users, numbers, state) = (part()?, part()?, part()?, part()?);
        let engine =
            Engine::load_from(&mut &state[..]).map_err(|error| no_state(&error.to_string()))?;
        Ok((class, users, numbers, engine))
    })?;
    let class = String::from_utf8(class)
        .map_err(|_| no_state("its class is unknown; it may be of a later version"))?;
    let list = PyList::empty(py);
    let mut rest = &users[..];
    while !rest.is_empty() {
        let user = read_plain(py, &mut rest)?.ok_or_else(|| no_state("its users are damaged"))?;
        list.append(user)?;
    }
    let mut numbers = numbers
        .chunks_exact(8)
        .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()));
    let (Some(reserved), Some(next)) = (numbers.next(), numbers.next()) else {
        return Err(no_state("its users are damaged"));
    };
    let numbers = (numbers.collect(), reserved, next);
    let found = py.import("sclub")?.getattr_opt(&*class)?;
    let found = found.and_then(|found| found.cast_into::<PyType>().ok());
    let builtin = match found {
        Some(found) if found.is_subclass_of::<Policy>()? => found,
        _ => {
            return Err(no_state(
                "its class is unknown; it may be of a later version",
            ));
        }
    };
    let class = match wanted {
        None => builtin,
        Some(wanted) if wanted.is_subclass(&builtin)? => wanted.clone(),
        Some(wanted) if builtin.is_subclass(wanted)? => builtin,
        Some(wanted) => {
            let message = format!(
                "{} holds a {class}, not a {}",
                path.display(),
                wanted.name()?
            );
            return Err(PyTypeError::new_err(message));
        }
    };
    restored(&class, engine, Names::restored(&list, numbers)?)
}

/// The class of this package that a class is or inherits from.
fn builtin_class(class: &Bound<'_, PyType>) -> PyResult<String> {
    let module = class.py().import("sclub")?;
    for class in class.mro() {
        let name = class.cast::<PyType>()?.name()?;
        let known = module.getattr_opt(&name)?;
        if known.is_some_and(|known| known.is(&class)) && !class.is(class.py().get_type::<Policy>())
        {
            return name.extract();
        }
    }
    Err(PyTypeError::new_err(
        "only policies of sclub.policy_classes and LinUcb can be saved",
    ))
}

/// An error of the system with its file.
fn about_file(error: &std::io::Error, path: &Path) -> PyErr {
    match error.raw_os_error() {
        Some(code) => {
            let text = error.to_string();
            let text = text
                .split(" (os error")
                .next()
                .unwrap_or_default()
                .to_owned();
            PyOSError::new_err((code, text, path.as_os_str().to_owned()))
        }
        None => PyOSError::new_err(format!("{}: {error}", path.display())),
    }
}

/// A user whom a file cannot hold.
fn cannot_be_saved(user: &Bound<'_, PyAny>) -> PyErr {
    let user = match user.repr() {
        Ok(user) => user.to_string(),
        Err(error) => return error,
    };
    PyTypeError::new_err(format!(
        "user {user} cannot be saved; save() takes users that are numbers, valid strings, bytes, None, \
         or tuples of such; use pickle for others"
    ))
}
