//! Everything that happens to nodes and servers, and what operators do.

use std::rc::Rc;

use rand::RngExt;
use sclub_server::cluster::bus::Bucket;
use sclub_server::cluster::members::{drain_key, pin_key};
use serde_json::json;

use crate::nats::Network;
use crate::plan::Kind;
use crate::seed::{Rng, chance, pick, stream};
use crate::world::{Machine, World};

/// The milliseconds for which an operator waits for an answer.
const TIMEOUT: u64 = 20_000;

/// Starts nodes that are not running.
pub async fn supervisor(world: Rc<World>) {
    loop {
        for machine in &world.machines {
            let is_down = machine.process.borrow().is_none();
            if is_down && world.clock.now() >= machine.start_at.get() {
                world.start(machine);
            }
        }
        world.sleep(50).await;
    }
}

/// Makes nodes, network and servers fail until the clients have finished.
pub async fn faults(world: Rc<World>) {
    let rng = &mut stream(world.plan.seed, "faults");
    while world.ops() < world.plan.ops {
        world.sleep(rng.random_range(0..=world.plan.peace)).await;
        let machine = Rc::clone(pick(rng, &world.machines));
        // Some are longer than the time for which a node keeps a group that it does not need.
        let length = match chance(rng, 0.1) {
            true => rng.random_range(8_000..=16_000),
            false => rng.random_range(500..=7_500),
        };
        let all = [
            Kind::Cuts,
            Kind::Pauses,
            Kind::Pauses,
            Kind::Kills,
            Kind::PowerLosses,
            Kind::Closes,
            Kind::NoMajority,
            Kind::Slow,
        ];
        let kind = *pick(rng, &all);
        let away = rng.random_range(0..=6_000);
        let is_renamed = chance(rng, 0.3) && world.plan.has(Kind::Renames);
        if !world.plan.has(kind) || world.ops() >= world.plan.ops {
            continue;
        }
        let name = machine.name.borrow().clone();
        match kind {
            Kind::Cuts => {
                let Some(process) = machine.process.borrow().clone() else {
                    continue;
                };
                world.note(|| format!("{name} is cut off for {length} ms"));
                world.count("cuts");
                world.nats.core().cut(process.bus.link, true);
                let task = Rc::clone(&world);
                world.spawn("cut", async move {
                    task.sleep(length).await;
                    task.nats.core().cut(process.bus.link, false);
                });
            }
            Kind::Pauses => {
                let Some(process) = machine.process.borrow().clone() else {
                    continue;
                };
                world.note(|| format!("{name} is paused for {length} ms"));
                world.count("pauses");
                world.pause(&process, true);
                let task = Rc::clone(&world);
                world.spawn("pause", async move {
                    task.sleep(length).await;
                    task.note(|| format!("{name} goes on"));
                    task.pause(&process, false);
                });
            }
            Kind::Kills | Kind::PowerLosses => {
                world.note(|| format!("{name}: {kind:?}, for {away} ms"));
                world.count(match kind {
                    Kind::Kills => "kills",
                    _ => "power losses",
                });
                match kind {
                    Kind::Kills => drop(world.kill(&machine)),
                    _ => world.lose_power(&machine),
                }
                machine.start_at.set(world.clock.now() + away);
                if is_renamed {
                    world.rename(&machine);
                }
            }
            Kind::Closes => {
                world.note(|| format!("{name} shuts down"));
                world.count("closes");
                world.close(&machine);
            }
            Kind::NoMajority => {
                world.note(|| format!("NATS has no majority for {length} ms"));
                world.count("lost majorities");
                world.nats.core().has_majority = false;
                let task = Rc::clone(&world);
                world.spawn("majority", async move {
                    task.sleep(length).await;
                    task.nats.core().has_majority = true;
                });
            }
            _ => {
                let is_bad = chance(rng, 0.7);
                world.note(|| format!("the network is {}", if is_bad { "bad" } else { "good" }));
                set_network(&world, is_bad);
            }
        }
    }
}

pub fn set_network(world: &World, is_bad: bool) {
    world.nats.core().network = match is_bad {
        true => world.plan.network,
        false => Network::PERFECT,
    };
}

