//! Numbers as the page shows them.

use crate::summary::{Mean, thousands};

/// The text in place of a missing number.
pub const NONE: &str = "–";

/// A minus sign instead of a hyphen.
fn with_minus(text: String) -> String {
    text.replace('-', "−")
}

/// A whole number with commas.
pub fn whole(value: f64) -> String {
    if value.is_finite() {
        thousands(value)
    } else {
        NONE.into()
    }
}

/// A whole number if it is large, else with a decimal.
pub fn amount(value: f64, size: f64) -> String {
    if !value.is_finite() {
        NONE.into()
    } else if size.abs() >= 1000.0 {
        thousands(value)
    } else {
        with_minus(format!("{value:.1}"))
    }
}

/// A mean count: without a fraction if it is a whole number.
pub fn count(value: f64) -> String {
    if value.fract() == 0.0 {
        whole(value)
    } else {
        amount(value, value)
    }
}

/// A mean, and its error if it has one; `size` says how large such numbers are.
pub fn mean(value: Mean, size: f64) -> (String, Option<String>) {
    let error = (value.error > 0.0).then(|| format!("± {}", amount(value.error, size)));
    (amount(value.mean, size), error)
}

/// Like [`mean`], with a sign.
pub fn difference(value: Mean, size: f64) -> (String, Option<String>) {
    let (text, error) = mean(value, size);
    (signed(value.mean, text), error)
}

/// A plus sign for a value above 0; none for a value that is shown as 0.
fn signed(value: f64, text: String) -> String {
    if value > 0.0 && text.chars().any(|digit| ('1'..='9').contains(&digit)) {
        format!("+{text}")
    } else {
        text
    }
}

/// A share in per cent with one decimal and a sign.
pub fn change(share: f64) -> String {
    if !share.is_finite() {
        return NONE.into();
    }
    signed(
        share,
        format!("{}%", with_minus(format!("{:.1}", 100.0 * share))),
    )
}

/// A share with its error, in per cent.
pub fn rate(share: Mean) -> (String, Option<String>) {
    if !share.mean.is_finite() {
        return (NONE.into(), None);
    }
    let error = (share.error > 0.0).then(|| format!("± {:.2}", 100.0 * share.error));
    (format!("{:.2}%", 100.0 * share.mean), error)
}

/// A relative difference with its error, in per cent.
pub fn lift(share: Mean) -> (String, Option<String>) {
    let error = (share.error > 0.0).then(|| format!("± {:.1}", 100.0 * share.error));
    (change(share.mean), error)
}

/// Seconds: the fewer, the more decimals.
pub fn seconds(value: f64) -> String {
    match value {
        _ if !value.is_finite() => NONE.into(),
        _ if value < 10.0 => format!("{value:.2}"),
        _ if value < 100.0 => format!("{value:.1}"),
        _ => thousands(value),
    }
}

/// A speed-up, as a factor.
pub fn speed_up(before: f64, now: f64) -> String {
    let times = before / now;
    match times {
        _ if !times.is_finite() => NONE.into(),
        _ if times < 10.0 => format!("{times:.1}×"),
        _ => format!("{}×", thousands(times)),
    }
}

/// A stretch of time in words.
pub fn duration(seconds: f64) -> String {
    if seconds < 120.0 {
        return format!(
            "{} s",
            if seconds < 10.0 {
                format!("{seconds:.1}")
            } else {
                format!("{seconds:.0}")
            }
        );
    }
    let minutes = (seconds / 60.0).round() as u64;
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{minutes} min"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

/// Numbers in a row, runs of them as `1–10`.
pub fn list(numbers: &[u64]) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let texts = runs.into_iter().map(|(first, last)| match last - first {
        0 => format!("{first}"),
        1 => format!("{first}, {last}"),
        _ => format!("{first}–{last}"),
    });
    texts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_long_as_they_are_sure() {
        let of = |mean, error| Mean { mean, error };
        assert_eq!(
            mean(of(68_238.4, 120.6), 68_238.4),
            ("68,238".into(), Some("± 121".into()))
        );
        assert_eq!(mean(of(812.34, 0.0), 812.34), ("812.3".into(), None));
        assert_eq!(
            difference(of(-12.0, 3.0), 70_000.0),
            ("−12".into(), Some("± 3".into()))
        );
        assert_eq!(difference(of(1_500.0, 0.0), 70_000.0).0, "+1,500");
        assert_eq!(difference(of(0.2, 0.0), 70_000.0).0, "0");
        assert_eq!(count(10.0), "10");
        assert_eq!(count(10.25), "10.2");
        assert_eq!(change(0.0123), "+1.2%");
        assert_eq!(change(-0.0594), "−5.9%");
        assert_eq!(change(f64::NAN), NONE);
        assert_eq!(
            rate(of(0.12345, 0.001)),
            ("12.35%".into(), Some("± 0.10".into()))
        );
        assert_eq!(lift(of(0.2, 0.01)), ("+20.0%".into(), Some("± 1.0".into())));
        assert_eq!(seconds(3.456), "3.46");
        assert_eq!(seconds(12.34), "12.3");
        assert_eq!(seconds(4_284.0), "4,284");
        assert_eq!(speed_up(4_284.0, 3.0), "1,428×");
        assert_eq!(speed_up(1.0, 2.0), "0.5×");
        assert_eq!(duration(4.25), "4.2 s");
        assert_eq!(duration(600.0), "10 min");
        assert_eq!(duration(7_260.0), "2 h 1 min");
        assert_eq!(list(&[1, 2, 3, 7, 9, 10]), "1–3, 7, 9, 10");
    }
}
