use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};

use sclub::{Outlook, Sequential};
use tempfile::TempDir;

use super::*;
use crate::engine::owner::WriteRequest;
use crate::engine::{Among, Asked, Engine, Given, Refusal, Verified, fold, verify};
use crate::env::Env;
use crate::event::{Batch, Event, Item, Stamp};
use crate::settings::Settings;
use crate::state::{Scratch, State};
use crate::store::{Folder, Log};
use common::disk::Faults;
use common::{copy_of, holding, new_folder};

#[path = "../../../tests/common/mod.rs"]
mod common;

/// Rounds before the first fit of `sclub-soft`.
const FIRST: u64 = 32;

#[test]
fn every_piece_is_done_once() {
    for threads in [1, 2, 7] {
        for pieces in [0, 1, 2, 100] {
            let done: Vec<AtomicU64> = (0..pieces).map(|_| AtomicU64::new(0)).collect();
            Threads::new(threads).each(pieces, &|piece| {
                done[piece].fetch_add(1, Ordering::Relaxed);
            });
            assert!(done.iter().all(|count| count.load(Ordering::Relaxed) == 1));
        }
    }
    assert!(Threads::new(0).0 >= 1);
}

/// Workers that wait to be let go, so that a fit is on its way for as long as a test likes.
#[derive(Clone, Default)]
struct Held(Arc<(Mutex<bool>, Condvar)>);

impl Held {
    fn let_go(&self) {
        *lock(&self.0.0) = true;
        self.0.1.notify_all();
    }
}

impl Workers for Held {
    fn each(&self, pieces: usize, work: &(dyn Fn(usize) + Sync)) {
        let (go, told) = &*self.0;
        let mut may_go = lock(go);
        while !*may_go {
            may_go = told.wait(may_go).unwrap_or_else(PoisonError::into_inner);
        }
        drop(may_go);
        Sequential.each(pieces, work);
    }
}

/// Workers that break.
struct Broken;

impl Workers for Broken {
    fn each(&self, _: usize, _: &(dyn Fn(usize) + Sync)) {
        panic!("as a test wants it");
    }
}

struct Bench {
    engine: Engine,
    runtime: tokio::runtime::Runtime,
    folder: TempDir,
}

impl Bench {
    fn open(folder: TempDir, env: &Env, workers: impl Workers + Send + 'static) -> Self {
        let settings = Settings {
            policy: Some("sclub-soft".to_owned()),
            journal_days: 0,
            ..Settings::default()
        };
        let opened = Folder::open(env, folder.path()).unwrap();
        Self {
            engine: Engine::start_with(opened, &settings, Box::new(workers)).unwrap(),
            runtime: tokio::runtime::Runtime::new().unwrap(),
            folder,
        }
    }

    /// With two items.
    fn stocked(env: &Env, workers: impl Workers + Send + 'static) -> Self {
        let bench = Self::open(new_folder(), env, workers);
        let items = [("a", [0.6, 0.8]), ("b", [0.8, -0.6])].map(|(id, features)| Item {
            id: id.to_owned(),
            features: features.to_vec(),
        });
        let put = bench.runtime.block_on(bench.engine.upsert(items.into()));
        assert_eq!(put, Ok(2));
        bench
    }

    /// What is left if the process is killed now.
    fn left(&self) -> TempDir {
        copy_of(self.folder.path())
    }

    /// A server that is started after this one was killed.
    fn crash(&self, workers: impl Workers + Send + 'static) -> Self {
        Self::open(self.left(), &Env::real(), workers)
    }

    fn snapshot(&self) {
        self.runtime.block_on(self.engine.snapshot()).unwrap();
    }

    fn compact(&self) {
        self.runtime.block_on(self.engine.compact()).unwrap();
    }

    /// Serves a user, who likes the one item or the other, and learns what she gave.
    fn serve(&self, user: &str) -> Result<(), Refusal> {
        let asked = Asked {
            user,
            among: Among::All(Vec::new()),
            k: 1,
            context: None,
        };
        let shown = self.engine.recommend(&asked, &mut Scratch::default())?;
        let given = Given {
            decision: &shown.decision,
            item: None,
            reward: f64::from(u8::from((shown.items[0].0 == "a") == (user == "u0"))),
            more: &[],
        };
        let applied = self.runtime.block_on(self.engine.feedback(&[given]))?;
        assert_eq!(applied, [true]);
        Ok(())
    }

