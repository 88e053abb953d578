//! F(T) and the thresholds made of it.
//!
//! | symbol | name | meaning |
//! |---|---|---|
//! | F | [`radius`] | √((1 + ln(1 + T)) / (1 + T)): how far an estimate from T observations may be off |
//! | α_θ, α_p | `alpha_theta`, `alpha_p` | how many radii count as a disagreement |
//! | p̂ | frequency | T_i / τ |

use crate::params::Params;
use crate::policy::Comparison;

/// F(T), the paper's confidence radius (Algorithm 3, first line). Decreasing, F(0) = 1.
pub fn radius(count: u64) -> f64 {
    let grown = 1.0 + count as f64;
    ((1.0 + libm::log(grown)) / grown).sqrt()
}

/// The tests of Algorithms 3 and 4 for given parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Thresholds {
    pub alpha_theta: f64,
    pub alpha_p: f64,
    /// A distance that two estimates may have beyond their radii: 0 in the paper.
    pub slack: f64,
}

impl Thresholds {
    pub fn new(params: &Params) -> Self {
        Self {
            alpha_theta: params.alpha_theta,
            alpha_p: params.alpha_p,
            slack: 0.0,
        }
    }

    /// Algorithm 3, first condition, on the distance between a user's estimate and a pivot; also the
    /// test by which CLUB cuts an edge between two users. The comparison if they disagree.
    #[inline]
    pub fn estimates_disagree(
        &self,
        distance: f64,
        radius: f64,
        other_radius: f64,
    ) -> Option<Comparison> {
        let threshold = self.alpha_theta * (radius + other_radius) + self.slack;
        (distance > threshold).then_some(Comparison {
            distance,
            threshold,
        })
    }

    /// Algorithm 3, second condition, on two users' frequencies. The comparison if they disagree.
    #[inline]
    pub fn frequencies_disagree(
        &self,
        frequency: f64,
        other: f64,
        round_radius: f64,
    ) -> Option<Comparison> {
        let distance = (frequency - other).abs();
        let threshold = 2.0 * self.alpha_p * round_radius;
        (distance > threshold).then_some(Comparison {
            distance,
            threshold,
        })
    }

    /// Algorithm 4, first condition, on the distance between two clusters' estimates. The comparison
    /// if they agree.
    #[inline]
    pub fn estimates_agree(
        &self,
        distance: f64,
        radius: f64,
        other_radius: f64,
    ) -> Option<Comparison> {
        let threshold = self.alpha_theta / 2.0 * (radius + other_radius) + self.slack / 2.0;
        (distance < threshold).then_some(Comparison {
            distance,
            threshold,
        })
    }

    /// The share of a cluster in the threshold of [`Thresholds::estimates_agree`].
    #[inline]
    pub fn reach(&self, radius: f64) -> f64 {
        self.alpha_theta / 2.0 * radius + self.slack / 4.0
    }

    /// Algorithm 4, second condition, on two clusters' average frequencies. The comparison if they
    /// agree.
    #[inline]
    pub fn frequencies_agree(
        &self,
        frequency: f64,
        other: f64,
        round_radius: f64,
    ) -> Option<Comparison> {
        let distance = (frequency - other).abs();
        let threshold = self.alpha_p * round_radius;
        (distance < threshold).then_some(Comparison {
            distance,
            threshold,
        })
    }
}

/// ‖a − b‖
#[inline]
pub(crate) fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b) * (a - b))
        .sum::<f64>()
        .sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn radius_starts_at_one_and_falls() {
        assert_eq!(radius(0), 1.0);
        let values: Vec<f64> = (0..10_000).map(radius).collect();
        assert!(values.windows(2).all(|pair| pair[1] < pair[0]));
        // √((1 + ln 1001) / 1001) by hand.
        assert!(
            (radius(1000) - 0.088_886_747_749).abs() < 1e-9,
            "{}",
            radius(1000)
        );
    }
}
