//! Random numbers that are fixed by a key, and draws from a posterior.

use crate::digest::mix;
use crate::statistics::View;

/// Independent standard normal numbers (Marsaglia's polar method). A key gives the same ones again.
pub(crate) struct Normals {
    state: u64,
    spare: Option<f64>,
}

impl Normals {
    pub fn new(key: u64) -> Self {
        Self {
            state: mix(key),
            spare: None,
        }
    }

    /// A number of (−1, 1).
    fn uniform(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (mix(self.state) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub fn next(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (u, v) = (self.uniform(), self.uniform());
            let square = u * u + v * v;
            if square > 0.0 && square < 1.0 {
                let length = (-2.0 * libm::log(square) / square).sqrt();
                self.spare = Some(v * length);
                return u * length;
            }
        }
    }
}

/// A draw from N(0, scale² S⁻¹), S⁻¹ = Mᵀ diag(g) M.
pub(crate) fn from_posterior(key: u64, view: View<'_>, scale: f64) -> Vec<f64> {
    let mut normals = Normals::new(key);
    let mut draw = vec![0.0; view.scale.len()];
    // Mᵀ w, row by row: M is unit lower triangular, packed by rows without its diagonal.
    let mut start = 0;
    for row in 0..draw.len() {
        let w = scale * view.scale[row].sqrt() * normals.next();
        draw[row] += w;
        let factors = &view.factor[start..start + row];
        for (value, factor) in draw.iter_mut().zip(factors) {
            *value += factor * w;
        }
        start += row;
    }
    draw
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first four moments of many numbers of one key, and of the first number of many keys.
    #[test]
    fn numbers_are_standard_normal() {
        const COUNT: u32 = 200_000;
        let mut one = Normals::new(7);
        let of_one: Vec<f64> = (0..COUNT).map(|_| one.next()).collect();
        let of_many: Vec<f64> = (0..COUNT)
            .map(|key| Normals::new(key.into()).next())
            .collect();
        for numbers in [of_one, of_many] {
            let moment =
                |power: i32| numbers.iter().map(|n| n.powi(power)).sum::<f64>() / f64::from(COUNT);
            // Five standard errors of each: the variances of the powers are 1, 2, 15 and 96.
            for (power, expected, variance) in
                [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)]
            {
                let error = 5.0 * (variance / f64::from(COUNT)).sqrt();
                assert!(
                    (moment(power) - expected).abs() < error,
                    "{power}: {}",
                    moment(power)
                );
            }
        }
    }
}
