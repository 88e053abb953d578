//! The leading singular values and vectors of a sparse matrix.
//!
//! A block Krylov method with thick restarts. An orthonormal basis grows by whole blocks, always
//! orthogonal to all of it; the best approximations within it are taken over into the next basis,
//! which grows from their residuals. A block is wider than the number of vectors wanted, so
//! that none of several equal singular values is overlooked. Everything happens in one order on one
//! thread: the same matrix gives the same bits.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::eigen::{dot, eigenvectors};
use super::matrix::{Matrix, Sparse};

/// Vectors in a block beyond those wanted.
const SPARE: usize = 8;
/// Blocks in a basis before it is reduced to one.
const BLOCKS: usize = 8;
/// Restarts before giving up on the last digits.
const MAX_RESTARTS: usize = 300;
/// The error that a singular vector may have, as a share of the largest singular value.
const TOLERANCE: f64 = 1e-12;
/// The seed of the first block.
const SEED: u64 = 0x5eed_0f5d;

/// Leading singular triplets, the largest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Svd {
    /// A left singular vector in each column. Its entry of largest magnitude is positive.
    pub left: Matrix,
    /// Descending.
    pub values: Vec<f64>,
    /// A right singular vector in each column.
    pub right: Matrix,
    /// The largest ‖Aᵀu − σv‖ of all triplets as a share of the largest singular value.
    pub residual: f64,
}

/// The `rank` largest singular values of a matrix and their vectors.
///
/// If the matrix has fewer nonzero singular values than `rank`, the other values and the other columns of
/// `left` and `right` are zeros. A singular value counts as zero up to the rounding error of the
/// largest one times the longer side of the matrix.
pub fn truncated_svd(matrix: &Sparse, rank: usize) -> Svd {
    solve(matrix, rank, BLOCKS, &mut |_| ())
}

/// The progress of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Search {
    /// Passes over the matrix.
    pub passes: usize,
    /// The error of the worst wanted triplet, as a share of the largest singular value; infinite before
    /// the first pass. The search ends at about 10⁻¹².
    pub missing: f64,
}

/// As [`truncated_svd`]; calls `watch` with the progress after each pass over the matrix.
pub fn truncated_svd_watched(matrix: &Sparse, rank: usize, watch: &mut dyn FnMut(Search)) -> Svd {
    solve(matrix, rank, BLOCKS, watch)
}

fn solve(matrix: &Sparse, rank: usize, blocks: usize, watch: &mut dyn FnMut(Search)) -> Svd {
    let turned = matrix.transposed();
    if matrix.columns() <= matrix.rows() {
        let basis = search(matrix, &turned, rank, blocks, watch);
        finish(matrix, &turned, basis, rank)
    } else {
        let basis = search(&turned, matrix, rank, blocks, watch);
        let mut svd = finish(&turned, matrix, basis, rank);
        std::mem::swap(&mut svd.left, &mut svd.right);
        fix_signs(&mut svd);
        svd
    }
}

/// An orthonormal basis in blocks, and its image under the matrix.
#[derive(Default)]
struct Basis {
    blocks: Vec<Matrix>,
    images: Vec<Matrix>,
}

impl Basis {
    fn size(&self) -> usize {
        self.blocks.iter().map(Matrix::columns).sum()
    }

    /// Removes from a block all that lies in the basis.
    fn project_out(&self, block: &mut Matrix) {
        for known in &self.blocks {
            let shares = known.transposed_times(block);
            block.add_product(-1.0, known, &shares);
        }
    }

    /// The part of a block outside the basis, orthonormal; directions shorter than `nothing` are
    /// left out.
    fn outside(&self, mut block: Matrix, nothing: f64) -> Matrix {
        self.project_out(&mut block);
        self.project_out(&mut block);
        let (mut block, mut shrunk) = orthonormal(&block, nothing);
        // A vector that has lost most of its length may no longer be orthogonal to the basis.
        while shrunk && block.columns() > 0 {
            self.project_out(&mut block);
            (block, shrunk) = orthonormal(&block, 1e-3);
        }
        block
    }

    fn push(&mut self, matrix: &Sparse, block: Matrix) {
        self.images.push(matrix.times(&block));
        self.blocks.push(block);
    }

    /// The products of all images with each other.
    fn gram(&self) -> Matrix {
        let size = self.size();
        let mut gram = Matrix::zeros(size, size);
        let mut row = 0;
        for (at, left) in self.images.iter().enumerate() {
            let mut column = row;
            for right in &self.images[at..] {
                let product = left.transposed_times(right);
                for i in 0..product.rows() {
                    for j in 0..product.columns() {
                        gram.row_mut(row + i)[column + j] = product.get(i, j);
                        gram.row_mut(column + j)[row + i] = product.get(i, j);
                    }
                }
                column += right.columns();
            }
            row += left.columns();
        }
        gram
    }

