//! Posteriors of several users at once, one user in each lane.
//!
//! A user's sums are a *row*: G = Σ x xᵀ (lower triangle packed by rows), then b = Σ y x, then
//! other sums. With a Gaussian prior N(μ, C) and noise of variance v the user's posterior has the
//! precision Λ = C⁻¹ + G/v and the mean Λ⁻¹ r, r = C⁻¹μ + b/v. Lanes do not depend on each other, so
//! a user's bits are the same whichever users are in the other lanes.

use pulp::{Simd, WithSimd};

use super::lanes::{LANES, Lanes};

/// A Gaussian prior as a batch needs it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prior<'a> {
    /// C⁻¹, lower triangle packed by rows.
    pub precision: &'a [f64],
    /// C⁻¹μ
    pub pull: &'a [f64],
    /// 1/v
    pub inverse_noise: f64,
}

/// Memory for the posteriors of [`LANES`] users.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    /// Λ, then its unit lower triangular factor L: Λ = L diag(1/scale) Lᵀ.
    lower: Vec<Lanes>,
    /// M = L⁻¹, packed by rows without the diagonal.
    pub factor: Vec<Lanes>,
    /// Λ⁻¹ = Mᵀ diag(scale) M
    pub scale: Vec<Lanes>,
    /// r
    pub pull: Vec<Lanes>,
    /// Λ⁻¹ r
    pub mean: Vec<Lanes>,
    /// rᵀ Λ⁻¹ r
    pub fit: Lanes,
    /// Set by [`AddMoments`].
    pub residual: Lanes,
}

impl Batch {
    pub fn new(dim: usize) -> Self {
        let triangle = dim * (dim - 1) / 2;
        Self {
            lower: vec![[0.0; LANES]; triangle + dim],
            factor: vec![[0.0; LANES]; triangle],
            scale: vec![[0.0; LANES]; dim],
            pull: vec![[0.0; LANES]; dim],
            mean: vec![[0.0; LANES]; dim],
            fit: [0.0; LANES],
            residual: [0.0; LANES],
        }
    }

    /// ln |Λ| of a lane. Four pivots at a time, unless their product leaves the range of numbers.
    pub fn log_determinant(&self, lane: usize) -> f64 {
        let log = |four: &[Lanes]| {
            let scales = four.iter().map(|scale| scale[lane]);
            let product: f64 = scales.clone().product();
            match product.is_normal() {
                true => libm::log(product),
                false => scales.map(libm::log).sum(),
            }
        };
        -self.scale.chunks(4).map(log).sum::<f64>()
    }
}

/// Sums over users of the moments of their posteriors.
#[derive(Debug, Clone)]
pub(crate) struct Moments {
    /// Σ Λ⁻¹ by lanes, lower triangle packed by rows.
    covariance: Vec<Lanes>,
    /// Σ (m − μ)(m − μ)ᵀ likewise.
    spread: Vec<Lanes>,
    /// Σ (m − μ)
    shift: Vec<Lanes>,
}

impl Moments {
    pub fn new(dim: usize) -> Self {
        let gram = dim * (dim + 1) / 2;
        Self {
            covariance: vec![[0.0; LANES]; gram],
            spread: vec![[0.0; LANES]; gram],
            shift: vec![[0.0; LANES]; dim],
        }
    }

    /// Adds the lanes up, onto the three sums.
    pub fn add_to(&self, covariance: &mut [f64], spread: &mut [f64], shift: &mut [f64]) {
        for (target, source) in [
            (covariance, &self.covariance),
            (spread, &self.spread),
            (shift, &self.shift),
        ] {
            for (sum, lanes) in target.iter_mut().zip(source) {
                *sum += lanes.iter().sum::<f64>();
            }
        }
    }
}

/// The arguments of [`posteriors`], which uses the widest registers available.
pub(crate) struct Posteriors<'a> {
    pub dim: usize,
    pub prior: Prior<'a>,
    /// The rows of up to [`LANES`] users.
    pub rows: &'a [&'a [f64]],
    pub batch: &'a mut Batch,
}

impl WithSimd for Posteriors<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        self.gather();
        let parts = LANES / S::F64_LANES;
        for part in 0..parts {
            Strip { simd, parts, part }.solve(self.dim, self.batch);
        }
    }
}

