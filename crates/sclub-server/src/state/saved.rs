//! The encoding of the state in a snapshot, written and read in parts.
//!
//! A snapshot is a sequence of parts: header, users (several parts), the rest of the service's data, assumed rewards,
//! experiments, catalogue, descriptions of its items; then the own bytes of the policy in force, and of the policies of
//! arms that are not it. Each part has its length in front (8 bytes, little-endian) and is
//! in `postcard`'s encoding. Checksums are the store's task.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

use super::catalogue::Saved as SavedCatalogue;
use super::{
    Answered, Assumed, Catalogue, Forgotten, History, Learned, Served, State, User, Users, sealer,
};
use crate::experiment::Past;
use crate::experiment::running::{Arm, Counts, Running};
use crate::experiment::{Experiments, Plan};
use crate::identity::{Identity, Misfit};

/// The number of users in a part.
const USERS_PER_PART: usize = 4096;

/// The maximum length of a part; a longer one is taken for damage.
const MAX_PART_LENGTH: u64 = 1 << 36;

/// The reason why a snapshot cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Reading failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The contents are invalid.
    #[error("{0}")]
    Bad(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Header {
    pub format: u32,
    pub events: u64,
    pub position: u64,
    pub clock: u64,
    pub expected: u64,
    pub idle: u64,
    pub horizon: u64,
    pub dim: Option<u64>,
    pub users: u64,
    pub rewards: u64,
    pub reward_sum: f64,
}

#[derive(Debug, Serialize)]
struct Rest<'a> {
    free: &'a [u32],
    answered: &'a Answered,
    history: &'a History,
    forgotten: &'a BTreeMap<u32, Forgotten>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct OwnedRest {
    pub free: Vec<u32>,
    pub answered: Answered,
    pub history: History,
    pub forgotten: BTreeMap<u32, Forgotten>,
}

/// The experiments in a snapshot.
#[derive(Debug, Serialize, Deserialize, Default)]
struct SavedExperiments {
    /// The policy in force ([`Identity::written_policy`]), if it is not the one that the folder was made with.
    in_force: Option<String>,
    /// True if an experiment put it in force.
    is_winner: bool,
    rounds: u64,
    unlearned: Answered,
    running: Option<(Plan, Counts)>,
    past: Vec<Past>,
}

