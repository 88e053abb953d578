//! A model of the contents of a folder, from requests and answers alone.
//!
//! A call takes effect between its begin and its end, or not at all if it was refused. A call without an
//! answer may have taken effect until the process died. So the expected state is a range. It becomes exact
//! once every call was repeated until it was answered.

mod items;
mod rewards;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use items::Items;
use rewards::Rewards;

/// Counts up with everything that begins or ends in a run.
pub type Tick = u64;

/// A call that a [`Model`] keeps account of.
pub type CallId = u64;

/// A decision, by its place in the world's list.
pub type DecisionId = usize;

/// A request that changes what is known.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    Feedback(Vec<SentReward>),
    Upsert(Vec<(String, Vec<f64>)>),
    Remove(String),
    Forget(String),
}

/// A reward for an item that was shown.
#[derive(Debug, Clone, PartialEq)]
pub struct SentReward {
    pub decision: DecisionId,
    /// The user it was shown to.
    pub user: String,
    /// The time of the decision.
    pub made: Tick,
    pub item: String,
    pub reward: f64,
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    /// For each reward, true if it was new.
    Applied(Vec<bool>),
    /// The number of items that were changed, or 1 if an item was removed or a known user forgotten.
    Changed(usize),
    /// It had no effect and never will.
    Refused,
    /// It may have taken effect or not.
    Unknown,
}

/// The possible range of the number and the sum of a user's rewards.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tally {
    pub least: u64,
    pub most: u64,
    pub low: f64,
    pub high: f64,
}

/// The state of a decision: rewards for it are accepted or not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Life {
    Alive,
    /// Its user was forgotten.
    Dead,
    /// Its user may have been forgotten.
    Unsure,
}

/// The model of a folder.
#[derive(Debug, Clone, Default)]
pub struct Model {
    calls: BTreeMap<CallId, Call>,
    last_call: CallId,
    /// Every call that was ever begun, for copies made meanwhile.
    begun: Vec<Ask>,
    rewards: Rewards,
    items: Items,
    users: BTreeMap<String, User>,
    /// Decisions that were answered, and the begin of the last call that was.
    alive: BTreeMap<DecisionId, Tick>,
    /// Decisions that were refused because their user was forgotten.
    dead: BTreeMap<DecisionId, Tick>,
    /// Begin and end of what certainly changed the state, and of restarts.
    events: Vec<(Tick, Tick)>,
    /// Begin of the last compaction that was acknowledged.
    compacted: Tick,
}

/// In flight, or given up by who asked.
#[derive(Debug, Clone)]
struct Call {
    ask: Ask,
    begin: Tick,
}

#[derive(Debug, Clone, Default)]
struct User {
    forgets: Vec<Forget>,
    /// Last decision made for the user.
    recommended: Tick,
    /// Last time that the user's id may have been written.
    mentioned: Tick,
}

/// A request to forget that was not refused.
#[derive(Debug, Clone)]
struct Forget {
    call: CallId,
    begin: Tick,
    /// None while it may still have effect.
    end: Option<Tick>,
    is_certain: bool,
}

impl Model {
    /// A decision was made for a user.
    pub fn recommended(&mut self, user: &str, now: Tick) {
        let user = self.users.entry(user.to_owned()).or_default();
        user.recommended = now;
        user.mentioned = now;
    }

    /// A call begins.
    pub fn begin(&mut self, ask: Ask, now: Tick) -> CallId {
        self.last_call += 1;
        let call = self.last_call;
        self.begun.push(ask.clone());
        match &ask {
            Ask::Feedback(sent) => self.rewards.begin(call, sent),
            Ask::Upsert(items) => {
                for (id, features) in items {
                    self.items.begin(call, id, Some(features.clone()), now);
                }
            }
            Ask::Remove(id) => self.items.begin(call, id, None, now),
            Ask::Forget(id) => {
                let user = self.users.entry(id.clone()).or_default();
                user.forgets.push(Forget {
                    call,
                    begin: now,
                    end: None,
                    is_certain: false,
                });
            }
        }
        self.calls.insert(call, Call { ask, begin: now });
        call
    }

