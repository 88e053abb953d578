//! Administration of the server, faults of the disk and the clock, and crashes.

use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, select};
use rand::RngExt;

use crate::disk::Faults;
use crate::plan::Kind;
use crate::seed::{Rng, chance, pick, stream};
use crate::serve::{Pace, Request, Reward};
use crate::subject;
use crate::world::{Backup, Death, GRACE, Site, World};

/// The milliseconds after which a call without an answer is given up.
const CALL_TIMEOUT: u64 = 120_000;

/// Opens the current folder whenever no process has it open.
pub async fn supervisor(world: Rc<World>) {
    let rng = &mut stream(world.plan.seed, "supervisor");
    loop {
        let site = world.current();
        let is_due = world.clock.now() >= world.reopen_at.get() && !world.is_held();
        if world.engine(&site).is_none() && is_due {
            let was_calm = world.calm_for().is_some();
            if let Err(error) = world.open(&site) {
                if was_calm && !world.disk.is_down() {
                    world.violation(format!("it does not open, without a fault: {error}"));
                }
                let pause = rng.random_range(10..500);
                world.reopen_at.set(world.clock.now() + pause);
            }
        }
        world.sleep(10).await;
    }
}

/// Snapshots, compactions, backups, copies and exports.
pub async fn operator(world: Rc<World>) {
    let rng = &mut stream(world.plan.seed, "operator");
    loop {
        let pause = rng.random_range(0..=world.plan.peace);
        world.sleep(pause).await;
        if world.next_op().is_none() {
            return;
        }
        let site = world.current();
        let (kind, request) = match rng.random_range(0..20) {
            0..4 => (Kind::Snapshots, Request::Snapshot),
            4..10 => (Kind::Compacting, Request::Compact),
            10..14 => (Kind::Copies, Request::Backup(pace(rng))),
            14..17 => (Kind::Exports, Request::Export),
            _ => {
                if world.plan.has(Kind::Copies) {
                    copies(&world, rng).await;
                }
                continue;
            }
        };
        if !world.plan.has(kind) {
            continue;
        }
        world.note(|| format!("operator: {request:?}"));
        call(&world, &site, request).await;
        // Checks that hold after a restart hold at any time.
        world.check(&site);
    }
}

/// Begins and ends experiments, in half of the runs.
pub async fn experimenter(world: Rc<World>) {
    let rng = &mut stream(world.plan.seed, "experimenter");
    if !world.plan.has(Kind::Experiments) || chance(rng, 0.5) {
        return;
    }
    loop {
        let pause = rng.random_range(0..=world.plan.peace);
        world.sleep(pause).await;
        if world.next_op().is_none() {
            return;
        }
        let request = Request::Experiment(rng.random_range(0..64));
        world.note(|| format!("experimenter: {request:?}"));
        call(&world, &world.current(), request).await;
    }
}

fn pace(rng: &mut Rng) -> Pace {
    match rng.random_range(0..4) {
        0 => Pace::Slow(rng.random_range(1..20)),
        1 => Pace::GivesUp(rng.random_range(0..5_000)),
        _ => Pace::AtOnce,
    }
}

/// Sends a request and waits for its answer, up to [`CALL_TIMEOUT`].
pub async fn call(world: &Rc<World>, site: &Rc<Site>, request: Request) {
    let what = format!("{request:?}");
    let is_slow = matches!(request, Request::Backup(Pace::Slow(_)));
    let asked = pin!(world.ask(site, request));
    if let Either::Right(_) = select(asked, world.sleep(CALL_TIMEOUT)).await
        && world.calm_for().is_some_and(|calm| calm > CALL_TIMEOUT)
        && !is_slow
    {
        world.violation(format!("{what} was not answered in {CALL_TIMEOUT} ms"));
    }
}

/// Takes a backup and uses it.
async fn copies(world: &Rc<World>, rng: &mut Rng) {
    let backups = world.backups.borrow().clone();
    if backups.is_empty() {
        return;
    }
    let backup = pick(rng, &backups);
    match chance(rng, 0.5) {
        true => visit(world, rng, backup).await,
        false => move_to(world, rng, backup),
    }
}

/// Restores a backup. `None` if that failed, which is allowed only with faults.
fn restore(world: &World, backup: &Backup) -> Option<Rc<Site>> {
    let was_calm = world.calm_for().is_some();
    match world.restore(backup) {
        Ok(site) => Some(site),
        Err(error) => {
            if was_calm && !world.disk.is_down() {
                world.violation(format!("a backup cannot be restored: {error}"));
            }
            None
        }
    }
}

