//! Hints about the columns of a catalogue: values that count as missing although there is a text, texts that can be read as
//! two different numbers, and columns that seem to say whether an item can be bought.

use std::fmt;

use serde_json::Value;

use crate::AVAILABLE;
use crate::kinds::{Kind, best_separator, differ, is_missing, texts};
use crate::numbers::{Count, NumberFormat, Reading, Signs, is_either, is_price_with_comma};

/// Values that a hint names.
const SHOWN: usize = 3;
/// The characters of a value that a hint shows.
const SHOWN_CHARS: usize = 40;
/// Names of columns that say whether an item can be bought, in lower case and without spaces, `_`, `-` and `.`.
const STOCK_NAMES: &[&str] = &[
    "available",
    "availability",
    "discontinued",
    "instock",
    "inventory",
    "isavailable",
    "isinstock",
    "issoldout",
    "outofstock",
    "soldout",
    "stock",
    "stocklevel",
    "stockquantity",
    "stockstatus",
    "unavailable",
];

/// A hint about a column: an assumption that the report names, and what to do if it is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// The name of the column.
    pub column: String,
    what: String,
    /// The places of the first items that it is about, from 0, and their values.
    examples: Vec<(usize, String)>,
    /// How many more there are.
    more: usize,
    then: String,
}

impl Hint {
    /// The hint in a line. `place` is how an item is named, by its place in the catalogue from 0.
    pub fn tell(&self, place: &dyn Fn(usize) -> String) -> String {
        let one = |(at, value): &(usize, String)| format!("{} {value}", place(*at));
        let mut examples: Vec<String> = self.examples.iter().map(one).collect();
        if self.more > 0 {
            examples.push(format!("and {} more", self.more));
        }
        let then = match self.then.is_empty() {
            true => String::new(),
            false => format!("; {}", self.then),
        };
        format!(
            "column '{}': {}: {}{then}",
            self.column,
            self.what,
            examples.join(", ")
        )
    }

    fn new<'a>(
        column: &str,
        what: String,
        values: impl Iterator<Item = (usize, &'a Value)>,
        then: &str,
    ) -> Self {
        let mut examples = Vec::new();
        let mut more = 0;
        for (at, value) in values {
            match examples.len() < SHOWN {
                true => examples.push((at, shown(value))),
                false => more += 1,
            }
        }
        Self {
            column: column.to_owned(),
            what,
            examples,
            more,
            then: then.to_owned(),
        }
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tell(&|at| format!("item {}", at + 1)))
    }
}

fn shown(value: &Value) -> String {
    let (text, quote) = match value {
        Value::String(text) => (text.trim().to_owned(), "'"),
        other => (other.to_string(), ""),
    };
    let mut chars = text.chars();
    let start: String = chars.by_ref().take(SHOWN_CHARS).collect();
    let end = if chars.next().is_some() { "…" } else { "" };
    format!("{quote}{start}{end}{quote}")
}

/// Returns true for a value without a text, also in gathered rows.
fn is_blank(value: &Value) -> bool {
    is_missing(value)
        || value
            .as_array()
            .is_some_and(|list| list.iter().all(is_missing))
}

