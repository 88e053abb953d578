//! A digest of the bits of a state.

/// Folds numbers into 64 bits. Not for security: for telling whether two states are the same.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Digest(u64);

impl Digest {
    pub fn new() -> Self {
        Self(0x243f_6a88_85a3_08d3)
    }

    pub fn word(mut self, word: u64) -> Self {
        self.0 = mix(self.0 ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        self
    }

    pub fn numbers(self, numbers: &[f64]) -> Self {
        numbers
            .iter()
            .fold(self.word(numbers.len() as u64), |d, v| d.word(v.to_bits()))
    }

    pub fn finish(self) -> u64 {
        mix(self.0)
    }
}

/// Spreads every bit of `word` over all of them (a bijection).
#[inline]
pub(crate) fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let word = (word ^ (word >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    word ^ (word >> 32)
}
