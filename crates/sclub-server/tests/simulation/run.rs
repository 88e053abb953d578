//! Runs of seeds, and the smallest run that still fails.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;

use crate::clients::{client, features, item_name, new_user};
use crate::finish::finish;
use crate::operators::{experimenter, operator, reaper, supervisor, weather};
use crate::plan::Plan;
use crate::seed::stream;
use crate::seeds::Counts;
use crate::serve::Request;
use crate::world::{OUTSIDE, World};

/// A run whose promises were broken.
pub type Failure = crate::seeds::Failure<Plan>;

/// A run that went well.
#[derive(Debug, PartialEq)]
pub struct Passed {
    /// Two runs with the same one made the same choices.
    pub digest: u64,
    pub file_calls: u64,
    pub counts: Counts,
}

/// Runs a plan.
///
/// # Errors
/// The promise that was broken.
pub fn run(plan: Plan, is_loud: bool) -> Result<Passed, Box<Failure>> {
    let world = World::new(plan, is_loud);
    run_root(&world, root(Rc::clone(&world)))
}

/// Runs what happens in a world.
///
/// # Errors
/// The promise that was broken.
pub fn run_root(world: &Rc<World>, root: impl Future<Output = ()>) -> Result<Passed, Box<Failure>> {
    let ended = world.executor.run(root);
    let passed = Passed {
        digest: world.executor.digest(),
        file_calls: world.disk.calls(),
        counts: world.counts(),
    };
    let outcome = ended.map_err(|stopped| {
        Box::new(Failure {
            plan: world.plan.clone(),
            ops: world.ops(),
            what: stopped.to_string(),
            last: world.last_notes(),
        })
    });
    // Tasks refer to the world, and the world to them.
    world.executor.clear();
    outcome.map(|()| passed)
}

async fn root(world: Rc<World>) {
    let rng = &mut stream(world.plan.seed, "beginning");
    let users = (0..world.plan.users).map(|_| new_user(rng)).collect();
    *world.users.borrow_mut() = users;
    spawn(&world, "supervisor", supervisor(Rc::clone(&world)));
    let items = (0..world.plan.items).map(|number| {
        let features = features(rng, world.plan.dim);
        (item_name(number), features)
    });
    let items = Request::Upsert(items.collect());
    while world.ask(&world.current(), items.clone()).await.is_none() {
        world.sleep(10).await;
    }
    let working = Rc::new(Cell::new(0));
    let start = |name: &str, task: Pin<Box<dyn Future<Output = ()>>>| {
        working.set(working.get() + 1);
        let working = Rc::clone(&working);
        spawn(&world, name, async move {
            task.await;
            working.set(working.get() - 1);
        });
    };
    start("operator", Box::pin(operator(Rc::clone(&world))));
    start("experimenter", Box::pin(experimenter(Rc::clone(&world))));
    start("weather", Box::pin(weather(Rc::clone(&world))));
    start("reaper", Box::pin(reaper(Rc::clone(&world))));
    for number in 0..world.plan.clients {
        let task = client(Rc::clone(&world), number);
        start(&format!("client {number}"), Box::pin(task));
    }
    while working.get() > 0 {
        world.sleep(50).await;
    }
    finish(&world).await;
}

pub fn spawn(world: &World, name: &str, task: impl Future<Output = ()> + 'static) {
    world.executor.spawn(OUTSIDE, name, task);
}
