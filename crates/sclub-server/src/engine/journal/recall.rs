//! Reads the decisions of the last time from the journal when the server starts: those that wait for their rewards,
//! those that users have seen, and those that were not counted before a crash.

use std::collections::HashMap;

use super::{Detail, ForgottenUsers, Keeper, Page, ShownRow};
use crate::decision::{DecisionContents, Features, Shown};
use crate::engine::item_counts::{COUNTS_FILE, ItemCounts, SavedCounts};
use crate::event::{Batch, Event, Item};
use crate::state::{Answered, Catalogue, State};
use crate::store::StoreError;
use crate::timeline::Figures;

/// The milliseconds of service of which the decisions are recalled for the rule `seen`.
const RECALLED: u64 = 3600 * 1000;

impl Keeper {
    /// Recalls decisions. Those that wait for their rewards are the ones with an item that has none, as long as they accept
    /// rewards. Counts of items go on from the saved ones.
    ///
    /// The state tells only for a time who was forgotten. So decisions are left out by the requests to forget, which are in the
    /// journal for as long as decisions of these users are, or in the part of the log that it has not read yet.
    pub(super) fn recall(&self) -> Result<(), StoreError> {
        let settings = &self.shared.settings;
        let (after, clock) = (settings.after.as_millis(), self.shared.clock());
        let after = settings.unanswered.map(|_| clock.saturating_sub(after));
        let seen = (settings.max_seen > 0).then(|| clock.saturating_sub(RECALLED));
        let since = after.into_iter().chain(seen).min();
        let counts = self.saved_counts();
        let counted = counts.upto;
        let counts = ItemCounts::load(counts);
        let journal = self.journal();
        if journal.first()? > self.last || (since.is_none() && counted >= self.last) {
            self.begin_counts(counts);
            return Ok(());
        }
        let mut recent = journal.first()?;
        // All pages of a file are older than the first page of the next one.
        for (until, _) in journal.closed()? {
            let Some(next) = journal.read(until - 1)?.next() else {
                break;
            };
            let next = Page::decode(&next?.1)?;
            if since.is_some_and(|since| next.clock >= since) {
                break;
            }
            recent = until;
        }
        let files = journal.closed()?.into_iter().map(|(until, _)| until);
        let first = files.take_while(|&until| until <= recent.min(counted + 1));
        let first = first.last().unwrap_or(journal.first()?);
        let forgotten_later = self.forgotten_later()?;
        let state = self.shared.read();
        let seen = &self.shared.seen;
        let mut known = (counted == 0).then(Answered::default);
        let mut items: Vec<Item> = Vec::new();
        for batch in journal.read(first - 1)? {
            let (number, bytes) = batch?;
            let mut page = Page::decode(&bytes)?;
            items.truncate(page.items_before as usize);
            items.append(&mut page.items);
            if number > counted {
                let id_of = |place: u32| items.get(place as usize).map(|item| &*item.id);
                self.count_into(&counts, None, &page, known.as_mut(), id_of);
            }
            if number < recent {
                continue;
            }
            let mut forgotten = HashMap::new();
            for (user, event) in &page.forgotten {
                seen.forget(user);
                forgotten.insert(&**user, *event);
            }
            for row in &page.shown {
                let at = forgotten.get(&*row.user);
                let is_gone = at
                    .max(forgotten_later.get(&row.user))
                    .is_some_and(|at| row.event < *at);
                if is_gone || state.is_forgotten(&row.user, row.event) {
                    continue;
                }
                let shown: Option<Vec<(&Item, f64)>> = row
                    .items
                    .iter()
                    .map(|&(place, score)| Some((items.get(place as usize)?, score)))
                    .collect();
                let Some(shown) = shown else { continue };
                let names = shown.iter().map(|(item, _)| &*item.id);
                seen.add_items(&row.user, row.number, row.at, names);
                if let (Some(detail), Some(_)) = (&row.detail, after) {
                    self.wait_again(&state, row, detail, &shown);
                }
            }
            for row in &page.rewards {
                seen.reward(&row.user, row.number, row.reward);
            }
        }
        drop(state);
        self.begin_counts(counts);
        Ok(())
    }

