//! Times of interactions, in milliseconds since 1970, at most [`END`].

use super::collect::Reason;

/// The end of the times that can be read, in the year 5138.
const END: f64 = 1e14;

/// The time of a text: a number, or a date with or without a time of day, such as `2024-05-01T12:30:00Z`. A time
/// without a zone is in UTC.
pub fn parse(text: &str) -> Result<i64, Reason> {
    let text = text.trim();
    let shown = || text.chars().take(40).collect::<String>();
    let time = match text.parse::<f64>() {
        Ok(number) => Some(milliseconds(number)).filter(|time| time.is_finite()),
        Err(_) => date(text.as_bytes()).map(|time| time as f64),
    };
    match time {
        Some(time) => in_range(time, shown),
        None => Err(format!(
            "the time '{}' is neither a number nor a date such as 2024-05-01T12:30:00Z",
            shown()
        )
        .into()),
    }
}

/// The time of a number of seconds, milliseconds, microseconds or nanoseconds since 1970: its size tells which.
pub fn of_number(number: f64) -> Result<i64, Reason> {
    in_range(milliseconds(number), || number.to_string())
}

/// The time of a number of days since 1970.
pub fn of_days(days: i64) -> Result<i64, Reason> {
    in_range(days as f64 * 86_400_000.0, || format!("day {days}"))
}

fn milliseconds(number: f64) -> f64 {
    match number {
        _ if number < 1e11 => number * 1e3,
        _ if number < 1e14 => number,
        _ if number < 1e17 => number / 1e3,
        _ => number / 1e6,
    }
}

fn in_range(time: f64, shown: impl Fn() -> String) -> Result<i64, Reason> {
    match (0.0..END).contains(&time) {
        true => Ok(time as i64),
        false => Err(format!(
            "the time '{}' is out of range; it must be between 1970 and 5138",
            shown()
        )
        .into()),
    }
}

/// `YYYY-MM-DD`, then optionally `T` or a space, `hh:mm`, `:ss`, a fraction, and `Z` or `±hh:mm`.
fn date(text: &[u8]) -> Option<i64> {
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = text.get(from..to)?;
        let all = digits.iter().all(u8::is_ascii_digit);
        all.then(|| {
            digits
                .iter()
                .fold(0, |sum, digit| 10 * sum + i64::from(digit - b'0'))
        })
    };
    let is = |at: usize, bytes: &[u8]| text.get(at).is_some_and(|byte| bytes.contains(byte));
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    if !(is(4, b"-") && is(7, b"-") && (1..=12).contains(&month)) {
        return None;
    }
    let next_month = days(year + month / 12, month % 12 + 1, 1);
    if day == 0 || days(year, month, day) >= next_month {
        return None;
    }
    let mut time = days(year, month, day) * 86_400_000;
    if text.len() == 10 {
        return Some(time);
    }
    let (hour, minute) = (number(11, 13)?, number(14, 16)?);
    if !(is(10, b"T ") && is(13, b":") && hour < 24 && minute < 60) {
        return None;
    }
    time += (hour * 60 + minute) * 60_000;
    let mut at = 16;
    if is(at, b":") {
        let second = number(17, 19)?;
        if second > 60 {
            return None;
        }
        time += second * 1000;
        at = 19;
        if is(at, b".") {
            let digits = text[at + 1..]
                .iter()
                .take_while(|byte| byte.is_ascii_digit());
            let digits: Vec<u8> = digits.copied().collect();
            let value = |place: usize| digits.get(place).map_or(0, |digit| i64::from(digit - b'0'));
            time += value(0) * 100 + value(1) * 10 + value(2);
            at += 1 + digits.len();
        }
    }
    match &text[at..] {
        b"" | b"Z" | b" UTC" => Some(time),
        [sign @ (b'+' | b'-'), ..] if text.len() >= at + 5 => {
            let colon = usize::from(is(at + 3, b":"));
            let hours = number(at + 1, at + 3)?;
            let minutes = number(at + 3 + colon, at + 5 + colon)?;
            let offset = hours * 60 + minutes;
            let is_whole = text.len() == at + 5 + colon && hours < 24 && minutes < 60;
            let sign = if *sign == b'+' { -1 } else { 1 };
            is_whole.then_some(time + sign * offset * 60_000)
        }
        _ => None,
    }
}

/// Days from 1970-01-01 to a day of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // A year begins in March here, so that the day of a leap year is its last one.
    let (year, month) = match month > 2 {
        true => (year, month - 3),
        false => (year - 1, month + 9),
    };
    let of_year = (153 * month + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year
        - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_numbers_are_times() {
        for (text, expected) in [
            ("1970-01-01", 0),
            // By `date -ud ... +%s`.
            ("2000-02-29", 951_782_400_000),
            ("2023-12-31", 1_703_980_800_000),
            ("2024-05-01T12:30:00Z", 1_714_566_600_000),
            ("2024-05-01 12:30:15.25", 1_714_566_615_250),
            ("2024-05-01T12:30:00+02:00", 1_714_559_400_000),
            ("2024-05-01T12:30:00-0130", 1_714_572_000_000),
            ("978300760", 978_300_760_000),
            ("1714566600123", 1_714_566_600_123),
            ("1714566600123000", 1_714_566_600_123),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
        for bad in [
            "",
            "May 1",
            "2024-13-01",
            "2024-02-30",
            "2023-02-29",
            "1900-02-29",
            "2024-04-31",
            "2024-12-32",
            "2024-05-00",
            "2024-05-01T25:00",
            "2024-05-01T12:30:00+24:00",
            "2024-05-01T12:30:00+2",
            "NaN",
        ] {
            let error = parse(bad).unwrap_err();
            assert!(
                error.contains("neither a number nor a date"),
                "{bad}: {error}"
            );
        }
        for bad in [
            "-5",
            "99999999999999999999",
            "1969-12-31T23:59:59Z",
            "9999-12-31",
        ] {
            let error = parse(bad).unwrap_err();
            let expected =
                format!("the time '{bad}' is out of range; it must be between 1970 and 5138");
            assert_eq!(error, expected);
        }
    }
}
