//! Plain sums of observations in one piece of memory: a *row* is G = Σ x xᵀ (lower triangle packed by rows), then
//! b = Σ y x. Rows are what servers and peers send to each other.

use crate::kernels;
use crate::statistics::Shape;

/// The numbers in a row.
pub(crate) fn len(shape: Shape) -> usize {
    shape.gram() + shape.dim
}

/// Adds an observation.
pub(crate) fn observe(shape: Shape, row: &mut [f64], item: &[f64], reward: f64) {
    let (gram, moment) = row.split_at_mut(shape.gram());
    kernels::add_outer(shape.dim, gram, item);
    kernels::add_scaled(moment, reward, item);
}