/// Hints about a column of numbers.
pub fn of_numbers(name: &str, format: &NumberFormat, values: &[(usize, &Value)]) -> Vec<Hint> {
    let mut hints = Vec::new();
    let filled = || values.iter().copied().filter(|(_, value)| !is_blank(value));
    let without = |(_, value): &(usize, &Value)| format.read(value) == Reading::Missing;
    let missing = filled().filter(without).count();
    if missing > 0 {
        let many = match missing {
            1 => "1 is no number and counts".to_owned(),
            many => format!("{many} are no numbers and count"),
        };
        let what = format!("of {} values {many} as missing", filled().count());
        let then = match format.missing.is_empty() {
            true => "",
            false => "if these are not numbers at all, name the column with category, tags or text",
        };
        hints.push(Hint::new(name, what, filled().filter(without), then));
    }
    let all: Vec<&Value> = values.iter().map(|value| value.1).collect();
    let has = |is: fn(&str) -> bool| {
        move |(_, value): &(usize, &Value)| match value {
            Value::String(text) => is(text),
            Value::Array(list) => list.iter().filter_map(Value::as_str).any(is),
            _ => false,
        }
    };
    if Signs::of(&all).are_ambiguous() {
        let example = |(_, value): (usize, &Value)| format.number(value);
        let first = filled().find(has(is_either)).and_then(example);
        let read = first.map_or_else(String::new, |number| format!(", here {number}"));
        let (sign, other) = match format.decimal_comma {
            true => ("a comma is read as the decimal sign", "a point"),
            false => ("a point is read as the decimal sign", "a comma"),
        };
        let what = format!("it is not certain, but {sign} and {other} as one of thousands{read}");
        let then = "write numbers without separators of thousands if that is wrong";
        hints.push(Hint::new(name, what, filled().filter(has(is_either)), then));
    } else {
        let texts = texts(all.iter().copied());
        let has_comma = |text: &&str| text.contains(',');
        let has_comma_only = |text: &str| text.contains(',');
        let is_like_lists = format.decimal_comma
            && best_separator(&texts) == Some(",")
            && !texts
                .iter()
                .filter(|text| has_comma(text))
                .all(|text| is_price_with_comma(text));
        if is_like_lists {
            let what = "its commas are read as decimal signs".to_owned();
            let then = "if these are lists, name the column with tags";
            hints.push(Hint::new(
                name,
                what,
                filled().filter(has(has_comma_only)),
                then,
            ));
        }
    }
    if format.lists {
        let differing = || filled().filter(|(_, value)| differ(format, value));
        let what = match differing().count() {
            0 => return hints,
            1 => "1 item has different numbers, of which the first counts".to_owned(),
            many => format!("{many} items have different numbers, of which the first counts"),
        };
        let then = "to take them as tags, name the column with tags";
        hints.push(Hint::new(name, what, differing(), then));
    }
    hints
}

/// Hints about a column whose kind was guessed: it seems to be availability, or has mostly numbers and is no column of numbers.
pub fn of_guessed(
    name: &str,
    kind: &Kind,
    values: &[(usize, &Value)],
    gathered: bool,
) -> Vec<Hint> {
    let stock = like_availability(name, kind, values);
    stock
        .into_iter()
        .chain(mostly_numbers(name, kind, values, gathered))
        .collect()
}

/// A hint about a column that becomes a feature and has a name such as `in_stock`. Items that are sold out are recommended all the same.
fn like_availability(name: &str, kind: &Kind, values: &[(usize, &Value)]) -> Option<Hint> {
    let kept = name.chars().filter(|c| !"_-. ".contains(*c));
    let plain: String = kept.flat_map(char::to_lowercase).collect();
    let is_feature = !matches!(kind, Kind::Ignored(_));
    (is_feature && STOCK_NAMES.contains(&&*plain)).then(|| {
        let what = format!(
            "is this availability? It becomes a feature, and does not keep an item from being recommended: only the field '{AVAILABLE}' \
             (true or false) does"
        );
        let then = "name the column with ignore to leave it out";
        let filled = values.iter().copied().filter(|(_, value)| !is_blank(value));
        Hint::new(name, what, filled, then)
    })
}

