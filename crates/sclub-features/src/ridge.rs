//! Ridge regression on sparse rows, by conjugate gradients.

use crate::matrix::{Matrix, Sparse};

/// Steps at the most.
const MAX_STEPS: usize = 200;
/// The residual at which a column is solved, as a share of its first one.
const TOLERANCE: f64 = 1e-9;

/// The matrix W that minimises ‖rows · W − targets‖² + penalty · ‖W‖².
pub fn ridge(rows: &Sparse, targets: &Matrix, penalty: f64) -> Matrix {
    let turned = rows.transposed();
    let mut residual = turned.times(targets);
    let (size, columns) = (residual.rows(), residual.columns());
    let mut solution = Matrix::zeros(size, columns);
    let mut direction = residual.clone();
    let mut squares = squared_lengths(&residual);
    let enough: Vec<f64> = squares.iter().map(|s| s * TOLERANCE * TOLERANCE).collect();
    for _ in 0..MAX_STEPS {
        if squares
            .iter()
            .zip(&enough)
            .all(|(square, enough)| square <= enough)
        {
            break;
        }
        let mut image = turned.times(&rows.times(&direction));
        add(&mut image, &vec![penalty; columns], &direction);
        let curvature = products(&direction, &image);
        let ratio = |over: f64, under: f64| if under > 0.0 { over / under } else { 0.0 };
        let steps: Vec<f64> = (0..columns)
            .map(|at| match squares[at] > enough[at] {
                true => ratio(squares[at], curvature[at]),
                false => 0.0,
            })
            .collect();
        add(&mut solution, &steps, &direction);
        let back: Vec<f64> = steps.iter().map(|step| -step).collect();
        add(&mut residual, &back, &image);
        let next = squared_lengths(&residual);
        for row in 0..size {
            let from = residual.row(row);
            let to = direction.row_mut(row).iter_mut();
            for (at, (to, from)) in to.zip(from).enumerate() {
                *to = from + ratio(next[at], squares[at]) * *to;
            }
        }
        squares = next;
    }
    solution
}

/// Adds a multiple of each column.
fn add(sum: &mut Matrix, factors: &[f64], other: &Matrix) {
    for row in 0..sum.rows() {
        let entries = sum.row_mut(row).iter_mut();
        for ((entry, factor), value) in entries.zip(factors).zip(other.row(row)) {
            *entry += factor * value;
        }
    }
}

/// The product of each column with the same one of another matrix.
fn products(one: &Matrix, other: &Matrix) -> Vec<f64> {
    let mut sums = vec![0.0; one.columns()];
    for row in 0..one.rows() {
        let both = one.row(row).iter().zip(other.row(row));
        for (sum, (a, b)) in sums.iter_mut().zip(both) {
            *sum += a * b;
        }
    }
    sums
}

fn squared_lengths(matrix: &Matrix) -> Vec<f64> {
    products(matrix, matrix)
}

#[cfg(test)]
mod tests {
    use faer::linalg::solvers::Solve;
    use faer::{Mat, Side};

    use super::*;

    #[test]
    fn the_solution_is_that_of_the_normal_equations() {
        let rows: Vec<Vec<(u32, f64)>> = (0..40_u32)
            .map(|row| {
                let columns = (0..12).filter(|column| (row * 7 + column * 5) % 4 == 0);
                columns
                    .map(|c| (c, f64::from((row * c) % 9) - 3.5))
                    .collect()
            })
            .collect();
        let sparse = Sparse::with_values(12, &rows);
        let target = |row: usize, column: usize| ((row * 3 + column * 11) % 7) as f64 - 2.0;
        let mut targets = Matrix::zeros(40, 3);
        for row in 0..40 {
            (0..3).for_each(|at| targets.row_mut(row)[at] = target(row, at));
        }
        let found = ridge(&sparse, &targets, 0.5);

        let mut dense = Mat::<f64>::zeros(40, 12);
        for (row, entries) in rows.iter().enumerate() {
            for &(column, value) in entries {
                dense[(row, column as usize)] = value;
            }
        }
        let mut gram = dense.transpose() * &dense;
        (0..12).for_each(|at| gram[(at, at)] += 0.5);
        let right = dense.transpose() * Mat::from_fn(40, 3, target);
        let expected = gram.llt(Side::Lower).unwrap().solve(&right);
        for row in 0..12 {
            for column in 0..3 {
                let off = (found.get(row, column) - expected[(row, column)]).abs();
                assert!(off < 1e-7, "{row} {column}: off by {off}");
            }
        }
    }
}
