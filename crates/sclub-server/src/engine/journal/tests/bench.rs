//! An engine on a folder, with two items.

use std::path::Path;
use std::sync::Arc;

use sclub::Sequential;
use tokio::runtime::Runtime;

use crate::engine::item_counts::COUNTS_FILE;
use crate::engine::{Engine, Feedback, FoldError, RecommendQuery, Recommended, Replica};
use crate::env::Env;
use crate::event::Item;
use crate::identity::Identity;
use crate::settings::Settings;
use crate::state::Scratch;
use crate::store::Folder;

pub fn settings() -> Settings {
    Settings {
        policy: Some("linucb-ind".to_owned()),
        snapshot_every: u64::MAX,
        ..Settings::default()
    }
}

/// The items `a` and `b`.
pub fn items() -> Vec<Item> {
    let items = [("a", [1.0, 0.0]), ("b", [0.0, 1.0])].map(|(id, features)| Item {
        id: id.to_owned(),
        features: features.to_vec(),
    });
    items.into()
}

/// The counts of an item: times shown, rewards, and their sum.
pub type Count = (u64, u64, f64);

pub struct Bench {
    pub engine: Engine,
    pub runtime: Runtime,
}

impl Bench {
    pub fn new(engine: Engine) -> Self {
        let runtime = Runtime::new().unwrap();
        Self { engine, runtime }
    }

    pub fn open(env: Env, folder: &Path, settings: &Settings) -> Self {
        Self::new(Engine::open(env, folder, settings).unwrap())
    }

    /// A node of a cluster, with the log and the snapshots of another folder.
    pub fn follow(env: &Env, folder: &Path, stream: &Folder, settings: &Settings) -> Self {
        let replica = Replica {
            folder: Folder::open(env, folder).unwrap(),
            log: Arc::clone(&stream.log) as _,
            snapshots: Arc::clone(&stream.snapshots) as _,
            catalogue: None,
            meters: Arc::default(),
            item_counts: Arc::default(),
            engines: 1,
        };
        let identity = Identity::decode(&stream.identity().unwrap().unwrap()).unwrap();
        let engine = Engine::follow(replica, &identity, settings, Box::new(Sequential));
        Self::new(engine.unwrap())
    }

    /// Has a node lead, once it has applied the log.
    pub fn lead(&self, stream: &Folder) {
        let last = stream.log.last();
        let (_, epochs) = stream.begin_epoch(last, 0).unwrap();
        self.runtime
            .block_on(self.engine.lead(last, epochs))
            .unwrap();
    }

    pub fn put_items(&self) {
        let put = self.runtime.block_on(self.engine.upsert(items()));
        assert_eq!(put, Ok(2));
    }

    /// Puts another item into the catalogue, and takes it out again.
    pub fn put(&self, id: &str) {
        let item = Item {
            id: id.to_owned(),
            features: vec![0.5, 0.5],
        };
        let put = self.runtime.block_on(self.engine.upsert(vec![item]));
        assert_eq!(put, Ok(1));
        assert_eq!(self.runtime.block_on(self.engine.remove(id)), Ok(true));
    }

    /// Shows both items to a user.
    pub fn show(&self, user: &str) -> Recommended {
        let asked = RecommendQuery::new(user, 2);
        let shown = self.engine.recommend(&asked, &mut Scratch::default());
        shown.unwrap()
    }

    pub fn send(&self, feedback: Feedback<'_>) {
        let sent = self.runtime.block_on(self.engine.feedback(&feedback));
        assert_eq!(sent, Ok(true));
    }

    /// Shows both items to a user, and sends a reward of 1 for `a` and of 0 for `b`.
    pub fn serve(&self, user: &str) {
        let shown = self.show(user);
        for (item, reward) in [("a", 1.0), ("b", 0.0)] {
            self.send(Feedback::of_item(&shown.decision, Some(item), reward));
        }
    }

    pub fn forget(&self, user: &str) {
        self.runtime.block_on(self.engine.forget(user)).unwrap();
    }

    pub fn compact(&self) -> Result<u64, FoldError> {
        let done = self.runtime.block_on(self.engine.compact());
        done.map(|done| done.dropped)
    }

    pub fn snapshot(&self) {
        self.runtime.block_on(self.engine.snapshot()).unwrap();
    }

    /// Writes the journal, and exports it.
    pub fn export(&self) -> String {
        let mut out = Vec::new();
        self.runtime.block_on(self.engine.export(&mut out)).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// The counts of `a` and `b`.
    pub fn counts(&self) -> [Count; 2] {
        let counts = self.engine.item_counts().unwrap();
        let counts = counts.get(["a", "b"].into_iter()).items;
        [0, 1].map(|n| (counts[n].shown, counts[n].rewards, counts[n].reward_sum))
    }

    /// Writes the file of counts, as a server does once a minute.
    pub fn write_counts(&self) {
        let file = self.engine.folder().small_file(COUNTS_FILE);
        self.engine.item_counts().unwrap().write(&file);
    }
}
