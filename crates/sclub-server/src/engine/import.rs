//! Import: what is already known is taught to a new folder, as events like any other.
//!
//! A new folder is made in the subfolder `importing`. When it is complete its files replace those of the folder
//! ([`Folder::replace_by_import`]). An import that fails or is cut off leaves the folder as it was, and whatever else is
//! in it, such as other spaces, stays.
//! Rows are learned one by one, in the order in which they are given. They are in the log in batches. Fits are
//! computed between two batches, fewer than a server makes, and at the end. They are events too.
//!
//! A row has the number of an item shown in epoch 0, in which no server makes decisions: [`is_imported`].

use std::collections::HashMap;
use std::io;
use std::path::Path;

use sclub::Workers;

use super::fit::Threads;
use super::fold::{self, FoldError};
use super::journal::has_decisions;
use super::{Engine, OpenError};
use crate::decision::epoch_of;
use crate::env::Env;
use crate::event::{Batch, DescribedItem, Event, ListItem, Reward, RewardedList, Stamp};
use crate::identity::{Identity, Misfit};
use crate::settings::Settings;
use crate::state::{Effect, State};
use crate::store::{Epochs, Folder, IMPORTING};

/// The minimum and maximum number of rows in a batch of the log. In between, a batch is a share of the rows before it,
/// so that a fit is late by that share at the most.
const MIN_ROWS: u64 = 256;
const MAX_ROWS: u64 = 8192;
const SHARE: u64 = 16;
/// A fit is computed when the rounds are this many times those of the last one, and at the end. A server makes more of them;
/// here nobody is served meanwhile.
const ROUNDS_PER_FIT: u64 = 4;
/// The maximum number of items in a batch, and of their bytes, about.
const ITEMS_PER_BATCH: usize = 1000;
const BYTES_PER_BATCH: usize = 1 << 20;

/// Returns true for the number of an item that was not shown: its reward was imported.
pub fn is_imported(number: u64) -> bool {
    epoch_of(number) == 0 && number > 0
}

/// A row of an import.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ImportRow<'a> {
    /// The id of the user.
    pub user: &'a str,
    /// The id of the item.
    pub item: &'a str,
    /// The features of the item, if they are not those of the catalogue.
    pub features: Option<&'a [f64]>,
    /// The reward.
    pub reward: f64,
    /// The time, in milliseconds since 1970; `None` for now.
    pub at: Option<u64>,
}

/// The result of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportSummary {
    /// Rows learned.
    pub rows: u64,
    /// Users.
    pub users: u64,
    /// Items of the catalogue.
    pub items: u64,
    /// Fits computed.
    pub fits: u64,
    /// The number of the last event.
    pub events: u64,
}

/// An import that is under way.
pub struct Import {
    env: Env,
    /// The unfinished folder.
    folder: Folder,
    /// The folder that is replaced: it has no rewards, but it can have a catalogue.
    replaced: Folder,
    /// True if the import has made that folder.
    is_made: bool,
    settings: Settings,
    workers: Threads,
    state: State,
    /// Rows of the next batch.
    events: Vec<Event>,
    /// Features of the items in use, by id.
    features: HashMap<String, Vec<f64>>,
    has_lists: bool,
    now: u64,
    rows: u64,
    fits: u64,
    /// The round before which no fit is begun.
    no_fit_before: u64,
}

impl Import {
    /// Begins an import into a folder that does not exist, is empty, or has a catalogue and no rewards.
    ///
    /// # Errors
    /// If the folder is in use or not new, or the settings are invalid.
    pub fn begin(env: &Env, data: &Path, settings: &Settings) -> Result<Self, OpenError> {
        let names = env.disk.names(data);
        let is_made = names.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        let replaced = Folder::open(env, data)?;
        let (folder, state, catalogue) = match prepare(env, &replaced, settings) {
            Ok(prepared) => prepared,
            Err(error) => {
                replaced.discard_import(is_made);
                return Err(error);
            }
        };
        let mut import = Self {
            env: env.clone(),
            folder,
            replaced,
            is_made,
            settings: settings.clone(),
            workers: Threads::alone(settings.fit_threads),
            has_lists: state.identity().has_lists(),
            state,
            events: Vec::new(),
            features: HashMap::new(),
            now: env.clock.wall(),
            rows: 0,
            fits: 0,
            no_fit_before: 0,
        };
        match import.upsert(catalogue) {
            Ok(()) => Ok(import),
            Err(error) => {
                import.abandon();
                Err(error.into())
            }
        }
    }

