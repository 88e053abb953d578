//! NumPy arrays of items, read in place into the layout that is scored.
//!
//! float64 and float32, C order, Fortran order and any strides are read without a copy in between.
//! Everything else that NumPy can make an array of floats from is first made one.

use std::cell::RefCell;
use std::sync::Arc;

use numpy::ndarray::{ArrayView2, ArrayView3, Axis, Ix1, Ix2, Ix3};
use numpy::{
    Element, PyArray, PyArrayMethods, PyReadonlyArray, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use pyo3::types::PyList;
use sclub::{Error, ItemSet};

use crate::errors::{many, refused, wrong_type, wrong_value};
use crate::ids::numbers_of;
use crate::names::list_of;

/// Items that are checked and laid out once, for many calls.
///
/// Parameters
/// ----------
/// features : array of shape (L, d)
///     One row an item.
/// ids : sequence of L ids, optional
///     An id for each item, the same for the same item in every set: whole numbers, strings, bytes, or
///     tuples of such. Policies know an id by its number, `item_id(id)`. Policies that do not use ids
///     ignore them.
///
/// Examples
/// --------
/// >>> import numpy as np, sclub
/// >>> films = sclub.Items(np.array([[0.6, 0.8], [1.0, 0.0]]))
/// >>> films
/// Items(2 items, 2 features)
/// >>> sclub.LinUcb(dim=2).recommend("anna", films)
/// 0
/// >>> sclub.Items(np.array([[0.6, 0.8], [1.0, 0.0]]), ids=["Alien", "Brazil"]).ids
/// ['Alien', 'Brazil']
#[pyclass(module = "sclub", frozen)]
pub struct Items {
    pub set: Arc<ItemSet>,
    /// The ids as they were given.
    ids: Option<Py<PyList>>,
}

#[pymethods]
impl Items {
    #[new]
    #[pyo3(signature = (features, ids=None))]
    fn new(features: &Bound<'_, PyAny>, ids: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let rows = Rows::of(features, "features")?;
        let mut set = ItemSet::new(rows.dim()).map_err(|error| refused("features", &error))?;
        rows.fill(&mut set)
            .map_err(|error| refused("features", &error))?;
        let mut kept = None;
        if let Some(ids) = ids {
            // A copy: the caller may change theirs.
            let ids = PyList::new(ids.py(), list_of(ids, "ids")?)?;
            let numbers = numbers_of(&ids, "ids", set.len())?;
            set.set_ids(&numbers)
                .map_err(|error| refused("ids", &error))?;
            kept = Some(ids.unbind());
        }
        Ok(Self {
            set: Arc::new(set),
            ids: kept,
        })
    }

    /// The ids of the items, as they were given; None if they have none.
    #[getter]
    fn ids<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let ids = self.ids.as_ref();
        ids.map(|ids| PyList::new(py, ids.bind(py))).transpose()
    }

    /// The number of features of an item.
    #[getter]
    fn dim(&self) -> usize {
        self.set.dim()
    }

    fn __len__(&self) -> usize {
        self.set.len()
    }

    fn __repr__(&self) -> String {
        format!(
            "Items({} items, {} features)",
            self.set.len(),
            self.set.dim()
        )
    }

    /// The features of an item, or of several, as `to_numpy()[key]`.
    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = key.py();
        if let Ok(item) = key.extract::<usize>()
            && item < self.set.len()
        {
            let features: Vec<f64> = self.set.item(item).collect();
            return Ok(numpy::IntoPyArray::into_pyarray(features, py).into_any());
        }
        self.to_numpy(py)?.get_item(key)
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if copy == Some(false) {
            return Err(wrong_value(
                "copy",
                "it is False; Items are stored in another layout, and an array of them is always a copy",
            ));
        }
        let array = self.to_numpy(py)?.into_any();
        match dtype {
            Some(dtype) => array.call_method1("astype", (dtype,)),
            None => Ok(array),
        }
    }

    /// The features, as an array of shape (L, d).
    fn to_numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray<f64, Ix2>>> {
        let rows: Vec<f64> = (0..self.set.len())
            .flat_map(|item| self.set.item(item))
            .collect();
        numpy::IntoPyArray::into_pyarray(rows, py).reshape([self.set.len(), self.set.dim()])
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        let (py, items) = (slf.py(), slf.get());
        let rows = items.to_numpy(py)?.into_any();
        Ok((slf.get_type().into_any(), (rows, items.ids(py)?)))
    }
}

