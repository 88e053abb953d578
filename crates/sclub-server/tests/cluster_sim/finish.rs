//! The end of a run: everything is healed, and what is left is compared with what was promised.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use sclub_server::api::App;
use sclub_server::cluster::members::{Members, partition_of};
use sclub_server::cluster::{Cluster, Node, TTL};
use sclub_server::event::Batch;
use sclub_server::identity::Identity;
use sclub_server::state::{Effect, State};
use serde_json::json;

use crate::bus::SimBus;
use crate::clients::{Outcome, feedback, recommend};
use crate::model::{Fold, USER_LENGTH, USER_PREFIX, new_user, reward_of};
use crate::nats::{MAX_LATE, Network};
use crate::operators::{forget, group_name};
use crate::seed::{pick, stream};
use crate::world::{Machine, OUTSIDE, Process, World};

/// The milliseconds after which a healed cluster has settled.
const MAX_SETTLING: u64 = 40_000;

/// The milliseconds after which a healed cluster takes writes again: the length of a lease, a second, and twice
/// the timeout of a call that was lost before.
const MAX_RECOVERY: u64 = TTL + 1_000 + 4_000 + MAX_LATE;

/// The milliseconds after which another node takes writes for one that was killed.
const MAX_TAKEOVER: u64 = TTL + 1_000 + 200;

/// Ends all faults.
fn heal(world: &Rc<World>) {
    world.note(|| "the end: everything is healed".to_owned());
    {
        let mut core = world.nats.core();
        core.network = Network::PERFECT;
        core.has_majority = true;
    }
    for machine in &world.machines {
        machine.start_at.set(0);
        let process = machine.process.borrow().clone();
        if let Some(process) = process {
            world.nats.core().cut(process.bus.link, false);
            world.pause(&process, false);
        }
    }
}

pub async fn finish(world: &Rc<World>) {
    heal(world);
    let healed = world.clock.now();
    for partition in 0..world.plan.partitions {
        probe(world, partition, healed + MAX_RECOVERY).await;
    }
    // Requests that were late have arrived by then.
    let arrived = healed + MAX_LATE + 1_000;
    world.sleep(arrived.saturating_sub(world.clock.now())).await;
    settle(world).await;
    take_over(world).await;
    settle(world).await;
    answer_all(world).await;
    forget_rest(world).await;
    check_streams(world).await;
    compact(world).await;
    settle(world).await;
    check_streams(world).await;
    check_gone(world);
}

/// A write to a partition succeeds before a time.
async fn probe(world: &Rc<World>, partition: usize, deadline: u64) {
    let rng = &mut stream(world.plan.seed, &format!("probe {partition}"));
    let user = user_of(world, partition, rng);
    loop {
        let machine = Rc::clone(pick(rng, &world.machines));
        let made = recommend(world, &machine, std::slice::from_ref(&user), 1, 20_000).await;
        if let [decision] = made[..]
            && feedback(world, &machine, &[(decision, 0)], 20_000).await == Outcome::Learned
        {
            break;
        }
        if world.clock.now() > deadline {
            return world.violation(format!("p{partition} takes no writes"));
        }
        world.sleep(20).await;
    }
    if world.clock.now() > deadline {
        world.violation(format!("p{partition} took no writes for too long"));
    }
}

/// A new user of a partition.
fn user_of(world: &World, partition: usize, rng: &mut crate::seed::Rng) -> String {
    loop {
        let user = new_user(rng);
        if partition_of(&user, world.plan.partitions) == partition {
            return user;
        }
    }
}

/// The engine of a group on a node, if it has one.
fn app(node: &Node, group: &str) -> Option<Arc<App>> {
    let group = node.groups().iter().find(|one| one.name == group)?;
    group.app().filter(|app| app.engine().is_some())
}

fn is_leading(node: &Node, group: &str) -> bool {
    let app = app(node, group);
    let engine = app.as_ref().and_then(|app| app.engine());
    engine.is_some_and(|engine| engine.is_leading())
}

/// The owners of a group.
fn owners(world: &World, group: &str) -> Vec<(Rc<Machine>, Process)> {
    let running = world.running().into_iter();
    running
        .filter(|(_, process)| process.node().is_some_and(|node| is_leading(&node, group)))
        .collect()
}

