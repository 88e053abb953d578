//! Requests at the server's door: each is put to the engine, and its answer is checked.

mod copies;

use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, select};
use sclub::{ItemId, ItemSet};
use sclub_server::context::ContextValue;
use sclub_server::description::Description;
use sclub_server::engine::{
    ArmRequest, CandidateSet, Feedback, RecommendQuery, Recommended, Rules,
};
use sclub_server::event::DescribedItem;
use sclub_server::filter::Filter;
use sclub_server::settings::Settings;
use sclub_server::state::{Scratch, item_id};
use tokio::sync::oneshot;

use crate::model::{Ask, DecisionId, End, SentReward};
use crate::subject::{Engine, Refusal, Why, why};
use crate::world::{Decision, GRACE, Owner, Site, World};

/// The tag of items whose first feature is positive.
const TAG: &str = "positive";

/// A request to a server.
#[derive(Debug, Clone)]
pub enum Request {
    Recommend(Vec<RecommendRequest>),
    Feedback(Vec<Reward>),
    /// Must be refused.
    Invalid(InvalidRequest),
    Upsert(Vec<(String, Vec<f64>)>),
    Remove(String),
    Forget(String),
    Snapshot,
    Compact,
    Backup(Pace),
    Export,
    /// Begin an experiment, or end the one under way. The number chooses the policies, or the winner.
    Experiment(usize),
}

/// A request for a recommendation.
#[derive(Debug, Clone)]
pub struct RecommendRequest {
    pub user: String,
    pub among: Choice,
    pub k: usize,
}

#[derive(Debug, Clone)]
pub enum Choice {
    All(Vec<String>),
    Candidates(Vec<String>),
    Inline(Vec<(String, Vec<f64>)>),
}

#[derive(Debug, Clone)]
pub struct Reward {
    pub decision: DecisionId,
    /// The first item if none is named.
    pub item: Option<String>,
    pub reward: f64,
}

#[derive(Debug, Clone)]
pub enum InvalidRequest {
    /// A forged decision.
    Decision(String),
    /// Out of range.
    Reward(DecisionId, f64),
    /// Not shown.
    Item(DecisionId),
}

/// The speed at which a backup is read.
#[derive(Debug, Clone, Copy)]
pub enum Pace {
    AtOnce,
    /// Waits for a number of milliseconds now and then.
    Slow(u64),
    /// Stops after a number of bytes.
    GivesUp(usize),
}

/// The reply to a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reply {
    Done,
    Refused(Why),
}

impl World {
    /// Sends a request to the server of a folder, if it is open. After `gives_up` milliseconds the client
    /// disconnects, and the server drops the request's task.
    pub fn deliver(
        self: &Rc<Self>,
        site: &Rc<Site>,
        request: Request,
        gives_up: Option<u64>,
    ) -> Option<oneshot::Receiver<Reply>> {
        let engine = self.engine(site)?;
        let group = self.group(site)?;
        let (reply, receiver) = oneshot::channel();
        let (world, site) = (Rc::clone(self), Rc::clone(site));
        self.executor.spawn(group, "request", async move {
            let served = pin!(world.serve(&site, &engine, request));
            let answer = match gives_up {
                None => Some(served.await),
                Some(after) => match select(served, world.sleep(after)).await {
                    Either::Left((answer, _)) => Some(answer),
                    Either::Right(_) => None,
                },
            };
            // Replies of a machine that has stopped are lost.
            if let Some(answer) = answer
                && !world.disk.is_down()
            {
                let _ = reply.send(answer);
            }
        });
        Some(receiver)
    }

    /// Puts a request to the server and waits for the answer. None if there was none.
    pub async fn ask(self: &Rc<Self>, site: &Rc<Site>, request: Request) -> Option<Reply> {
        self.deliver(site, request, None)?.await.ok()
    }

