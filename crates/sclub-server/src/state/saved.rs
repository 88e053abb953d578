//! The state as bytes, written and read in pieces.
//!
//! A snapshot is a row of parts, each with its length in front (8 bytes, lowest first) and in
//! `postcard`'s encoding: header, users (several parts), what else the service keeps, catalogue; at
//! the end the policy's own bytes. Whether the bytes are as they were written is for the store to
//! say.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

use super::catalogue::Saved as SavedCatalogue;
use super::{Answered, Catalogue, Forgotten, History, Learned, State, User, Users};
use crate::identity::Identity;

/// Users in a part.
const USERS: usize = 4096;

/// Longest part that is believed.
const LONGEST: u64 = 1 << 36;

/// Why a snapshot cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The bytes cannot be had.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// They are not a snapshot of ours.
    #[error("{0}")]
    Bad(String),
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    format: u32,
    events: u64,
    expected: u64,
    idle: u64,
    horizon: u64,
    dim: Option<u64>,
    users: u64,
    rewards: u64,
    reward_sum: f64,
}

#[derive(Debug, Serialize)]
struct Rest<'a> {
    free: &'a [u32],
    answered: &'a Answered,
    history: &'a History,
    forgotten: &'a [Forgotten],
}

#[derive(Debug, Deserialize)]
struct OwnedRest {
    free: Vec<u32>,
    answered: Answered,
    history: History,
    forgotten: Vec<Forgotten>,
}

impl State {
    /// Writes the whole state.
    ///
    /// # Errors
    /// Where `out` gives one.
    pub fn save(&self, out: &mut dyn Write) -> io::Result<()> {
        let (known, free) = self.users.parts();
        let header = Header {
            format: self.identity.format,
            events: self.events,
            expected: self.expected,
            idle: self.idle,
            horizon: self.horizon,
            dim: self.dim().map(|dim| dim as u64),
            users: known.len() as u64,
            rewards: self.rewards,
            reward_sum: self.reward_sum,
        };
        put(out, &header)?;
        for some in known.chunks(USERS) {
            put(out, &some)?;
        }
        let rest = Rest {
            free,
            answered: &self.answered,
            history: &self.history,
            forgotten: &self.forgotten,
        };
        put(out, &rest)?;
        if let Some(learned) = &self.learned {
            put(out, &learned.catalogue.save())?;
            learned.policy.save_to(out)?;
        }
        Ok(())
    }

    /// Reads what [`State::save`] wrote, to the end.
    ///
    /// # Errors
    /// Where it cannot be read or is something else.
    pub fn load(identity: Identity, from: &mut dyn Read) -> Result<Self, LoadError> {
        let header: Header = take(from)?;
        if header.format != identity.format {
            return Err(LoadError::Bad(format!(
                "it is of format {} and its folder of {}",
                header.format, identity.format
            )));
        }
        let mut known: Vec<Option<User>> = Vec::new();
        while (known.len() as u64) < header.users {
            let some: Vec<Option<User>> = take(from)?;
            if some.is_empty() {
                return Err(bad("users"));
            }
            known.extend(some);
        }
        let rest: OwnedRest = take(from)?;
        let users = Users::from_parts(known, rest.free).ok_or_else(|| bad("users"))?;
        let learned = match header.dim {
            None => None,
            Some(dim) => {
                let dim = usize::try_from(dim).map_err(|_| bad("dimension"))?;
                let saved: SavedCatalogue = take(from)?;
                let catalogue = Catalogue::load(dim, saved).ok_or_else(|| bad("catalogue"))?;
                let policy = sclub::load_policy(from).map_err(|error| match error {
                    sclub::LoadError::Io(error) => LoadError::Io(error),
                    sclub::LoadError::State(error) => LoadError::Bad(error.to_string()),
                })?;
                if policy.dim() != dim || policy.users() != users.len() as u64 {
                    return Err(bad("policy"));
                }
                Some(Learned { policy, catalogue })
            }
        };
        let mut more = [0];
        if from.read(&mut more)? != 0 {
            return Err(LoadError::Bad("something follows its end".to_owned()));
        }
        if !rest.answered.is_sound() {
            return Err(bad("answers"));
        }
        Ok(Self {
            identity,
            events: header.events,
            expected: header.expected,
            idle: header.idle,
            horizon: header.horizon,
            learned,
            users,
            answered: rest.answered,
            history: rest.history,
            forgotten: rest.forgotten,
            rewards: header.rewards,
            reward_sum: header.reward_sum,
        })
    }
}

fn bad(what: &str) -> LoadError {
    LoadError::Bad(format!("its {what} cannot be"))
}

fn put<T: Serialize>(out: &mut dyn Write, part: &T) -> io::Result<()> {
    let bytes = postcard::to_stdvec(part).map_err(io::Error::other)?;
    out.write_all(&(bytes.len() as u64).to_le_bytes())?;
    out.write_all(&bytes)
}

fn take<T: for<'a> Deserialize<'a>>(from: &mut dyn Read) -> Result<T, LoadError> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > LONGEST {
        return Err(bad("length"));
    }
    let mut bytes = Vec::new();
    from.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != length {
        return Err(LoadError::Bad("it ends too early".to_owned()));
    }
    match postcard::take_from_bytes(&bytes) {
        Ok((part, [])) => Ok(part),
        _ => Err(LoadError::Bad("a part of it cannot be decoded".to_owned())),
    }
}
