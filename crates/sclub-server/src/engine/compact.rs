//! Compaction: what was forgotten leaves the folder.

use std::collections::HashMap;

use super::{Engine, FoldError, lock};
use crate::decision::Handed;
use crate::event::{Event, Stamped};
use crate::store::{Fate, Row, StoreError};

/// What a compaction did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compacted {
    /// The last event that was looked at.
    pub events: u64,
    /// Rewards, decisions and requests to forget that are no longer in the folder.
    pub dropped: u64,
    /// Size of the folder before.
    pub bytes_before: u64,
    /// And after.
    pub bytes_after: u64,
}

/// When a user was last forgotten.
#[derive(Debug, Clone, Copy)]
struct Forgotten {
    number: u64,
    at: u64,
}

impl Engine {
    /// Takes a snapshot and rewrites what is before it: nothing of a user who was forgotten is left
    /// in the folder. Blocks; recommending and learning go on.
    ///
    /// # Errors
    /// Where something cannot be read or written. It can be done again.
    pub fn compact(&self) -> Result<Compacted, FoldError> {
        let shared = &self.shared;
        let _alone = lock(&shared.upkeep);
        let bytes_before = shared.store.bytes();
        shared.flush();
        let upto = shared.take_snapshot()?;
        if upto == 0 {
            return Ok(Compacted {
                events: 0,
                dropped: 0,
                bytes_before,
                bytes_after: bytes_before,
            });
        }
        let mut forgotten = HashMap::new();
        shared.store.events(0, &mut |number, bytes| {
            if number <= upto
                && !bytes.is_empty()
                && let Stamped {
                    at,
                    event: Event::Forget { user },
                } = decode(number, bytes)?
            {
                forgotten.insert(user, Forgotten { number, at });
            }
            Ok(())
        })?;
        let mut dropped = 0;
        shared.store.rewrite(upto, &mut |row| {
            let (fate, gone) = fate(&forgotten, row)?;
            dropped += gone;
            Ok(fate)
        })?;
        let bytes_after = shared.store.bytes();
        tracing::info!(
            event = upto,
            dropped,
            bytes_before,
            bytes_after,
            "compacted"
        );
        Ok(Compacted {
            events: upto,
            dropped,
            bytes_before,
            bytes_after,
        })
    }
}

/// What becomes of a row, and how many things of forgotten users were in it.
fn fate(forgotten: &HashMap<String, Forgotten>, row: Row<'_>) -> Result<(Fate, u64), StoreError> {
    match row {
        Row::Event(_, []) => Ok((Fate::Keep, 0)),
        Row::Event(number, bytes) => {
            let mut stamped = decode(number, bytes)?;
            match &mut stamped.event {
                Event::Forget { .. } => Ok((Fate::Drop, 1)),
                Event::Learn { round } => {
                    let before = round.len();
                    round.retain(|reward| {
                        forgotten
                            .get(&reward.user)
                            .is_none_or(|forgotten| forgotten.number < number)
                    });
                    let gone = (before - round.len()) as u64;
                    Ok(match (gone, round.is_empty()) {
                        (0, _) => (Fate::Keep, 0),
                        (_, true) => (Fate::Drop, gone),
                        (_, false) => (Fate::Replace(stamped.encode()), gone),
                    })
                }
                // Its sums may have somebody in them who was forgotten. The snapshot has the last one.
                Event::Fit { .. } => Ok((Fate::Drop, 0)),
                _ => Ok((Fate::Keep, 0)),
            }
        }
        Row::Note(bytes) => {
            let is_gone = Handed::decode(bytes).is_none_or(|handed| {
                forgotten
                    .get(&*handed.user)
                    .is_some_and(|forgotten| handed.at <= forgotten.at)
            });
            Ok(match is_gone {
                true => (Fate::Drop, 1),
                false => (Fate::Keep, 0),
            })
        }
    }
}

fn decode(number: u64, bytes: &[u8]) -> Result<Stamped, StoreError> {
    Stamped::decode(bytes)
        .map_err(|error| StoreError::Refused(format!("event {number} cannot be read: {error}")))
}
