//! Vectors of items and tastes.

use std::f64::consts::FRAC_1_SQRT_2;

use pulp::{Simd, WithSimd};

use crate::normals::{BATCH, Normals};

/// Vectors uniform on the sphere in d − 1 dimensions, a constant 1 appended, divided by √2: the
/// transformation of section 5.1. Inner products of two such vectors lie in [0, 1].
///
/// The vectors are drawn into `features[k * count + i]`, `count` being the length of `means`, and
/// their inner products with `weights` into `means`.
pub(super) struct DrawVectors<'a> {
    pub normals: &'a mut Normals,
    pub weights: &'a [f64],
    pub features: &'a mut [f64],
    pub means: &'a mut [f64],
    /// As long as `means`.
    pub scratch: &'a mut [f64],
}

impl WithSimd for DrawVectors<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let DrawVectors {
            normals,
            weights,
            features,
            means,
            scratch,
        } = self;
        let count = means.len();
        let scratch = &mut scratch[..count];
        let (directions, constants) = features.split_at_mut(count * (weights.len() - 1));
        for batch in directions.chunks_mut(BATCH) {
            let numbers = normals.batch();
            if let Ok(whole) = <&mut [f64; BATCH]>::try_from(&mut *batch) {
                *whole = numbers;
            } else {
                batch.copy_from_slice(&numbers[..batch.len()]);
            }
        }
        scratch.fill(0.0);
        for row in directions.chunks_exact(count) {
            for (length, &value) in scratch.iter_mut().zip(row) {
                *length = value.mul_add(value, *length);
            }
        }
        for length in scratch.iter_mut() {
            *length = FRAC_1_SQRT_2 / length.sqrt();
        }
        constants.fill(FRAC_1_SQRT_2);
        means.fill(FRAC_1_SQRT_2 * weights[weights.len() - 1]);
        for (row, &weight) in directions.chunks_exact_mut(count).zip(weights) {
            for ((value, &scale), mean) in row.iter_mut().zip(&*scratch).zip(&mut *means) {
                *value *= scale;
                *mean = weight.mul_add(*value, *mean);
            }
        }
    }
}