/// A hint about a column that has mostly numbers, and is no column of numbers.
fn mostly_numbers(
    name: &str,
    kind: &Kind,
    values: &[(usize, &Value)],
    gathered: bool,
) -> Option<Hint> {
    let all: Vec<&Value> = values.iter().map(|value| value.1).collect();
    let lists = gathered && all.iter().any(|value| value.is_array());
    let format = NumberFormat {
        lists,
        ..NumberFormat::of(&all)
    };
    let Count { numbers, bad } = Count::of(&format, &all);
    if matches!(kind, Kind::Number(_)) {
        return None;
    }
    let of_kind = |kind: Reading| {
        let is = move |(_, value): &&(usize, &Value)| format.read(value) == kind;
        values.iter().filter(is).copied().collect::<Vec<_>>()
    };
    if lists && bad == 0 && numbers > 0 && matches!(kind, Kind::Tags { .. }) {
        let what = "most items have several numbers, which are taken as tags".to_owned();
        let then = "if the first one is to count, name the column with number";
        let filled = values.iter().copied().filter(|(_, value)| !is_blank(value));
        return Some(Hint::new(name, what, filled, then));
    }
    let is_close = bad > 0
        && numbers >= 4 * bad
        && !matches!(kind, Kind::Ignored(reason) if is_by_name(reason));
    is_close.then(|| {
        let what = format!(
            "of {} values {numbers} are numbers, too few for a column of numbers (95%); the others",
            numbers + bad
        );
        let then = "leave these empty if it is one";
        Hint::new(name, what, of_kind(Reading::Bad).into_iter(), then)
    })
}

