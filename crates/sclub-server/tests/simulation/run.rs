//! Runs of seeds, and the smallest run that still fails.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;

use crate::clients::{client, features, item_name, new_user};
use crate::finish::finish;
use crate::operators::{operator, reaper, supervisor, weather};
use crate::plan::{Kind, Plan};
use crate::seed::stream;
use crate::serve::Request;
use crate::world::{Counts, OUTSIDE, World};

/// A run whose promises were broken.
#[derive(Debug)]
pub struct Failure {
    pub plan: Plan,
    /// Operations that had begun.
    pub ops: u64,
    pub what: String,
    pub last: Vec<String>,
}

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

/// Finds a smaller run that fails: fewer kinds of trouble, then fewer operations.
pub fn shrink(failure: Box<Failure>) -> Box<Failure> {
    let seed = failure.plan.seed;
    let mut smallest = failure;
    let again = |ops: u64, without: &BTreeSet<Kind>| {
        run(Plan::new(seed, ops).leave_out(without), false).err()
    };
    for kind in Kind::ALL {
        let mut without = smallest.plan.without.clone();
        without.insert(kind);
        if let Some(failure) = again(smallest.plan.ops, &without) {
            smallest = failure;
        }
    }
    let (mut passes, mut fails) = (0, smallest.ops);
    while passes < fails {
        let middle = passes.midpoint(fails);
        match again(middle, &smallest.plan.without) {
            Some(failure) => {
                fails = middle.min(failure.ops);
                smallest = failure;
            }
            None => passes = middle + 1,
        }
    }
    smallest
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure {
            plan,
            ops,
            what,
            last,
        } = self;
        writeln!(f, "seed {}, operation {ops}: {what}", plan.seed)?;
        writeln!(f, "the last operations:")?;
        for line in last {
            writeln!(f, "  {line}")?;
        }
        let without: Vec<String> = plan.without.iter().map(Kind::to_string).collect();
        let without = without.join(",");
        write!(
            f,
            "again: SCLUB_SIM_SEED={} SCLUB_SIM_OPS={} SCLUB_SIM_WITHOUT={without} cargo test -p \
             sclub-server --test simulation one_seed -- --nocapture",
            plan.seed, plan.ops
        )
    }
}