/// The class, and the arguments that make an equal object.
type Reduced<'py> = (
    Bound<'py, PyAny>,
    (Bound<'py, PyAny>, Option<Bound<'py, PyList>>),
);

/// A matrix of floats, one row an item.
pub enum Rows<'py> {
    Double(PyReadonlyArray<'py, f64, Ix2>),
    Single(PyReadonlyArray<'py, f32, Ix2>),
}

/// Several such matrices.
pub enum Blocks<'py> {
    Double(PyReadonlyArray<'py, f64, Ix3>),
    Single(PyReadonlyArray<'py, f32, Ix3>),
}

/// The candidates of a recommendation.
pub enum Candidates<'py> {
    /// Items laid out before.
    Ready(Arc<ItemSet>),
    /// The same for all users.
    Shared(Rows<'py>),
    /// A set for each user.
    Own(Blocks<'py>),
}

/// A matrix in memory. It can be read while the GIL is released.
#[derive(Clone, Copy)]
pub enum Table<'a> {
    /// Row by row.
    ByItem(&'a [f64]),
    /// Column by column.
    ByFeature(&'a [f64], usize),
    Double(ArrayView2<'a, f64>),
    Single(ArrayView2<'a, f32>),
}

impl Table<'_> {
    fn double(view: ArrayView2<'_, f64>) -> Table<'_> {
        let (len, dim) = view.dim();
        if let Some(rows) = view.to_slice() {
            Table::ByItem(rows)
        } else if let Some(columns) = view.reversed_axes().to_slice()
            && len > 0
            && dim > 0
        {
            Table::ByFeature(columns, len)
        } else {
            Table::Double(view)
        }
    }

    /// Lays the items out.
    pub fn fill(&self, set: &mut ItemSet) -> Result<(), Error> {
        match *self {
            Table::ByItem(rows) => set.refill(rows),
            Table::ByFeature(columns, len) => set.refill_by_feature(len, columns),
            Table::Double(view) => set.refill_with(view.nrows(), |item, k| view[[item, k]]),
            Table::Single(view) => {
                set.refill_with(view.nrows(), |item, k| f64::from(view[[item, k]]))
            }
        }
    }

    /// One row: borrowed if it is contiguous, else copied into `to`.
    #[inline]
    pub fn row<'b>(&'b self, row: usize, to: &'b mut [f64]) -> &'b [f64] {
        if let Table::ByItem(rows) = self {
            return &rows[row * to.len()..][..to.len()];
        }
        self.copy_row(row, to);
        to
    }

    /// Copies one row.
    #[inline]
    pub fn copy_row(&self, row: usize, to: &mut [f64]) {
        match *self {
            Table::ByItem(rows) => to.copy_from_slice(&rows[row * to.len()..][..to.len()]),
            Table::ByFeature(columns, len) => {
                for (k, value) in to.iter_mut().enumerate() {
                    *value = columns[k * len + row];
                }
            }
            Table::Double(view) => {
                to.iter_mut()
                    .zip(view.row(row))
                    .for_each(|(to, &value)| *to = value);
            }
            Table::Single(view) => {
                to.iter_mut()
                    .zip(view.row(row))
                    .for_each(|(to, &value)| *to = f64::from(value));
            }
        }
    }
}

impl<'py> Rows<'py> {
    /// A matrix, or a value that can be converted to one.
    pub fn of(object: &Bound<'py, PyAny>, argument: &str) -> PyResult<Self> {
        let array = as_floats(object, argument)?;
        let dimensions = array.ndim();
        if dimensions != 2 {
            let why = format!(
                "an array of shape (L, d) is expected, got {}",
                shape(&array)
            );
            return Err(wrong_value(argument, why));
        }
        match typed(&array, argument)? {
            Typed::Double(array) => Ok(Rows::Double(array)),
            Typed::Single(array) => Ok(Rows::Single(array)),
        }
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        match self {
            Rows::Double(array) => array.shape()[0],
            Rows::Single(array) => array.shape()[0],
        }
    }

    /// The number of columns.
    pub fn dim(&self) -> usize {
        match self {
            Rows::Double(array) => array.shape()[1],
            Rows::Single(array) => array.shape()[1],
        }
    }

    /// The matrix in memory.
    pub fn table(&self) -> Table<'_> {
        match self {
            Rows::Double(array) => Table::double(array.as_array()),
            Rows::Single(array) => Table::Single(array.as_array()),
        }
    }

    /// Lays the items out.
    pub fn fill(&self, set: &mut ItemSet) -> Result<(), Error> {
        if self.dim() != set.dim() {
            return Err(Error::DimensionMismatch {
                expected: set.dim(),
                got: self.dim(),
            });
        }
        self.table().fill(set)
    }
}

impl Blocks<'_> {
    /// The numbers of matrices, of items in each, and of features of an item.
    pub fn shape(&self) -> [usize; 3] {
        let shape = match self {
            Blocks::Double(array) => array.shape(),
            Blocks::Single(array) => array.shape(),
        };
        [shape[0], shape[1], shape[2]]
    }

    /// The matrices in memory.
    pub fn tables(&self) -> Tables<'_> {
        match self {
            Blocks::Double(array) => Tables::Double(array.as_array()),
            Blocks::Single(array) => Tables::Single(array.as_array()),
        }
    }
}

/// Several matrices in memory.
#[derive(Clone, Copy)]
pub enum Tables<'a> {
    Double(ArrayView3<'a, f64>),
    Single(ArrayView3<'a, f32>),
}

impl<'a> Tables<'a> {
    /// One of them.
    #[inline]
    pub fn get(&self, index: usize) -> Table<'a> {
        match *self {
            Tables::Double(view) => Table::double(view.index_axis_move(Axis(0), index)),
            Tables::Single(view) => Table::Single(view.index_axis_move(Axis(0), index)),
        }
    }
}

impl<'py> Candidates<'py> {
    /// The candidates of one user.
    pub fn of_one(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(items) = object.cast::<Items>() {
            return Ok(Candidates::Ready(Arc::clone(&items.get().set)));
        }
        Ok(Candidates::Shared(Rows::of(object, "items")?))
    }

    /// The candidates of `users` users.
    pub fn of_many(object: &Bound<'py, PyAny>, users: usize) -> PyResult<Self> {
        if let Ok(items) = object.cast::<Items>() {
            return Ok(Candidates::Ready(Arc::clone(&items.get().set)));
        }
        let array = as_floats(object, "items")?;
        match array.ndim() {
            2 => Ok(Candidates::Shared(Rows::of(array.as_any(), "items")?)),
            3 if array.shape()[0] != users => {
                let why = format!(
                    "there {} for {}; give one for each user",
                    match array.shape()[0] {
                        1 => "is 1 set of items".to_owned(),
                        sets => format!("are {sets} sets of items"),
                    },
                    many(users, "user")
                );
                Err(wrong_value("items", why))
            }
            3 => Ok(Candidates::Own(match typed(&array, "items")? {
                Typed::Double(array) => Blocks::Double(array),
                Typed::Single(array) => Blocks::Single(array),
            })),
            _ => {
                let why = format!(
                    "an array of shape (L, d) or (n, L, d) is expected, got {}",
                    shape(&array)
                );
                Err(wrong_value("items", why))
            }
        }
    }
}

/// A vector of floats, copied into `to`.
pub fn vector(
    object: &Bound<'_, PyAny>,
    argument: &str,
    size: &str,
    to: &mut Vec<f64>,
) -> PyResult<()> {
    let array = as_floats(object, argument)?;
    if array.ndim() != 1 {
        let got = shape(&array);
        let why = format!("an array of shape ({size},) is expected, got {got}");
        return Err(wrong_value(argument, why));
    }
    to.clear();
    match typed::<Ix1>(&array, argument)? {
        Typed::Double(array) => to.extend(array.as_array()),
        Typed::Single(array) => to.extend(array.as_array().iter().map(|&value| f64::from(value))),
    }
    Ok(())
}

enum Typed<'py, D: numpy::ndarray::Dimension> {
    Double(PyReadonlyArray<'py, f64, D>),
    Single(PyReadonlyArray<'py, f32, D>),
}

fn typed<'py, D: numpy::ndarray::Dimension>(
    array: &Bound<'py, PyUntypedArray>,
    argument: &str,
) -> PyResult<Typed<'py, D>> {
    fn borrow<'py, T: Element, D: numpy::ndarray::Dimension>(
        array: &Bound<'py, PyArray<T, D>>,
        argument: &str,
    ) -> PyResult<PyReadonlyArray<'py, T, D>> {
        array
            .try_readonly()
            .map_err(|why| wrong_value(argument, why))
    }
    if let Ok(double) = array.cast::<PyArray<f64, D>>() {
        return Ok(Typed::Double(borrow(double, argument)?));
    }
    let single = array.cast::<PyArray<f32, D>>()?;
    Ok(Typed::Single(borrow(single, argument)?))
}

