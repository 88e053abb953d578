//! Runs put together: means over seeds, with standard errors.

use serde::Serialize;

use crate::policies::Name;
use crate::run::Run;

/// A mean with its standard error.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// The standard deviation over √n; 0 for a single value.
    pub error: f64,
}

impl Mean {
    /// The mean of some values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().collect();
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        if values.len() < 2 {
            return Self { mean, error: 0.0 };
        }
        let spread: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self {
            mean,
            error: (spread / (n - 1.0) / n).sqrt(),
        }
    }
}

/// A whole number with commas between the thousands.
pub fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value <= -0.5 {
        format!("−{text}")
    } else {
        text
    }
}

/// A share in percent with its sign: `+1.2%`, `−0.5%`.
pub fn percent(share: f64) -> String {
    format!("{:+.1}%", 100.0 * share).replace('-', "−")
}

/// The results of a policy over all seeds.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The policy.
    pub policy: Name,
    /// Number of seeds.
    pub seeds: usize,
    /// Regret at the end.
    pub regret: Mean,
    /// Regret over LinUCB-Ind's, if that has run.
    pub to_linucb_ind: Option<f64>,
    /// Regret over `oracle`'s, if that has run.
    pub to_oracle: Option<f64>,
    /// Regret over `informed`'s, if that has run.
    pub to_informed: Option<f64>,
    /// Clusters at the end.
    pub clusters: f64,
    /// The adjusted Rand index between those and the true clusters.
    pub adjusted_rand: Option<f64>,
    /// Time inside recommend and learn, a run.
    pub policy_seconds: f64,
    /// (round, regret so far with its error) at equal distances.
    pub curve: Vec<(u64, Mean)>,
}

/// One row a policy, in the order of the first seed's runs.
pub fn summarise(runs: &[Run]) -> Vec<Row> {
    let mut names: Vec<Name> = Vec::new();
    for run in runs {
        if !names.contains(&run.policy) {
            names.push(run.policy);
        }
    }
    let of = |name: Name| runs.iter().filter(move |run| run.policy == name);
    let regret = |name: Name| Mean::of(of(name).map(|run| run.regret));
    let relative = |name: Name, other: Name| {
        names
            .contains(&other)
            .then(|| regret(name).mean / regret(other).mean)
    };
    names
        .iter()
        .map(|&policy| {
            // Runs of different lengths, as splits of data have, are put together by their share of
            // the way.
            let points = of(policy).map(|run| run.even_curve.len()).min();
            let curve = (0..points.unwrap_or(0))
                .map(|point| {
                    let at = || of(policy).map(move |run| run.even_curve[point]);
                    let round = Mean::of(at().map(|(round, _)| round as f64)).mean;
                    (
                        round.round() as u64,
                        Mean::of(at().map(|(_, regret)| regret)),
                    )
                })
                .collect();
            let rands: Option<Vec<f64>> = of(policy).map(|run| run.adjusted_rand).collect();
            Row {
                policy,
                seeds: of(policy).count(),
                regret: regret(policy),
                to_linucb_ind: relative(policy, Name::LINUCB_IND),
                to_oracle: relative(policy, Name::ORACLE),
                to_informed: relative(policy, Name::INFORMED),
                clusters: Mean::of(of(policy).map(|run| run.clusters as f64)).mean,
                adjusted_rand: rands.map(|values| Mean::of(values).mean),
                policy_seconds: Mean::of(of(policy).map(|run| run.policy_seconds)).mean,
                curve,
            }
        })
        .collect()
}

/// The share of rounds that were a hit so far, policy by policy: (round, rate) at equal distances, over
/// runs in which regret counts the misses.
pub fn rate_curves(runs: &[Run]) -> Vec<(Name, Vec<(f64, Mean)>)> {
    let rows = summarise(runs);
    rows.iter()
        .map(|row| {
            let of = || runs.iter().filter(|run| run.policy == row.policy);
            let points = (0..row.curve.len()).filter(|&point| row.curve[point].0 > 0);
            let rate = |point: usize| {
                let rates = of().map(|run| {
                    let (round, misses) = run.even_curve[point];
                    1.0 - misses / round.max(1) as f64
                });
                (row.curve[point].0 as f64, Mean::of(rates))
            };
            (row.policy, points.map(rate).collect())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_standard_error_by_hand() {
        let mean = Mean::of([1.0, 2.0, 6.0]);
        assert_eq!(mean.mean, 3.0);
        // Variance (4 + 1 + 9) / 2 = 7, over 3 values.
        assert!((mean.error - (7.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(
            Mean::of([5.0]),
            Mean {
                mean: 5.0,
                error: 0.0
            }
        );
    }
}
