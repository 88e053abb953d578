//! Numbers in texts: prices, decimal commas, thousands, and words for a missing value.
//!
//! | text | number |
//! |---|---|
//! | `12.50`, `1e3` | as they are written |
//! | `12,50`, `1.234,50`, `1,234.50`, `1 000`, `1'000`, `1.000.000` | the only number that it can be |
//! | `1,000`, `1.000` | a [`NumberFormat`] says whether the comma is the decimal sign |
//! | `$4.50`, `1.234,50 €`, `USD 1,000` | a price; three digits behind a point or a comma are thousands |

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kinds::is_missing;

/// The share of values of which the others are missing values, as one of so many.
const ODD: usize = 20;
/// The maximum number of different texts that a column takes as missing.
const MAX_MISSING: usize = 1000;
/// Words that say that a number is missing, in lower case.
const MISSING: [&str; 20] = [
    "n/a", "n.a.", "na", "nan", "#n/a", "<na>", "null", "none", "nil", "empty", "unknown", "tbd",
    "tba", "\\n", "-", "--", "\u{2013}", "\u{2014}", "?", ".",
];

/// How the values of a column are read as numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberFormat {
    /// True if `1,000` is 1 and `1.000` is 1000. Otherwise it is the other way round. Other texts do not depend on it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub decimal_comma: bool,
    /// True if a value may be a list, of which the first number counts: rows of the same item that were gathered.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lists: bool,
    /// Texts of the fit that are no numbers and were taken as missing, in lower case.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub missing: BTreeSet<String>,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// A value in a column of numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reading {
    Number(f64),
    /// Nothing, or a word for it.
    Missing,
    /// A value that is neither.
    Bad,
}

impl NumberFormat {
    /// The format of a column that is known to have numbers.
    pub fn of(values: &[&Value]) -> Self {
        let signs = Signs::of(values);
        Self {
            decimal_comma: signs.decimal_comma(),
            ..Self::default()
        }
    }

    /// The format of a column, if most of its values are numbers and the others are texts: these are missing values.
    pub fn guess(values: &[&Value]) -> Option<Self> {
        let mut format = Self::of(values);
        let count = Count::of(&format, values);
        if count.numbers == 0 || count.bad * ODD > count.numbers + count.bad {
            return None;
        }
        for value in values {
            if format.read(value) == Reading::Bad {
                format.missing.insert(word(value.as_str()?));
            }
        }
        (format.missing.len() <= MAX_MISSING).then_some(format)
    }

    /// Reads a value.
    pub fn read(&self, value: &Value) -> Reading {
        if is_missing(value) {
            return Reading::Missing;
        }
        match value {
            Value::Number(number) => finite(number.as_f64()),
            Value::Bool(value) => Reading::Number(f64::from(u8::from(*value))),
            Value::String(text) => match finite(read_text(text.trim(), self.decimal_comma)) {
                Reading::Bad if self.is_word(text) => Reading::Missing,
                reading => reading,
            },
            Value::Array(list) if self.lists => {
                let all = || list.iter().map(|value| self.read(value));
                let number = all().find(|reading| matches!(reading, Reading::Number(_)));
                number
                    .or_else(|| all().find(|reading| *reading == Reading::Bad))
                    .unwrap_or(Reading::Missing)
            }
            _ => Reading::Bad,
        }
    }

    /// The number that a value is, if it is one.
    pub fn number(&self, value: &Value) -> Option<f64> {
        match self.read(value) {
            Reading::Number(number) => Some(number),
            _ => None,
        }
    }

    fn is_word(&self, text: &str) -> bool {
        let word = word(text);
        MISSING.contains(&&*word) || self.missing.contains(&word)
    }
}

fn word(text: &str) -> String {
    text.trim().to_lowercase()
}

fn finite(number: Option<f64>) -> Reading {
    match number {
        Some(number) if number.is_finite() => Reading::Number(number),
        _ => Reading::Bad,
    }
}

/// The numbers of a column, and the values that are neither numbers nor missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    pub numbers: usize,
    pub bad: usize,
}

impl Count {
    pub fn of(format: &NumberFormat, values: &[&Value]) -> Self {
        let mut count = Self { numbers: 0, bad: 0 };
        for value in values {
            match format.read(value) {
                Reading::Number(_) => count.numbers += 1,
                Reading::Bad => count.bad += 1,
                Reading::Missing => {}
            }
        }
        count
    }
}

/// What the texts of a column say about points and commas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Signs {
    /// Texts in which the comma is the decimal sign, or the point is between thousands.
    commas: usize,
    /// Texts in which the point is the decimal sign, or the comma is between thousands.
    points: usize,
    /// The same of prices with a currency.
    price_commas: usize,
    price_points: usize,
    /// Texts such as `1,000`.
    either_comma: usize,
    /// Texts such as `1.000`, and how many of them end in 0.
    either_point: usize,
    round_points: usize,
}

