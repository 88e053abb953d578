//! Standard normal numbers, many at a time.
//!
//! A world draws hundreds of normal numbers a round; one at a time they cost more than everything a
//! policy does with them. Here eight Xoshiro256++ generators run side by side, and the Box–Muller
//! transformation turns their output into sixteen normal numbers at once. Every step is a plain or a
//! fused operation of IEEE arithmetic, so the numbers are the same on every machine.

#![allow(
    clippy::needless_range_loop,
    reason = "lanes of several arrays go together, and plain loops over them become vector code"
)]

use rand::rand_core::Rng;

use crate::streams::{Purpose, stream};

/// Generators side by side.
const LANES: usize = 8;
/// Normal numbers made at a time.
pub const BATCH: usize = 2 * LANES;

type Words = [u64; LANES];
type Numbers = [f64; LANES];

/// Eight generators side by side.
#[derive(Debug, Clone)]
pub struct Normals {
    state: [Words; 4],
}

impl Normals {
    /// The stream of a seed for a purpose and a part.
    pub fn new(seed: u64, purpose: Purpose, part: u64) -> Self {
        let mut source = stream(seed, purpose, part);
        let mut state = [[0; LANES]; 4];
        for lane in 0..LANES {
            for word in &mut state {
                word[lane] = source.next_u64();
            }
        }
        Self { state }
    }

    /// One step of Xoshiro256++ in each lane.
    #[inline(always)]
    fn next(&mut self) -> Words {
        let [a, b, c, d] = &mut self.state;
        let mut words = [0; LANES];
        for l in 0..LANES {
            words[l] = a[l].wrapping_add(d[l]).rotate_left(23).wrapping_add(a[l]);
            let shifted = b[l] << 17;
            c[l] ^= a[l];
            d[l] ^= b[l];
            b[l] ^= c[l];
            a[l] ^= d[l];
            c[l] ^= shifted;
            d[l] = d[l].rotate_left(45);
        }
        words
    }

    /// Sixteen normal numbers. To be inlined where the instruction set is switched on.
    #[inline(always)]
    pub fn batch(&mut self) -> [f64; BATCH] {
        let radius = radius(&half_open(&self.next()));
        let (sine, cosine) = sine_cosine(&half_open(&self.next()));
        let mut batch = [0.0; BATCH];
        for l in 0..LANES {
            batch[l] = radius[l] * cosine[l];
            batch[LANES + l] = radius[l] * sine[l];
        }
        batch
    }
}

/// Uniform in [0, 1), 52 bits.
#[inline(always)]
fn half_open(words: &Words) -> Numbers {
    let mut numbers = [0.0; LANES];
    for l in 0..LANES {
        numbers[l] = f64::from_bits((words[l] >> 12) | 0x3ff0_0000_0000_0000) - 1.0;
    }
    numbers
}

/// √(−2 ln(1 − u))
#[inline(always)]
fn radius(uniform: &Numbers) -> Numbers {
    /// The bits of 1, of √½, and of 2^52, whose last bits count whole numbers.
    const ONE: u64 = 0x3ff0_0000_0000_0000;
    const ROOT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    const COUNTER: u64 = 0x4330_0000_0000_0000;
    const COUNTER_AT_ZERO: f64 = 4_503_599_627_370_496.0 + 1023.0;
    let mut radius = [0.0; LANES];
    for l in 0..LANES {
        // 1 − u = m 2^e with m in [√½, √2); ln m = 2 artanh f for f = (m − 1)/(m + 1).
        let bits = (1.0 - uniform[l]).to_bits() + (ONE - ROOT_HALF);
        let exponent = f64::from_bits((bits >> 52) | COUNTER) - COUNTER_AT_ZERO;
        let m = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) + ROOT_HALF);
        let f = (m - 1.0) / (m + 1.0);
        let s = f * f;
        let mut series = 2.0 / 17.0;
        series = s.mul_add(series, 2.0 / 15.0);
        series = s.mul_add(series, 2.0 / 13.0);
        series = s.mul_add(series, 2.0 / 11.0);
        series = s.mul_add(series, 2.0 / 9.0);
        series = s.mul_add(series, 2.0 / 7.0);
        series = s.mul_add(series, 2.0 / 5.0);
        series = s.mul_add(series, 2.0 / 3.0);
        series = s.mul_add(series, 2.0);
        let log = exponent.mul_add(std::f64::consts::LN_2, f * series);
        radius[l] = (-2.0 * log).sqrt();
    }
    radius
}

