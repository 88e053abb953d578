//! Recommendations: a read of the state, and a sealed decision.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sclub::{ItemSet, Propensity, Score};

use super::journal::{CandidateRecord, Detail};
use super::{Engine, Refusal, lock};
use crate::context::ContextValue;
use crate::decision::{DecisionContents, Features, Shown};
use crate::filter::Filter;
use crate::state::{Catalogue, Choice, Draws, Scratch, SlotSet, State, Ties};

/// The maximum number of feature values in a decision (items shown times features), if the items came
/// with the request.
pub const MAX_INLINE_VALUES: usize = 4096;

/// The largest catalogue that is copied, to join it with a context, during a short read.
const MAX_SHORT_COPY: usize = 1_000;

/// The maximum number of items that are scored for propensities during a short read: about a millisecond at
/// d = 20.
const MAX_SHORT_SCORES: usize = 8_000;

/// The number of items from which scoring may take so long that it must not delay other requests of a thread.
const SLOW_SCORES: usize = 5_000;

thread_local! {
    /// A reused buffer for encoding decisions.
    static ENCODED: RefCell<Vec<u8>> = RefCell::default();
}

/// A validated request for a recommendation.
#[derive(Debug)]
pub struct RecommendQuery<'a> {
    /// The id of the user.
    pub user: &'a str,
    /// The candidates.
    pub among: CandidateSet<'a>,
    /// The rules that narrow them.
    pub rules: Rules<'a>,
    /// The number of items to show.
    pub k: usize,
    /// The values of context features.
    pub context: Option<&'a BTreeMap<String, ContextValue>>,
}

/// The candidates of a request.
#[derive(Debug)]
pub enum CandidateSet<'a> {
    /// Items of the catalogue.
    Candidates(Vec<&'a str>),
    /// Items that came with the request: their ids, and their features.
    Inline(Vec<&'a str>, &'a ItemSet),
    /// The whole catalogue.
    All,
}

/// The rules of a request: those that narrow its candidates, and the order of equal ones. Items that are not available are never shown.
#[derive(Debug, Clone, Default)]
pub struct Rules<'a> {
    /// The ids of items that are not shown.
    pub exclude: Vec<&'a str>,
    /// The filter on items of the catalogue.
    pub filter: Option<&'a Filter>,
    /// True if a candidate that is not in the catalogue is an error. Else it is skipped.
    pub strict: bool,
    /// The number of the user's last decisions whose items are not shown again.
    pub seen: usize,
    /// The order of items of equal score.
    pub ties: Ties,
}

/// A recommendation.
#[derive(Debug, Clone, PartialEq)]
pub struct Recommended {
    /// The sealed decision, to be sent back with the reward.
    pub decision: String,
    /// The items to show, best first.
    pub items: Vec<(String, Score)>,
    /// The cluster that the user is served from.
    pub cluster: u64,
    /// The number of users in it.
    pub cluster_users: u64,
    /// The probability of each item to be in the list; empty if propensities are off.
    pub propensities: Vec<f64>,
    /// The probability of each item to be in its slot of the list; empty if propensities are off.
    pub slot_propensities: Vec<f64>,
    /// The candidates that are not in the catalogue.
    pub missing: Vec<String>,
}

/// A decision before it is sealed.
struct Decided<'a> {
    contents: DecisionContents<'a>,
    scores: Vec<Score>,
    propensities: Vec<Propensity>,
    cluster_users: u64,
    missing: Vec<String>,
    detail: Option<Detail<'a>>,
}

/// The candidates of a request, resolved.
#[derive(Default)]
struct Resolved<'a> {
    /// The slots of the candidates, if they are some items of the catalogue.
    slots: Option<Vec<usize>>,
    /// The slots to choose from, if they are many items of the catalogue.
    among: Option<SlotSet>,
    /// The positions of items that came with the request, or the slots, that are excluded; in rising order.
    exclude: Vec<usize>,
    /// The ids of `slots`, if the request named them.
    ids: Vec<&'a str>,
    missing: Vec<String>,
}

impl Engine {
    /// Recommends to one user.
    ///
    /// # Errors
    /// If a candidate is not in the catalogue, or there are no candidates.
    pub fn recommend(
        &self,
        asked: &RecommendQuery<'_>,
        scratch: &mut Scratch,
    ) -> Result<Recommended, Refusal> {
        let is_long = self.is_long(std::slice::from_ref(asked));
        let chosen = self.with_state(is_long, |state, catalogue| {
            scratch.begin();
            self.choose(state, catalogue, asked, scratch)
        });
        scratch.end();
        Ok(self.hand_out(chosen?))
    }

