//! Validation of events. The same check runs before an event is logged and when it is replayed, so that
//! every event in the log can be applied.

use std::collections::{HashMap, HashSet};

use sclub::{Error, MAX_DIM, MAX_ITEMS, Observation, check_round};

use super::{State, UNSEEN_USER};
use crate::context::Context;
use crate::description::Description;
use crate::event::{Event, Reward, RewardedList};
use crate::refusal::Refusal;

/// An event that is invalid in this state.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{reason}")]
pub struct Rejected {
    /// The index of the invalid entry among the rewards of the round or among the items; 0 for other events.
    /// If a list is invalid, it is the list's first reward.
    pub entry: usize,
    /// The reason.
    pub reason: Refusal,
}

/// The changes of events that are admitted but not yet applied.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ahead {
    /// The number of events.
    events: u64,
    /// The number of rounds among them.
    rounds: u64,
    /// The numbers of the items shown whose rewards are in them.
    answered: HashSet<u64>,
    /// Those of them whose rewards are assumed.
    assumed: HashSet<u64>,
    /// The numbers of the items shown whose assumed rewards they replace.
    corrected: HashSet<u64>,
    /// The number of items in them, each of which may be a new one.
    items: usize,
    /// The number of features that they fix.
    dim: Option<usize>,
    /// The fingerprints of the users that they forget, with the number of the event.
    forgotten: HashMap<u32, u64>,
    /// The largest time in an [`Event::Expire`].
    horizon: u64,
    /// True if an experiment begins or ends.
    pub(super) changes_policies: bool,
}

impl Ahead {
    /// Returns true if the reward of an item shown is in it.
    pub fn contains(&self, number: u64) -> bool {
        self.answered.contains(&number)
    }

    /// Returns true if an assumed reward of an item shown is in it.
    pub fn assumes(&self, number: u64) -> bool {
        self.assumed.contains(&number)
    }

    /// Returns true if a reward in place of an assumed one is in it.
    pub fn corrects(&self, number: u64) -> bool {
        self.corrected.contains(&number)
    }
}

impl State {
    /// Validates an event, before it is logged and in replay alike. `ahead` has the events that were admitted
    /// before and are not yet applied; this one is added to it.
    ///
    /// # Errors
    /// If the event is invalid. `ahead` is unchanged then.
    pub fn admit(&self, event: &Event, ahead: &mut Ahead) -> Result<(), Rejected> {
        match event {
            Event::Expect { users } => self.admit_users(*users, ahead)?,
            Event::Learn { round } => self.admit_round(round, ahead)?,
            Event::LearnLists { lists } => self.admit_lists(lists, ahead)?,
            Event::LearnAssumed {
                round,
                assumed,
                corrected,
            } => self.admit_assumed(round, assumed, corrected, ahead)?,
            Event::Upsert { items } => {
                let items = items.iter().map(|item| (&*item.id, &*item.features, None));
                self.admit_items(items, ahead)?;
            }
            Event::Describe { items } => {
                let items = items.iter();
                let items = items.map(|item| (&*item.id, &*item.features, Some(&item.description)));
                self.admit_items(items, ahead)?;
            }
            Event::Forget { user } => {
                let number = self.events + ahead.events + 1;
                ahead
                    .forgotten
                    .insert(self.sealer.fingerprint(user), number);
            }
            Event::Expire { before } => ahead.horizon = ahead.horizon.max(*before),
            Event::StartExperiment { name, arms, .. } => self.admit_start(name, arms, ahead)?,
            Event::EndExperiment { name, winner } => self.admit_end(name, winner, ahead)?,
            // A fit that the policy refuses changes nothing, each time it is replayed.
            Event::Remove { .. } | Event::Fit { .. } | Event::FitArm { .. } => {}
        }
        ahead.events += 1;
        Ok(())
    }

    fn admit_users(&self, users: u64, ahead: &Ahead) -> Result<(), Rejected> {
        let rounds = self.rounds() + ahead.rounds;
        if rounds > 0 {
            return reject(0, Refusal::Begun(rounds));
        }
        // Checked here because some policies ignore the number of users.
        if users > sclub::Users::LIMIT {
            let message = format!(
                "users is {users}; at most {} are supported",
                sclub::Users::LIMIT
            );
            return reject(0, Refusal::invalid("users", message));
        }
        Ok(())
    }

