//! The end of a run: without faults, all requests are settled, and the state must be as it was acknowledged.

use std::rc::Rc;

use crate::clients::{features, item_name};
use crate::disk::{Faults, View};
use crate::model::Life;
use crate::operators::close;
use crate::seed::stream;
use crate::serve::{Pace, Reply, Request, Reward};
use crate::world::{GRACE, Site, World};

/// The milliseconds after which every call has ended.
const CALL_TIME: u64 = 5_000;

/// Checks everything that can be checked.
pub async fn finish(world: &Rc<World>) {
    world.note(|| "the end: nothing fails any more".to_owned());
    world.disk.stop_at(None);
    world.set_weather(Faults::default(), u64::MAX);
    by_itself(world).await;
    let site = settled(world).await;
    world.check(&site);
    repeat_everything(world, &site).await;
    world.check(&site);
    recovered(world, &site).await;
    unanswered(world, &site).await;
    expiry(world, &site).await;
    restarts(world, &site).await;
    damage(world, &site);
    upkeep(world, &site).await;
    restarts(world, &site).await;
    copy(world, &site).await;
}

/// The milliseconds after which a server has noticed that the faults are over.
const NOTICE: u64 = 2_000;

/// Checks that the server notices by itself that it can write again.
async fn by_itself(world: &Rc<World>) {
    world.sleep(NOTICE).await;
    let site = world.current();
    let Some(engine) = world.engine(&site) else {
        return;
    };
    let group = world.group(&site);
    world.sleep(NOTICE).await;
    if world.group(&site) == group
        && let Some(why) = engine.read_only()
    {
        world.violation(format!(
            "it does not notice that nothing fails any more: {why}"
        ));
    }
}

/// Waits until the server is open and writes again, and nothing is in flight.
async fn settled(world: &Rc<World>) -> Rc<Site> {
    let begun = world.clock.now();
    loop {
        let site = world.current();
        let is_writable = world.in_network.get() == 0
            && world.engine(&site).is_some()
            && put_canary(world, &site).await;
        if is_writable {
            world.sleep(CALL_TIME).await;
            // Clients that gave up will not know, but each of their requests has taken effect or never will.
            let now = world.tick();
            site.model.borrow_mut().settle_calls(now);
            return site;
        }
        if world.clock.now() > begun + GRACE {
            let why = world.engine(&site).map(|engine| engine.read_only());
            world.violation(format!(
                "it does not write {GRACE} ms after the last fault: {why:?}"
            ));
        }
        world.sleep(100).await;
    }
}

/// Writes something.
async fn put_canary(world: &Rc<World>, site: &Rc<Site>) -> bool {
    let rng = &mut stream(world.tick(), "canary");
    let item = (item_name(0), features(rng, world.plan.dim));
    world.ask(site, Request::Upsert(vec![item])).await == Some(Reply::Done)
}

/// Sends every reward again, so that it is known which ones count.
async fn repeat_everything(world: &Rc<World>, site: &Rc<Site>) {
    let sent = site.model.borrow().sent();
    world.note(|| format!("the end: {} rewards again", sent.len()));
    for (sent, _) in sent {
        let reward = Reward {
            decision: sent.decision,
            item: Some(sent.item),
            reward: sent.reward,
        };
        must(world, site, Request::Feedback(vec![reward])).await;
    }
    let unsure = site.model.borrow().unsure_items();
    let rng = &mut stream(world.plan.seed, "unsure items");
    for item in unsure {
        let features = features(rng, world.plan.dim);
        must(world, site, Request::Upsert(vec![(item, features)])).await;
    }
}

/// Sends a request that must be answered, if only with a permanent refusal.
async fn must(world: &Rc<World>, site: &Rc<Site>, request: Request) {
    let what = format!("{request:?}");
    match world.ask(site, request).await {
        Some(Reply::Done) => {}
        Some(Reply::Refused(why)) if !why.may_repeat() => {}
        other => world.violation(format!("without a fault, {what} got {other:?}")),
    }
}

/// The hash, once the state does not change by itself any more.
async fn quiet_hash(world: &Rc<World>, site: &Rc<Site>) -> String {
    let mut last = String::new();
    let mut same = 0;
    for _ in 0..600 {
        world.sleep(1_000).await;
        let Some(engine) = world.engine(site) else {
            continue;
        };
        let hash = engine.hash();
        same = if hash == last { same + 1 } else { 0 };
        last = hash;
        if same == 3 {
            return last;
        }
    }
    world.violation("the state never comes to rest");
    last
}

/// Checks that the state is the same after each kind of restart.
async fn restarts(world: &Rc<World>, site: &Rc<Site>) {
    world.hold();
    for way in ["kill", "power loss", "close"] {
        let before = quiet_hash(world, site).await;
        world.note(|| format!("the end: {way}"));
        match way {
            "kill" => drop(world.kill(site)),
            "power loss" => world.lose_power(),
            _ => close(world, site).await,
        }
        if world.engine(site).is_none()
            && let Err(error) = world.open(site)
        {
            world.violation(format!("after a {way} it does not open: {error}"));
            return;
        }
        let after = world.engine(site).map(|engine| engine.hash());
        if after.as_ref() != Some(&before) {
            world.violation(format!(
                "the hash was {before} before a {way}, and is {after:?}"
            ));
        }
    }
    world.release();
}

