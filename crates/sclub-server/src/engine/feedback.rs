//! Feedback: from the rewards of a request to a round in the log.
//!
//! [`Engine::feedback`] opens the decisions, on the thread of the request. [`prepare_round`] makes the event,
//! on the thread of the owner: it leaves out rewards that were learned before, and looks up the features of
//! the items.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::owner::{Command, Done};
use super::{Engine, Refusal};
use crate::decision::{DecisionContents, Features, epoch_of};
use crate::event::{Event, ListItem, Reward, RewardedList};
use crate::settings::Settings;
use crate::state::{Ahead, Catalogue, State};
use crate::store::Origin;

/// The maximum number of feature values in a round of several entries: 8 MiB. Rewards of a policy that learns
/// from lists are logged with all items shown, and `others` is a reward for each of them, so a small request can make a
/// large event.
const MAX_ROUND_VALUES: usize = 1 << 20;

/// The rewards of a decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Feedback<'a> {
    /// The decision.
    pub decision: &'a str,
    /// The rewards.
    pub rewards: Rewards<'a>,
    /// The reward of all other items of the list.
    pub others: Option<f64>,
}

/// The reward of one item, or of a list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rewards<'a> {
    /// The reward of one item.
    Item {
        /// The id of the item; by default the first item shown.
        item: Option<&'a str>,
        /// The reward.
        reward: f64,
    },
    /// The rewards of the items shown, in order from the first, as far as the user looked.
    List(&'a [f64]),
}

impl Rewards<'_> {
    /// The number of rewards.
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    fn as_slice(&self) -> &[f64] {
        match self {
            Rewards::Item { reward, .. } => std::slice::from_ref(reward),
            Rewards::List(rewards) => rewards,
        }
    }
}

impl<'a> Feedback<'a> {
    /// The reward of one item, by default the first item shown.
    pub fn of_item(decision: &'a str, item: Option<&'a str>, reward: f64) -> Self {
        let rewards = Rewards::Item { item, reward };
        Self {
            decision,
            rewards,
            others: None,
        }
    }

    /// The rewards of a list.
    pub fn of_list(decision: &'a str, rewards: &'a [f64]) -> Self {
        let rewards = Rewards::List(rewards);
        Self {
            decision,
            rewards,
            others: None,
        }
    }

    /// The same, with a reward for all other items of the list.
    pub fn with_others(self, others: f64) -> Self {
        Self {
            others: Some(others),
            ..self
        }
    }
}

/// A round, before the rewards that were learned before are left out.
#[derive(Debug)]
pub(super) enum Round {
    Items(Vec<ItemAnswer>),
    /// Of a policy that learns from lists.
    Lists(Vec<ListAnswer>),
}

impl Round {
    /// Returns true if an event that is not applied yet assumes a reward that the round has. The round must wait: its
    /// reward replaces the assumed one.
    pub fn must_wait(&self, ahead: &Ahead) -> bool {
        match self {
            Round::Items(answers) => answers.iter().any(|answer| ahead.assumes(answer.number)),
            Round::Lists(_) => false,
        }
    }

    /// The approximate length of its event in the log, in bytes, at most. `dim` is the number of features of an item of the
    /// catalogue.
    pub fn max_size(&self, dim: usize) -> usize {
        let values = |features: &Features| match features {
            Features::Inline(features) => features.len(),
            Features::Catalogue(_) => dim,
        };
        match self {
            Round::Items(answers) => answers
                .iter()
                .map(|a| (values(&a.features) + a.context.len()) * 8 + a.user.len() + a.item.len())
                .map(|bytes| bytes + 64)
                .sum(),
            Round::Lists(answers) => answers
                .iter()
                .map(|answer| {
                    let decision = &answer.decision;
                    let shown = decision.shown.iter();
                    let items = shown.map(|s| values(&s.features) * 8 + s.item.len() + 32);
                    items.sum::<usize>() + decision.context.len() * 8 + decision.user.len() + 64
                })
                .sum(),
        }
    }
}

/// The reward of an item whose features may still be in the catalogue.
#[derive(Debug)]
pub(super) struct ItemAnswer {
    /// The place of its entry in the request. The items of a list share one.
    entry: usize,
    number: u64,
    user: String,
    item: String,
    features: Features,
    context: Vec<f64>,
    score: f64,
    cluster: u64,
    decided: u64,
    clock: u64,
    event: u64,
    reward: f64,
    /// True if nobody has sent it. One that is sent later replaces it, if the policy can correct a reward.
    is_assumed: bool,
}