    async fn serve(self: &Rc<Self>, site: &Rc<Site>, engine: &Engine, request: Request) -> Reply {
        match request {
            Request::Recommend(requests) => self.recommend(site, engine, &requests),
            Request::Feedback(rewards) => self.feedback(site, engine, &rewards).await,
            Request::Invalid(invalid) => self.invalid(engine, &invalid).await,
            Request::Upsert(items) => {
                let ask = Ask::Upsert(items.clone());
                let items: Vec<DescribedItem> = items.into_iter().map(described).collect();
                let done = engine.upsert(items);
                self.change(site, ask, done).await
            }
            Request::Remove(item) => {
                let ask = Ask::Remove(item.clone());
                let done = async { engine.remove(&item).await.map(usize::from) };
                self.change(site, ask, done).await
            }
            Request::Forget(user) => {
                let ask = Ask::Forget(user.clone());
                let done = async { engine.forget(&user).await.map(usize::from) };
                self.change(site, ask, done).await
            }
            Request::Snapshot => {
                let done = engine.snapshot().await.map(drop);
                self.upkeep(site, "snapshot", done)
            }
            Request::Compact => {
                let begin = self.tick();
                let done = engine.compact().await.map(drop);
                if done.is_ok() && !self.disk.is_down() {
                    self.count("compactions");
                    site.model.borrow_mut().compacted(begin);
                    self.check_gone(site);
                }
                self.upkeep(site, "compaction", done)
            }
            Request::Backup(pace) => self.backup(site, engine, pace).await,
            Request::Export => self.export(site, engine).await,
            Request::Experiment(number) => self.experiment(engine, number).await,
        }
    }

    async fn experiment(&self, engine: &Engine, number: usize) -> Reply {
        let policies = ["sclub", "sclub-soft", "linucb-ind", "linucb-one"];
        let arm = |name: &str, policy: usize, share| ArmRequest {
            name: name.to_owned(),
            settings: Settings {
                policy: Some(policies[policy % policies.len()].to_owned()),
                ..Settings::default()
            },
            share,
        };
        let (done, what) = match engine.experiments().0 {
            None => {
                let name = format!("x{}", engine.state().events());
                let arms = vec![
                    arm("a", number, 6000),
                    arm("b", number / 4, 4000),
                    arm("quiet", number / 16, 0),
                ];
                (engine.start_experiment(&name, arms).await, "experiments")
            }
            Some(running) => {
                let plan = running.plan;
                let winner = &plan.arms[number % plan.arms.len()].name;
                let ended = engine.end_experiment(&plan.name, winner).await;
                (ended, "ended experiments")
            }
        };
        if self.disk.is_down() {
            return Reply::Refused(Why::Unknown);
        }
        match done {
            Ok(()) => {
                self.count(what);
                Reply::Done
            }
            Err(refusal) => Reply::Refused(why(&refusal).0),
        }
    }

    fn recommend(&self, site: &Site, engine: &Engine, requests: &[RecommendRequest]) -> Reply {
        let inline: Vec<Option<ItemSet>> = requests
            .iter()
            .map(|request| self.inline(engine, request))
            .collect();
        let context = self.context();
        let tagged = tagged();
        // All kinds of rules, by turns.
        let turn = self.decisions.borrow().len();
        let is_strict = turn.is_multiple_of(2);
        let has_filter = |request: &RecommendRequest| {
            turn.is_multiple_of(3) && !matches!(request.among, Choice::Inline(_))
        };
        let asked: Vec<RecommendQuery<'_>> = requests
            .iter()
            .zip(&inline)
            .map(|(request, inline)| RecommendQuery {
                user: &request.user,
                among: request.among.borrowed(inline.as_ref()),
                rules: Rules {
                    exclude: request.among.excluded(),
                    filter: has_filter(request).then_some(&tagged),
                    strict: is_strict,
                    ..Rules::default()
                },
                k: request.k,
                context: context.as_ref(),
            })
            .collect();
        let answered = match &asked[..] {
            [only] => engine
                .recommend(only, &mut Scratch::default())
                .map(|recommended| vec![recommended]),
            all => engine.recommend_all(all),
        };
        // Returns true if the request may have been refused for this reason.
        let may_be = |request: &RecommendRequest, why: Why| {
            let model = site.model.borrow();
            match (&request.among, why) {
                (Choice::Candidates(ids), Why::UnknownItem) => {
                    is_strict && ids.iter().any(|id| model.may_be(id).1)
                }
                // No item may pass the filter.
                (_, Why::Invalid) if has_filter(request) => true,
                (Choice::Candidates(ids), Why::Invalid) => ids.iter().all(|id| model.may_be(id).1),
                // Every item that is not excluded may be absent.
                (Choice::All(excluded), Why::Invalid) => model
                    .item_names()
                    .all(|item| excluded.contains(item) || model.may_be(item).1),
                (_, Why::Closing) => site.is_closing.get(),
                _ => false,
            }
        };
        match answered {
            Ok(all) => {
                for (request, recommended) in requests.iter().zip(&all) {
                    if let Some(refusal) = &recommended.refused {
                        if !may_be(request, why(refusal).0) {
                            self.violation(format!("{request:?} was refused: {refusal:?}"));
                        }
                        continue;
                    }
                    self.expect(check_shown(site, request, recommended));
                    if is_strict && !recommended.missing.is_empty() {
                        self.violation(format!("{request:?} is strict, and was answered"));
                    }
                    if has_filter(request) {
                        self.expect(check_filter(engine, recommended));
                    }
                }
                let answered = requests.iter().zip(all);
                for (request, recommended) in answered.filter(|(_, one)| one.refused.is_none()) {
                    let items = recommended.items.into_iter().map(|(item, _)| item);
                    self.hand_out(site, recommended.decision, &request.user, items.collect());
                }
                Reply::Done
            }
            Err(refusal) => {
                let (why, _) = why(&refusal);
                let may_be = requests.iter().any(|request| may_be(request, why));
                if !may_be && !self.disk.is_down() {
                    self.violation(format!("{requests:?} were refused: {refusal:?}"));
                }
                Reply::Refused(why)
            }
        }
    }

