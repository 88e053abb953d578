//! Application of events: the only way to change the state, live and in replay.

use std::borrow::Cow;

use sclub::{Change, List, Observation, Shown, UserId};

use super::experiment::{own_policies, replace};
use super::{Ahead, Effect, Forgotten, NO_USER, Rejected, State, What, item_id};
use crate::description::Description;
use crate::event::{Batch, Event, Reward, RewardedList, Stamp};
use crate::refusal::Refusal;

/// The milliseconds for which the record of a forgotten user outlives the lifetime of decisions. An append
/// rarely takes longer.
const FORGOTTEN_SLACK: u64 = 60_000;

impl State {
    /// Admits and applies the next batch from the log.
    ///
    /// # Errors
    /// If it is not the next one, or one of its events is invalid. No event of it is applied then.
    pub fn replay(
        &mut self,
        number: u64,
        batch: &Batch,
        effect: &mut Effect,
    ) -> Result<(), Rejected> {
        if number != self.position + 1 {
            let message = format!("batch {number} comes after batch {}", self.position);
            let reason = Refusal::invalid("batch", message);
            return Err(Rejected { entry: 0, reason });
        }
        let mut ahead = Ahead::default();
        for event in &batch.events {
            self.admit(event, &mut ahead)?;
        }
        self.apply_batch(number, batch, effect);
        Ok(())
    }

    /// Applies a whole batch that was admitted.
    ///
    /// # Panics
    /// If `number` is not [`State::position`] + 1, or the batch was not admitted.
    pub fn apply_batch(&mut self, number: u64, batch: &Batch, effect: &mut Effect) {
        assert_eq!(number, self.position + 1, "the number of the next batch");
        self.clock = self.clock.max(batch.stamp.clock);
        if let Some(learned) = &mut self.learned {
            learned.catalogue.date_retirements(self.clock);
        }
        for event in &batch.events {
            self.apply(&batch.stamp, event, effect);
        }
        self.position = number;
    }

    /// Applies an event that was admitted. Every event that [`State::admit`] accepts can be applied.
    ///
    /// # Panics
    /// If it was not admitted.
    pub fn apply(&mut self, stamp: &Stamp, event: &Event, effect: &mut Effect) {
        self.clock = self.clock.max(stamp.clock);
        match event {
            Event::Expect { users } => self.expect(*users),
            Event::Learn { round } => self.learn(stamp.at, round, effect),
            Event::LearnLists { lists } => self.learn_lists(stamp.at, lists, effect),
            Event::LearnAssumed {
                round,
                assumed,
                corrected,
            } => self.learn_assumed(stamp.at, round, assumed, corrected, effect),
            Event::Upsert { items } => {
                for item in items {
                    self.upsert(&item.id, &item.features, None);
                }
            }
            Event::Describe { items } => {
                for item in items {
                    self.upsert(&item.id, &item.features, Some(item.description.clone()));
                }
            }
            Event::Remove { item } => {
                let is_revision = self.identity.has_descriptions();
                if let Some(learned) = &mut self.learned {
                    learned.catalogue.remove(item, is_revision);
                }
            }
            Event::Forget { user } => effect.forgot |= self.forget(user),
            Event::Fit { fit } => effect.fit_refused = self.take_fit(None, fit).err(),
            Event::FitArm { arm, fit } => {
                effect.fit_refused = self.take_fit(Some(*arm), fit).err();
            }
            Event::StartExperiment { name, salt, arms } => {
                self.start_experiment(stamp.at, name, *salt, arms);
                effect.changed_policies = true;
            }
            Event::EndExperiment { winner, .. } => {
                self.end_experiment(stamp.at, winner);
                effect.changed_policies = true;
            }
            Event::Expire { before } => self.expire(*before),
        }
        self.events += 1;
    }

    fn expect(&mut self, users: u64) {
        self.expected = users;
        if let Some(dim) = self.dim() {
            let policy = self.make(dim).expect("admit() checks the number of users");
            self.learned.as_mut().expect("it has a dimension").policy = policy;
            self.remake_arms();
        }
    }

    fn upsert(&mut self, id: &str, features: &[f64], description: Option<Description>) {
        if self.learned.is_none() {
            self.begin(features.len())
                .expect("admit() checks the dimension");
        }
        if let Some(learned) = &mut self.learned {
            learned
                .catalogue
                .upsert(id, features, description)
                .expect("admit() checks items");
        }
    }