/// Returns true for a reason that does not depend on the values.
fn is_by_name(reason: &str) -> bool {
    reason == "an id, by its name"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Options, RawItem, fit};

    /// The hints of a fit to a column `x`, beside one that differs.
    fn hints(options: &Options, values: &[Value]) -> Vec<String> {
        let item = |(at, value): (usize, &Value)| -> RawItem {
            serde_json::from_value(
                json!({"id": at, "kind": if at % 2 == 0 { "a" } else { "b" }, "x": value}),
            )
            .unwrap()
        };
        let items: Vec<RawItem> = values.iter().enumerate().map(item).collect();
        let report = fit(&items, options, None).unwrap().report;
        report.hints.iter().map(Hint::to_string).collect()
    }

    fn numbers(count: usize, others: &[&str]) -> Vec<Value> {
        let numbers = (0..count).map(|number| json!(format!("{number}.50")));
        numbers
            .chain(others.iter().map(|&text| text.into()))
            .collect()
    }

    fn plain() -> Options {
        Options {
            category: vec!["kind".into()],
            ..Options::default()
        }
    }

    #[test]
    fn texts_among_numbers_are_missing_and_named() {
        assert_eq!(hints(&plain(), &numbers(40, &[])), [""; 0]);
        assert_eq!(
            hints(&plain(), &numbers(40, &["n/a"])),
            ["column 'x': of 41 values 1 is no number and counts as missing: item 41 'n/a'"]
        );
        let others = [
            "TBD",
            "-",
            "",
            "call us",
            "sold out",
            &"very long".repeat(9),
        ];
        let long = "very long".repeat(4) + "very…";
        assert_eq!(
            hints(&plain(), &numbers(60, &others[..5])),
            [
                "column 'x': of 64 values 4 are no numbers and count as missing: item 61 'TBD', item 62 '-', item 64 'call us', \
                 and 1 more; if these are not numbers at all, name the column with category, tags or text"
            ]
        );
        let named = hints(&plain(), &numbers(60, &others[5..]));
        assert!(named[0].contains(&format!("item 61 '{long}'")), "{named:?}");
    }

    #[test]
    fn a_column_that_has_almost_only_numbers_is_told_about() {
        assert_eq!(
            hints(&plain(), &numbers(9, &["call us"])),
            [
                "column 'x': of 10 values 9 are numbers, too few for a column of numbers (95%); the others: \
                 item 10 'call us'; leave these empty if it is one"
            ]
        );
        assert_eq!(hints(&plain(), &numbers(3, &["call us"])), [""; 0]);
    }

    #[test]
    fn texts_that_can_be_two_numbers_are_told_about() {
        let texts = |all: &[&str]| -> Vec<Value> { all.iter().map(|&text| text.into()).collect() };
        assert_eq!(
            hints(&plain(), &texts(&["12", "1,000", "2,500"])),
            [
                "column 'x': it is not certain, but a point is read as the decimal sign and a comma as one of thousands, here 1000: \
                 item 2 '1,000', item 3 '2,500'; write numbers without separators of thousands if that is wrong"
            ]
        );
        for certain in [
            ["1,000", "2.50", "3"],
            ["12,50", "1.000", "3"],
            ["1.234", "2.345", "3"],
        ] {
            assert_eq!(hints(&plain(), &texts(&certain)), [""; 0], "{certain:?}");
        }
        let lists = ["1,5", "1,5", "5,1", "1", "1,5", "5", "5,1"];
        assert_eq!(
            hints(&plain(), &texts(&lists)),
            [
                "column 'x': its commas are read as decimal signs: item 1 '1,5', item 2 '1,5', item 3 '5,1', and 2 more; \
                 if these are lists, name the column with tags"
            ]
        );
        let prices = ["1,50", "1,50", "5,10", "1", "1,50", "5", "5,10"];
        assert_eq!(hints(&plain(), &texts(&prices)), [""; 0]);
    }

    #[test]
    fn columns_that_seem_to_be_availability_are_told_about() {
        let told = |name: &str, values: &[Value], options: &Options| -> Vec<String> {
            let item = |(at, value): (usize, &Value)| -> RawItem {
                let kind = if at % 2 == 0 { "a" } else { "b" };
                serde_json::from_value(json!({"id": at, "kind": kind, name: value})).unwrap()
            };
            let items: Vec<RawItem> = values.iter().enumerate().map(item).collect();
            let report = fit(&items, options, None).unwrap().report;
            report.hints.iter().map(Hint::to_string).collect()
        };
        let flags = [true, false, true, true, false].map(Value::from);
        assert_eq!(
            told("in_stock", &flags, &plain()),
            [
                "column 'in_stock': is this availability? It becomes a feature, and does not keep an item from being recommended: \
                 only the field 'available' (true or false) does: item 1 true, item 2 false, item 3 true, and 2 more; \
                 name the column with ignore to leave it out"
            ]
        );
        let words = ["yes", "no", "yes", "yes", "no", "no"].map(Value::from);
        let counts = [0, 3, 0, 12, 7, 1].map(Value::from);
        for name in [
            "stock",
            "availability",
            "sold_out",
            "Sold out",
            "out_of_stock",
            "OutOfStock",
            "is-available",
            "Available",
        ] {
            for values in [&flags[..], &words, &counts] {
                assert_eq!(told(name, values, &plain()).len(), 1, "{name} {values:?}");
            }
        }
        let ignored = Options {
            ignore: vec!["stock".into()],
            ..plain()
        };
        assert_eq!(told("stock", &words, &ignored), [""; 0]);
        let same = [true, true, true].map(Value::from);
        for (name, values) in [
            ("available", &flags[..]),
            ("in_stock", &same),
            ("stockings", &words),
            ("livestock", &words),
        ] {
            assert_eq!(told(name, values, &plain()), [""; 0], "{name}");
        }
    }

    #[test]
    fn gathered_numbers_that_differ_are_told_about() {
        let gathered = Options {
            gathered: true,
            ..plain()
        };
        let values = [
            json!(["3", "3"]),
            json!(["4", "", "5"]),
            json!(["6"]),
            json!([""]),
        ];
        assert_eq!(
            hints(&gathered, &values),
            [
                "column 'x': 1 item has different numbers, of which the first counts: item 2 [\"4\",\"\",\"5\"]; to take them \
                 as tags, name the column with tags"
            ]
        );
        let ids = [json!(["3", "7"]), json!(["7", "5"]), json!(["5", "3"])];
        assert_eq!(
            hints(&gathered, &ids),
            [
                "column 'x': most items have several numbers, which are taken as tags: item 1 [\"3\",\"7\"], item 2 \
                 [\"7\",\"5\"], item 3 [\"5\",\"3\"]; if the first one is to count, name the column with number"
            ]
        );
    }
}