    /// The state so far.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Puts items into the catalogue.
    ///
    /// # Errors
    /// If an item is refused, or the folder cannot be written.
    pub fn upsert(&mut self, items: Vec<DescribedItem>) -> Result<(), FoldError> {
        self.commit()?;
        let mut batch = Vec::new();
        let mut bytes = 0;
        for item in items {
            bytes += item.features.len() * size_of::<f64>() + item.description.len();
            self.features.insert(item.id.clone(), item.features.clone());
            batch.push(item);
            if batch.len() == ITEMS_PER_BATCH || bytes >= BYTES_PER_BATCH {
                bytes = 0;
                self.log(vec![Event::of_items(std::mem::take(&mut batch))])?;
            }
        }
        if !batch.is_empty() {
            self.log(vec![Event::of_items(batch)])?;
        }
        Ok(())
    }

    /// Learns a row. It is in the log with its batch.
    ///
    /// # Errors
    /// The reason why the row is refused. Nothing is changed then.
    pub fn add(&mut self, row: &ImportRow<'_>) -> Result<Result<(), String>, FoldError> {
        let features = match row
            .features
            .or_else(|| self.features.get(row.item).map(Vec::as_slice))
        {
            Some(features) => features.to_vec(),
            None => return Ok(Err(format!("item '{}' is not in the catalogue", row.item))),
        };
        if let Err(reason) = check(row, &self.settings) {
            return Ok(Err(reason));
        }
        self.rows += 1;
        let (number, at) = (self.rows, row.at.unwrap_or(self.now));
        let (user, item) = (row.user.to_owned(), row.item.to_owned());
        self.events.push(match self.has_lists {
            false => Event::Learn {
                round: vec![Reward {
                    number,
                    user,
                    item,
                    features,
                    score: 0.0,
                    cluster: 0,
                    decided: at,
                    clock: 0,
                    event: 0,
                    reward: row.reward,
                }],
            },
            true => Event::LearnLists {
                lists: vec![RewardedList {
                    number,
                    user,
                    items: vec![ListItem {
                        item,
                        features,
                        score: 0.0,
                        reward: Some(row.reward),
                    }],
                    context: Vec::new(),
                    looked_at: Some(1),
                    cluster: 0,
                    decided: at,
                    clock: 0,
                    event: 0,
                }],
            },
        });
        let size = (self.state.rounds() / SHARE).clamp(MIN_ROWS, MAX_ROWS);
        if self.events.len() as u64 >= size {
            self.commit()?;
        }
        Ok(Ok(()))
    }

    /// Logs and learns the rows that wait, and computes a fit if one is due.
    fn commit(&mut self) -> Result<(), FoldError> {
        if self.events.is_empty() {
            return Ok(());
        }
        let events = std::mem::take(&mut self.events);
        self.log(events)?;
        match self.state.rounds() < self.no_fit_before {
            true => Ok(()),
            false => self.fit(),
        }
    }

    /// Computes a fit if one is due.
    fn fit(&mut self) -> Result<(), FoldError> {
        let Some(refit) = self.state.policy().and_then(|policy| policy.refit()) else {
            return Ok(());
        };
        let fit = refit.compute(&self.workers as &dyn Workers);
        let effect = self.log(vec![Event::Fit { fit }])?;
        self.no_fit_before = self.state.rounds().saturating_mul(ROUNDS_PER_FIT);
        match effect.fit_refused {
            None => self.fits += 1,
            Some(reason) => tracing::warn!(reason, "a fit failed"),
        }
        Ok(())
    }

    /// Logs and applies a batch.
    fn log(&mut self, events: Vec<Event>) -> Result<Effect, FoldError> {
        let at = match events.last() {
            Some(Event::Learn { round }) => round.last().map(|reward| reward.decided),
            Some(Event::LearnLists { lists }) => lists.last().map(|list| list.decided),
            _ => None,
        };
        let stamp = Stamp {
            at: at.unwrap_or(self.now),
            clock: 0,
        };
        let batch = Batch { stamp, events };
        let position = self.state.position();
        let mut effect = Effect::default();
        let applied = self.state.replay(position + 1, &batch, &mut effect);
        applied.map_err(|rejected| FoldError::Batch {
            number: position + 1,
            reason: rejected.reason.to_string(),
        })?;
        self.folder.log.fill(position, &batch.encode())?;
        Ok(effect)
    }