    /// Recommends to several users on the same history and the same catalogue.
    ///
    /// # Errors
    /// If one of the requests is invalid. No request is answered then.
    pub fn recommend_all(&self, all: &[RecommendQuery<'_>]) -> Result<Vec<Recommended>, Refusal> {
        let chosen = self.with_state(self.is_long(all), |state, catalogue| {
            let mut scratch = Scratch::default();
            let all = all.iter().enumerate();
            all.map(|(index, asked)| {
                self.choose(state, catalogue, asked, &mut scratch)
                    .map_err(|refusal| refusal.within("requests", index))
            })
            .collect::<Result<Vec<_>, _>>()
        })?;
        let decided = chosen.into_iter().map(|decided| self.hand_out(decided));
        Ok(decided.collect())
    }

    /// Returns true if a request may take milliseconds: it looks at a large catalogue, or has many further draws.
    pub fn is_slow(&self, asked: &RecommendQuery<'_>) -> bool {
        let is_whole = matches!(asked.among, CandidateSet::All);
        (is_whole || self.shared.settings.propensities > 0) && {
            let state = self.shared.read();
            let further = self.shared.further_draws(state.draws()).unwrap_or(0);
            if !is_whole && further == 0 {
                return false;
            }
            let items = asked.among.max_len(self.shared.catalogue_of(&state).get());
            items.saturating_mul(1 + further as usize) >= SLOW_SCORES
        }
    }

    /// Returns true if requests are to be answered in a long read. Each with a context that looks at the whole catalogue
    /// copies it. Each with further draws scores its candidates again for each of them.
    fn is_long(&self, all: &[RecommendQuery<'_>]) -> bool {
        let is_whole = |asked: &RecommendQuery<'_>| matches!(asked.among, CandidateSet::All);
        let copies = self.shared.has_context && all.iter().any(is_whole);
        if !copies && self.shared.settings.propensities == 0 {
            return false;
        }
        let state = self.shared.read();
        let further = self.shared.further_draws(state.draws());
        let further = further.unwrap_or(0) as usize;
        let catalogue = self.shared.catalogue_of(&state);
        let catalogue = catalogue.get();
        let items: usize = all.iter().map(|asked| asked.among.max_len(catalogue)).sum();
        (copies && catalogue.map_or(0, Catalogue::len) > MAX_SHORT_COPY)
            || items.saturating_mul(further) > MAX_SHORT_SCORES
    }

    /// Reads the state and the catalogue, which do not change meanwhile. Other recommendations do not wait for a long
    /// read; learning and changes of the catalogue do.
    fn with_state<T>(
        &self,
        is_long: bool,
        look: impl FnOnce(&State, Option<&Catalogue>) -> T,
    ) -> T {
        let shared = &self.shared;
        let other = shared.catalogue.as_ref();
        match (is_long, other) {
            (true, None) => shared.state.read_long(|own| look(own, own.catalogue())),
            (true, Some(other)) => shared.state.read_long(|own| {
                let other = &other.state;
                other.read_long(|other| look(own, other.catalogue()))
            }),
            (false, _) => {
                let own = shared.read();
                look(&own, shared.catalogue_of(&own).get())
            }
        }
    }

    fn choose<'a>(
        &self,
        state: &State,
        catalogue: Option<&Catalogue>,
        asked: &RecommendQuery<'a>,
        scratch: &mut Scratch,
    ) -> Result<Decided<'a>, Refusal> {
        let term = self.shared.term()?;
        let seen = match asked.rules.seen {
            0 => Vec::new(),
            _ if self.shared.is_replicated => {
                let message = "seen is not supported in a cluster; name the items in exclude";
                return Err(Refusal::invalid("seen", message));
            }
            count => self.shared.seen.last(asked.user, count),
        };
        let resolved = resolve(catalogue, asked, &seen)?;
        let choice = match (&resolved.slots, &asked.among) {
            (Some(slots), _) => Choice::Slots(slots),
            (None, CandidateSet::Inline(_, items)) => Choice::Inline {
                items,
                exclude: &resolved.exclude,
            },
            (None, _) => Choice::All {
                among: resolved.among.as_ref(),
                exclude: &resolved.exclude,
            },
        };
        if matches!(choice, Choice::Slots([])) {
            return Err(no_candidates(&resolved.missing));
        }
        let dim = state
            .dim()
            .or(catalogue.map(|catalogue| catalogue.items().dim()));
        if let (CandidateSet::Inline(_, items), Some(dim)) = (&asked.among, dim)
            && items.dim() != dim
        {
            let message = format!("an item has {} features; it must have {dim}", items.dim());
            return Err(Refusal::invalid("items", message));
        }
        let context = &state.identity().context;
        let context = match asked.context {
            Some(given) => context.encode(given)?,
            None => vec![0.0; context.len()],
        };
        // Taken before the choice, which may depend on it. Numbers that are not used are skipped.
        let reserved = asked.k.min(asked.among.max_len(catalogue)) as u64;
        let number = term.number.fetch_add(reserved, Ordering::Relaxed);
        let draws = Draws {
            number: self.shared.sealer.draw(term.life, number),
            further: self.shared.further_draws(state.serving(asked.user).draws),
            explore_share: self.shared.settings.explore_share,
            ties: asked.rules.ties,
        };
        let chosen = state
            .choose(
                draws, asked.user, &choice, catalogue, &context, asked.k, scratch,
            )
            .map_err(|error| match error {
                sclub::Error::NoCandidates => no_candidates(&resolved.missing),
                sclub::Error::BadFeature { .. } if !context.is_empty() => {
                    let message =
                        format!("a feature of an item times the context is too large: {error}");
                    Refusal::invalid("context", message)
                }
                error => Refusal::invalid(asked.among.field(), error.to_string()),
            })?;
        if chosen.decisions.is_empty() {
            return Err(no_candidates(&resolved.missing));
        }
        let shown = chosen.decisions.iter().map(|decision| {
            let (item, features) = match (&asked.among, &resolved.slots) {
                (CandidateSet::Inline(ids, items), _) => {
                    let features = items.item(decision.index).collect();
                    (ids[decision.index].into(), Features::Inline(features))
                }
                (_, slots) => {
                    let slot = slots.as_ref().map_or(decision.index, |s| s[decision.index]);
                    let entry = catalogue.expect("it was chosen from").entry(slot);
                    let item = match resolved.ids.get(decision.index) {
                        Some(&id) => id.into(),
                        None => entry.id.to_string().into(),
                    };
                    (item, Features::Catalogue(entry.revision))
                }
            };
            Shown {
                item,
                score: decision.score.score,
                features,
            }
        });
        let contents = DecisionContents {
            life: term.life,
            number,
            event: state.events(),
            at: self.shared.env().clock.wall(),
            clock: self.shared.clock(),
            user: asked.user.into(),
            cluster: chosen.cluster,
            shown: shown.collect(),
            context,
        };
        if let CandidateSet::Inline(_, items) = &asked.among
            && contents.shown.len() * items.dim() > MAX_INLINE_VALUES
        {
            let message = format!(
                "a decision with {} inline items of {} features is too large; at most {MAX_INLINE_VALUES} \
                 feature values are allowed; lower k, or put the items into the catalogue",
                contents.shown.len(),
                items.dim()
            );
            return Err(Refusal::invalid("k", message));
        }
        let scores = chosen.decisions.iter().map(|decision| decision.score);
        let has_details = self.shared.has_details(draws.further);
        let detail = has_details.then(|| Detail {
            life: contents.life,
            clock: contents.clock,
            draw: draws.number,
            slots: chosen.propensities.iter().map(|p| p.slot).collect(),
            candidates: match chosen.propensities.is_empty() {
                true => CandidateRecord::Unknown,
                false => record(catalogue, asked, &resolved),
            },
        });
        Ok(Decided {
            contents,
            scores: scores.collect(),
            propensities: chosen.propensities,
            cluster_users: chosen.cluster_users,
            missing: resolved.missing,
            detail,
        })
    }

