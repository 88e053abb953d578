//! Clients: they ask any node, give up, retry, and repeat.

use std::rc::Rc;

use rand::RngExt;
use serde_json::{Value, json};

use crate::model::reward_of;
use crate::plan::Kind;
use crate::seed::{Rng, chance, pick, stream};
use crate::world::{Answer, Machine, World};

/// The maximum number of attempts of a client.
const MAX_ATTEMPTS: u32 = 3;

/// The outcome of feedback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Learned,
    Refused,
    Unknown,
}

/// Sends requests until the planned number of operations is reached.
pub async fn client(world: Rc<World>, number: usize) {
    let rng = &mut stream(world.plan.seed, &format!("client {number}"));
    while world.next_op().is_some() {
        let has_decisions = !world.model.borrow().decisions.is_empty();
        let timeout = *pick(rng, &[2_000, 8_000, 20_000]);
        if has_decisions && chance(rng, 0.5) {
            let rewards = draw_rewards(&world, rng);
            let attempts = rng.random_range(1..=MAX_ATTEMPTS);
            for _ in 0..attempts {
                let machine = Rc::clone(pick(rng, &world.machines));
                let outcome = feedback(&world, &machine, &rewards, timeout).await;
                if outcome != Outcome::Unknown {
                    break;
                }
                world.sleep(rng.random_range(0..=100)).await;
            }
        } else {
            let users = draw_users(&world, rng);
            let machine = Rc::clone(pick(rng, &world.machines));
            let k = rng.random_range(1..=3);
            recommend(&world, &machine, &users, k, timeout).await;
        }
        let pause = rng.random_range(0..=world.plan.pause);
        world.sleep(pause).await;
    }
}

fn size(world: &World, rng: &mut Rng) -> usize {
    match world.plan.has(Kind::Batches) && chance(rng, 0.25) {
        true => rng.random_range(2..=6),
        false => 1,
    }
}

fn draw_users(world: &World, rng: &mut Rng) -> Vec<String> {
    let size = size(world, rng);
    let model = world.model.borrow();
    (0..size).map(|_| pick(rng, &model.users).clone()).collect()
}

/// Draws items that were shown: mostly recent ones.
fn draw_rewards(world: &World, rng: &mut Rng) -> Vec<(usize, usize)> {
    let size = size(world, rng);
    let model = world.model.borrow();
    let all = model.decisions.len();
    let one = |_| {
        let oldest = match chance(rng, 0.7) {
            true => all.saturating_sub(8),
            false => 0,
        };
        let decision = rng.random_range(oldest..all);
        let shown = model.decisions[decision].items.len();
        (decision, rng.random_range(0..shown.max(1)))
    };
    (0..size).map(one).collect()
}

/// Returns true if an error says that the request may be sent again.
fn is_temporary(answer: &Answer) -> bool {
    matches!(
        (answer.status, answer.code()),
        (503, "moved" | "overloaded" | "read_only" | "starting") | (504, "unknown_outcome")
    )
}

/// Asks for recommendations. Returns the decisions.
pub async fn recommend(
    world: &Rc<World>,
    machine: &Machine,
    users: &[String],
    k: usize,
    timeout: u64,
) -> Vec<usize> {
    let now = world.clock.now();
    for user in users {
        world.model.borrow_mut().asks(user, now);
    }
    let entries: Vec<Value> = users
        .iter()
        .map(|user| json!({"user": user, "k": k}))
        .collect();
    let (path, body) = match &entries[..] {
        [one] => ("/v1/recommend", one.clone()),
        _ => ("/v1/recommend/batch", json!({"requests": entries})),
    };
    let Some(answer) = world.post(machine, path, &body, timeout).await else {
        world.count("recommends without answer");
        return Vec::new();
    };
    if answer.status != 200 {
        world.note(|| format!("recommend: {answer:?}"));
        world.count("refused recommends");
        if !is_temporary(&answer) {
            world.violation(format!("a recommendation is refused: {answer:?}"));
        }
        return Vec::new();
    }
    let decisions: Vec<Value> = match &answer.body["decisions"] {
        Value::Array(all) => all.clone(),
        _ => vec![answer.body],
    };
    let mut handed = Vec::new();
    for (user, decision) in users.iter().zip(&decisions) {
        let now = world.clock.now();
        world.count("decisions");
        let done = world.model.borrow_mut().hand_out(decision, user, now);
        match done {
            Ok(index) => handed.push(index),
            Err(error) => world.violation(error),
        }
    }
    handed
}

/// Sends the rewards of items shown, given as decision and place.
pub async fn feedback(
    world: &Rc<World>,
    machine: &Machine,
    rewards: &[(usize, usize)],
    timeout: u64,
) -> Outcome {
    let mut numbers = Vec::new();
    let mut entries = Vec::new();
    for &(decision, place) in rewards {
        let mut model = world.model.borrow_mut();
        let number = model.gives(decision, place);
        let Some(item) = model.decisions[decision].items.get(place) else {
            continue;
        };
        let text = &model.decisions[decision].text;
        entries.push(json!({"decision": text, "item": item, "reward": reward_of(number)}));
        numbers.push(number);
    }
    let (path, body) = match &entries[..] {
        [one] => ("/v1/feedback", one.clone()),
        _ => ("/v1/feedback/batch", json!({"feedback": entries})),
    };
    let Some(answer) = world.post(machine, path, &body, timeout).await else {
        world.count("feedback without answer");
        return Outcome::Unknown;
    };
    if answer.status == 200 {
        let applied: Vec<bool> = match &answer.body["applied"] {
            Value::Array(all) => all.iter().map(|one| one == true).collect(),
            one => vec![one == true],
        };
        if applied.len() != numbers.len() {
            world.violation(format!("{} rewards were sent: {answer:?}", numbers.len()));
        }
        world.note(|| {
            format!(
                "feedback for {numbers:?} at {}: {applied:?}",
                machine.name.borrow()
            )
        });
        for (&number, &is_new) in numbers.iter().zip(&applied) {
            world.count(if is_new { "applied" } else { "repeated" });
            let acknowledged = world.model.borrow_mut().acknowledged(number, is_new);
            world.expect(acknowledged);
        }
        return Outcome::Learned;
    }
    let now = world.clock.now();
    let model = world.model.borrow();
    let mut decisions = rewards.iter().map(|(decision, _)| *decision);
    world.note(|| {
        format!(
            "feedback for {numbers:?} at {}: {} {}",
            machine.name.borrow(),
            answer.status,
            answer.code()
        )
    });
    let is_right = match (answer.status, answer.code()) {
        (410, "expired") => decisions.any(|decision| model.may_be_expired(decision, now)),
        (410, "forgotten") => decisions.any(|decision| model.may_be_forgotten(decision)),
        _ if is_temporary(&answer) => {
            world.count("refused feedback");
            return Outcome::Unknown;
        }
        _ => false,
    };
    if !is_right {
        let about: Vec<_> = rewards
            .iter()
            .map(|(d, _)| model.decisions[*d].clone())
            .collect();
        world.violation(format!("feedback is refused: {answer:?}; {about:?}"));
    }
    world.count("expired or forgotten");
    Outcome::Refused
}
