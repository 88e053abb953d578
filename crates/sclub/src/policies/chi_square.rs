//! The chi-square distribution: tail probabilities and thresholds.

/// P(X > x) for X chi-square with so many degrees of freedom, at least one.
pub(crate) fn tail(degrees: usize, x: f64) -> f64 {
    upper_gamma(0.5 * degrees as f64, 0.5 * x)
}

/// The smallest x with P(X > x) ≤ `level`: infinite for level 0, and minus infinite for level 1.
pub(crate) fn threshold(degrees: usize, level: f64) -> f64 {
    if level <= 0.0 {
        return f64::INFINITY;
    }
    if level >= 1.0 {
        return f64::NEG_INFINITY;
    }
    let (mut low, mut high) = (0.0, 1.0);
    while tail(degrees, high) > level {
        (low, high) = (high, 2.0 * high);
    }
    // Until the two are neighbouring numbers.
    loop {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            return high;
        }
        if tail(degrees, middle) > level {
            low = middle;
        } else {
            high = middle;
        }
    }
}

/// Q(a, x), the regularised upper incomplete gamma function: by the series of 1 − Q for small x, else by its
/// continued fraction (Lentz's method).
fn upper_gamma(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 1.0;
    }
    let front = libm::exp(a * libm::log(x) - x - libm::lgamma(a));
    if x < a + 1.0 {
        let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
        while term > f64::EPSILON * 0.1 * sum {
            n += 1.0;
            term *= x / n;
            sum += term;
        }
        return 1.0 - front * sum;
    }
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (f64::MAX, 1.0 / b);
    let mut fraction = d;
    for i in 1..10_000 {
        let i = f64::from(i);
        let a_i = i * (a - i);
        b += 2.0;
        d = 1.0 / (a_i * d + b);
        c = b + a_i / c;
        fraction *= c * d;
        if (c * d - 1.0).abs() < f64::EPSILON {
            break;
        }
    }
    front * fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Percentage points from printed tables of the distribution.
    #[test]
    fn thresholds_are_those_of_the_tables() {
        for (degrees, level, expected) in [
            (1, 0.05, 3.841_458_821),
            (1, 0.01, 6.634_896_601),
            (2, 0.01, 9.210_340_372),
            (5, 0.5, 4.351_460_191),
            (10, 0.95, 3.940_299_136),
            (20, 0.01, 37.566_234_787),
            (100, 0.05, 124.342_113_404),
        ] {
            let got = threshold(degrees, level);
            assert!(
                (got - expected).abs() < 1e-8 * expected,
                "{degrees} {level}: {got}"
            );
        }
        assert_eq!(threshold(3, 0.0), f64::INFINITY);
        assert_eq!(threshold(3, 1.0), f64::NEG_INFINITY);
    }

    /// With two degrees of freedom the tail is e^(−x/2), with four e^(−x/2)(1 + x/2); with one it is that of a
    /// squared normal number.
    #[test]
    fn tails_are_those_of_closed_forms() {
        for x in [1e-9, 0.1, 1.0, 2.9, 3.1, 7.0, 30.0, 400.0] {
            let close = |got: f64, expected: f64| {
                assert!(
                    (got - expected).abs() <= 1e-13 * expected.max(1e-3),
                    "{x}: {got} {expected}"
                );
            };
            let e = libm::exp(-x / 2.0);
            close(tail(2, x), e);
            close(tail(4, x), e * (1.0 + x / 2.0));
            close(tail(1, x), libm::erfc((x / 2.0).sqrt()));
        }
        assert_eq!(tail(7, 0.0), 1.0);
        assert!(tail(500, 500.0) > 0.48 && tail(500, 500.0) < 0.5);
    }
}
