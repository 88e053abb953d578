//! Runs of many seeds, and the smallest run that still fails. Shared by the simulations of a server and of a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug, Display};
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of times that each thing happened in a run.
pub type Counts = BTreeMap<&'static str, u64>;

/// The plan of a run, drawn from its seed.
pub trait Planned: Clone {
    /// The kinds of trouble that can be left out.
    type Kind: Copy + Ord + Debug + 'static;
    const KINDS: &'static [Self::Kind];
    /// The name of the test binary.
    const BINARY: &'static str;

    fn seed(&self) -> u64;

    /// The number of operations after which the run ends.
    fn ops(&self) -> u64;

    /// The kinds that are left out.
    fn without(&self) -> &BTreeSet<Self::Kind>;

    /// The same plan with another number of operations, and without some kinds.
    fn changed(&self, ops: u64, without: &BTreeSet<Self::Kind>) -> Self;
}

/// A run whose promises were broken.
#[derive(Debug)]
pub struct Failure<P> {
    pub plan: P,
    /// Operations that had begun.
    pub ops: u64,
    pub what: String,
    pub last: Vec<String>,
}

impl<P: Planned> Display for Failure<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure {
            plan,
            ops,
            what,
            last,
        } = self;
        let seed = plan.seed();
        writeln!(f, "seed {seed}, operation {ops}: {what}")?;
        writeln!(f, "the last operations:")?;
        for line in last {
            writeln!(f, "  {line}")?;
        }
        let without = plan.without().iter().map(|kind| format!("{kind:?}"));
        let without: Vec<String> = without.collect();
        write!(
            f,
            "again: SCLUB_SIM_SEED={seed} SCLUB_SIM_OPS={} SCLUB_SIM_WITHOUT={} cargo test -p sclub-server \
             --test {} one_seed -- --nocapture",
            plan.ops(),
            without.join(","),
            P::BINARY
        )
    }
}

/// The result of a run: the counts, or the failure.
pub type Outcome<P> = Result<Counts, Box<Failure<P>>>;

/// Finds a smaller run that fails: fewer kinds of trouble, then fewer operations.
fn shrink<P: Planned>(failure: Box<Failure<P>>, run: &impl Fn(P) -> Outcome<P>) -> Box<Failure<P>> {
    let plan = failure.plan.clone();
    let mut smallest = failure;
    let again = |ops: u64, without: &BTreeSet<P::Kind>| run(plan.changed(ops, without)).err();
    for kind in P::KINDS {
        let mut without = smallest.plan.without().clone();
        without.insert(*kind);
        if let Some(failure) = again(smallest.plan.ops(), &without) {
            smallest = failure;
        }
    }
    let (mut passes, mut fails) = (0, smallest.ops);
    while passes < fails {
        let middle = passes.midpoint(fails);
        match again(middle, smallest.plan.without()) {
            Some(failure) => {
                fails = middle.min(failure.ops);
                smallest = failure;
            }
            None => passes = middle + 1,
        }
    }
    smallest
}

/// Runs seeds on two threads. Returns the counts of what happened, or the first failure, minimized. With
/// `SCLUB_SIM_ALL` in the environment, failures are shown and the run goes on.
pub fn run_seeds<P: Planned>(
    from: u64,
    to: u64,
    plan: impl Fn(u64) -> P + Sync,
    run: impl Fn(P) -> Outcome<P> + Sync,
    watch: impl Fn(u64) + Sync,
) -> Result<Counts, String> {
    let goes_on = std::env::var("SCLUB_SIM_ALL").is_ok();
    let next = AtomicU64::new(from);
    let failed: Mutex<Option<String>> = Mutex::default();
    let counts: Mutex<Counts> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while failed.lock().unwrap().is_none() {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= to {
                        return;
                    }
                    watch(seed);
                    match run(plan(seed)) {
                        Ok(passed) => {
                            let mut counts = counts.lock().unwrap();
                            for (what, count) in passed {
                                *counts.entry(what).or_default() += count;
                            }
                        }
                        Err(failure) if goes_on => eprintln!("seed {seed}: {}", failure.what),
                        Err(failure) => {
                            let first = failure.to_string();
                            let report = format!("{first}\n\nsmaller: {}", shrink(failure, &run));
                            failed.lock().unwrap().get_or_insert(report);
                        }
                    }
                }
            });
        }
    });
    match failed.into_inner().unwrap() {
        Some(failure) => Err(failure),
        None => Ok(counts.into_inner().unwrap()),
    }
}

/// Runs the seeds that `SCLUB_SIM_SEEDS` names (`a..b`), by default all of them.
pub fn run_range<P: Planned>(plan: impl Fn(u64) -> P + Sync, run: impl Fn(P) -> Outcome<P> + Sync) {
    let range = std::env::var("SCLUB_SIM_SEEDS").unwrap_or_default();
    let (from, to) = range.split_once("..").unwrap_or(("", ""));
    let from = from.parse().unwrap_or(0);
    let to = to.parse().unwrap_or(u64::MAX);
    let ended = run_seeds(from, to, plan, run, |seed| {
        if seed % 100 == 0 {
            eprintln!("seed {seed}");
        }
    });
    match ended {
        Ok(counts) => eprintln!("{counts:#?}"),
        Err(failure) => panic!("{failure}"),
    }
}

/// The run that `SCLUB_SIM_SEED`, `SCLUB_SIM_OPS` and `SCLUB_SIM_WITHOUT` name, if the first is set: the seed, the
/// operations, and the kinds to leave out.
pub fn asked<P: Planned>(ops: u64) -> Option<(u64, u64, BTreeSet<P::Kind>)> {
    fn number(name: &str) -> Option<u64> {
        let text = std::env::var(name).ok()?;
        Some(u64::from_str(&text).unwrap_or_else(|_| panic!("{name} is not a number")))
    }
    let seed = number("SCLUB_SIM_SEED")?;
    let ops = number("SCLUB_SIM_OPS").unwrap_or(ops);
    let without = std::env::var("SCLUB_SIM_WITHOUT").unwrap_or_default();
    let names = without.split(',').filter(|name| !name.is_empty());
    let without = names.map(|name| {
        let kind = P::KINDS.iter().find(|kind| format!("{kind:?}") == name);
        *kind.unwrap_or_else(|| panic!("'{name}' is none of {:?}", P::KINDS))
    });
    Some((seed, ops, without.collect()))
}