impl Posteriors<'_> {
    /// Λ and r of each lane. Lanes without a user repeat the first.
    #[inline(always)]
    fn gather(&mut self) {
        let (dim, prior) = (self.dim, self.prior);
        let gram = dim * (dim + 1) / 2;
        let rows: [&[f64]; LANES] = std::array::from_fn(|l| {
            &self.rows[if l < self.rows.len() { l } else { 0 }][..gram + dim]
        });
        let inverse = prior.inverse_noise;
        for t in 0..gram {
            for l in 0..LANES {
                self.batch.lower[t][l] = inverse.mul_add(rows[l][t], prior.precision[t]);
            }
        }
        for i in 0..dim {
            for l in 0..LANES {
                self.batch.pull[i][l] = inverse.mul_add(rows[l][gram + i], prior.pull[i]);
            }
        }
    }
}

/// Some of the lanes: as many as a register has.
#[derive(Clone, Copy)]
struct Strip<S: Simd> {
    simd: S,
    /// Registers that all lanes take, and which of them this is.
    parts: usize,
    part: usize,
}

impl<S: Simd> Strip<S> {
    #[inline(always)]
    fn at(self, i: usize) -> usize {
        i * self.parts + self.part
    }

    #[inline(always)]
    fn view(self, lanes: &[Lanes]) -> &[S::f64s] {
        S::as_simd_f64s(lanes.as_flattened()).0
    }

    #[inline(always)]
    fn view_mut(self, lanes: &mut [Lanes]) -> &mut [S::f64s] {
        S::as_mut_simd_f64s(lanes.as_flattened_mut()).0
    }

    /// `count` registers from `start` on.
    #[inline(always)]
    fn several(
        self,
        lanes: &[S::f64s],
        start: usize,
        count: usize,
    ) -> impl Iterator<Item = &S::f64s> {
        let lanes = &lanes[start * self.parts..(start + count) * self.parts];
        lanes
            .chunks_exact(self.parts)
            .map(move |one| &one[self.part])
    }

    #[inline(always)]
    fn several_mut(
        self,
        lanes: &mut [S::f64s],
        start: usize,
        count: usize,
    ) -> impl Iterator<Item = &mut S::f64s> {
        let lanes = &mut lanes[start * self.parts..(start + count) * self.parts];
        lanes
            .chunks_exact_mut(self.parts)
            .map(move |one| &mut one[self.part])
    }

    /// From Λ and r in the batch to everything else.
    #[inline(always)]
    fn solve(self, dim: usize, batch: &mut Batch) {
        let Strip { simd, .. } = self;
        let zero = simd.splat_f64s(0.0);
        let one = simd.splat_f64s(1.0);
        let lower = self.view_mut(&mut batch.lower);
        let scale = self.view_mut(&mut batch.scale);
        let mean = self.view_mut(&mut batch.mean);
        let factor = self.view_mut(&mut batch.factor);
        let pull = self.view(&batch.pull);

        // Λ = L D Lᵀ, column by column: the rest of the matrix loses what the column explains.
        let mut pivot_at = 0;
        for k in 0..dim {
            let inverse = simd.div_f64s(one, lower[self.at(pivot_at)]);
            scale[self.at(k)] = inverse;
            let mut start = pivot_at + 1;
            for i in k + 1..dim {
                let own = lower[self.at(start + k)];
                mean[self.at(i)] = own;
                let weight = simd.mul_f64s(own, inverse);
                lower[self.at(start + k)] = weight;
                let weight = simd.neg_f64s(weight);
                let row = self.several_mut(lower, start + k + 1, i - k);
                for (x, column) in row.zip(self.several(mean, k + 1, i - k)) {
                    *x = simd.mul_add_f64s(weight, *column, *x);
                }
                start += i + 1;
            }
            pivot_at += k + 2;
        }

        // M = L⁻¹
        let (mut start, mut lower_start) = (0, 0);
        for i in 0..dim {
            for k in 0..i {
                factor[self.at(start + k)] = zero;
            }
            let mut above = 0;
            for k in 0..i {
                let weight = simd.neg_f64s(lower[self.at(lower_start + k)]);
                let (done, rest) = factor.split_at_mut(start * self.parts);
                for (x, m) in self
                    .several_mut(rest, 0, k)
                    .zip(self.several(done, above, k))
                {
                    *x = simd.mul_add_f64s(weight, *m, *x);
                }
                let at = self.at(start + k);
                factor[at] = simd.add_f64s(factor[at], weight);
                above += k;
            }
            start += i;
            lower_start += i + 1;
        }

        // mean = Mᵀ diag(scale) M r
        let mut fit = zero;
        for i in 0..dim {
            mean[self.at(i)] = zero;
        }
        start = 0;
        for i in 0..dim {
            let mut z = pull[self.at(i)];
            for k in 0..i {
                z = simd.mul_add_f64s(factor[self.at(start + k)], pull[self.at(k)], z);
            }
            let scaled = simd.mul_f64s(z, scale[self.at(i)]);
            fit = simd.mul_add_f64s(scaled, z, fit);
            for k in 0..i {
                let at = self.at(k);
                mean[at] = simd.mul_add_f64s(scaled, factor[self.at(start + k)], mean[at]);
            }
            let at = self.at(i);
            mean[at] = simd.add_f64s(mean[at], scaled);
            start += i;
        }
        self.view_mut(std::slice::from_mut(&mut batch.fit))[self.part] = fit;
    }
}

