//! Labels of the ticks of an axis.

/// Digits without zeros at the end.
fn trimmed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    match text.strip_prefix('-') {
        Some("0") => "0".into(),
        Some(digits) => format!("−{digits}"),
        None => text.into(),
    }
}

/// A number in few characters: `200k`, `1.5M`.
pub fn compact(value: f64) -> String {
    let (unit, letter) = match value.abs() {
        size if size >= 1e9 => (1e9, "B"),
        size if size >= 1e6 => (1e6, "M"),
        size if size >= 1e3 => (1e3, "k"),
        _ => (1.0, ""),
    };
    format!("{}{letter}", trimmed(value / unit, 2))
}

/// A share as a percentage: `12.5%`.
pub fn percentage(share: f64) -> String {
    format!("{}%", trimmed(share * 100.0, 2))
}

/// A power of ten as such, `10⁶`; anything else as [`compact`] has it.
pub fn power_of_ten(value: f64) -> String {
    let exponent = value.log10();
    if !exponent.is_finite() || (exponent - exponent.round()).abs() > 1e-8 {
        return compact(value);
    }
    let mut text = String::from("10");
    for character in format!("{exponent:.0}").chars() {
        text.push(match character {
            '0' => '⁰',
            '1' => '¹',
            '2' => '²',
            '3' => '³',
            '4' => '⁴',
            '5' => '⁵',
            '6' => '⁶',
            '7' => '⁷',
            '8' => '⁸',
            '9' => '⁹',
            _ => '⁻',
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_short() {
        assert_eq!(compact(0.0), "0");
        assert_eq!(compact(-0.001), "0");
        assert_eq!(compact(0.25), "0.25");
        assert_eq!(compact(800.0), "800");
        assert_eq!(compact(200_000.0), "200k");
        assert_eq!(compact(1_000_000.0), "1M");
        assert_eq!(compact(1_250_000.0), "1.25M");
        assert_eq!(compact(-2_500.0), "−2.5k");
        assert_eq!(percentage(0.125), "12.5%");
        assert_eq!(percentage(0.1), "10%");
        assert_eq!(power_of_ten(1.0), "10⁰");
        assert_eq!(power_of_ten(1e12), "10¹²");
        assert_eq!(power_of_ten(0.001), "10⁻³");
        assert_eq!(power_of_ten(2_000.0), "2k");
    }
}