impl Signs {
    pub fn of(values: &[&Value]) -> Self {
        let mut signs = Self::default();
        for value in values {
            match value {
                Value::String(text) => signs.add(text.trim()),
                Value::Array(list) => {
                    let texts = list.iter().filter_map(Value::as_str);
                    texts.for_each(|text| signs.add(text.trim()));
                }
                _ => {}
            }
        }
        signs
    }

    fn add(&mut self, text: &str) {
        match (shape(text), amount(text).and_then(|(_, rest)| shape(rest))) {
            (Some(Shape::Decimal(',', _) | Shape::Thousands('.', _)), _) => self.commas += 1,
            (Some(Shape::Decimal('.', _) | Shape::Thousands(',', _)), _) => self.points += 1,
            (Some(Shape::Either(',', ..)), _) => self.either_comma += 1,
            (Some(Shape::Either(..)), _) => {
                self.either_point += 1;
                self.round_points += usize::from(text.ends_with('0'));
            }
            (None, Some(Shape::Decimal(',', _) | Shape::Thousands('.', _))) => {
                self.price_commas += 1;
            }
            (None, Some(Shape::Decimal('.', _) | Shape::Thousands(',', _))) => {
                self.price_points += 1;
            }
            _ => {}
        }
    }

    fn decimal_comma(&self) -> bool {
        let is_open = self.commas + self.points == 0 && self.either_comma + self.either_point > 0;
        match is_open {
            true => self.price_commas > self.price_points,
            false => self.commas > self.points,
        }
    }

    /// Returns true if a text can be two numbers, and the others of the column do not say which.
    pub fn are_ambiguous(&self) -> bool {
        let says = (self.commas > 0) != (self.points > 0)
            || self.commas + self.points == 0 && (self.price_commas > 0) != (self.price_points > 0);
        // Three decimals are usual; three that mostly end in 0 are not.
        !says
            && (self.either_comma > 0
                || self.either_point > 0
                    && (self.commas > 0 || self.round_points * 2 > self.either_point))
    }
}

/// Returns true if a text is two numbers, depending on what a comma means.
pub fn is_either(text: &str) -> bool {
    matches!(shape(text.trim()), Some(Shape::Either(..)))
}

/// Returns true if a text has a decimal comma with two digits behind it, as a price has.
pub fn is_price_with_comma(text: &str) -> bool {
    let text = text.trim();
    let decimals = text.rfind(',').map(|at| text.len() - at - 1);
    decimals == Some(2) && matches!(shape(text), Some(Shape::Decimal(..)))
}

/// Digits with separators, and the number that they are.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    /// No point and no comma.
    Whole(f64),
    /// The sign is the decimal one.
    Decimal(char, f64),
    /// The sign is between thousands.
    Thousands(char, f64),
    /// Either: the number if the sign is the decimal one, and if it is between thousands.
    Either(char, f64, f64),
}

