//! The export of the journal as JSON lines.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;

use super::Engine;
use super::fold::{self, FoldError};
use super::import::is_imported;
use super::journal::{
    CandidateRecord, Confirmed, Detail, ForgottenUsers, Page, Source, forget_in, forgotten,
};
use crate::context::{Context, ContextValue};
use crate::env::Env;
use crate::event::Item;
use crate::experiment::running::Periods;
use crate::state::Answered;
use crate::store::{Folder, Segments, StoreError};

/// A line: an item shown, and its reward.
#[derive(Debug, Serialize)]
struct Line<'a> {
    decision: u64,
    user: &'a str,
    item: &'a str,
    position: Option<u64>,
    propensity: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slot_propensity: Option<f64>,
    features: Option<&'a [f64]>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    context: BTreeMap<&'a str, ContextValue>,
    score: f64,
    cluster: u64,
    reward: Option<f64>,
    /// True if nobody has sent the reward.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    assumed: bool,
    decided: u64,
    rewarded: Option<u64>,
    /// True if the item was not shown here: its reward was imported.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    imported: bool,
    /// The experiment in which it was shown, and the arm that showed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    experiment: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arm: Option<&'a str>,
    #[serde(flatten)]
    choice: Option<LineChoice<'a>>,
}

/// The random number and the candidates of a decision.
#[derive(Debug, Serialize)]
struct LineChoice<'a> {
    /// In hexadecimal.
    draw: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    candidates: Option<&'a [Cow<'static, str>]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    catalogue: Option<LineCatalogue<'a>>,
}

/// The part of the catalogue that a decision was made from.
#[derive(Debug, Serialize)]
struct LineCatalogue<'a> {
    revision: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    exclude: &'a [Cow<'static, str>],
    #[serde(skip_serializing_if = "is_zero")]
    seen: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl<'a> LineChoice<'a> {
    fn new(draw: u64, candidates: &'a CandidateRecord<'static>) -> Option<Self> {
        let draw = format!("{draw:016x}");
        match candidates {
            CandidateRecord::Unknown => None,
            CandidateRecord::Ids(ids) => Some(Self {
                draw,
                candidates: Some(ids),
                catalogue: None,
            }),
            CandidateRecord::Catalogue {
                revision,
                filter,
                exclude,
                seen,
            } => Some(Self {
                draw,
                candidates: None,
                catalogue: Some(LineCatalogue {
                    revision: *revision,
                    filter: serde_json::from_str(filter).ok(),
                    exclude,
                    seen: *seen,
                }),
            }),
        }
    }
}

/// The details of decisions with a rewarded item, by the number of the decision. Equal candidates are kept once.
#[derive(Default)]
struct Details {
    known: HashSet<Arc<CandidateRecord<'static>>>,
    by_decision: HashMap<u64, (u64, Vec<f64>, Arc<CandidateRecord<'static>>)>,
}

impl Details {
    fn add(&mut self, number: u64, detail: &Detail<'static>) {
        let candidates = match self.known.get(&detail.candidates) {
            Some(known) => Arc::clone(known),
            None => {
                let new = Arc::new(detail.candidates.clone());
                self.known.insert(Arc::clone(&new));
                new
            }
        };
        let details = (detail.draw, detail.slots.clone(), candidates);
        self.by_decision.insert(number, details);
    }

