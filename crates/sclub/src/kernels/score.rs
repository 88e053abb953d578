//! Means and norms of many items at once.

use pulp::{Simd, WithSimd};

/// θ̂ᵀx into `mean` and xᵀS⁻¹x into `norm` for items that stand side by side.
///
/// `items[k * width + lane]` is feature k of the item in `lane`; `width` is the length of `mean` and
/// of `norm`, a multiple of [`super::LANES`]. With S⁻¹ = Mᵀ diag(g) M as in [`super::lanes`]: z = M x
/// row by row, then xᵀS⁻¹x = Σ g z². That is half the multiplications of a product with S⁻¹, and the
/// sum is never negative.
pub(crate) struct Scoring<'a> {
    pub factor: &'a [f64],
    pub scale: &'a [f64],
    pub estimate: &'a [f64],
    pub items: &'a [f64],
    pub mean: &'a mut [f64],
    pub norm: &'a mut [f64],
}

impl WithSimd for Scoring<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (items, _) = S::as_simd_f64s(self.items);
        let (mean, _) = S::as_mut_simd_f64s(self.mean);
        let (norm, _) = S::as_mut_simd_f64s(self.norm);
        let width = mean.len();
        let matrix = Matrix {
            factor: self.factor,
            scale: self.scale,
            estimate: self.estimate,
        };
        let mut at = 0;
        while at < width {
            match width - at {
                1 => matrix.strip::<S, 1>(simd, items, width, at, mean, norm),
                2 => matrix.strip::<S, 2>(simd, items, width, at, mean, norm),
                3 => matrix.strip::<S, 3>(simd, items, width, at, mean, norm),
                4 => matrix.strip::<S, 4>(simd, items, width, at, mean, norm),
                _ => matrix.strip::<S, 3>(simd, items, width, at, mean, norm),
            }
            at += if width - at == 4 { 4 } else { 3 };
        }
    }
}

struct Matrix<'a> {
    factor: &'a [f64],
    scale: &'a [f64],
    estimate: &'a [f64],
}

/// Some registers of items, and their partial sums.
struct Strip<'a, S: Simd, const C: usize> {
    simd: S,
    items: &'a [S::f64s],
    /// Registers in a row of `items`.
    width: usize,
    /// The first register of the strip.
    at: usize,
    mean: [S::f64s; C],
    norm: [S::f64s; C],
}

impl<S: Simd, const C: usize> Strip<'_, S, C> {
    #[inline(always)]
    fn feature(&self, k: usize) -> &[S::f64s; C] {
        let start = k * self.width + self.at;
        self.items[start..start + C]
            .try_into()
            .expect("C registers")
    }

    /// Adds the contribution of rows i to i + R of M; their entries begin at `start`.
    #[inline(always)]
    fn add_rows<const R: usize>(&mut self, matrix: &Matrix<'_>, i: usize, start: usize) {
        let simd = self.simd;
        let mut row_start = start;
        let rows: [&[f64]; R] = std::array::from_fn(|r| {
            let row = &matrix.factor[row_start..row_start + i + r];
            row_start += i + r;
            row
        });
        let heads: [&[f64]; R] = std::array::from_fn(|r| &rows[r][..i]);
        let mut z: [[S::f64s; C]; R] = std::array::from_fn(|r| *self.feature(i + r));
        for k in 0..i {
            let x = *self.feature(k);
            for r in 0..R {
                let m = simd.splat_f64s(heads[r][k]);
                for c in 0..C {
                    z[r][c] = simd.mul_add_f64s(m, x[c], z[r][c]);
                }
            }
        }
        for r in 0..R {
            let x = *self.feature(i + r);
            for later in r + 1..R {
                let m = simd.splat_f64s(rows[later][i + r]);
                for c in 0..C {
                    z[later][c] = simd.mul_add_f64s(m, x[c], z[later][c]);
                }
            }
            let scale = simd.splat_f64s(matrix.scale[i + r]);
            let weight = simd.splat_f64s(matrix.estimate[i + r]);
            for c in 0..C {
                let scaled = simd.mul_f64s(scale, z[r][c]);
                self.norm[c] = simd.mul_add_f64s(scaled, z[r][c], self.norm[c]);
                self.mean[c] = simd.mul_add_f64s(weight, x[c], self.mean[c]);
            }
        }
    }
}

impl Matrix<'_> {
    /// `C` registers of items from register `at` on, several rows of M at a time. How many does not
    /// change the order in which a lane is summed.
    #[inline(always)]
    fn strip<S: Simd, const C: usize>(
        &self,
        simd: S,
        items: &[S::f64s],
        width: usize,
        at: usize,
        mean: &mut [S::f64s],
        norm: &mut [S::f64s],
    ) {
        let dim = self.estimate.len();
        let zeros = [simd.splat_f64s(0.0); C];
        let mut strip = Strip {
            simd,
            items,
            width,
            at,
            mean: zeros,
            norm: zeros,
        };
        let mut start = 0;
        let mut i = 0;
        if S::REGISTER_COUNT >= 32 {
            while i + 4 <= dim {
                strip.add_rows::<4>(self, i, start);
                start += 4 * i + 6;
                i += 4;
            }
        }
        while i + 2 <= dim {
            strip.add_rows::<2>(self, i, start);
            start += 2 * i + 1;
            i += 2;
        }
        if i < dim {
            strip.add_rows::<1>(self, i, start);
        }
        mean[at..at + C].copy_from_slice(&strip.mean);
        norm[at..at + C].copy_from_slice(&strip.norm);
    }
}