    /// The context of the next request, if the folder has context features.
    fn context(&self) -> Option<BTreeMap<String, ContextValue>> {
        let number = self.decisions.borrow().len();
        let has_context = !self.plan.settings.context.is_empty() && !number.is_multiple_of(5);
        has_context.then(|| {
            let hour = ContextValue::Number((number % 8) as f64 / 8.0);
            let device = ["phone", "tv"][number % 2].to_owned();
            let device = ContextValue::Text(device);
            BTreeMap::from([("hour".to_owned(), hour), ("device".to_owned(), device)])
        })
    }

    fn inline(&self, engine: &Engine, request: &RecommendRequest) -> Option<ItemSet> {
        let Choice::Inline(items) = &request.among else {
            return None;
        };
        let rows: Vec<f64> = items.iter().flat_map(|(_, row)| row.clone()).collect();
        let mut set = ItemSet::from_rows(self.plan.dim, &rows).expect("good features");
        if engine.has_item_ids() {
            let ids: Vec<ItemId> = items.iter().map(|(id, _)| item_id(id)).collect();
            set.set_ids(&ids).expect("an id for each item");
        }
        Some(set)
    }

    async fn feedback(&self, site: &Site, engine: &Engine, rewards: &[Reward]) -> Reply {
        let all: Vec<Decision> = {
            let decisions = self.decisions.borrow();
            let named = rewards.iter().map(|reward| &decisions[reward.decision]);
            named.cloned().collect()
        };
        let sent: Vec<SentReward> = rewards
            .iter()
            .zip(&all)
            .map(|(reward, decision)| SentReward {
                decision: reward.decision,
                user: decision.user.clone(),
                made: decision.made,
                item: reward.item.as_ref().unwrap_or(&decision.items[0]).clone(),
                reward: reward.reward,
            })
            .collect();
        let mut given: Vec<Feedback<'_>> = rewards
            .iter()
            .zip(&all)
            .map(|(reward, decision)| {
                Feedback::of_item(&decision.text, reward.item.as_deref(), reward.reward)
            })
            .collect();
        // By turns also 0 for the rest of the first list: an entry of its own, which the model does not count.
        let has_others = self.plan.settings.unanswered.is_some() && self.tick().is_multiple_of(3);
        if has_others {
            given.push(Feedback::of_list(&all[0].text, &[]).with_others(0.0));
        }
        let mut owners = all.iter().map(|decision| self.owner(site, decision));
        let is_others = owners.any(|owner| owner == Owner::Others);
        let is_expired = all.iter().any(|decision| self.is_expired(site, decision));
        // Decisions of another copy must be refused: they cannot count.
        let call = (!is_others).then(|| {
            let ask = Ask::Feedback(sent.clone());
            site.model.borrow_mut().begin(ask, self.tick())
        });
        let is_assumed: Vec<bool> = {
            let state = engine.state();
            let numbers = sent.iter().zip(&all).map(|(sent, decision)| {
                let place = decision.items.iter().position(|item| *item == sent.item);
                decision.number + place.unwrap_or(0) as u64
            });
            numbers
                .map(|number| state.assumed().get(number).is_some())
                .collect()
        };
        let answered = engine.feedback_batch(&given).await;
        if self.disk.is_down() {
            return Reply::Refused(Why::Unknown);
        }
        self.detail(|| format!("{}: {sent:?}: {answered:?}", site.folder.display()));
        let (end, reply) = match &answered {
            Ok(applied) => {
                if is_others {
                    self.violation(format!("{rewards:?} of another copy was taken"));
                }
                if is_expired {
                    self.violation(format!("{rewards:?} was taken, and had expired"));
                }
                if has_others {
                    self.check_others(site, engine, &all[0]);
                }
                for (&is_new, is_assumed) in applied.iter().zip(is_assumed) {
                    self.count(match (is_new, is_assumed) {
                        (true, true) => "corrected",
                        (true, false) => "applied",
                        (false, _) => "repeated",
                    });
                }
                let applied = applied[..rewards.len()].to_vec();
                (End::Applied(applied), Reply::Done)
            }
            Err(refusal) => {
                let (why, place) = why(refusal);
                let place = match (given.len(), place) {
                    (1, _) => Some(0),
                    // The entry for the rest of the first list.
                    (_, Some(at)) if at == rewards.len() => Some(0),
                    (_, place) => place,
                };
                if place.is_none() && !why.may_repeat() {
                    self.violation(format!("{refusal:?} does not say which of {rewards:?}"));
                }
                let concerned = (0..sent.len()).filter(|&index| place.is_none_or(|at| at == index));
                let mut refused = concerned.map(|index| {
                    let (sent, decision) = (&sent[index], &all[index]);
                    self.may_be_refused(site, sent, decision, why)
                });
                if !refused.any(|is_right| is_right) {
                    self.violation(format!("{rewards:?} was refused: {refusal:?}"));
                }
                (self.end_of(why), Reply::Refused(why))
            }
        };
        if let Some(call) = call {
            let ended = site.model.borrow_mut().end(call, &end, self.tick());
            self.expect(ended);
        }
        reply
    }

