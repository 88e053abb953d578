//! What the service knows: a fold of the events in the log.
//!
//! [`State::admit`] says whether an event can follow, [`State::apply`] is the only way to change the
//! state; both are the same live and in replay. The same events give the same bits.

mod admit;
mod answered;
mod apply;
pub(crate) mod catalogue;
mod choose;
mod history;
pub(crate) mod saved;
mod served;
#[cfg(test)]
mod tests;
mod users;

use std::collections::BTreeMap;
use std::fmt;

use sclub::{Error, UserId};

pub use admit::{Ahead, Rejected};
pub use answered::Answered;
pub use catalogue::{Catalogue, item_id};
pub use choose::{Choice, Chosen, Scratch};
pub use history::{History, NOBODY, Record, Sides, What};
pub use saved::LoadError;
pub use served::Served;
pub use users::{User, Users};

use crate::decision::Sealer;
use crate::identity::Identity;

/// A user whom no policy knows.
const STRANGER: UserId = UserId::MAX;

/// What the service knows.
pub struct State {
    identity: Identity,
    /// Gives the prints of users who were forgotten.
    sealer: Sealer,
    /// Number of the last event.
    events: u64,
    /// Number of the last batch.
    position: u64,
    /// The largest service-clock stamp.
    clock: u64,
    /// Users who exist before the first round.
    expected: u64,
    /// Rounds without a reward before the number of features was known.
    idle: u64,
    /// There is none before the number of features is known.
    learned: Option<Learned>,
    users: Users,
    answered: Answered,
    history: History,
    /// By the user's print. The id is not kept.
    forgotten: BTreeMap<u32, Forgotten>,
    /// Decisions from before this service-clock time cannot be answered: what would be needed was
    /// let go of.
    horizon: u64,
    /// Of the users who are known.
    rewards: u64,
    reward_sum: f64,
}

/// What there is once the number of features is known.
struct Learned {
    policy: Served,
    catalogue: Catalogue,
}

/// When a user was last forgotten: decisions made before cannot be answered any more. Kept for as
/// long as such a decision could live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Forgotten {
    /// Number of the event.
    pub event: u64,
    /// Service clock of the event.
    pub clock: u64,
}

/// What events did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Effect {
    /// Splits and merges.
    pub changes: Vec<Record>,
    /// Whether somebody was forgotten of whom something was known.
    pub forgot: bool,
    /// Why the last fit was not taken.
    pub fit_refused: Option<String>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("events", &self.events)
            .field("users", &self.users.len())
            .finish_non_exhaustive()
    }
}

impl State {
    /// Before the first event.
    ///
    /// # Errors
    /// Where the identity cannot be.
    pub fn new(identity: Identity) -> Result<Self, Error> {
        // Whatever a constant could be refused for is refused here, and not with the first event.
        identity.make(identity.dim.unwrap_or(1), 0)?;
        let mut state = Self {
            sealer: sealer(&identity),
            identity,
            events: 0,
            position: 0,
            clock: 0,
            expected: 0,
            idle: 0,
            learned: None,
            users: Users::default(),
            answered: Answered::default(),
            history: History::default(),
            forgotten: BTreeMap::new(),
            horizon: 0,
            rewards: 0,
            reward_sum: 0.0,
        };
        if let Some(dim) = state.identity.dim {
            state.begin(dim)?;
        }
        Ok(state)
    }

    /// The number of features is known.
    fn begin(&mut self, dim: usize) -> Result<(), Error> {
        let mut policy = self.make(dim)?;
        for _ in 0..self.idle {
            policy.learn_round(&[], &mut Vec::new())?;
        }
        let catalogue = Catalogue::new(dim, self.identity.policy.can.item_ids)?;
        self.learned = Some(Learned { policy, catalogue });
        Ok(())
    }

    /// The policy before the first round.
    fn make(&self, dim: usize) -> Result<Served, Error> {
        self.identity.make(dim, self.expected)
    }

    /// Number of the last event.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Number of the last batch applied; 0 before the first.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The largest service-clock stamp seen.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// What the folder is for.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Users who exist before the first round.
    pub fn expected(&self) -> u64 {
        self.expected
    }

    /// The policy, once the number of features is known.
    pub fn policy(&self) -> Option<&Served> {
        self.learned.as_ref().map(|learned| &learned.policy)
    }

    /// The catalogue, once the number of features is known.
    pub fn catalogue(&self) -> Option<&Catalogue> {
        self.learned.as_ref().map(|learned| &learned.catalogue)
    }

    /// Features per item, once that is known.
    pub fn dim(&self) -> Option<usize> {
        self.policy().map(|policy| policy.dim())
    }

    /// The users who have given a reward.
    pub fn users(&self) -> &Users {
        &self.users
    }

    /// Splits and merges.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Which rewards have been learned.
    pub fn answered(&self) -> &Answered {
        &self.answered
    }

    /// Rewards learned and their sum.
    pub fn rewards(&self) -> (u64, f64) {
        (self.rewards, self.reward_sum)
    }

    /// Rounds learned, with those without a reward.
    pub fn rounds(&self) -> u64 {
        self.policy().map_or(self.idle, |policy| policy.rounds())
    }

    /// Clusters there are, of users who have appeared or are expected.
    pub fn clusters(&self) -> u64 {
        self.policy().map_or(0, |policy| policy.clusters() as u64)
    }

    /// The service-clock time before which decisions cannot be answered.
    pub fn horizon(&self) -> u64 {
        self.horizon
    }

    /// Whether a user was forgotten after an event. Events are counted, so no clock has a say.
    pub fn is_forgotten(&self, user: &str, event: u64) -> bool {
        !self.forgotten.is_empty()
            && self
                .forgotten
                .get(&self.sealer.print(user))
                .is_some_and(|forgotten| forgotten.event > event)
    }

    /// The last change that concerns a user: the user's own split, or a merge of the cluster since.
    pub fn last_change(&self, number: u32) -> Option<Record> {
        let user = self.users.get(number)?;
        let cluster = self.policy()?.cluster_of(UserId::from(number));
        let merged = cluster
            .and_then(|cluster| self.history.merged(cluster))
            .filter(|merge| merge.round >= user.since);
        let split = user.split.as_deref();
        match (split, merged) {
            (Some(split), Some(merge)) if split.change > merge.change => Some(*split),
            (_, Some(merge)) => Some(*merge),
            (split, None) => split.copied(),
        }
    }
}

fn sealer(identity: &Identity) -> Sealer {
    Sealer::new(identity.key())
}
