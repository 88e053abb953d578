//! The engine over a store in memory: what was answered is kept, whatever happens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use sclub::ItemSet;
use sclub_server::engine::{Among, Asked, Engine, Given, Recommended, Refusal, verify};
use sclub_server::event::Item;
use sclub_server::settings::Settings;
use sclub_server::state::Scratch;
use sclub_server::store::Store;
use sclub_server::store::faulty::Faulty;
use sclub_server::store::memory::Memory;
use tokio::runtime::Runtime;

const DIM: usize = 3;

fn settings() -> Settings {
    of("sclub")
}

fn of(policy: &str) -> Settings {
    Settings {
        policy: Some(policy.to_owned()),
        snapshot_every: 7,
        ..Settings::default()
    }
}

/// An engine with the runtime that its futures need.
struct Bench {
    engine: Engine,
    runtime: Runtime,
}

impl Bench {
    fn open(store: Arc<dyn Store>) -> Self {
        Self::with(store, &settings())
    }

    fn with(store: Arc<dyn Store>, settings: &Settings) -> Self {
        Self {
            engine: Engine::open(store, settings).unwrap(),
            runtime: Runtime::new().unwrap(),
        }
    }

    fn put(&self, id: &str, features: [f64; DIM]) -> Result<usize, Refusal> {
        let item = Item {
            id: id.to_owned(),
            features: features.to_vec(),
        };
        self.runtime.block_on(self.engine.upsert(vec![item]))
    }

    fn recommend(&self, user: &str, k: usize) -> Result<Recommended, Refusal> {
        let asked = Asked {
            user,
            among: Among::All(Vec::new()),
            k,
        };
        self.engine.recommend(&asked, &mut Scratch::default())
    }

    fn feedback(&self, decision: &str, reward: f64) -> Result<bool, Refusal> {
        self.feedback_on(decision, None, reward)
    }

    fn feedback_on(
        &self,
        decision: &str,
        item: Option<&str>,
        reward: f64,
    ) -> Result<bool, Refusal> {
        let given = Given {
            decision,
            item,
            reward,
        };
        let applied = self.runtime.block_on(self.engine.feedback(&[given]))?;
        Ok(applied[0])
    }

    fn forget(&self, user: &str) -> Result<bool, Refusal> {
        self.runtime.block_on(self.engine.forget(user))
    }

    fn hash(&self) -> String {
        self.engine.hashed().1
    }

