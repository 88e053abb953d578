//! Phases of 2, 4, 8, … rounds (Algorithm 1, lines 4 and 7).

/// The phase of round τ ≥ 1: phase s holds the rounds 2^s − 1 to 2^(s+1) − 2.
pub(crate) fn phase_of(round: u64) -> u32 {
    (round + 1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phase_s_has_two_to_the_s_rounds() {
        let mut round = 0;
        for s in 1..=12 {
            for t in 1..=1u64 << s {
                round += 1;
                assert_eq!(round, (1 << s) - 2 + t, "line 8");
                assert_eq!(phase_of(round), s);
            }
        }
    }
}
