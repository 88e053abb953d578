//! Means and lengths of many items at once.

use pulp::{Simd, WithSimd};

/// θ̂ᵀx into `mean` and xᵀx into `norm` for items that stand side by side, laid out as for
/// [`super::Scoring`]. A mean has the bits that scoring gives it, and where S = I a norm has too:
/// each lane is summed in the same order.
pub(crate) struct Lengths<'a> {
    pub estimate: &'a [f64],
    pub items: &'a [f64],
    pub mean: &'a mut [f64],
    pub norm: &'a mut [f64],
}

impl WithSimd for Lengths<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (items, _) = S::as_simd_f64s(self.items);
        let (mean, _) = S::as_mut_simd_f64s(self.mean);
        let (norm, _) = S::as_mut_simd_f64s(self.norm);
        let width = mean.len();
        let weights = self.estimate;
        let mut at = 0;
        while at + 4 <= width {
            strip::<S, 4>(simd, weights, items, width, at, mean, norm);
            at += 4;
        }
        while at < width {
            strip::<S, 1>(simd, weights, items, width, at, mean, norm);
            at += 1;
        }
    }
}

/// `C` registers of items from register `at` on.
#[inline(always)]
fn strip<S: Simd, const C: usize>(
    simd: S,
    weights: &[f64],
    items: &[S::f64s],
    width: usize,
    at: usize,
    mean: &mut [S::f64s],
    norm: &mut [S::f64s],
) {
    let mut means = [simd.splat_f64s(0.0); C];
    let mut norms = means;
    for (row, &weight) in items.chunks_exact(width).zip(weights) {
        let x: &[S::f64s; C] = row[at..at + C].try_into().expect("C registers");
        let weight = simd.splat_f64s(weight);
        for c in 0..C {
            means[c] = simd.mul_add_f64s(weight, x[c], means[c]);
            norms[c] = simd.mul_add_f64s(x[c], x[c], norms[c]);
        }
    }
    mean[at..at + C].copy_from_slice(&means);
    norm[at..at + C].copy_from_slice(&norms);
}
