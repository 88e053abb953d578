//! The assumed rewards that others have replaced. The journal has them, so that the sum of an item's rewards can be counted from it.

use std::collections::{HashMap, HashSet};

use super::{Keeper, Page, Source};
use crate::engine::lock;

impl Keeper {
    /// Gives rewards of a page the assumed ones that they replace. The owner has taken note of them, unless it was killed since: then they
    /// are in the journal or in this page.
    pub(super) fn find_replaced(&self, page: &mut Page) {
        let corrected = page.rewards.iter();
        let corrected = corrected.filter(|row| row.source == Source::Corrected);
        let unknown: HashSet<u64> = corrected.map(|row| row.number).collect();
        // The owner of a replicated log counts its rewards itself.
        if unknown.is_empty() || self.shared.is_replicated {
            return;
        }
        let mut found = HashMap::new();
        let noted = lock(&self.shared.replaced);
        found.extend(
            unknown
                .iter()
                .filter_map(|number| Some((*number, *noted.get(number)?))),
        );
        drop(noted);
        if found.len() < unknown.len() {
            let mut look = |page: &Page| {
                let rows = page.rewards.iter();
                let rows = rows.filter(|row| row.source == Source::Assumed);
                let wanted = rows.filter(|row| unknown.contains(&row.number));
                found.extend(wanted.map(|row| (row.number, row.reward)));
            };
            let journal = self.journal();
            let batches = journal.first().and_then(|first| journal.read(first - 1));
            // A file that cannot be read does not stop the journal.
            for (_, bytes) in batches.into_iter().flatten().map_while(Result::ok) {
                if let Ok(page) = Page::decode(&bytes) {
                    look(&page);
                }
            }
            look(page);
        }
        for row in &mut page.rewards {
            if row.source == Source::Corrected
                && let Some(&before) = found.get(&row.number)
            {
                row.source = Source::Replaced(before);
            }
        }
    }

    /// Drops the owner's notes of rewards that are in the journal now.
    pub(super) fn drop_replaced(&self, page: &Page) {
        let mut noted = lock(&self.shared.replaced);
        for row in &page.rewards {
            if let Source::Replaced(_) = row.source {
                noted.remove(&row.number);
            }
        }
    }
}