    /// The combinations of the basis and of its image by the first `keep` rows of `shares`.
    fn combined(&self, shares: &Matrix, keep: usize) -> (Matrix, Matrix) {
        let mut block = Matrix::zeros(self.blocks[0].rows(), keep);
        let mut image = Matrix::zeros(self.images[0].rows(), keep);
        let mut from = 0;
        for (part, part_image) in self.blocks.iter().zip(&self.images) {
            let mut factors = Matrix::zeros(part.columns(), keep);
            for i in 0..part.columns() {
                for (j, factor) in factors.row_mut(i).iter_mut().enumerate() {
                    *factor = shares.get(j, from + i);
                }
            }
            block.add_product(1.0, part, &factors);
            image.add_product(1.0, part_image, &factors);
            from += part.columns();
        }
        (block, image)
    }
}

/// Finds an orthonormal block that holds the right singular vectors of `matrix`, which has at least
/// as many rows as columns.
fn search(
    matrix: &Sparse,
    turned: &Sparse,
    rank: usize,
    blocks: usize,
    watch: &mut dyn FnMut(Search),
) -> Matrix {
    let size = matrix.columns();
    let width = (rank + SPARE).next_multiple_of(4);
    let most = width * blocks;
    let mut basis = Basis::default();
    if size <= most {
        // Everything: no need to search.
        basis.push(matrix, Matrix::identity(size));
    } else {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let mut start = Matrix::zeros(size, width);
        for row in 0..size {
            let entries = start.row_mut(row).iter_mut();
            entries.for_each(|entry| *entry = rng.random::<f64>() - 0.5);
        }
        let start = basis.outside(start, 0.0);
        basis.push(matrix, start);
    }
    // The square of the largest singular value, from below.
    let mut largest = 0.0_f64;
    let mut next = |basis: &Basis| {
        let next = turned.times(&basis.images[basis.images.len() - 1]);
        largest = column_lengths(&next).into_iter().fold(largest, f64::max);
        basis.outside(next, 1e-14 * largest)
    };
    let mut restarts = 0;
    let (mut passes, mut missing) = (0, f64::INFINITY);
    loop {
        let mut block = Matrix::zeros(size, 0);
        while basis.size() < size {
            block = next(&basis);
            passes += 1;
            watch(Search { passes, missing });
            if block.columns() == 0 || basis.size() + width > most {
                break;
            }
            basis.push(matrix, block);
            block = Matrix::zeros(size, 0);
        }
        let shares = eigenvectors(&basis.gram());
        let wanted = basis.combined(&shares, width.min(basis.size()));
        let found;
        (found, missing) = is_found(turned, &wanted, rank);
        if block.columns() == 0 || restarts == MAX_RESTARTS || found {
            return wanted.0;
        }
        // More vectors are kept than are wanted: those near them would else have to be found again.
        let (kept, image) = basis.combined(&shares, (most / 2).min(basis.size()));
        basis = Basis {
            blocks: vec![kept],
            images: vec![image],
        };
        basis.push(matrix, block);
        restarts += 1;
    }
}

/// True if the first `rank` columns of a block and its image are singular vectors, and the error of the
/// worst.
fn is_found(turned: &Sparse, (block, image): &(Matrix, Matrix), rank: usize) -> (bool, f64) {
    let lengths = column_lengths(image);
    let longest = lengths.iter().copied().fold(0.0, f64::max);
    let misses = column_lengths(&misses(turned, block, image, &lengths));
    let counted = || {
        let pairs = misses.iter().zip(&lengths).take(rank);
        pairs.filter(|(_, length)| **length > f64::EPSILON * longest)
    };
    let found = counted().all(|(miss, length)| {
        let rounding = 8.0 * f64::EPSILON * longest / length;
        *miss <= TOLERANCE.max(rounding) * longest
    });
    let worst = counted().map(|(miss, _)| *miss).fold(0.0, f64::max);
    (found, if longest > 0.0 { worst / longest } else { 0.0 })
}

/// The difference between σv and Aᵀu in each column, `image` being σu and `block` v.
fn misses(turned: &Sparse, block: &Matrix, image: &Matrix, lengths: &[f64]) -> Matrix {
    let mut misses = turned.times(image);
    for row in 0..misses.rows() {
        let entries = misses.row_mut(row).iter_mut();
        for ((miss, &v), &length) in entries.zip(block.row(row)).zip(lengths) {
            *miss = if length > 0.0 {
                (*miss - length * length * v) / length
            } else {
                0.0
            };
        }
    }
    misses
}

fn column_lengths(matrix: &Matrix) -> Vec<f64> {
    let mut squares = vec![0.0; matrix.columns()];
    for row in 0..matrix.rows() {
        for (square, value) in squares.iter_mut().zip(matrix.row(row)) {
            *square += value * value;
        }
    }
    squares.into_iter().map(f64::sqrt).collect()
}

