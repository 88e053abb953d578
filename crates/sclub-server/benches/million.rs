//! A million users: how much memory a server takes and how long it needs to be ready again.
//!
//! `cargo bench -p sclub-server --bench million -- [users] [folder]`
//!
//! Every user gives two rewards at d = 20, each a round of its own, a thousand waiting at a time. Then
//! the engine is closed, as by SIGTERM, and opened again in a new process, twice.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use sclub::ItemSet;
use sclub_server::engine::{Among, Asked, Engine, Given};
use sclub_server::settings::Settings;
use sclub_server::state::Scratch;
use sclub_server::store::folder::Folder;

const DIM: usize = 20;
const AT_ONCE: usize = 1000;

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    if let [kind, folder] = &arguments[..]
        && kind == "again"
    {
        return again(Path::new(folder));
    }
    let users: usize = arguments
        .first()
        .map_or(1_000_000, |users| users.parse().expect("a number of users"));
    let kept = tempfile::tempdir().expect("a folder");
    let folder = arguments
        .get(1)
        .map_or_else(|| kept.path().join("data"), PathBuf::from);
    fill(&folder, users);
    for _ in 0..2 {
        let mut again = Command::new(std::env::current_exe().expect("this program"));
        again.arg("again").arg(&folder).status().expect("started");
    }
}

fn open(folder: &Path) -> Engine {
    let settings = Settings {
        journal: false,
        ..Settings::default()
    };
    let store = Folder::open(folder).expect("a folder");
    Engine::open(Arc::new(store), &settings).expect("an engine")
}

/// Serves every user twice.
fn fill(folder: &Path, users: usize) {
    let begun = Instant::now();
    let engine = open(folder);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut state = 1u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 40) as f64 / (1u64 << 24) as f64
    };
    let mut scratch = Scratch::default();
    for first in (0..2 * users).step_by(AT_ONCE) {
        let mut decisions = Vec::with_capacity(AT_ONCE);
        for number in first..(first + AT_ONCE).min(2 * users) {
            let features: Vec<f64> = (0..DIM).map(|_| random() - 0.5).collect();
            let items = ItemSet::from_rows(DIM, &features).expect("an item");
            let asked = Asked {
                user: &format!("user-{}", number % users),
                among: Among::Inline(vec!["item"], &items),
                k: 1,
            };
            let shown = engine.recommend(&asked, &mut scratch).expect("a decision");
            decisions.push((shown.decision, f64::from(random() < 0.5)));
        }
        let rounds = decisions.iter().map(|(decision, reward)| {
            let given = Given {
                decision,
                item: None,
                reward: *reward,
            };
            let engine = &engine;
            async move { engine.feedback(&[given]).await.expect("learned") }
        });
        runtime.block_on(join_all(rounds));
    }
    println!(
        "{users} users served twice in {:.1} s: {}",
        begun.elapsed().as_secs_f64(),
        describe(&engine)
    );
    let begun = Instant::now();
    engine.close();
    println!("closed in {:.1} s", begun.elapsed().as_secs_f64());
}

/// Opens the folder.
fn again(folder: &Path) {
    let begun = Instant::now();
    let engine = open(folder);
    let seconds = begun.elapsed().as_secs_f64();
    println!("ready again in {seconds:.1} s: {}", describe(&engine));
    // Without closing: the next one finds what a crash leaves behind.
    std::process::exit(0);
}

fn describe(engine: &Engine) -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let memory = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        kilobytes.map_or(f64::NAN, |kilobytes: f64| kilobytes / 1e6)
    };
    let state = engine.state();
    format!(
        "{} users, {} clusters, {} events; memory {:.2} GB, at most {:.2} GB; folder {:.2} GB",
        state.users().len(),
        state.clusters(),
        state.events(),
        memory("VmRSS:"),
        memory("VmHWM:"),
        engine.store().bytes() as f64 / 1e9
    )
}