    /// Users who were forgotten in the part of the log that the journal has not read yet and the state has applied, with the number of the
    /// event.
    fn forgotten_later(&self) -> Result<ForgottenUsers, StoreError> {
        let mut forgotten = ForgottenUsers::new();
        if self.position >= self.opened_at {
            return Ok(forgotten);
        }
        let mut event = self.events;
        for batch in self.shared.log.read(self.position)? {
            let (number, bytes) = batch?;
            if number > self.opened_at {
                break;
            }
            let batch = Batch::decode(&bytes)
                .map_err(|error| StoreError::Refused(format!("batch {number}: {error}")))?;
            for each in batch.events {
                event += 1;
                if let Event::Forget { user } = each {
                    forgotten.insert(user, event);
                }
            }
        }
        Ok(forgotten)
    }

    /// Counts that begin with the next page.
    pub(super) fn no_counts(&self) -> SavedCounts {
        SavedCounts {
            upto: self.last,
            ..SavedCounts::default()
        }
    }

    /// The counts of items that were saved. Without any, they begin with the next page: that is saved, so that a crash does not
    /// change it. Those of a node are not in the folder of a log.
    fn saved_counts(&self) -> SavedCounts {
        let none = self.no_counts();
        if self.shared.is_replicated {
            return none;
        }
        let file = self.shared.folder.small_file(COUNTS_FILE);
        SavedCounts::read(&file).unwrap_or_else(|| {
            none.write(&file);
            none
        })
    }

    /// Counts go on from these. Those of a node go on from what it has.
    fn begin_counts(&self, counts: ItemCounts) {
        if !self.shared.is_replicated {
            counts.counted(self.last);
            self.shared.item_counts.replace(counts);
        }
    }

    /// Has a decision wait for the rewards of its items, unless all have one or it has expired.
    fn wait_again(
        &self,
        state: &State,
        row: &ShownRow,
        detail: &Detail<'_>,
        shown: &[(&Item, f64)],
    ) {
        let mut numbers = (row.number..).take(shown.len());
        if numbers.all(|number| state.answered().contains(number)) {
            return;
        }
        let catalogue = self.shared.catalogue_of(state);
        let contents = decision(row, detail, shown, catalogue.get());
        // A crash may have set the clock back since.
        let Some(contents) = self.shared.own_decision(contents) else {
            return;
        };
        let expired = self.shared.clock().saturating_sub(self.shared.lifetime());
        if contents.clock < expired.max(state.horizon()) {
            return;
        }
        let waiting = &self.shared.unanswered;
        let dropped = waiting.add_newest(contents.clock, contents.encode().into());
        self.shared.meters.unanswered_dropped.increment(dropped);
    }
}

/// A decision from its row. The features of an item are those of the catalogue if they have not changed since.
fn decision<'a>(
    row: &'a ShownRow,
    detail: &Detail<'_>,
    shown: &[(&'a Item, f64)],
    catalogue: Option<&Catalogue>,
) -> DecisionContents<'a> {
    let shown = shown.iter().map(|&(item, score)| {
        let revision = catalogue.and_then(|known| known.revision_with(&item.id, &item.features));
        Shown {
            item: item.id.as_str().into(),
            score,
            features: match revision {
                Some(revision) => Features::Catalogue(revision),
                None => Features::Inline(item.features.clone()),
            },
        }
    });
    DecisionContents {
        life: detail.life,
        number: row.number,
        event: row.event,
        at: row.at,
        clock: detail.clock,
        user: row.user.as_str().into(),
        cluster: row.cluster,
        shown: shown.collect(),
        context: row.context.clone(),
    }
}