/// The columns made orthonormal one by one, without those shorter than `nothing`; and whether any
/// has lost most of its length on the way.
fn orthonormal(block: &Matrix, nothing: f64) -> (Matrix, bool) {
    let mut done: Vec<Vec<f64>> = Vec::new();
    let mut shrunk = false;
    for mut column in block.to_columns() {
        let before = dot(&column, &column).sqrt();
        for _ in 0..2 {
            for other in &done {
                let share = dot(other, &column);
                column
                    .iter_mut()
                    .zip(other)
                    .for_each(|(c, o)| *c -= share * o);
            }
        }
        let length = dot(&column, &column).sqrt();
        if length > nothing {
            shrunk |= length < 0.1 * before;
            column.iter_mut().for_each(|value| *value /= length);
            done.push(column);
        }
    }
    (Matrix::from_columns(block.rows(), &done), shrunk)
}

/// From a basis of the right singular vectors to the triplets.
///
/// Rotations make the images of the basis orthogonal to each other (one-sided Jacobi), which finds
/// small singular values as precisely as large ones.
fn finish(matrix: &Sparse, turned: &Sparse, basis: Matrix, rank: usize) -> Svd {
    let mut images = matrix.times(&basis).to_columns();
    let mut vectors = basis.to_columns();
    rotate_apart(&mut images, &mut vectors);
    let lengths: Vec<f64> = images
        .iter()
        .map(|image| dot(image, image).sqrt())
        .collect();
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by(|&a, &b| lengths[b].total_cmp(&lengths[a]));

    let longest = order.first().map_or(0.0, |&at| lengths[at]);
    let nothing = longest * f64::EPSILON * matrix.rows().max(matrix.columns()) as f64;
    let (mut left, mut values, mut right) = (Vec::new(), Vec::new(), Vec::new());
    for place in 0..rank {
        match order.get(place).filter(|&&at| lengths[at] > nothing) {
            Some(&at) => {
                values.push(lengths[at]);
                left.push(images[at].iter().map(|value| value / lengths[at]).collect());
                right.push(std::mem::take(&mut vectors[at]));
            }
            None => {
                values.push(0.0);
                left.push(vec![0.0; matrix.rows()]);
                right.push(vec![0.0; matrix.columns()]);
            }
        }
    }
    let left = Matrix::from_columns(matrix.rows(), &left);
    let right = Matrix::from_columns(matrix.columns(), &right);
    let mut missing = turned.times(&left);
    for row in 0..missing.rows() {
        let entries = missing.row_mut(row).iter_mut();
        for ((miss, v), value) in entries.zip(right.row(row)).zip(&values) {
            *miss -= value * v;
        }
    }
    let most = column_lengths(&missing).into_iter().fold(0.0, f64::max);
    let residual = if longest > 0.0 { most / longest } else { 0.0 };
    let mut svd = Svd {
        left,
        values,
        right,
        residual,
    };
    fix_signs(&mut svd);
    svd
}

/// Rotates pairs of images until all are orthogonal, and the vectors with them.
fn rotate_apart(images: &mut [Vec<f64>], vectors: &mut [Vec<f64>]) {
    const MAX_SWEEPS: usize = 40;
    for _ in 0..MAX_SWEEPS {
        let mut apart = true;
        for second in 1..images.len() {
            for first in 0..second {
                let a = dot(&images[first], &images[first]);
                let b = dot(&images[second], &images[second]);
                let c = dot(&images[first], &images[second]);
                if c.abs() <= 1e-15 * (a * b).sqrt() {
                    continue;
                }
                apart = false;
                let slope = (b - a) / (2.0 * c);
                let tangent = 1.0 / (slope + (slope * slope + 1.0).sqrt().copysign(slope));
                let cosine = 1.0 / (tangent * tangent + 1.0).sqrt();
                rotate(images, first, second, cosine, cosine * tangent);
                rotate(vectors, first, second, cosine, cosine * tangent);
            }
        }
        if apart {
            return;
        }
    }
}

fn rotate(columns: &mut [Vec<f64>], first: usize, second: usize, cosine: f64, sine: f64) {
    let (before, from) = columns.split_at_mut(second);
    for (x, y) in before[first].iter_mut().zip(&mut from[0]) {
        let old = *x;
        *x = cosine * old - sine * *y;
        *y = sine * old + cosine * *y;
    }
}

/// Makes the largest entry of each left vector positive; among entries of the same magnitude, but
/// for rounding, the first.
fn fix_signs(svd: &mut Svd) {
    for column in 0..svd.values.len() {
        let entries = || (0..svd.left.rows()).map(|row| svd.left.get(row, column));
        let most = entries().fold(0.0_f64, |most, value| most.max(value.abs()));
        let first = entries().find(|value| value.abs() >= most * (1.0 - 1e-6));
        if first.is_some_and(|value| value < 0.0) {
            for side in [&mut svd.left, &mut svd.right] {
                for row in 0..side.rows() {
                    side.row_mut(row)[column] *= -1.0;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
