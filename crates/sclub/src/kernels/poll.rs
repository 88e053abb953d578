//! The agreement of one user with another about many items.

use pulp::{Simd, WithSimd};

use super::Scoring;

/// Adds a user's mean and width to the sums of those items about which they agree with the user who is served:
/// |mean − own mean| ≤ width + own width. The width is `weight` √(xᵀS⁻¹x), or `weight` xᵀS⁻¹x if `is_squared`.
///
/// All slices but those of `scoring` are as long as its `mean`; `scoring.norm` holds the widths afterwards.
pub(crate) struct Poll<'a> {
    pub scoring: Scoring<'a>,
    pub weight: f64,
    pub is_squared: bool,
    pub own_mean: &'a [f64],
    pub own_width: &'a [f64],
    pub users: &'a mut [f64],
    pub means: &'a mut [f64],
    pub widths: &'a mut [f64],
}

impl WithSimd for Poll<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Scoring {
            factor,
            scale,
            estimate,
            items,
            mean,
            norm,
        } = self.scoring;
        Scoring {
            factor,
            scale,
            estimate,
            items,
            mean: &mut *mean,
            norm: &mut *norm,
        }
        .with_simd(simd);
        let lanes = mean.len();
        let (mean, width) = (&mean[..lanes], &mut norm[..lanes]);
        let (own_mean, own_width) = (&self.own_mean[..lanes], &self.own_width[..lanes]);
        let (users, means) = (&mut self.users[..lanes], &mut self.means[..lanes]);
        let widths = &mut self.widths[..lanes];
        for lane in 0..lanes {
            let root = width[lane].sqrt();
            width[lane] = self.weight * if self.is_squared { width[lane] } else { root };
            let gap = (mean[lane] - own_mean[lane]).abs();
            let agrees = gap <= width[lane] + own_width[lane];
            users[lane] += if agrees { 1.0 } else { 0.0 };
            means[lane] += if agrees { mean[lane] } else { 0.0 };
            widths[lane] += if agrees { width[lane] } else { 0.0 };
        }
    }
}
