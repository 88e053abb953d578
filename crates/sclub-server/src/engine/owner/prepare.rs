//! Commands become events.

use super::{Command, Done};
use crate::engine::Refusal;
use crate::engine::feedback::prepare_round;
use crate::engine::fit::Fits;
use crate::event::{DescribedItem, Event, ListItem, Reward, RewardedList};
use crate::raw;
use crate::state::{Ahead, Catalogue, State};

/// The event of a command, if it needs one, and its result.
pub(super) fn prepare(
    state: &State,
    catalogue: Option<&Catalogue>,
    ahead: &mut Ahead,
    fits: &mut Fits,
    command: Command,
) -> Result<(Option<Event>, Done), Refusal> {
    let (event, done) = match command {
        Command::Learn(round) => return prepare_round(state, catalogue, ahead, round),
        Command::Patch(id, patch) => {
            let old = state.catalogue().and_then(|catalogue| {
                let slot = catalogue.slot(&id)?;
                Some(catalogue.item(slot))
            });
            let old = old.ok_or_else(|| Refusal::unknown_item(&id))?;
            let transform = state.identity().features.as_deref();
            let items = vec![raw::patched(transform, old, &patch)?];
            let items = changed_items(state, items);
            let changed = items.len();
            let event = (changed > 0).then(|| Event::of_items(items));
            (event, Done::Changed(changed))
        }
        Command::Upsert(items) => {
            // All are checked, also those that are as they were.
            state
                .admit(&Event::of_items(items.clone()), ahead)
                .map_err(|rejected| rejected.reason)?;
            let items = changed_items(state, items);
            let changed = items.len();
            let event = (changed > 0).then(|| Event::of_items(items));
            return Ok((event, Done::Changed(changed)));
        }
        Command::Remove(item) => {
            let catalogue = state.catalogue();
            let is_there = catalogue.is_some_and(|catalogue| catalogue.slot(&item).is_some());
            let event = is_there.then_some(Event::Remove { item });
            (event, Done::Changed(usize::from(is_there)))
        }
        Command::Forget(user) => {
            let is_known = state.users().number(&user).is_some();
            let event = Event::Forget { user };
            (Some(event), Done::Changed(usize::from(is_known)))
        }
        Command::Expect(users) => {
            let is_new = state.rounds() > 0 || state.expected() != users;
            let event = is_new.then_some(Event::Expect { users });
            (event, Done::Changed(usize::from(is_new)))
        }
        Command::Fit(fit) => {
            let event = fits.arrived(fit, state);
            (event, Done::Changed(1))
        }
        Command::Experiment(event) => (Some(event), Done::Changed(1)),
        // Without a user there is nothing to fit.
        Command::LogFit { fit, .. } => {
            let fit = state.policy().map(|_| Event::Fit { fit });
            (fit, Done::Changed(1))
        }
        Command::Roll
        | Command::DropBefore(_)
        | Command::Lead { .. }
        | Command::Resign
        | Command::Stop => (None, Done::Changed(0)),
    };
    if let Some(event) = &event {
        state
            .admit(event, ahead)
            .map_err(|rejected| rejected.reason)?;
    }
    Ok((event, done))
}

/// The items that are new or changed.
fn changed_items(state: &State, mut items: Vec<DescribedItem>) -> Vec<DescribedItem> {
    if let Some(catalogue) = state.catalogue() {
        // Of an item that is given twice the last one counts, so all of them stay.
        let mut seen = std::collections::HashSet::new();
        let has_duplicates = items.iter().any(|item| !seen.insert(item.id.clone()));
        if !has_duplicates {
            items.retain(|item| !catalogue.has(&item.id, &item.features, &item.description));
        }
    }
    items
}

/// The approximate length of an event in the log, in bytes.
pub(super) fn size_of_event(event: &Event) -> usize {
    let reward = |r: &Reward| r.features.len() * 8 + r.user.len() + r.item.len() + 64;
    let item = |i: &ListItem| i.features.len() * 8 + i.item.len() + 32;
    let list = |l: &RewardedList| l.items.iter().map(item).sum::<usize>() + l.user.len() + 64;
    match event {
        Event::Learn { round } => round.iter().map(reward).sum(),
        Event::LearnAssumed {
            round, corrected, ..
        } => round.iter().chain(corrected).map(reward).sum(),
        Event::LearnLists { lists } => lists.iter().map(list).sum(),
        _ => 64,
    }
}
