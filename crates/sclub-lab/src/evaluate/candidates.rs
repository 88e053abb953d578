//! The candidates of decisions: ids that the log names, or the part of the catalogue that a filter, `exclude` and `seen`
//! leave.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use sclub_features::filter::Filter;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::items::Items;

/// A string that is not copied unless it has escapes.
#[derive(Debug, Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// The part of the catalogue that a decision was made from, as the export has it.
#[derive(Debug, Deserialize)]
pub(super) struct CatalogueLine<'a> {
    revision: u64,
    #[serde(borrow)]
    filter: Option<&'a RawValue>,
    #[serde(borrow, default)]
    exclude: Vec<Text<'a>>,
    #[serde(default)]
    seen: u32,
}

/// Where the candidates of a decision come from.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// The log does not say: all items.
    All,
    /// Ids, in [`Sources::named`].
    Named(Range<usize>),
    /// The catalogue, with the number of a filter, and ids to leave out.
    Catalogue {
        filter: Option<u32>,
        exclude: Range<usize>,
        seen: u32,
    },
}

/// The sources of all decisions, with numbers in place of names: an item may be a candidate before it is first shown.
#[derive(Default)]
pub(super) struct Sources {
    names: HashMap<String, u32>,
    named: Vec<u32>,
    filters: HashMap<String, u32>,
    pub max_seen: u32,
    /// The smallest and the largest revision of the catalogue.
    pub revisions: Option<(u64, u64)>,
}

impl Sources {
    pub fn add(
        &mut self,
        candidates: Option<Vec<Text<'_>>>,
        catalogue: Option<CatalogueLine<'_>>,
    ) -> Source {
        if let Some(ids) = candidates {
            return Source::Named(self.add_names(&ids));
        }
        let Some(catalogue) = catalogue else {
            return Source::All;
        };
        let (first, last) = self.revisions.unwrap_or((u64::MAX, 0));
        let revision = catalogue.revision;
        self.revisions = Some((first.min(revision), last.max(revision)));
        self.max_seen = self.max_seen.max(catalogue.seen);
        Source::Catalogue {
            filter: catalogue
                .filter
                .map(|text| number_of(&mut self.filters, text.get())),
            exclude: self.add_names(&catalogue.exclude),
            seen: catalogue.seen,
        }
    }

    fn add_names(&mut self, ids: &[Text<'_>]) -> Range<usize> {
        let first = self.named.len();
        for Text(id) in ids {
            self.named.push(number_of(&mut self.names, id));
        }
        first..self.named.len()
    }
}

/// The number of a text, a new one if it is new.
pub(super) fn number_of(numbers: &mut HashMap<String, u32>, text: &str) -> u32 {
    if let Some(&number) = numbers.get(text) {
        return number;
    }
    let next = numbers.len() as u32;
    numbers.insert(text.to_owned(), next);
    next
}

/// Finds the candidates of one decision after another.
pub(super) struct Finder<'a> {
    items: &'a Items,
    sources: &'a Sources,
    /// The places of the names.
    places: Vec<Option<u32>>,
    /// The ranges of the filters in [`Finder::candidates`]; `None` if a filter cannot be applied.
    ranges: HashMap<Option<u32>, Option<Range<usize>>>,
    filters: Vec<Option<Filter>>,
    /// The items of the last lists of each user.
    lists: HashMap<u32, VecDeque<Box<[u32]>>>,
    pub candidates: Vec<u32>,
    pub excluded: Vec<u32>,
    /// The decisions whose candidates cannot be known.
    pub unknown: u64,
}

impl<'a> Finder<'a> {
    pub fn new(items: &'a Items, sources: &'a Sources) -> Self {
        let mut places = vec![None; sources.names.len()];
        for (id, number) in &sources.names {
            places[*number as usize] = items.place(id);
        }
        let mut filters = vec![None; sources.filters.len()];
        for (text, number) in &sources.filters {
            let parsed = serde_json::from_str(text).ok();
            filters[*number as usize] = parsed.and_then(|filter| Filter::parse(&filter).ok());
        }
        Self {
            items,
            sources,
            places,
            ranges: HashMap::new(),
            filters,
            lists: HashMap::new(),
            candidates: Vec::new(),
            excluded: Vec::new(),
            unknown: 0,
        }
    }

    /// The number of candidates without features.
    pub fn without_features(&self) -> usize {
        self.places.iter().filter(|place| place.is_none()).count()
    }

    /// The candidates of a decision in [`Finder::candidates`], empty if they are all items, and those of them that were not
    /// to be shown, in [`Finder::excluded`]. `None` if they cannot be known.
    pub fn find(
        &mut self,
        source: &Source,
        user: u32,
        shown: &[u32],
    ) -> Option<(Range<usize>, Range<usize>)> {
        let first = self.excluded.len();
        let found = match source {
            Source::All => Some(0..0),
            Source::Named(ids) => {
                let begin = self.candidates.len();
                let ids = self.sources.named[ids.clone()].iter();
                let known = ids.filter_map(|&number| self.places[number as usize]);
                self.candidates.extend(known);
                Some(begin..self.candidates.len())
            }
            Source::Catalogue {
                filter,
                exclude,
                seen,
            } => {
                let ids = self.sources.named[exclude.clone()].iter();
                let ids = ids.filter_map(|&number| self.places[number as usize]);
                self.excluded.extend(ids);
                let lists = self.lists.get(&user).into_iter().flatten().rev();
                let seen = lists.take(*seen as usize).flat_map(|list| list.iter());
                self.excluded.extend(seen);
                // The server remembers fewer decisions than the log if there is no room for more.
                let own = self.excluded.split_off(first);
                let own = own.into_iter().filter(|item| !shown.contains(item));
                self.excluded.extend(own);
                let range = self.range(*filter);
                // Another catalogue than the one of that time.
                let has = |range: &Range<usize>, item: &u32| {
                    range.is_empty() || self.candidates[range.clone()].binary_search(item).is_ok()
                };
                range.filter(|range| shown.iter().all(|item| has(range, item)))
            }
        };
        self.unknown += u64::from(found.is_none());
        found.map(|range| (range, first..self.excluded.len()))
    }

    /// The part of the catalogue that a filter leaves.
    fn range(&mut self, filter: Option<u32>) -> Option<Range<usize>> {
        if let Some(known) = self.ranges.get(&filter) {
            return known.clone();
        }
        let filters = filter.map(|number| self.filters[number as usize].as_ref());
        let range = match filters {
            // Only a file of items has what filters look at.
            Some(_) if self.items.in_file == 0 => None,
            Some(None) => None,
            filter => {
                let items = self.items.matching(filter.flatten());
                let begin = self.candidates.len();
                match items.len() {
                    0 => None,
                    all if all == self.items.len() => Some(0..0),
                    _ => {
                        self.candidates.extend(items);
                        Some(begin..self.candidates.len())
                    }
                }
            }
        };
        self.ranges.insert(filter, range.clone());
        range
    }

    /// Adds the list of a decision, for the rule `seen` of later ones.
    pub fn saw(&mut self, user: u32, shown: &[u32]) {
        let keep = self.sources.max_seen as usize;
        if keep > 0 {
            let lists = self.lists.entry(user).or_default();
            if lists.len() == keep {
                lists.pop_front();
            }
            lists.push_back(shown.into());
        }
    }
}