/// The reason why the cluster has not settled.
fn unsettled(world: &World) -> Option<String> {
    let running = world.running();
    if running.len() < world.machines.len() {
        return Some("a node is not running".to_owned());
    }
    let members = Members::read(&*running[0].1.bus);
    if members.members.len() != running.len() {
        return Some(format!("{} members", members.members.len()));
    }
    for index in 0..=world.plan.partitions {
        let group = group_name(world, index);
        let ranking = members.ranking(&group);
        let first = ranking.first().map(|member| member.name.clone());
        let owners = owners(world, &group);
        let names: Vec<String> = owners
            .iter()
            .map(|(machine, _)| machine.name.borrow().clone())
            .collect();
        if names.len() != 1 || first.as_ref() != names.first() {
            return Some(format!("{group} is owned by {names:?}, not by {first:?}"));
        }
        // Standbys have the whole stream.
        let last = world.nats.core().bounds(&group).1;
        let count = if index == world.plan.partitions {
            usize::MAX
        } else {
            world.plan.standby + 1
        };
        for member in ranking.into_iter().take(count) {
            let node = running.iter().find_map(|(machine, process)| {
                (*machine.name.borrow() == member.name).then(|| process.node())?
            });
            let app = node.and_then(|node| app(&node, &group));
            let engine = app.as_ref().and_then(|app| app.engine());
            let position = engine.map(|engine| engine.state().position());
            if position != Some(last) {
                return Some(format!(
                    "{} has {group} up to {position:?} of {last}",
                    member.name
                ));
            }
        }
    }
    None
}

/// Waits until each group is owned by its first choice, and standbys have caught up.
async fn settle(world: &Rc<World>) {
    let begun = world.clock.now();
    loop {
        let Some(reason) = unsettled(world) else {
            return;
        };
        if world.clock.now() > begun + MAX_SETTLING {
            for (machine, process) in world.running() {
                let members = Members::read(&*process.bus);
                let Some(node) = process.node() else { continue };
                for group in node.groups() {
                    let ranking = members.ranking(&group.name);
                    let ranking: Vec<&str> = ranking.iter().map(|m| &*m.name).collect();
                    let app = group.app();
                    let engine = app.as_ref().and_then(|app| app.engine());
                    let role = engine.map(|engine| (engine.role(), engine.state().position()));
                    let name = machine.name.borrow();
                    world.note(|| format!("{name}: {} {role:?} {ranking:?}", group.name));
                }
            }
            return world.violation(format!("the cluster does not settle: {reason}"));
        }
        world.sleep(100).await;
    }
}

/// Kills the owner of a partition. Another node must take writes soon.
async fn take_over(world: &Rc<World>) {
    let rng = &mut stream(world.plan.seed, "takeover");
    let partition = (world.plan.seed % world.plan.partitions as u64) as usize;
    let user = user_of(world, partition, rng);
    let group = group_name(world, partition);
    let owners = owners(world, &group);
    let Some((machine, _)) = owners.first() else {
        return world.violation(format!("{group} has no owner"));
    };
    let made = recommend(world, machine, &[user], 1, 20_000).await;
    let [decision] = made[..] else {
        return world.violation("without a fault, a recommendation fails");
    };
    let killed = world.clock.now();
    world.note(|| format!("the end: the owner of {group} is killed"));
    machine.start_at.set(killed + 2 * MAX_TAKEOVER);
    world.kill(machine);
    let others = world
        .machines
        .iter()
        .filter(|other| other.index != machine.index);
    let others: Vec<Rc<Machine>> = others.cloned().collect();
    loop {
        let other = Rc::clone(pick(rng, &others));
        if feedback(world, &other, &[(decision, 0)], 20_000).await == Outcome::Learned {
            break;
        }
        if world.clock.now() > killed + 2 * MAX_TAKEOVER {
            break;
        }
        world.sleep(10).await;
    }
    let took = world.clock.now() - killed;
    // Without a standby the state has to be read first.
    let most = MAX_TAKEOVER + if world.plan.standby == 0 { 1_000 } else { 0 };
    if took > most {
        world.violation(format!("a takeover took {took} ms"));
    }
    world
        .sleep((killed + 2 * MAX_TAKEOVER).saturating_sub(world.clock.now()))
        .await;
}

