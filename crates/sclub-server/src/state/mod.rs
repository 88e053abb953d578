//! What the service knows: a fold of the events in the log.
//!
//! [`State::apply`] is the only way to change it, live and when the log is read again. The same
//! events give the same bits.

mod answered;
mod catalogue;
mod history;
mod saved;
mod users;

use std::fmt;

use sclub::{Change, ClusterId, Decision, Error, ItemSet, Keep, Observation, UserId, check_round};

pub use answered::Answered;
pub use catalogue::Catalogue;
pub use history::{History, NOBODY, Record, Sides, What};
pub use saved::LoadError;
pub use users::{User, Users};

use crate::event::{Event, Reward, Stamped};
use crate::identity::Identity;

/// Items among which one is found as fast without a bound.
const FEW: usize = 1024;

/// A user whom no policy knows.
const STRANGER: UserId = UserId::MAX;

/// What the service knows.
pub struct State {
    identity: Identity,
    /// Number of the last event.
    events: u64,
    /// Users who exist before the first round.
    expected: u64,
    /// Rounds without a reward before the number of features was known.
    idle: u64,
    /// There is none before the number of features is known.
    learned: Option<Learned>,
    users: Users,
    answered: Answered,
    history: History,
    forgotten: Vec<Forgotten>,
    /// Decisions from before this time cannot be answered: what would be needed was let go of.
    horizon: u64,
    /// Of the users who are known.
    rewards: u64,
    reward_sum: f64,
}

/// What there is once the number of features is known.
struct Learned {
    policy: Box<dyn Keep>,
    catalogue: Catalogue,
}

/// A user was forgotten: what was shown to her before cannot be answered any more. Her id is not
/// kept, only a print of 32 bits, for as long as decisions live.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
struct Forgotten {
    print: u32,
    at: u64,
}

/// What an event did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Effect {
    /// Splits and merges.
    pub changes: Vec<Record>,
    /// Whether somebody was forgotten of whom something was known.
    pub forgot: bool,
    /// Why a fit was not taken.
    pub fit_refused: Option<String>,
}

