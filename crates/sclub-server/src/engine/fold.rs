//! State from the log: the one path by which it is made again.

use std::path::PathBuf;

use crate::event::Stamped;
use crate::identity::{Identity, Misfit};
use crate::state::{Effect, LoadError, State};
use crate::store::{Store, StoreError};

/// Why the state cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum FoldError {
    /// The store says no.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The folder is for something else.
    #[error("{folder}: {misfit}")]
    Identity {
        /// Which folder.
        folder: String,
        /// What does not fit.
        misfit: Misfit,
    },
    /// An event cannot follow those before it.
    #[error("event {number} of {folder} cannot be applied: {reason}")]
    Event {
        /// Its number.
        number: u64,
        /// Which folder.
        folder: String,
        /// What is wrong.
        reason: String,
    },
    /// A snapshot cannot be read.
    #[error("the snapshot at event {at} of {folder} cannot be read: {reason}")]
    Snapshot {
        /// Its event.
        at: u64,
        /// Which folder.
        folder: String,
        /// What is wrong.
        reason: String,
    },
    /// The folder holds nothing.
    #[error("there is nothing in {0}")]
    Empty(String),
}

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// With the newest snapshot: the fastest way.
    Newest,
    /// As far back as the log is complete: the strictest way.
    Base,
}

/// What a folder is for, if it is for anything yet.
///
/// # Errors
/// Where that cannot be read.
pub fn identity(store: &dyn Store) -> Result<Option<Identity>, FoldError> {
    let Some(bytes) = store.identity()? else {
        if store.last() == 0 {
            return Ok(None);
        }
        let misfit = Misfit("its identity is missing".to_owned());
        let folder = name(store);
        return Err(FoldError::Identity { folder, misfit });
    };
    let identity = Identity::decode(&bytes).map_err(|misfit| FoldError::Identity {
        folder: name(store),
        misfit,
    })?;
    Ok(Some(identity))
}

/// The state after all events in the store.
///
/// `watch` is told the number of each event that has been applied.
///
/// # Errors
/// Where the log or a snapshot is damaged.
pub fn fold(
    store: &dyn Store,
    identity: &Identity,
    from: From,
    watch: &mut dyn FnMut(u64),
) -> Result<State, FoldError> {
    let at = match from {
        From::Newest => store.snapshots()?.last().copied(),
        From::Base => Some(store.base()).filter(|&base| base > 0),
    };
    let mut state = match at {
        Some(at) => snapshot(store, identity, at)?,
        None => State::new(identity.clone()).map_err(|error| FoldError::Identity {
            folder: name(store),
            misfit: Misfit(error.to_string()),
        })?,
    };
    let mut effect = Effect::default();
    let mut failed = None;
    let visited = store.events(state.events(), &mut |number, bytes| {
        let applied = Stamped::decode(bytes)
            .map_err(|error| error.to_string())
            .and_then(|stamped| {
                effect.changes.clear();
                state
                    .apply(&stamped, &mut effect)
                    .map_err(|error| error.to_string())
            });
        if let Err(reason) = applied {
            failed = Some((number, reason));
            return Err(StoreError::Refused("an event cannot be applied".to_owned()));
        }
        watch(number);
        Ok(())
    });
    if let Some((number, reason)) = failed {
        let folder = name(store);
        return Err(FoldError::Event {
            number,
            folder,
            reason,
        });
    }
    visited?;
    Ok(state)
}

/// The state in a snapshot.
///
/// # Errors
/// Where it is damaged.
pub fn snapshot(store: &dyn Store, identity: &Identity, at: u64) -> Result<State, FoldError> {
    let broken = |reason: String| FoldError::Snapshot {
        at,
        folder: name(store),
        reason,
    };
    let mut reader = store.open_snapshot(at)?;
    let state = match State::load(identity.clone(), &mut *reader) {
        Ok(state) => state,
        Err(LoadError::Io(error)) => return Err(broken(error.to_string())),
        Err(LoadError::Bad(reason)) => return Err(broken(reason)),
    };
    if state.events() == at {
        Ok(state)
    } else {
        Err(broken(format!("it is of event {}", state.events())))
    }
}

/// Where a store is, in a sentence.
pub fn name(store: &dyn Store) -> String {
    let folder = store.folder().map(PathBuf::from);
    folder.map_or_else(|| "memory".to_owned(), |path| path.display().to_string())
}
