//! Counts of rewards that replace assumed ones, and of those whose append had an unknown outcome.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use sclub::Sequential;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::*;
use crate::cluster::bus::BusError;
use crate::engine::common::disk::Faults;
use crate::engine::common::{copy_of, new_folder};
use crate::engine::{Engine, Feedback, RecommendQuery, Recommended, Refusal, Replica};
use crate::env::Env;
use crate::event::Item;
use crate::identity::Identity;
use crate::settings::Settings;
use crate::state::Scratch;
use crate::store::{AppendError, Batches, Folder, Follow, Log, StoreError, Written};

fn settings() -> Settings {
    Settings {
        policy: Some("linucb-ind".to_owned()),
        ..Settings::default()
    }
}

struct Bench {
    engine: Engine,
    runtime: Runtime,
}

impl Bench {
    fn new(engine: Engine) -> Self {
        let runtime = Runtime::new().unwrap();
        Self { engine, runtime }
    }

    /// Puts the items `a` and `b` into the catalogue.
    fn put_items(&self) {
        let items = [("a", [1.0, 0.0]), ("b", [0.0, 1.0])].map(|(id, features)| Item {
            id: id.to_owned(),
            features: features.to_vec(),
        });
        let put = self.runtime.block_on(self.engine.upsert(items.into()));
        assert_eq!(put, Ok(2));
    }

    /// Shows both items to a user.
    fn show(&self, user: &str) -> Recommended {
        let asked = RecommendQuery::new(user, 2);
        let shown = self.engine.recommend(&asked, &mut Scratch::default());
        shown.unwrap()
    }

    fn send(&self, feedback: Feedback<'_>) -> Result<bool, Refusal> {
        self.runtime.block_on(self.engine.feedback(&feedback))
    }

    /// The rewards that are counted, once the journal is written.
    fn written(&self) -> [(u64, f64); 2] {
        let mut out = Vec::new();
        self.runtime.block_on(self.engine.export(&mut out)).unwrap();
        self.rewards()
    }

    /// The number of rewards of `a` and of `b` that are counted, and their sums.
    fn rewards(&self) -> [(u64, f64); 2] {
        let counts = self.engine.item_counts().unwrap();
        let counts = counts.get(["a", "b"].into_iter()).items;
        [0, 1].map(|item| (counts[item].rewards, counts[item].reward_sum))
    }
}

#[test]
fn a_replaced_reward_counts_by_the_difference_to_the_assumed_one() {
    let folder = new_folder();
    let (faults, env) = Faults::new(Env::real());
    let bench = Bench::new(Engine::open(env, folder.path(), &settings()).unwrap());
    bench.put_items();
    let [first, second] = ["u", "v"].map(|user| bench.show(user));
    for shown in [&first, &second] {
        let click = Feedback::of_item(&shown.decision, Some("a"), 1.0).with_others(0.5);
        assert_eq!(bench.send(click), Ok(true));
    }
    assert_eq!(bench.written(), [(2, 2.0), (2, 1.0)]);
    let late = Feedback::of_item(&first.decision, Some("b"), 1.0);
    assert_eq!(bench.send(late), Ok(true));
    assert_eq!(bench.written(), [(2, 2.0), (2, 1.5)]);
    assert!(lock(&bench.engine.shared.replaced).is_empty());
    // The server is killed before the next one is in the journal.
    faults.refuse_writes("journal");
    let late = Feedback::of_item(&second.decision, Some("b"), 0.0);
    assert_eq!(bench.send(late), Ok(true));
    let killed = copy_of(folder.path());
    let other = Settings {
        unanswered: Some(0.25),
        ..settings()
    };
    let again = Bench::new(Engine::open(Env::real(), killed.path(), &other).unwrap());
    let expected = [(2, 2.0), (2, 1.0)];
    assert_eq!(again.written(), expected);
    // The compaction counts anew.
    again.show("gone");
    again.runtime.block_on(again.engine.forget("gone")).unwrap();
    again.runtime.block_on(again.engine.compact()).unwrap();
    assert_eq!(again.written(), expected);
}

type Sender = mpsc::Sender<Result<(u64, Bytes), BusError>>;