/// sin 2πu and cos 2πu
#[inline(always)]
fn sine_cosine(uniform: &Numbers) -> (Numbers, Numbers) {
    /// Adding and taking it away rounds to a whole number, which its last bits then count.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let (mut sine, mut cosine) = ([0.0; LANES], [0.0; LANES]);
    for l in 0..LANES {
        // 4u = q + r with r in [−½, ½]: q quarters of a turn, and an angle of at most π/4.
        let quarters = 4.0 * uniform[l];
        let shifted = quarters + ROUND;
        let q = shifted.to_bits();
        let angle = (quarters - (shifted - ROUND)) * std::f64::consts::FRAC_PI_2;
        let s = angle * angle;
        let mut a = -1.0 / 1_307_674_368_000.0;
        a = s.mul_add(a, 1.0 / 6_227_020_800.0);
        a = s.mul_add(a, -1.0 / 39_916_800.0);
        a = s.mul_add(a, 1.0 / 362_880.0);
        a = s.mul_add(a, -1.0 / 5040.0);
        a = s.mul_add(a, 1.0 / 120.0);
        a = s.mul_add(a, -1.0 / 6.0);
        a = s.mul_add(a, 1.0) * angle;
        let mut b = -1.0 / 87_178_291_200.0;
        b = s.mul_add(b, 1.0 / 479_001_600.0);
        b = s.mul_add(b, -1.0 / 3_628_800.0);
        b = s.mul_add(b, 1.0 / 40_320.0);
        b = s.mul_add(b, -1.0 / 720.0);
        b = s.mul_add(b, 1.0 / 24.0);
        b = s.mul_add(b, -1.0 / 2.0);
        b = s.mul_add(b, 1.0);
        // Odd quarters exchange the two, and each half of the turn has its sign.
        let (a, b) = (a.to_bits(), b.to_bits());
        let exchange = (a ^ b) & (q & 1).wrapping_neg();
        sine[l] = f64::from_bits(a ^ exchange ^ ((q & 2) << 62));
        cosine[l] = f64::from_bits(b ^ exchange ^ ((q.wrapping_add(1) & 2) << 62));
    }
    (sine, cosine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn each_lane_is_a_generator_of_its_own() {
        let mut normals = Normals::new(3, Purpose::Items, 4);
        let mut single: Vec<Xoshiro256PlusPlus> = (0..LANES)
            .map(|lane| {
                let words: Vec<u8> = normals
                    .state
                    .iter()
                    .flat_map(|word| word[lane].to_le_bytes())
                    .collect();
                Xoshiro256PlusPlus::from_seed(words.try_into().unwrap())
            })
            .collect();
        for _ in 0..100 {
            let words = normals.next();
            for (rng, word) in single.iter_mut().zip(words) {
                assert_eq!(rng.next_u64(), word);
            }
        }
    }

    #[test]
    fn the_transformation_is_box_and_mullers() {
        for step in 0..4096 {
            let u = f64::from(step) / 4096.0 + 1e-5 * f64::from(step % 7);
            let r = radius(&[u; LANES])[0];
            assert!(
                (r - (-2.0 * (1.0 - u).ln()).sqrt()).abs() < 1e-11,
                "radius at {u}"
            );
            let (s, c) = sine_cosine(&[u; LANES]);
            let (sine, cosine) = (u * std::f64::consts::TAU).sin_cos();
            assert!(
                (s[0] - sine).abs() < 1e-12 && (c[0] - cosine).abs() < 1e-12,
                "angle {u}"
            );
        }
        let least = radius(&[1.0 - f64::EPSILON; LANES])[0];
        assert!((least - (-2.0 * f64::EPSILON.ln()).sqrt()).abs() < 1e-11);
    }

    #[test]
    fn the_numbers_are_standard_normal() {
        let mut normals = Normals::new(1, Purpose::Items, 0);
        let mut numbers: Vec<f64> = (0..40_000).flat_map(|_| normals.batch()).collect();
        let n = numbers.len() as f64;
        let moment = |power: i32| numbers.iter().map(|v| v.powi(power)).sum::<f64>() / n;
        for (power, expected, spread) in
            [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)]
        {
            let off = (moment(power) - expected).abs();
            assert!(
                off < 4.5 * f64::sqrt(spread / n),
                "moment {power} is off by {off}"
            );
        }
        // Kolmogorov and Smirnov's distance to the normal distribution function.
        numbers.sort_unstable_by(f64::total_cmp);
        let distance = numbers
            .iter()
            .enumerate()
            .map(|(rank, &v)| {
                let below = 0.5 * libm::erfc(-v / std::f64::consts::SQRT_2);
                (below - rank as f64 / n)
                    .abs()
                    .max((below - (rank as f64 + 1.0) / n).abs())
            })
            .fold(0.0, f64::max);
        assert!(distance < 1.95 / n.sqrt(), "distance {distance}");
        // Neighbours in a batch and across batches have nothing to do with each other.
        let mut fresh = Normals::new(2, Purpose::Items, 0);
        let stream: Vec<f64> = (0..40_000).flat_map(|_| fresh.batch()).collect();
        for lag in [1, LANES, BATCH, BATCH + 1] {
            let pairs = stream.iter().zip(&stream[lag..]);
            let correlation = pairs.map(|(a, b)| a * b).sum::<f64>() / n;
            assert!(
                correlation.abs() < 4.5 / n.sqrt(),
                "lag {lag}: {correlation}"
            );
        }
    }
}
