//! A short history that is stopped at every single file call in turn.

use std::cell::Cell;
use std::rc::Rc;

use rand::RngExt;

use crate::clients::item_name;
use crate::finish::finish;
use crate::operators::{close, supervisor};
use crate::plan::Plan;
use crate::run::{run_root, spawn};
use crate::seed::stream;
use crate::serve::{Choice, Pace, RecommendRequest, Request, Reward};
use crate::world::{Death, World};

const USERS: [&str; 3] = [
    "user-aaaaaaaaaaaa",
    "user-bbbbbbbbbbbb",
    "user-cccccccccccc",
];

fn recommend(user: usize, k: usize) -> Request {
    Request::Recommend(vec![RecommendRequest {
        user: USERS[user].to_owned(),
        among: Choice::All(Vec::new()),
        k,
    }])
}

/// Rewards for the first items of decisions. Each value is used once.
fn feedback(decisions: &[usize]) -> Request {
    let rewards = decisions.iter().map(|&decision| Reward {
        decision,
        item: None,
        reward: 0.5 + decision as f64 / 64.0,
    });
    Request::Feedback(rewards.collect())
}

fn upsert(items: &[usize], turn: f64) -> Request {
    let items = items.iter().map(|&number| {
        let angle = number as f64 + turn;
        (item_name(number), vec![angle.cos(), angle.sin()])
    });
    Request::Upsert(items.collect())
}

/// Every request that writes, once or twice. `None` closes and opens the folder.
fn history() -> Vec<Option<Request>> {
    let mut history = vec![upsert(&[0, 1, 2], 0.0)];
    // Decisions 0 to 5, two for each user.
    history.extend((0..6).map(|number| recommend(number % 3, 2)));
    history.extend([
        feedback(&[0]),
        feedback(&[1, 2]),
        feedback(&[0]),
        Request::Forget(USERS[1].to_owned()),
        Request::Snapshot,
        feedback(&[3]),
        upsert(&[1, 3], 0.5),
        Request::Compact,
        // Refused: the user is forgotten.
        feedback(&[4]),
        Request::Backup(Pace::AtOnce),
        Request::Remove(item_name(2)),
    ]);
    let mut history: Vec<_> = history.into_iter().map(Some).collect();
    history.push(None);
    history.extend([feedback(&[5]), Request::Export, Request::Compact].map(Some));
    history
}

/// Runs the history until the machine stops, then checks everything. Returns the number of file calls of the
/// history.
fn stop_at(call: u64, death: Death, policy: &str) -> u64 {
    let world = World::new(Plan::plain(call, policy), false);
    world.death.set(death);
    world.disk.stop_at(Some(call));
    let calls = Cell::new(0);
    let root = async {
        spawn(&world, "supervisor", supervisor(Rc::clone(&world)));
        world.sleep(1).await;
        let site = world.current();
        for request in history() {
            let needs = match &request {
                Some(Request::Feedback(rewards)) => {
                    rewards.iter().map(|reward| reward.decision + 1).max()
                }
                _ => None,
            };
            if world.engine(&site).is_none() || needs > Some(world.decisions.borrow().len()) {
                break;
            }
            match request {
                Some(request) => drop(world.ask(&site, request).await),
                None => close(&world, &site).await,
            }
        }
        calls.set(world.disk.calls());
        finish(&world).await;
    };
    if let Err(failure) = run_root(&world, root) {
        panic!("stopped at file call {call}, {death:?}, {policy}: {failure}");
    }
    calls.get()
}

/// Stops at every call of the history, on two threads.
fn stop_everywhere(policy: &str) {
    let all = stop_at(u64::MAX, Death::Kill, policy);
    assert!(all > 50, "{all} calls");
    std::thread::scope(|scope| {
        for death in [Death::PowerLoss, Death::Kill] {
            scope.spawn(move || {
                for call in 1..=all {
                    stop_at(call, death, policy);
                }
            });
        }
    });
}

/// Runs the history until its process is killed at one call, opens the folder, and compacts until the
/// power fails at another call: a process must not rely on what the one before left half done.
fn stop_twice(first: u64, second: u64) {
    let world = World::new(Plan::plain(first ^ second << 32, "linucb-one"), false);
    let root = async {
        let site = world.current();
        for (call, death) in [(first, Death::Kill), (second, Death::PowerLoss)] {
            world.death.set(death);
            world.disk.stop_at(Some(world.disk.calls() + call));
            let is_open = world.open(&site).is_ok();
            let requests = match death {
                Death::Kill => history(),
                Death::PowerLoss => vec![Some(Request::Compact)],
            };
            for request in requests.into_iter().flatten() {
                if !is_open || world.engine(&site).is_none() {
                    break;
                }
                world.ask(&site, request).await;
            }
            world.disk.stop_at(None);
            world.bury();
            world.kill(&site);
        }
        spawn(&world, "supervisor", supervisor(Rc::clone(&world)));
        finish(&world).await;
    };
    if let Err(failure) = run_root(&world, root) {
        panic!("killed at file call {first}, powerless {second} calls later: {failure}");
    }
}

/// The calls of the history without its end, and those of opening and compacting.
const FIRST: std::ops::Range<u64> = 1..330;
const SECOND: std::ops::Range<u64> = 1..110;

#[test]
fn nothing_is_lost_whatever_file_calls_the_last_two_processes_stop_at() {
    let rng = &mut stream(1, "two deaths");
    for _ in 0..150 {
        stop_twice(rng.random_range(FIRST), rng.random_range(SECOND));
    }
}

#[test]
#[ignore = "takes long"]
fn nothing_is_lost_whatever_file_calls_many_processes_stop_at() {
    let rng = &mut stream(2, "two deaths");
    for turn in 0..u64::MAX {
        if turn % 100 == 0 {
            eprintln!("{turn}");
        }
        stop_twice(rng.random_range(FIRST), rng.random_range(SECOND));
    }
}

#[test]
fn nothing_is_lost_whatever_file_call_is_the_last() {
    stop_everywhere("sclub");
}