/// Every decision that is still alive accepts its reward.
async fn answer_all(world: &Rc<World>) {
    let rng = &mut stream(world.plan.seed, "answers");
    let decisions = world.model.borrow().decisions.len();
    for decision in 0..decisions {
        let machine = Rc::clone(pick(rng, &world.machines));
        let is_exempt = {
            let model = world.model.borrow();
            model.may_be_expired(decision, world.clock.now()) || model.may_be_forgotten(decision)
        };
        // Each is sent to some node, whether it was learned before or not.
        let outcome = feedback(world, &machine, &[(decision, 0)], 20_000).await;
        if !is_exempt && outcome != Outcome::Learned {
            world.violation(format!("a decision is not accepted: {outcome:?}"));
        }
    }
}

/// Forgets the users whose request failed, and those who were waiting for it.
async fn forget_rest(world: &Rc<World>) {
    let users: Vec<String> = {
        let model = world.model.borrow();
        let failed = model
            .forgets
            .iter()
            .filter(|(_, forget)| !forget.is_acknowledged);
        let failed = failed.map(|(user, _)| user.clone());
        failed.chain(model.retired.iter().cloned()).collect()
    };
    for user in users {
        if !forget(world, &world.machines[0], &user).await {
            world.violation(format!("without a fault, {user} cannot be forgotten"));
        }
    }
}

/// Compacts until all nodes that are running have confirmed.
async fn compact(world: &Rc<World>) {
    for _ in 0..5 {
        let answer = world
            .post(&world.machines[0], "/v1/admin/compact", &json!({}), 20_000)
            .await;
        world.note(|| format!("the end: a compaction: {answer:?}"));
        let unconfirmed = match answer {
            Some(answer) if answer.status == 200 => answer.body["unconfirmed"].clone(),
            _ => return world.violation("without a fault, a compaction fails"),
        };
        let unconfirmed = unconfirmed.as_array().cloned().unwrap_or_default();
        let is_running = |name: &serde_json::Value| {
            let mut names = world.machines.iter().map(|machine| machine.name.borrow());
            names.any(|running| name == &*running)
        };
        if !unconfirmed.iter().any(is_running) {
            return;
        }
        world.sleep(5_000).await;
    }
    world.violation("a compaction is not confirmed");
}

/// Compares the streams with what was acknowledged, and the nodes with the streams.
async fn check_streams(world: &Rc<World>) {
    world.sleep(1_000).await;
    settle(world).await;
    let bus = SimBus::connect(&world.nats, world.executor.spawner(OUTSIDE));
    let identity = match Cluster::read(&*bus).await {
        Ok((_, identity)) => identity,
        Err(error) => return world.violation(error),
    };
    world.nats.core().disconnect(bus.link);
    let mut learned: BTreeMap<u64, Vec<(usize, String, String, f64)>> = BTreeMap::new();
    for index in 0..=world.plan.partitions {
        match check_group(world, index, &identity) {
            Err(error) => return world.violation(error),
            Ok(fold) => {
                for (number, all) in fold.learned {
                    let all = all
                        .into_iter()
                        .map(|(user, item, reward)| (index, user, item, reward));
                    learned.entry(number).or_default().extend(all);
                }
            }
        }
    }
    let model = world.model.borrow();
    for (number, all) in &learned {
        let Some(given) = model.given.get(number) else {
            return world.violation(format!("a reward that was never sent: {number}: {all:?}"));
        };
        let partition = partition_of(&given.user, world.plan.partitions);
        let expected = (
            partition,
            given.user.clone(),
            given.item.clone(),
            reward_of(*number),
        );
        if *all != [expected] {
            return world.violation(format!(
                "the reward {number} is learned as {all:?}, sent as {given:?}"
            ));
        }
    }
    for (number, given) in &model.given {
        if given.is_acknowledged && !learned.contains_key(number) {
            return world.violation(format!("the reward {number} is lost: {given:?}"));
        }
    }
}

