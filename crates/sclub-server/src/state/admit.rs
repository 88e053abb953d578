//! The one rule: whether an event can follow. The same before it is logged and when it is replayed, so
//! that nothing can be in the log that cannot be applied.

use std::collections::{HashMap, HashSet};

use sclub::{Error, MAX_DIM, MAX_ITEMS, Observation, check_round};

use super::{STRANGER, State};
use crate::event::{Event, Item, Reward};
use crate::refusal::Refusal;

/// An event cannot follow what was before.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{reason}")]
pub struct Rejected {
    /// Its position in the round or among the items; 0 where there are none.
    pub entry: usize,
    /// Why.
    pub reason: Refusal,
}

/// What events that were admitted but not applied yet will change.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ahead {
    /// How many.
    events: u64,
    /// How many are rounds.
    rounds: u64,
    /// Numbers whose reward is in them.
    answered: HashSet<u64>,
    /// Items in them, each perhaps a new one.
    items: usize,
    /// The number of features that they fix.
    dim: Option<usize>,
    /// Prints of users whom they forget, with the number of the event.
    forgotten: HashMap<u32, u64>,
    /// The largest time in an [`Event::Expire`].
    horizon: u64,
}

impl Ahead {
    /// Whether the reward of an item shown is in it.
    pub fn contains(&self, number: u64) -> bool {
        self.answered.contains(&number)
    }
}

impl State {
    /// Decides whether an event can follow, before it is logged and in replay alike. `ahead` is what
    /// was admitted before and is not applied yet; the event is added to it.
    ///
    /// # Errors
    /// Where it cannot; `ahead` is then as it was.
    pub fn admit(&self, event: &Event, ahead: &mut Ahead) -> Result<(), Rejected> {
        match event {
            Event::Expect { users } => self.admit_users(*users, ahead)?,
            Event::Learn { round } => self.admit_round(round, ahead)?,
            Event::Upsert { items } => self.admit_items(items, ahead)?,
            Event::Forget { user } => {
                let number = self.events + ahead.events + 1;
                ahead.forgotten.insert(self.sealer.print(user), number);
            }
            Event::Expire { before } => ahead.horizon = ahead.horizon.max(*before),
            // A fit that the policy refuses changes nothing, each time it is replayed.
            Event::Remove { .. } | Event::Fit { .. } => {}
        }
        ahead.events += 1;
        Ok(())
    }

    fn admit_users(&self, users: u64, ahead: &Ahead) -> Result<(), Rejected> {
        let rounds = self.rounds() + ahead.rounds;
        if rounds > 0 {
            return reject(0, Refusal::Begun(rounds));
        }
        // Policies that take no number of users do not look at it: all have the same limit.
        if users > sclub::Users::LIMIT {
            let message = format!("{users} users are more than {}", sclub::Users::LIMIT);
            return reject(0, Refusal::invalid("users", message));
        }
        Ok(())
    }

    fn admit_round(&self, round: &[Reward], ahead: &mut Ahead) -> Result<(), Rejected> {
        // As the policies count: everybody in a round is perhaps a new user.
        let users = self.users.len() + ahead.answered.len() + round.len();
        if users as u64 > sclub::Users::LIMIT {
            let message = format!("there can be {} users at the most", sclub::Users::LIMIT);
            return reject(0, Refusal::invalid("user", message));
        }
        let mut dim = self.dim().or(ahead.dim);
        for (entry, reward) in round.iter().enumerate() {
            if let Err(reason) = self.admit_reward(reward, &mut dim, ahead) {
                for earlier in &round[..entry] {
                    ahead.answered.remove(&earlier.number);
                }
                return reject(entry, reason);
            }
            ahead.answered.insert(reward.number);
        }
        ahead.dim = dim;
        ahead.rounds += 1;
        Ok(())
    }

    fn admit_reward(
        &self,
        reward: &Reward,
        dim: &mut Option<usize>,
        ahead: &Ahead,
    ) -> Result<(), Refusal> {
        if self.answered.contains(reward.number) || ahead.contains(reward.number) {
            return Err(Refusal::Answered);
        }
        if reward.clock < self.horizon.max(ahead.horizon) {
            return Err(Refusal::Expired);
        }
        if self.is_forgotten(&reward.user, reward.event) || self.will_forget(reward, ahead) {
            return Err(Refusal::Forgotten);
        }
        let expected = *dim.get_or_insert(reward.features.len());
        check_item(&reward.features, reward.reward, expected).map_err(|error| match error {
            Error::BadReward { value, .. } => Refusal::invalid(
                "reward",
                format!(
                    "the reward is {value}; it must be finite and at most {:e} in magnitude",
                    sclub::MAX_MAGNITUDE
                ),
            ),
            error => Refusal::invalid("decision", about("the item shown", &error)),
        })
    }

    /// Whether what is ahead forgets the user of a decision that was made before.
    fn will_forget(&self, reward: &Reward, ahead: &Ahead) -> bool {
        !ahead.forgotten.is_empty()
            && ahead
                .forgotten
                .get(&self.sealer.print(&reward.user))
                .is_some_and(|&event| event > reward.event)
    }

    fn admit_items(&self, items: &[Item], ahead: &mut Ahead) -> Result<(), Rejected> {
        // Each may be a new one, and none may be taken out before.
        let total = self.catalogue().map_or(0, |catalogue| catalogue.len()) + ahead.items;
        let room = MAX_ITEMS.saturating_sub(total);
        let mut dim = self.dim().or(ahead.dim);
        for (entry, item) in items.iter().enumerate() {
            if entry >= room {
                let message = format!("there can be {MAX_ITEMS} items at the most");
                return reject(entry, Refusal::invalid("items", message));
            }
            let expected = *dim.get_or_insert(item.features.len());
            if let Err(error) = check_item(&item.features, 0.0, expected) {
                let message = about(&format!("item '{}'", item.id), &error);
                return reject(entry, Refusal::invalid("features", message));
            }
        }
        ahead.dim = dim;
        ahead.items += items.len();
        Ok(())
    }
}

fn reject(entry: usize, reason: Refusal) -> Result<(), Rejected> {
    Err(Rejected { entry, reason })
}

/// Everything that [`sclub::Policy::learn_round`] and [`sclub::ItemSet`] look at in one item.
fn check_item(item: &[f64], reward: f64, dim: usize) -> Result<(), Error> {
    if !(1..=MAX_DIM).contains(&dim) {
        return Err(Error::Dimension { got: dim });
    }
    check_round(&[Observation::new(STRANGER, item, reward)], dim)
}

/// What is wrong with an item, said of that item.
fn about(what: &str, error: &Error) -> String {
    match error {
        Error::DimensionMismatch { expected, got } => {
            format!("{what} has {got} features, and {expected} are expected")
        }
        Error::BadFeature { feature, value, .. } => format!(
            "feature {feature} of {what} is {value}; it must be finite and at most {:e} in magnitude",
            sclub::MAX_MAGNITUDE
        ),
        Error::Dimension { got } => {
            format!("{what} has {got} features; there must be between 1 and {MAX_DIM}")
        }
        error => format!("{what}: {error}"),
    }
}