    /// The probability of an item in its slot, and the choice that it comes from.
    fn get(&self, number: u64, position: Option<u64>) -> (Option<f64>, Option<LineChoice<'_>>) {
        let known = position.and_then(|position| {
            let details = self.by_decision.get(&(number - position))?;
            Some((position, details))
        });
        let Some((position, (draw, slots, candidates))) = known else {
            return (None, None);
        };
        let slot = slots.get(position as usize).copied();
        (slot, LineChoice::new(*draw, candidates))
    }
}

impl Engine {
    /// Writes every reward in the order in which it was learned, then every item shown without a reward.
    /// Returns the number of lines.
    ///
    /// # Errors
    /// If the journal is damaged, or `out` cannot be written.
    pub async fn export(&self, out: &mut dyn Write) -> Result<u64, FoldError> {
        self.flush_journal().await?;
        let (context, periods) = {
            let state = self.shared.read();
            let context = state.identity().context.clone();
            (context, state.experiments().periods())
        };
        let journal = &self.shared.folder.journal;
        Ok(export(journal, &context, &periods, out)?)
    }
}

/// Exports the journal of a folder that no server uses, like [`Engine::export`].
///
/// # Errors
/// As [`Engine::export`].
pub fn export_folder(env: &Env, data: &Path, out: &mut dyn Write) -> Result<u64, FoldError> {
    let folder = Folder::open(env, data)?;
    let identity = fold::identity(&folder)?;
    let mut periods = Periods::default();
    if let Some(identity) = identity.as_ref().filter(|known| known.has_descriptions()) {
        let sources = fold::Sources::of(&folder);
        let state = fold::newest(sources, identity, folder.log.last(), &mut |_| {})?;
        periods = state.experiments().periods();
    }
    let context = identity.map(|identity| identity.context);
    Ok(export(
        &folder.journal,
        &context.unwrap_or_default(),
        &periods,
        out,
    )?)
}

/// Exports the journal of a partition's folder that this node no longer uses.
///
/// # Errors
/// As [`Engine::export`].
pub fn export_journal(
    env: &Env,
    data: &Path,
    context: &Context,
    out: &mut dyn Write,
) -> Result<u64, FoldError> {
    let folder = Folder::open(env, data)?;
    // There are no experiments in a cluster.
    Ok(export(&folder.journal, context, &Periods::default(), out)?)
}

/// Removes forgotten users, of whom all nodes know, from the journal of a partition's folder that this node no longer
/// uses. Returns the number of rows, and the users that are forgotten.
///
/// # Errors
/// If a file cannot be read or written. It can be repeated.
pub fn forget_in_folder(
    env: &Env,
    data: &Path,
    confirmed: &Confirmed,
) -> Result<(u64, ForgottenUsers), FoldError> {
    let folder = Folder::open(env, data)?;
    Ok(forget_in(&folder.journal, Some(confirmed))?)
}

fn export(
    journal: &Segments,
    context: &Context,
    periods: &Periods,
    out: &mut dyn Write,
) -> Result<u64, StoreError> {
    let mut lines = 0;
    let mut answered = Answered::default();
    let forgotten = forgotten(journal)?;
    let is_gone = |user: &str, event: u64| forgotten.get(user).is_some_and(|&at| event < at);
    // All passes see the same batches. The first two are for positions and propensities, which rewards do not have.
    let read = || journal.read(journal.first()? - 1);
    let (first, early, second, third) = (read()?, read()?, read()?, read()?);
    let mut lists = Lists::default();
    let (mut rewarded, mut corrected) = (Answered::default(), Answered::default());
    let mut has_more = false;
    let mut last = 0;
    each_page(first, &mut |number, page, _| {
        last = number;
        for row in &page.shown {
            lists.add(row.number, row.items.len());
            has_more |= !row.propensities.is_empty();
        }
        for row in &page.rewards {
            rewarded.insert(row.number, 0);
            if matches!(row.source, Source::Corrected | Source::Replaced(_)) {
                corrected.insert(row.number, 0);
            }
        }
        Ok(())
    })?;
    let mut propensities: Vec<(u64, f64)> = Vec::new();
    let mut details = Details::default();
    if has_more {
        each_page(early, &mut |number, page, _| {
            let rows = page.shown.iter().filter(|_| number <= last);
            for row in rows.clone() {
                let mut numbers = (row.number..).take(row.items.len());
                if let Some(detail) = &row.detail
                    && numbers.any(|number| rewarded.contains(number))
                {
                    details.add(row.number, detail);
                }
            }
            let all = rows.flat_map(|row| (row.number..).zip(row.propensities.iter().copied()));
            propensities.extend(all.filter(|(number, _)| rewarded.contains(*number)));
            Ok(())
        })?;
        propensities.sort_unstable_by_key(|(number, _)| *number);
    }
    let propensity = |number: u64| {
        let place = propensities.binary_search_by_key(&number, |(number, _)| *number);
        place.ok().map(|place| propensities[place].1)
    };
    each_page(second, &mut |number, page, items| {
        if number > last {
            return Ok(());
        }
        for row in &page.rewards {
            answered.insert(row.number, 0);
            let is_assumed = row.source == Source::Assumed;
            if is_gone(&row.user, row.event) || is_assumed && corrected.contains(row.number) {
                continue;
            }
            let item = item(items, row.item)?;
            let position = lists.position(row.number);
            let (slot_propensity, choice) = details.get(row.number, position);
            let arm = periods.find(row.event, &row.user);
            lines += 1;
            put(
                out,
                &Line {
                    decision: row.number,
                    user: &row.user,
                    item: &item.id,
                    position,
                    propensity: propensity(row.number),
                    slot_propensity,
                    features: features(item),
                    context: context.decode(&row.context),
                    score: row.score,
                    cluster: row.cluster,
                    reward: Some(row.reward),
                    assumed: is_assumed,
                    decided: row.decided,
                    rewarded: Some(row.rewarded),
                    imported: is_imported(row.number),
                    experiment: arm.map(|(experiment, _)| experiment),
                    arm: arm.map(|(_, arm)| arm),
                    choice,
                },
            )?;
        }
        Ok(())
    })?;
    each_page(third, &mut |number, page, items| {
        for row in &page.shown {
            if number > last || is_gone(&row.user, row.event) {
                continue;
            }
            let arm = periods.find(row.event, &row.user);
            for (number, &(place, score)) in (row.number..).zip(&row.items) {
                if answered.contains(number) {
                    continue;
                }
                let item = item(items, place)?;
                let position = (number - row.number) as usize;
                let detail = row.detail.as_ref();
                lines += 1;
                put(
                    out,
                    &Line {
                        decision: number,
                        user: &row.user,
                        item: &item.id,
                        position: Some(position as u64),
                        propensity: row.propensities.get(position).copied(),
                        slot_propensity: detail.and_then(|own| own.slots.get(position).copied()),
                        features: features(item),
                        context: context.decode(&row.context),
                        score,
                        cluster: row.cluster,
                        reward: None,
                        assumed: false,
                        decided: row.at,
                        rewarded: None,
                        imported: false,
                        experiment: arm.map(|(experiment, _)| experiment),
                        arm: arm.map(|(_, arm)| arm),
                        choice: detail.and_then(|own| LineChoice::new(own.draw, &own.candidates)),
                    },
                )?;
            }
        }
        Ok(())
    })?;
    Ok(lines)
}

/// The lists of the decisions in a journal: two bits for each item shown.
#[derive(Default)]
struct Lists {
    shown: Answered,
    firsts: Answered,
}

impl Lists {
    fn add(&mut self, first: u64, count: usize) {
        self.firsts.insert(first, 0);
        for number in (first..).take(count) {
            self.shown.insert(number, 0);
        }
    }

