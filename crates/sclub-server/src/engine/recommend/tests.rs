//! A partition whose catalogue is that of another engine, as on a node of a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use sclub::Sequential;
use tempfile::TempDir;

use super::*;
use crate::engine::replica::{Replica, Term};
use crate::engine::{Engine, fold};
use crate::env::Env;
use crate::event::Item;
use crate::settings::Settings;
use crate::store::Folder;

/// The catalogue of a cluster and a partition.
struct Pair {
    catalogue: Engine,
    partition: Engine,
    _folders: [TempDir; 2],
}

fn settings() -> Settings {
    Settings {
        policy: Some("linucb-ind".to_owned()),
        context: vec!["hour".to_owned()],
        journal_days: 0,
        ..Settings::default()
    }
}

impl Pair {
    fn new() -> Self {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let env = Env::real();
        let [first, second] = &folders;
        let catalogue = Engine::open(env.clone(), first.path(), &settings()).unwrap();
        let folder = Folder::open(&env, second.path()).unwrap();
        let identity = fold::identity(catalogue.folder()).unwrap().unwrap();
        let (_, epochs) = folder.begin_epoch(0, 0).unwrap();
        let replica = Replica {
            log: Arc::clone(&folder.log) as _,
            snapshots: Arc::clone(&folder.snapshots) as _,
            folder,
            catalogue: Some(catalogue.catalogue_source()),
            meters: Arc::default(),
            item_counts: Arc::default(),
            engines: 1,
        };
        let state = State::new(identity).unwrap();
        let term = Some(Term::new(epochs));
        let partition = Engine::run(replica, state, &settings(), Box::new(Sequential), term);
        Self {
            catalogue,
            partition: partition.unwrap(),
            _folders: folders,
        }
    }

    fn put(&self, id: &str, features: [f64; 2]) {
        let item = Item {
            id: id.to_owned(),
            features: features.to_vec(),
        };
        let put = block_on(self.catalogue.upsert(vec![item]));
        assert_eq!(put, Ok(1));
    }
}

#[test]
fn a_batch_has_one_catalogue_while_items_come_and_go() {
    let pair = Pair::new();
    for (id, features) in [("a", [0.1, 0.0]), ("b", [0.2, 0.0]), ("c", [0.0, 0.3])] {
        pair.put(id, features);
    }
    let context = BTreeMap::from([("hour".to_owned(), ContextValue::Number(0.5))]);
    let asked = || RecommendQuery {
        user: "u",
        among: CandidateSet::All,
        rules: Rules::default(),
        k: 10,
        context: Some(&context),
    };
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // The first item goes and comes back at the end, so the slots of all others change.
            while !is_done.load(Ordering::Relaxed) {
                let removed = block_on(pair.catalogue.remove("a"));
                assert_eq!(removed, Ok(true));
                pair.put("a", [0.1, 0.0]);
            }
        });
        let all: Vec<RecommendQuery<'_>> = (0..200).map(|_| asked()).collect();
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..300 {
                let recommended = pair.partition.recommend_all(&all).unwrap();
                // All users are new, so all get the same items with the same scores.
                for one in &recommended {
                    assert_eq!(one.items, recommended[0].items);
                }
            }
        }));
        is_done.store(true, Ordering::Relaxed);
        checked.unwrap();
    });
}

#[test]
fn short_reads_of_the_catalogue_do_not_wait_for_a_long_one() {
    let pair = Pair::new();
    pair.put("a", [0.1, 0.0]);
    thread::scope(|scope| {
        pair.partition.with_state(true, |_, catalogue| {
            assert_eq!(catalogue.map(Catalogue::len), Some(1));
            // It waits for the end of the long read.
            scope.spawn(|| pair.put("b", [0.2, 0.0]));
            thread::sleep(Duration::from_millis(100));
            let (sender, answer) = mpsc::channel();
            let partition = &pair.partition;
            scope.spawn(move || {
                partition.with_state(false, |_, catalogue| {
                    let _ = sender.send(catalogue.map(Catalogue::len));
                });
            });
            let answer = answer.recv_timeout(Duration::from_secs(5));
            assert_eq!(answer, Ok(Some(1)));
        });
    });
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(future)
}

#[test]
fn a_decision_made_just_before_its_user_is_forgotten_is_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::open(Env::real(), folder.path(), &Settings::default()).unwrap();
    let item = Item {
        id: "a".to_owned(),
        features: vec![1.0, 0.0],
    };
    assert_eq!(block_on(engine.upsert(vec![item])), Ok(1));
    for (user, is_kept) in [("u", false), ("v", true)] {
        let asked = RecommendQuery::new(user, 1);
        let mut scratch = Scratch::default();
        let decided = engine.with_state(false, |state, catalogue| {
            scratch.begin();
            engine.choose(state, catalogue, &asked, Purpose::Decision, &mut scratch)
        });
        assert!(block_on(engine.forget("u")).is_ok());
        engine.hand_out(decided.unwrap());
        assert_eq!(engine.shared.seen.decisions(user).len() == 1, is_kept);
    }
}