    /// A call ends.
    ///
    /// # Errors
    /// If this result is not possible.
    pub fn end(&mut self, id: CallId, end: &End, now: Tick) -> Result<(), String> {
        let call = self.calls.remove(&id).expect("a call ends once");
        if *end != End::Refused {
            for user in call.users() {
                self.users.entry(user.to_owned()).or_default().mentioned = now;
            }
        }
        let mut has_changed = matches!(end, End::Changed(count) if *count > 0);
        match &call.ask {
            Ask::Feedback(sent) => {
                if let End::Applied(applied) = end {
                    has_changed = applied.contains(&true);
                    for sent in sent {
                        self.check_alive(sent, call.begin)?;
                        self.alive.insert(sent.decision, call.begin);
                        // The decision may have been made by the folder that this is a copy of.
                        let user = self.users.entry(sent.user.clone()).or_default();
                        user.recommended = user.recommended.max(sent.made);
                    }
                }
                self.rewards.end(id, sent, end)?;
            }
            Ask::Upsert(items) => {
                if let End::Changed(count) = end
                    && *count > items.len()
                {
                    return Err(format!("{count} of {} items were changed", items.len()));
                }
                for (item, _) in items {
                    self.items.end(id, item, end, now);
                }
            }
            Ask::Remove(item) => {
                if let End::Changed(count) = end {
                    self.items.check_removed(id, item, *count > 0)?;
                }
                self.items.end(id, item, end, now);
            }
            Ask::Forget(user) => {
                let user = self.users.entry(user.clone()).or_default();
                match end {
                    End::Refused => {
                        user.forgets.retain(|forget| forget.call != id);
                        // The disk refused it: its bytes may be there, void, until the next compaction.
                        user.mentioned = now;
                    }
                    _ => {
                        let forgets = user.forgets.iter_mut();
                        for forget in forgets.filter(|forget| forget.call == id) {
                            // If it is unknown, it may still be found in the log at the next start.
                            forget.end = (*end != End::Unknown).then_some(now);
                            forget.is_certain = *end != End::Unknown;
                        }
                    }
                }
            }
        }
        if has_changed {
            self.events.push((call.begin, now));
        }
        Ok(())
    }

    /// The process died, or is known to be idle: no call in flight will have effect any more.
    pub fn settle_calls(&mut self, now: Tick) {
        let calls: Vec<CallId> = self.calls.keys().copied().collect();
        for &call in &calls {
            let ended = self.end(call, &End::Unknown, now);
            ended.expect("not to know is never wrong");
        }
        for forget in self.users.values_mut().flat_map(|user| &mut user.forgets) {
            if calls.contains(&forget.call) {
                forget.end = Some(now);
            }
        }
    }

    /// Calls that have not ended.
    pub fn in_flight(&self) -> usize {
        self.calls.len()
    }

    /// The folder was opened.
    pub fn restarted(&mut self, now: Tick) {
        let in_flight = &self.calls;
        for forget in self.users.values_mut().flat_map(|user| &mut user.forgets) {
            if forget.end.is_none() && !in_flight.contains_key(&forget.call) {
                forget.end = Some(now);
            }
        }
        self.events.push((now, now));
    }

    /// A compaction was acknowledged.
    pub fn compacted(&mut self, begin: Tick) {
        self.compacted = self.compacted.max(begin);
    }

    /// A decision was refused because its user was forgotten.
    ///
    /// # Errors
    /// If that is not so.
    pub fn refused_as_forgotten(&mut self, sent: &SentReward, now: Tick) -> Result<(), String> {
        if self.life(sent.decision, &sent.user, sent.made) == Life::Alive {
            return Err(format!(
                "a reward was refused since user {} was forgotten; that was not so",
                sent.user
            ));
        }
        self.dead.entry(sent.decision).or_insert(now);
        Ok(())
    }

    fn check_alive(&self, sent: &SentReward, begin: Tick) -> Result<(), String> {
        let forgets = self.users.get(&sent.user).map(|user| &*user.forgets);
        let is_forgotten = forgets.unwrap_or_default().iter().any(|forget| {
            forget.is_certain
                && forget.begin > sent.made
                && forget.end.is_some_and(|end| end < begin)
        });
        // An answer may come late: only what was asked after the refusal is wrong.
        let dead = self.dead.get(&sent.decision);
        if is_forgotten || dead.is_some_and(|&since| since < begin) {
            return Err(format!(
                "a reward for decision {} was taken, and its user {} was forgotten before",
                sent.decision, sent.user
            ));
        }
        Ok(())
    }

    /// The state of a decision: rewards for it are accepted or not.
    pub fn life(&self, decision: DecisionId, user: &str, made: Tick) -> Life {
        let Some(user) = self.users.get(user) else {
            return Life::Alive;
        };
        let mut forgets = user.forgets.iter();
        let is_dead = forgets.any(|forget| forget.is_certain && forget.begin > made);
        if is_dead || self.dead.contains_key(&decision) {
            return Life::Dead;
        }
        // An answer shows that it was alive when that was asked.
        let alive = self.alive.get(&decision).copied().unwrap_or(0).max(made);
        let mut forgets = user.forgets.iter();
        match forgets.any(|forget| forget.end.is_none_or(|end| end > alive)) {
            true => Life::Unsure,
            false => Life::Alive,
        }
    }

