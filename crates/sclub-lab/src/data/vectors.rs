//! Files of vectors: an id and numbers for each item.

use std::collections::HashMap;
use std::path::Path;

use sclub_features::{Matrix, Options, RawItem, id_column, id_text};
use serde_json::Value;

use super::catalogue::{ItemOptions, read_items};
use super::read::ReadError;

/// Vectors of items.
#[derive(Debug, Clone, PartialEq)]
pub struct Vectors {
    /// The id of each row.
    pub ids: Vec<String>,
    /// A row for each item.
    pub vectors: Matrix,
    /// The other fields of each item. Only JSON lines have some.
    pub others: Vec<RawItem>,
}

impl Vectors {
    /// The row of each id.
    pub fn places(&self) -> HashMap<&str, usize> {
        self.ids.iter().map(String::as_str).zip(0..).collect()
    }
}

/// Reads vectors of items, as `sclub features` writes them: a table with a column of ids and columns `x1`, `x2`, …, or
/// JSON lines with `id` and a list `features`. Calls `progress` as [`read_items`] does.
///
/// # Errors
/// Names the file and, if it is a line that is wrong, its number.
pub fn read_vectors(path: &Path, progress: &dyn Fn(u64, u64)) -> Result<Vectors, ReadError> {
    let read = read_items(path, &ItemOptions::default(), progress)?;
    let wrong = |reason: String| ReadError::Columns {
        path: path.into(),
        reason,
    };
    let id = id_column(&read.items, &Options::default()).ok().flatten();
    let id = id.ok_or_else(|| wrong("no column is called id, item or the like".into()))?;
    let first = &read.items[0];
    let names: Vec<String> = match first.contains_key("features") {
        true => Vec::new(),
        false => (1..)
            .map(|at| format!("x{at}"))
            .take_while(|name| first.contains_key(name))
            .collect(),
    };
    if let Some(other) = first.keys().find(|&name| {
        *name != id && name != "features" && !names.contains(name) && !names.is_empty()
    }) {
        return Err(wrong(format!(
            "column '{other}' is no feature; vectors have columns x1, x2 and so on, as `sclub features` writes them"
        )));
    }
    let (mut ids, mut values, mut dim) = (Vec::new(), Vec::new(), None);
    let mut seen: HashMap<String, u64> = HashMap::new();
    let mut others = Vec::with_capacity(read.items.len());
    for (mut item, &line) in read.items.into_iter().zip(&read.lines) {
        let bad = |reason: String| ReadError::Line {
            path: path.into(),
            line,
            reason,
        };
        let own = item.get(&id).and_then(id_text);
        let own = own.ok_or_else(|| bad(format!("there is no id (column '{id}')")))?;
        if let Some(before) = seen.insert(own.clone(), line) {
            return Err(bad(format!("the id '{own}' is that of line {before}")));
        }
        let numbers = numbers(&item, &names).map_err(bad)?;
        let expected = *dim.get_or_insert(numbers.len());
        if numbers.is_empty() || numbers.len() != expected {
            return Err(bad(format!(
                "there are {} features; there must be {}",
                numbers.len(),
                expected.max(1)
            )));
        }
        item.retain(|name, _| *name != id && name != "features" && !names.contains(name));
        others.push(item);
        ids.push(own);
        values.extend(numbers);
    }
    let mut vectors = Matrix::zeros(ids.len(), dim.unwrap_or(0));
    for (at, row) in values.chunks(vectors.columns().max(1)).enumerate() {
        vectors.row_mut(at).copy_from_slice(row);
    }
    Ok(Vectors {
        ids,
        vectors,
        others,
    })
}

fn numbers(item: &RawItem, names: &[String]) -> Result<Vec<f64>, String> {
    let number = |value: Option<&Value>, name: &str| {
        let number = match value {
            Some(Value::Number(number)) => number.as_f64(),
            Some(Value::String(text)) => text.trim().parse().ok(),
            _ => None,
        };
        let shown = || value.map_or("missing".to_owned(), Value::to_string);
        number
            .filter(|number: &f64| number.is_finite())
            .ok_or_else(|| format!("feature {name} is {}; it must be a finite number", shown()))
    };
    match (item.get("features"), names) {
        (Some(Value::Array(list)), []) => {
            let places = list.iter().zip(1..);
            places
                .map(|(value, at)| number(Some(value), &format!("{at}")))
                .collect()
        }
        (_, []) => Err("there is no list of features".to_owned()),
        (_, names) => names
            .iter()
            .map(|name| number(item.get(name), name))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vectors, ReadError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("items");
        std::fs::write(&path, text).unwrap();
        read_vectors(&path, &|_, _| ())
    }

    #[test]
    fn tables_and_lists_are_the_same_vectors_in_the_order_of_the_numbers() {
        let columns: Vec<String> = (1..=11).map(|at| format!("x{at}")).collect();
        let numbers: Vec<String> = (1..=11).map(|at| format!("{at}.5")).collect();
        let csv = format!("item,{}\na,{}\n", columns.join(","), numbers.join(","));
        let json = format!("{{\"id\": \"a\", \"features\": [{}]}}\n", numbers.join(","));
        let expected: Vec<f64> = (1..=11).map(|at| f64::from(at) + 0.5).collect();
        for text in [csv, json] {
            let read = read(&text).unwrap();
            assert_eq!(
                (read.ids, read.vectors.values()),
                (vec!["a".to_owned()], &expected[..])
            );
        }
    }

    #[test]
    fn what_is_no_vector_is_refused() {
        for (text, reason) in [
            (
                "item,x1\na,1\na,2\n",
                "items:3: the id 'a' is that of line 2",
            ),
            (
                "item,x1\na,one\n",
                "items:2: feature x1 is \"one\"; it must be a finite number",
            ),
            ("item,x1,price\na,1,2\n", "column 'price' is no feature"),
            (
                "{\"id\": 1, \"features\": [1]}\n{\"id\": 2, \"features\": []}\n",
                "items:2: there are 0 features; there must be 1",
            ),
            (
                "{\"id\": 1, \"title\": \"x\"}\n",
                "items:1: there is no list of features",
            ),
            ("name,x1\na,1\n", "no column is called id"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
