//! Recommendations: a read of the state, and a sealed decision.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use sclub::{ItemSet, Propensity, Score};

use super::candidates::Resolved;
use super::journal::{CandidateRecord, Detail};
use super::{Engine, Refusal, lock};
use crate::context::ContextValue;
use crate::decision::{DecisionContents, Features, Shown};
use crate::filter::Filter;
use crate::state::{Catalogue, Choice, Draws, Scratch, State, Ties};

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

impl<'a> RecommendQuery<'a> {
    /// A request for `k` items of the whole catalogue, without context.
    pub fn new(user: &'a str, k: usize) -> Self {
        Self {
            user,
            among: CandidateSet::All,
            rules: Rules::default(),
            k,
            context: None,
        }
    }
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
    /// The reason why there is no item and no decision, in a batch.
    pub refused: Option<Refusal>,
}

impl Recommended {
    /// The answer to a request of a batch that has no candidates.
    fn none(refusal: Refusal) -> Self {
        let missing = match &refusal {
            Refusal::NoCandidates { missing, .. } => missing.clone(),
            _ => Vec::new(),
        };
        Self {
            decision: String::new(),
            items: Vec::new(),
            cluster: 0,
            cluster_users: 0,
            propensities: Vec::new(),
            slot_propensities: Vec::new(),
            missing,
            refused: Some(refusal),
        }
    }
}

/// A decision before it is sealed.
pub(super) struct Decided<'a> {
    pub contents: DecisionContents<'a>,
    pub scores: Vec<Score>,
    propensities: Vec<Propensity>,
    pub cluster_users: u64,
    missing: Vec<String>,
    detail: Option<Detail<'a>>,
    /// The number of users that had been forgotten.
    forgets: u64,
}

/// The purpose of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A decision, which takes its number.
    Decision,
    /// A preview: it changes nothing.
    Preview,
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
            self.choose(state, catalogue, asked, Purpose::Decision, scratch)
        });
        scratch.end();
        Ok(self.hand_out(chosen?))
    }

    /// Recommends to several users on the same history and the same catalogue. A request without candidates gets an empty
    /// list and the reason.
    ///
    /// # Errors
    /// If one of the requests is invalid. No request is answered then.
    pub fn recommend_all(&self, all: &[RecommendQuery<'_>]) -> Result<Vec<Recommended>, Refusal> {
        let chosen = self.with_state(self.is_long(all), |state, catalogue| {
            let mut scratch = Scratch::default();
            let all = all.iter().enumerate();
            all.map(|(index, asked)| {
                match self.choose(state, catalogue, asked, Purpose::Decision, &mut scratch) {
                    Ok(decided) => Ok(Ok(decided)),
                    Err(none @ Refusal::NoCandidates { .. }) => Ok(Err(none)),
                    Err(refusal) => Err(refusal.within("requests", index)),
                }
            })
            .collect::<Result<Vec<_>, _>>()
        })?;
        let decided = chosen.into_iter().map(|decided| match decided {
            Ok(decided) => self.hand_out(decided),
            Err(refusal) => Recommended::none(refusal),
        });
        Ok(decided.collect())
    }

    /// Returns true if a request may take milliseconds: it looks at a large catalogue, or has many further draws.
    pub fn is_slow(&self, asked: &RecommendQuery<'_>) -> bool {
        let is_whole = matches!(asked.among, CandidateSet::All);
        (is_whole || self.shared.has_propensities()) && {
            let state = self.shared.read();
            let items = asked.among.max_len(self.shared.catalogue_of(&state).get());
            let further = self.shared.further_draws(state.draws(), items).unwrap_or(0);
            (is_whole || further > 0) && items.saturating_mul(1 + further as usize) >= SLOW_SCORES
        }
    }

    /// Returns true if requests are to be answered in a long read. Each with a context that looks at the whole catalogue
    /// copies it. Each with further draws scores its candidates again for each of them.
    pub(super) fn is_long(&self, all: &[RecommendQuery<'_>]) -> bool {
        let is_whole = |asked: &RecommendQuery<'_>| matches!(asked.among, CandidateSet::All);
        let copies = self.shared.has_context && all.iter().any(is_whole);
        if !copies && !self.shared.has_propensities() {
            return false;
        }
        let state = self.shared.read();
        let draws = state.draws();
        let catalogue = self.shared.catalogue_of(&state);
        let catalogue = catalogue.get();
        let scores = all.iter().map(|asked| {
            let items = asked.among.max_len(catalogue);
            let further = self.shared.further_draws(draws, items).unwrap_or(0);
            items.saturating_mul(further as usize)
        });
        (copies && catalogue.map_or(0, Catalogue::len) > MAX_SHORT_COPY)
            || scores.fold(0, usize::saturating_add) > MAX_SHORT_SCORES
    }

    /// Reads the state and the catalogue, which do not change meanwhile. Other recommendations do not wait for a long
    /// read; learning and changes of the catalogue do.
    pub(super) fn with_state<T>(
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

    pub(super) fn choose<'a>(
        &self,
        state: &State,
        catalogue: Option<&Catalogue>,
        asked: &RecommendQuery<'a>,
        purpose: Purpose,
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
        let resolved = Resolved::new(catalogue, asked, seen)?;
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
        let count = resolved.len(asked, catalogue);
        if count == 0 {
            return Err(resolved.no_candidates(catalogue, asked));
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
        let (number, further, explore_share) = match purpose {
            Purpose::Decision => (
                term.number.fetch_add(reserved, Ordering::Relaxed),
                self.shared
                    .further_draws(state.serving(asked.user).draws, count),
                self.shared.settings.explore_share,
            ),
            Purpose::Preview => (term.number.load(Ordering::Relaxed), None, 0.0),
        };
        let draws = Draws {
            number: self.shared.sealer.draw(term.life, number),
            further,
            explore_share,
            ties: asked.rules.ties,
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
            return Err(resolved.no_candidates(catalogue, asked));
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
                false => resolved.record(catalogue, asked),
            },
        });
        Ok(Decided {
            contents,
            scores: scores.collect(),
            propensities: chosen.propensities,
            cluster_users: chosen.cluster_users,
            missing: resolved.missing,
            detail,
            forgets: self.shared.seen.forgets(),
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
            forgets,
        } = decided;
        let slot_propensities = propensities.iter().map(|p| p.slot).collect();
        let propensities: Vec<f64> = propensities.iter().map(|p| p.list).collect();
        let detail = detail.map(|detail| detail.encode());
        let shared = &self.shared;
        shared.seen.add(&contents);
        // The user may have been forgotten since the decision.
        if shared.seen.forgets() != forgets
            && shared.read().is_forgotten(&contents.user, contents.event)
        {
            shared.seen.forget(&contents.user);
        }
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
            refused: None,
        }
    }
}

impl CandidateSet<'_> {
    /// An upper bound on the number of candidates: items to exclude are counted.
    pub(super) fn max_len(&self, catalogue: Option<&Catalogue>) -> usize {
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

#[cfg(test)]
mod tests;
