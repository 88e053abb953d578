//! Eigenvectors of small dense symmetric matrices.
//!
//! Reflections make the matrix tridiagonal, rotations (the implicit QL method) then diagonal.

use super::matrix::Matrix;

/// Rotations that one eigenvalue may take; three are usual.
const MAX_STEPS: usize = 60;

/// The eigenvectors of a symmetric matrix, one in each row, that of the largest eigenvalue first.
pub fn eigenvectors(matrix: &Matrix) -> Matrix {
    let size = matrix.rows();
    let sizes = matrix.values().iter().map(|value| value.abs());
    let scale = sizes.fold(0.0, f64::max);
    if scale == 0.0 {
        return Matrix::identity(size);
    }
    let (mut diagonal, mut beside, mut vectors) = tridiagonal(matrix, scale);
    diagonalise(&mut diagonal, &mut beside, &mut vectors);

    let mut order: Vec<usize> = (0..size).collect();
    order.sort_by(|&a, &b| diagonal[b].total_cmp(&diagonal[a]));
    let mut sorted = Matrix::zeros(size, size);
    for (to, &from) in order.iter().enumerate() {
        sorted.row_mut(to).copy_from_slice(vectors.row(from));
    }
    sorted
}

/// The diagonal, the subdiagonal and the transposed basis in which `matrix / scale` is
/// tridiagonal.
fn tridiagonal(matrix: &Matrix, scale: f64) -> (Vec<f64>, Vec<f64>, Matrix) {
    let size = matrix.rows();
    let mut work = matrix.clone();
    for row in 0..size {
        work.row_mut(row)
            .iter_mut()
            .for_each(|value| *value /= scale);
    }
    let mut beside = Vec::with_capacity(size);
    // Each reflection is 1 − factor · v vᵀ; it does not change the coordinates before `v`.
    let mut reflections: Vec<(f64, Vec<f64>)> = Vec::new();
    for at in 0..size.saturating_sub(1) {
        let mut v: Vec<f64> = (at + 1..size).map(|row| work.get(row, at)).collect();
        let length = dot(&v, &v).sqrt();
        let last = at + 2 >= size;
        if length == 0.0 || last {
            beside.push(v[0]);
            reflections.push((0.0, v));
            continue;
        }
        let reflected = if v[0] > 0.0 { -length } else { length };
        beside.push(reflected);
        v[0] -= reflected;
        let factor = 2.0 / dot(&v, &v);
        let mut w: Vec<f64> = (at + 1..size)
            .map(|row| factor * dot(&work.row(row)[at + 1..], &v))
            .collect();
        let share = 0.5 * factor * dot(&w, &v);
        w.iter_mut().zip(&v).for_each(|(w, v)| *w -= share * v);
        for (i, row) in (at + 1..size).enumerate() {
            let (vi, wi) = (v[i], w[i]);
            let entries = work.row_mut(row)[at + 1..].iter_mut();
            for ((entry, v), w) in entries.zip(&v).zip(&w) {
                *entry -= vi * w + wi * v;
            }
        }
        reflections.push((factor, v));
    }
    beside.push(0.0);
    let diagonal = (0..size).map(|at| work.get(at, at)).collect();

    let mut basis = Matrix::identity(size);
    for (at, (factor, v)) in reflections.iter().enumerate().rev() {
        if *factor == 0.0 {
            continue;
        }
        for row in at + 1..size {
            let part = &mut basis.row_mut(row)[at + 1..];
            let share = factor * dot(part, v);
            part.iter_mut()
                .zip(v)
                .for_each(|(entry, v)| *entry -= share * v);
        }
    }
    (diagonal, beside, basis)
}

/// Rotates a tridiagonal matrix until nothing is beside its diagonal, and the rows of `vectors`
/// with it.
fn diagonalise(diagonal: &mut [f64], beside: &mut [f64], vectors: &mut Matrix) {
    let size = diagonal.len();
    let most = |values: &[f64]| {
        values
            .iter()
            .fold(0.0_f64, |most, value| most.max(value.abs()))
    };
    let nothing = 0.01 * f64::EPSILON * most(diagonal).max(most(beside));
    for low in 0..size {
        for _ in 0..MAX_STEPS {
            let is_nothing = |at: usize| {
                let near = f64::EPSILON * (diagonal[at].abs() + diagonal[at + 1].abs());
                beside[at].abs() <= near.max(nothing)
            };
            let high = (low..size - 1)
                .find(|&at| is_nothing(at))
                .unwrap_or(size - 1);
            if high == low {
                break;
            }
            chase(low, high, diagonal, beside, vectors);
        }
    }
}