    fn admit_round(&self, round: &[Reward], ahead: &mut Ahead) -> Result<(), Rejected> {
        self.admit_user_count(round.len(), ahead)?;
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

    fn admit_assumed(
        &self,
        round: &[Reward],
        assumed: &[bool],
        corrected: &[Reward],
        ahead: &mut Ahead,
    ) -> Result<(), Rejected> {
        // Another policy may be in force after the end of an experiment. Whatever it is, it learns rewards in place of assumed
        // ones.
        let can_assume = self.can_correct && !ahead.changes_policies;
        if assumed.len() != round.len() || assumed.contains(&true) && !can_assume {
            let message = "rewards cannot be assumed with the policy of this folder";
            return reject(0, Refusal::invalid("others", message));
        }
        let mut dim = self.dim();
        let mut numbers = HashSet::with_capacity(corrected.len());
        for (entry, reward) in corrected.iter().enumerate() {
            let at = |reason: Refusal| Rejected {
                entry: round.len() + entry,
                reason,
            };
            let number = reward.number;
            if self.assumed.get(number).is_none()
                || ahead.corrects(number)
                || !numbers.insert(number)
            {
                return Err(at(Refusal::Answered));
            }
            self.admit_decision(&reward.user, reward.clock, reward.event, ahead)
                .map_err(at)?;
            // Else the assumed reward is gone with the user.
            let fingerprint = self.sealer.fingerprint(&reward.user);
            if self.users.number(&reward.user).is_none()
                || ahead.forgotten.contains_key(&fingerprint)
            {
                return Err(at(Refusal::Forgotten));
            }
            let (item, of_request) = self.identity.context.split(&reward.features);
            self.admit_shown(item, of_request, reward.reward, &mut dim)
                .map_err(at)?;
        }
        if !round.is_empty() {
            self.admit_round(round, ahead)?;
        }
        let numbered = round.iter().zip(assumed);
        let assumed = numbered.filter(|(_, is_assumed)| **is_assumed);
        ahead
            .assumed
            .extend(assumed.map(|(reward, _)| reward.number));
        ahead.corrected.extend(numbers);
        Ok(())
    }

    fn admit_lists(&self, lists: &[RewardedList], ahead: &mut Ahead) -> Result<(), Rejected> {
        self.admit_user_count(lists.len(), ahead)?;
        let mut dim = self.dim().or(ahead.dim);
        let mut admitted = Vec::new();
        for list in lists {
            if let Err(rejected) = self.admit_list(list, &mut dim, ahead) {
                for number in &admitted {
                    ahead.answered.remove(number);
                }
                return reject(admitted.len() + rejected.entry, rejected.reason);
            }
            let first = admitted.len();
            admitted.extend(list.rewards().map(|(number, ..)| number));
            ahead.answered.extend(&admitted[first..]);
        }
        ahead.dim = dim;
        ahead.rounds += 1;
        Ok(())
    }

    /// Checks the number of users, as the policies count: each user of a round may be a new one.
    fn admit_user_count(&self, round: usize, ahead: &Ahead) -> Result<(), Rejected> {
        let users = self.users.len() + ahead.answered.len() + round;
        if users as u64 > sclub::Users::LIMIT {
            let message = format!("at most {} users are supported", sclub::Users::LIMIT);
            return reject(0, Refusal::invalid("user", message));
        }
        Ok(())
    }

    fn admit_reward(
        &self,
        reward: &Reward,
        dim: &mut Option<usize>,
        ahead: &Ahead,
    ) -> Result<(), Refusal> {
        self.admit_number(reward.number, ahead)?;
        self.admit_decision(&reward.user, reward.clock, reward.event, ahead)?;
        let (item, context) = self.identity.context.split(&reward.features);
        self.admit_shown(item, context, reward.reward, dim)
    }

    fn admit_list(
        &self,
        list: &RewardedList,
        dim: &mut Option<usize>,
        ahead: &Ahead,
    ) -> Result<(), Rejected> {
        let shown = list.items.len();
        let is_valid = list.number.checked_add(shown as u64).is_some()
            && list.context.len() == self.identity.context.len()
            && list.reached() > 0
            && (list.reached()..=shown).contains(&list.looked_at.unwrap_or(shown));
        if !is_valid {
            let message = "the list is inconsistent, or has no reward";
            return reject(0, Refusal::invalid("decision", message));
        }
        let at = |entry: usize| move |reason: Refusal| Rejected { entry, reason };
        for (entry, (number, ..)) in list.rewards().enumerate() {
            self.admit_number(number, ahead).map_err(at(entry))?;
        }
        self.admit_decision(&list.user, list.clock, list.event, ahead)
            .map_err(at(0))?;
        let mut rewards = 0;
        for item in &list.items {
            let reward = item.reward.unwrap_or(0.0);
            let entry = if item.reward.is_some() { rewards } else { 0 };
            self.admit_shown(&item.features, &list.context, reward, dim)
                .map_err(at(entry))?;
            rewards += usize::from(item.reward.is_some());
        }
        Ok(())
    }

    /// Checks that an item shown has no reward yet.
    fn admit_number(&self, number: u64, ahead: &Ahead) -> Result<(), Refusal> {
        match self.answered.contains(number) || ahead.contains(number) {
            true => Err(Refusal::Answered),
            false => Ok(()),
        }
    }

    /// Checks that a decision still accepts rewards.
    fn admit_decision(
        &self,
        user: &str,
        clock: u64,
        event: u64,
        ahead: &Ahead,
    ) -> Result<(), Refusal> {
        if clock < self.horizon.max(ahead.horizon) {
            return Err(Refusal::Expired);
        }
        if self.is_forgotten(user, event) || self.will_forget(user, event, ahead) {
            return Err(Refusal::Forgotten);
        }
        Ok(())
    }

    /// Checks the features and the reward of an item shown.
    fn admit_shown(
        &self,
        item: &[f64],
        of_request: &[f64],
        reward: f64,
        dim: &mut Option<usize>,
    ) -> Result<(), Refusal> {
        let context = &self.identity.context;
        let expected = *dim.get_or_insert(item.len());
        let checked = check_dims(item.len(), expected, context).and_then(|()| {
            let features = context.join_parts(item, of_request);
            check_item(&features, reward, context.policy_dim(expected))
        });
        checked.map_err(|error| match error {
            Error::BadReward { value, .. } => Refusal::invalid(
                "reward",
                format!(
                    "the reward is {value}; it must be finite and at most {:e} in magnitude",
                    sclub::MAX_MAGNITUDE
                ),
            ),
            error => Refusal::invalid("decision", describe("the item shown", &error)),
        })
    }

    /// Returns true if an event in `ahead` forgets the user of an earlier decision.
    fn will_forget(&self, user: &str, event: u64, ahead: &Ahead) -> bool {
        !ahead.forgotten.is_empty()
            && ahead
                .forgotten
                .get(&self.sealer.fingerprint(user))
                .is_some_and(|&at| at > event)
    }

    /// Checks items: their ids, features and descriptions.
    fn admit_items<'a>(
        &self,
        items: impl ExactSizeIterator<Item = (&'a str, &'a [f64], Option<&'a Description>)>,
        ahead: &mut Ahead,
    ) -> Result<(), Rejected> {
        // An upper bound: each item may be a new one, and pending removals are not counted.
        let total = self.catalogue().map_or(0, |catalogue| catalogue.len()) + ahead.items;
        let room = MAX_ITEMS.saturating_sub(total);
        let count = items.len();
        let mut dim = self.dim().or(ahead.dim);
        for (entry, (id, features, description)) in items.enumerate() {
            if entry >= room {
                let message = format!("the catalogue would have more than {MAX_ITEMS} items");
                return reject(entry, Refusal::invalid("items", message));
            }
            let expected = *dim.get_or_insert(features.len());
            let checked = check_dims(features.len(), expected, &self.identity.context)
                .and_then(|()| check_item(features, 0.0, expected));
            if let Err(error) = checked {
                let message = describe(&format!("item '{id}'"), &error);
                return reject(entry, Refusal::invalid("features", message));
            }
            let Some(description) = description else {
                continue;
            };
            if !self.identity.has_descriptions() {
                let message = "this data folder was made by an earlier version, whose items have features only; \
                               teach a new folder";
                return reject(entry, Refusal::invalid("tags", message));
            }
            if let Err((field, message)) = description.check() {
                let message = format!("item '{id}': {message}");
                return reject(entry, Refusal::invalid(field, message));
            }
        }
        ahead.dim = dim;
        ahead.items += count;
        Ok(())
    }
}

pub(super) fn reject(entry: usize, reason: Refusal) -> Result<(), Rejected> {
    Err(Rejected { entry, reason })
}

/// Checks the number of features of an item, alone and with a context.
fn check_dims(got: usize, expected: usize, context: &Context) -> Result<(), Error> {
    if got != expected {
        return Err(Error::DimensionMismatch { expected, got });
    }
    match (got, context.policy_dim(got)) {
        (0, _) => Err(Error::Dimension { got: 0 }),
        (_, joined) if joined > MAX_DIM => Err(Error::Unsupported {
            reason: "with the context features of this folder it has too many features",
        }),
        _ => Ok(()),
    }
}

/// Every check of [`sclub::Policy::learn_round`] and [`sclub::ItemSet`] on one item.
fn check_item(item: &[f64], reward: f64, dim: usize) -> Result<(), Error> {
    if !(1..=MAX_DIM).contains(&dim) {
        return Err(Error::Dimension { got: dim });
    }
    check_round(&[Observation::new(UNSEEN_USER, item, reward)], dim)
}

/// An error message about an item that names the item.
fn describe(item: &str, error: &Error) -> String {
    match error {
        Error::DimensionMismatch { expected, got } => {
            format!("{item} has {got} features; it must have {expected}")
        }
        Error::BadFeature { feature, value, .. } => format!(
            "feature {feature} of {item} is {value}; it must be finite and at most {:e} in magnitude",
            sclub::MAX_MAGNITUDE
        ),
        Error::Dimension { got } => {
            format!("{item} has {got} features; it must have between 1 and {MAX_DIM}")
        }
        error => format!("{item}: {error}"),
    }
}
