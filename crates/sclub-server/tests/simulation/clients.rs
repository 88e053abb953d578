//! Clients, and the network between them and the server: messages are delayed, duplicated, reordered or lost,
//! and clients without an answer retry.

use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, select};
use rand::RngExt;
use tokio::sync::mpsc;

use crate::plan::Kind;
use crate::seed::{Rng, chance, pick, stream};
use crate::serve::{Choice, InvalidRequest, RecommendRequest, Reply, Request, Reward};
use crate::world::{OUTSIDE, USER_LENGTH, USER_PREFIX, World};

/// The maximum number of attempts of a client.
const MAX_ATTEMPTS: u32 = 4;

/// The maximum number of milliseconds for which a client waits until a decision is about to expire.
const MAX_WAIT_FOR_EXPIRY: u64 = 2_000;

/// Sends requests until the planned number of operations is reached.
pub async fn client(world: Rc<World>, number: usize) {
    let rng = &mut stream(world.plan.seed, &format!("client {number}"));
    while world.next_op().is_some() {
        if chance(rng, 0.1) {
            last_moment(&world, rng).await;
            continue;
        }
        let request = draw(&world, rng);
        world.note(|| format!("client {number}: {}", describe(&request)));
        send(&world, rng, request).await;
        let pause = rng.random_range(0..=world.plan.pause);
        world.sleep(pause).await;
    }
}

/// Answers decisions just before they expire.
async fn last_moment(world: &Rc<World>, rng: &mut Rng) {
    let mut due: Vec<(u64, usize)> = {
        let decisions = world.decisions.borrow();
        let left = decisions.iter().map(|decision| world.left(decision));
        left.zip(0..)
            .filter(|(left, _)| (1..=MAX_WAIT_FOR_EXPIRY).contains(left))
            .collect()
    };
    due.sort_unstable();
    let Some(&(left, _)) = due.first() else {
        return;
    };
    world.sleep(left - rng.random_range(1..=left.min(20))).await;
    for (_, decision) in due.into_iter().take(5) {
        let reward = Reward {
            decision,
            item: None,
            reward: reward(world, rng),
        };
        world.note(|| format!("client: d{decision} at the last moment"));
        let site = world.current();
        // Not awaited: the next reward would be too late.
        drop(world.deliver(&site, Request::Feedback(vec![reward]), None));
    }
}

/// An id that was never used before.
pub fn new_user(rng: &mut Rng) -> String {
    let letters: Vec<char> = ('a'..='z').chain('0'..='9').collect();
    let rest = USER_LENGTH - USER_PREFIX.len();
    let rest: String = (0..rest).map(|_| *pick(rng, &letters)).collect();
    format!("{USER_PREFIX}{rest}")
}

/// Features of an item, of length one.
pub fn features(rng: &mut Rng, dim: usize) -> Vec<f64> {
    let row: Vec<f64> = (0..dim).map(|_| rng.random_range(-1.0..1.0)).collect();
    let norm = row.iter().map(|value| value * value).sum::<f64>().sqrt();
    row.iter().map(|value| value / norm.max(1e-3)).collect()
}

pub fn item_name(number: usize) -> String {
    format!("item-{number}")
}

/// A reward whose value is used once only.
pub fn reward(world: &World, rng: &mut Rng) -> f64 {
    let settings = &world.plan.settings;
    let most = match settings.reward_max {
        huge if huge > sclub::MAX_MAGNITUDE && chance(rng, 0.7) => 1.0,
        most => most,
    };
    rng.random_range(settings.reward_min..most)
}

fn draw(world: &World, rng: &mut Rng) -> Request {
    let has_decisions = !world.decisions.borrow().is_empty();
    match rng.random_range(0..100) {
        0..45 if has_decisions => feedback(world, rng),
        45..48 if has_decisions => draw_invalid(world, rng),
        48..54 => {
            let count = match chance(rng, 0.1) {
                true => 100,
                false => rng.random_range(1..=4),
            };
            let items = (0..count).map(|_| {
                let id = item_name(rng.random_range(0..world.plan.items));
                (id, features(rng, world.plan.dim))
            });
            Request::Upsert(items.collect())
        }
        54..56 if world.plan.has(Kind::Removing) => {
            Request::Remove(item_name(rng.random_range(0..world.plan.items)))
        }
        56..58 if world.plan.has(Kind::Forgetting) => {
            let mut users = world.users.borrow_mut();
            let place = rng.random_range(0..users.len());
            let user = users[place].clone();
            if !world.plan.users_return {
                users[place] = new_user(rng);
            }
            Request::Forget(user)
        }
        _ => {
            let count = match chance(rng, 0.2) {
                true => rng.random_range(2..=5),
                false => 1,
            };
            Request::Recommend((0..count).map(|_| draw_recommend(world, rng)).collect())
        }
    }
}

fn draw_recommend(world: &World, rng: &mut Rng) -> RecommendRequest {
    let some = |rng: &mut Rng, most: usize| {
        let count = rng.random_range(0..=most.min(world.plan.items));
        let mut numbers: Vec<usize> = (0..world.plan.items).collect();
        (0..count)
            .map(|_| item_name(numbers.swap_remove(rng.random_range(0..numbers.len()))))
            .collect::<Vec<_>>()
    };
    let among = match rng.random_range(0..4) {
        0 => {
            let mut ids = some(rng, 4);
            if ids.is_empty() {
                ids.push(item_name(0));
            }
            Choice::Candidates(ids)
        }
        1 => {
            let count = rng.random_range(1..=4);
            let items = (0..count).map(|number| {
                let id = format!("inline-{number}");
                (id, features(rng, world.plan.dim))
            });
            Choice::Inline(items.collect())
        }
        _ => Choice::All(some(rng, 2)),
    };
    RecommendRequest {
        user: pick(rng, &world.users.borrow()).clone(),
        among,
        k: rng.random_range(1..=4),
    }
}