/// The rewards of a list, in order from `first`.
#[derive(Debug)]
pub(super) struct ListAnswer {
    /// The place of its entry in the request.
    entry: usize,
    decision: DecisionContents<'static>,
    first: usize,
    rewards: Vec<f64>,
    /// The places of the items whose rewards were sent; those of others are for all others.
    sent: Range<usize>,
    looked_at: Option<usize>,
}

impl Engine {
    /// Learns the rewards of a decision. Returns true if one of them was new.
    ///
    /// # Errors
    /// If they are refused.
    pub async fn feedback(&self, given: &Feedback<'_>) -> Result<bool, Refusal> {
        let applied = self.feedback_batch(std::slice::from_ref(given)).await;
        Ok(applied.map_err(Refusal::alone)?.contains(&true))
    }

    /// Learns one round of rewards. Returns true for each entry with a reward that was new.
    ///
    /// # Errors
    /// If one of them is refused; then none is learned.
    pub async fn feedback_batch(&self, round: &[Feedback<'_>]) -> Result<Vec<bool>, Refusal> {
        let mut entries = Vec::with_capacity(round.len());
        let answers = match self.shared.has_lists && !round.is_empty() {
            false => {
                let mut answers = Vec::with_capacity(round.len());
                self.open_decisions(round, |opened| opened.items(&mut answers))?;
                self.check_size(round.len(), answers.len())?;
                entries.extend(answers.iter().map(|answer: &ItemAnswer| answer.entry));
                Round::Items(answers)
            }
            true => {
                let mut answers = Vec::with_capacity(round.len());
                self.open_decisions(round, |opened| answers.push(opened.list()))?;
                let shown = answers.iter().map(|a: &ListAnswer| a.decision.shown.len());
                self.check_size(round.len(), shown.sum())?;
                entries.extend(answers.iter().map(|answer: &ListAnswer| answer.entry));
                Round::Lists(answers)
            }
        };
        let Done::Applied(applied) = self.shared.ask(Command::Learn(answers)).await? else {
            return Err(Refusal::Closing);
        };
        let mut is_new = vec![false; round.len()];
        for (entry, applied) in entries.into_iter().zip(applied) {
            is_new[entry] |= applied;
        }
        Ok(is_new)
    }

    /// Validates rewards, as far as that is possible without writing.
    ///
    /// # Errors
    /// As [`Engine::feedback`].
    pub fn check(&self, given: &Feedback<'_>) -> Result<(), Refusal> {
        self.open_decision(0, given, |_| ())
    }

    /// Opens the decisions of a round.
    fn open_decisions(
        &self,
        round: &[Feedback<'_>],
        mut take: impl FnMut(Opened<'_>),
    ) -> Result<(), Refusal> {
        for (entry, given) in round.iter().enumerate() {
            self.open_decision(entry, given, &mut take)
                .map_err(|refusal| refusal.within("feedback", entry))?;
        }
        Ok(())
    }

    /// Opens a decision and validates its rewards.
    fn open_decision(
        &self,
        entry: usize,
        given: &Feedback<'_>,
        take: impl FnOnce(Opened<'_>),
    ) -> Result<(), Refusal> {
        let shared = &self.shared;
        let rewards = given.rewards.as_slice();
        let (item, is_list) = match given.rewards {
            Rewards::Item { item, .. } => (item, false),
            Rewards::List(_) => (None, true),
        };
        let Settings {
            reward_min,
            reward_max,
            ..
        } = shared.settings;
        let range = format!("it must be from {reward_min} to {reward_max}");
        if let Some(others) = given.others
            && !(reward_min..=reward_max).contains(&others)
        {
            let message = format!("the reward is {others}; {range}");
            return Err(Refusal::invalid("others", message));
        }
        for (place, reward) in rewards.iter().enumerate() {
            if !(reward_min..=reward_max).contains(reward) {
                let message = format!("the reward is {reward}; {range}");
                return Err(match is_list {
                    false => Refusal::invalid("reward", message),
                    true => Refusal::invalid(format!("rewards[{place}]"), message),
                });
            }
        }
        if rewards.is_empty() && given.others.is_none() {
            let message = "there are no rewards; give one for each item that the user looked at";
            return Err(Refusal::invalid("rewards", message));
        }
        let encoded = shared.sealer.open(given.decision);
        let encoded = encoded.ok_or(Refusal::UnknownDecision)?;
        let mut decision = DecisionContents::decode(&encoded).ok_or(Refusal::UnknownDecision)?;
        let term = shared.term()?;
        let current = term.epochs.current().map_or(0, |epoch| epoch.number);
        decision.clock = match term.epochs.origin(&decision) {
            Origin::Own { clock } => clock,
            // Another node has led since, and knows it.
            Origin::OtherCopy if shared.is_replicated && epoch_of(decision.number) > current => {
                return Err(Refusal::Moved);
            }
            Origin::OtherCopy => return Err(Refusal::OtherCopy),
            Origin::Forgotten => return Err(Refusal::Expired),
        };
        if shared.clock() > decision.clock.saturating_add(shared.lifetime()) {
            return Err(Refusal::Expired);
        }
        let first = match item {
            None => 0,
            Some(id) => decision
                .shown
                .iter()
                .position(|shown| shown.item == id)
                .ok_or_else(|| Refusal::UnknownItem {
                    id: id.to_owned(),
                    place: "in the decision",
                    field: "item",
                })?,
        };
        if decision.shown.is_empty() {
            return Err(Refusal::UnknownDecision);
        }
        let (shown, sent) = (decision.shown.len() - first, rewards.len());
        if sent > shown {
            let message = format!("there are {sent} rewards for {shown} items shown");
            return Err(Refusal::invalid("rewards", message));
        }
        let mut opened = Opened {
            entry,
            first,
            rewards: rewards.into(),
            sent: first..first + sent,
            looked_at: is_list.then_some(sent),
            decision,
        };
        if let Some(others) = given.others {
            let mut all = vec![others; opened.decision.shown.len()];
            all[opened.sent.clone()].copy_from_slice(rewards);
            opened.looked_at = Some(all.len());
            opened.first = 0;
            opened.rewards = all.into();
        }
        take(opened);
        Ok(())
    }

    /// Checks the number of feature values of the items in a round.
    fn check_size(&self, entries: usize, items: usize) -> Result<(), Refusal> {
        let state = self.shared.read();
        let catalogue = self.shared.catalogue_of(&state);
        let dim = catalogue
            .get()
            .map_or(1, |catalogue| catalogue.items().dim());
        if entries > 1 && items.saturating_mul(dim) > MAX_ROUND_VALUES {
            let message = format!(
                "the lists of the batch have {items} items of {dim} features; at most {MAX_ROUND_VALUES} \
                 feature values are allowed; send them in several batches"
            );
            return Err(Refusal::invalid("feedback", message));
        }
        Ok(())
    }
}

/// Valid feedback, with the contents of its decision.
struct Opened<'a> {
    entry: usize,
    decision: DecisionContents<'a>,
    /// The place of the item that the first reward is for.
    first: usize,
    rewards: Cow<'a, [f64]>,
    /// The places of the items whose rewards were sent. Those of others are assumed.
    sent: Range<usize>,
    looked_at: Option<usize>,
}

impl Opened<'_> {
    /// Adds an answer for each reward.
    fn items(self, answers: &mut Vec<ItemAnswer>) {
        let decision = self.decision;
        let shown = decision.shown.into_iter().enumerate().skip(self.first);
        for ((place, shown), &reward) in shown.zip(&*self.rewards) {
            answers.push(ItemAnswer {
                entry: self.entry,
                number: decision.number + place as u64,
                user: decision.user.clone().into_owned(),
                item: shown.item.into_owned(),
                features: shown.features,
                context: decision.context.clone(),
                score: shown.score,
                cluster: decision.cluster,
                decided: decision.at,
                clock: decision.clock,
                event: decision.event,
                reward,
                is_assumed: !self.sent.contains(&place),
            });
        }
    }

    /// One answer for the list.
    fn list(self) -> ListAnswer {
        ListAnswer {
            entry: self.entry,
            decision: self.decision.into_owned(),
            first: self.first,
            rewards: self.rewards.into_owned(),
            sent: self.sent,
            looked_at: self.looked_at,
        }
    }
}

/// The event of a round, without the rewards that were learned before; `None` if there are no others. The
/// result has one value for each answer.
pub(super) fn prepare_round(
    state: &State,
    catalogue: Option<&Catalogue>,
    ahead: &mut Ahead,
    round: Round,
) -> Result<(Option<Event>, Done), Refusal> {
    let within = |refusal: Refusal, entry: usize| refusal.within("feedback", entry);
    let is_idle = matches!(&round, Round::Items(answers) if answers.is_empty());
    let Selected {
        event,
        entries,
        applied,
    } = match round {
        Round::Items(answers) => new_items(state, catalogue, ahead, answers),
        Round::Lists(answers) => new_lists(state, catalogue, ahead, answers),
    }
    .map_err(|(entry, refusal)| within(refusal, entry))?;
    if entries.is_empty() && !is_idle {
        return Ok((None, Done::Applied(applied)));
    }
    state.admit(&event, ahead).map_err(|rejected| {
        let entry = entries.get(rejected.entry).copied().unwrap_or(0);
        within(rejected.reason, entry)
    })?;
    Ok((Some(event), Done::Applied(applied)))
}

/// The rewards of a round that are new.
struct Selected {
    event: Event,
    /// For each reward of the event, the place of its entry in the request.
    entries: Vec<usize>,
    /// For each answer, true if it has a reward that is new.
    applied: Vec<bool>,
}

/// The rewards that are new. Errors have the place of an entry in the request.
fn new_items(
    state: &State,
    catalogue: Option<&Catalogue>,
    ahead: &Ahead,
    answers: Vec<ItemAnswer>,
) -> Result<Selected, (usize, Refusal)> {
    let mut applied = Vec::with_capacity(answers.len());
    let mut round: Vec<Reward> = Vec::with_capacity(answers.len());
    // For each reward of the round, true if nobody has sent it.
    let mut unsent: Vec<bool> = Vec::with_capacity(answers.len());
    let mut corrected: Vec<Reward> = Vec::new();
    // The places of rewards in the round, and the corrected ones, by number.
    let mut places: HashMap<u64, usize> = HashMap::with_capacity(answers.len());
    let mut is_corrected: HashSet<u64> = HashSet::new();
    let (mut entries, mut of_corrected) = (Vec::with_capacity(answers.len()), Vec::new());
    for answer in answers {
        let entry = answer.entry;
        let number = answer.number;
        // Checked before repeats: earlier rewards of a forgotten user leave no trace.
        if state.is_forgotten(&answer.user, answer.event) {
            return Err((entry, Refusal::Forgotten));
        }
        let is_sent = !answer.is_assumed;
        if let Some(&place) = places.get(&number) {
            // A reward that was sent counts, in place of one that the same request assumes.
            let replaces = unsent[place] && is_sent;
            if replaces {
                round[place].reward = answer.reward;
                unsent[place] = false;
                entries[place] = entry;
            }
            applied.push(replaces);
            continue;
        }
        let is_learned = state.answered().contains(number) || ahead.contains(number);
        let is_correction = is_learned
            && is_sent
            && state.assumed().get(number).is_some()
            && !ahead.corrects(number)
            && !is_corrected.contains(&number);
        applied.push(!is_learned || is_correction);
        if is_learned && !is_correction {
            continue;
        }
        let reward = reward(catalogue, answer).map_err(|refusal| (entry, refusal))?;
        if is_correction {
            is_corrected.insert(number);
            corrected.push(reward);
            of_corrected.push(entry);
        } else {
            places.insert(number, round.len());
            round.push(reward);
            unsent.push(!is_sent);
            entries.push(entry);
        }
    }
    entries.extend(of_corrected);
    // With a policy that cannot correct it, a reward that nobody has sent is final.
    let assumed: Vec<bool> = unsent
        .iter()
        .map(|unsent| *unsent && state.can_correct())
        .collect();
    let event = match corrected.is_empty() && !assumed.contains(&true) {
        true => Event::Learn { round },
        false => Event::LearnAssumed {
            round,
            assumed,
            corrected,
        },
    };
    Ok(Selected {
        event,
        entries,
        applied,
    })
}

/// The lists with rewards that are new. Answers to the same decision become one list.
fn new_lists(
    state: &State,
    catalogue: Option<&Catalogue>,
    ahead: &Ahead,
    answers: Vec<ListAnswer>,
) -> Result<Selected, (usize, Refusal)> {
    let mut applied = Vec::with_capacity(answers.len());
    let mut lists: Vec<RewardedList> = Vec::with_capacity(answers.len());
    // For each item of each list with a reward, the place of its entry, and whether the reward was sent.
    let mut entries: Vec<Vec<Option<(usize, bool)>>> = Vec::with_capacity(answers.len());
    for answer in answers {
        let entry = answer.entry;
        let decision = &answer.decision;
        // Checked before repeats, as for single items.
        if state.is_forgotten(&decision.user, decision.event) {
            return Err((entry, Refusal::Forgotten));
        }
        let known = lists.iter().position(|list| list.number == decision.number);
        let places = answer.first..answer.first + answer.rewards.len();
        let is_new = |&(place, _): &(usize, f64)| {
            let number = decision.number + place as u64;
            let in_request = known.and_then(|known| entries[known][place]);
            // A reward that was sent counts, in place of one that the same request has for all others.
            let is_repeat = state.answered().contains(number)
                || ahead.contains(number)
                || in_request
                    .is_some_and(|(_, was_sent)| was_sent || !answer.sent.contains(&place));
            !is_repeat
        };
        let rewards = places.zip(answer.rewards.iter().copied());
        let rewards: Vec<(usize, f64)> = rewards.filter(is_new).collect();
        applied.push(!rewards.is_empty());
        if rewards.is_empty() {
            continue;
        }
        let known = match known {
            Some(known) => known,
            None => {
                let list = list(catalogue, answer.decision).map_err(|refusal| (entry, refusal))?;
                entries.push(vec![None; list.items.len()]);
                lists.push(list);
                lists.len() - 1
            }
        };
        let list = &mut lists[known];
        for (place, reward) in rewards {
            list.items[place].reward = Some(reward);
            entries[known][place] = Some((entry, answer.sent.contains(&place)));
        }
        // `None` is the smallest. A user who gave a reward further down looked at that item too.
        let looked_at = list.looked_at.max(answer.looked_at);
        list.looked_at = looked_at.map(|looked_at| looked_at.max(list.reached()));
    }
    Ok(Selected {
        event: Event::LearnLists { lists },
        entries: entries
            .into_iter()
            .flatten()
            .flatten()
            .map(|(entry, _)| entry)
            .collect(),
        applied,
    })
}

/// The event that gives the items of a decision without a reward an assumed one; `None` if all have one, or the decision
/// no longer accepts rewards.
pub(super) fn assume(
    state: &State,
    catalogue: Option<&Catalogue>,
    ahead: &Ahead,
    decision: DecisionContents<'_>,
    reward: f64,
) -> Option<Event> {
    let shown = decision.shown.len();
    let opened = Opened {
        entry: 0,
        first: 0,
        rewards: vec![reward; shown].into(),
        sent: 0..0,
        looked_at: None,
        decision,
    };
    let mut answers = Vec::with_capacity(shown);
    opened.items(&mut answers);
    let selected = new_items(state, catalogue, ahead, answers).ok()?;
    (!selected.entries.is_empty()).then_some(selected.event)
}

/// A reward with its features.
fn reward(catalogue: Option<&Catalogue>, answer: ItemAnswer) -> Result<Reward, Refusal> {
    let mut features = features(catalogue, &answer.item, answer.features)?;
    features.extend_from_slice(&answer.context);
    Ok(Reward {
        number: answer.number,
        user: answer.user,
        item: answer.item,
        features,
        score: answer.score,
        cluster: answer.cluster,
        decided: answer.decided,
        clock: answer.clock,
        event: answer.event,
        reward: answer.reward,
    })
}

/// All items that a decision has shown, with their features and without rewards.
fn list(
    catalogue: Option<&Catalogue>,
    decision: DecisionContents<'static>,
) -> Result<RewardedList, Refusal> {
    let mut items = Vec::with_capacity(decision.shown.len());
    for shown in decision.shown {
        items.push(ListItem {
            features: features(catalogue, &shown.item, shown.features)?,
            item: shown.item.into_owned(),
            score: shown.score,
            reward: None,
        });
    }
    Ok(RewardedList {
        number: decision.number,
        user: decision.user.into_owned(),
        items,
        context: decision.context,
        looked_at: None,
        cluster: decision.cluster,
        decided: decision.at,
        clock: decision.clock,
        event: decision.event,
    })
}

/// The features of an item when it was shown.
fn features(
    catalogue: Option<&Catalogue>,
    item: &str,
    features: Features,
) -> Result<Vec<f64>, Refusal> {
    match features {
        Features::Inline(features) => Ok(features),
        Features::Catalogue(revision) => {
            // The item may have changed since: then it is learned as it was shown.
            match catalogue {
                Some(catalogue) if revision <= catalogue.revisions() => {
                    let features = catalogue.features_of(item, revision);
                    features.ok_or(Refusal::Expired)
                }
                // Another node has shown it, and this one has not read that part of the catalogue's log yet.
                _ => Err(Refusal::Moved),
            }
        }
    }
}