impl State {
    /// Writes the whole state.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn save(&self, out: &mut dyn Write) -> io::Result<()> {
        self.save_parts(out)?;
        for (_, policy) in self.policies() {
            policy.save_to(out)?;
        }
        Ok(())
    }

    /// A hash of the whole state, as 16 hexadecimal digits: of the bytes that [`State::save`] writes, with the
    /// policy's digest in place of its bytes.
    pub fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        self.save_parts(&mut hasher)
            .expect("a hash takes all bytes");
        for (_, policy) in self.policies() {
            hasher.update(&policy.digest().to_le_bytes());
        }
        hasher.finalize().to_hex()[..16].to_owned()
    }

    /// Writes everything except the policy.
    fn save_parts(&self, out: &mut dyn Write) -> io::Result<()> {
        let (known, free) = self.users.parts();
        let header = Header {
            format: self.identity.format,
            events: self.events,
            position: self.position,
            clock: self.clock,
            expected: self.expected,
            idle: self.idle,
            horizon: self.horizon,
            dim: self.dim().map(|dim| dim as u64),
            users: known.len() as u64,
            rewards: self.rewards,
            reward_sum: self.reward_sum,
        };
        put(out, &header)?;
        for some in known.chunks(USERS_PER_PART) {
            put(out, &some)?;
        }
        let rest = Rest {
            free,
            answered: &self.answered,
            history: &self.history,
            forgotten: &self.forgotten,
        };
        put(out, &rest)?;
        let has_more = self.identity.has_descriptions();
        if has_more {
            put(out, &self.assumed)?;
            put(out, &self.save_experiments())?;
        }
        if let Some(learned) = &self.learned {
            put(out, &learned.catalogue.save())?;
            if has_more {
                put(out, &learned.catalogue.descriptions())?;
            }
        }
        Ok(())
    }

    fn save_experiments(&self) -> SavedExperiments {
        let running = self.experiments.running.as_ref();
        let is_made = self.identity == self.made;
        SavedExperiments {
            in_force: (!is_made).then(|| self.identity.written_policy()),
            is_winner: self.is_winner,
            rounds: self.rounds,
            unlearned: self.unlearned.clone(),
            running: running.map(|running| (running.plan.clone(), running.counts.clone())),
            past: self.experiments.past().to_vec(),
        }
    }

    /// Reads what [`State::save`] wrote, to the end. `identity` is that of the folder as it was made.
    ///
    /// # Errors
    /// If it cannot be read or is invalid.
    pub fn load(identity: Identity, from: &mut dyn Read) -> Result<Self, LoadError> {
        let header: Header = take(from)?;
        if header.format != identity.format {
            return Err(LoadError::Bad(format!(
                "the snapshot has format {}, and its folder {}",
                header.format, identity.format
            )));
        }
        let known = take_users(from, header.users)?;
        let rest: OwnedRest = take(from)?;
        let has_more = identity.has_descriptions();
        let assumed = match has_more {
            true => take(from)?,
            false => Assumed::default(),
        };
        let saved: SavedExperiments = match has_more {
            true => take(from)?,
            false => SavedExperiments::default(),
        };
        let made = identity.clone();
        let identity = match &saved.in_force {
            Some(policy) => identity.with_written_policy(policy).map_err(unknown)?,
            None => identity,
        };
        let learned = match header.dim {
            None => None,
            Some(_) => {
                let mut catalogue: SavedCatalogue = take(from)?;
                if has_more {
                    catalogue.descriptions = take(from)?;
                }
                Some((catalogue, take_policy(from)?))
            }
        };
        let is_learned = learned.is_some();
        let running = match saved.running {
            Some((plan, counts)) if is_learned => {
                Some(take_running(&identity, plan, counts, from)?)
            }
            Some(_) => return Err(bad("experiment")),
            None => None,
        };
        let mut state = Self::assemble(identity, header, known, rest, learned, from)?;
        let known = state.policy().map(|policy| policy.inspect().users());
        if !saved.is_winner && known.is_some_and(|known| known != state.users.len() as u64) {
            return Err(bad("policy"));
        }
        if !assumed.is_valid() || !saved.unlearned.is_valid() {
            return Err(bad("assumed rewards"));
        }
        if has_more {
            state.rounds = saved.rounds;
        }
        state.assumed = assumed;
        state.unlearned = saved.unlearned;
        state.made = made;
        state.is_winner = saved.is_winner;
        state.experiments = Experiments {
            running,
            past: saved.past,
        };
        let policy_dim = state.policy().map(|policy| policy.dim());
        let mut policies = state.policies();
        if policies.any(|(_, policy)| Some(policy.dim()) != policy_dim) {
            return Err(bad("policy"));
        }
        drop(policies);
        Ok(state)
    }

    /// Makes the state from the parts of a snapshot. No bytes may follow them.
    pub(crate) fn assemble(
        identity: Identity,
        header: Header,
        known: Vec<Option<User>>,
        rest: OwnedRest,
        learned: Option<(SavedCatalogue, Served)>,
        from: &mut dyn Read,
    ) -> Result<Self, LoadError> {
        let users = Users::from_parts(known, rest.free).ok_or_else(|| bad("users"))?;
        let learned = match (header.dim, learned) {
            (Some(dim), Some((saved, policy))) => {
                let dim = usize::try_from(dim).map_err(|_| bad("dimension"))?;
                let has_ids = identity.policy.can.item_ids;
                let catalogue =
                    Catalogue::load(dim, has_ids, saved).ok_or_else(|| bad("catalogue"))?;
                let policy_dim = identity.context.policy_dim(dim);
                // A policy that was put in force by an experiment may not know the users from before.
                if policy.dim() != policy_dim || policy.inspect().users() > users.len() as u64 {
                    return Err(bad("policy"));
                }
                Some(Learned { policy, catalogue })
            }
            _ => None,
        };
        let policy = learned.as_ref().map(|learned: &Learned| &learned.policy);
        let rounds = policy.map_or(header.idle, |policy| policy.rounds());
        let mut more = [0];
        if from.read(&mut more)? != 0 {
            return Err(LoadError::Bad("there are bytes after its end".to_owned()));
        }
        if !rest.answered.is_valid() {
            return Err(bad("answers"));
        }
        Ok(Self {
            sealer: sealer(&identity),
            can_correct: identity.can_correct(),
            draws: identity.draws(),
            rounds,
            is_winner: false,
            experiments: Experiments::default(),
            made: identity.clone(),
            assumed: Assumed::default(),
            unlearned: Answered::default(),
            identity,
            events: header.events,
            position: header.position,
            clock: header.clock,
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

/// Reads the parts with the users.
pub(crate) fn take_users(from: &mut dyn Read, count: u64) -> Result<Vec<Option<User>>, LoadError> {
    let mut known: Vec<Option<User>> = Vec::new();
    while (known.len() as u64) < count {
        let some: Vec<Option<User>> = take(from)?;
        if some.is_empty() {
            return Err(bad("users"));
        }
        known.extend(some);
    }
    if known.len() as u64 != count {
        return Err(bad("users"));
    }
    Ok(known)
}

/// Reads the policy.
pub(crate) fn take_policy(from: &mut dyn Read) -> Result<Served, LoadError> {
    let policy = sclub::load_policy(from).map_err(|error| match error {
        sclub::LoadError::Io(error) => LoadError::Io(error),
        sclub::LoadError::State(error) => LoadError::Bad(error.to_string()),
    })?;
    Served::new(policy).map_err(|error| LoadError::Bad(error.to_string()))
}

/// Reads the policies of the arms of an experiment under way.
fn take_running(
    in_force: &Identity,
    plan: Plan,
    counts: Counts,
    from: &mut dyn Read,
) -> Result<Running, LoadError> {
    if Plan::check(&plan.name, &plan.arms).is_err() || !counts.is_valid(plan.arms.len()) {
        return Err(bad("experiment"));
    }
    let mut arms = Vec::with_capacity(plan.arms.len());
    for arm in &plan.arms {
        let identity = in_force.with_written_policy(&arm.policy).map_err(unknown)?;
        let policy = match identity == *in_force {
            true => None,
            false => Some(take_policy(from)?),
        };
        arms.push(Arm {
            draws: identity.draws(),
            identity,
            policy,
        });
    }
    Ok(Running { plan, arms, counts })
}

fn unknown(misfit: Misfit) -> LoadError {
    LoadError::Bad(misfit.0)
}

fn bad(what: &str) -> LoadError {
    LoadError::Bad(format!("invalid {what}"))
}

fn put<T: Serialize>(out: &mut dyn Write, part: &T) -> io::Result<()> {
    let bytes = postcard::to_stdvec(part).map_err(io::Error::other)?;
    out.write_all(&(bytes.len() as u64).to_le_bytes())?;
    out.write_all(&bytes)
}

/// Reads the next part.
pub(crate) fn take<T: for<'a> Deserialize<'a>>(from: &mut dyn Read) -> Result<T, LoadError> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > MAX_PART_LENGTH {
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
