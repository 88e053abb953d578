//! The state as the log alone gives it, for whoever does not take a server's word.

use std::path::Path;

use serde::Serialize;

use super::fold::{self, FoldError};
use crate::env::Env;
use crate::store::Folder;

/// What was found in a folder.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verified {
    /// Number of the last event.
    pub events: u64,
    /// Rounds learned.
    pub rounds: u64,
    /// Users who have given a reward.
    pub users: u64,
    /// Clusters.
    pub clusters: u64,
    /// Hash of the whole state.
    pub hash: String,
    /// The event after which every event was applied again: 0 is the very beginning.
    pub from: u64,
    /// Snapshots that gave the same hash.
    pub snapshots: u64,
    /// Files read.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
}

/// Reads every byte in a data folder, applies every event that is there again, and compares with the
/// newest snapshot.
///
/// # Errors
/// Names what is damaged.
pub fn verify(env: &Env, data: &Path, watch: &mut dyn FnMut(u64)) -> Result<Verified, FoldError> {
    let folder = Folder::open(env, data)?;
    let checked = folder.check()?;
    let Some(identity) = fold::identity(&folder)? else {
        return Err(FoldError::Empty(data.display().to_string()));
    };
    let last = folder.log.last();
    let (state, from) = fold::oldest(&folder, &identity, last, watch)?;
    let hash = state.hash();
    let mut snapshots = 0;
    if let Some(&at) = folder.snapshots.list().last() {
        let other = fold::newest(&folder, &identity, last, &mut |_| {})?;
        if other.hash() != hash {
            return Err(FoldError::Snapshot {
                file: folder.snapshots.path(at).display().to_string(),
                reason: "the log gives another state".to_owned(),
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
