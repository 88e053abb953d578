//! The kind of each column: given, or guessed from the data.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::fit::FitError;
use crate::{AVAILABLE, RawItem};

/// The meaning of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Words.
    Text,
    /// Several names, in a list or between separators; a category is one name, without a separator.
    Tags {
        /// The text between two tags.
        separator: Option<String>,
    },
    /// A number.
    Number,
    /// Nothing that features are made from.
    Ignored,
}

/// Options of a fit. Columns that are not named are guessed. The column [`AVAILABLE`] is always left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Features of an item, the constant one included.
    pub dim: usize,
    /// The column of ids. By default the one called `id`, else one called `item_id`, `movieId` or the like.
    pub id: Option<String>,
    /// Columns of words.
    pub text: Vec<String>,
    /// Columns of tags.
    pub tags: Vec<String>,
    /// Columns of categories: the whole value is one tag.
    pub category: Vec<String>,
    /// Columns of numbers.
    pub number: Vec<String>,
    /// Columns to leave out.
    pub ignore: Vec<String>,
    /// The text between two tags. By default it is guessed: `|`, `;` or `,`.
    pub separator: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dim: 20,
            id: None,
            text: Vec::new(),
            tags: Vec::new(),
            category: Vec::new(),
            number: Vec::new(),
            ignore: Vec::new(),
            separator: None,
        }
    }
}

/// Words by which a column of ids is found, before `id`.
const ID_WORDS: &[&str] = &[
    "item", "movie", "film", "business", "product", "asin", "isbn", "book", "song", "track",
    "artist", "article", "place", "venue", "game", "anime", "recipe", "page", "show", "sku",
];
/// Separators of tags that are tried.
const SEPARATORS: [&str; 3] = ["|", ";", ","];
/// The share of values that must have a separator.
const MIN_SEPARATED: f64 = 0.2;
/// How often a tag or a category must occur on average.
const MIN_REPEATS: f64 = 3.0;
/// The words of a tag or a category on average, at most.
const MAX_TAG_WORDS: f64 = 3.5;

/// The column of ids and the kind of every other column, by name.
pub type Columns = (Option<String>, Vec<(String, Kind)>);

/// Finds the columns of a catalogue.
///
/// # Errors
/// A column that is named and does not exist, or is named twice.
pub fn columns(items: &[RawItem], options: &Options) -> Result<Columns, FitError> {
    let names: BTreeSet<&str> = items
        .iter()
        .flat_map(|item| item.keys().map(String::as_str))
        .collect();
    let mut given: BTreeMap<&str, Kind> = BTreeMap::new();
    let tags = Kind::Tags {
        separator: options.separator.clone(),
    };
    let category = Kind::Tags { separator: None };
    for (columns, kind) in [
        (&options.text, Kind::Text),
        (&options.tags, tags),
        (&options.category, category),
        (&options.number, Kind::Number),
        (&options.ignore, Kind::Ignored),
    ] {
        for column in columns {
            if !names.contains(column.as_str()) {
                return Err(no_column(column, &names));
            }
            if column == AVAILABLE && kind != Kind::Ignored {
                return Err(FitError::Column(format!(
                    "column '{column}' says whether an item can be shown, and no feature is made from it; rename it if it says \
                     something else"
                )));
            }
            if given.insert(column, kind.clone()).is_some() {
                return Err(FitError::Column(format!(
                    "column '{column}' is given two kinds; give it one"
                )));
            }
        }
    }
    let id = match &options.id {
        Some(id) if !names.contains(id.as_str()) => return Err(no_column(id, &names)),
        Some(id) => Some(id.clone()),
        None => called_id(&names, &given),
    };
    let mut all = Vec::new();
    for name in names {
        if Some(name) == id.as_deref() {
            continue;
        }
        let values = || items.iter().filter_map(|item| item.get(name));
        let kind = match given.remove(name) {
            Some(Kind::Tags { separator: None })
                if options.tags.iter().any(|tags| tags == name) =>
            {
                Kind::Tags {
                    separator: commonest_separator(&texts(values())).map(str::to_owned),
                }
            }
            Some(kind) => kind,
            None if name == AVAILABLE => Kind::Ignored,
            None => guess(name, values()),
        };
        all.push((name.to_owned(), kind));
    }
    Ok((id, all))
}

