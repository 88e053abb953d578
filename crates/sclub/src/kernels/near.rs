//! A search among many points for those that may be close to another.

use pulp::{Simd, WithSimd, bytemuck};

/// Points side by side.
pub(crate) const POINTS: usize = 16;
/// Coordinates of a point.
pub(crate) const AXES: usize = 8;
/// Coordinates after which most points are out of reach: only those of all points are read.
pub(crate) const HALF: usize = AXES / 2;

/// Finds the points within `reach` plus their own reach of `query`, in single precision.
///
/// `near_axes` and `far_axes` hold the first and the second half of the coordinates, in groups of
/// [`POINTS`] points, axis by axis; places without a point are infinitely far away. The numbers of
/// the points found replace the contents of `found`.
pub(crate) struct Near<'a> {
    pub query: &'a [f32; AXES],
    pub reach: f32,
    pub near_axes: &'a [f32],
    pub far_axes: &'a [f32],
    pub reaches: &'a [f32],
    pub found: &'a mut Vec<u32>,
}

impl WithSimd for Near<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Near {
            query,
            reach,
            near_axes,
            far_axes,
            reaches,
            found,
        } = self;
        let (near_axes, _) = S::as_simd_f32s(near_axes);
        let (far_axes, _) = S::as_simd_f32s(far_axes);
        let (reaches, _) = S::as_simd_f32s(reaches);
        // Registers in a group of points.
        let width = POINTS / S::F32_LANES;
        let mut centre = [simd.splat_f32s(0.0); AXES];
        for a in 0..AXES {
            centre[a] = simd.splat_f32s(query[a]);
        }
        let own_reach = simd.splat_f32s(reach);

        // The registers with some point in reach on half of the axes. Which ones cannot be
        // predicted, so they are listed without a branch.
        found.clear();
        found.resize(reaches.len(), 0);
        let list = found.as_mut_slice();
        let mut some = 0;
        let groups = near_axes
            .chunks_exact(width * HALF)
            .zip(reaches.chunks_exact(width));
        for (group, (axes, reaches)) in groups.enumerate() {
            for r in 0..width {
                let mut distance = simd.splat_f32s(0.0);
                for a in 0..HALF {
                    let gap = simd.sub_f32s(axes[a * width + r], centre[a]);
                    distance = simd.mul_add_f32s(gap, gap, distance);
                }
                let within = simd.add_f32s(own_reach, reaches[r]);
                let hits = simd.less_than_or_equal_f32s(distance, simd.mul_f32s(within, within));
                list[some] = (group * width + r) as u32;
                some += usize::from(simd.first_true_m32s(hits) < S::F32_LANES);
            }
        }

        // The points in reach on all of the axes.
        for listed in 0..some {
            let at = found[listed] as usize;
            let start = at / width * width * HALF + at % width;
            let mut distance = simd.splat_f32s(0.0);
            for (half, centre) in [near_axes, far_axes].iter().zip(centre.chunks_exact(HALF)) {
                for a in 0..HALF {
                    let gap = simd.sub_f32s(half[start + a * width], centre[a]);
                    distance = simd.mul_add_f32s(gap, gap, distance);
                }
            }
            let within = simd.add_f32s(own_reach, reaches[at]);
            let limit = simd.mul_f32s(within, within);
            let hits = simd.less_than_or_equal_f32s(distance, limit);
            if simd.first_true_m32s(hits) == S::F32_LANES {
                continue;
            }
            let beyond = [simd.sub_f32s(distance, limit)];
            for (lane, &beyond) in bytemuck::cast_slice::<_, f32>(&beyond).iter().enumerate() {
                if beyond <= 0.0 {
                    found.push((at * S::F32_LANES + lane) as u32);
                }
            }
        }
        found.drain(..reaches.len());
    }
}
