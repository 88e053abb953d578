//! Symmetric positive definite matrices, lower triangle packed by rows.

use crate::kernels;

/// The offset of row `i`.
#[inline]
pub(crate) fn row_start(i: usize) -> usize {
    i * (i + 1) / 2
}

/// Both triangles of a matrix, in rows of `width` numbers.
fn rows(dim: usize, width: usize, matrix: &[f64]) -> Vec<f64> {
    let mut rows = vec![0.0; dim * width];
    for i in 0..dim {
        for j in 0..=i {
            rows[i * width + j] = matrix[row_start(i) + j];
            rows[j * width + i] = matrix[row_start(i) + j];
        }
    }
    rows
}

/// Both triangles of a matrix.
pub(crate) fn full(dim: usize, matrix: &[f64]) -> Vec<f64> {
    rows(dim, dim, matrix)
}

/// Both triangles of a matrix, in rows of whole groups of lanes.
pub(crate) fn full_rows(dim: usize, matrix: &[f64]) -> Vec<f64> {
    rows(dim, dim.next_multiple_of(kernels::LANES), matrix)
}

/// The trace.
pub(crate) fn trace(dim: usize, matrix: &[f64]) -> f64 {
    (0..dim).map(|i| matrix[row_start(i) + i]).sum()
}

/// ⟨A, B⟩, the sum of the products of all entries.
pub(crate) fn inner(dim: usize, a: &[f64], b: &[f64]) -> f64 {
    let mut sum = 0.0;
    for i in 0..dim {
        let row = row_start(i);
        let off: f64 = (row..row + i).map(|t| a[t] * b[t]).sum();
        sum += 2.0 * off + a[row + i] * b[row + i];
    }
    sum
}

/// A x
pub(crate) fn apply(dim: usize, matrix: &[f64], x: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; dim];
    for i in 0..dim {
        let row = row_start(i);
        for j in 0..i {
            out[i] += matrix[row + j] * x[j];
            out[j] += matrix[row + j] * x[i];
        }
        out[i] += matrix[row + i] * x[i];
    }
    out
}

/// aᵀb
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// A factorised matrix: A⁻¹ = Mᵀ diag(g) M.
#[derive(Debug, Clone)]
pub(crate) struct Factors {
    dim: usize,
    factor: Vec<f64>,
    scale: Vec<f64>,
    /// ln |A|
    pub log_determinant: f64,
}

impl Factors {
    /// The factors; `None` if the matrix is not positive definite.
    pub fn of(dim: usize, matrix: &[f64]) -> Option<Self> {
        let triangle = dim * (dim - 1) / 2;
        let mut lower = vec![0.0; triangle];
        let mut factor = vec![0.0; triangle];
        let mut scale = vec![0.0; dim];
        let definite = kernels::factorise(dim, matrix, 0.0, &mut lower, &mut factor, &mut scale);
        definite.then(|| {
            let log_determinant = -scale.iter().map(|&g| libm::log(g)).sum::<f64>();
            Self {
                dim,
                factor,
                scale,
                log_determinant,
            }
        })
    }

    /// A⁻¹ x
    pub fn solve(&self, x: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; self.dim];
        kernels::solve(self.dim, &self.factor, &self.scale, x, &mut out);
        out
    }

    /// A⁻¹, packed.
    pub fn inverse(&self) -> Vec<f64> {
        let dim = self.dim;
        let mut full = vec![0.0; dim * dim];
        kernels::inverse(dim, &self.factor, &self.scale, &mut full);
        (0..dim)
            .flat_map(|i| full[i * dim..i * dim + i + 1].iter().copied())
            .collect()
    }
}
