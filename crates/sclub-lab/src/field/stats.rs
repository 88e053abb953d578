//! Tests of differences, and ranks: Student's t, Holm's correction, the Nemenyi test.

/// ln Γ(x) for x > 0.
fn ln_gamma(x: f64) -> f64 {
    libm::lgamma(x)
}

/// The regularised incomplete beta function I_x(a, b), by Lentz's continued fraction.
fn beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges fast on this side.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta(1.0 - x, b, a);
    }
    let front =
        ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * libm::log(x) + b * libm::log(1.0 - x);
    let tiny = 1e-300;
    let guard = |value: f64| if value.abs() < tiny { tiny } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / guard(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for step in 1..500 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / guard(1.0 + term * d);
            c = guard(1.0 + term / c);
            change = c * d;
            fraction *= change;
        }
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    libm::exp(front) * fraction / a
}

/// The probability that |t| is at least this large, for Student's t with `freedom` degrees of freedom.
pub(crate) fn two_sided(t: f64, freedom: f64) -> f64 {
    beta(freedom / (freedom + t * t), 0.5 * freedom, 0.5)
}

/// The p-value of the paired t-test that the mean of some differences is 0. `None` with fewer than two.
pub(crate) fn paired(differences: &[f64]) -> Option<f64> {
    let n = differences.len() as f64;
    if differences.len() < 2 {
        return None;
    }
    let mean = differences.iter().sum::<f64>() / n;
    let variance = differences
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / (n - 1.0);
    if variance == 0.0 {
        return Some(if mean == 0.0 { 1.0 } else { 0.0 });
    }
    Some(two_sided(mean / (variance / n).sqrt(), n - 1.0))
}

/// Holm's correction of p-values for many tests at once, in the order given.
pub(crate) fn holm(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut corrected = vec![1.0; values.len()];
    let mut largest: f64 = 0.0;
    for (place, &index) in order.iter().enumerate() {
        let left = (values.len() - place) as f64;
        largest = largest.max((left * values[index]).min(1.0));
        corrected[index] = largest;
    }
    corrected
}

/// The ranks of some values, 1 for the smallest. Equal values share their mean rank.
pub(crate) fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |&value: &f64| {
        let smaller = values.iter().filter(|&&other| other < value).count();
        let equal = values.iter().filter(|&&other| other == value).count();
        smaller as f64 + (equal as f64 + 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

/// The difference from which two mean ranks of `treatments` over `blocks` differ at level 0.05 (Nemenyi).
pub(crate) fn critical_difference(treatments: usize, blocks: usize) -> f64 {
    let k = treatments as f64;
    let quantile = range_quantile(treatments, 0.95) / std::f64::consts::SQRT_2;
    quantile * (k * (k + 1.0) / (6.0 * blocks as f64)).sqrt()
}

/// The quantile of the range of `count` independent standard normal numbers.
fn range_quantile(count: usize, probability: f64) -> f64 {
    let (mut low, mut high) = (0.0, 20.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        match range_probability(count, middle) < probability {
            true => low = middle,
            false => high = middle,
        }
    }
    0.5 * (low + high)
}

/// The probability that the range of `count` independent standard normal numbers is at most q:
/// k ∫ φ(z) (Φ(z) − Φ(z − q))^(k − 1) dz, by Simpson's rule.
fn range_probability(count: usize, q: f64) -> f64 {
    const STEPS: i32 = 2000;
    let below = |z: f64| 0.5 * libm::erfc(-z / std::f64::consts::SQRT_2);
    let density = |z: f64| (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let (low, high) = (-8.0, 8.0 + q);
    let width = (high - low) / f64::from(STEPS);
    let value = |step: i32| {
        let z = low + width * f64::from(step);
        let inside = below(z) - below(z - q);
        density(z) * inside.powi(count as i32 - 1)
    };
    let inner = (1..STEPS).map(|step| value(step) * if step % 2 == 1 { 4.0 } else { 2.0 });
    let sum: f64 = value(0) + value(STEPS) + inner.sum::<f64>();
    count as f64 * sum * width / 3.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of printed tables.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (t, freedom, p) in [
            (12.706, 1.0, 0.05),
            (2.262, 9.0, 0.05),
            (3.250, 9.0, 0.01),
            (1.984, 100.0, 0.05),
            (0.703, 9.0, 0.5),
        ] {
            assert!((two_sided(t, freedom) - p).abs() < 2e-4, "{t} {freedom}");
        }
        // Studentised range over √2: the table of the Nemenyi test.
        for (k, q) in [(2, 1.960), (3, 2.343), (5, 2.728), (10, 3.164), (20, 3.544)] {
            let quantile = range_quantile(k, 0.95) / std::f64::consts::SQRT_2;
            assert!((quantile - q).abs() < 2e-3, "{k}: {quantile}");
        }
    }

    /// An example worked by hand.
    #[test]
    fn holm_multiplies_and_never_falls() {
        let corrected = holm(&[0.01, 0.04, 0.03, 0.005]);
        let expected = [0.03, 0.06, 0.06, 0.02];
        for (one, other) in corrected.iter().zip(expected) {
            assert!((one - other).abs() < 1e-12, "{corrected:?}");
        }
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
    }

    #[test]
    fn equal_values_share_a_rank() {
        assert_eq!(ranks(&[3.0, 1.0, 2.0, 1.0]), [4.0, 1.5, 3.0, 1.5]);
    }

    #[test]
    fn a_paired_test_sees_a_difference_that_is_always_there() {
        assert_eq!(paired(&[1.0]), None);
        assert_eq!(paired(&[1.0, 1.0, 1.0]), Some(0.0));
        assert_eq!(paired(&[0.0, 0.0]), Some(1.0));
        // Mean 1, standard error 0.5 from 4 values: t = 2 with 3 degrees of freedom.
        let p = paired(&[0.0, 2.0, 2.0, 0.0].map(|x: f64| x * 0.866_025_4 + 0.133_974_6)).unwrap();
        assert!((p - two_sided(2.0, 3.0)).abs() < 1e-6, "{p}");
        assert!((p - 0.139).abs() < 1e-3, "{p}");
    }
}