    /// Checks that every item of a list has its reward, once 0 was sent for the rest of the list.
    fn check_others(&self, site: &Site, engine: &Engine, decision: &Decision) {
        let state = engine.state();
        let mut numbers = (decision.number..).take(decision.items.len());
        if !numbers.all(|number| state.answered().contains(number))
            && !self.may_be_expired(site, decision)
        {
            self.violation(format!("{decision:?} has items without a reward"));
        }
        self.count("others");
    }

    /// Returns true if a reward may be refused for this reason.
    fn may_be_refused(
        &self,
        site: &Site,
        sent: &SentReward,
        decision: &Decision,
        why: Why,
    ) -> bool {
        let is_ours = self.owner(site, decision) == Owner::Ours;
        match why {
            Why::ReadOnly | Why::Unknown | Why::Overloaded => true,
            Why::Closing => site.is_closing.get(),
            Why::OtherCopy => {
                self.count("other copy");
                !is_ours
            }
            Why::Expired => {
                self.count("expired");
                !is_ours || self.may_be_expired(site, decision)
            }
            Why::Forgotten => {
                self.count("forgotten");
                let now = self.tick();
                !is_ours
                    || site
                        .model
                        .borrow_mut()
                        .refused_as_forgotten(sent, now)
                        .is_ok()
            }
            Why::Invalid => sent.reward.abs() > sclub::MAX_MAGNITUDE,
            Why::UnknownDecision | Why::UnknownItem | Why::Other => false,
        }
    }

    /// The result of a call that was refused.
    fn end_of(&self, why: Why) -> End {
        match why {
            // During a shutdown, requests in the queue may have taken effect.
            Why::Unknown | Why::Closing => {
                self.count("unknown");
                End::Unknown
            }
            _ => {
                self.count("refused");
                End::Refused
            }
        }
    }

    async fn invalid(&self, engine: &Engine, invalid: &InvalidRequest) -> Reply {
        let decisions = self.decisions.borrow().clone();
        let (text, item, reward) = match invalid {
            InvalidRequest::Decision(text) => (text.as_str(), None, self.plan.settings.reward_min),
            InvalidRequest::Reward(id, reward) => (decisions[*id].text.as_str(), None, *reward),
            InvalidRequest::Item(id) => {
                let text = decisions[*id].text.as_str();
                (text, Some("nothing"), self.plan.settings.reward_min)
            }
        };
        let given = Feedback::of_item(text, item, reward);
        if engine.feedback(&given).await.is_ok() {
            self.violation(format!("{invalid:?} was accepted"));
        }
        Reply::Done
    }