/// The column of ids of a catalogue, given or found by its name.
///
/// # Errors
/// As [`fit`](crate::fit).
pub fn id_column(items: &[RawItem], options: &Options) -> Result<Option<String>, FitError> {
    Ok(columns(items, options)?.0)
}

fn no_column(column: &str, names: &BTreeSet<&str>) -> FitError {
    let names: Vec<&str> = names.iter().take(40).copied().collect();
    FitError::Column(format!(
        "there is no column '{column}'; the columns are {}",
        names.join(", ")
    ))
}

fn called_id(names: &BTreeSet<&str>, given: &BTreeMap<&str, Kind>) -> Option<String> {
    let plain = |name: &str| -> String {
        let kept = name.chars().filter(|c| !"_- .".contains(*c));
        kept.flat_map(char::to_lowercase).collect()
    };
    let free = || names.iter().filter(|name| !given.contains_key(**name));
    let is_called = |name: &str| {
        ID_WORDS.iter().any(|word| {
            let rest = name.strip_prefix(word);
            rest.is_some_and(|rest| ["", "id", "code", "key", "number"].contains(&rest))
        })
    };
    free()
        .find(|name| plain(name) == "id")
        .or_else(|| free().find(|name| is_called(&plain(name))))
        .map(|name| (*name).to_owned())
}

/// The number that a value is, if it is one.
pub fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::Bool(value) => Some(f64::from(u8::from(*value))),
        Value::String(text) => {
            let text = text.trim();
            text.parse().ok().or_else(|| price(text))
        }
        _ => None,
    }
    .filter(|number: &f64| number.is_finite())
}

/// Signs and names of currencies, before or behind a number.
const CURRENCIES: [&str; 16] = [
    "US$", "$", "€", "£", "¥", "₹", "₽", "₩", "zł", "kr", "USD", "EUR", "GBP", "JPY", "CHF", "INR",
];

/// The number in a price such as `$4.50`, `1.234,50 €` or `USD 1,000`. The last point or comma is the decimal one, unless
/// it occurs twice or three digits follow it.
fn price(text: &str) -> Option<f64> {
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

/// True for a value that says nothing.
pub fn is_missing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

fn texts<'a>(values: impl Iterator<Item = &'a Value>) -> Vec<&'a str> {
    values.filter_map(Value::as_str).collect()
}

/// Guesses the kind of a column from its values.
fn guess<'a>(name: &str, values: impl Iterator<Item = &'a Value>) -> Kind {
    let values: Vec<&Value> = values.filter(|value| !is_missing(value)).collect();
    let first = match values.first() {
        Some(first) if values.iter().any(|value| value != first) => *first,
        // Nothing, or the same everywhere.
        _ => return Kind::Ignored,
    };
    if values.iter().all(|value| value.is_array()) {
        return Kind::Tags { separator: None };
    }
    let is_id = name.len() > 2 && (name.ends_with("Id") || name.to_lowercase().ends_with("_id"));
    if is_id {
        return Kind::Ignored;
    }
    if values.iter().all(|value| number(value).is_some()) {
        return Kind::Number;
    }
    if !first.is_string() {
        return Kind::Ignored;
    }
    let texts = texts(values.iter().copied());
    if let Some(separator) = best_separator(&texts) {
        let separator = Some(separator.to_owned());
        return Kind::Tags { separator };
    }
    if repeats(texts.iter().copied()) {
        return Kind::Tags { separator: None };
    }
    let links = texts.iter().filter(|text| text.contains("://")).count();
    let words = texts
        .iter()
        .filter(|text| text.trim().contains(char::is_whitespace));
    match links * 2 > texts.len() || words.count() * 20 < texts.len() {
        // Addresses, and codes of one word that hardly repeat.
        true => Kind::Ignored,
        false => Kind::Text,
    }
}

/// The separator that makes tags of the values, if one does.
fn best_separator(texts: &[&str]) -> Option<&'static str> {
    SEPARATORS.into_iter().find(|separator| {
        let separated = texts.iter().filter(|text| text.contains(separator)).count();
        let tags = texts.iter().flat_map(|text| text.split(separator));
        separated as f64 >= MIN_SEPARATED * texts.len() as f64
            && separated > 0
            && repeats(tags.map(str::trim).filter(|tag| !tag.is_empty()))
    })
}

