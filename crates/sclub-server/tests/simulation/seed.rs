//! Random numbers of a run. Each purpose has a stream of its own, so that drawing more for one does
//! not shift the others.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

pub type Rng = Xoshiro256PlusPlus;

/// The stream of a purpose in the run of a seed.
pub fn stream(seed: u64, purpose: &str) -> Rng {
    // FNV-1a: stable over versions of Rust, unlike the standard hasher.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in purpose.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    Rng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash)
}

/// Returns true with this probability. Probability 0 draws no random number.
pub fn chance(rng: &mut Rng, probability: f64) -> bool {
    probability > 0.0 && rng.random_bool(probability.min(1.0))
}

/// One of several.
pub fn pick<'a, T>(rng: &mut Rng, all: &'a [T]) -> &'a T {
    &all[rng.random_range(0..all.len())]
}
