//! Fitted transforms from raw items to vectors, for `sclub.ItemFeatures`.

use std::collections::HashMap;

use numpy::{PyArray2, PyReadonlyArray1, ToPyArray};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sclub_features::{Matrix, Options, RawItem, Sparse, Transform, fit, id_column, id_text};
use serde::Deserialize;
use serde_json::{Value, json};

/// The options of a fit, as the Python part of the package passes them.
#[derive(Deserialize)]
struct OptionArgs {
    dim: usize,
    id_column: Option<String>,
    text: Vec<String>,
    tags: Vec<String>,
    category: Vec<String>,
    number: Vec<String>,
    ignore: Vec<String>,
    separator: Option<String>,
}

/// Who took what: the names of the items, and the numbers of the user and the item of each pair.
#[derive(FromPyObject)]
struct TakenArgs<'py>(
    Vec<String>,
    PyReadonlyArray1<'py, u32>,
    PyReadonlyArray1<'py, u32>,
);

/// A fitted transform.
#[pyclass(frozen, name = "Transform", module = "sclub._sclub")]
pub struct PyTransform(Transform);

fn refused(error: impl ToString) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// The items of a list in JSON.
fn items_of(text: &str) -> PyResult<Vec<RawItem>> {
    serde_json::from_str(text).map_err(refused)
}

fn array<'py>(py: Python<'py>, matrix: &Matrix) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let flat = matrix.values().to_pyarray(py);
    use numpy::PyArrayMethods;
    flat.reshape([matrix.rows(), matrix.columns()])
}

#[pymethods]
impl PyTransform {
    /// Fits a transform to items, given as a list in JSON. Returns it with the vectors and a report in JSON.
    #[staticmethod]
    fn fit<'py>(
        py: Python<'py>,
        items: &str,
        options: &str,
        taken: Option<TakenArgs<'_>>,
    ) -> PyResult<(Self, Bound<'py, PyArray2<f64>>, String)> {
        let items = items_of(items)?;
        let args: OptionArgs = serde_json::from_str(options).map_err(refused)?;
        let options = Options {
            dim: args.dim,
            id: args.id_column,
            text: args.text,
            tags: args.tags,
            category: args.category,
            number: args.number,
            ignore: args.ignore,
            separator: args.separator,
            gathered: false,
        };
        let taken = match taken {
            Some(taken) => Some(taken.matrix(&items, &options)?),
            None => None,
        };
        let fitted = py
            .detach(|| fit(&items, &options, taken.as_ref()))
            .map_err(refused)?;
        let part = |part: &sclub_features::Part| {
            json!({
                "column": part.column,
                "kind": part.kind,
                "entries": part.width,
                "filled": part.filled,
                "explained": part.explained,
            })
        };
        let report = &fitted.report;
        let left = report.ignored.iter();
        let names: Vec<&str> = left.clone().map(|left| &*left.column).collect();
        let reasons: RawItem = left
            .map(|left| (left.column.clone(), left.reason.into()))
            .collect();
        let hints = report.hints.iter().map(ToString::to_string);
        let told = json!({
            "columns": report.parts.iter().map(part).collect::<Vec<Value>>(),
            "ignored": names,
            "reasons": reasons,
            "warnings": hints.collect::<Vec<String>>(),
            "explained": report.explained,
            "known_items": report.taken.as_ref().map(|taken| taken.known),
            "predicted": report.taken.as_ref().and_then(|taken| taken.predicted),
        });
        let vectors = array(py, &fitted.vectors)?;
        Ok((Self(fitted.transform), vectors, told.to_string()))
    }

    /// The vectors of items, given as a list in JSON.
    fn apply<'py>(&self, py: Python<'py>, items: &str) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let items = items_of(items)?;
        let mut vectors = Matrix::zeros(items.len(), self.0.dim());
        for (at, item) in items.iter().enumerate() {
            let vector = self.0.apply(item);
            let vector = vector.map_err(|error| refused(format!("item {}: {error}", at + 1)))?;
            vectors.row_mut(at).copy_from_slice(&vector);
        }
        array(py, &vectors)
    }

    /// The bytes of the file.
    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.encode())
    }

    /// Reads the bytes of a file.
    #[staticmethod]
    fn decode(bytes: &[u8]) -> PyResult<Self> {
        Transform::decode(bytes).map(Self).map_err(refused)
    }

    /// The names of the features.
    fn feature_names(&self) -> Vec<String> {
        self.0.feature_names()
    }

    /// The columns that features are made from, and their kinds.
    fn columns(&self) -> Vec<(String, &'static str)> {
        let columns = self.0.columns();
        columns
            .map(|(name, kind)| (name.to_owned(), kind))
            .collect()
    }

    /// The number of features.
    #[getter]
    fn dim(&self) -> usize {
        self.0.dim()
    }

    /// The column of ids.
    #[getter]
    fn id_column(&self) -> Option<&str> {
        self.0.id_column()
    }
}

impl TakenArgs<'_> {
    /// A row for each user and a column for each item of the catalogue.
    fn matrix(&self, items: &[RawItem], options: &Options) -> PyResult<Sparse> {
        let Self(names, users, taken) = self;
        let id = id_column(items, options).map_err(refused)?;
        let id = id.ok_or_else(|| refused("ratings need the ids of the items; name id_column"))?;
        let ids = items.iter().map(|item| item.get(&id).and_then(id_text));
        let places: HashMap<String, u32> = ids
            .zip(0..)
            .filter_map(|(id, place)| Some((id?, place)))
            .collect();
        let place_of: Vec<Option<u32>> =
            names.iter().map(|name| places.get(name).copied()).collect();
        if place_of.iter().all(Option::is_none) {
            let first = names.first().map_or("", String::as_str);
            let message =
                format!("no item of the ratings is among the items; the first one is '{first}'");
            return Err(PyKeyError::new_err(message));
        }
        let (users, taken) = (users.as_array(), taken.as_array());
        let count = users.iter().max().map_or(0, |&last| last as usize + 1);
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); count];
        for (&user, &item) in users.iter().zip(taken) {
            rows[user as usize].extend(place_of[item as usize]);
        }
        for row in &mut rows {
            row.sort_unstable();
            row.dedup();
        }
        Ok(Sparse::pattern(items.len(), rows.iter().map(Vec::as_slice)))
    }
}