    /// The possible range of each user's rewards.
    pub fn tallies(&self) -> BTreeMap<String, Tally> {
        self.rewards
            .tallies(|decision, user, made| self.life(decision, user, made))
    }

    /// Compares the users of a folder, with number and sum of their rewards, with what must be. If rewards of 0 are
    /// assumed, `shown` has the number of items that each user may have been shown: each has one reward at most.
    ///
    /// # Errors
    /// Names a user who is otherwise.
    pub fn check_users(
        &self,
        users: &BTreeMap<String, (u64, f64)>,
        shown: Option<&BTreeMap<String, u64>>,
    ) -> Result<(), String> {
        let mut expected = self.tallies();
        for (user, (count, sum)) in users {
            let mut tally = expected.remove(user).unwrap_or_default();
            if let Some(shown) = shown {
                tally.most = tally.most.max(shown.get(user).copied().unwrap_or(0));
            }
            let rounding = 1e-14 * sum.abs();
            let slack = (1e-9 + rounding) * (1.0 + *count as f64);
            let is_count = (tally.least..=tally.most).contains(count) && *count > 0;
            let is_sum = (tally.low - slack..=tally.high + slack).contains(sum);
            if !is_count || !is_sum {
                return Err(format!(
                    "user {user} has {count} rewards of {sum}, and must have {tally:?}"
                ));
            }
        }
        match expected.iter().find(|(_, tally)| tally.least > 0) {
            Some((user, tally)) => Err(format!("user {user} is gone, and must have {tally:?}")),
            None => Ok(()),
        }
    }

    /// Compares a catalogue with what must be.
    ///
    /// # Errors
    /// Names an item that is otherwise.
    pub fn check_catalogue(&self, catalogue: &BTreeMap<String, Vec<f64>>) -> Result<(), String> {
        self.items.check(catalogue)
    }

    /// True if an item may be there, and true if it may be absent.
    pub fn may_be(&self, item: &str) -> (bool, bool) {
        self.items.may_be(item)
    }

    /// Items whose features are not certain.
    pub fn unsure_items(&self) -> Vec<String> {
        self.items.unsure()
    }

    /// All items ever named.
    pub fn item_names(&self) -> impl Iterator<Item = &String> {
        self.items.names()
    }

    /// Every reward that was sent and not refused, and whether it was acknowledged.
    pub fn sent(&self) -> Vec<(SentReward, bool)> {
        self.rewards.sent()
    }

    /// The minimum and maximum number of lines with each value in an export. Forgotten users may be there or
    /// not.
    pub fn export_counts(&self) -> BTreeMap<u64, ExportLine> {
        self.rewards
            .export_counts(|decision, user, made| self.life(decision, user, made))
    }

    /// Users of whom nothing may be left in any file: forgotten, not seen since, and compacted.
    pub fn gone(&self) -> impl Iterator<Item = &String> {
        let mentioned: BTreeSet<&str> = self.calls.values().flat_map(Call::users).collect();
        self.users.iter().filter_map(move |(id, user)| {
            let forgets = user.forgets.iter();
            let certain = forgets.filter(|forget| forget.is_certain);
            let forgotten = certain.map(|forget| forget.begin).max()?;
            let is_gone = user.recommended < forgotten
                && user.mentioned < self.compacted
                && !mentioned.contains(id.as_str());
            is_gone.then_some(id)
        })
    }

    /// Returns true if a call certainly took effect in the folder after one tick and before another.
    pub fn has_event_between(&self, after: Tick, before: Tick) -> bool {
        let mut events = self.events.iter();
        events.any(|&(begin, end)| begin > after && end < before)
    }

    /// The account of a copy that was taken while calls went on: `self` is the account when it began,
    /// `original` that of the folder now. What happened meanwhile may be in the copy or not.
    pub fn into_copy(mut self, original: &Model, now: Tick) -> Model {
        for ask in &original.begun[self.begun.len()..] {
            self.begin(ask.clone(), now);
        }
        for (id, user) in &original.users {
            let own = self.users.entry(id.clone()).or_default();
            own.recommended = own.recommended.max(user.recommended);
            own.mentioned = own.mentioned.max(user.mentioned);
        }
        self.settle_calls(now);
        self.events.clear();
        self
    }
}

impl Call {
    /// Users whose ids a call may write.
    fn users(&self) -> Vec<&str> {
        match &self.ask {
            Ask::Feedback(sent) => sent.iter().map(|sent| sent.user.as_str()).collect(),
            Ask::Forget(user) => vec![user],
            Ask::Upsert(_) | Ask::Remove(_) => Vec::new(),
        }
    }
}

/// A reward as it may be in an export.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportLine {
    pub user: String,
    pub item: String,
    /// Returns true if it must be there.
    pub is_certain: bool,
}
