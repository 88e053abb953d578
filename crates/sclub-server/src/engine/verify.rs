//! The state as the log alone gives it, for whoever does not take our word.

use serde::Serialize;

use super::fold::{self, FoldError, From};
use crate::store::Store;

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
    /// Hash of everything learned.
    pub hash: String,
    /// The event from which on every event was applied again: 0 is the very first.
    pub from: u64,
    /// Snapshots that gave the same hash.
    pub snapshots: u64,
    /// Files read.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
}

/// Reads every byte in a store, applies every event again, and compares with every snapshot.
///
/// # Errors
/// Names what is damaged.
pub fn verify(store: &dyn Store, watch: &mut dyn FnMut(u64)) -> Result<Verified, FoldError> {
    let checked = store.check()?;
    let Some(identity) = fold::identity(store)? else {
        return Err(FoldError::Empty(fold::name(store)));
    };
    let state = fold::fold(store, &identity, From::Base, watch)?;
    let hash = state.hash();
    let newest = store.snapshots()?.last().copied();
    let mut snapshots = 0;
    if let Some(at) = newest {
        let other = fold::fold(store, &identity, From::Newest, &mut |_| {})?;
        if other.hash() != hash {
            return Err(FoldError::Snapshot {
                at,
                folder: fold::name(store),
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
        from: store.base(),
        snapshots,
        files: checked.files,
        bytes: checked.bytes,
    })
}