fn feedback(world: &World, rng: &mut Rng) -> Request {
    let count = match chance(rng, 0.3) {
        true => rng.random_range(2..=6),
        false => 1,
    };
    let decisions = world.decisions.borrow();
    let all = decisions.len();
    let rewards = (0..count).map(|_| {
        // Mostly one of the latest, sometimes any: rewarded before, expired, or of another copy.
        let decision = match chance(rng, 0.8) {
            true => rng.random_range(all.saturating_sub(20)..all),
            false => rng.random_range(0..all),
        };
        let shown = &decisions[decision].items;
        let item = pick(rng, shown).clone();
        Reward {
            decision,
            item: (item != shown[0] || chance(rng, 0.5)).then_some(item),
            reward: reward(world, rng),
        }
    });
    Request::Feedback(rewards.collect())
}

fn draw_invalid(world: &World, rng: &mut Rng) -> Request {
    let decisions = world.decisions.borrow();
    let decision = rng.random_range(0..decisions.len());
    Request::Invalid(match rng.random_range(0..4) {
        0 => {
            // Another letter somewhere.
            let mut text: Vec<char> = decisions[decision].text.chars().collect();
            let place = rng.random_range(0..text.len());
            text[place] = if text[place] == 'A' { 'B' } else { 'A' };
            InvalidRequest::Decision(text.into_iter().collect())
        }
        1 => InvalidRequest::Decision("AAAA".to_owned()),
        2 => {
            let most = world.plan.settings.reward_max;
            let above = most + 0.1 * most.max(1.0);
            InvalidRequest::Reward(decision, *pick(rng, &[f64::NAN, f64::INFINITY, above]))
        }
        _ => InvalidRequest::Item(decision),
    })
}

/// A short description of a request.
pub fn describe(request: &Request) -> String {
    match request {
        Request::Recommend(requests) => {
            let requests = requests.iter().map(|request| {
                let among = match &request.among {
                    Choice::All(excluded) => format!("all but {}", excluded.len()),
                    Choice::Candidates(ids) => format!("{} candidates", ids.len()),
                    Choice::Inline(items) => format!("{} inline", items.len()),
                };
                format!("{} {} of {among}", request.user, request.k)
            });
            format!("recommend {}", requests.collect::<Vec<_>>().join(", "))
        }
        Request::Feedback(rewards) => {
            let rewards = rewards.iter().map(|reward| {
                let item = reward.item.as_deref().unwrap_or("first");
                format!("d{} {item} {:.3}", reward.decision, reward.reward)
            });
            format!("feedback {}", rewards.collect::<Vec<_>>().join(", "))
        }
        Request::Upsert(items) => {
            let ids: Vec<&str> = items.iter().map(|(id, _)| id.as_str()).take(5).collect();
            format!("upsert {} items: {} …", items.len(), ids.join(", "))
        }
        Request::Invalid(InvalidRequest::Decision(_)) => "invalid: a forged decision".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Sends a request through the network until there is an answer, or all attempts are used up.
pub async fn send(world: &Rc<World>, rng: &mut Rng, request: Request) -> Option<Reply> {
    let network = world.plan.network;
    for attempt in 0..MAX_ATTEMPTS {
        let (answers, mut answer) = mpsc::unbounded_channel();
        let copies = 1 + u64::from(chance(rng, network.doubled));
        for _ in 0..copies {
            let there = rng.random_range(0..=network.delay);
            let back = rng.random_range(0..=network.delay);
            let is_lost = chance(rng, network.lost);
            let is_answer_lost = chance(rng, network.lost);
            let gives_up = chance(rng, network.gives_up).then(|| rng.random_range(0..20));
            if is_lost {
                continue;
            }
            let (world, request, answers) = (Rc::clone(world), request.clone(), answers.clone());
            let executor = Rc::clone(&world.executor);
            world.in_network.set(world.in_network.get() + 1);
            executor.spawn(OUTSIDE, "message", async move {
                world.sleep(there).await;
                let site = world.current();
                if let Some(receiver) = world.deliver(&site, request, gives_up)
                    && let Ok(reply) = receiver.await
                    && !is_answer_lost
                {
                    world.sleep(back).await;
                    let _ = answers.send(reply);
                }
                world.in_network.set(world.in_network.get() - 1);
            });
        }
        drop(answers);
        let timeout = world.sleep(network.delay * 2 + rng.random_range(1..=200));
        let reply = match select(pin!(answer.recv()), timeout).await {
            Either::Left((reply, _)) => reply,
            Either::Right(_) => None,
        };
        match reply {
            Some(Reply::Refused(why)) if why.may_repeat() => {}
            Some(reply) => return Some(reply),
            None => {}
        }
        if chance(rng, 0.3) {
            return None;
        }
        world.sleep(rng.random_range(0..20 << attempt)).await;
    }
    None
}