/// Adds the covariances P and the means about μ of some users to sums, and sets the batch's
/// `residual` to the unexplained part of their rewards, E‖y − Xθ‖² − Σy² in units of v:
/// −2mᵀb/v + mᵀGm/v + tr(GP)/v. Overwrites `batch.pull` and `batch.lower`.
pub(crate) struct AddMoments<'a> {
    pub dim: usize,
    pub prior: Prior<'a>,
    /// μ
    pub centre: &'a [f64],
    pub batch: &'a mut Batch,
    /// Users in the batch.
    pub users: usize,
    pub sums: &'a mut Moments,
}

impl WithSimd for AddMoments<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let parts = LANES / S::F64_LANES;
        for part in 0..parts {
            self.add(Strip { simd, parts, part });
        }
    }
}

impl AddMoments<'_> {
    #[inline(always)]
    fn add<S: Simd>(&mut self, strip: Strip<S>) {
        let Strip { simd, part, .. } = strip;
        let (dim, prior) = (self.dim, self.prior);
        let valid: Lanes = std::array::from_fn(|l| f64::from(u8::from(l < self.users)));
        let valid = strip.view(std::slice::from_ref(&valid))[part];
        let zero = simd.splat_f64s(0.0);
        let batch = &mut *self.batch;
        let covariance = strip.view_mut(&mut batch.lower);
        let factor = strip.view(&batch.factor);
        let scales = strip.view(&batch.scale);
        let mean = strip.view(&batch.mean);
        let pull = strip.view_mut(&mut batch.pull);
        let sum_covariance = strip.view_mut(&mut self.sums.covariance);
        let sum_spread = strip.view_mut(&mut self.sums.spread);
        let sum_shift = strip.view_mut(&mut self.sums.shift);

        // P = Mᵀ diag(scale) M
        for t in 0..dim * (dim + 1) / 2 {
            covariance[strip.at(t)] = zero;
        }
        let mut start = 0;
        for k in 0..dim {
            let scale = scales[strip.at(k)];
            let mut gram = 0;
            for i in 0..k {
                let weight = simd.mul_f64s(scale, factor[strip.at(start + i)]);
                let row = strip.several_mut(covariance, gram, i + 1);
                for (p, m) in row.zip(strip.several(factor, start, i + 1)) {
                    *p = simd.mul_add_f64s(weight, *m, *p);
                }
                gram += i + 1;
            }
            for j in 0..k {
                let at = strip.at(gram + j);
                covariance[at] =
                    simd.mul_add_f64s(scale, factor[strip.at(start + j)], covariance[at]);
            }
            let at = strip.at(gram + k);
            covariance[at] = simd.add_f64s(covariance[at], scale);
            start += k;
        }

        // tr(GP)/v = d − tr(C⁻¹P), and mᵀGm/v = rᵀm − mᵀC⁻¹m.
        let fit = strip.view(std::slice::from_ref(&batch.fit))[part];
        let mut residual = simd.add_f64s(fit, simd.splat_f64s(dim as f64));
        let mut gram = 0;
        for i in 0..dim {
            let m = mean[strip.at(i)];
            for j in 0..=i {
                let weight = if i == j { -1.0 } else { -2.0 } * prior.precision[gram + j];
                let own = covariance[strip.at(gram + j)];
                let both = simd.mul_add_f64s(m, mean[strip.at(j)], own);
                residual = simd.mul_add_f64s(simd.splat_f64s(weight), both, residual);
                let at = strip.at(gram + j);
                sum_covariance[at] = simd.mul_add_f64s(valid, own, sum_covariance[at]);
            }
            let moment = simd.sub_f64s(pull[strip.at(i)], simd.splat_f64s(prior.pull[i]));
            let twice = simd.mul_f64s(simd.splat_f64s(-2.0), m);
            residual = simd.mul_add_f64s(twice, moment, residual);
            gram += i + 1;
        }
        strip.view_mut(std::slice::from_mut(&mut batch.residual))[part] = residual;

        gram = 0;
        for i in 0..dim {
            let shift = simd.sub_f64s(mean[strip.at(i)], simd.splat_f64s(self.centre[i]));
            let shift = simd.mul_f64s(shift, valid);
            let at = strip.at(i);
            sum_shift[at] = simd.add_f64s(sum_shift[at], shift);
            pull[at] = shift;
            let row = strip.several_mut(sum_spread, gram, i + 1);
            for (sum, other) in row.zip(strip.several(pull, 0, i + 1)) {
                *sum = simd.mul_add_f64s(shift, *other, *sum);
            }
            gram += i + 1;
        }
    }
}

