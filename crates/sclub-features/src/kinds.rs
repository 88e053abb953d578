//! The kind of each column: given, or guessed from the data.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::fit::FitError;
use crate::hints::{Hint, of_guessed, of_numbers};
use crate::numbers::NumberFormat;
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
    Number(NumberFormat),
    /// A column that is left out, and the reason.
    Ignored(&'static str),
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
    /// True if values are lists because rows of the same item were gathered. A list of numbers can be one number then: the
    /// first.
    pub gathered: bool,
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
            gathered: false,
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

/// The columns of a catalogue.
#[derive(Debug)]
pub struct Columns {
    /// The column of ids.
    pub id: Option<String>,
    /// The kind of every other column, by name.
    pub kinds: Vec<(String, Kind)>,
    /// Hints about the columns.
    pub hints: Vec<Hint>,
}

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
        (&options.number, Kind::Number(NumberFormat::default())),
        (&options.ignore, Kind::Ignored("as asked")),
    ] {
        for column in columns {
            if !names.contains(column.as_str()) {
                return Err(no_column(column, &names));
            }
            if column == AVAILABLE && !matches!(kind, Kind::Ignored(_)) {
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
    let mut found = Columns {
        id,
        kinds: Vec::new(),
        hints: Vec::new(),
    };
    let differ = Differing::new(items, options);
    for name in names {
        if Some(name) == found.id.as_deref() {
            continue;
        }
        let values: Vec<(usize, &Value)> = (0..)
            .zip(items)
            .filter_map(|(at, item)| Some((at, item.get(name)?)))
            .collect();
        let plain = || values.iter().map(|value| value.1);
        let kind = match given.remove(name) {
            Some(Kind::Tags { separator: None })
                if options.tags.iter().any(|tags| tags == name) =>
            {
                Kind::Tags {
                    separator: commonest_separator(&texts(plain())).map(str::to_owned),
                }
            }
            Some(Kind::Number(_)) => {
                let all: Vec<&Value> = plain().collect();
                Kind::Number(NumberFormat {
                    lists: options.gathered && all.iter().any(|value| value.is_array()),
                    ..NumberFormat::of(&all)
                })
            }
            Some(kind) => kind,
            None if name == AVAILABLE => {
                Kind::Ignored("it says whether an item can be shown, and is never a feature")
            }
            None => {
                let kind = guess(name, plain(), &differ);
                found
                    .hints
                    .extend(of_guessed(name, &kind, &values, options.gathered));
                kind
            }
        };
        if let Kind::Number(format) = &kind {
            found.hints.extend(of_numbers(name, format, &values));
        }
        found.kinds.push((name.to_owned(), kind));
    }
    Ok(found)
}

/// The column of ids of a catalogue, given or found by its name.
///
/// # Errors
/// As [`fit`](crate::fit).
pub fn id_column(items: &[RawItem], options: &Options) -> Result<Option<String>, FitError> {
    Ok(columns(items, options)?.id)
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

/// True for a value that says nothing.
pub fn is_missing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

pub fn texts<'a>(values: impl Iterator<Item = &'a Value>) -> Vec<&'a str> {
    values.filter_map(Value::as_str).collect()
}

/// Differences between the rows of an item, where rows were gathered.
#[derive(Debug, Default)]
struct Differing {
    is_gathered: bool,
    /// True if a column of texts differs within items: the file has a row for each of these.
    has_texts: bool,
}

impl Differing {
    fn new(items: &[RawItem], options: &Options) -> Self {
        let is_text =
            |value: &Value| value.is_string() && NumberFormat::default().number(value).is_none();
        let has_texts = |value: &Value| {
            let list = value.as_array().map_or(&[][..], Vec::as_slice);
            let mut texts = list
                .iter()
                .filter(|value| !is_missing(value) && is_text(value));
            let first = texts.next();
            texts.any(|text| Some(text) != first)
        };
        Self {
            is_gathered: options.gathered,
            has_texts: options.gathered && items.iter().any(|item| item.values().any(has_texts)),
        }
    }

    /// The format of lists of numbers that are one number each. Whole numbers that differ in most items, in a file where
    /// nothing else does, are tags.
    fn numbers(&self, lists: &[&Value]) -> Option<NumberFormat> {
        if !self.is_gathered {
            return None;
        }
        let all = lists.iter().filter_map(|list| list.as_array());
        let flat: Vec<&Value> = all.flatten().collect();
        let format = NumberFormat {
            lists: true,
            ..NumberFormat::guess(&flat)?
        };
        let numbers = || flat.iter().filter_map(|value| format.number(value));
        let differing = lists.iter().filter(|list| differ(&format, list)).count();
        let is_one = self.has_texts
            || differing * 2 <= lists.len()
            || numbers().any(|number| number.fract() != 0.0);
        is_one.then_some(format)
    }
}

/// Returns true if the numbers of a list differ.
pub fn differ(format: &NumberFormat, list: &Value) -> bool {
    let list = list.as_array().map_or(&[][..], Vec::as_slice);
    let mut numbers = list.iter().filter_map(|value| format.number(value));
    let first = numbers.next();
    numbers.any(|number| Some(number) != first)
}

/// Guesses the kind of a column from its values.
fn guess<'a>(name: &str, values: impl Iterator<Item = &'a Value>, differing: &Differing) -> Kind {
    let values: Vec<&Value> = values.filter(|value| !is_missing(value)).collect();
    let first = match values.first() {
        Some(first) if values.iter().any(|value| value != first) => *first,
        Some(_) => return Kind::Ignored(SAME),
        None => return Kind::Ignored("empty"),
    };
    let is_id = name.len() > 2 && (name.ends_with("Id") || name.to_lowercase().ends_with("_id"));
    if values.iter().all(|value| value.is_array()) {
        return match differing.numbers(&values) {
            Some(format) if !is_id => Kind::Number(format),
            _ => Kind::Tags { separator: None },
        };
    }
    if is_id {
        return Kind::Ignored("an id, by its name");
    }
    if let Some(format) = NumberFormat::guess(&values) {
        return Kind::Number(format);
    }
    if !first.is_string() {
        return Kind::Ignored("neither numbers, texts nor lists");
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
    match (links * 2 > texts.len(), words.count() * 20 < texts.len()) {
        (true, _) => Kind::Ignored("addresses"),
        (false, true) => Kind::Ignored("codes of one word that hardly repeat"),
        (false, false) => Kind::Text,
    }
}

/// The reason of a column that says nothing.
pub const SAME: &str = "the same everywhere";

/// The separator that makes tags of the values, if one does.
pub fn best_separator(texts: &[&str]) -> Option<&'static str> {
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
        guess(
            "x",
            values.as_array().unwrap().iter(),
            &Differing::default(),
        )
    }

    fn tags(separator: &str) -> Kind {
        Kind::Tags {
            separator: Some(separator.to_owned()),
        }
    }

    #[test]
    fn kinds_are_guessed_from_the_values() {
        let plain = Kind::Number(NumberFormat::default());
        assert_eq!(kind_of(json!(["1.5", "2", 3, null, ""])), plain);
        assert_eq!(kind_of(json!(["$4.50", "$3", "$12.00"])), plain);
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
        for (nothing, reason) in [
            (json!(["same", "same"]), "the same everywhere"),
            (json!([null, ""]), "empty"),
            (
                json!(["AX-1", "AX-2", "AX-3"]),
                "codes of one word that hardly repeat",
            ),
            (json!(["http://x.y/a b", "http://x.y/c d"]), "addresses"),
            (
                json!([{"a": 1}, {"a": 2}]),
                "neither numbers, texts nor lists",
            ),
        ] {
            assert_eq!(kind_of(nothing), Kind::Ignored(reason));
        }
    }

    #[test]
    fn a_list_of_gathered_numbers_is_one_number_unless_the_numbers_are_all_that_differs() {
        let kind = |gathered: bool, items: Value| {
            let items: Vec<RawItem> = serde_json::from_value(items).unwrap();
            let options = Options {
                gathered,
                ..Options::default()
            };
            let mut found = columns(&items, &options).unwrap();
            found.kinds.swap_remove(0).1
        };
        let tags = Kind::Tags { separator: None };
        let number = Kind::Number(NumberFormat {
            lists: true,
            ..NumberFormat::default()
        });
        let fractions = json!([{"id": 1, "a": ["2.5", "3"]}, {"id": 2, "a": ["1", "4"]}]);
        let equal = json!([{"id": 1, "a": ["2", "2"]}, {"id": 2, "a": ["1", "1"]}]);
        let ids = json!([{"id": 1, "a": ["2", "7"]}, {"id": 2, "a": ["7", "4"]}]);
        let beside =
            json!([{"id": 1, "a": ["2", "7"], "tag": ["x", "y"]}, {"id": 2, "a": ["7", "4"]}]);
        let user_ids = json!([{"id": 1, "a_id": ["2", "2"]}, {"id": 2, "a_id": ["7", "7"]}]);
        for (items, expected) in [
            (user_ids, &tags),
            (fractions, &number),
            (equal, &number),
            (ids, &tags),
            (beside, &number),
        ] {
            assert_eq!(kind(true, items.clone()), *expected, "{items}");
            assert_eq!(kind(false, items), tags);
        }
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
            columns(&items, &named).unwrap().kinds.remove(0).1
        };
        assert_eq!(kind(&["a|b, c", "d|e", "f"]), tags("|"));
        assert_eq!(kind(&["a, b", "c, d", "e|f"]), tags(","));
        assert_eq!(kind(&["a", "b"]), Kind::Tags { separator: None });
    }

    #[test]
    fn ids_are_found_by_name_and_named_columns_must_exist() {
        let item = |value: Value| -> RawItem { serde_json::from_value(value).unwrap() };
        let items = [item(json!({"movieId": 1, "year": 1, "shop_id": 1}))];
        let found = columns(&items, &Options::default()).unwrap();
        assert_eq!(found.id.as_deref(), Some("movieId"));
        let mut kinds = found.kinds.iter();
        assert!(kinds.all(|(_, kind)| *kind == Kind::Ignored(SAME)));
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