    /// Writes a snapshot and the journal, and moves the folder to its place.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub async fn finish(mut self) -> Result<ImportSummary, OpenError> {
        self.no_fit_before = u64::MAX;
        self.commit()?;
        self.fit()?;
        let state = &self.state;
        let summary = ImportSummary {
            rows: self.rows,
            users: state.users().len() as u64,
            items: state
                .catalogue()
                .map_or(0, |catalogue| catalogue.len() as u64),
            fits: self.fits,
            events: state.events(),
        };
        let at = state.position();
        if at > 0 {
            self.folder
                .snapshots
                .write(at, &mut |out| state.save(out))?;
        }
        self.folder.log.finish(at)?;
        self.folder.close()?;
        drop(self.folder);
        // The journal is made from the log, as after any start of a server.
        let path = self.replaced.path().join(IMPORTING);
        let engine = Engine::open(self.env.clone(), &path, &self.settings)?;
        engine.flush_journal().await?;
        engine.close().await;
        drop(engine);
        self.replaced.replace_by_import()?;
        Ok(summary)
    }

    /// Removes the unfinished folder.
    pub fn abandon(self) {
        drop(self.folder);
        self.replaced.discard_import(self.is_made);
    }
}

/// The unfinished folder, its state, and the catalogue of the folder that it replaces.
fn prepare(
    env: &Env,
    replaced: &Folder,
    settings: &Settings,
) -> Result<(Folder, State, Vec<DescribedItem>), OpenError> {
    let mut catalogue = Vec::new();
    let identity = match fold::identity_for(replaced, settings)? {
        Some(identity) => {
            identity.check(settings)?;
            let last = replaced.log.last();
            let sources = fold::Sources::of(replaced);
            let state = fold::newest(sources, &identity, last, &mut |_| {})?;
            if state.rounds() > 0 {
                return Err(not_new(replaced.path(), state.rewards().0).into());
            }
            let experiments = state.experiments();
            if experiments.plan().is_some() || !experiments.past().is_empty() {
                let message = "is not new: it has experiments, which an import would drop; name another folder";
                return Err(Misfit(format!("{} {message}", replaced.path().display())).into());
            }
            if state.expected() > 0 || has_decisions(&replaced.journal)? {
                let message = "is not new: it has decisions that were handed out, or a number of expected users, which \
                               an import would drop; name another folder and give the catalogue with --items (sclub \
                               export --items writes it)";
                return Err(Misfit(format!("{} {message}", replaced.path().display())).into());
            }
            catalogue = items_of(&state);
            identity
        }
        None => Identity::new(settings, &*env.random)?,
    };
    if !identity.context.is_empty() {
        return Err(Misfit(
            "the folder has context features, which interactions of the past do not have; import into a folder without \
             context"
                .to_owned(),
        )
        .into());
    }
    let folder = Folder::open(env, &replaced.path().join(IMPORTING))?;
    folder.set_identity(&identity.encode())?;
    folder.set_epochs(&Epochs::default())?;
    let state = State::new(identity).map_err(|error| Misfit(error.to_string()))?;
    Ok((folder, state, catalogue))
}

/// Checks everything about a row that a request would be refused for.
fn check(row: &ImportRow<'_>, settings: &Settings) -> Result<(), String> {
    for (kind, id) in [("user", row.user), ("item", row.item)] {
        settings.check_id_length(id).map_err(|length| {
            let max = settings.max_id;
            format!("the id of the {kind} has {length} characters; it must have 1 to {max}")
        })?;
    }
    let (min, max) = (settings.reward_min, settings.reward_max);
    if !(min..=max).contains(&row.reward) {
        return Err(format!(
            "the reward is {}; it must be from {min} to {max} (reward-min, reward-max)",
            row.reward
        ));
    }
    Ok(())
}

/// The items in the catalogue of a state.
fn items_of(state: &State) -> Vec<DescribedItem> {
    let Some(catalogue) = state.catalogue() else {
        return Vec::new();
    };
    (0..catalogue.len())
        .map(|slot| catalogue.item(slot))
        .collect()
}

/// What a folder has learned, for teaching it to another one.
#[derive(Debug)]
pub struct FolderContents {
    /// The identity.
    pub identity: Identity,
    /// The catalogue.
    pub items: Vec<DescribedItem>,
    /// The number of rewards of the users who are known.
    pub rewards: u64,
}

/// Reads a folder that no server uses.
///
/// # Errors
/// If it is in use, empty or damaged.
pub fn folder_contents(env: &Env, data: &Path) -> Result<FolderContents, FoldError> {
    // To open a folder makes it.
    if env.disk.names(data).is_err() {
        return Err(FoldError::Empty(data.display().to_string()));
    }
    let folder = Folder::open(env, data)?;
    let Some(identity) = fold::identity(&folder)? else {
        return Err(FoldError::Empty(data.display().to_string()));
    };
    let last = folder.log.last();
    let state = fold::newest(fold::Sources::of(&folder), &identity, last, &mut |_| {})?;
    Ok(FolderContents {
        items: items_of(&state),
        rewards: state.rewards().0,
        identity,
    })
}

fn not_new(data: &Path, rewards: u64) -> Misfit {
    Misfit(format!(
        "{} is not new: it has learned from {rewards} rewards; name another folder",
        data.display()
    ))
}
