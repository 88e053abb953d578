//! An engine on a folder of its own, and a runtime for its futures.

use std::path::Path;
use std::time::{Duration, Instant};

use sclub_server::engine::{
    Engine, Feedback, RecommendQuery, Recommended, Refusal, restore, verify,
};
use sclub_server::env::Env;
use sclub_server::event::Item;
use sclub_server::settings::Settings;
use sclub_server::state::Scratch;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::common::{copy_of, new_folder};

pub const DIM: usize = 3;

pub fn settings() -> Settings {
    of("sclub")
}

pub fn of(policy: &str) -> Settings {
    Settings {
        policy: Some(policy.to_owned()),
        snapshot_every: 7,
        ..Settings::default()
    }
}

/// Like [`settings`], but without background snapshots and journal.
pub fn quiet() -> Settings {
    Settings {
        snapshot_every: u64::MAX,
        ..settings()
    }
}

pub struct Bench {
    pub engine: Engine,
    pub runtime: Runtime,
    pub folder: TempDir,
    pub settings: Settings,
}

impl Bench {
    /// An engine on an existing or new folder.
    pub fn at(folder: TempDir, env: Env, settings: &Settings) -> Self {
        Self {
            engine: Engine::open(env, folder.path(), settings).unwrap(),
            runtime: Runtime::new().unwrap(),
            folder,
            settings: settings.clone(),
        }
    }

    pub fn with(env: Env, settings: &Settings) -> Self {
        Self::at(new_folder(), env, settings)
    }

    /// A new engine with three items in the catalogue.
    pub fn with_items(env: Env, settings: &Settings) -> Self {
        let bench = Self::with(env, settings);
        bench.put("a", [1.0, 0.0, 0.0]).unwrap();
        bench.put("b", [0.0, 1.0, 0.0]).unwrap();
        bench.put("c", [0.0, 0.6, 0.8]).unwrap();
        bench
    }

    /// A copy of the folder as it would be if the process were killed now.
    pub fn killed(&self) -> TempDir {
        copy_of(self.folder.path())
    }

    /// A server that is started as if this one had been killed. Nothing is closed or flushed.
    pub fn crash(&self) -> Self {
        Self::at(self.killed(), Env::real(), &self.settings)
    }

    /// Shuts down as after SIGTERM. Returns the folder once no task uses it.
    pub fn close(self) -> TempDir {
        self.runtime.block_on(self.engine.close());
        drop(self.engine);
        wait_until(
            || match sclub_server::store::Folder::open(&Env::real(), self.folder.path()) {
                Ok(_) => true,
                Err(error) => {
                    assert!(error.to_string().contains("in use"), "{error}");
                    false
                }
            },
        );
        self.folder
    }

    pub fn put(&self, id: &str, features: [f64; DIM]) -> Result<usize, Refusal> {
        let item = Item {
            id: id.to_owned(),
            features: features.to_vec(),
        };
        self.runtime.block_on(self.engine.upsert(vec![item]))
    }

    pub fn recommend(&self, user: &str, k: usize) -> Result<Recommended, Refusal> {
        let asked = RecommendQuery::new(user, k);
        self.engine.recommend(&asked, &mut Scratch::default())
    }

    /// A decision for a user.
    pub fn decide(&self, user: &str) -> String {
        self.recommend(user, 1).unwrap().decision
    }

    pub fn feedback(&self, decision: &str, reward: f64) -> Result<bool, Refusal> {
        self.feedback_on(decision, None, reward)
    }

    pub fn feedback_on(
        &self,
        decision: &str,
        item: Option<&str>,
        reward: f64,
    ) -> Result<bool, Refusal> {
        let given = Feedback::of_item(decision, item, reward);
        self.runtime.block_on(self.engine.feedback(&given))
    }

    /// Some rounds of a user.
    pub fn serve(&self, user: &str, rounds: usize) {
        for _ in 0..rounds {
            assert_eq!(self.feedback(&self.decide(user), 1.0), Ok(true));
        }
    }

    pub fn forget(&self, user: &str) -> Result<bool, Refusal> {
        self.runtime.block_on(self.engine.forget(user))
    }

    /// Compacts. Returns the number of rows that were dropped.
    pub fn compact(&self) -> u64 {
        self.runtime
            .block_on(self.engine.compact())
            .unwrap()
            .dropped
    }

    pub fn snapshot(&self) -> u64 {
        self.runtime.block_on(self.engine.snapshot()).unwrap()
    }

    pub fn backup(&self) -> Vec<u8> {
        let mut backup = Vec::new();
        let taken = self.runtime.block_on(self.engine.backup(&mut backup));
        taken.unwrap();
        backup
    }

    /// A server on a folder that was restored from a backup.
    pub fn restored(&self, mut backup: &[u8]) -> Self {
        let folder = new_folder();
        restore(&Env::real(), &mut backup, folder.path()).unwrap();
        Self::at(folder, Env::real(), &self.settings)
    }

    /// The lines of an export.
    pub fn export(&self) -> Vec<Value> {
        let mut out = Vec::new();
        let count = self.runtime.block_on(self.engine.export(&mut out)).unwrap();
        let lines = lines(&out);
        assert_eq!(lines.len() as u64, count);
        lines
    }

    pub fn hash(&self) -> String {
        self.engine.hash()
    }

    pub fn rounds(&self) -> u64 {
        self.engine.state().rounds()
    }

    /// Waits until no fit is being computed or due.
    pub fn settle(&self) {
        wait_until(|| {
            let refit = self.engine.read_long(|state| {
                let mut policies = state.policies();
                policies.any(|(_, policy)| policy.refit().is_some())
            });
            !refit && !self.engine.is_fitting()
        });
    }
}

pub fn lines(bytes: &[u8]) -> Vec<Value> {
    let lines = bytes.split(|byte| *byte == b'\n');
    lines
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

/// The hash that `verify` computes from the log.
pub fn verified(folder: &Path) -> String {
    verify(&Env::real(), folder, &mut |_| {}).unwrap().hash
}

pub fn wait_until(mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never");
        std::thread::sleep(Duration::from_millis(1));
    }
}
