use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};

use sclub::{Outlook, Sequential};
use tempfile::TempDir;

use super::*;
use crate::engine::common::disk::Faults;
use crate::engine::common::{copy_of, files_containing, new_folder};
use crate::engine::owner::WriteRequest;
use crate::engine::{Engine, Feedback, RecommendQuery, Refusal, Verified, fold, verify};
use crate::env::Env;
use crate::event::{Batch, Event, Item, Stamp};
use crate::settings::Settings;
use crate::state::{Scratch, State};
use crate::store::Folder;

/// Ids that are long enough not to be in a file by chance.
const USERS: [&str; 3] = ["user-zero-5f1c", "user-one-93ad", "user-two-c2e0"];

/// The number of rounds before the first fit of `sclub-soft`.
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

/// Workers that wait to be released, so that a fit lasts for as long as a test needs.
#[derive(Clone, Default)]
struct Blocked(Arc<(Mutex<bool>, Condvar)>);

impl Blocked {
    fn release(&self) {
        *lock(&self.0.0) = true;
        self.0.1.notify_all();
    }
}

impl Workers for Blocked {
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

/// Workers that panic.
struct Broken;

impl Workers for Broken {
    fn each(&self, _: usize, _: &(dyn Fn(usize) + Sync)) {
        panic!("on purpose");
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

    /// A new server with two items in the catalogue.
    fn with_items(env: &Env, workers: impl Workers + Send + 'static) -> Self {
        let bench = Self::open(new_folder(), env, workers);
        let items = [("a", [0.6, 0.8]), ("b", [0.8, -0.6])].map(|(id, features)| Item {
            id: id.to_owned(),
            features: features.to_vec(),
        });
        let put = bench.runtime.block_on(bench.engine.upsert(items.into()));
        assert_eq!(put, Ok(2));
        bench
    }

    /// A copy of the folder as it would be if the process were killed now.
    fn killed(&self) -> TempDir {
        copy_of(self.folder.path())
    }

    /// A server that is started on the folder of this one, as if this one had been killed.
    fn crash(&self, workers: impl Workers + Send + 'static) -> Self {
        Self::open(self.killed(), &Env::real(), workers)
    }

    fn snapshot(&self) {
        self.runtime.block_on(self.engine.snapshot()).unwrap();
    }

    fn compact(&self) {
        self.runtime.block_on(self.engine.compact()).unwrap();
    }

    /// Serves a user, who likes one of the items, and learns the reward.
    fn serve(&self, user: &str) -> Result<(), Refusal> {
        let asked = RecommendQuery::new(user, 1);
        let shown = self.engine.recommend(&asked, &mut Scratch::default())?;
        let given = Feedback::of_item(
            &shown.decision,
            None,
            f64::from(u8::from((shown.items[0].0 == "a") == (user == USERS[0]))),
        );
        let applied = self.runtime.block_on(self.engine.feedback(&given))?;
        assert!(applied);
        Ok(())
    }

    fn serve_some(&self, rounds: u64) {
        for round in 0..rounds {
            self.serve(USERS[(round % 3) as usize]).unwrap();
        }
    }

    fn outlook(&self) -> Option<Outlook> {
        self.engine.state().policy()?.inspect().outlook()
    }

    /// The number of fits taken.
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

/// Verifies a folder.
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
    let blocked = Blocked::default();
    let bench = Bench::with_items(&Env::real(), blocked.clone());
    bench.serve_some(FIRST);
    bench.wait_until(|bench| bench.engine.is_fitting());
    // While it is computed everything goes on, also past the next one that would be due.
    bench.serve_some(3 * FIRST);
    assert!(bench.engine.is_fitting() && bench.fits() == 0);
    // A snapshot before it takes effect: a start from it gives the same bits.
    bench.snapshot();
    let again = bench.crash(Blocked::default());
    assert_eq!(again.hash(), bench.hash());
    blocked.release();
    bench.wait_until(|bench| bench.fits() == 1 && !bench.engine.is_fitting());
    assert!(bench.engine.fit_took().is_some());
    // It is computed from the state when it was due, and the next one is due with the next round.
    assert_eq!(bench.outlook().unwrap().fitted_at, FIRST);
    bench.serve("u0").unwrap();
    bench.wait_until(|bench| bench.fits() == 2 && !bench.engine.is_fitting());
    assert_eq!(bench.outlook().unwrap().fitted_at, 4 * FIRST + 1);
    bench.serve("u0").unwrap();

    let events = events(bench.engine.folder());
    let is_fit = |event: &Event| matches!(event, Event::Fit { .. });
    assert_eq!(events.iter().filter(|event| is_fit(event)).count(), 2);
    // The items, and the rounds that were learned meanwhile.
    let first = events.iter().position(is_fit).unwrap() as u64;
    assert_eq!(first, 1 + 4 * FIRST);

    // The log gives the same bits, from its start and from the snapshot.
    let again = verified(bench.killed().path());
    assert_eq!((again.hash, again.snapshots), (bench.hash(), 1));
    bench.snapshot();
    let again = verified(bench.killed().path());
    assert_eq!(again.hash, bench.hash());
    bench.compact();
    let again = verified(bench.killed().path());
    assert_eq!(again.hash, bench.hash());
    assert_eq!(again.from, again.events);
}

#[test]
fn a_fit_that_was_lost_in_a_crash_is_made_again() {
    let bench = Bench::with_items(&Env::real(), Blocked::default());
    bench.serve_some(FIRST);
    bench.wait_until(|bench| bench.engine.is_fitting());
    let hash = bench.hash();
    assert_eq!(verified(bench.killed().path()).hash, hash);
    // No request is needed: a fit that is due is made.
    let again = bench.crash(Sequential);
    again.wait_until(|bench| bench.fits() == 1);
    assert_eq!(again.engine.state().rounds(), FIRST);
    let folded = verified(again.killed().path());
    assert_eq!(folded.hash, again.hash());
}

#[test]
fn a_shutdown_does_not_wait_for_a_fit() {
    let blocked = Blocked::default();
    let bench = Bench::with_items(&Env::real(), blocked.clone());
    bench.serve_some(FIRST);
    bench.wait_until(|bench| bench.engine.is_fitting());
    bench.runtime.block_on(bench.engine.close());
    let closed = bench.engine.folder().log.last();
    blocked.release();
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
fn a_fit_with_a_forgotten_user_is_dropped() {
    let blocked = Blocked::default();
    let bench = Bench::with_items(&Env::real(), blocked.clone());
    bench.serve_some(FIRST);
    bench.wait_until(|bench| bench.engine.is_fitting());
    assert_eq!(
        bench.runtime.block_on(bench.engine.forget("stranger")),
        Ok(false)
    );
    assert_eq!(
        bench.runtime.block_on(bench.engine.forget(USERS[1])),
        Ok(true)
    );
    blocked.release();
    bench.wait_until(|bench| bench.fits() == 1 && !bench.engine.is_fitting());
    // The logged fit was made after the user was forgotten: of fewer users, without a new round.
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
    let without_user = state
        .policy()
        .unwrap()
        .refit()
        .unwrap()
        .compute(&Sequential);
    assert_eq!(events.last(), Some(&Event::Fit { fit: without_user }));
    assert!(matches!(events[events.len() - 2], Event::Forget { .. }));
    // Forgetting alone makes a fit due.
    assert_eq!(
        bench.runtime.block_on(bench.engine.forget(USERS[2])),
        Ok(true)
    );
    bench.wait_until(|bench| bench.fits() == 2);
    bench.compact();
    let is_fit = |event: &Event| matches!(event, Event::Fit { .. });
    let kept = self::events(bench.engine.folder());
    assert!(
        !kept.iter().any(is_fit),
        "no fit with the user in it is left in the log"
    );
    for user in &USERS[1..] {
        assert_eq!(files_containing(bench.folder.path(), user.as_bytes()), 0);
    }
    let again = verified(bench.killed().path());
    assert_eq!(again.hash, bench.hash());
}

#[test]
fn a_fit_that_panics_does_no_harm_and_is_not_retried_at_once() {
    let bench = Bench::with_items(&Env::real(), Broken);
    bench.serve_some(FIRST);
    bench.wait_until(|bench| bench.engine.fit_took().is_some());
    bench.wait_until(|bench| !bench.engine.is_fitting());
    bench.serve_some(FIRST / 2);
    assert!(!bench.engine.is_fitting());
    assert_eq!(bench.fits(), 0);
    // After a restart it works.
    let again = bench.crash(Sequential);
    again.wait_until(|bench| bench.fits() == 1);
}

#[test]
fn a_fit_that_the_policy_refuses_changes_nothing_live_or_replayed() {
    let bench = Bench::with_items(&Env::real(), Blocked::default());
    bench.serve_some(3);
    let before = bench.engine.state().policy().unwrap().digest();
    let (reply, answer) = oneshot::channel();
    let command = Command::Fit(Some(vec![1, 2, 3]));
    let request = WriteRequest {
        command,
        reply,
        caller: None,
    };
    let sent = bench.engine.queue.blocking_send(request);
    assert!(sent.is_ok());
    assert!(answer.blocking_recv().unwrap().is_ok());
    assert_eq!(bench.engine.state().policy().unwrap().digest(), before);
    bench.serve_some(3);
    let again = verified(bench.killed().path());
    assert_eq!(again.hash, bench.hash());
    assert_eq!(again.events, 1 + 3 + 1 + 3);
}

#[test]
fn a_fit_that_finds_the_disk_full_is_made_again() {
    let (faults, env) = Faults::new(Env::real());
    let blocked = Blocked::default();
    let bench = Bench::with_items(&env, blocked.clone());
    bench.serve_some(FIRST);
    bench.wait_until(|bench| bench.engine.is_fitting());
    faults.refuse_writes("log");
    blocked.release();
    bench.wait_until(|bench| bench.engine.read_only().is_some());
    bench.wait_until(|bench| !bench.engine.is_fitting());
    assert_eq!(bench.fits(), 0);
    faults.accept_writes();
    // No write is needed for it.
    bench.wait_until(|bench| bench.fits() == 1);
    let again = verified(bench.killed().path());
    assert_eq!(again.hash, bench.hash());
}
