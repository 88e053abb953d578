//! The candidates of a request: named, sent along, or the whole catalogue; narrowed by the rules of the request.

use std::collections::HashSet;
use std::sync::Arc;

use super::Refusal;
use super::journal::CandidateRecord;
use super::recommend::{CandidateSet, RecommendQuery};
use crate::filter::Filter;
use crate::state::{Catalogue, SlotSet};

/// The largest share of the catalogue, one in so many, that is copied before it is scored. If more items pass a filter, the
/// others are skipped while all are scored, which takes less time than a copy.
const MAX_COPIED_SHARE: usize = 32;
/// The same if the items are joined with a context, for which all would be copied.
const MAX_COPIED_SHARE_IN_CONTEXT: usize = 4;

/// The candidates of a request, resolved.
#[derive(Default)]
pub(super) struct Resolved<'a> {
    /// The slots of the candidates, if they are some items of the catalogue.
    pub slots: Option<Vec<usize>>,
    /// The slots to choose from, if they are many items of the catalogue.
    pub among: Option<SlotSet>,
    /// The positions of items that came with the request, or the slots, that are excluded; in rising order.
    pub exclude: Vec<usize>,
    /// The ids of `slots`, if the request named them.
    pub ids: Vec<&'a str>,
    /// The candidates that are not in the catalogue.
    pub missing: Vec<String>,
    /// The ids that the rule `seen` excludes.
    seen: Vec<Arc<str>>,
}

impl<'a> Resolved<'a> {
    /// Finds the candidates of a request.
    ///
    /// # Errors
    /// If a candidate is given twice, or is missing and must not be, or a filter is given with items.
    pub fn new(
        catalogue: Option<&Catalogue>,
        asked: &RecommendQuery<'a>,
        seen: Vec<Arc<str>>,
    ) -> Result<Self, Refusal> {
        let rules = &asked.rules;
        let excluded: HashSet<&str> = rules
            .exclude
            .iter()
            .copied()
            .chain(seen.iter().map(|id| &**id))
            .collect();
        let mut resolved = Self::default();
        match &asked.among {
            CandidateSet::Candidates(ids) => {
                let mut slots = Vec::with_capacity(ids.len());
                let mut all = Vec::with_capacity(ids.len());
                for &id in ids {
                    let known = catalogue.and_then(|c| Some((c, c.slot(id)?)));
                    let Some((catalogue, slot)) = known else {
                        if rules.strict {
                            return Err(Refusal::UnknownItem {
                                id: id.to_owned(),
                                place: "in the catalogue",
                                field: "candidates",
                            });
                        }
                        resolved.missing.push(id.to_owned());
                        continue;
                    };
                    all.push(slot);
                    if catalogue.is_available(slot)
                        && !excluded.contains(id)
                        && catalogue.passes(slot, rules.filter)
                    {
                        slots.push(slot);
                        resolved.ids.push(id);
                    }
                }
                if has_duplicates(&all) || has_duplicates(&resolved.missing) {
                    let message = "a candidate is given twice";
                    return Err(Refusal::invalid("candidates", message));
                }
                resolved.slots = Some(slots);
            }
            CandidateSet::Inline(ids, _) => {
                if rules.filter.is_some() {
                    let message =
                        "a filter is for items of the catalogue; it cannot be combined with items";
                    return Err(Refusal::invalid("filter", message));
                }
                let ids = ids.iter().enumerate();
                let out = ids.filter(|(_, id)| excluded.contains(*id));
                resolved.exclude = out.map(|(place, _)| place).collect();
            }
            CandidateSet::All => {
                if let Some(catalogue) = catalogue {
                    let slots = excluded.iter().filter_map(|id| catalogue.slot(id));
                    let mut exclude: Vec<usize> = slots.collect();
                    exclude.sort_unstable();
                    match catalogue.matching(rules.filter) {
                        Some(mut set) => {
                            exclude.iter().for_each(|&slot| set.remove(slot));
                            let share = match asked.context {
                                None => MAX_COPIED_SHARE,
                                Some(_) => MAX_COPIED_SHARE_IN_CONTEXT,
                            };
                            match set.len() <= catalogue.len() / share {
                                true => resolved.slots = Some(set.iter().collect()),
                                false => resolved.among = Some(set),
                            }
                        }
                        None => resolved.exclude = exclude,
                    }
                }
            }
        }
        resolved.seen = seen;
        Ok(resolved)
    }

    /// The number of candidates.
    pub fn len(&self, asked: &RecommendQuery<'_>, catalogue: Option<&Catalogue>) -> usize {
        match (&self.slots, &self.among) {
            (Some(slots), _) => slots.len(),
            (None, Some(set)) => set.len(),
            (None, None) => asked.among.max_len(catalogue) - self.exclude.len(),
        }
    }

