//! Writes a log of decisions as `sclub export` does, of a server with `--explore-share 0.1`, and its catalogue. For measuring
//! `sclub evaluate`:
//!
//! ```sh
//! cargo run -p sclub-lab --example decision_log -- 1000000 log.jsonl items.jsonl
//! sclub evaluate --log log.jsonl --items items.jsonl --policies sclub-soft,sclub,linucb-one,linucb-ind
//! ```
//!
//! 5,000 users of 10 tastes, 1,000 items with 16 features; each decision has 20 candidates by name.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::json;

const USERS: usize = 5000;
const TASTES: usize = 10;
const ITEMS: usize = 1000;
const DIM: usize = 16;
const CANDIDATES: usize = 20;
const SHARE: f64 = 0.1;

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [decisions, log, items] = &args[..] else {
        eprintln!("usage: decision_log DECISIONS LOG ITEMS");
        std::process::exit(2);
    };
    let decisions: usize = decisions.parse().expect("a number of decisions");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut vectors = |count: usize| -> Vec<[f64; DIM]> {
        let vector = |_| {
            let raw: [f64; DIM] = std::array::from_fn(|_| rng.random_range(0.0..1.0f64).powi(3));
            let length = raw.iter().map(|x| x * x).sum::<f64>().sqrt();
            raw.map(|x| x / length)
        };
        (0..count).map(vector).collect()
    };
    let (tastes, features) = (vectors(TASTES), vectors(ITEMS));
    let mut out = BufWriter::new(File::create(items)?);
    for (item, features) in features.iter().enumerate() {
        writeln!(
            out,
            "{}",
            json!({"id": format!("item-{item}"), "features": features})
        )?;
    }
    out.flush()?;
    let dot = |a: &[f64; DIM], b: &[f64; DIM]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    // The policy in force knows what people like on average.
    let liked: Vec<f64> = features
        .iter()
        .map(|item| tastes.iter().map(|taste| dot(taste, item)).sum())
        .collect();
    let mut out = BufWriter::with_capacity(1 << 20, File::create(log)?);
    let mut all: Vec<usize> = (0..ITEMS).collect();
    for decision in 0..decisions {
        let user = rng.random_range(0..USERS);
        for slot in 0..CANDIDATES {
            all.swap(slot, rng.random_range(slot..ITEMS));
        }
        let candidates = &all[..CANDIDATES];
        let own = candidates
            .iter()
            .max_by(|a, b| liked[**a].total_cmp(&liked[**b]));
        let own = *own.expect("candidates");
        let shown = match rng.random_bool(SHARE) {
            true => candidates[rng.random_range(0..CANDIDATES)],
            false => own,
        };
        let uniform = SHARE / CANDIDATES as f64;
        let propensity = if shown == own {
            1.0 - SHARE + uniform
        } else {
            uniform
        };
        let mean = 0.3 * dot(&tastes[user % TASTES], &features[shown]);
        let names: Vec<String> = candidates
            .iter()
            .map(|item| format!("item-{item}"))
            .collect();
        let line = json!({
            "decision": decision,
            "user": format!("user-{user}"),
            "item": format!("item-{shown}"),
            "position": 0,
            "propensity": propensity,
            "slot_propensity": propensity,
            "features": features[shown],
            "score": mean,
            "cluster": 0,
            "reward": f64::from(u8::from(rng.random_bool(mean))),
            "decided": 1_700_000_000_000u64 + decision as u64,
            "rewarded": 1_700_000_060_000u64 + decision as u64,
            "draw": format!("{:016x}", rng.random::<u64>()),
            "candidates": names,
        });
        writeln!(out, "{line}")?;
    }
    out.flush()
}
