//! The items of a log, by name: features, and the descriptions that filters look at.

use std::collections::HashMap;
use std::path::Path;

use sclub_features::RawItem;
use sclub_features::description::{Description, Facts};
use sclub_features::filter::Filter;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::log::{LogError, each_line};

/// A line of a file of items, as `PUT /v1/items` takes it and `GET /v1/items` returns it.
#[derive(Debug, Deserialize)]
struct ItemLine {
    id: String,
    features: Vec<f64>,
    title: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default = "yes")]
    available: bool,
    data: Option<RawItem>,
}

fn yes() -> bool {
    true
}

/// Items by name.
#[derive(Default)]
pub(super) struct Items {
    pub dim: usize,
    places: HashMap<String, u32>,
    pub rows: Vec<f64>,
    facts: Vec<Facts>,
    /// The features as the log has them, which are most often those of the line before with the same item.
    texts: Vec<Box<str>>,
    /// The items whose features changed.
    pub changed: u64,
    /// The number of items in the file; 0 if there is none.
    pub in_file: usize,
}

impl Items {
    /// The items of a file.
    pub fn read(path: &Path) -> Result<Self, LogError> {
        let mut items = Self::default();
        each_line(path, |_, line| {
            let item: ItemLine = serde_json::from_slice(line).map_err(|e| e.to_string())?;
            let description = Description {
                title: item.title,
                tags: item.tags,
                is_unavailable: !item.available,
                data: item.data.map_or(String::new(), |data| {
                    serde_json::Value::Object(data).to_string()
                }),
            };
            let place = items.insert(&item.id, &item.features)?;
            items.facts[place as usize] = Facts::new(&item.id, &description);
            Ok(())
        })?;
        items.in_file = items.len();
        items.changed = 0;
        Ok(items)
    }

    pub fn len(&self) -> usize {
        self.facts.len()
    }

    pub fn place(&self, id: &str) -> Option<u32> {
        self.places.get(id).copied()
    }

    fn insert(&mut self, id: &str, features: &[f64]) -> Result<u32, String> {
        if self.dim == 0 {
            self.dim = features.len();
        }
        if features.len() != self.dim || self.dim == 0 {
            return Err(format!(
                "item '{id}' has {} features; others have {}",
                features.len(),
                self.dim
            ));
        }
        if let Some(&place) = self.places.get(id) {
            let row = &mut self.rows[place as usize * self.dim..][..self.dim];
            if row != features {
                row.copy_from_slice(features);
                self.changed += 1;
            }
            return Ok(place);
        }
        let place = self.places.len() as u32;
        self.places.insert(id.to_owned(), place);
        self.rows.extend_from_slice(features);
        self.facts.push(Facts::new(id, &Description::default()));
        self.texts.push(Box::default());
        Ok(place)
    }

    /// The place of an item of the log.
    pub fn find(&mut self, id: &str, features: Option<&RawValue>) -> Result<u32, String> {
        let known = self.place(id);
        match (known, features.map(RawValue::get)) {
            (Some(place), _) if (place as usize) < self.in_file => Ok(place),
            (Some(place), Some(text)) if *self.texts[place as usize] == *text => Ok(place),
            (_, Some(text)) => {
                let features: Vec<f64> = serde_json::from_str(text)
                    .map_err(|error| format!("the features of item '{id}': {error}"))?;
                let place = self.insert(id, &features)?;
                self.texts[place as usize] = text.into();
                Ok(place)
            }
            (Some(place), None) => Ok(place),
            (None, None) => Err(format!(
                "the features of item '{id}' are unknown; name the catalogue with --items"
            )),
        }
    }

    /// The available items that pass a filter, in order.
    pub fn matching(&self, filter: Option<&Filter>) -> Vec<u32> {
        let passes =
            |facts: &Facts| facts.is_available && filter.is_none_or(|filter| filter.passes(facts));
        let all = (0..).zip(&self.facts);
        all.filter_map(|(place, facts)| passes(facts).then_some(place))
            .collect()
    }
}
