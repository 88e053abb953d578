//! Plain Python values as bytes: numbers, strings, bytes, `None` and tuples of such.
//!
//! Reading such values runs no code of other classes.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString, PyTuple};

/// Tuples nested deeper than this are not plain.
const MAX_DEPTH: usize = 16;

/// Appends a value and says whether it is plain. Nothing useful is appended if it is not.
pub fn write_plain(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<bool> {
    write_nested(value, out, 0)
}

fn write_nested(value: &Bound<'_, PyAny>, out: &mut Vec<u8>, depth: usize) -> PyResult<bool> {
    let mut put = |tag: u8, bytes: &[u8]| {
        out.push(tag);
        out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        out.extend_from_slice(bytes);
    };
    if value.is_none() {
        put(b'n', &[]);
    } else if let Ok(value) = value.cast_exact::<PyBool>() {
        put(b'b', &[u8::from(value.is_true())]);
    } else if let Ok(value) = value.cast::<PyString>() {
        let Ok(text) = value.to_str() else {
            return Ok(false);
        };
        put(b's', text.as_bytes());
    } else if let Ok(value) = value.cast::<PyBytes>() {
        put(b'y', value.as_bytes());
    } else if let Ok(value) = value.cast::<PyFloat>() {
        put(b'f', &value.extract::<f64>()?.to_le_bytes());
    } else if let Ok(value) = value.cast_exact::<PyTuple>()
        && depth < MAX_DEPTH
    {
        put(b't', &[]);
        out.extend_from_slice(&(value.len() as u64).to_le_bytes());
        for part in value.iter() {
            if !write_nested(&part, out, depth + 1)? {
                return Ok(false);
            }
        }
    } else if let Ok(value) = value.call_method0("__index__") {
        // Python's integers have any length, and NumPy's are integers too.
        put(b'i', value.cast::<PyInt>()?.str()?.to_str()?.as_bytes());
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// Reads the next value and moves `rest` behind it; `None` if the bytes are no plain value.
pub fn read_plain<'py>(py: Python<'py>, rest: &mut &[u8]) -> PyResult<Option<Bound<'py, PyAny>>> {
    read_nested(py, rest, 0)
}

fn read_nested<'py>(
    py: Python<'py>,
    rest: &mut &[u8],
    depth: usize,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let mut take = |count: usize| -> Option<&[u8]> {
        let (taken, left) = rest.split_at_checked(count)?;
        *rest = left;
        Some(taken)
    };
    let length = |bytes: &[u8]| {
        bytes
            .try_into()
            .ok()
            .map(u64::from_le_bytes)
            .map(|len| len as usize)
    };
    let Some(tag) = take(1).map(|bytes| bytes[0]) else {
        return Ok(None);
    };
    let Some(bytes) = take(8).and_then(length).and_then(&mut take) else {
        return Ok(None);
    };
    Ok(Some(match tag {
        b'n' => py.None().into_bound(py),
        b'b' => PyBool::new(py, bytes == [1]).to_owned().into_any(),
        b's' => PyString::from_bytes(py, bytes)?.into_any(),
        b'y' => PyBytes::new(py, bytes).into_any(),
        b'f' => {
            let Ok(bytes) = bytes.try_into() else {
                return Ok(None);
            };
            PyFloat::new(py, f64::from_le_bytes(bytes)).into_any()
        }
        b'i' => py
            .get_type::<PyInt>()
            .call1((PyString::from_bytes(py, bytes)?,))?,
        b't' if depth < MAX_DEPTH => {
            let Some(count) = take(8).and_then(length) else {
                return Ok(None);
            };
            let mut parts = Vec::new();
            for _ in 0..count {
                let Some(part) = read_nested(py, rest, depth + 1)? else {
                    return Ok(None);
                };
                parts.push(part);
            }
            PyTuple::new(py, parts)?.into_any()
        }
        _ => return Ok(None),
    }))
}