/// Folds a stream, and compares the result with that of each node.
fn check_group(world: &World, index: usize, identity: &Identity) -> Result<Fold, String> {
    let group = group_name(world, index);
    let (first, messages) = {
        let mut core = world.nats.core();
        let stream = core.stream(&group);
        (stream.first, stream.messages.clone())
    };
    let new = || State::new(identity.clone()).map_err(|error| error.to_string());
    let mut fold = Fold::default();
    for message in &messages {
        let batch = Batch::decode(message).map_err(|error| error.to_string())?;
        fold.apply(&batch);
    }
    let state = replayed(&group, new()?, &messages)?;
    let known = state.users().parts().0.iter().flatten();
    let known: BTreeMap<String, (u64, f64)> = known
        .map(|user| (user.id.to_string(), (user.rewards, user.reward_sum)))
        .collect();
    if known != fold.users {
        return Err(format!(
            "{group}: users are {known:?}, and should be {:?}",
            fold.users
        ));
    }
    let hash = state.hash();
    // Also from the oldest snapshot that the stream reaches.
    let prefix = format!("{group}/");
    let oldest = {
        let core = world.nats.core();
        // A node that was replaced may have written an older one late.
        let is_needed = |name: &str| {
            let at = name.strip_prefix(&prefix).and_then(|at| at.parse().ok());
            at.is_some_and(|at: u64| at + 1 >= first)
        };
        let mut all = core.objects.iter().filter(|(name, _)| is_needed(name));
        all.next().map(|(_, object)| object.clone())
    };
    let state = match oldest {
        Some(object) => {
            State::load(identity.clone(), &mut &object[..]).map_err(|error| format!("{error:?}"))?
        }
        None => new()?,
    };
    if state.position() + 1 < first {
        return Err(format!(
            "{group}: batch {} was purged",
            state.position() + 1
        ));
    }
    let other = replayed(&group, state, &messages)?.hash();
    if other != hash {
        return Err(format!("{group}: a snapshot differs from the stream"));
    }
    for (machine, process) in world.running() {
        let Some(app) = process.node().and_then(|node| app(&node, &group)) else {
            continue;
        };
        let Some(engine) = app.engine() else { continue };
        // A node that no longer needs the group may be behind.
        if engine.state().position() == messages.len() as u64 && engine.hash() != hash {
            let name = machine.name.borrow();
            return Err(format!(
                "{group}: the state of {name} differs from the stream"
            ));
        }
    }
    Ok(fold)
}

fn replayed(group: &str, mut state: State, messages: &[Bytes]) -> Result<State, String> {
    for number in state.position() + 1..=messages.len() as u64 {
        let batch = Batch::decode(&messages[number as usize - 1]);
        let batch = batch.map_err(|error| error.to_string())?;
        let replayed = state.replay(number, &batch, &mut Effect::default());
        replayed.map_err(|rejected| format!("{group}: batch {number}: {rejected}"))?;
    }
    Ok(state)
}

/// Users who were forgotten are nowhere.
fn check_gone(world: &World) {
    let model = world.model.borrow();
    let clean = model.forgets.iter().filter(|(_, forget)| forget.is_clean);
    let gone: BTreeSet<&str> = clean.map(|(user, _)| user.as_str()).collect();
    let find = |bytes: &[u8]| find_user(bytes, &gone);
    for (name, stream) in world.nats.core().streams() {
        let live = stream.messages.iter().skip(stream.first as usize - 1);
        if let Some(user) = live.flat_map(|message| find(message)).next() {
            return world.violation(format!("{user} is forgotten, and in the stream {name}"));
        }
    }
    for (name, object) in &world.nats.core().objects {
        if let Some(user) = find(object) {
            return world.violation(format!("{user} is forgotten, and in the object {name}"));
        }
    }
    for machine in &world.machines {
        for (path, bytes) in world.files(machine) {
            if let Some(user) = find(&bytes) {
                let name = machine.name.borrow();
                return world.violation(format!(
                    "{user} is forgotten, and in {} of {name}",
                    path.display()
                ));
            }
        }
    }
}

/// The first of these users whose id is among some bytes.
fn find_user(bytes: &[u8], users: &BTreeSet<&str>) -> Option<String> {
    let prefix = USER_PREFIX.as_bytes();
    let mut from = 0;
    while let Some(at) = memchr(bytes, prefix, from) {
        let id = bytes.get(at..at + USER_LENGTH);
        if let Some(Ok(id)) = id.map(std::str::from_utf8)
            && users.contains(id)
        {
            return Some(id.to_owned());
        }
        from = at + 1;
    }
    None
}

fn memchr(bytes: &[u8], what: &[u8], from: usize) -> Option<usize> {
    let found = bytes
        .get(from..)?
        .windows(what.len())
        .position(|part| part == what);
    found.map(|at| at + from)
}
