//! Decoding of events and snapshots of version 0.1, for restoring its backups.
//!
//! Version 0.1 had no service clock and no batches, and did not record the event that a decision followed.
//! Its events get time 0 of the service clock.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::Read;

use serde::Deserialize;

use crate::event::{self, Event, Item, Malformed};
use crate::identity::Identity;
use crate::state::saved::{Header, OwnedRest, take, take_policy, take_users};
use crate::state::{Answered, Forgotten, History, LoadError, State};

/// The version of the encoding of an event.
const VERSION: u8 = 1;

/// The formats of the snapshots.
const FORMATS: std::ops::RangeInclusive<u32> = 1..=2;

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
struct OldStamped {
    at: u64,
    event: OldEvent,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
enum OldEvent {
    Expect { users: u64 },
    Learn { round: Vec<OldReward> },
    Upsert { items: Vec<OldItem> },
    Remove { item: String },
    Forget { user: String },
    Fit { fit: Vec<u8> },
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
struct OldItem {
    id: String,
    features: Vec<f64>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
struct OldReward {
    number: u64,
    user: String,
    item: String,
    features: Vec<f64>,
    score: f64,
    cluster: u64,
    decided: u64,
    reward: f64,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
struct OldHeader {
    format: u32,
    events: u64,
    expected: u64,
    idle: u64,
    #[allow(dead_code, reason = "by the wall clock")]
    horizon: u64,
    dim: Option<u64>,
    users: u64,
    rewards: u64,
    reward_sum: f64,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
struct OldRest {
    free: Vec<u32>,
    answered: Answered,
    history: History,
    forgotten: Vec<OldForgotten>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
struct OldForgotten {
    print: u32,
    #[allow(dead_code, reason = "by the wall clock")]
    at: u64,
}

/// Decodes an event of version 0.1 and the time when it was accepted, in milliseconds since 1970.
///
/// Its rewards have `clock` 0 and `event` [`u64::MAX`]: version 0.1 accepted only decisions made after the
/// user was last forgotten, so no earlier event can have forgotten the user since.
///
/// # Errors
/// If the bytes are not an event of version 0.1.
pub fn event(bytes: &[u8]) -> Result<(u64, Event), Malformed> {
    let stamped: OldStamped = match bytes {
        [VERSION, rest @ ..] => event::whole(rest)?,
        [version, ..] => return Err(Malformed::Version(*version)),
        [] => return Err(Malformed::Bytes),
    };
    let event = match stamped.event {
        OldEvent::Expect { users } => Event::Expect { users },
        OldEvent::Learn { round } => Event::Learn {
            round: round.into_iter().map(reward).collect(),
        },
        OldEvent::Upsert { items } => {
            let items = items.into_iter();
            let items = items.map(|OldItem { id, features }| Item { id, features });
            Event::Upsert {
                items: items.collect(),
            }
        }
        OldEvent::Remove { item } => Event::Remove { item },
        OldEvent::Forget { user } => Event::Forget { user },
        OldEvent::Fit { fit } => Event::Fit { fit },
    };
    Ok((stamped.at, event))
}

fn reward(old: OldReward) -> event::Reward {
    event::Reward {
        number: old.number,
        user: old.user,
        item: old.item,
        features: old.features,
        score: old.score,
        cluster: old.cluster,
        decided: old.decided,
        clock: 0,
        event: u64::MAX,
        reward: old.reward,
    }
}

/// Decodes the state in a snapshot of version 0.1. Its position is 1, as after one batch that is in no log,
/// and its events are those that version 0.1 had counted.
///
/// # Errors
/// If it cannot be read or is not a snapshot of version 0.1.
pub fn load(identity: Identity, from: &mut dyn Read) -> Result<State, LoadError> {
    let old: OldHeader = take(from)?;
    if !FORMATS.contains(&old.format) {
        return Err(LoadError::Bad(format!(
            "the snapshot has format {}; version 0.1 wrote {} and {}",
            old.format,
            FORMATS.start(),
            FORMATS.end()
        )));
    }
    let known = take_users(from, old.users)?;
    let rest: OldRest = take(from)?;
    let learned = match old.dim {
        None => None,
        Some(_) => {
            let catalogue: crate::state::catalogue::Saved = take(from)?;
            Some((catalogue.without_clock(), take_policy(from)?))
        }
    };
    let header = Header {
        format: old.format,
        events: old.events,
        position: 1,
        clock: 0,
        expected: old.expected,
        idle: old.idle,
        horizon: 0,
        dim: old.dim,
        users: old.users,
        rewards: old.rewards,
        reward_sum: old.reward_sum,
    };
    let forgotten = Forgotten {
        event: old.events,
        clock: 0,
    };
    let prints = rest.forgotten.iter().map(|old| (old.print, forgotten));
    let rest = OwnedRest {
        free: rest.free,
        answered: rest.answered.without_clock(),
        history: rest.history,
        forgotten: prints.collect::<BTreeMap<_, _>>(),
    };
    State::assemble(identity, header, known, rest, learned, from)
}