/// A replicated log in memory.
#[derive(Debug, Default)]
struct InMemory {
    batches: Mutex<Vec<Bytes>>,
    /// True if appends are not answered.
    is_silent: AtomicBool,
    /// The readers that wait for more batches; none ever come.
    waiting: Mutex<Vec<Sender>>,
}

impl InMemory {
    fn after(&self, number: u64) -> Vec<(u64, Bytes)> {
        let batches = lock(&self.batches).clone();
        (1..).zip(batches).skip(number as usize).collect()
    }
}

impl Log for InMemory {
    fn append(&self, expected_last: u64, batch: Bytes) -> Written<'_, AppendError> {
        let mut batches = lock(&self.batches);
        assert_eq!(batches.len() as u64, expected_last);
        batches.push(batch);
        let appended = match self.is_silent.load(Ordering::SeqCst) {
            true => Err(AppendError::Unknown(StoreError::Refused("lost".to_owned()))),
            false => Ok(()),
        };
        Box::pin(async { appended })
    }

    fn drop_before(&self, _: u64) -> Written<'_, StoreError> {
        Box::pin(async { Ok(()) })
    }

    fn read(&self, after: u64) -> Result<Batches, StoreError> {
        let batches = self.after(after).into_iter();
        Ok(Box::new(
            batches.map(|(number, bytes)| Ok((number, bytes.to_vec()))),
        ))
    }

    fn first(&self) -> Result<u64, StoreError> {
        Ok(1)
    }

    fn closed(&self) -> Result<Option<Vec<(u64, u64)>>, StoreError> {
        Ok(None)
    }

    fn follow(&self, after: u64) -> Follow<'_> {
        let batches = self.after(after);
        let (sender, receiver) = mpsc::channel(batches.len() + 1);
        for batch in batches {
            sender.try_send(Ok(batch)).unwrap();
        }
        lock(&self.waiting).push(sender);
        Box::pin(async { Ok(receiver) })
    }
}

/// A node of a cluster that has applied a log, and writes it.
fn node(folder: &TempDir, log: &Arc<InMemory>, identity: &Identity) -> Bench {
    let folder = Folder::open(&Env::real(), folder.path()).unwrap();
    let replica = Replica {
        log: Arc::clone(log) as _,
        snapshots: Arc::clone(&folder.snapshots) as _,
        folder,
        catalogue: None,
        meters: Arc::default(),
        item_counts: Arc::default(),
        engines: 1,
    };
    let engine = Engine::follow(replica, identity, &settings(), Box::new(Sequential));
    let bench = Bench::new(engine.unwrap());
    lead(&bench, log);
    bench
}

/// Has a node lead, once it has applied the log.
fn lead(bench: &Bench, log: &InMemory) {
    let last = lock(&log.batches).len() as u64;
    let (_, epochs) = bench.engine.folder().begin_epoch(last, 0).unwrap();
    let led = bench.engine.lead(last, epochs);
    bench.runtime.block_on(led).unwrap();
}

#[test]
fn a_node_counts_what_it_has_logged_without_an_answer() {
    let identity = Identity::new(&settings(), &*Env::real().random).unwrap();
    let (folders, log) = ([new_folder(), new_folder()], Arc::<InMemory>::default());
    let bench = node(&folders[0], &log, &identity);
    bench.put_items();
    let shown = bench.show("u");
    let click = Feedback::of_item(&shown.decision, Some("a"), 1.0).with_others(0.5);
    log.is_silent.store(true, Ordering::SeqCst);
    assert!(matches!(bench.send(click), Err(Refusal::Unknown(_))));
    log.is_silent.store(false, Ordering::SeqCst);
    lead(&bench, &log);
    assert_eq!(bench.send(click), Ok(false));
    assert_eq!(bench.rewards(), [(1, 1.0), (1, 0.5)]);
    let metrics = bench.engine.render_metrics();
    assert!(metrics.contains("sclub_rewards_total 2\n"), "{metrics}");
    let late = Feedback::of_item(&shown.decision, Some("b"), 1.0);
    assert_eq!(bench.send(late), Ok(true));
    assert_eq!(bench.rewards(), [(1, 1.0), (1, 1.0)]);
    // Another node does not count them once more.
    let other = node(&folders[1], &log, &identity);
    assert_eq!(other.engine.state().rewards(), (2, 2.0));
    assert_eq!(other.rewards(), [(0, 0.0); 2]);
}