fn shape(text: &str) -> Option<Shape> {
    let (sign, digits) = match text.strip_prefix(['-', '\u{2212}']) {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let is_digit = |c: char| c.is_ascii_digit();
    if !digits.starts_with(is_digit) || !digits.ends_with(is_digit) {
        return None;
    }
    let number = |whole: &str, decimals: &str| -> Option<f64> {
        let whole: String = whole.chars().filter(|&c| is_digit(c)).collect();
        format!("{sign}{whole}.{decimals}").parse().ok()
    };
    let last = digits.rfind([',', '.']);
    let Some((last, point)) = last.and_then(|at| Some((at, digits[at..].chars().next()?))) else {
        grouped(digits)?;
        return Some(Shape::Whole(number(digits, "0")?));
    };
    let (before, after) = (&digits[..last], &digits[last + 1..]);
    let is_repeated = before.contains(point);
    if is_repeated {
        // 1.000.000
        return match grouped(digits)? {
            Some(_) => Some(Shape::Thousands(point, number(digits, "0")?)),
            None => None,
        };
    }
    if !after.chars().all(is_digit) {
        return None;
    }
    let between = grouped(before)?;
    let decimal = number(before, after)?;
    let is_thousands =
        after.len() == 3 && between.is_none() && before.len() <= 3 && !before.starts_with('0');
    Some(match is_thousands {
        true => Shape::Either(point, decimal, number(digits, "0")?),
        false => Shape::Decimal(point, decimal),
    })
}

/// The character between groups of three digits; `Some(None)` if there are digits alone.
fn grouped(digits: &str) -> Option<Option<char>> {
    let Some(at) = digits.find(|c: char| !c.is_ascii_digit()) else {
        return Some(None);
    };
    let between = digits[at..].chars().next()?;
    let is_known = [
        ',', '.', ' ', '\'', '\u{2019}', '\u{a0}', '\u{202f}', '\u{2009}',
    ]
    .contains(&between);
    let mut groups = digits.split(between);
    let first = groups.next()?;
    let is_good = is_known
        && (1..=3).contains(&first.len())
        && !first.starts_with('0')
        && groups.all(|group| group.len() == 3 && group.bytes().all(|c| c.is_ascii_digit()));
    is_good.then_some(Some(between))
}

fn read_text(text: &str, decimal_comma: bool) -> Option<f64> {
    let either = |shape: Option<Shape>| match shape? {
        Shape::Whole(number) | Shape::Decimal(_, number) | Shape::Thousands(_, number) => {
            Some(number)
        }
        Shape::Either(point, decimal, thousands) => Some(match (point == ',') == decimal_comma {
            true => decimal,
            false => thousands,
        }),
    };
    match decimal_comma && is_either(text) {
        true => either(shape(text)),
        // What every transform reads.
        false => text
            .parse()
            .ok()
            .or_else(|| price(text))
            .or_else(|| either(shape(text))),
    }
}

/// Signs and names of currencies, before or behind a number.
const CURRENCIES: [&str; 16] = [
    "US$", "$", "€", "£", "¥", "₹", "₽", "₩", "zł", "kr", "USD", "EUR", "GBP", "JPY", "CHF", "INR",
];

/// The sign of a price, and the text without its currency.
fn amount(text: &str) -> Option<(f64, &str)> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest.trim_start()),
        None => (1.0, text),
    };
    let amount = CURRENCIES.iter().find_map(|currency| {
        let rest = text
            .strip_prefix(currency)
            .or_else(|| text.strip_suffix(currency));
        rest.map(str::trim)
    })?;
    Some((sign, amount))
}