/// The separator that most values have, of a column that is known to have tags.
fn commonest_separator(texts: &[&str]) -> Option<&'static str> {
    let count = |separator: &str| texts.iter().filter(|text| text.contains(separator)).count();
    let best = SEPARATORS
        .into_iter()
        .rev()
        .max_by_key(|separator| count(separator));
    best.filter(|separator| count(separator) > 0)
}

/// True if names are short and occur several times each.
fn repeats<'a>(names: impl Iterator<Item = &'a str>) -> bool {
    let (mut count, mut words) = (0.0, 0.0);
    let mut different = BTreeSet::new();
    for name in names {
        count += 1.0;
        words += name.split_whitespace().count() as f64;
        different.insert(name);
    }
    count >= MIN_REPEATS * different.len() as f64 && words <= MAX_TAG_WORDS * count
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kind_of(values: Value) -> Kind {
        guess("x", values.as_array().unwrap().iter())
    }

    fn tags(separator: &str) -> Kind {
        Kind::Tags {
            separator: Some(separator.to_owned()),
        }
    }

    #[test]
    fn kinds_are_guessed_from_the_values() {
        assert_eq!(kind_of(json!(["1.5", "2", 3, null, ""])), Kind::Number);
        assert_eq!(
            kind_of(json!(["a|b", "a", "b|a", "b", "a|b", "a|b"])),
            tags("|")
        );
        assert_eq!(
            kind_of(json!([
                "red, blue",
                "red",
                "blue, red",
                "blue",
                "red,blue",
                "red"
            ])),
            tags(",")
        );
        assert_eq!(
            kind_of(json!(["tea", "tea", "coffee", "coffee", "tea", "coffee"])),
            Kind::Tags { separator: None }
        );
        assert_eq!(
            kind_of(json!(["A day, a night", "Two ships", "The end, again"])),
            Kind::Text
        );
        assert_eq!(
            kind_of(json!([["a"], ["b", "c"], []])),
            Kind::Tags { separator: None }
        );
        for nothing in [
            json!(["same", "same"]),
            json!([null, ""]),
            json!(["AX-1", "AX-2", "AX-3"]),
            json!(["http://x.y/a b", "http://x.y/c d"]),
            json!([{"a": 1}, {"a": 2}]),
        ] {
            assert_eq!(kind_of(nothing), Kind::Ignored);
        }
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
            ("4,50", None),
            ("1,2", None),
            ("B$4", None),
        ] {
            assert_eq!(number(&json!(text)), expected, "{text}");
        }
        assert_eq!(kind_of(json!(["$4.50", "$3", "$12.00"])), Kind::Number);
    }

    #[test]
    fn a_column_that_is_known_to_have_tags_has_the_commonest_separator() {
        let item = |tags: &str| -> RawItem { serde_json::from_value(json!({"t": tags})).unwrap() };
        let named = Options {
            tags: vec!["t".into()],
            ..Options::default()
        };
        let kind = |texts: &[&str]| {
            let items: Vec<RawItem> = texts.iter().map(|text| item(text)).collect();
            columns(&items, &named).unwrap().1.remove(0).1
        };
        assert_eq!(kind(&["a|b, c", "d|e", "f"]), tags("|"));
        assert_eq!(kind(&["a, b", "c, d", "e|f"]), tags(","));
        assert_eq!(kind(&["a", "b"]), Kind::Tags { separator: None });
    }

    #[test]
    fn ids_are_found_by_name_and_named_columns_must_exist() {
        let item = |value: Value| -> RawItem { serde_json::from_value(value).unwrap() };
        let items = [item(json!({"movieId": 1, "year": 1, "shop_id": 1}))];
        let (id, found) = columns(&items, &Options::default()).unwrap();
        assert_eq!(id.as_deref(), Some("movieId"));
        assert!(found.iter().all(|(_, kind)| *kind == Kind::Ignored));
        let named = |text: &[&str], number: &[&str]| Options {
            text: text.iter().map(|&name| name.to_owned()).collect(),
            number: number.iter().map(|&name| name.to_owned()).collect(),
            ..Options::default()
        };
        assert_eq!(
            columns(&items, &named(&["titel"], &[]))
                .unwrap_err()
                .to_string(),
            "there is no column 'titel'; the columns are movieId, shop_id, year"
        );
        assert_eq!(
            columns(&items, &named(&["year"], &["year"]))
                .unwrap_err()
                .to_string(),
            "column 'year' is given two kinds; give it one"
        );
    }
}