    /// The position of an item in its list, from 0; `None` if its decision is not in the journal.
    fn position(&self, number: u64) -> Option<u64> {
        let is_first = |position: &u64| self.firsts.contains(number - position);
        self.shown
            .contains(number)
            .then(|| (0..=number).find(is_first))?
    }
}

type Visit<'a> = dyn FnMut(u64, &Page, &[Item]) -> Result<(), StoreError> + 'a;

/// Visits the pages of a journal, each with the items that its file has so far.
fn each_page(batches: crate::store::Batches, visit: &mut Visit<'_>) -> Result<(), StoreError> {
    let mut items = Vec::new();
    for batch in batches {
        let (number, bytes) = batch?;
        let mut page = Page::decode(&bytes)?;
        items.truncate(page.items_before as usize);
        items.append(&mut page.items);
        visit(number, &page, &items)?;
    }
    Ok(())
}

fn item(items: &[Item], place: u32) -> Result<&Item, StoreError> {
    let missing =
        || StoreError::Refused("the journal refers to an item that it does not have".into());
    items.get(place as usize).ok_or_else(missing)
}

/// The features of an item; `None` if they were no longer known when the decision was written.
fn features(item: &Item) -> Option<&[f64]> {
    (!item.features.is_empty()).then_some(&item.features)
}

fn put(out: &mut dyn Write, line: &Line<'_>) -> Result<(), StoreError> {
    let mut bytes = serde_json::to_vec(line).expect("plain data");
    bytes.push(b'\n');
    out.write_all(&bytes)
        .map_err(|error| StoreError::Refused(format!("cannot write: {error}")))
}
