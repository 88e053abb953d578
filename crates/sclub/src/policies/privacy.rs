//! Privacy of sums that are uploaded again and again: a tree mechanism with Gaussian noise, for FCLUB.
//!
//! The sum of the first k uploads carries one noise for each bit of k that is set: a symmetric Gaussian matrix and a Gaussian
//! vector with standard deviation σ = 8√m ln(2/δ)/ε, m = 32, so for at most 2^32 uploads. FCLUB's public code takes the square of that
//! as the standard deviation, with m growing with t. A shift of 3σ(√d + 1)√bits on the diagonal keeps S positive definite. The guarantee
//! is for ‖x‖ ≤ 1 and |y| ≤ 1.

use super::row;
use crate::digest::mix;
use crate::draws::Normals;
use crate::spec::{Constant, Range, Value, Values};
use crate::statistics::Shape;

/// Levels of the tree over the uploads.
const LEVELS: u32 = 32;

/// The uploads so far, and the noise that they carry.
pub(crate) struct Tree {
    shape: Shape,
    uploads: u64,
    total: Vec<f64>,
}

impl Tree {
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            uploads: 0,
            total: vec![0.0; row::len(shape)],
        }
    }

    pub fn uploads(&self) -> u64 {
        self.uploads
    }

    /// The noise of all uploads together.
    pub fn total(&self) -> &[f64] {
        &self.total
    }

    /// The noise that the next upload adds to that of the uploads before. All draws are keyed by `seed`.
    pub fn next(&mut self, seed: u64, scale: f64) -> Vec<f64> {
        let shape = self.shape;
        self.uploads += 1;
        let mut total = vec![0.0; row::len(shape)];
        for level in (0..u64::BITS).filter(|level| self.uploads >> level & 1 == 1) {
            let node = self.uploads >> level << level;
            let key = seed ^ mix(node << 6 | u64::from(level));
            add_noise(shape, &mut total, &mut Normals::new(key), scale);
        }
        let bits = f64::from(self.uploads.count_ones());
        let shift = 3.0 * scale * ((shape.dim as f64).sqrt() + 1.0) * bits.sqrt();
        for i in 0..shape.dim {
            total[i * (i + 3) / 2] += shift;
        }
        let added = total.iter().zip(&self.total).map(|(new, old)| new - old);
        let added = added.collect();
        self.total = total;
        added
    }
}

/// Adds the noise of a node of the tree: (N + Nᵀ)/√2 and a vector, N with independent normal entries.
fn add_noise(shape: Shape, row: &mut [f64], normals: &mut Normals, scale: f64) {
    let (matrix, vector) = row.split_at_mut(shape.gram());
    let mut start = 0;
    for i in 0..shape.dim {
        for entry in &mut matrix[start..start + i] {
            *entry += scale * normals.next();
        }
        matrix[start + i] += std::f64::consts::SQRT_2 * scale * normals.next();
        start += i + 1;
    }
    for entry in vector {
        *entry += scale * normals.next();
    }
}

/// σ; 0 without privacy.
pub(crate) fn scale(values: &Values) -> f64 {
    let number = |constant: &Constant| values.number(constant.name).unwrap_or(0.0);
    let (epsilon, delta) = (number(&EPSILON), number(&DELTA));
    match epsilon > 0.0 {
        true => 8.0 * f64::from(LEVELS).sqrt() * libm::log(2.0 / delta) / epsilon,
        false => 0.0,
    }
}

/// ε
pub(crate) const EPSILON: Constant = Constant::new(
    "privacy",
    "Privacy epsilon of the uploads of a cluster in a phase; 0 is no privacy",
    Range::NOT_NEGATIVE,
    |_, _| Ok(Value::Number(0.0)),
);

/// δ
pub(crate) const DELTA: Constant = Constant {
    advanced: true,
    ..Constant::new(
        "privacy_delta",
        "Privacy delta of the uploads of a cluster in a phase",
        Range::Number {
            low: 0.0,
            high: 1.0,
            open: true,
            whole: false,
            requirement: "above 0 and at most 1",
        },
        |_, _| Ok(Value::Number(0.1)),
    )
};
