//! The cost of a round of SCLUB as users, candidates and features grow, and the memory that a user takes.
//! Prints the tables of `docs/performance.md`:
//!
//! `cargo bench -p sclub-lab --bench scale`

use std::time::Instant;

use sclub::{Change, LinUcbInd, Observation, Params, Policy, Sclub, Users};
use sclub_lab::synthetic::{Frequencies, Recipe, Synthetic, Twists};
use sclub_lab::world::{BLOCK, Rewards, World};

fn recipe(users: usize, candidates: usize, dim: usize) -> Recipe {
    Recipe {
        users,
        clusters: 10,
        dim,
        candidates,
        frequencies: Frequencies::Uniform,
        rewards: Rewards::Bernoulli,
        users_a_round: None,
        twists: Twists::default(),
    }
}

/// Plays a policy in a world from block `first` on; returns the seconds it took by itself.
fn play(policy: &mut dyn Policy, world: &Synthetic, first: u64, blocks: u64) -> f64 {
    let mut block = world.new_block();
    let mut item = vec![0.0; policy.dim()];
    let mut changes: Vec<Change> = Vec::new();
    let mut seconds = 0.0;
    for index in first..first + blocks {
        world.draw(index, BLOCK, &mut block);
        let start = Instant::now();
        for round in 0..block.len() {
            let (user, items) = (block.users[round], &block.items[round]);
            let choice = policy.recommend(user, items).expect("good items").index;
            items.copy_item(choice, &mut item);
            let reward = block.reward(round, choice);
            let observation = Observation::new(user, &item, reward);
            policy
                .learn_round(&[observation], &mut changes)
                .expect("a good observation");
            changes.clear();
        }
        seconds += start.elapsed().as_secs_f64();
    }
    seconds
}

/// Microseconds a round, the best of three measurements after a warm-up.
fn cost(policy: &mut dyn Policy, world: &Synthetic, warm_up: u64, blocks: u64) -> f64 {
    play(policy, world, 0, warm_up);
    let times = (0..3).map(|n| play(policy, world, warm_up + n * blocks, blocks));
    times.fold(f64::INFINITY, f64::min) / (blocks * BLOCK as u64) as f64 * 1e6
}

/// Memory of the process in bytes, or 0 where the system does not tell.
fn memory() -> f64 {
    let Ok(text) = std::fs::read_to_string("/proc/self/status") else {
        return 0.0;
    };
    let line = text.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) * 1024.0
}

/// Memory a user, in a process that has used little before: what is freed is not given back, so
/// this comes first and the largest first.
fn by_memory() {
    println!("\nMemory at d = 20, after 2 rounds a user:\n");
    println!("| users | | clusters | bytes a seen user | bytes a declared user |");
    println!("|---:|---|---:|---:|---:|");
    let alone = Params {
        alpha_theta: 0.01,
        ..Params::tuned()
    };
    for (name, users, params) in [
        ("one cluster", 1_000_000, Params::tuned()),
        ("every user alone", 100_000, alone),
    ] {
        let world = Synthetic::new(recipe(users, 20, 20), 1).expect("a good recipe");
        let rounds = (2 * users).div_ceil(BLOCK) as u64;
        let before = memory();
        let mut sclub =
            Sclub::new(20, Users::Declared(users as u64), &params).expect("good parameters");
        let declared = memory() - before;
        play(&mut sclub, &world, 0, rounds);
        let (used, seen) = (memory() - before, sclub.users().len() as f64);
        println!(
            "| {users} | {name} | {} | {:.0} | {:.2} |",
            sclub.clusters(),
            used / seen,
            declared / users as f64
        );
        // Kept, so that the next one does not live in its memory.
        std::mem::forget(sclub);
    }
}

fn by_users() {
    println!("\nd = 20, 20 candidates, after 2 rounds a user (at least 2^17):\n");
    println!("| users | preset | clusters | µs a round | LinUCB-Ind |");
    println!("|---:|---|---:|---:|---:|");
    for (name, params) in [("tuned", Params::tuned()), ("released", Params::released())] {
        for users in [1_000, 10_000, 100_000, 1_000_000] {
            let world = Synthetic::new(recipe(users, 20, 20), 1).expect("a good recipe");
            let warm_up = (2 * users).max(1 << 17).div_ceil(BLOCK) as u64;
            let declared = Users::Declared(users as u64);
            let mut sclub = Sclub::new(20, declared, &params).expect("good parameters");
            let micros = cost(&mut sclub, &world, warm_up, 256);
            let clusters = sclub.clusters();
            drop(sclub);
            let mut alone = LinUcbInd::new(20, &params).expect("good parameters");
            let ind = cost(&mut alone, &world, warm_up, 256);
            println!("| {users} | {name} | {clusters} | {micros:.2} | {ind:.2} |");
        }
    }
}

/// The worst case: every user is a cluster, checked.
fn all_alone() {
    println!("\nEvery user alone (α_θ = 0.01), 3 rounds a user:\n");
    println!("| users | clusters | µs a round |");
    println!("|---:|---:|---:|");
    let params = Params {
        alpha_theta: 0.01,
        ..Params::tuned()
    };
    for users in [1_000, 10_000, 100_000] {
        let world = Synthetic::new(recipe(users, 20, 20), 1).expect("a good recipe");
        let mut sclub = Sclub::new(20, Users::Appear, &params).expect("good parameters");
        let micros = cost(&mut sclub, &world, (3 * users).div_ceil(BLOCK) as u64, 64);
        println!("| {users} | {} | {micros:.2} |", sclub.clusters());
    }
}

fn by_shape() {
    println!("\n1,000 users (10 above d = 100), `released`, after 2^15 rounds (2^11):\n");
    println!(
        "| features d | candidates L | µs a round | LinUCB-Ind | recommend and learn per L d²+d², ns |"
    );
    println!("|---:|---:|---:|---:|---:|");
    let shapes = [(20, 1), (20, 5), (20, 20), (20, 100), (20, 500)]
        .into_iter()
        .chain([2, 5, 10, 32, 50, 64, 100, 128, 256, 512].map(|dim| (dim, 20)));
    for (dim, candidates) in shapes {
        let users = if dim > 100 { 10 } else { 1000 };
        let world = Synthetic::new(recipe(users, candidates, dim), 1).expect("a good recipe");
        let (warm_up, blocks) = if dim > 100 { (8, 1) } else { (128, 16) };
        let params = Params::released();
        let mut sclub =
            Sclub::new(dim, Users::Declared(users as u64), &params).expect("good parameters");
        let micros = cost(&mut sclub, &world, warm_up, blocks);
        let mut alone = LinUcbInd::new(dim, &params).expect("good parameters");
        let ind = cost(&mut alone, &world, warm_up, blocks);
        let work = ((candidates + 1) * dim * dim) as f64;
        println!(
            "| {dim} | {candidates} | {micros:.2} | {ind:.2} | {:.3} |",
            micros * 1e3 / work
        );
    }
}

fn main() {
    // `cargo test` runs benches with this argument; there is nothing to test here.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    by_memory();
    by_users();
    all_alone();
    by_shape();
}