    fn serve_some(&self, rounds: u64) {
        for round in 0..rounds {
            self.serve(&format!("u{}", round % 3)).unwrap();
        }
    }

    fn outlook(&self) -> Option<Outlook> {
        self.engine.state().policy()?.inspect().outlook()
    }

    /// Fits taken.
    fn fits(&self) -> u64 {
        self.outlook().map_or(0, |outlook| outlook.fits)
    }

    fn wait_until(&self, holds: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !holds(self) {
            assert!(begun.elapsed() < Duration::from_secs(60), "never");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn hash(&self) -> String {
        self.engine.hash()
    }
}

/// What the log alone gives.
fn verified(folder: &Path) -> Verified {
    verify(&Env::real(), folder, &mut |_| {}).unwrap()
}

/// The events in a log.
fn events(folder: &Folder) -> Vec<Event> {
    let first = folder.log.first().unwrap();
    let batches = folder.log.read(first - 1).unwrap();
    let events = batches.map(|batch| Batch::decode(&batch.unwrap().1).unwrap().events);
    events.flatten().collect()
}

#[test]
fn a_fit_computes_beside_serving_and_takes_effect_at_its_event() {
    let held = Held::default();
    let bench = Bench::stocked(&Env::real(), held.clone());
    bench.serve_some(FIRST);
    bench.wait_until(|bench| bench.engine.is_fitting());
    // On its way, and everything goes on without it, also past the next one that would be due.
    bench.serve_some(3 * FIRST);
    assert!(bench.engine.is_fitting() && bench.fits() == 0);
    // A snapshot in the middle, before it takes effect: who starts from it has the same bits.
    bench.snapshot();
    let again = bench.crash(Held::default());
    assert_eq!(again.hash(), bench.hash());
    held.let_go();
    bench.wait_until(|bench| bench.fits() == 1 && !bench.engine.is_fitting());
    assert!(bench.engine.fit_took().is_some());
    // It is computed from the state when it was due, and the next is due with the next round.
    assert_eq!(bench.outlook().unwrap().fitted_at, FIRST);
    bench.serve("u0").unwrap();
    bench.wait_until(|bench| bench.fits() == 2 && !bench.engine.is_fitting());
    assert_eq!(bench.outlook().unwrap().fitted_at, 4 * FIRST + 1);
    bench.serve("u0").unwrap();

    let events = events(bench.engine.folder());
    let is_fit = |event: &Event| matches!(event, Event::Fit { .. });
    assert_eq!(events.iter().filter(|event| is_fit(event)).count(), 2);
    // The items, and as many rounds as were learned meanwhile.
    let first = events.iter().position(is_fit).unwrap() as u64;
    assert_eq!(first, 1 + 4 * FIRST);

    // The log gives the same bits, from its beginning and from the snapshot.
    let again = verified(bench.left().path());
    assert_eq!((again.hash, again.snapshots), (bench.hash(), 1));
    bench.snapshot();
    let again = verified(bench.left().path());
    assert_eq!(again.hash, bench.hash());
    bench.compact();
    let again = verified(bench.left().path());
    assert_eq!(again.hash, bench.hash());
    assert_eq!(again.from, again.events);
}

#[test]
fn a_fit_that_a_crash_comes_before_is_made_again() {
    let bench = Bench::stocked(&Env::real(), Held::default());
    bench.serve_some(FIRST);
    bench.wait_until(|bench| bench.engine.is_fitting());
    let hash = bench.hash();
    assert_eq!(verified(bench.left().path()).hash, hash);
    // Nothing is asked of it: what is due is made.
    let again = bench.crash(Sequential);
    again.wait_until(|bench| bench.fits() == 1);
    assert_eq!(again.engine.state().rounds(), FIRST);
    let folded = verified(again.left().path());
    assert_eq!(folded.hash, again.hash());
}

#[test]
fn nobody_waits_at_the_end_for_a_fit() {
    let held = Held::default();
    let bench = Bench::stocked(&Env::real(), held.clone());
    bench.serve_some(FIRST);
    bench.wait_until(|bench| bench.engine.is_fitting());
    bench.runtime.block_on(bench.engine.close());
    let closed = bench.engine.folder().log.last();
    held.let_go();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(
        bench.engine.folder().log.last(),
        closed,
        "nothing is written after the end"
    );
    let again = bench.crash(Sequential);
    again.wait_until(|bench| bench.fits() == 1);
}

#[test]
fn a_fit_with_somebody_in_it_who_was_forgotten_is_left_out() {
    let held = Held::default();
    let bench = Bench::stocked(&Env::real(), held.clone());
    bench.serve_some(FIRST);
    bench.wait_until(|bench| bench.engine.is_fitting());
    assert_eq!(
        bench.runtime.block_on(bench.engine.forget("stranger")),
        Ok(false)
    );
    assert_eq!(bench.runtime.block_on(bench.engine.forget("u1")), Ok(true));
    held.let_go();
    bench.wait_until(|bench| bench.fits() == 1 && !bench.engine.is_fitting());
    // The one that counts was made after she had gone: of fewer users, without a new round.
    let events = events(bench.engine.folder());
    let state = {
        let identity = fold::identity(bench.engine.folder()).unwrap().unwrap();
        let mut state = State::new(identity).unwrap();
        for (number, event) in (1..).zip(&events[..events.len() - 1]) {
            let batch = Batch {
                stamp: Stamp::default(),
                events: vec![event.clone()],
            };
            let replayed = state.replay(number, &batch, &mut Effect::default());
            replayed.unwrap();
        }
        state
    };
    let without_her = state
        .policy()
        .unwrap()
        .refit()
        .unwrap()
        .compute(&Sequential);
    assert_eq!(events.last(), Some(&Event::Fit { fit: without_her }));
    assert!(matches!(events[events.len() - 2], Event::Forget { .. }));
    // A fit asked for by forgetting alone.
    assert_eq!(bench.runtime.block_on(bench.engine.forget("u2")), Ok(true));
    bench.wait_until(|bench| bench.fits() == 2);
    bench.compact();
    let is_fit = |event: &Event| matches!(event, Event::Fit { .. });
    let kept = self::events(bench.engine.folder());
    assert!(
        !kept.iter().any(is_fit),
        "no sum with her in it is left in the log"
    );
    assert_eq!(holding(bench.folder.path(), b"u1"), 0);
    let again = verified(bench.left().path());
    assert_eq!(again.hash, bench.hash());
}

#[test]
fn a_fit_that_breaks_harms_nobody_and_is_not_tried_again_and_again() {
    let bench = Bench::stocked(&Env::real(), Broken);
    bench.serve_some(FIRST);
    bench.wait_until(|bench| bench.engine.fit_took().is_some());
    bench.wait_until(|bench| !bench.engine.is_fitting());
    bench.serve_some(FIRST / 2);
    assert!(!bench.engine.is_fitting());
    assert_eq!(bench.fits(), 0);
    // Better ones after a restart.
    let again = bench.crash(Sequential);
    again.wait_until(|bench| bench.fits() == 1);
}

#[test]
fn a_fit_that_the_policy_refuses_changes_nothing_live_or_replayed() {
    let bench = Bench::stocked(&Env::real(), Held::default());
    bench.serve_some(3);
    let before = bench.engine.state().policy().unwrap().digest();
    let (reply, answer) = oneshot::channel();
    let command = Command::Fit(Some(vec![1, 2, 3]));
    let request = WriteRequest { command, reply };
    let sent = bench.engine.queue.blocking_send(request);
    assert!(sent.is_ok());
    assert!(answer.blocking_recv().unwrap().is_ok());
    assert_eq!(bench.engine.state().policy().unwrap().digest(), before);
    bench.serve_some(3);
    let again = verified(bench.left().path());
    assert_eq!(again.hash, bench.hash());
    assert_eq!(again.events, 1 + 3 + 1 + 3);
}

#[test]
fn a_fit_that_finds_the_disk_full_is_made_again() {
    let (faults, env) = Faults::new(Env::real());
    let held = Held::default();
    let bench = Bench::stocked(&env, held.clone());
    bench.serve_some(FIRST);
    bench.wait_until(|bench| bench.engine.is_fitting());
    faults.refuse_writes("log");
    held.let_go();
    bench.wait_until(|bench| bench.engine.read_only().is_some());
    bench.wait_until(|bench| !bench.engine.is_fitting());
    assert_eq!(bench.fits(), 0);
    faults.accept_writes();
    // Nobody has to write anything for it.
    bench.wait_until(|bench| bench.fits() == 1);
    let again = verified(bench.left().path());
    assert_eq!(again.hash, bench.hash());
}
