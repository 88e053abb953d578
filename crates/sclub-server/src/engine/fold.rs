//! Recovery: the state from a snapshot and the log.

use super::Shared;
use crate::event::Batch;
use crate::identity::{Identity, Misfit};
use crate::locks::write;
use crate::refusal::Refusal;
use crate::settings::Settings;
use crate::state::{Effect, LoadError, State};
use crate::store::{Epochs, Folder, Log, SnapshotStore, StoreError};

/// The reason why the state cannot be recovered.
#[derive(Debug, thiserror::Error)]
pub enum FoldError {
    /// A file cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log refused a write.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The identity of the folder is missing or unsupported.
    #[error("{folder}: {misfit}")]
    Identity {
        /// The folder.
        folder: String,
        /// The reason.
        misfit: Misfit,
    },
    /// A batch of the log is invalid after those before it.
    #[error("batch {number} of the log cannot be applied: {reason}")]
    Batch {
        /// Its number.
        number: u64,
        /// The reason.
        reason: String,
    },
    /// A snapshot cannot be read.
    #[error("the snapshot {file} cannot be read: {reason}")]
    Snapshot {
        /// The file.
        file: String,
        /// The reason.
        reason: String,
    },
    /// The folder is empty.
    #[error("{0} has no data of a server")]
    Empty(String),
    /// The folder is that of a node of a cluster, which has no log of its own.
    #[error(
        "{0} is the data folder of a node of a cluster: use it with `sclub serve --cluster URL`. To export or back up, \
         ask the cluster: `sclub export --url URL`, `sclub cluster backup`"
    )]
    Node(String),
}

/// The identity of a folder; `None` if it is new.
///
/// # Errors
/// If it cannot be read.
pub fn identity(folder: &Folder) -> Result<Option<Identity>, FoldError> {
    let wrong = |misfit: Misfit| FoldError::Identity {
        folder: folder.path().display().to_string(),
        misfit,
    };
    match folder.identity()? {
        Some(bytes) if is_of_node(&bytes) => {
            Err(FoldError::Node(folder.path().display().to_string()))
        }
        Some(bytes) => Identity::decode(&bytes).map(Some).map_err(wrong),
        None if folder.log.last() == 0 => Ok(None),
        None => Err(wrong(Misfit("the folder's identity is missing".to_owned()))),
    }
}

/// As [`identity`], for a start with these settings. A folder that was made for other settings is new as long as it has no
/// event and has made no decision: nothing depends on its identity yet. A server that stops takes back the epoch of such a folder.
///
/// # Errors
/// If the folder cannot be read.
pub fn identity_for(folder: &Folder, settings: &Settings) -> Result<Option<Identity>, FoldError> {
    let Some(identity) = identity(folder)? else {
        return Ok(None);
    };
    let is_unused = folder.log.last() == 0 && folder.epochs()?.current().is_none();
    Ok((!is_unused || identity.check(settings).is_ok()).then_some(identity))
}

impl Shared {
    /// Takes back the epoch of a folder that has no event and has made no decision. Requests that still come get none.
    pub(super) fn take_back_epoch(&self) -> Result<(), StoreError> {
        if self.is_replicated || self.folder.log.last() > 0 {
            return Ok(());
        }
        match write(&self.term).take_if(|term| term.is_unused()) {
            Some(_) => self.folder.set_epochs(&Epochs::default()),
            None => Ok(()),
        }
    }
}

/// Returns true for the identity in the folder of a node: that of the cluster, then 8 bytes for the cluster's life.
fn is_of_node(bytes: &[u8]) -> bool {
    let end = bytes.len().saturating_sub(8);
    serde_json::from_slice::<serde::de::IgnoredAny>(&bytes[..end]).is_ok()
}

/// The log and the snapshots that a state is recovered from.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    pub log: &'a dyn Log,
    pub snapshots: &'a dyn SnapshotStore,
}

impl<'a> Sources<'a> {
    /// The log and the snapshots of a data folder.
    pub fn of(folder: &'a Folder) -> Self {
        Self {
            log: &*folder.log,
            snapshots: &*folder.snapshots,
        }
    }
}

/// The state after batch `upto`, from the newest snapshot that can be read. This is the fastest way.
///
/// # Errors
/// If the log or every snapshot is damaged.
pub fn newest(
    sources: Sources<'_>,
    identity: &Identity,
    upto: u64,
    watch: &mut dyn FnMut(u64),
) -> Result<State, FoldError> {
    apply(
        sources.log,
        newest_snapshot(sources, identity)?,
        upto,
        watch,
    )
}

