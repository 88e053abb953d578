//! Forgetting: removing the rows of users from the files of a journal.

use std::collections::HashMap;

use super::page::Page;
use super::{Answered, COUNTS_FILE, Item, ItemCounts, Keeper, Segments, StoreError, UserHash};

/// Users who were forgotten, with the number of the event.
pub type ForgottenUsers = HashMap<String, u64>;

/// Users of whom all nodes of a cluster know that they are forgotten, by hash: so their ids are not stored once more.
#[derive(Debug, Clone)]
pub struct Confirmed {
    hash: UserHash,
    events: HashMap<String, u64>,
}

impl Confirmed {
    /// Users by hash, with the number of the event.
    pub fn new(hash: UserHash, events: impl IntoIterator<Item = (String, u64)>) -> Self {
        let events = events.into_iter().collect();
        Self { hash, events }
    }

    fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The event at which a user was forgotten.
    fn event(&self, user: &str) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        self.events.get(&self.hash.of(user)).copied()
    }
}

impl Keeper {
    /// Removes every row of forgotten users from the files. Returns the number of rows, and the users.
    pub(super) fn forget(
        &mut self,
        confirmed: Option<&Confirmed>,
    ) -> Result<(u64, ForgottenUsers), StoreError> {
        self.dictionary.file = None;
        let known = forgotten(self.journal())?;
        let counts = &self.shared.item_counts;
        let must_recount =
            !self.shared.is_replicated && (!known.is_empty() || counts.is_outdated());
        if must_recount {
            // The requests are gone afterwards: nothing would tell that the file has numbers of these users.
            counts.outdate(&self.shared.folder.small_file(COUNTS_FILE))?;
        }
        let rows = remove_rows(self.journal(), confirmed, &known)?;
        if must_recount {
            self.recount()?;
        }
        Ok((rows, known))
    }

    /// Counts items anew from the whole journal, which has no rows of forgotten users any more.
    fn recount(&self) -> Result<(), StoreError> {
        let journal = self.journal();
        let counts = ItemCounts::default();
        let mut known = Answered::default();
        let mut items: Vec<Item> = Vec::new();
        for batch in journal.read(journal.first()? - 1)? {
            let mut page = Page::decode(&batch?.1)?;
            items.truncate(page.items_before as usize);
            items.append(&mut page.items);
            let id_of = |place: u32| items.get(place as usize).map(|item| &*item.id);
            self.count_into(&counts, None, &page, Some(&mut known), id_of);
        }
        counts.counted(self.last);
        self.shared.item_counts.replace(counts);
        Ok(())
    }
}

/// Removes every row of forgotten users from the files of a journal. Returns the number of rows, and the users of the
/// requests to forget in this journal.
///
/// `confirmed` are users of whom every node of a cluster knows that they are forgotten: their rows are removed even
/// if this journal has no request to forget them, and such requests are removed. Requests of other users stay, for
/// the nodes that do not know of them yet. `None` stands for all users: a single server.
pub fn forget_in(
    journal: &Segments,
    confirmed: Option<&Confirmed>,
) -> Result<(u64, ForgottenUsers), StoreError> {
    let known = forgotten(journal)?;
    let rows = remove_rows(journal, confirmed, &known)?;
    Ok((rows, known))
}

/// As [`forget_in`], if the requests to forget in the journal are `known`. Returns the number of rows.
fn remove_rows(
    journal: &Segments,
    confirmed: Option<&Confirmed>,
    known: &ForgottenUsers,
) -> Result<u64, StoreError> {
    if known.is_empty() && confirmed.is_none_or(|users| users.is_empty()) {
        journal.sync_names()?;
        return Ok(0);
    }
    let confirmed_at = |user: &str| confirmed.and_then(|users| users.event(user));
    let is_gone = |user: &str, event: u64| {
        let at = known.get(user).copied().max(confirmed_at(user));
        at.is_some_and(|at| event < at)
    };
    let is_done = |user: &str, event: u64| {
        confirmed.is_none() || confirmed_at(user).is_some_and(|at| event <= at)
    };
    let mut rows = 0;
    journal.rewrite(&mut |bytes| {
        let mut page = Page::decode(bytes)?;
        let before = (page.shown.len() + page.rewards.len()) as u64;
        let is_changed = page.forget(is_gone, is_done);
        rows += before - (page.shown.len() + page.rewards.len()) as u64;
        Ok(is_changed.then(|| page.encode()))
    })?;
    Ok(rows)
}

/// Users who were forgotten since the last compaction, with the number of the event.
pub fn forgotten(journal: &Segments) -> Result<ForgottenUsers, StoreError> {
    let mut forgotten = HashMap::new();
    for batch in journal.read(journal.first()? - 1)? {
        for (user, event) in Page::decode(&batch?.1)?.forgotten {
            let latest: &mut u64 = forgotten.entry(user).or_default();
            *latest = event.max(*latest);
        }
    }
    Ok(forgotten)
}