/// Opens a copy beside the original, sends it a few requests, and closes it.
async fn visit(world: &Rc<World>, rng: &mut Rng, backup: &Backup) {
    world.note(|| "operator: a copy beside the original".to_owned());
    let Some(copy) = restore(world, backup) else {
        return;
    };
    if let Err(error) = world.open(&copy) {
        if world.calm_for().is_some() && !world.disk.is_down() {
            world.violation(format!("a copy does not open: {error}"));
        }
        return;
    }
    // Decisions of the original, from before and after; then its own, at the original as well.
    for _ in 0..rng.random_range(0..8) {
        let original = world.current();
        let last = world.decisions.borrow().len();
        if last == 0 {
            break;
        }
        if chance(rng, 0.3) {
            let request = crate::serve::RecommendRequest {
                user: pick(rng, &world.users.borrow()).clone(),
                among: crate::serve::Choice::All(Vec::new()),
                k: 2,
            };
            call(world, &copy, Request::Recommend(vec![request])).await;
        }
        let decision = rng.random_range(last.saturating_sub(60)..world.decisions.borrow().len());
        let reward = Reward {
            decision,
            item: None,
            reward: crate::clients::reward(world, rng),
        };
        world.note(|| format!("operator: d{decision} at a copy and at the original"));
        let request = Request::Feedback(vec![reward]);
        call(world, &copy, request.clone()).await;
        call(world, &original, request).await;
    }
    world.check(&copy);
    if world.engine(&copy).is_some() {
        close(world, &copy).await;
    }
    world.kill(&copy);
    world.destroy(&copy);
}

/// Replaces the original by a copy.
fn move_to(world: &Rc<World>, rng: &mut Rng, backup: &Backup) {
    if world.is_held() {
        return;
    }
    let original = world.current();
    let death = *pick(rng, &[Death::PowerLoss, Death::Kill]);
    world.note(|| format!("operator: {death:?}, and a copy takes over"));
    match death {
        Death::PowerLoss => world.lose_power(),
        Death::Kill => drop(world.kill(&original)),
    }
    if chance(rng, 0.5) {
        world.destroy(&original);
        // There is no way back.
        for _ in 0..20 {
            if let Some(copy) = restore(world, backup) {
                world.set_current(&copy);
                return;
            }
            world.bury();
            world.set_weather(Faults::default(), u64::MAX);
        }
    } else if let Some(copy) = restore(world, backup) {
        world.set_current(&copy);
    }
}

/// Makes the disk fail or fill up for a while, or changes the clock.
pub async fn weather(world: Rc<World>) {
    let rng = &mut stream(world.plan.seed, "weather");
    loop {
        let pause = rng.random_range(0..=world.plan.peace);
        world.sleep(pause).await;
        if world.next_op().is_none() {
            return;
        }
        let lasts = rng.random_range(10..=2_000);
        if chance(rng, 0.05) && world.plan.has(Kind::FailedSync) {
            // Longer than a caller waits for an unknown outcome.
            let lasts = rng.random_range(11_000..=20_000);
            world.note(|| format!("weather: no sync for {lasts} ms"));
            let failed_sync = 1.0;
            let faults = Faults {
                failed_sync,
                ..Faults::default()
            };
            world.set_weather(faults, u64::MAX);
            world.sleep(lasts).await;
            world.set_weather(Faults::default(), u64::MAX);
            continue;
        }
        match rng.random_range(0..10) {
            0..5 => {
                let faults = match chance(rng, 0.3) && world.plan.has(Kind::SlowDisk) {
                    // Only slow, so that requests wait for the disk for long.
                    true => Faults {
                        slow: 0.5,
                        max_delay: *pick(rng, &[50, 500]),
                        ..Faults::default()
                    },
                    false => world.plan.faults,
                };
                world.note(|| format!("weather: a storm of {lasts} ms"));
                world.set_weather(faults, u64::MAX);
                world.sleep(lasts).await;
                world.set_weather(Faults::default(), u64::MAX);
                world.note(|| "weather: calm".to_owned());
            }
            5..8 => {
                let room = rng.random_range(0..3_000);
                if world.plan.has(Kind::FullDisk) {
                    world.note(|| format!("weather: {room} bytes are left for {lasts} ms"));
                    let capacity = world.disk.used() + room;
                    world.set_weather(Faults::default(), capacity);
                    world.sleep(lasts).await;
                    world.set_weather(Faults::default(), u64::MAX);
                    world.note(|| "weather: room again".to_owned());
                }
            }
            _ => {
                let seconds = *pick(rng, &[1, 60, 3_600, 86_400, 30 * 86_400]);
                let seconds: i64 = seconds * rng.random_range(-3..=3);
                if world.plan.has(Kind::ClockJumps) {
                    world.note(|| format!("weather: the clock jumps by {seconds} s"));
                    world.clock.jump(seconds * 1000);
                }
            }
        }
    }
}

