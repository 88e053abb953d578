//! A page of the catalogue: of all items or of those that a search finds, in the order of the catalogue or by counts.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use serde_json::Value;

use super::super::calls::check_id;
use super::super::model::{CatalogueItem, ItemFigures, ItemsPage};
use super::super::query::{ItemsQuery, SortBy};
use super::{card, limit};
use crate::edge::ApiError;
use crate::engine::{Engine, Refusal};
use crate::state::Catalogue;

/// The number of items that are looked at in one read of the state, so that learning does not wait for long.
const PER_READ: usize = 500;

/// The number of times that a listing is tried. It begins again if items were removed meanwhile, which moves others; the last
/// time, all are looked at in one read.
const ATTEMPTS: usize = 5;

/// The page that a query asks for.
pub(super) fn page_of(engine: &Engine, query: &ItemsQuery) -> Result<ItemsPage, ApiError> {
    let limit = limit(query.limit, 100)?;
    let after = query.after.as_deref();
    if let Some(after) = after {
        check_id(engine.settings(), after, || "after".to_owned())?;
    }
    let search = query.search.as_deref().map(Search::new).transpose()?;
    let order = query.sort.map(|by| Order {
        by,
        is_ascending: query.ascending == Some(true),
    });
    let mut page = match (search, order) {
        (None, None) => some_items(engine, after, limit)?,
        (search, order) => Listing { search, order }.page(engine, after, limit)?,
    };
    if query.counts == Some(true) {
        let ids = page.items.iter().map(|item| &*item.id);
        let counts = engine.item_counts().map(|counts| counts.get(ids));
        page.set_counts(counts);
    }
    Ok(page)
}

/// The refusal of a page after an item that is not in the catalogue.
fn unknown(id: &str) -> Refusal {
    Refusal::UnknownItem {
        id: id.to_owned(),
        place: "in the catalogue",
        field: "after",
    }
}

/// The page of a server without a catalogue, where no item can be the last one of the page before.
fn empty_page(after: Option<&str>) -> Result<ItemsPage, Refusal> {
    match after {
        None => Ok(ItemsPage::default()),
        Some(id) => Err(unknown(id)),
    }
}

/// The slot of an item.
fn slot_of(catalogue: &Catalogue, id: &str) -> Result<usize, Refusal> {
    catalogue.slot(id).ok_or_else(|| unknown(id))
}

/// A page of the whole catalogue.
fn some_items(engine: &Engine, after: Option<&str>, limit: usize) -> Result<ItemsPage, Refusal> {
    let state = engine.state();
    let Some(catalogue) = state.catalogue() else {
        return empty_page(after);
    };
    let last = after.map(|id| slot_of(catalogue, id)).transpose()?;
    let first = last.map_or(0, |slot| slot + 1);
    let end = (first + limit).min(catalogue.len());
    let items: Vec<CatalogueItem> = (first..end).map(|slot| card(catalogue, slot)).collect();
    let next = items.last().filter(|_| end < catalogue.len());
    Ok(ItemsPage {
        next: next.map(|item| item.id.clone()),
        items,
        total: catalogue.len() as u64,
        order_revision: catalogue.order_revision(),
        ..ItemsPage::default()
    })
}

/// An order by counts.
#[derive(Clone, Copy)]
struct Order {
    by: SortBy,
    is_ascending: bool,
}

impl Order {
    /// The number that an item is placed by, smallest first; `None` if it has none: such items are last.
    fn key(self, figures: &ItemFigures) -> Option<f64> {
        let value = match self.by {
            SortBy::Shown => Some(figures.shown as f64),
            SortBy::Rewards => Some(figures.rewards as f64),
            SortBy::RewardRate => figures.reward_rate,
        };
        value.map(|value| if self.is_ascending { value } else { -value } + 0.0)
    }
}

/// The place of an item in a listing. Items with equal keys are in the order of the catalogue.
struct Place {
    key: Option<f64>,
    slot: usize,
}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |place: &Self| place.key.unwrap_or_default();
        let missing = self.key.is_none().cmp(&other.key.is_none());
        missing
            .then_with(|| key(self).total_cmp(&key(other)))
            .then_with(|| self.slot.cmp(&other.slot))
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Place {}

/// A listing for which all items are looked at.
struct Listing {
    search: Option<Search>,
    order: Option<Order>,
}

impl Listing {
    /// The places of some items, in the order of their slots.
    fn places(&self, engine: &Engine, catalogue: &Catalogue, slots: Vec<usize>) -> Vec<Place> {
        let ids = || slots.iter().map(|&slot| &*catalogue.entry(slot).id);
        let counts = self.order.zip(engine.item_counts());
        let keys = counts.map_or_else(Vec::new, |(order, counts)| {
            let found = counts.get(ids()).items.into_iter();
            found.map(|count| order.key(&count.into())).collect()
        });
        let keys = keys.into_iter().chain(std::iter::repeat(None));
        let places = slots.into_iter().zip(keys);
        places.map(|(slot, key)| Place { key, slot }).collect()
    }

