//! The export of the journal as JSON lines.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use serde::Serialize;

use super::Engine;
use super::fold::{self, FoldError};
use super::journal::{Confirmed, ForgottenUsers, Page, forget_in, forgotten};
use crate::context::{Context, ContextValue};
use crate::env::Env;
use crate::event::Item;
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
    features: Option<&'a [f64]>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    context: BTreeMap<&'a str, ContextValue>,
    score: f64,
    cluster: u64,
    reward: Option<f64>,
    decided: u64,
    rewarded: Option<u64>,
}

impl Engine {
    /// Writes every reward in the order in which it was learned, then every item shown without a reward.
    /// Returns the number of lines.
    ///
    /// # Errors
    /// If the journal is damaged, or `out` cannot be written.
    pub async fn export(&self, out: &mut dyn Write) -> Result<u64, FoldError> {
        self.flush_journal().await?;
        let context = self.shared.read().identity().context.clone();
        Ok(export(&self.shared.folder.journal, &context, out)?)
    }
}

/// Exports the journal of a folder that no server uses, like [`Engine::export`].
///
/// # Errors
/// As [`Engine::export`].
pub fn export_folder(env: &Env, data: &Path, out: &mut dyn Write) -> Result<u64, FoldError> {
    let folder = Folder::open(env, data)?;
    let context = fold::identity(&folder)?.map(|identity| identity.context);
    Ok(export(&folder.journal, &context.unwrap_or_default(), out)?)
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
    Ok(export(&folder.journal, context, out)?)
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

fn export(journal: &Segments, context: &Context, out: &mut dyn Write) -> Result<u64, StoreError> {
    let mut lines = 0;
    let mut answered = Answered::default();
    let forgotten = forgotten(journal)?;
    let is_gone = |user: &str, event: u64| forgotten.get(user).is_some_and(|&at| event < at);
    // All passes see the same batches. The first two are for positions and propensities, which rewards do not have.
    let read = || journal.read(journal.first()? - 1);
    let (first, early, second, third) = (read()?, read()?, read()?, read()?);
    let mut lists = Lists::default();
    let (mut rewarded, mut has_propensities) = (Answered::default(), false);
    let mut last = 0;
    each_page(first, &mut |number, page, _| {
        last = number;
        for row in &page.shown {
            lists.add(row.number, row.items.len());
            has_propensities |= !row.propensities.is_empty();
        }
        for row in &page.rewards {
            rewarded.insert(row.number, 0);
        }
        Ok(())
    })?;
    let mut propensities: Vec<(u64, f64)> = Vec::new();
    if has_propensities {
        each_page(early, &mut |number, page, _| {
            let rows = page.shown.iter().filter(|_| number <= last);
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
            if is_gone(&row.user, row.event) {
                continue;
            }
            let item = item(items, row.item)?;
            lines += 1;
            put(
                out,
                &Line {
                    decision: row.number,
                    user: &row.user,
                    item: &item.id,
                    position: lists.position(row.number),
                    propensity: propensity(row.number),
                    features: features(item),
                    context: context.decode(&row.context),
                    score: row.score,
                    cluster: row.cluster,
                    reward: Some(row.reward),
                    decided: row.decided,
                    rewarded: Some(row.rewarded),
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
            for (number, &(place, score)) in (row.number..).zip(&row.items) {
                if answered.contains(number) {
                    continue;
                }
                let item = item(items, place)?;
                lines += 1;
                put(
                    out,
                    &Line {
                        decision: number,
                        user: &row.user,
                        item: &item.id,
                        position: Some(number - row.number),
                        propensity: row
                            .propensities
                            .get((number - row.number) as usize)
                            .copied(),
                        features: features(item),
                        context: context.decode(&row.context),
                        score,
                        cluster: row.cluster,
                        reward: None,
                        decided: row.at,
                        rewarded: None,
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
