//! Tests of one user against many: distances, and fits to the sums of pairs.

use pulp::{Simd, WithSimd};

use super::lanes::{LANES, Lanes};

/// Squared distances from `centre` to the points of a group of `out.len()` lanes.
#[inline(always)]
pub(super) fn distances(centre: &[f64], points: &[f64], out: &mut [f64]) {
    out.fill(0.0);
    let lanes = out.len();
    for (row, &middle) in points.chunks_exact(lanes).zip(centre) {
        for (sum, x) in out.iter_mut().zip(row) {
            let gap = x - middle;
            *sum = gap.mul_add(gap, *sum);
        }
    }
}

/// Fits to the sums of pairs of users: [`energies`].
#[derive(Debug, Clone)]
pub(crate) struct Energies {
    /// G, then its factor, and b below it; a lane for each pair.
    work: Vec<Lanes>,
    /// 1/D of G = L D Lᵀ
    inverse: Vec<Lanes>,
    /// bᵀG⁻¹b
    pub energy: Lanes,
}

impl Energies {
    pub fn new(dim: usize) -> Self {
        Self {
            work: vec![[0.0; LANES]; dim * (dim + 1) / 2 + dim],
            inverse: vec![[0.0; LANES]; dim],
            energy: [0.0; LANES],
        }
    }
}

/// bᵀG⁻¹b for (G, b) = `own` + each of up to [`LANES`] rows. A row is G, lower triangle packed, then b. Lanes
/// without a row repeat the first. G is positive definite; a pivot that rounding makes negative is skipped.
#[inline(always)]
pub(super) fn energies(dim: usize, own: &[f64], rows: &[&[f64]], out: &mut Energies) {
    let size = dim * (dim + 1) / 2 + dim;
    let own = &own[..size];
    let rows: [&[f64]; LANES] =
        std::array::from_fn(|l| &rows[if l < rows.len() { l } else { 0 }][..size]);
    let work = &mut out.work[..size];
    for (t, lanes) in work.iter_mut().enumerate() {
        for l in 0..LANES {
            lanes[l] = own[t] + rows[l][t];
        }
    }
    let mut start = 0;
    // The last row is b.
    for i in 0..=dim {
        let (done, rest) = work.split_at_mut(start);
        let width = i.min(dim - 1) + 1;
        let row = &mut rest[..width];
        // First row[k] holds L_ik D_k, found by forward substitution; then it is scaled to L_ik.
        let mut above = 0;
        for k in 0..i {
            let mut sum = row[k];
            for (l_km, x) in done[above..above + k].iter().zip(&row[..k]) {
                for l in 0..LANES {
                    sum[l] = (-l_km[l]).mul_add(x[l], sum[l]);
                }
            }
            row[k] = sum;
            above += k + 1;
        }
        let mut explained = [0.0; LANES];
        for (x, inverse) in row[..i].iter_mut().zip(&out.inverse) {
            for l in 0..LANES {
                let scaled = x[l] * inverse[l];
                explained[l] = scaled.mul_add(x[l], explained[l]);
                x[l] = scaled;
            }
        }
        if i == dim {
            out.energy = explained;
            return;
        }
        for l in 0..LANES {
            let pivot = row[i][l] - explained[l];
            out.inverse[i][l] = if pivot > 0.0 { 1.0 / pivot } else { 0.0 };
        }
        start += i + 1;
    }
}

/// Adds Σ n |eᵀz| over the items e with their counts n, for each z of a group of `out.len()` lanes, a multiple of
/// [`LANES`].
pub(crate) struct Overlaps<'a> {
    pub items: &'a [f64],
    pub counts: &'a [u64],
    pub images: &'a [f64],
    pub out: &'a mut [f64],
}

impl WithSimd for Overlaps<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        /// Items whose sums stay in registers.
        const ITEMS: usize = 8;
        let (images, _) = S::as_simd_f64s(self.images);
        let (out, _) = S::as_mut_simd_f64s(self.out);
        let (width, dim) = (out.len(), self.items.len() / self.counts.len().max(1));
        for (at, total) in out.iter_mut().enumerate() {
            let items = self.items.chunks(ITEMS * dim.max(1));
            for (counts, items) in self.counts.chunks(ITEMS).zip(items) {
                // The last item stands in for those that are missing, and is not counted.
                let items: [&[f64]; ITEMS] =
                    std::array::from_fn(|item| &items[item.min(counts.len() - 1) * dim..][..dim]);
                let mut sums = [simd.splat_f64s(0.0); ITEMS];
                for k in 0..dim {
                    let z = images[k * width + at];
                    for item in 0..ITEMS {
                        let x = simd.splat_f64s(items[item][k]);
                        sums[item] = simd.mul_add_f64s(x, z, sums[item]);
                    }
                }
                for (sum, &count) in sums.into_iter().zip(counts) {
                    let count = simd.splat_f64s(count as f64);
                    *total = simd.mul_add_f64s(count, simd.abs_f64s(sum), *total);
                }
            }
        }
    }
}

/// M x for each x of a group of `lanes` lanes, M given row by row.
#[inline(always)]
pub(super) fn images(dim: usize, matrix: &[f64], items: &[f64], lanes: usize, out: &mut [f64]) {
    for (row, target) in matrix.chunks_exact(dim).zip(out.chunks_exact_mut(lanes)) {
        target.fill(0.0);
        for (&weight, x) in row.iter().zip(items.chunks_exact(lanes)) {
            for (sum, x) in target.iter_mut().zip(x) {
                *sum = weight.mul_add(*x, *sum);
            }
        }
    }
}