/// Checks that operations that failed during the faults work now, without a restart.
async fn recovered(world: &Rc<World>, site: &Rc<Site>) {
    world.sleep(GRACE + 1).await;
    for request in [Request::Snapshot, Request::Export] {
        world.note(|| format!("the end, without a restart: {request:?}"));
        must(world, site, request).await;
    }
}

/// Checks that every item of a decision in the journal has its reward, which was sent or is assumed.
async fn unanswered(world: &Rc<World>, site: &Rc<Site>) {
    if world.plan.settings.unanswered.is_none() {
        return;
    }
    world.note(|| "the end: what was not answered is assumed".to_owned());
    world
        .sleep(world.plan.settings.after.as_millis() + GRACE)
        .await;
    world.check(site);
    let Some(engine) = world.engine(site) else {
        return world.violation("it is gone");
    };
    let (state, decisions) = (engine.state(), world.decisions.borrow());
    for &id in &*site.noted.borrow() {
        let decision = &decisions[id];
        let life = site.model.borrow().life(id, &decision.user, decision.made);
        if life != Life::Alive || world.may_be_expired(site, decision) {
            continue;
        }
        for number in (decision.number..).take(decision.items.len()) {
            if !state.answered().contains(number) {
                world.violation(format!("{decision:?} waits for its rewards for ever"));
            }
            world.count(match state.assumed().get(number) {
                Some(_) => "assumed",
                None => "answered",
            });
        }
    }
}

/// Checks that no data is kept that only expired decisions need.
async fn expiry(world: &Rc<World>, site: &Rc<Site>) {
    let lifetime = world.plan.settings.lifetime;
    if lifetime > 60 {
        return;
    }
    world.note(|| "the end: everything expires".to_owned());
    // Forgotten users are remembered for a minute more.
    world.sleep((2 * lifetime + 64) * 1000).await;
    // The next batch dates what the last one retired.
    must_write(world, site).await;
    world.sleep((2 * lifetime + 2) * 1000).await;
    for _ in 0..2 {
        must_write(world, site).await;
    }
    let Some(engine) = world.engine(site) else {
        return world.violation("it is gone");
    };
    let state = engine.state();
    let retired = state.catalogue().map_or(0, |catalogue| catalogue.retired());
    // The last write retired something itself.
    if retired > 3 {
        world.violation(format!("{retired} retired features are kept without need"));
    }
    for decision in &*world.decisions.borrow() {
        let numbers = (decision.number..).take(decision.items.len());
        for number in numbers {
            if state.answered().contains(number) {
                world.violation(format!("{decision:?} has expired, and is kept as answered"));
            }
        }
        if state.is_forgotten(&decision.user, 0) {
            world.violation(format!(
                "{decision:?} has expired, and its user's mark is kept"
            ));
        }
    }
}

async fn must_write(world: &Rc<World>, site: &Rc<Site>) {
    if !put_canary(world, site).await {
        world.violation("without a fault, nothing can be written");
    }
}

/// Checks that the newer of two snapshots can be lost.
fn damage(world: &Rc<World>, site: &Rc<Site>) {
    let before = world.engine(site).map(|engine| engine.hash());
    let folder = site.folder.join("snapshots");
    let mut snapshots = world.disk.files(&folder, View::Visible);
    snapshots.retain(|(path, _)| path.extension().is_some_and(|it| it == "snap"));
    let [_, .., (newest, _)] = &snapshots[..] else {
        return;
    };
    world.note(|| "the end: the newest snapshot is damaged".to_owned());
    world.hold();
    world.kill(site);
    world.disk.damage(newest);
    world.count("damaged snapshots");
    if let Err(error) = world.open(site) {
        return world.violation(format!("without the newest snapshot: {error}"));
    }
    let after = world.engine(site).map(|engine| engine.hash());
    if after != before {
        world.violation(format!(
            "the hash was {before:?}, and is {after:?} without the newest snapshot"
        ));
    }
    world.release();
}

async fn upkeep(world: &Rc<World>, site: &Rc<Site>) {
    // Wait, so that what failed lately has been retried.
    world.sleep(GRACE + 1).await;
    for request in [Request::Snapshot, Request::Compact, Request::Export] {
        world.note(|| format!("the end: {request:?}"));
        let what = format!("{request:?}");
        if world.ask(site, request).await != Some(Reply::Done) {
            world.violation(format!("without a fault, {what} fails"));
        }
        world.check(site);
    }
}

/// Checks that a backup of a quiet server has the same state.
async fn copy(world: &Rc<World>, site: &Rc<Site>) {
    let before = quiet_hash(world, site).await;
    must(world, site, Request::Backup(Pace::AtOnce)).await;
    let backup = world.backups.borrow().last().cloned();
    let Some(backup) = backup else {
        return world.violation("without a fault, there is no backup");
    };
    let copy = match world.restore(&backup) {
        Ok(copy) => copy,
        Err(error) => return world.violation(format!("a backup cannot be restored: {error}")),
    };
    // The restored folder is durable.
    world.hold();
    world.lose_power();
    if let Err(error) = world.open(&copy) {
        return world.violation(format!("a copy does not open: {error}"));
    }
    let after = world.engine(&copy).map(|engine| engine.hash());
    if after.as_ref() != Some(&before) {
        world.violation(format!("the hash was {before}, and a copy's is {after:?}"));
    }
    close(world, &copy).await;
}