    /// A call that changes something.
    async fn change(
        &self,
        site: &Site,
        ask: Ask,
        done: impl Future<Output = Result<usize, Refusal>>,
    ) -> Reply {
        let call = site.model.borrow_mut().begin(ask.clone(), self.tick());
        let done = done.await;
        if self.disk.is_down() {
            return Reply::Refused(Why::Unknown);
        }
        self.detail(|| format!("{}: {ask:?}: {done:?}", site.folder.display()));
        let (end, reply) = match done {
            Ok(count) => (End::Changed(count), Reply::Done),
            Err(refusal) => {
                let (why, _) = why(&refusal);
                if !why.may_repeat() || why == Why::Closing && !site.is_closing.get() {
                    self.violation(format!("{ask:?} was refused: {refusal:?}"));
                }
                (self.end_of(why), Reply::Refused(why))
            }
        };
        let ended = site.model.borrow_mut().end(call, &end, self.tick());
        self.expect(ended);
        reply
    }

    /// Records a failure that is allowed only with faults.
    fn upkeep(&self, site: &Site, what: &str, done: Result<(), impl std::fmt::Display>) -> Reply {
        match done {
            Ok(()) => Reply::Done,
            Err(error) => {
                let is_calm = self.calm_for().is_some_and(|calm| calm > GRACE);
                if is_calm && !site.is_closing.get() && !self.disk.is_down() {
                    self.violation(format!("{what} failed without a fault: {error}"));
                }
                self.note(|| format!("{what} failed: {error}"));
                Reply::Refused(Why::Other)
            }
        }
    }
}

/// Checks that what was shown passes the filter, by the features from which the descriptions follow.
fn check_filter(engine: &Engine, recommended: &Recommended) -> Result<(), String> {
    let state = engine.state();
    let catalogue = state.catalogue().ok_or("there is no catalogue")?;
    for (item, _) in &recommended.items {
        let slot = catalogue
            .slot(item)
            .ok_or("an item was shown that is not there")?;
        if catalogue.features(slot)[0] <= 0.0 {
            return Err(format!("{item} was shown, and does not pass the filter"));
        }
    }
    Ok(())
}

/// Checks that what was shown could be.
fn check_shown(
    site: &Site,
    request: &RecommendRequest,
    recommended: &Recommended,
) -> Result<(), String> {
    let model = site.model.borrow();
    let shown: Vec<&String> = recommended.items.iter().map(|(item, _)| item).collect();
    let mut others = shown.clone();
    others.sort();
    others.dedup();
    let is_candidate = |item: &String| match &request.among {
        Choice::All(excluded) => !excluded.contains(item) && model.may_be(item).0,
        Choice::Candidates(ids) => ids.contains(item) && model.may_be(item).0,
        Choice::Inline(items) => items.iter().any(|(id, _)| id == item),
    };
    let is_right = (1..=request.k).contains(&shown.len()) && others.len() == shown.len();
    let is_missing = |item: &String| match &request.among {
        Choice::Candidates(ids) => ids.contains(item) && model.may_be(item).1,
        _ => false,
    };
    let is_right = is_right && recommended.missing.iter().all(is_missing);
    match is_right && shown.iter().all(|item| is_candidate(item)) {
        true => Ok(()),
        false => Err(format!("{request:?} was shown {shown:?}")),
    }
}

/// The filter of some requests: items whose first feature is positive have the tag.
fn tagged() -> Filter {
    let filter = serde_json::json!({"tags": {"any": [TAG]}, "first": {"min": 0}});
    Filter::parse(filter.as_object().expect("an object")).expect("a good filter")
}

/// An item with a description that follows from its features.
pub fn described((id, features): (String, Vec<f64>)) -> DescribedItem {
    let first = features.first().copied().unwrap_or(0.0);
    let description = Description {
        title: Some(format!("Item {id}")),
        tags: match first > 0.0 {
            true => vec![TAG.to_owned()],
            false => Vec::new(),
        },
        is_unavailable: false,
        data: serde_json::json!({"first": first}).to_string(),
    };
    DescribedItem {
        id,
        features,
        description,
    }
}

impl Choice {
    fn excluded(&self) -> Vec<&str> {
        match self {
            Choice::All(excluded) => excluded.iter().map(String::as_str).collect(),
            _ => Vec::new(),
        }
    }

    fn borrowed<'a>(&'a self, inline: Option<&'a ItemSet>) -> CandidateSet<'a> {
        match (self, inline) {
            (Choice::All(_), _) => CandidateSet::All,
            (Choice::Candidates(ids), _) => {
                CandidateSet::Candidates(ids.iter().map(String::as_str).collect())
            }
            (Choice::Inline(items), inline) => {
                let ids = items.iter().map(|(id, _)| id.as_str());
                CandidateSet::Inline(ids.collect(), inline.expect("made from the same"))
            }
        }
    }
}