    /// Waits until no fit is on its way or due.
    fn settle(&self) {
        let begun = Instant::now();
        let is_due = || {
            let state = self.engine.state();
            state.policy().and_then(|policy| policy.refit()).is_some()
        };
        while is_due() || self.engine.is_fitting() {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "a fit never came"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A store with three items, and another handle to it.
fn stocked() -> (Arc<Memory>, Bench) {
    let memory = Arc::new(Memory::new());
    let bench = Bench::open(memory.clone());
    bench.put("a", [1.0, 0.0, 0.0]).unwrap();
    bench.put("b", [0.0, 1.0, 0.0]).unwrap();
    bench.put("c", [0.0, 0.6, 0.8]).unwrap();
    (memory, bench)
}

#[test]
fn a_repeat_changes_nothing() {
    let (_, bench) = stocked();
    let shown = bench.recommend("u", 2).unwrap();
    assert_eq!(bench.feedback(&shown.decision, 1.0), Ok(true));
    let hash = bench.hash();
    assert_eq!(bench.feedback(&shown.decision, 0.0), Ok(false));
    let first = shown.items[0].0.as_str();
    let again = bench.feedback_on(&shown.decision, Some(first), 0.0);
    assert_eq!(again, Ok(false));
    assert_eq!(bench.hash(), hash);
    // The second item shown has a reward of its own.
    let second = shown.items[1].0.as_str();
    let other = bench.feedback_on(&shown.decision, Some(second), 0.0);
    assert_eq!(other, Ok(true));
    assert_ne!(bench.hash(), hash);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let (_, bench) = stocked();
    let hash = bench.hash();
    let shown = bench.recommend("u", 1).unwrap().decision;
    assert_eq!(
        bench.feedback("nonsense", 1.0),
        Err(Refusal::UnknownDecision)
    );
    let mut forged = shown.clone().into_bytes();
    let last = forged.len() - 1;
    forged[last] = if forged[last] == b'A' { b'Q' } else { b'A' };
    let forged = String::from_utf8(forged).unwrap();
    assert_eq!(bench.feedback(&forged, 1.0), Err(Refusal::UnknownDecision));
    for reward in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        let refused = bench.feedback(&shown, reward);
        assert!(
            matches!(&refused, Err(Refusal::Invalid { field, .. }) if field == "reward"),
            "{refused:?}"
        );
    }
    let other = bench.feedback_on(&shown, Some("zebra"), 1.0);
    assert!(matches!(other, Err(Refusal::UnknownItem { .. })));
    let unknown = Asked {
        user: "u",
        among: Among::Candidates(vec!["a", "zebra"]),
        k: 1,
    };
    let refused = bench.engine.recommend(&unknown, &mut Scratch::default());
    assert!(matches!(refused, Err(Refusal::UnknownItem { id, .. }) if id == "zebra"));
    let item = Item {
        id: "d".to_owned(),
        features: vec![1.0, 2.0],
    };
    let refused = bench.runtime.block_on(bench.engine.upsert(vec![item]));
    assert!(matches!(refused, Err(Refusal::Invalid { .. })));
    assert_eq!(bench.hash(), hash);
    assert_eq!(bench.feedback(&shown, 1.0), Ok(true));
}

#[test]
fn another_folders_decisions_are_not_known() {
    let (_, one) = stocked();
    let (_, other) = stocked();
    let shown = one.recommend("u", 1).unwrap().decision;
    assert_eq!(other.feedback(&shown, 1.0), Err(Refusal::UnknownDecision));
}

#[test]
fn a_decision_expires() {
    let memory = Arc::new(Memory::new());
    let brief = Settings {
        lifetime: 1,
        ..settings()
    };
    let bench = Bench::with(memory, &brief);
    bench.put("a", [1.0, 0.0, 0.0]).unwrap();
    let shown = bench.recommend("u", 1).unwrap().decision;
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(bench.feedback(&shown, 1.0), Err(Refusal::Expired));
}

/// What is learned is what the item was when it was shown.
#[test]
fn an_item_that_changed_since_is_learned_as_it_was_shown() {
    let outcome = |change: &dyn Fn(&Bench)| {
        let (_, bench) = stocked();
        let asked = Asked {
            user: "u",
            among: Among::Candidates(vec!["b"]),
            k: 1,
        };
        let shown = bench
            .engine
            .recommend(&asked, &mut Scratch::default())
            .unwrap();
        change(&bench);
        assert_eq!(bench.feedback(&shown.decision, 1.0), Ok(true));
        let state = bench.engine.state();
        state.policy().unwrap().own_estimate(0).unwrap()
    };
    let unchanged = outcome(&|_| {});
    assert_eq!(unchanged, [0.0, 0.5, 0.0]);
    let replaced = outcome(&|bench| drop(bench.put("b", [0.5, 0.5, 0.5])));
    assert_eq!(replaced, unchanged);
    let removed = outcome(&|bench| {
        assert_eq!(bench.runtime.block_on(bench.engine.remove("b")), Ok(true));
    });
    assert_eq!(removed, unchanged);
}

#[test]
fn a_decision_is_answered_after_a_crash() {
    let (memory, bench) = stocked();
    let shown = bench.recommend("u", 1).unwrap().decision;
    let inline = ItemSet::from_rows(DIM, &[0.5, 0.5, 0.0, 0.0, 0.5, 0.5]).unwrap();
    let asked = Asked {
        user: "v",
        among: Among::Inline(vec!["x", "y"], &inline),
        k: 2,
    };
    let sent_along = bench
        .engine
        .recommend(&asked, &mut Scratch::default())
        .unwrap();
    // Nothing is closed or flushed.
    let crashed = Arc::new(memory.crash());
    let again = Bench::open(crashed.clone());
    assert_eq!(again.feedback(&shown, 1.0), Ok(true));
    assert_eq!(again.feedback(&sent_along.decision, 1.0), Ok(true));
    let later = Bench::open(Arc::new(crashed.crash()));
    assert_eq!(later.feedback(&shown, 1.0), Ok(false));
    // New decisions never have the numbers of old ones.
    let new = later.recommend("u", 1).unwrap().decision;
    assert_eq!(later.feedback(&new, 1.0), Ok(true));
}

#[test]
fn who_was_forgotten_is_not_brought_back_by_late_rewards() {
    let (memory, bench) = stocked();
    let early = bench.recommend("u", 1).unwrap().decision;
    let stranger = bench.recommend("never seen", 1).unwrap().decision;
    let first = bench.recommend("u", 1).unwrap().decision;
    assert_eq!(bench.feedback(&first, 1.0), Ok(true));
    assert_eq!(bench.forget("u"), Ok(true));
    assert_eq!(bench.forget("never seen"), Ok(false));
    assert_eq!(bench.engine.state().users().len(), 0);
    assert_eq!(bench.feedback(&early, 1.0), Err(Refusal::Forgotten));
    assert_eq!(bench.feedback(&stranger, 1.0), Err(Refusal::Forgotten));
    bench.engine.compact().unwrap();
    assert_eq!(bench.feedback(&early, 1.0), Err(Refusal::Forgotten));
    let again = Bench::open(Arc::new(memory.crash()));
    assert_eq!(again.feedback(&early, 1.0), Err(Refusal::Forgotten));
    // She may come back of her own accord.
    std::thread::sleep(Duration::from_millis(5));
    let anew = again.recommend("u", 1).unwrap().decision;
    assert_eq!(again.feedback(&anew, 1.0), Ok(true));
}

#[test]
fn a_full_disk_refuses_writes_and_goes_on_reading() {
    let faulty = Arc::new(Faulty::new(Memory::new()));
    let faults = faulty.faults();
    let quiet = Settings {
        journal: false,
        ..settings()
    };
    let bench = Bench::with(faulty.clone(), &quiet);
    bench.put("a", [1.0, 0.0, 0.0]).unwrap();
    let shown = bench.recommend("u", 1).unwrap().decision;
    let hash = bench.hash();
    faults.set_full(true);
    let refused = bench.feedback(&shown, 1.0);
    assert!(matches!(refused, Err(Refusal::ReadOnly(_))), "{refused:?}");
    assert!(bench.engine.read_only().is_some());
    assert_eq!(bench.hash(), hash);
    assert!(bench.recommend("u", 1).is_ok());
    faults.set_full(false);
    assert_eq!(bench.feedback(&shown, 1.0), Ok(true));
    assert_eq!(bench.engine.read_only(), None);
    let verified = verify(&faulty.inner().crash(), &mut |_| {}).unwrap();
    assert_eq!(verified.hash, bench.hash());
}

/// The store said no, but the bytes had reached the disk: they count, once.
#[test]
fn an_append_that_failed_after_it_was_durable_counts_once() {
    let faulty = Arc::new(Faulty::new(Memory::new()));
    let faults = faulty.faults();
    let quiet = Settings {
        journal: false,
        ..settings()
    };
    let bench = Bench::with(faulty.clone(), &quiet);
    bench.put("a", [1.0, 0.0, 0.0]).unwrap();
    let shown = bench.recommend("u", 1).unwrap().decision;
    faults.fail_after(1);
    assert_eq!(bench.feedback(&shown, 1.0), Ok(true));
    assert_eq!(bench.feedback(&shown, 1.0), Ok(false));
    assert_eq!(bench.engine.state().rounds(), 1);
    let verified = verify(&faulty.inner().crash(), &mut |_| {}).unwrap();
    assert_eq!(verified.hash, bench.hash());
}

#[derive(Debug, Clone)]
enum Step {
    Serve { user: u8, k: u8, reward: bool },
    Together(Vec<u8>),
    Put { item: u8, features: [i8; DIM] },
    Remove(u8),
    Forget(u8),
    Compact,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u8..6, 1u8..4, any::<bool>())
            .prop_map(|(user, k, reward)| Step::Serve { user, k, reward }),
        2 => prop::collection::vec(0u8..6, 1..4).prop_map(Step::Together),
        3 => (0u8..5, any::<[i8; DIM]>()).prop_map(|(item, features)| Step::Put { item, features }),
        1 => (0u8..5).prop_map(Step::Remove),
        1 => (0u8..6).prop_map(Step::Forget),
        1 => Just(Step::Compact),
        1 => Just(Step::Crash),
    ]
}