/// Power losses, kills and shutdowns.
pub async fn reaper(world: Rc<World>) {
    let rng = &mut stream(world.plan.seed, "reaper");
    loop {
        let pause = rng.random_range(0..=world.plan.peace);
        world.sleep(pause).await;
        if world.next_op().is_none() {
            return;
        }
        let site = world.current();
        let down = match chance(rng, 0.5) {
            true => 0,
            false => rng.random_range(0..3_000),
        };
        world.reopen_at.set(world.clock.now() + down);
        match rng.random_range(0..10) {
            0..2 if world.plan.has(Kind::Crash) => {
                world.note(|| "reaper: power loss".to_owned());
                world.lose_power();
            }
            2..4 if world.plan.has(Kind::Kill) => {
                world.note(|| "reaper: kill".to_owned());
                if world.kill(&site) {
                    world.count("kills");
                }
            }
            4..6 if world.plan.has(Kind::Close) => {
                world.note(|| "reaper: close".to_owned());
                close(&world, &site).await;
            }
            6..10 if world.plan.has(Kind::StopAtCall) => {
                let after = match chance(rng, 0.5) {
                    true => rng.random_range(1..20),
                    false => rng.random_range(1..300),
                };
                let death = *pick(rng, &[Death::PowerLoss, Death::Kill]);
                world.note(|| format!("reaper: {death:?} after {after} file calls"));
                world.death.set(death);
                world.disk.stop_at(Some(world.disk.calls() + after));
                world.sleep(rng.random_range(100..2_000)).await;
                world.disk.stop_at(None);
            }
            _ => {}
        }
    }
}

/// Shuts a server down, and reads its folder.
pub async fn close(world: &Rc<World>, site: &Rc<Site>) {
    let (Some(engine), Some(group)) = (world.engine(site), world.group(site)) else {
        return;
    };
    world.hold();
    site.is_closing.set(true);
    let begun = world.clock.now();
    let shown = site.fresh.borrow().clone();
    let closing = Rc::clone(&engine);
    let (done, ended) = tokio::sync::oneshot::channel();
    world.executor.spawn(group, "close", async move {
        closing.close().await;
        let _ = done.send(());
    });
    drop(engine);
    match select(ended, world.sleep(CALL_TIMEOUT)).await {
        // It has shut down, or died meanwhile.
        Either::Left((closed, _)) => {
            world.kill(site);
            if closed.is_ok() && world.calm_for() >= Some(world.clock.now() - begun) {
                site.noted.borrow_mut().extend(shown);
            }
            if closed.is_ok() && world.calm_for().is_some() {
                read(world, site);
            }
        }
        Either::Right(_) => {
            if world.calm_for().is_some_and(|calm| calm > GRACE) {
                world.violation("it does not close");
            }
            world.kill(site);
        }
    }
    world.release();
}

/// Verifies a closed folder, and opens it: both must have the same state.
fn read(world: &World, site: &Site) {
    let verified = world.aside(|env| subject::verify(env, &site.folder, &mut |_| {}));
    if world.disk.is_down() {
        return;
    }
    let hash = match verified {
        Ok(verified) => verified.hash,
        Err(error) => return world.violation(format!("a closed folder is not whole: {error}")),
    };
    match world.open(site) {
        Ok(()) => {
            let opened = world.engine(site).map(|engine| engine.hash());
            if opened.as_ref().is_some_and(|opened| *opened != hash) {
                world.violation(format!("verify gives {hash}, and opening gives {opened:?}"));
            }
        }
        Err(_) if world.disk.is_down() => {}
        Err(error) => world.violation(format!("a closed folder does not open: {error}")),
    }
}