    /// Seals a decision and gives it to the journal. Propensities are not sealed: learning does not need them, and
    /// the export takes them from the journal.
    fn hand_out(&self, decided: Decided<'_>) -> Recommended {
        let Decided {
            contents,
            scores,
            propensities,
            cluster_users,
            missing,
            detail,
        } = decided;
        let slot_propensities = propensities.iter().map(|p| p.slot).collect();
        let propensities: Vec<f64> = propensities.iter().map(|p| p.list).collect();
        let detail = detail.map(|detail| detail.encode());
        let shared = &self.shared;
        shared.seen.add(&contents);
        let decision = ENCODED.with_borrow_mut(|encoded| {
            contents.encode_into(encoded);
            if shared.has_journal() {
                let detail = detail.as_deref().unwrap_or_default();
                let is_noted = lock(&shared.pending).push(encoded, &propensities, detail);
                if !is_noted {
                    shared.meters.not_journaled.increment(1);
                }
            }
            shared.sealer.seal(encoded)
        });
        let items = contents.shown.into_iter().zip(scores);
        Recommended {
            decision,
            items: items
                .map(|(shown, score)| (shown.item.into_owned(), score))
                .collect(),
            cluster: contents.cluster,
            cluster_users,
            propensities,
            slot_propensities,
            missing,
        }
    }
}