/// Plays a history, with snapshots, compactions and crashes in between. The state of a server that
/// goes on, of one that starts again, and of an offline fold are the same. Returns how many fits were
/// taken.
fn play(settings: &Settings, steps: Vec<Step>) -> Result<u64, TestCaseError> {
    let mut memory = Arc::new(Memory::new());
    let mut bench = Bench::with(memory.clone(), settings);
    bench.put("i0", [0.5, 0.5, 0.0]).unwrap();
    for step in steps {
        match step {
            Step::Serve { user, k, reward } => {
                let shown = bench.recommend(&format!("u{user}"), k.into());
                let Ok(shown) = shown else { continue };
                for (item, _) in &shown.items {
                    let reward = f64::from(u8::from(reward));
                    let applied = bench.feedback_on(&shown.decision, Some(item), reward);
                    prop_assert_eq!(applied, Ok(true));
                }
            }
            Step::Together(users) => {
                let shown: Vec<_> = users
                    .iter()
                    .filter_map(|user| bench.recommend(&format!("u{user}"), 1).ok())
                    .collect();
                let round: Vec<Given<'_>> = shown
                    .iter()
                    .map(|shown| Given {
                        decision: &shown.decision,
                        item: None,
                        reward: 1.0,
                    })
                    .collect();
                if !round.is_empty() {
                    let applied = bench.runtime.block_on(bench.engine.feedback(&round));
                    prop_assert_eq!(applied, Ok(vec![true; round.len()]));
                }
            }
            Step::Put { item, features } => {
                let features = features.map(|f| f64::from(f) / 128.0);
                bench.put(&format!("i{item}"), features).unwrap();
            }
            Step::Remove(item) => {
                let item = format!("i{item}");
                bench.runtime.block_on(bench.engine.remove(&item)).unwrap();
            }
            Step::Forget(user) => {
                bench.forget(&format!("u{user}")).unwrap();
                // So that what is shown next is later than this.
                std::thread::sleep(Duration::from_millis(2));
            }
            Step::Compact => drop(bench.engine.compact().unwrap()),
            Step::Crash => {
                bench.settle();
                let before = bench.hash();
                memory = Arc::new(memory.crash());
                bench = Bench::with(memory.clone(), settings);
                prop_assert_eq!(bench.hash(), before);
            }
        }
    }
    bench.settle();
    let verified = verify(&memory.crash(), &mut |_| {}).unwrap();
    prop_assert_eq!(verified.hash, bench.hash());
    let state = bench.engine.state();
    prop_assert_eq!(verified.events, state.events());
    let outlook = state.policy().and_then(|policy| policy.outlook());
    Ok(outlook.map_or(0, |outlook| outlook.fits))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn state_is_the_fold_of_the_log(steps in prop::collection::vec(step(), 1..60)) {
        play(&settings(), steps)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Also where fits come in at moments of their own.
    #[test]
    fn state_with_fits_is_the_fold_of_the_log(
        steps in prop::collection::vec(step(), 1..200),
        half_life in prop::option::of(1.0..50.0),
    ) {
        let rounds: usize = steps
            .iter()
            .map(|step| usize::from(matches!(step, Step::Serve { .. } | Step::Together(_))))
            .sum();
        let is_calm = !steps.iter().any(|step| matches!(step, Step::Remove(_) | Step::Forget(_)));
        let fits = play(&Settings { half_life, ..of("sclub-soft") }, steps)?;
        prop_assert!(fits > 0 || rounds < 32 || !is_calm, "{rounds} rounds without a fit");
    }
}
