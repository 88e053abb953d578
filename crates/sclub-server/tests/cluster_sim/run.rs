//! Runs of seeds, and the smallest run that still fails.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;

use crate::clients::client;
use crate::finish::finish;
use crate::operators::{faults, first_items, operator, set_network, supervisor};
use crate::plan::Plan;
use crate::seeds::Counts;
use crate::world::World;

/// A run whose promises were broken.
pub type Failure = crate::seeds::Failure<Plan>;

/// A run that went well.
#[derive(Debug, PartialEq)]
pub struct Passed {
    /// Two runs with the same one made the same choices.
    pub digest: u64,
    /// The simulated milliseconds.
    pub time: u64,
    pub counts: Counts,
}

/// Runs a plan.
///
/// # Errors
/// The promise that was broken.
pub fn run(plan: Plan, is_loud: bool) -> Result<Passed, Box<Failure>> {
    let world = World::new(plan, is_loud);
    let ended = world.executor.run(root(Rc::clone(&world)));
    let passed = Passed {
        digest: world.executor.digest(),
        time: world.clock.now(),
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
    for machine in &world.machines {
        world.kill(machine);
    }
    // Tasks refer to the world, and the world to them.
    world.executor.clear();
    outcome.map(|()| passed)
}

async fn root(world: Rc<World>) {
    world.init().await;
    world.spawn("supervisor", supervisor(Rc::clone(&world)));
    first_items(&world).await;
    // Until all nodes have them.
    world.sleep(1_000).await;
    set_network(&world, true);
    let working = Rc::new(Cell::new(0));
    let start = |name: &str, task: Pin<Box<dyn Future<Output = ()>>>| {
        working.set(working.get() + 1);
        let working = Rc::clone(&working);
        world.spawn(name, async move {
            task.await;
            working.set(working.get() - 1);
        });
    };
    start("faults", Box::pin(faults(Rc::clone(&world))));
    start("operator", Box::pin(operator(Rc::clone(&world))));
    for number in 0..world.plan.clients {
        let task = client(Rc::clone(&world), number);
        start(&format!("client {number}"), Box::pin(task));
    }
    while working.get() > 0 {
        world.sleep(50).await;
    }
    finish(&world).await;
}