    /// The candidates as the journal has them.
    pub fn record(
        &self,
        catalogue: Option<&Catalogue>,
        asked: &RecommendQuery<'a>,
    ) -> CandidateRecord<'a> {
        match &asked.among {
            CandidateSet::Candidates(_) => {
                let ids = self.ids.iter();
                CandidateRecord::Ids(ids.map(|&id| id.into()).collect())
            }
            CandidateSet::Inline(ids, _) => {
                let ids = ids.iter().enumerate();
                let kept = ids.filter(|(place, _)| self.exclude.binary_search(place).is_err());
                CandidateRecord::Ids(kept.map(|(_, &id)| id.into()).collect())
            }
            CandidateSet::All => {
                let rules = &asked.rules;
                let mut known: HashSet<&str> = rules.exclude.iter().copied().collect();
                let seen = self.seen.iter().filter(|id| known.insert(id));
                let seen: Vec<_> = seen.map(|id| id.to_string().into()).collect();
                let exclude = rules.exclude.iter().map(|&id| id.into());
                CandidateRecord::Catalogue {
                    revision: catalogue.map_or(0, Catalogue::revisions),
                    filter: rules.filter.map_or("", |filter| &filter.text).into(),
                    exclude: exclude.chain(seen).collect(),
                    seen: rules.seen as u64,
                }
            }
        }
    }

    /// The error for a request that has no candidates. It counts them by the first reason why they are none.
    pub fn no_candidates(
        &self,
        catalogue: Option<&Catalogue>,
        asked: &RecommendQuery<'_>,
    ) -> Refusal {
        let refuse = |field: &'static str, why: String| Refusal::NoCandidates {
            field,
            message: format!("there are no candidates: {why}"),
            missing: self.missing.clone(),
        };
        let rules = &asked.rules;
        let exclude: HashSet<&str> = rules.exclude.iter().copied().collect();
        let mut reasons = Reasons::default();
        let (all, one, several) = match &asked.among {
            CandidateSet::Candidates(ids) => {
                for id in ids {
                    match catalogue.and_then(|c| Some((c, c.slot(id)?))) {
                        None => reasons.missing += 1,
                        Some((c, slot)) if !c.is_available(slot) => reasons.unavailable += 1,
                        Some((c, slot)) if !c.passes(slot, rules.filter) => reasons.filtered += 1,
                        Some(_) if exclude.contains(id) => reasons.excluded += 1,
                        Some(_) => reasons.seen += 1,
                    }
                }
                (ids.len(), "candidate", "candidates")
            }
            CandidateSet::Inline(ids, _) => {
                reasons.excluded = ids.iter().filter(|id| exclude.contains(*id)).count();
                reasons.seen = ids.len() - reasons.excluded;
                (ids.len(), "item of the request", "items of the request")
            }
            CandidateSet::All => {
                let Some(catalogue) = catalogue.filter(|catalogue| !catalogue.is_empty()) else {
                    let why = "the catalogue is empty; add items with PUT /v1/items";
                    return refuse("candidates", why.to_owned());
                };
                let matching = catalogue.matching(rules.filter);
                let is_left = |slot: usize| matching.as_ref().is_none_or(|set| set.contains(slot));
                let excluded = exclude.iter().filter_map(|id| catalogue.slot(id));
                let left = matching.as_ref().map_or(catalogue.len(), SlotSet::len);
                reasons.unavailable = catalogue.unavailable();
                reasons.filtered = catalogue.len() - reasons.unavailable - left;
                reasons.excluded = excluded.filter(|&slot| is_left(slot)).count();
                reasons.seen = left - reasons.excluded;
                let (one, several) = ("item in the catalogue", "items in the catalogue");
                (catalogue.len(), one, several)
            }
        };
        let what = if all == 1 { one } else { several };
        let (field, told) = reasons.tell(self.missing.first(), rules.seen);
        let mut why = format!("of {all} {what}, {told}");
        if reasons.filtered > 0 {
            why.push_str(&unknown_fields(catalogue, rules.filter));
        }
        refuse(field, why)
    }
}

/// The number of candidates that are none, by reason.
#[derive(Default)]
struct Reasons {
    missing: usize,
    unavailable: usize,
    filtered: usize,
    excluded: usize,
    seen: usize,
}

impl Reasons {
    /// The field of the most frequent reason, and all reasons as text.
    fn tell(&self, first_missing: Option<&String>, decisions: usize) -> (&'static str, String) {
        let first = first_missing.map_or("", String::as_str);
        let missing = format!("not in the catalogue (the first is '{first}')");
        let last = match decisions {
            1 => "decision".to_owned(),
            count => format!("{count} decisions"),
        };
        let seen = format!("shown to the user in the last {last} (seen)");
        let all = [
            (self.missing, "candidates", ["is", "are"], &*missing),
            (
                self.unavailable,
                "candidates",
                ["is", "are"],
                "not available",
            ),
            (
                self.filtered,
                "filter",
                ["does", "do"],
                "not pass the filter",
            ),
            (self.excluded, "exclude", ["is", "are"], "in exclude"),
            (self.seen, "seen", ["was", "were"], &*seen),
        ];
        let told = all.iter().filter(|(count, ..)| *count > 0);
        let mut told: Vec<String> = told
            .map(|(count, _, verb, what)| {
                let verb = verb[usize::from(*count > 1)];
                format!("{count} {verb} {what}")
            })
            .collect();
        let last = told.pop().unwrap_or_default();
        let told = match told.is_empty() {
            true => last,
            false => format!("{} and {last}", told.join(", ")),
        };
        let most = all.iter().rev().max_by_key(|(count, ..)| *count);
        (most.map_or("candidates", |(_, field, ..)| field), told)
    }
}

/// Names the fields of a filter that no item has.
fn unknown_fields(catalogue: Option<&Catalogue>, filter: Option<&Filter>) -> String {
    let (Some(catalogue), Some(filter)) = (catalogue, filter) else {
        return String::new();
    };
    let mut names: Vec<String> = Vec::new();
    for condition in filter.conditions() {
        let name = format!("'{}'", condition.name);
        if !catalogue.has_field(condition.field) && !names.contains(&name) {
            names.push(name);
        }
    }
    match &names[..] {
        [] => String::new(),
        names => format!("; no item has a field {}", names.join(" or ")),
    }
}

/// Returns true if a value is in the list more than once.
fn has_duplicates<T: Ord>(values: &[T]) -> bool {
    let mut sorted: Vec<&T> = values.iter().collect();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}
