//! Recommendations: a read of the state, and a sealed decision.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use sclub::{ItemSet, Score};

use super::{Engine, Refusal, lock};
use crate::context::ContextValue;
use crate::decision::{DecisionContents, Features, Shown};
use crate::state::{Catalogue, Choice, Draws, Scratch, State};

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
    /// The whole catalogue except these items.
    All(Vec<&'a str>),
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
}

/// A decision before it is sealed.
struct Decided<'a> {
    contents: DecisionContents<'a>,
    scores: Vec<Score>,
    propensities: Vec<f64>,
    cluster_users: u64,
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
        let is_whole = matches!(asked.among, CandidateSet::All(_));
        let further = self.shared.further_draws.unwrap_or(0);
        (is_whole || further > 0) && {
            let state = self.shared.read();
            let items = asked.among.max_len(self.shared.catalogue_of(&state).get());
            items.saturating_mul(1 + further as usize) >= SLOW_SCORES
        }
    }

    /// Returns true if requests are to be answered in a long read. Each with a context that looks at the whole catalogue
    /// copies it. Each with further draws scores its candidates again for each of them.
    fn is_long(&self, all: &[RecommendQuery<'_>]) -> bool {
        let is_whole = |asked: &RecommendQuery<'_>| matches!(asked.among, CandidateSet::All(_));
        let copies = self.shared.has_context && all.iter().any(is_whole);
        let further = self.shared.further_draws.unwrap_or(0) as usize;
        if !copies && further == 0 {
            return false;
        }
        let state = self.shared.read();
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
        let mut slots = Vec::new();
        let choice = match &asked.among {
            CandidateSet::Candidates(ids) => {
                slots = find(catalogue, ids, "candidates")?;
                if has_duplicates(&slots) {
                    let message = "a candidate is given twice";
                    return Err(Refusal::invalid("candidates", message));
                }
                Choice::Slots(&slots)
            }
            CandidateSet::Inline(_, items) => Choice::Inline(items),
            CandidateSet::All(excluded) => {
                slots.extend(excluded.iter().filter_map(|id| catalogue?.slot(id)));
                slots.sort_unstable();
                Choice::All { exclude: &slots }
            }
        };
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
            further: self.shared.further_draws,
        };
        let chosen = state
            .choose(
                draws, asked.user, &choice, catalogue, &context, asked.k, scratch,
            )
            .map_err(|error| match error {
                sclub::Error::BadFeature { .. } if !context.is_empty() => {
                    let message =
                        format!("a feature of an item times the context is too large: {error}");
                    Refusal::invalid("context", message)
                }
                error => Refusal::invalid(asked.among.field(), error.to_string()),
            })?;
        if chosen.decisions.is_empty() {
            let message =
                "there are no candidates: the catalogue is empty, or all items are excluded";
            return Err(Refusal::invalid("candidates", message));
        }
        let shown = chosen.decisions.iter().map(|decision| {
            let entry = |slot: usize| catalogue.expect("it was chosen from").entry(slot);
            let (item, features) = match &asked.among {
                CandidateSet::Candidates(ids) => {
                    let revision = entry(slots[decision.index]).revision;
                    (ids[decision.index].into(), Features::Catalogue(revision))
                }
                CandidateSet::All(_) => {
                    let entry = entry(decision.index);
                    let id = entry.id.to_string();
                    (id.into(), Features::Catalogue(entry.revision))
                }
                CandidateSet::Inline(ids, items) => {
                    let features = items.item(decision.index).collect();
                    (ids[decision.index].into(), Features::Inline(features))
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
        Ok(Decided {
            contents,
            scores: scores.collect(),
            propensities: chosen.propensities,
            cluster_users: chosen.cluster_users,
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
        } = decided;
        let decision = ENCODED.with_borrow_mut(|encoded| {
            contents.encode_into(encoded);
            if self.shared.has_journal() && !lock(&self.shared.pending).push(encoded, &propensities)
            {
                self.shared.meters.not_journaled.increment(1);
            }
            self.shared.sealer.seal(encoded)
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
        }
    }
}

impl CandidateSet<'_> {
    /// An upper bound on the number of candidates: items to exclude are counted.
    fn max_len(&self, catalogue: Option<&Catalogue>) -> usize {
        match self {
            CandidateSet::Candidates(ids) | CandidateSet::Inline(ids, _) => ids.len(),
            CandidateSet::All(_) => catalogue.map_or(0, Catalogue::len),
        }
    }

    /// The field of the request that has the candidates.
    fn field(&self) -> &'static str {
        match self {
            CandidateSet::Candidates(_) => "candidates",
            CandidateSet::Inline(..) => "items",
            CandidateSet::All(_) => "candidates",
        }
    }
}

/// The slots of items of the catalogue.
fn find(
    catalogue: Option<&Catalogue>,
    ids: &[&str],
    field: &'static str,
) -> Result<Vec<usize>, Refusal> {
    let unknown = |id: &str| Refusal::UnknownItem {
        id: id.to_owned(),
        place: "in the catalogue",
        field,
    };
    ids.iter()
        .map(|id| {
            catalogue
                .and_then(|catalogue| catalogue.slot(id))
                .ok_or_else(|| unknown(id))
        })
        .collect()
}

/// Returns true if a slot is in the list more than once.
fn has_duplicates(slots: &[usize]) -> bool {
    let mut sorted = slots.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}

#[cfg(test)]
mod tests;
