//! Runs of seeds, and the smallest run that still fails.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;

use crate::clients::client;
use crate::finish::finish;
use crate::operators::{faults, first_items, operator, set_network, supervisor};
use crate::plan::{Kind, Plan};
use crate::world::{Counts, World};

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
    if std::env::var("SCLUB_SIM_TRACE").is_ok() {
        world.executor.start_trace();
    }
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
    if let Ok(file) = std::env::var("SCLUB_SIM_TRACE") {
        std::fs::write(file, world.executor.trace().join("\n")).unwrap();
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

/// Finds a smaller run that fails: fewer kinds of trouble, then fewer operations.
pub fn shrink(failure: Box<Failure>) -> Box<Failure> {
    let (seed, broken) = (failure.plan.seed, failure.plan.broken);
    let mut smallest = failure;
    let again = |ops: u64, without: &BTreeSet<Kind>| {
        let mut plan = Plan::new(seed, ops).leave_out(without);
        plan.broken = broken;
        run(plan, false).err()
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
             sclub-server --test cluster_sim one_seed -- --nocapture",
            plan.seed, plan.ops
        )
    }
}
