//! The state of the service: a fold of the events in the log.
//!
//! [`State::admit`] validates an event, [`State::apply`] is the only way to change the state. Both are the
//! same live and in replay. The same events give the same bits.

mod admit;
mod answered;
mod apply;
mod assumed;
pub(crate) mod catalogue;
mod choose;
mod experiment;
mod explore;
mod history;
pub(crate) mod saved;
mod served;
#[cfg(test)]
mod tests;
mod ties;
mod users;

use std::collections::BTreeMap;
use std::fmt;

use sclub::{Error, UserId};

pub use admit::{Ahead, Rejected};
pub use answered::Answered;
pub use assumed::Assumed;
pub use catalogue::{Catalogue, SlotSet, item_id};
pub use choose::{Choice, Chosen, Draws, Scratch};
pub use experiment::Serving;
pub use history::{History, NO_USER, Record, Sides, What};
pub use saved::LoadError;
pub use served::Served;
pub use ties::Ties;
pub use users::{User, Users};

use crate::decision::Sealer;
use crate::experiment::Experiments;
use crate::identity::Identity;

/// A user id that no policy has seen.
const UNSEEN_USER: UserId = UserId::MAX;

/// The state of the service.
pub struct State {
    /// The identity of the folder, with the policy in force.
    identity: Identity,
    /// The identity of the folder, with the policy that it was made with.
    made: Identity,
    /// Computes user fingerprints: 32-bit keyed hashes of user ids.
    sealer: Sealer,
    /// The number of the last event.
    events: u64,
    /// The number of the last batch.
    position: u64,
    /// The largest service-clock stamp.
    clock: u64,
    /// The number of users who exist before the first round.
    expected: u64,
    /// The number of rounds without a reward before the number of features was known.
    idle: u64,
    /// `None` before the number of features is known.
    learned: Option<Learned>,
    users: Users,
    answered: Answered,
    /// Those of them whose reward is assumed.
    assumed: Assumed,
    /// Those of them whose assumed reward the policy in force has not learned: it began later, in an experiment.
    unlearned: Answered,
    /// True if assumed rewards can be corrected.
    can_correct: bool,
    /// True if the policy in force draws at random.
    draws: bool,
    /// The number of rounds learned, including those without a reward.
    rounds: u64,
    /// True if an experiment put the policy in force. It may not know the users from before, and may have learned more rounds
    /// than there were.
    is_winner: bool,
    experiments: Experiments,
    history: History,
    /// Forgotten users, by fingerprint. Their ids are not kept.
    forgotten: BTreeMap<u32, Forgotten>,
    /// Decisions from before this service-clock time no longer accept a reward: the data it would need was
    /// dropped.
    horizon: u64,
    /// The number of rewards of the users who are known.
    rewards: u64,
    reward_sum: f64,
}

/// The parts of the state that need the number of features.
struct Learned {
    policy: Served,
    catalogue: Catalogue,
}

/// The time at which a user was last forgotten. Decisions made before it no longer accept a reward. Kept
/// for the lifetime of such a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Forgotten {
    /// Number of the event.
    pub event: u64,
    /// Service clock of the event.
    pub clock: u64,
}

/// The effects of events that their caller needs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Effect {
    /// Splits and merges.
    pub changes: Vec<Record>,
    /// The number of new rewards.
    pub rewards: u64,
    /// By how much the sum of the rewards has grown, apart from forgotten users: a reward in place of an assumed one counts as the difference.
    pub reward_sum: f64,
    /// True if a user was forgotten who had given a reward.
    pub forgot: bool,
    /// The reason why the policy refused the last fit.
    pub fit_refused: Option<String>,
    /// True if an experiment began or ended.
    pub changed_policies: bool,
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
    /// The state before the first event.
    ///
    /// # Errors
    /// If a constant of the identity is invalid.
    pub fn new(identity: Identity) -> Result<Self, Error> {
        // Invalid constants are refused here, not at the first event.
        identity.make(identity.dim.unwrap_or(1), 0)?;
        let can_correct = identity.can_correct();
        let mut state = Self {
            sealer: sealer(&identity),
            draws: identity.draws(),
            rounds: 0,
            is_winner: false,
            experiments: Experiments::default(),
            made: identity.clone(),
            identity,
            events: 0,
            position: 0,
            clock: 0,
            expected: 0,
            idle: 0,
            learned: None,
            users: Users::default(),
            answered: Answered::default(),
            assumed: Assumed::default(),
            unlearned: Answered::default(),
            can_correct,
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

    /// Makes the policy and the catalogue, now that the number of features is known.
    fn begin(&mut self, dim: usize) -> Result<(), Error> {
        let mut policy = self.make(dim)?;
        for _ in 0..self.idle {
            policy.learn_round(&[], &mut Vec::new())?;
        }
        let catalogue = Catalogue::new(dim, self.identity.policy.can.item_ids)?;
        self.learned = Some(Learned { policy, catalogue });
        Ok(())
    }

    /// Makes the policy, before its first round.
    fn make(&self, dim: usize) -> Result<Served, Error> {
        self.identity.make(dim, self.expected)
    }

    /// The number of the last event.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The number of the last batch applied; 0 before the first.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The largest service-clock stamp seen.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// The identity of the folder, with the policy in force.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The identity of the folder as it was made. The state is recovered with it.
    pub fn folder_identity(&self) -> &Identity {
        &self.made
    }

    /// The number of users who exist before the first round.
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

    /// The number of features per item, once it is known.
    pub fn dim(&self) -> Option<usize> {
        self.catalogue().map(|catalogue| catalogue.items().dim())
    }

    /// The users who have given a reward.
    pub fn users(&self) -> &Users {
        &self.users
    }

    /// The splits and merges so far.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The items shown whose rewards have been learned.
    pub fn answered(&self) -> &Answered {
        &self.answered
    }

    /// The items shown whose reward is assumed.
    pub fn assumed(&self) -> &Assumed {
        &self.assumed
    }

    /// Returns true if rewards can be assumed, and corrected later.
    pub fn can_correct(&self) -> bool {
        self.can_correct
    }

    /// The number of rewards learned, and their sum.
    pub fn rewards(&self) -> (u64, f64) {
        (self.rewards, self.reward_sum)
    }

    /// The number of rounds learned, including those without a reward.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// The number of clusters of users who have appeared or are expected.
    pub fn clusters(&self) -> u64 {
        self.policy().map_or(0, |policy| policy.clusters() as u64)
    }

    /// The service-clock time before which decisions no longer accept a reward.
    pub fn horizon(&self) -> u64 {
        self.horizon
    }

    /// Returns true if a user was forgotten after an event. It compares event numbers, not times.
    pub fn is_forgotten(&self, user: &str, event: u64) -> bool {
        !self.forgotten.is_empty()
            && self
                .forgotten
                .get(&self.sealer.fingerprint(user))
                .is_some_and(|forgotten| forgotten.event > event)
    }

    /// The last change that affects a user: the user's own split, or a later merge of their cluster.
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