/// Moves, drains, forgets, compacts, and changes the catalogue until the clients have finished.
pub async fn operator(world: Rc<World>) {
    let rng = &mut stream(world.plan.seed, "operator");
    while world.ops() < world.plan.ops {
        world.sleep(rng.random_range(0..=world.plan.peace)).await;
        let machine = Rc::clone(pick(rng, &world.machines));
        let all = [
            Kind::Moves,
            Kind::Drains,
            Kind::Forgetting,
            Kind::Forgetting,
            Kind::Compacting,
            Kind::Items,
        ];
        let kind = *pick(rng, &all);
        if !world.plan.has(kind) {
            continue;
        }
        match kind {
            Kind::Moves => {
                let group = rng.random_range(0..=world.plan.partitions);
                let group = group_name(&world, group);
                let name = machine.name.borrow().clone();
                world.note(|| format!("{group} moves to {name}"));
                world.count("moves");
                put(&world, &pin_key(&group), Some(name));
            }
            Kind::Drains => {
                let name = machine.name.borrow().clone();
                world.note(|| format!("{name} is drained"));
                world.count("drains");
                put(&world, &drain_key(&name), Some(String::new()));
                let length = rng.random_range(1_000..=20_000);
                let task = Rc::clone(&world);
                world.spawn("drain", async move {
                    task.sleep(length).await;
                    put(&task, &drain_key(&name), None);
                });
            }
            Kind::Forgetting => {
                world.model.borrow_mut().retire(rng);
                let user = {
                    let mut model = world.model.borrow_mut();
                    let is_due = model.retired.len() > 1 || chance(rng, 0.2);
                    is_due.then(|| model.retired.remove(0))
                };
                if let Some(user) = user {
                    forget(&world, &machine, &user).await;
                }
            }
            Kind::Compacting => {
                world.count("compactions");
                world.note(|| "a compaction".to_owned());
                let path = "/v1/admin/compact";
                let answer = world.post(&machine, path, &json!({}), TIMEOUT).await;
                world.note(|| format!("compaction: {answer:?}"));
            }
            _ => {
                let item = rng.random_range(0..world.plan.items + 2);
                change_item(&world, &machine, rng, item).await;
            }
        }
    }
}

/// The name of a group.
pub fn group_name(world: &World, index: usize) -> String {
    match index == world.plan.partitions {
        true => "catalogue".to_owned(),
        false => format!("p{index}"),
    }
}

/// Writes or deletes a key of the configuration, as the command of an operator does.
fn put(world: &World, key: &str, value: Option<String>) {
    let now = world.clock.now();
    let value = value.map(|value| value.into());
    let _ = world
        .nats
        .core()
        .write(now, Bucket::Config, key, value, None);
}

/// Forgets a user. Returns true if that was acknowledged.
pub async fn forget(world: &Rc<World>, machine: &Machine, user: &str) -> bool {
    world.note(|| format!("forget {user}"));
    world.count("forgets");
    let now = world.clock.now();
    world.model.borrow_mut().forgets(user, now);
    let path = format!("/v1/users/{user}");
    let sent = world.send(machine, "DELETE", &path, "application/json", String::new());
    let answer = tokio::select! {
        biased;
        answer = sent => answer,
        () = world.sleep(TIMEOUT) => None,
    };
    world.note(|| format!("forget {user}: {answer:?}"));
    let is_done = answer.is_some_and(|answer| answer.status == 200);
    if is_done && let Some(forget) = world.model.borrow_mut().forgets.get_mut(user) {
        forget.is_acknowledged = true;
    }
    is_done
}

/// The line of an item with random features.
fn item_line(world: &World, rng: &mut Rng, item: usize) -> String {
    let features = (0..world.plan.dim).map(|_| f64::from(rng.random_range(-100..=100)) / 100.0);
    let features: Vec<f64> = features.collect();
    json!({"id": format!("item-{item}"), "features": features}).to_string()
}

/// Replaces an item, or removes it. Items 0 and 1 stay, so that there is always one to show.
async fn change_item(world: &Rc<World>, machine: &Machine, rng: &mut Rng, item: usize) {
    world.count("items changed");
    let kind = "application/x-ndjson";
    let path = format!("/v1/items/item-{item}");
    let sent = match item >= 2 && chance(rng, 0.4) {
        true => world.send(machine, "DELETE", &path, "application/json", String::new()),
        false => {
            let line = item_line(world, rng, item);
            world.send(machine, "PUT", "/v1/items", kind, line)
        }
    };
    tokio::select! {
        biased;
        answer = sent => world.note(|| format!("item-{item}: {answer:?}")),
        () = world.sleep(TIMEOUT) => {}
    }
}

/// Fills the catalogue.
pub async fn first_items(world: &Rc<World>) {
    let rng = &mut stream(world.plan.seed, "items");
    let lines = (0..world.plan.items).map(|item| item_line(world, rng, item));
    let lines: Vec<String> = lines.collect();
    let lines = lines.join("\n");
    for attempt in 0.. {
        let machine = pick(rng, &world.machines);
        let kind = "application/x-ndjson";
        let answer = world.send(machine, "PUT", "/v1/items", kind, lines.clone());
        if answer.await.is_some_and(|answer| answer.status == 200) {
            return;
        }
        if attempt > 200 {
            return world.violation("the catalogue cannot be filled");
        }
        world.sleep(100).await;
    }
}