    /// The page after an item. Only the places of one page are kept.
    fn page(
        &self,
        engine: &Engine,
        after: Option<&str>,
        limit: usize,
    ) -> Result<ItemsPage, Refusal> {
        let mut attempts = 0;
        'again: loop {
            attempts += 1;
            let mut page = ItemsPage::default();
            let mut last = None;
            // One more than the page has, to know whether there is a next one.
            let mut best = BinaryHeap::with_capacity(limit + 2);
            let per_read = if attempts < ATTEMPTS {
                PER_READ
            } else {
                usize::MAX
            };
            for from in (0_usize..).step_by(per_read) {
                let state = engine.state();
                let Some(catalogue) = state.catalogue() else {
                    return empty_page(after);
                };
                let revision = catalogue.order_revision();
                if from == 0 {
                    let slot = after.map(|id| slot_of(catalogue, id)).transpose()?;
                    last = self
                        .places(engine, catalogue, slot.into_iter().collect())
                        .pop();
                    page.order_revision = revision;
                } else if revision != page.order_revision {
                    continue 'again;
                }
                let end = from.saturating_add(per_read).min(catalogue.len());
                let is_found = |&slot: &usize| {
                    self.search
                        .as_ref()
                        .is_none_or(|s| s.finds(catalogue, slot))
                };
                let found = (from..end).filter(is_found).collect();
                for place in self.places(engine, catalogue, found) {
                    page.total += 1;
                    if last.as_ref().is_none_or(|last| place > *last) {
                        best.push(place);
                    }
                    if best.len() > limit + 1 {
                        best.pop();
                    }
                }
                if end < catalogue.len() {
                    continue;
                }
                let has_more = best.len() > limit;
                let places = best.into_sorted_vec().into_iter().take(limit);
                page.items = places.map(|place| card(catalogue, place.slot)).collect();
                let next = page.items.last().filter(|_| has_more);
                page.next = next.map(|item| item.id.clone());
                return Ok(page);
            }
        }
    }
}

/// The words that are searched for: an item has all of them, each in any of its texts.
struct Search {
    words: Vec<Word>,
}

struct Word {
    /// Folded.
    text: String,
    /// As a part of JSON.
    escaped: String,
}

/// A text in lower case, without the accents of Latin letters: so that it is found by those who do not type them.
fn folded(text: &str) -> String {
    let lower = text.chars().flat_map(char::to_lowercase);
    let kept = lower.filter(|c| !('\u{300}'..='\u{36f}').contains(c));
    kept.map(plain).collect()
}

/// A small letter of Latin-1 or Latin Extended-A without its accent. Others are as they are.
fn plain(letter: char) -> char {
    match letter {
        'à'..='å' | 'ā' | 'ă' | 'ą' => 'a',
        'ç' | 'ć' | 'ĉ' | 'ċ' | 'č' => 'c',
        'ď' | 'đ' => 'd',
        'è'..='ë' | 'ē' | 'ĕ' | 'ė' | 'ę' | 'ě' => 'e',
        'ĝ' | 'ğ' | 'ġ' | 'ģ' => 'g',
        'ĥ' | 'ħ' => 'h',
        'ì'..='ï' | 'ĩ' | 'ī' | 'ĭ' | 'į' | 'ı' => 'i',
        'ĵ' => 'j',
        'ķ' => 'k',
        'ĺ' | 'ļ' | 'ľ' | 'ŀ' | 'ł' => 'l',
        'ñ' | 'ń' | 'ņ' | 'ň' => 'n',
        'ò'..='ö' | 'ø' | 'ō' | 'ŏ' | 'ő' => 'o',
        'ŕ' | 'ŗ' | 'ř' => 'r',
        'ś' | 'ŝ' | 'ş' | 'š' | 'ș' => 's',
        'ţ' | 'ť' | 'ŧ' | 'ț' => 't',
        'ù'..='ü' | 'ũ' | 'ū' | 'ŭ' | 'ů' | 'ű' | 'ų' => 'u',
        'ŵ' => 'w',
        'ý' | 'ÿ' | 'ŷ' => 'y',
        'ź' | 'ż' | 'ž' => 'z',
        other => other,
    }
}

impl Search {
    const MAX_LENGTH: usize = 200;

    fn new(text: &str) -> Result<Self, Refusal> {
        let length = text.chars().count();
        if length > Self::MAX_LENGTH {
            let max = Self::MAX_LENGTH;
            let message = format!("search has {length} characters; at most {max} are allowed");
            return Err(Refusal::invalid("search", message));
        }
        let words = folded(text);
        let words = words.split_whitespace().map(|word| {
            let quoted = Value::from(word).to_string();
            Word {
                text: word.to_owned(),
                escaped: quoted[1..quoted.len() - 1].to_owned(),
            }
        });
        Ok(Self {
            words: words.collect(),
        })
    }

    fn finds(&self, catalogue: &Catalogue, slot: usize) -> bool {
        let description = catalogue.description(slot);
        let id = folded(&catalogue.entry(slot).id);
        let title = description.title.as_deref().map(folded);
        let tags: Vec<String> = description.tags.iter().map(|tag| folded(tag)).collect();
        let short: Vec<&String> = std::iter::once(&id).chain(&title).chain(&tags).collect();
        let is_missing = |word: &&Word| !short.iter().any(|text| text.contains(&word.text));
        let missing: Vec<&Word> = self.words.iter().filter(is_missing).collect();
        if missing.is_empty() {
            return true;
        }
        // Most data need not be parsed.
        let data = folded(&description.data);
        if !missing.iter().all(|word| data.contains(&word.escaped)) {
            return false;
        }
        let Ok(Some(data)) = description.object() else {
            return false;
        };
        missing.iter().all(|word| {
            let has = |text: &str| folded(text).contains(&word.text);
            data.values().any(|value| any_text(value, &has))
        })
    }
}

/// Returns true if one of the texts in a value is looked for.
fn any_text(value: &Value, has: &impl Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => has(text),
        Value::Array(values) => values.iter().any(|value| any_text(value, has)),
        Value::Object(fields) => fields.values().any(|value| any_text(value, has)),
        _ => false,
    }
}