impl CandidateSet<'_> {
    /// An upper bound on the number of candidates: items to exclude are counted.
    fn max_len(&self, catalogue: Option<&Catalogue>) -> usize {
        match self {
            CandidateSet::Candidates(ids) | CandidateSet::Inline(ids, _) => ids.len(),
            CandidateSet::All => catalogue.map_or(0, Catalogue::len),
        }
    }

    /// The field of the request that has the candidates.
    fn field(&self) -> &'static str {
        match self {
            CandidateSet::Candidates(_) => "candidates",
            CandidateSet::Inline(..) => "items",
            CandidateSet::All => "candidates",
        }
    }
}

/// The largest share of the catalogue that is copied before it is scored. If more items pass a filter, the others are
/// skipped while all are scored.
const MAX_COPIED_SHARE: usize = 4;

/// Finds the candidates of a request.
fn resolve<'a>(
    catalogue: Option<&Catalogue>,
    asked: &RecommendQuery<'a>,
    seen: &[Arc<str>],
) -> Result<Resolved<'a>, Refusal> {
    let rules = &asked.rules;
    let excluded: HashSet<&str> = rules
        .exclude
        .iter()
        .copied()
        .chain(seen.iter().map(|id| &**id))
        .collect();
    let mut resolved = Resolved::default();
    match &asked.among {
        CandidateSet::Candidates(ids) => {
            let mut slots = Vec::with_capacity(ids.len());
            let mut all = Vec::with_capacity(ids.len());
            for &id in ids {
                let Some((catalogue, slot)) = catalogue.and_then(|c| Some((c, c.slot(id)?))) else {
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
                if !excluded.contains(id) && catalogue.passes(slot, rules.filter) {
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
            let Some(catalogue) = catalogue else {
                return Ok(resolved);
            };
            let slots = excluded.iter().filter_map(|id| catalogue.slot(id));
            let mut exclude: Vec<usize> = slots.collect();
            exclude.sort_unstable();
            match catalogue.matching(rules.filter) {
                Some(mut set) => {
                    exclude.iter().for_each(|&slot| set.remove(slot));
                    match set.len() <= catalogue.len() / MAX_COPIED_SHARE {
                        true => resolved.slots = Some(set.iter().collect()),
                        false => resolved.among = Some(set),
                    }
                }
                None => resolved.exclude = exclude,
            }
        }
    }
    Ok(resolved)
}

/// The candidates of a decision as the journal has them.
fn record<'a>(
    catalogue: Option<&Catalogue>,
    asked: &RecommendQuery<'a>,
    resolved: &Resolved<'a>,
) -> CandidateRecord<'a> {
    match &asked.among {
        CandidateSet::Candidates(_) => {
            let ids = resolved.ids.iter();
            CandidateRecord::Ids(ids.map(|&id| id.into()).collect())
        }
        CandidateSet::Inline(ids, _) => {
            let ids = ids.iter().enumerate();
            let kept = ids.filter(|(place, _)| resolved.exclude.binary_search(place).is_err());
            CandidateRecord::Ids(kept.map(|(_, &id)| id.into()).collect())
        }
        CandidateSet::All => {
            let rules = &asked.rules;
            CandidateRecord::Catalogue {
                revision: catalogue.map_or(0, Catalogue::revisions),
                filter: rules.filter.map_or("", |filter| &filter.text).into(),
                exclude: rules.exclude.iter().map(|&id| id.into()).collect(),
                seen: rules.seen as u64,
            }
        }
    }
}

fn no_candidates(missing: &[String]) -> Refusal {
    Refusal::NoCandidates(match missing {
        [] => String::new(),
        [first, ..] => {
            let count = missing.len();
            format!("; {count} of the request are not in the catalogue, the first is '{first}'")
        }
    })
}

/// Returns true if a value is in the list more than once.
fn has_duplicates<T: Ord>(values: &[T]) -> bool {
    let mut sorted: Vec<&T> = values.iter().collect();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}

#[cfg(test)]
mod tests;