/// The inner products of four rows with each of several vectors of coefficients. Those lie with
/// the vectors in the lanes: `coefficients[t * width + k]` belongs to entry t of a row and vector k,
/// `width` being a multiple of [`LANES`]; `out[u * width + k]` likewise.
pub(crate) struct Products<'a> {
    pub rows: [&'a [f64]; 4],
    pub coefficients: &'a [f64],
    pub width: usize,
    pub out: &'a mut [f64],
}

impl WithSimd for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (coefficients, _) = S::as_simd_f64s(self.coefficients);
        let (out, _) = S::as_mut_simd_f64s(self.out);
        let width = self.width / S::F64_LANES;
        let mut at = 0;
        while at < width {
            if width - at >= 2 {
                Self::strip::<S, 2>(simd, self.rows, coefficients, width, at, out);
                at += 2;
            } else {
                Self::strip::<S, 1>(simd, self.rows, coefficients, width, at, out);
                at += 1;
            }
        }
    }
}

impl Products<'_> {
    #[inline(always)]
    fn strip<S: Simd, const C: usize>(
        simd: S,
        rows: [&[f64]; 4],
        coefficients: &[S::f64s],
        width: usize,
        at: usize,
        out: &mut [S::f64s],
    ) {
        let size = coefficients.len() / width;
        let rows = rows.map(|row| &row[..size]);
        let mut sums = [[simd.splat_f64s(0.0); C]; 4];
        for t in 0..size {
            let start = t * width + at;
            let weights: &[S::f64s; C] = coefficients[start..start + C]
                .try_into()
                .expect("C registers");
            for u in 0..4 {
                let x = simd.splat_f64s(rows[u][t]);
                for c in 0..C {
                    sums[u][c] = simd.mul_add_f64s(x, weights[c], sums[u][c]);
                }
            }
        }
        for u in 0..4 {
            out[u * width + at..u * width + at + C].copy_from_slice(&sums[u]);
        }
    }
}

/// target += Σ weight · row over four rows; lengths are multiples of [`LANES`].
pub(crate) struct AddFour<'a> {
    pub target: &'a mut [f64],
    pub weights: [f64; 4],
    pub rows: [&'a [f64]; 4],
}

impl WithSimd for AddFour<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (target, _) = S::as_mut_simd_f64s(self.target);
        let rows = self.rows.map(|row| &S::as_simd_f64s(row).0[..target.len()]);
        let weights = self.weights.map(|weight| simd.splat_f64s(weight));
        for (at, sum) in target.iter_mut().enumerate() {
            let first = simd.mul_add_f64s(weights[0], rows[0][at], *sum);
            let second = simd.mul_add_f64s(weights[1], rows[1][at], first);
            let third = simd.mul_add_f64s(weights[2], rows[2][at], second);
            *sum = simd.mul_add_f64s(weights[3], rows[3][at], third);
        }
    }
}

