//! The journal: items shown and their rewards, for analysis.
//!
//! Decisions come from the threads that recommend, through [`Pending`]. Rewards and requests to forget come
//! from the log, which the journal's task reads after the owner has written it. So the journal catches up by
//! itself after a crash or a disk failure. The log is kept until the journal has read it.
//!
//! Each batch of the journal has the items that its file does not have yet, so every file can be read by
//! itself.

mod forget;
mod page;
mod pending;
mod recall;
mod replaced;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::{mpsc, oneshot};

pub use forget::{Confirmed, ForgottenUsers};
pub(in crate::engine) use forget::{forget_in, forgotten};
pub(super) use page::{CandidateRecord, Detail, Page, RewardRow, ShownRow, Source};
pub(super) use pending::Pending;

use super::item_counts::{COUNTS_FILE, ItemCounts};
use super::{OpenError, Shared, lock};
use crate::context::Context;
use crate::decision::{DecisionContents, Features};
use crate::event::{Batch, Event, Item, Reward, RewardedList};
use crate::identity::UserHash;
use crate::state::{Answered, Catalogue};
use crate::store::{Segments, StoreError};
use crate::timeline::Figures;

/// The milliseconds between two writes.
const TICK: u64 = 100;
/// The milliseconds of service after which a new file is begun, and old ones are dropped.
const DAY: u64 = 24 * 3600 * 1000;
/// The maximum number of batches of the log, and of bytes, in one batch of the journal.
const MAX_BATCHES: usize = 4096;
const MAX_BYTES: usize = 16 << 20;

/// The items that a file has so far.
#[derive(Debug, Default)]
struct Dictionary {
    file: Option<u64>,
    by_revision: HashMap<u64, u32>,
    by_hash: HashMap<[u8; 16], u32>,
    /// The id of each item, by index.
    ids: Vec<Box<str>>,
}

impl Dictionary {
    /// The index of an item with these features. A new item is added to the page.
    fn place(&mut self, page: &mut Page, id: &str, features: &[f64]) -> u32 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(id.as_bytes());
        for value in features {
            hasher.update(&value.to_bits().to_le_bytes());
        }
        let hash = *hasher.finalize().as_bytes().first_chunk().expect("longer");
        *self.by_hash.entry(hash).or_insert_with(|| {
            page.items.push(Item {
                id: id.to_owned(),
                features: features.to_vec(),
            });
            self.ids.push(id.into());
            self.ids.len() as u32 - 1
        })
    }
}

/// A request to the journal's task.
#[derive(Debug)]
pub(super) enum JournalRequest {
    /// Write everything. The answer is the batch of the log up to which the journal is complete.
    Flush(oneshot::Sender<Result<u64, StoreError>>),
    /// Remove the rows of forgotten users from the files ([`forget_in`]).
    Forget(
        Option<Confirmed>,
        oneshot::Sender<Result<(u64, ForgottenUsers), StoreError>>,
    ),
    Stop(oneshot::Sender<()>),
}

/// The owner of the journal.
pub(super) struct Keeper {
    shared: Arc<Shared>,
    /// Decisions that are being written.
    taken: Pending,
    /// The last batch of the journal.
    last: u64,
    /// The last batch of the log that was read, and the events up to there.
    position: u64,
    events: u64,
    dictionary: Dictionary,
    /// The context features of the folder.
    context: Context,
    /// The service-clock time when old files were last dropped.
    retired_at: Option<u64>,
    is_failing: bool,
    /// The batch of the log up to which the state was when the journal was opened. The owner has not taken note of the rewards up to there.
    opened_at: u64,
}

impl Keeper {
    /// Opens the journal and finds the batch up to which it is complete.
    pub fn open(shared: Arc<Shared>) -> Result<Self, OpenError> {
        let journal = &shared.folder.journal;
        let last = journal.last();
        let (mut position, mut events) = (0, 0);
        if let Some(page) = last_page(journal)? {
            (position, events) = (page.position, page.events);
        }
        let first = shared.log.first()?;
        let is_behind = position + 1 < first;
        if is_behind {
            // The journal was disabled for a while, or this is a copy without one.
            let state = shared.read();
            (position, events) = (state.position(), state.events());
        }
        // This node may have missed that a user was forgotten.
        let must_drop = is_behind && shared.is_replicated;
        let (context, opened_at) = {
            let state = shared.read();
            (state.identity().context.clone(), state.position())
        };
        let mut keeper = Self {
            context,
            taken: Pending::default(),
            last,
            position,
            events,
            dictionary: Dictionary::default(),
            retired_at: None,
            is_failing: false,
            opened_at,
            shared,
        };
        if !keeper.shared.has_journal() {
            keeper.position = u64::MAX;
        }
        let must_drop = must_drop || !keeper.shared.has_journal();
        if must_drop && keeper.journal().first()? <= last {
            keeper.drop_all()?;
        }
        keeper.publish_position();
        if keeper.shared.has_journal() {
            keeper.recall()?;
        }
        Ok(keeper)
    }