/// The number in a price such as `$4.50`, `1.234,50 €` or `USD 1,000`. The last point or comma is the decimal one, unless
/// it occurs twice or three digits follow it.
fn price(text: &str) -> Option<f64> {
    let (sign, amount) = amount(text)?;
    let is_plain = amount.starts_with(|c: char| c.is_ascii_digit())
        && amount.ends_with(|c: char| c.is_ascii_digit());
    let is_known = |c: char| c.is_ascii_digit() || [',', '.', ' ', '\'', '\u{a0}'].contains(&c);
    if !is_plain || !amount.chars().all(is_known) {
        return None;
    }
    let decimal = amount.rfind([',', '.']).filter(|&at| {
        let point = &amount[at..=at];
        amount.matches(point).count() == 1 && amount.len() - at != 4
    });
    let digits = |part: &str| -> String { part.chars().filter(char::is_ascii_digit).collect() };
    let number = match decimal {
        Some(at) => format!("{}.{}", digits(&amount[..at]), digits(&amount[at..])),
        None => digits(amount),
    };
    number.parse().ok().map(|number: f64| sign * number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn number(text: &str) -> Option<f64> {
        NumberFormat::default().number(&json!(text))
    }

    fn guess(values: &Value) -> Option<NumberFormat> {
        let values: Vec<&Value> = values.as_array().unwrap().iter().collect();
        NumberFormat::guess(&values)
    }

    /// The numbers of a column, in the format that its values have.
    fn numbers(values: Value) -> Vec<Option<f64>> {
        let format = guess(&values).unwrap();
        let values = values.as_array().unwrap().iter();
        values.map(|value| format.number(value)).collect()
    }

    fn are_ambiguous(values: Value) -> bool {
        let values: Vec<&Value> = values.as_array().unwrap().iter().collect();
        Signs::of(&values).are_ambiguous()
    }

    #[test]
    fn prices_are_numbers() {
        for (text, expected) in [
            ("$4.50", Some(4.5)),
            ("4,50 €", Some(4.5)),
            ("1.234,50 €", Some(1234.5)),
            ("US$1,234.50", Some(1234.5)),
            ("USD 1,000", Some(1000.0)),
            ("£1,234,567", Some(1_234_567.0)),
            ("-$3", Some(-3.0)),
            ("CHF 1'000.5", Some(1000.5)),
            ("$", None),
            ("$4.50 each", None),
            ("$4-5", None),
            ("B$4", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
    }

    #[test]
    fn a_text_that_can_be_one_number_only_is_that_number() {
        for (text, expected) in [
            ("4,50", Some(4.5)),
            ("1,2", Some(1.2)),
            ("-12,50", Some(-12.5)),
            ("+12,50", Some(12.5)),
            ("\u{2212}3", Some(-3.0)),
            ("1.000,00", Some(1000.0)),
            ("1,234.50", Some(1234.5)),
            ("1,234,567", Some(1_234_567.0)),
            ("1.234.567", Some(1_234_567.0)),
            ("1.234.567,8", Some(1_234_567.8)),
            ("1 000", Some(1000.0)),
            ("12 345,67", Some(12345.67)),
            ("12\u{202f}345", Some(12345.0)),
            ("1'000", Some(1000.0)),
            ("1'234.567", Some(1234.567)),
            ("0,125", Some(0.125)),
            ("1234,567", Some(1234.567)),
            ("1e3", Some(1000.0)),
            (".5", Some(0.5)),
            // Lists, dates, versions and ranges.
            ("1,2,3", None),
            ("12,878,28", None),
            ("1,000,00", None),
            ("1.2.3", None),
            ("2024.05.01", None),
            ("12 50", None),
            ("1 000 00", None),
            ("0 125", None),
            ("1,000.000.000", None),
            ("1.000,000,000", None),
            ("4,", None),
            (",5", None),
            ("1,,5", None),
            ("1-2", None),
            ("5 kg", None),
            ("inf", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
            let comma = NumberFormat {
                decimal_comma: true,
                ..NumberFormat::default()
            };
            assert_eq!(comma.number(&json!(text)), expected, "{text}");
        }
    }

    #[test]
    fn the_column_says_whether_a_comma_is_decimal() {
        let all = |numbers: &[f64]| -> Vec<Option<f64>> {
            numbers.iter().map(|&number| Some(number)).collect()
        };
        assert_eq!(numbers(json!(["1,000", "999.50"])), all(&[1000.0, 999.5]));
        assert_eq!(numbers(json!(["1.000", "999,50"])), all(&[1000.0, 999.5]));
        assert_eq!(numbers(json!(["1,250", "0,5"])), all(&[1.25, 0.5]));
        assert_eq!(numbers(json!(["1.250", "0.5"])), all(&[1.25, 0.5]));
        assert_eq!(
            numbers(json!(["1.000", "9,50 €"])),
            all(&[1000.0, 9.5]),
            "prices say it where nothing else does"
        );
        assert_eq!(
            numbers(json!(["12,50", "9,99", 3.25])),
            all(&[12.5, 9.99, 3.25])
        );
        for plain in [
            json!(["1,000", "999.50"]),
            json!(["1.000", "999,50"]),
            json!(["1.234", "5.678"]),
            json!(["1,000", "$2.50"]),
            json!(["12,50", "9.99"]),
            json!([1000, 2.5]),
        ] {
            assert!(!are_ambiguous(plain.clone()), "{plain}");
        }
        for open in [
            json!(["1,000", "2,500"]),
            json!(["1.000", "2.500"]),
            json!(["12,50", "9.99", "1,000"]),
        ] {
            assert!(are_ambiguous(open.clone()), "{open}");
        }
        // What cannot be known is read as in English.
        assert_eq!(numbers(json!(["1,000", "2,500"])), all(&[1000.0, 2500.0]));
        assert_eq!(numbers(json!(["1.000", "2.500"])), all(&[1.0, 2.5]));
    }

    #[test]
    fn one_value_of_twenty_may_be_something_else() {
        let column = |numbers: usize, others: &[&str]| {
            let numbers = (0..numbers).map(Value::from);
            numbers
                .chain(others.iter().map(|&text| text.into()))
                .collect::<Value>()
        };
        let format = guess(&column(38, &["call us", " Sold out "])).unwrap();
        let words: Vec<&str> = format.missing.iter().map(String::as_str).collect();
        assert_eq!(words, ["call us", "sold out"]);
        assert_eq!(format.read(&json!("Call us")), Reading::Missing);
        assert_eq!(format.read(&json!("much")), Reading::Bad);
        assert_eq!(guess(&column(37, &["call us", "sold out"])), None);
        // Words for missing are not counted.
        let format = guess(&column(
            2,
            &["n/a", "NA", "null", "None", "-", "\u{2014}", "NaN", ""],
        ));
        assert_eq!(format, Some(NumberFormat::default()));
        assert_eq!(guess(&column(0, &["n/a", "-"])), None);
        assert_eq!(guess(&json!([[1, 2], 3])), None);
    }

    #[test]
    fn a_list_is_its_first_number_where_rows_were_gathered() {
        let lists = NumberFormat {
            lists: true,
            ..NumberFormat::default()
        };
        for (value, expected) in [
            (json!(["", "n/a", "4,50", 7]), Reading::Number(4.5)),
            (json!(["x", 7]), Reading::Number(7.0)),
            (json!(["", "n/a"]), Reading::Missing),
            (json!(["n/a", "x"]), Reading::Bad),
            (json!([]), Reading::Missing),
        ] {
            assert_eq!(lists.read(&value), expected, "{value}");
        }
        assert_eq!(NumberFormat::default().read(&json!([7])), Reading::Bad);
    }
}
