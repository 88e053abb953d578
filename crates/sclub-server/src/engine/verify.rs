//! Verification of a data folder, independent of a server.

use std::path::Path;

use serde::Serialize;

use super::fold::{self, FoldError};
use crate::env::Env;
use crate::store::Folder;

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verified {
    /// The number of the last event.
    pub events: u64,
    /// The number of rounds learned.
    pub rounds: u64,
    /// The number of users who have given a reward.
    pub users: u64,
    /// The number of clusters.
    pub clusters: u64,
    /// The hash of the whole state.
    pub hash: String,
    /// The number of the event after which every event was applied again; 0 is the beginning.
    pub from: u64,
    /// The number of snapshots with the same hash.
    pub snapshots: u64,
    /// The number of files read.
    pub files: u64,
    /// The number of bytes read.
    pub bytes: u64,
}

/// Reads every byte in a data folder, applies every event in the log again, and compares the result with the
/// newest snapshot.
///
/// # Errors
/// If something is damaged; the error names it.
pub fn verify(env: &Env, data: &Path, watch: &mut dyn FnMut(u64)) -> Result<Verified, FoldError> {
    let folder = Folder::open(env, data)?;
    let checked = folder.check()?;
    let Some(identity) = fold::identity(&folder)? else {
        return Err(FoldError::Empty(data.display().to_string()));
    };
    let last = folder.log.last();
    let (state, from) = fold::oldest(fold::Sources::of(&folder), &identity, last, watch)?;
    let hash = state.hash();
    let mut snapshots = 0;
    if let Some(&at) = folder.snapshots.list().last() {
        let other = fold::newest(fold::Sources::of(&folder), &identity, last, &mut |_| {})?;
        if other.hash() != hash {
            return Err(FoldError::Snapshot {
                file: folder.snapshots.path(at).display().to_string(),
                reason: "the log gives a different state".to_owned(),
            });
        }
        snapshots += 1;
    }
    Ok(Verified {
        events: state.events(),
        rounds: state.rounds(),
        users: state.users().len() as u64,
        clusters: state.clusters(),
        hash,
        from,
        snapshots,
        files: checked.files,
        bytes: checked.bytes,
    })
}

/// The hash of the state after an event, as a server of the folder had it; `None` if the newest snapshot is of a later event.
///
/// # Errors
/// As [`verify`].
pub fn hash_at(env: &Env, data: &Path, event: u64) -> Result<Option<String>, FoldError> {
    let folder = Folder::open(env, data)?;
    let Some(identity) = fold::identity(&folder)? else {
        return Err(FoldError::Empty(data.display().to_string()));
    };
    let state = fold::at_event(fold::Sources::of(&folder), &identity, event)?;
    Ok(state.map(|state| state.hash()))
}