    /// Begins a round with rewards of these users, on items of `dim` features. Returns its number and the
    /// numbers of the users; `None` if there is no policy yet, and the round only counts.
    fn begin_round<'a>(
        &mut self,
        at: u64,
        dim: Option<usize>,
        users: impl Iterator<Item = &'a str>,
    ) -> Option<(u64, Vec<u32>)> {
        if let (None, Some(dim)) = (&self.learned, dim) {
            self.begin(dim).expect("admit() checks the dimension");
        }
        self.rounds += 1;
        if self.learned.is_none() {
            self.idle += 1;
            return None;
        }
        let next = self.rounds;
        let numbers = users.map(|user| self.users.admit(user, at, next));
        Some((next, numbers.collect()))
    }

    fn learn(&mut self, at: u64, round: &[Reward], effect: &mut Effect) {
        let context = &self.identity.context;
        let dim = round.first().map(|r| context.split(&r.features).0.len());
        let users = round.iter().map(|reward| &*reward.user);
        let Some((next, numbers)) = self.begin_round(at, dim, users) else {
            return;
        };
        let has_ids = self.identity.policy.can.item_ids;
        let context = &self.identity.context;
        let features: Vec<Cow<'_, [f64]>> = round
            .iter()
            .map(|reward| context.join(&reward.features))
            .collect();
        let observations: Vec<Observation<'_>> = round
            .iter()
            .zip(&numbers)
            .zip(&features)
            .map(|((reward, &number), features)| Observation {
                user: UserId::from(number),
                item: features,
                id: has_ids.then(|| item_id(&reward.item)),
                reward: reward.reward,
            })
            .collect();
        let mut changes = Vec::new();
        let learned = self.learned.as_mut().expect("the round has begun");
        learned
            .policy
            .learn_round(&observations, &mut changes)
            .expect("admit() checks all that a policy does");
        for policy in own_policies(&mut self.experiments) {
            policy
                .learn_round(&observations, &mut Vec::new())
                .expect("admit() checks all that a policy does");
        }
        for (reward, &user) in round.iter().zip(&numbers) {
            self.count(user, reward.number, reward.clock, reward.reward, effect);
            self.count_for_arm(user, &reward.user, reward.event, reward.reward);
        }
        for change in &changes {
            self.record(at, next, change, effect);
        }
    }

    fn learn_assumed(
        &mut self,
        at: u64,
        round: &[Reward],
        assumed: &[bool],
        corrected: &[Reward],
        effect: &mut Effect,
    ) {
        for reward in corrected {
            self.correct(at, reward, effect);
        }
        if !round.is_empty() {
            self.learn(at, round, effect);
        }
        for (reward, _) in round.iter().zip(assumed).filter(|(_, assumed)| **assumed) {
            self.assumed
                .insert(reward.number, reward.clock, reward.reward);
        }
    }

    /// Puts a reward in place of an assumed one. It is not another round.
    fn correct(&mut self, at: u64, reward: &Reward, effect: &mut Effect) {
        let from = self.assumed.take(reward.number);
        let from = from.expect("admit() checks that it is assumed");
        let is_new = self.unlearned.remove(reward.number);
        let number = self.users.number(&reward.user);
        let number = number.expect("admit() checks the user");
        let features = self.identity.context.join(&reward.features).into_owned();
        let has_ids = self.identity.policy.can.item_ids;
        let observation = Observation {
            user: UserId::from(number),
            item: &features,
            id: has_ids.then(|| item_id(&reward.item)),
            reward: reward.reward,
        };
        let mut changes = Vec::new();
        let learned = self.learned.as_mut().expect("a reward was learned");
        replace(
            &mut learned.policy,
            &observation,
            (!is_new).then_some(from),
            &mut changes,
        );
        self.correct_arms(number, reward, &observation, from);
        let change = reward.reward - from;
        self.reward_sum += change;
        effect.reward_sum += change;
        if let Some(user) = self.users.get_mut(number) {
            user.reward_sum += change;
        }
        for change in &changes {
            self.record(at, self.rounds, change, effect);
        }
    }

    fn learn_lists(&mut self, at: u64, lists: &[RewardedList], effect: &mut Effect) {
        let first = lists.first().and_then(|list| list.items.first());
        let dim = first.map(|item| item.features.len());
        let users = lists.iter().map(|list| &*list.user);
        let Some((next, numbers)) = self.begin_round(at, dim, users) else {
            return;
        };
        let has_ids = self.identity.policy.can.item_ids;
        let context = &self.identity.context;
        let features: Vec<Cow<'_, [f64]>> = lists
            .iter()
            .flat_map(|list| list.items.iter().map(|item| (item, &list.context)))
            .map(|(item, of_request)| context.join_parts(&item.features, of_request))
            .collect();
        let items: Vec<Shown<'_>> = lists
            .iter()
            .flat_map(|list| &list.items)
            .zip(&features)
            .map(|(item, features)| Shown {
                item: features,
                id: has_ids.then(|| item_id(&item.item)),
                reward: item.reward,
            })
            .collect();
        let mut rest = &items[..];
        let mut round = Vec::with_capacity(lists.len());
        for (list, &number) in lists.iter().zip(&numbers) {
            let (own, others) = rest.split_at(list.items.len());
            rest = others;
            round.push(List {
                user: UserId::from(number),
                items: own,
                looked_at: list.looked_at,
            });
        }
        let mut changes = Vec::new();
        let learned = self.learned.as_mut().expect("the round has begun");
        learned
            .policy
            .learn_lists(&round, &mut changes)
            .expect("admit() checks all that a policy does");
        for policy in own_policies(&mut self.experiments) {
            policy
                .learn_lists(&round, &mut Vec::new())
                .expect("admit() checks all that a policy does");
        }
        for (list, &user) in lists.iter().zip(&numbers) {
            for (number, _, reward) in list.rewards() {
                self.count(user, number, list.clock, reward, effect);
                self.count_for_arm(user, &list.user, list.event, reward);
            }
        }
        for change in &changes {
            self.record(at, next, change, effect);
        }
    }

    /// Counts a reward that was learned, for the item shown with a number.
    fn count(&mut self, user: u32, number: u64, clock: u64, reward: f64, effect: &mut Effect) {
        self.answered.insert(number, clock);
        self.rewards += 1;
        self.reward_sum += reward;
        effect.rewards += 1;
        effect.reward_sum += reward;
        if let Some(user) = self.users.get_mut(user) {
            user.rewards += 1;
            user.reward_sum += reward;
        }
    }

    /// Records a split or merge that a round caused.
    fn record(&mut self, at: u64, round: u64, change: &Change, effect: &mut Effect) {
        let user = match *change {
            Change::Split { user, .. } | Change::Merge { user, .. } => user,
        };
        let user = u32::try_from(user).unwrap_or(NO_USER);
        let record = self.history.note(at, round, user, change);
        if let What::Split { .. } = record.what
            && let Some(user) = self.users.get_mut(user)
        {
            user.split = Some(Box::new(record));
        }
        effect.changes.push(record);
    }

    /// Takes a fit, or returns the reason why the policy refused it. A refused fit changes nothing, live and
    /// in replay.
    fn take_fit(&mut self, arm: Option<u32>, fit: &[u8]) -> Result<(), String> {
        if let Some(arm) = arm {
            let running = self.experiments.running.as_mut();
            let arm = running.and_then(|running| running.arms.get_mut(arm as usize));
            let policy = arm.and_then(|arm| arm.policy.as_mut());
            let policy = policy.ok_or("there is no such arm")?;
            return policy.take_fit(fit).map_err(|error| error.to_string());
        }
        match &mut self.learned {
            Some(learned) => learned
                .policy
                .take_fit(fit)
                .map_err(|error| error.to_string()),
            None => Err("there is no policy yet: the number of features is unknown".to_owned()),
        }
    }

    /// Forgets a user. Returns true if the user had given a reward.
    fn forget(&mut self, user: &str) -> bool {
        let forgotten = Forgotten {
            event: self.events + 1,
            clock: self.clock,
        };
        self.forgotten
            .insert(self.sealer.fingerprint(user), forgotten);
        let Some(number) = self.users.dismiss(user) else {
            return false;
        };
        self.history.forget(number);
        (self.rewards, self.reward_sum) = self.users.rewards();
        if let Some(learned) = &mut self.learned {
            learned.policy.forget(UserId::from(number));
        }
        for policy in self.own_policies() {
            policy.forget(UserId::from(number));
        }
        if let Some(running) = &mut self.experiments.running {
            running.counts.forget(number);
        }
        true
    }

    /// Drops data that only decisions made before a service-clock time need.
    fn expire(&mut self, before: u64) {
        self.horizon = self.horizon.max(before);
        self.answered.prune(before);
        self.assumed.prune(before);
        self.unlearned.prune(before);
        if let Some(running) = &mut self.experiments.running {
            running.counts.assumed_before.prune(before);
        }
        // A decision may be made after the stamp of a request to forget and before it is applied.
        self.forgotten
            .retain(|_, forgotten| forgotten.clock.saturating_add(FORGOTTEN_SLACK) >= before);
        if let Some(learned) = &mut self.learned {
            learned.catalogue.prune(before);
        }
    }
}