/// The inner products of one weight vector with each item of a group of `out.len()` lanes.
#[inline(always)]
pub(super) fn means(weights: &[f64], items: &[f64], out: &mut [f64]) {
    out.fill(0.0);
    let width = out.len();
    for (row, &weight) in items.chunks_exact(width).zip(weights) {
        for (mean, x) in out.iter_mut().zip(row) {
            *mean = weight.mul_add(*x, *mean);
        }
    }
}

/// Adds xᵀWx of each item of a group of `out.len()` lanes, W symmetric, lower triangle packed. The number of lanes is 1 or a
/// multiple of [`LANES`].
pub(crate) struct Quadratic<'a> {
    pub dim: usize,
    pub matrix: &'a [f64],
    pub items: &'a [f64],
    pub out: &'a mut [f64],
}

impl WithSimd for Quadratic<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if let [out] = self.out {
            return Self::strip::<pulp::Scalar, 1>(
                pulp::Scalar::new(),
                self.dim,
                self.matrix,
                self.items,
                std::slice::from_mut(out),
                0,
            );
        }
        let (items, _) = S::as_simd_f64s(self.items);
        let (out, _) = S::as_mut_simd_f64s(self.out);
        let mut at = 0;
        while at < out.len() {
            match out.len() - at {
                1 => Self::strip::<S, 1>(simd, self.dim, self.matrix, items, out, at),
                2 => Self::strip::<S, 2>(simd, self.dim, self.matrix, items, out, at),
                3 => Self::strip::<S, 3>(simd, self.dim, self.matrix, items, out, at),
                _ => Self::strip::<S, 4>(simd, self.dim, self.matrix, items, out, at),
            }
            at += 4;
        }
    }
}

impl Quadratic<'_> {
    /// `C` registers of items from register `at` on.
    #[inline(always)]
    fn strip<S: Simd, const C: usize>(
        simd: S,
        dim: usize,
        matrix: &[f64],
        items: &[S::f64s],
        out: &mut [S::f64s],
        at: usize,
    ) {
        let width = out.len();
        let feature = |k: usize| -> [S::f64s; C] {
            let start = k * width + at;
            items[start..start + C].try_into().expect("C registers")
        };
        let mut sums: [S::f64s; C] = out[at..at + C].try_into().expect("C registers");
        let mut start = 0;
        for i in 0..dim {
            let row = &matrix[start..start + i + 1];
            let own = feature(i);
            let half = simd.splat_f64s(0.5 * row[i]);
            let mut image: [S::f64s; C] = own.map(|x| simd.mul_f64s(half, x));
            for k in 0..i {
                let (weight, x) = (simd.splat_f64s(row[k]), feature(k));
                for c in 0..C {
                    image[c] = simd.mul_add_f64s(weight, x[c], image[c]);
                }
            }
            for c in 0..C {
                let twice = simd.mul_f64s(simd.splat_f64s(2.0), own[c]);
                sums[c] = simd.mul_add_f64s(twice, image[c], sums[c]);
            }
            start += i + 1;
        }
        out[at..at + C].copy_from_slice(&sums);
    }
}

/// e^x of numbers at most 0, in place; numbers below −700 count as −700. Within 2 units in the last
/// place.
#[inline(always)]
pub(super) fn exponentials(numbers: &mut [f64]) {
    /// Adding and subtracting this number rounds to a whole number.
    const WHOLE: f64 = 6_755_399_441_055_744.0;
    const LN_2_HIGH: f64 = 0.693_147_180_369_123_8;
    const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    for number in numbers {
        let x = number.max(-700.0);
        let shifted = x.mul_add(std::f64::consts::LOG2_E, WHOLE);
        let n = shifted - WHOLE;
        let r = (-n).mul_add(LN_2_HIGH, x);
        let r = (-n).mul_add(LN_2_LOW, r);
        // The series of e^r for |r| ≤ ½ ln 2.
        let mut sum = 1.0 / 6_227_020_800.0;
        for inverse in [
            1.0 / 479_001_600.0,
            1.0 / 39_916_800.0,
            1.0 / 3_628_800.0,
            1.0 / 362_880.0,
            1.0 / 40_320.0,
            1.0 / 5_040.0,
            1.0 / 720.0,
            1.0 / 120.0,
            1.0 / 24.0,
            1.0 / 6.0,
            0.5,
            1.0,
            1.0,
        ] {
            sum = r.mul_add(sum, inverse);
        }
        // 2^n by its bits: the lowest of `shifted` hold n.
        let power = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
        *number = sum * power;
    }
}