    fn journal(&self) -> &Segments {
        &self.shared.folder.journal
    }

    fn publish_position(&self) {
        let journaled = &self.shared.journaled;
        journaled.store(self.position, Ordering::SeqCst);
    }

    /// Writes decisions and rewards until it gets a request to stop.
    pub async fn run(mut self, mut requests: mpsc::Receiver<JournalRequest>) {
        loop {
            let tick = self.shared.env().clock.sleep(TICK);
            let request = tokio::select! {
                biased;
                request = requests.recv() => match request {
                    Some(request) => Some(request),
                    None => return,
                },
                () = tick => None,
            };
            match request {
                None => drop(self.write()),
                Some(JournalRequest::Flush(reply)) => {
                    let flushed = self.write().map(|()| self.position);
                    let _ = reply.send(flushed);
                }
                Some(JournalRequest::Forget(confirmed, reply)) => {
                    let written = self.write();
                    let done = written.and_then(|()| self.forget(confirmed.as_ref()));
                    let _ = reply.send(done);
                }
                Some(JournalRequest::Stop(reply)) => {
                    let _ = self.write();
                    let _ = reply.send(());
                    return;
                }
            }
        }
    }

    /// Writes everything that waits. If that fails, it stays for the next time.
    fn write(&mut self) -> Result<(), StoreError> {
        if !self.shared.has_journal() {
            return Ok(());
        }
        // Decisions that come meanwhile are left for the next time, so that this ends on a busy server.
        let upto = self.shared.read().position();
        let mut written = Ok(());
        for _ in 0..2 {
            if self.taken.is_empty() {
                std::mem::swap(&mut self.taken, &mut *lock(&self.shared.pending));
            }
            while written.is_ok() && !(self.taken.is_empty() && self.position >= upto) {
                written = self.write_page(upto);
            }
        }
        if written.is_err() && self.shared.is_replicated {
            written = self.skip_dropped().and(written);
        }
        let written = written.and_then(|()| self.retire());
        match &written {
            Err(error) if !self.is_failing => {
                tracing::error!(%error, "the journal cannot be written")
            }
            Ok(()) if self.is_failing => tracing::info!("the journal can be written again"),
            _ => {}
        }
        self.is_failing = written.is_err();
        let fails = &self.shared.journal_fails;
        fails.store(self.is_failing, Ordering::Relaxed);
        written
    }

    /// Begins a new journal if the log was dropped before this node has read it.
    fn skip_dropped(&mut self) -> Result<(), StoreError> {
        if self.position + 1 < self.shared.log.first()? {
            self.drop_all()?;
            let state = self.shared.read();
            (self.position, self.events) = (state.position(), state.events());
            drop(state);
            self.publish_position();
        }
        Ok(())
    }

    /// Writes the waiting decisions, and some batches of the log up to `upto`.
    fn write_page(&mut self, upto: u64) -> Result<(), StoreError> {
        let file = self.journal().next_file()?;
        if self.dictionary.file != Some(file) {
            self.dictionary = Dictionary {
                file: Some(file),
                ..Dictionary::default()
            };
        }
        let mut page = Page {
            position: self.position,
            events: self.events,
            clock: self.shared.clock(),
            items_before: self.dictionary.ids.len() as u32,
            ..Page::default()
        };
        self.add_decisions(&mut page);
        let added = self.add_rewards(&mut page, upto).and_then(|()| {
            let bytes = page.encode();
            let appended = self.journal().append(self.last, &bytes);
            appended.map_err(StoreError::from)
        });
        if let Err(error) = added {
            // The items of this page did not get into the file.
            self.dictionary.file = None;
            if let StoreError::Refused(_) = error {
                // The page would be refused again.
                self.shared
                    .meters
                    .not_journaled
                    .increment(page.shown.len() as u64);
                self.taken.clear();
            }
            return Err(error);
        }
        self.wait_for_answers();
        self.taken.clear();
        self.last += 1;
        self.drop_replaced(&page);
        self.count(&page);
        if self.position < self.opened_at {
            for row in &page.rewards {
                self.shared.seen.reward(&row.user, row.number, row.reward);
            }
        }
        (self.position, self.events) = (page.position, page.events);
        self.publish_position();
        Ok(())
    }