/// The state of the newest snapshot that can be read, or a new one if the log goes back to the beginning.
///
/// # Errors
/// If every snapshot is damaged.
pub fn newest_snapshot(sources: Sources<'_>, identity: &Identity) -> Result<State, FoldError> {
    let mut failed = None;
    let mut unreadable = Vec::new();
    // Called only once the state can be recovered without these snapshots: a snapshot that cannot be read now
    // may be the only one, and be readable later.
    let disregard = |unreadable: &[u64]| {
        for &at in unreadable {
            sources.snapshots.disregard(at);
        }
    };
    for &at in sources.snapshots.list().iter().rev() {
        match snapshot(sources.snapshots, identity, at) {
            Ok(state) => {
                disregard(&unreadable);
                return Ok(state);
            }
            Err(error) => {
                // The log goes back to the older snapshot.
                tracing::error!(%error, "a snapshot cannot be read; trying an older one");
                unreadable.push(at);
                failed = Some(error);
            }
        }
    }
    match failed {
        Some(error) if sources.log.first()? > 1 => Err(error),
        _ => {
            disregard(&unreadable);
            start(identity)
        }
    }
}

/// The state after an event, from the newest snapshot; `None` if the snapshot is of a later event, or the event is not the last
/// one of a batch.
///
/// # Errors
/// If the log or every snapshot is damaged.
pub fn at_event(
    sources: Sources<'_>,
    identity: &Identity,
    event: u64,
) -> Result<Option<State>, FoldError> {
    let mut state = newest_snapshot(sources, identity)?;
    let mut effect = Effect::default();
    for batch in sources.log.read(state.position())? {
        if state.events() >= event {
            break;
        }
        step(&mut state, batch?, &mut effect)?;
    }
    Ok((state.events() == event).then_some(state))
}

/// The state after batch `upto`, from the oldest snapshot. This is the strictest way. Also returns the number
/// of the event with which it begins.
///
/// # Errors
/// If the log or the oldest snapshot is damaged.
pub fn oldest(
    sources: Sources<'_>,
    identity: &Identity,
    upto: u64,
    watch: &mut dyn FnMut(u64),
) -> Result<(State, u64), FoldError> {
    let first = sources.log.first()?;
    let oldest = sources
        .snapshots
        .list()
        .into_iter()
        .find(|at| at + 1 >= first);
    let state = match oldest {
        Some(at) if first > 1 => snapshot(sources.snapshots, identity, at)?,
        _ => start(identity)?,
    };
    let from = state.events();
    Ok((apply(sources.log, state, upto, watch)?, from))
}

fn start(identity: &Identity) -> Result<State, FoldError> {
    State::new(identity.clone()).map_err(|error| FoldError::Identity {
        folder: "the identity".to_owned(),
        misfit: Misfit(error.to_string()),
    })
}

/// Applies the batches of the log up to a number.
fn apply(
    log: &dyn Log,
    mut state: State,
    upto: u64,
    watch: &mut dyn FnMut(u64),
) -> Result<State, FoldError> {
    let from = state.position();
    let mut effect = Effect::default();
    if from < upto {
        for batch in log.read(from)?.take((upto - from) as usize) {
            watch(step(&mut state, batch?, &mut effect)?);
        }
    }
    match state.position() == upto {
        true => Ok(state),
        false => Err(FoldError::Batch {
            number: state.position() + 1,
            reason: "it is missing".to_owned(),
        }),
    }
}

/// Applies a batch of the log. Returns its number.
fn step(state: &mut State, batch: (u64, Vec<u8>), effect: &mut Effect) -> Result<u64, FoldError> {
    let (number, batch) = decode(batch)?;
    effect.changes.clear();
    let replayed = state.replay(number, &batch, effect);
    replayed.map_err(|rejected| FoldError::Batch {
        number,
        reason: rejected.reason.to_string(),
    })?;
    Ok(number)
}

/// Decodes a batch of the log.
pub(super) fn decode((number, bytes): (u64, Vec<u8>)) -> Result<(u64, Batch), FoldError> {
    match Batch::decode(&bytes) {
        Ok(batch) => Ok((number, batch)),
        Err(error) => Err(FoldError::Batch {
            number,
            reason: error.to_string(),
        }),
    }
}

/// Loads the state from a snapshot.
///
/// # Errors
/// If it cannot be read or is invalid.
pub fn snapshot(
    snapshots: &dyn SnapshotStore,
    identity: &Identity,
    at: u64,
) -> Result<State, FoldError> {
    let broken = |reason: String| FoldError::Snapshot {
        file: snapshots.name(at),
        reason,
    };
    let mut reader = snapshots.read(at)?;
    let state = match State::load(identity.clone(), &mut *reader) {
        Ok(state) => state,
        Err(LoadError::Io(error)) => return Err(broken(error.to_string())),
        Err(LoadError::Bad(reason)) => return Err(broken(reason)),
    };
    match state.position() == at {
        true => Ok(state),
        false => Err(broken(format!("it is of batch {}", state.position()))),
    }
}