/// Candidates to choose from.
#[derive(Debug)]
pub enum Choice<'a> {
    /// These items of the catalogue, by slot.
    Slots(&'a [usize]),
    /// Those that came along.
    Inline(&'a ItemSet),
    /// The catalogue but for those slots, which are in rising order.
    All {
        /// Slots to leave out.
        exclude: &'a [usize],
    },
}

/// The answer to a recommendation.
#[derive(Debug, Default)]
pub struct Chosen {
    /// Position among the candidates (or slot in the catalogue), best first.
    pub decisions: Vec<Decision>,
    /// The cluster that she is served from.
    pub cluster: ClusterId,
    /// Users in it.
    pub cluster_users: u64,
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
        let mut state = Self {
            identity,
            events: 0,
            expected: 0,
            idle: 0,
            learned: None,
            users: Users::default(),
            answered: Answered::default(),
            history: History::default(),
            forgotten: Vec::new(),
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
    fn begin(&mut self, dim: usize) -> Result<&mut Learned, Error> {
        let mut policy = self.make(dim)?;
        for _ in 0..self.idle {
            policy.learn_round(&[], &mut Vec::new())?;
        }
        let catalogue = Catalogue::new(dim)?;
        Ok(self.learned.insert(Learned { policy, catalogue }))
    }

    /// The policy before the first round.
    fn make(&self, dim: usize) -> Result<Box<dyn Keep>, Error> {
        self.identity.make(dim, self.expected)
    }

    /// Learns an event, the next one.
    ///
    /// # Errors
    /// Where it cannot follow what was before; nothing is changed then. Nothing that was accepted
    /// into the log gives one.
    pub fn apply(&mut self, stamped: &Stamped, effect: &mut Effect) -> Result<(), Error> {
        let at = stamped.at;
        match &stamped.event {
            Event::Expect { users } => self.expect(*users)?,
            Event::Learn { round } => self.learn(at, round, effect)?,
            Event::Upsert { items } => {
                self.check(items.iter().map(|item| (&*item.features, 0.0)))?;
                for item in items {
                    let learned = match &mut self.learned {
                        Some(learned) => learned,
                        None => self.begin(item.features.len())?,
                    };
                    learned.catalogue.upsert(&item.id, &item.features, at)?;
                }
            }
            Event::Remove { item } => {
                if let Some(learned) = &mut self.learned {
                    learned.catalogue.remove(item, at);
                }
            }
            Event::Forget { user } => effect.forgot |= self.forget(at, user),
            Event::Fit { fit } => effect.fit_refused = self.take_fit(fit).err(),
        }
        self.events += 1;
        Ok(())
    }

    fn expect(&mut self, users: u64) -> Result<(), Error> {
        if self.rounds() > 0 {
            return Err(Error::BadParameter {
                name: "users",
                value: users as f64,
                requirement: "known before the first round",
            });
        }
        let before = std::mem::replace(&mut self.expected, users);
        let Some(dim) = self.dim() else {
            return Ok(());
        };
        match self.make(dim) {
            Ok(policy) => {
                self.learned.as_mut().expect("it has a dimension").policy = policy;
                Ok(())
            }
            Err(error) => {
                self.expected = before;
                Err(error)
            }
        }
    }

    fn learn(&mut self, at: u64, round: &[Reward], effect: &mut Effect) -> Result<(), Error> {
        self.check(
            round
                .iter()
                .map(|reward| (&*reward.features, reward.reward)),
        )?;
        if let (None, Some(first)) = (&self.learned, round.first()) {
            self.begin(first.features.len())?;
        }
        let Some(learned) = &mut self.learned else {
            self.idle += 1;
            return Ok(());
        };
        let next = learned.policy.rounds() + 1;
        let numbers: Vec<u32> = round
            .iter()
            .map(|reward| self.users.admit(&reward.user, at, next))
            .collect();
        let observations: Vec<Observation<'_>> = round
            .iter()
            .zip(&numbers)
            .map(|(reward, &number)| Observation {
                user: UserId::from(number),
                item: &reward.features,
                reward: reward.reward,
            })
            .collect();
        let mut changes = Vec::new();
        learned.policy.learn_round(&observations, &mut changes)?;
        for (reward, &number) in round.iter().zip(&numbers) {
            self.answered.insert(reward.number, reward.decided);
            self.rewards += 1;
            self.reward_sum += reward.reward;
            if let Some(user) = self.users.get_mut(number) {
                user.rewards += 1;
                user.reward_sum += reward.reward;
            }
        }
        for change in &changes {
            self.note(at, next, &numbers, change, effect);
        }
        Ok(())
    }

    /// Checks that items, each with its reward, can be learned from.
    fn check<'a>(&self, items: impl Iterator<Item = (&'a [f64], f64)>) -> Result<(), Error> {
        let round: Vec<Observation<'_>> = items
            .map(|(item, reward)| Observation {
                user: STRANGER,
                item,
                reward,
            })
            .collect();
        let first = round.first().map(|observation| observation.item.len());
        match self.dim().or(first) {
            Some(dim) => check_round(&round, dim),
            None => Ok(()),
        }
    }

    /// Notes a change that a round brought.
    fn note(&mut self, at: u64, round: u64, served: &[u32], change: &Change, effect: &mut Effect) {
        let learned = self.learned.as_ref().expect("changes come from a policy");
        let into = match change {
            Change::Split { into, .. } => *into,
            Change::Merge { kept, .. } => *kept,
        };
        let user = match served {
            [only] => *only,
            // Several were served: the one who is in the cluster now.
            many => many
                .iter()
                .copied()
                .find(|&user| learned.policy.cluster_of(UserId::from(user)) == into)
                .unwrap_or(NOBODY),
        };
        let record = self.history.note(at, round, user, change);
        if let What::Split { .. } = record.what
            && let Some(user) = self.users.get_mut(user)
        {
            user.split = Some(Box::new(record));
        }
        effect.changes.push(record);
    }

    /// Takes a fit, or says why not. One that is refused changes nothing: the log that has it is as
    /// good as one without it, live and when it is read again.
    fn take_fit(&mut self, fit: &[u8]) -> Result<(), String> {
        match &mut self.learned {
            Some(learned) => learned
                .policy
                .take_fit(fit)
                .map_err(|error| error.to_string()),
            None => Err("nothing has been learned that could be fitted".to_owned()),
        }
    }

    /// Returns whether anything was known of her.
    fn forget(&mut self, at: u64, user: &str) -> bool {
        if let Some(key) = self.identity.key() {
            let print = crate::decision::Sealer::new(key).print(user);
            self.forgotten.push(Forgotten { print, at });
        }
        let Some(number) = self.users.dismiss(user) else {
            return false;
        };
        self.history.forget(number);
        (self.rewards, self.reward_sum) = self.users.rewards();
        if let Some(learned) = &mut self.learned {
            learned.policy.forget(UserId::from(number));
        }
        true
    }

    /// Lets go of what only decisions handed out before a time would need.
    pub fn prune(&mut self, before: u64) {
        self.horizon = self.horizon.max(before);
        self.answered.prune(before);
        self.forgotten.retain(|forgotten| forgotten.at >= before);
        if let Some(learned) = &mut self.learned {
            learned.catalogue.prune(before);
        }
    }

    /// Chooses the best `k` for a user.
    ///
    /// # Errors
    /// Where there is no candidate, or they have another number of features.
    pub fn choose(
        &self,
        user: &str,
        choice: &Choice<'_>,
        k: usize,
        scratch: &mut Scratch,
    ) -> Result<Chosen, Error> {
        let fresh;
        let (policy, catalogue) = match (&self.learned, choice) {
            (Some(learned), _) => (&*learned.policy, Some(&learned.catalogue)),
            (None, Choice::Inline(items)) => {
                fresh = self.make(items.dim())?;
                (&*fresh, None)
            }
            (None, _) => return Err(Error::NoCandidates),
        };
        let user = self.users.number(user).map_or(STRANGER, UserId::from);
        let mut chosen = Chosen {
            decisions: Vec::with_capacity(k.min(64)),
            cluster: policy.cluster_of(user),
            cluster_users: policy.cluster_users(user),
        };
        let out = &mut chosen.decisions;
        match (choice, catalogue) {
            (Choice::Inline(items), _) => best(policy, user, items, k, None, out)?,
            (Choice::Slots(slots), Some(catalogue)) => {
                let items = scratch.items(policy.dim())?;
                items.select(catalogue.items(), slots)?;
                best(policy, user, items, k, None, out)?;
            }
            (Choice::All { exclude: [] }, Some(catalogue)) => {
                best(policy, user, catalogue.items(), k, None, out)?;
            }
            (Choice::All { exclude }, Some(catalogue)) => {
                let excluded = |slot: usize| exclude.binary_search(&slot).is_ok();
                best(policy, user, catalogue.items(), k, Some(&excluded), out)?;
            }
            (_, None) => return Err(Error::NoCandidates),
        }
        Ok(chosen)
    }

    /// Number of the last event.
    pub fn events(&self) -> u64 {
        self.events
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
    pub fn policy(&self) -> Option<&dyn Keep> {
        self.learned.as_ref().map(|learned| &*learned.policy)
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

    /// The time before which decisions cannot be answered.
    pub fn horizon(&self) -> u64 {
        self.horizon
    }

    /// Whether the user that has this print was forgotten after a time.
    pub fn is_forgotten(&self, print: u32, decided: u64) -> bool {
        self.forgotten
            .iter()
            .any(|forgotten| forgotten.print == print && forgotten.at >= decided)
    }

    /// Whether anybody was forgotten lately.
    pub fn has_forgotten(&self) -> bool {
        !self.forgotten.is_empty()
    }

    /// The last change that concerns a user: her own split, or a merge of her cluster since.
    pub fn last_change(&self, number: u32) -> Option<Record> {
        let user = self.users.get(number)?;
        let cluster = self.policy()?.cluster_of(UserId::from(number));
        let merged = self
            .history
            .merged(cluster)
            .filter(|merge| merge.round >= user.since);
        let split = user.split.as_deref();
        match (split, merged) {
            (Some(split), Some(merge)) if split.change > merge.change => Some(*split),
            (_, Some(merge)) => Some(*merge),
            (split, None) => split.copied(),
        }
    }

    /// A hash of everything that has been learned: policy, users, catalogue.
    pub fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.events.to_le_bytes());
        hasher.update(&self.expected.to_le_bytes());
        hasher.update(&self.idle.to_le_bytes());
        hasher.update(&self.rewards.to_le_bytes());
        hasher.update(&self.reward_sum.to_bits().to_le_bytes());
        let (known, free) = self.users.parts();
        for user in known {
            let id = user.as_ref().map_or("", |user| &*user.id);
            hasher.update(&(id.len() as u64).to_le_bytes());
            hasher.update(id.as_bytes());
        }
        for number in free {
            hasher.update(&number.to_le_bytes());
        }
        if let Some(learned) = &self.learned {
            hasher.update(&learned.policy.digest().to_le_bytes());
            learned.catalogue.hash_into(&mut hasher);
        }
        hasher.finalize().to_hex()[..16].to_owned()
    }
}

/// The best `k`, by the shortest way.
fn best(
    policy: &dyn Keep,
    user: UserId,
    items: &ItemSet,
    k: usize,
    exclude: Option<&dyn Fn(usize) -> bool>,
    out: &mut Vec<Decision>,
) -> Result<(), Error> {
    if k == 1 && exclude.is_none() && items.len() <= FEW {
        out.push(policy.recommend(user, items)?);
        return Ok(());
    }
    let exclude = exclude.unwrap_or(&|_| false);
    policy.best(user, items, k, exclude, out)
}

/// Memory that is kept from one choice to the next.
#[derive(Debug, Default)]
pub struct Scratch {
    items: Option<ItemSet>,
}

impl Scratch {
    fn items(&mut self, dim: usize) -> Result<&mut ItemSet, Error> {
        if self.items.as_ref().is_none_or(|items| items.dim() != dim) {
            self.items = Some(ItemSet::new(dim)?);
        }
        Ok(self.items.as_mut().expect("made above"))
    }
}