/// An array of float64 or float32: the object itself, or a converted copy.
fn as_floats<'py>(
    object: &Bound<'py, PyAny>,
    argument: &str,
) -> PyResult<Bound<'py, PyUntypedArray>> {
    if let Ok(array) = object.cast::<PyUntypedArray>()
        && is_read_in_place(array)
    {
        if !object.is_exact_instance_of::<PyUntypedArray>() && object.hasattr("mask")? {
            return Err(wrong_value(
                argument,
                "a masked array is not supported; fill it, for example with .filled(0)",
            ));
        }
        return Ok(array.clone());
    }
    let py = object.py();
    let numpy = py.import(pyo3::intern!(py, "numpy"))?;
    let no_floats = |why: PyErr| {
        let why = why.value(py);
        wrong_type(
            argument,
            format!("it cannot be made an array of floats: {why}"),
        )
    };
    let array = numpy
        .call_method1(pyo3::intern!(py, "asarray"), (object,))
        .map_err(no_floats)?;
    // Text or dates are a mistake, even where NumPy can convert them to floats.
    let kind: String = array.getattr("dtype")?.getattr("kind")?.extract()?;
    if !["b", "i", "u", "f", "O"].contains(&&*kind) {
        let dtype = array.getattr("dtype")?;
        return Err(wrong_type(
            argument,
            format!("numbers are expected, not {dtype}"),
        ));
    }
    let array = array
        .call_method1(pyo3::intern!(py, "astype"), (numpy::dtype::<f64>(py),))
        .map_err(no_floats)?;
    Ok(array.cast_into::<PyUntypedArray>()?)
}

fn is_read_in_place(array: &Bound<'_, PyUntypedArray>) -> bool {
    use numpy::PyArrayDescrMethods;
    let py = array.py();
    let kind = array.dtype();
    (kind.is_equiv_to(&numpy::dtype::<f64>(py)) || kind.is_equiv_to(&numpy::dtype::<f32>(py)))
        && array.is_aligned()
}

fn shape(array: &Bound<'_, PyUntypedArray>) -> String {
    let sizes: Vec<String> = array.shape().iter().map(ToString::to_string).collect();
    match sizes.len() {
        1 => format!("({},)", sizes[0]),
        _ => format!("({})", sizes.join(", ")),
    }
}

thread_local! {
    static SCRATCH: RefCell<Option<ItemSet>> = const { RefCell::new(None) };
}

/// Lends a set of items to lay others out in, which is kept for the next call on this thread.
pub fn with_scratch<T>(
    dim: usize,
    work: impl FnOnce(&mut ItemSet) -> Result<T, Error>,
) -> Result<T, Error> {
    SCRATCH.with_borrow_mut(|kept| {
        let set = match kept {
            Some(set) if set.dim() == dim => set,
            _ => kept.insert(ItemSet::new(dim)?),
        };
        work(set)
    })
}