    /// Counts the items and the rewards of the last page.
    fn count(&self, page: &Page) {
        let ids = &self.dictionary.ids;
        let counts = &*self.shared.item_counts;
        let batch = (!self.shared.is_replicated).then_some(self.last);
        self.count_into(counts, batch, page, None, |place| {
            ids.get(place as usize).map(|id| &**id)
        });
        let state = self.shared.read();
        let catalogue = self.shared.catalogue_of(&state);
        let catalogue = catalogue.get();
        if counts.is_full(catalogue.map_or(0, Catalogue::len)) {
            counts.retain(|id| catalogue.is_some_and(|known| known.slot(id).is_some()));
        }
    }

    /// Adds a page to counts ([`Page::count_items`]). Rewards of a replicated log are counted by its owner.
    fn count_into<'a>(
        &self,
        counts: &ItemCounts,
        batch: Option<u64>,
        page: &Page,
        known: Option<&mut Answered>,
        id_of: impl Fn(u32) -> Option<&'a str>,
    ) {
        let shared = &self.shared;
        page.count_items(
            counts,
            batch,
            shared.settings.unanswered,
            !shared.is_replicated,
            known,
            id_of,
        );
    }

    /// Has the decisions that were written wait for their rewards.
    fn wait_for_answers(&self) {
        if self.shared.settings.unanswered.is_none() {
            return;
        }
        for pending in self.taken.decisions() {
            if let Some(contents) = DecisionContents::decode(pending.decision) {
                let has_room = self
                    .shared
                    .unanswered
                    .add(contents.clock, pending.decision.into());
                if !has_room {
                    self.shared.meters.unanswered_dropped.increment(1);
                }
            }
        }
    }

    fn add_decisions(&mut self, page: &mut Page) {
        for pending in self.taken.decisions() {
            let Some(handed) = DecisionContents::decode(pending.decision) else {
                continue;
            };
            // Locked for each decision, so that writers do not wait for a long page.
            let state = self.shared.state.read();
            // The user may have been forgotten since the decision.
            if state.is_forgotten(&handed.user, handed.event) {
                continue;
            }
            let mut items = Vec::with_capacity(handed.shown.len());
            for shown in &handed.shown {
                let id = &shown.item;
                let known = &mut self.dictionary;
                let place = match &shown.features {
                    Features::Inline(features) => known.place(page, id, features),
                    Features::Catalogue(revision) => match known.by_revision.get(revision) {
                        Some(place) => *place,
                        None => {
                            let catalogue = self.shared.catalogue_of(&state);
                            let known_as = |c: &Catalogue| c.features_of(id, *revision);
                            let features = catalogue.get().and_then(known_as);
                            let place = known.place(page, id, &features.unwrap_or_default());
                            known.by_revision.insert(*revision, place);
                            place
                        }
                    },
                };
                items.push((place, shown.score));
            }
            page.shown.push(ShownRow {
                number: handed.number,
                event: handed.event,
                at: handed.at,
                user: handed.user.into_owned(),
                cluster: handed.cluster,
                items,
                context: handed.context,
                propensities: pending.propensities.to_vec(),
                detail: match pending.detail {
                    [] => None,
                    bytes => Detail::decode(bytes),
                },
            });
        }
    }

    fn add_rewards(&mut self, page: &mut Page, upto: u64) -> Result<(), StoreError> {
        if page.position >= upto {
            return Ok(());
        }
        let last = upto.min(page.position + MAX_BATCHES as u64);
        let batches = self.shared.log.read(page.position)?;
        let (before, mut size) = (page.position, 0);
        for batch in batches.take((last - page.position) as usize) {
            let (number, bytes) = batch?;
            size += bytes.len();
            let batch = Batch::decode(&bytes)
                .map_err(|error| StoreError::Refused(format!("batch {number}: {error}")))?;
            for event in &batch.events {
                page.events += 1;
                match event {
                    Event::Learn { round } => {
                        for reward in round {
                            let row = self.row(page, reward, batch.stamp.at, Source::Sent);
                            page.rewards.push(row);
                        }
                    }
                    Event::LearnAssumed {
                        round,
                        assumed,
                        corrected,
                    } => {
                        let sources = assumed.iter().map(|is_assumed| match is_assumed {
                            true => Source::Assumed,
                            false => Source::Sent,
                        });
                        let corrected = corrected.iter().map(|reward| (reward, Source::Corrected));
                        for (reward, source) in round.iter().zip(sources).chain(corrected) {
                            let row = self.row(page, reward, batch.stamp.at, source);
                            page.rewards.push(row);
                        }
                    }
                    Event::LearnLists { lists } => {
                        for list in lists {
                            self.add_list(page, list, batch.stamp.at);
                        }
                    }
                    Event::Forget { user } => page.forgotten.push((user.clone(), page.events)),
                    _ => {}
                }
            }
            page.position = number;
            if size >= MAX_BYTES {
                break;
            }
        }
        self.find_replaced(page);
        match page.position > before {
            true => Ok(()),
            false => Err(StoreError::Refused(format!(
                "the log ends before batch {}",
                before + 1
            ))),
        }
    }

    fn row(&mut self, page: &mut Page, reward: &Reward, at: u64, source: Source) -> RewardRow {
        let (features, context) = self.context.split(&reward.features);
        RewardRow {
            number: reward.number,
            // Rewards of version 0.1 do not have the event that the decision followed. It was made before this
            // event.
            event: reward.event.min(page.events.saturating_sub(1)),
            decided: reward.decided,
            rewarded: at,
            user: reward.user.clone(),
            cluster: reward.cluster,
            item: self.dictionary.place(page, &reward.item, features),
            score: reward.score,
            reward: reward.reward,
            context: context.to_vec(),
            source,
        }
    }

    /// Adds a row for each reward of a list.
    fn add_list(&mut self, page: &mut Page, list: &RewardedList, at: u64) {
        for (number, item, reward) in list.rewards() {
            let row = RewardRow {
                number,
                event: list.event.min(page.events.saturating_sub(1)),
                decided: list.decided,
                rewarded: at,
                user: list.user.clone(),
                cluster: list.cluster,
                item: self.dictionary.place(page, &item.item, &item.features),
                score: item.score,
                reward,
                context: list.context.clone(),
                source: Source::Sent,
            };
            page.rewards.push(row);
        }
    }

    /// Begins a file each day, and drops files older than `journal-days`.
    fn retire(&mut self) -> Result<(), StoreError> {
        let clock = self.shared.clock();
        let is_due = self
            .retired_at
            .is_none_or(|at| clock.saturating_sub(at) >= DAY);
        if !is_due || self.last == 0 {
            return Ok(());
        }
        // Opening the journal has begun a file already.
        if self.retired_at.is_some() {
            self.journal().append(self.last, &[])?;
            // This page records when the file was begun, even if no other page follows for long.
            self.write_page(self.position)?;
        }
        let journal = &self.shared.folder.journal;
        let kept = self.shared.settings.journal_days.saturating_mul(DAY);
        for (until, _) in journal.closed()? {
            // All pages of a file are older than the first page of the next one.
            let next = journal.read(until - 1)?.next();
            let Some(next) = next else { break };
            if Page::decode(&next?.1)?.clock.saturating_add(kept) >= clock {
                break;
            }
            journal.drop_before(until)?;
        }
        self.retired_at = Some(clock);
        Ok(())
    }

    /// Drops the whole journal.
    fn drop_all(&mut self) -> Result<(), StoreError> {
        match self.shared.has_journal() {
            false => tracing::warn!("journal-days is 0: the journal is removed"),
            true => {
                tracing::warn!("the log has moved on without this node: its journal is removed")
            }
        }
        if !self.shared.is_replicated {
            self.no_counts()
                .write(&self.shared.folder.small_file(COUNTS_FILE));
        }
        let journal = &self.shared.folder.journal;
        journal.append(self.last, &[])?;
        journal.drop_before(self.last + 1)
    }
}

/// The last batch of a journal; `None` if all were dropped.
pub(super) fn last_page(journal: &Segments) -> Result<Option<Page>, StoreError> {
    let last = journal.last();
    if journal.first()? > last {
        return Ok(None);
    }
    match journal.read(last - 1)?.next() {
        Some(page) => Page::decode(&page?.1).map(Some),
        None => Ok(None),
    }
}

/// Returns true if a journal has a decision.
pub(super) fn has_decisions(journal: &Segments) -> Result<bool, StoreError> {
    for batch in journal.read(journal.first()? - 1)? {
        if !Page::decode(&batch?.1)?.shown.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
