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
//!
//! Large weights are rare, so the terms are skewed, and the ordinary interval is too low: with few rewards it misses the
//! truth from below much more often than from above. Intervals are therefore moved by the first term of the Edgeworth
//! expansion (Johnson, JASA 1978). Their width stays the same.

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
    /// An estimate from the deviations of its `count` terms from their mean.
    fn new(value: f64, deviations: impl Iterator<Item = f64>, count: f64) -> Self {
        let (mut squares, mut cubes) = (0.0, 0.0);
        for deviation in deviations {
            squares += deviation * deviation;
            cubes += deviation * deviation * deviation;
        }
        let error = (squares / (count - 1.0) / count).sqrt();
        // Skewness over √count.
        let skew = match squares > 0.0 {
            true => cubes / squares.powf(1.5),
            false => 0.0,
        };
        let shift = (skew * (1.0 + 2.0 * Z * Z) / 6.0).clamp(-Z, Z);
        Self {
            value,
            error,
            low: value + (shift - Z) * error,
            high: value + (shift + Z) * error,
        }
    }

    /// The mean of some terms; `None` for fewer than two.
    pub fn mean(terms: &[f64]) -> Option<Self> {
        let count = terms.len() as f64;
        if terms.len() < 2 {
            return None;
        }
        let mean = terms.iter().sum::<f64>() / count;
        let deviations = terms.iter().map(|term| term - mean);
        Some(Self::new(mean, deviations, count))
    }

    /// The ratio of the sums of two lists of terms; `None` for fewer than two, or if the second sum is 0.
    pub fn ratio(above: &[f64], below: &[f64]) -> Option<Self> {
        let count = above.len() as f64;
        let total = below.iter().sum::<f64>();
        if above.len() < 2 || total == 0.0 {
            return None;
        }
        let ratio = above.iter().sum::<f64>() / total;
        let mean = total / count;
        let deviations = above.iter().zip(below).map(|(a, b)| (a - ratio * b) / mean);
        Some(Self::new(ratio, deviations, count))
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
    /// The number of rewards that decide the width of the intervals: (Σw²)²/Σw⁴, the number of rounds that make up most
    /// of Σw², over the kurtosis of the rewards. With clicks it is about the number of clicks in those rounds.
    pub deciding: f64,
    /// The mean weight, which is near 1 if the log covers the policy's choices.
    pub mean_weight: f64,
    /// The standard error of the mean weight.
    pub weight_error: f64,
}

impl Weighted {
    /// The estimates from the terms of all rounds, and the kurtosis of the rewards.
    pub fn new(terms: &[Term], kurtosis: f64) -> Self {
        let rewards: Vec<f64> = terms.iter().map(|term| term.rewards).collect();
        let weights: Vec<f64> = terms.iter().map(|term| term.weights).collect();
        let robust: Vec<f64> = terms.iter().map(|term| term.doubly_robust).collect();
        let power = |power: i32| weights.iter().map(|weight| weight.powi(power)).sum::<f64>();
        let (total, squares, fourths) = (power(1), power(2), power(4));
        let or_zero = |value: f64| if squares > 0.0 { value } else { 0.0 };
        let weight = Estimate::mean(&weights);
        Self {
            ips: Estimate::mean(&rewards),
            snips: Estimate::ratio(&rewards, &weights),
            dr: Estimate::mean(&robust),
            effective: or_zero(total * total / squares),
            deciding: or_zero(squares * squares / fourths / kurtosis),
            mean_weight: total / (terms.len().max(1)) as f64,
            weight_error: weight.map_or(0.0, |weight| weight.error),
        }
    }
}

/// The kurtosis of some values, at least 1: about 1/m for clicks with a small share m. Infinite if all values are equal.
pub fn kurtosis(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let power = |power: i32| values.iter().map(|x| (x - mean).powi(power)).sum::<f64>() / count;
    let squares = power(2);
    match squares > 0.0 {
        true => power(4) / (squares * squares),
        false => f64::INFINITY,
    }
}