/// One step of the QL method on the rows `low..=high`, shifted by an eigenvalue of their first two.
fn chase(low: usize, high: usize, diagonal: &mut [f64], beside: &mut [f64], vectors: &mut Matrix) {
    let slope = (diagonal[low + 1] - diagonal[low]) / (2.0 * beside[low]);
    let root = (slope * slope + 1.0).sqrt().copysign(slope);
    let mut bulge = diagonal[high] - diagonal[low] + beside[low] / (slope + root);
    let (mut sine, mut cosine, mut carried) = (1.0, 1.0, 0.0);
    for at in (low..high).rev() {
        let across = sine * beside[at];
        let along = cosine * beside[at];
        let length = (across * across + bulge * bulge).sqrt();
        beside[at + 1] = length;
        if length == 0.0 {
            diagonal[at + 1] -= carried;
            beside[high] = 0.0;
            return;
        }
        sine = across / length;
        cosine = bulge / length;
        let lifted = diagonal[at + 1] - carried;
        let turned = (diagonal[at] - lifted) * sine + 2.0 * cosine * along;
        carried = sine * turned;
        diagonal[at + 1] = lifted + carried;
        bulge = cosine * turned - along;
        rotate(vectors, at, sine, cosine);
    }
    diagonal[low] -= carried;
    beside[low] = bulge;
    beside[high] = 0.0;
}

/// Rotates row `at` and the one behind it.
fn rotate(vectors: &mut Matrix, at: usize, sine: f64, cosine: f64) {
    let (first, second) = vectors.row_and_next(at);
    for (first, second) in first.iter_mut().zip(second) {
        let old = *first;
        *first = cosine * old - sine * *second;
        *second = sine * old + cosine * *second;
    }
}

/// The inner product, summed in four parts.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 4];
    let (a4, b4) = (a.chunks_exact(4), b.chunks_exact(4));
    let rest: f64 = a4
        .remainder()
        .iter()
        .zip(b4.remainder())
        .map(|(a, b)| a * b)
        .sum();
    for (a, b) in a4.zip(b4) {
        for at in 0..4 {
            sums[at] += a[at] * b[at];
        }
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// Checks the vectors and returns the eigenvalues.
    fn check(matrix: &Matrix) -> Vec<f64> {
        let size = matrix.rows();
        let vectors = eigenvectors(matrix);
        let sizes = matrix.values().iter().map(|value| value.abs());
        let scale = sizes.fold(0.0, f64::max);
        let mut values = Vec::new();
        for i in 0..size {
            let v = vectors.row(i);
            let image: Vec<f64> = (0..size).map(|row| dot(matrix.row(row), v)).collect();
            let value = dot(&image, v);
            for j in 0..size {
                let unit = f64::from(u8::from(i == j));
                assert!((dot(v, vectors.row(j)) - unit).abs() < 1e-13 * size as f64);
                let miss = image[j] - value * v[j];
                assert!(
                    miss.abs() <= 1e-14 * scale * size as f64,
                    "{miss} of {scale}"
                );
            }
            values.push(value);
        }
        assert!(values.is_sorted_by(|a, b| a >= &(b - 1e-13 * scale * size as f64)));
        values
    }

    #[test]
    fn eigenvectors_are_orthonormal_and_solve_the_equation() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        for size in [1, 2, 3, 10, 57] {
            for scale in [1.0, 1e-9, 1e12] {
                let mut matrix = Matrix::zeros(size, size);
                for i in 0..size {
                    for j in 0..=i {
                        let value = scale * (rng.random::<f64>() - 0.5);
                        matrix.row_mut(i)[j] = value;
                        matrix.row_mut(j)[i] = value;
                    }
                }
                check(&matrix);
            }
        }
    }

    #[test]
    fn equal_eigenvalues_zeros_and_ones_are_no_trouble() {
        check(&Matrix::zeros(40, 40));
        check(&Matrix::identity(40));
        let mut blocks = Matrix::zeros(40, 40);
        for row in 0..40 {
            for column in 0..40 {
                blocks.row_mut(row)[column] = f64::from(u8::from(row / 8 == column / 8));
            }
        }
        let values = check(&blocks);
        assert!((values[4] - 8.0).abs() < 1e-13);
        assert!(values[5].abs() < 1e-13);
    }
}
