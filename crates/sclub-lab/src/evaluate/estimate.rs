//! Estimators of the value of a policy from the log of another one.
//!
//! Round t of the log showed k items. With the policy to be evaluated, item i of them has the weight w_i = 1/p_i if the
//! policy would have shown it too, else 0; p_i is the logged probability that the item was shown. The value is the mean
//! reward of an item shown.
//!
//! - **IPS**, inverse propensity scoring: the mean of w r.
//! - **SNIPS**, self-normalised: the sum of w r over the sum of w.
//! - **DR**, doubly robust: the mean of q(chosen) + w (r − q(shown)), with a model q of the rewards that was fitted to
//!   earlier rounds only.
//!
//! A policy learns from the log as it goes. Its choice in round t depends on earlier rounds only, so that the terms of IPS
//! and DR, less their means, are martingale differences. Intervals are by the central limit theorem for these. That of SNIPS
//! is by the delta method.

use serde::Serialize;

/// The 97.5% quantile of the normal distribution.
const Z: f64 = 1.959963984540054;

/// An estimate with its 95% interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean reward of an item shown.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
    /// The lower end of the 95% interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Estimate {
    fn new(value: f64, error: f64) -> Self {
        Self {
            value,
            error,
            low: value - Z * error,
            high: value + Z * error,
        }
    }

    /// The mean of some terms; `None` for fewer than two.
    pub fn mean(terms: &[f64]) -> Option<Self> {
        let count = terms.len() as f64;
        if terms.len() < 2 {
            return None;
        }
        let mean = terms.iter().sum::<f64>() / count;
        let squares = terms.iter().map(|term| (term - mean) * (term - mean));
        let variance = squares.sum::<f64>() / (count - 1.0);
        Some(Self::new(mean, (variance / count).sqrt()))
    }

    /// The ratio of the sums of two lists of terms; `None` for fewer than two, or if the second sum is 0.
    pub fn ratio(above: &[f64], below: &[f64]) -> Option<Self> {
        let count = above.len() as f64;
        let total = below.iter().sum::<f64>();
        if above.len() < 2 || total == 0.0 {
            return None;
        }
        let ratio = above.iter().sum::<f64>() / total;
        let residuals = above.iter().zip(below).map(|(a, b)| a - ratio * b);
        let variance = residuals.map(|x| x * x).sum::<f64>() / (count - 1.0);
        Some(Self::new(
            ratio,
            (variance / count).sqrt() / (total / count),
        ))
    }
}

/// The terms of one round.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Term {
    /// Σ w r / k
    pub rewards: f64,
    /// Σ w / k
    pub weights: f64,
    /// The term of DR.
    pub doubly_robust: f64,
}

/// The estimates of a policy by weights.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Weighted {
    /// Inverse propensity scoring.
    pub ips: Option<Estimate>,
    /// Self-normalised inverse propensity scoring.
    pub snips: Option<Estimate>,
    /// Doubly robust.
    pub dr: Option<Estimate>,
    /// The effective sample size (Σw)²/Σw², in rounds.
    pub effective: f64,
    /// The mean weight, which is near 1 if the log covers the policy's choices.
    pub mean_weight: f64,
}

impl Weighted {
    /// The estimates from the terms of all rounds.
    pub fn new(terms: &[Term]) -> Self {
        let rewards: Vec<f64> = terms.iter().map(|term| term.rewards).collect();
        let weights: Vec<f64> = terms.iter().map(|term| term.weights).collect();
        let robust: Vec<f64> = terms.iter().map(|term| term.doubly_robust).collect();
        let total: f64 = weights.iter().sum();
        let squares: f64 = weights.iter().map(|weight| weight * weight).sum();
        Self {
            ips: Estimate::mean(&rewards),
            snips: Estimate::ratio(&rewards, &weights),
            dr: Estimate::mean(&robust),
            effective: if squares > 0.0 {
                total * total / squares
            } else {
                0.0
            },
            mean_weight: total / (terms.len().max(1)) as f64,
        }
    }
}
