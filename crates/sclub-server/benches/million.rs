//! A million users: memory of a server, latency of recommendations with and without a fit in the background,
//! and the time of a restart.
//!
//! `cargo bench -p sclub-server --bench million -- [users] [policy] [rewards] [folder]`
//!
//! `cargo bench -p sclub-server --bench million -- fit [users] [rewards]`: only two fits of `sclub-soft`, one
//! from scratch and one that continues from it.
//!
//! `cargo bench -p sclub-server --bench million -- snapshot [users]`: the time from sending a reward until it
//! is durable, without a snapshot and with one snapshot after another.
//!
//! The figures of ten rewards for each of a million users:
//! `cargo bench -p sclub-server --bench million -- 1000000 sclub-soft 10`. They include the memory for each user, and the
//! 99.9th percentile of the latency of a recommendation during a fit.
//!
//! Every user gives some rewards (by default two) at d = 20, each in a round of its own, a thousand requests at a
//! time. There are twenty tastes. Fits, if the policy has them, use two threads. Then one thread recommends
//! without a pause while another sends at most a thousand rewards a second: for ten seconds and, if the policy
//! has fits, during a whole fit. Then the engine is closed, as by SIGTERM, and opened again in a new process,
//! twice.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use sclub::{BackgroundFit, ItemSet, Policy, SclubSoft, SoftParams};
use sclub_server::engine::{CandidateSet, Engine, Feedback, RecommendQuery, Rules, Threads};
use sclub_server::env::Env;
use sclub_server::identity::DEFAULT;
use sclub_server::settings::Settings;
use sclub_server::state::Scratch;

const DIM: usize = 20;
const AT_ONCE: usize = 1000;
const TASTES: usize = 20;
const FIT_THREADS: usize = 2;
const CANDIDATES: usize = 20;

/// The maximum time to wait for a fit that is due.
const FIT_TIMEOUT: Duration = Duration::from_secs(600);
/// The time to measure without a fit.
const WITHOUT_FIT: Duration = Duration::from_secs(10);

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    if let [kind, policy, folder] = &arguments[..]
        && kind == "again"
    {
        return again(policy, Path::new(folder));
    }
    if let [kind, users, rewards] = &arguments[..]
        && kind == "fit"
    {
        let count = |text: &String| text.parse().expect("a number");
        return fits(count(users), count(rewards));
    }
    if let [kind, users] = &arguments[..]
        && kind == "snapshot"
    {
        return snapshots(users.parse().expect("a number"));
    }
    let users: usize = arguments
        .first()
        .map_or(1_000_000, |users| users.parse().expect("a number of users"));
    let kept = tempfile::tempdir().expect("a folder");
    let policy = arguments.get(1).map_or(DEFAULT, String::as_str);
    let rewards: usize = arguments
        .get(2)
        .map_or(2, |rewards| rewards.parse().expect("a number of rewards"));
    let folder = arguments
        .get(3)
        .map_or_else(|| kept.path().join("data"), PathBuf::from);
    fill(policy, &folder, users, rewards);
    for _ in 0..2 {
        let mut again = Command::new(std::env::current_exe().expect("this program"));
        again.arg("again").arg(policy).arg(&folder);
        again.status().expect("started");
    }
}

fn open(policy: &str, folder: &Path) -> Engine {
    let settings = Settings {
        policy: Some(policy.to_owned()),
        journal_days: 0,
        fit_threads: FIT_THREADS,
        snapshot_every: 5_000_000,
        ..Settings::default()
    };
    Engine::open(Env::real(), folder, &settings).expect("an engine")
}

/// Two fits without a server.
fn fits(users: usize, rewards: usize) {
    let params = SoftParams {
        inline: false,
        ..SoftParams::default()
    };
    let mut policy = SclubSoft::new(DIM, &params).expect("a policy");
    let mut draws = Draws(1);
    let learn = |policy: &mut SclubSoft, draws: &mut Draws, some: usize| {
        for user in 0..some {
            let features = draws.features(1);
            let reward = draws.reward(user, &features);
            let user = user % users;
            policy
                .learn(user as u64, &features, reward)
                .expect("learned");
        }
    };
    for _ in 0..rewards {
        learn(&mut policy, &mut draws, users);
    }
    for _ in 0..2 {
        let begun = Instant::now();
        let refit = policy.refit().expect("one is due");
        let made = begun.elapsed();
        let fit = refit.compute(&Threads::new(FIT_THREADS));
        let computed = begun.elapsed();
        policy.take_fit(&fit).expect("a fit");
        let taken = begun.elapsed() - computed;
        println!(
            "{users} users of {rewards} rewards: {} clusters in {:.1} s, of which {made:.1?} to begin; {} bytes, taken in {taken:.1?}",
            policy.clusters(),
            computed.as_secs_f64(),
            fit.len()
        );
        learn(&mut policy, &mut draws, users * rewards / 5);
    }
}

/// Serves every user a number of times.
fn fill(policy: &str, folder: &Path, users: usize, rewards: usize) {
    let begun = Instant::now();
    let engine = open(policy, folder);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut draws = Draws(1);
    for first in (0..rewards * users).step_by(AT_ONCE) {
        let some = first..(first + AT_ONCE).min(rewards * users);
        learn(
            &engine,
            &runtime,
            &mut draws,
            some.map(|number| number % users),
        );
    }
    println!(
        "{users} users served {rewards} times in {:.1} s: {}",
        begun.elapsed().as_secs_f64(),
        describe(&engine)
    );
    measure(&engine, &runtime, users);
    let begun = Instant::now();
    runtime.block_on(engine.close());
    println!("closed in {:.1} s", begun.elapsed().as_secs_f64());
}

/// Pseudo-random numbers, the same each time.
struct Draws(u64);

impl Draws {
    /// A number between 0 and 1.
    fn unit(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 40) as f64 / (1u64 << 24) as f64
    }

    /// A user's reward for an item: by the user's taste, with noise.
    fn reward(&mut self, user: usize, features: &[f64]) -> f64 {
        let mood = 0.5 * (self.unit() - 0.5);
        (0.5 + features[user % TASTES] + mood).clamp(0.0, 1.0)
    }

    fn features(&mut self, items: usize) -> Vec<f64> {
        (0..DIM * items).map(|_| self.unit() - 0.5).collect()
    }
}

/// Shows an item to each of some users, and learns their rewards.
fn learn(
    engine: &Engine,
    runtime: &tokio::runtime::Runtime,
    draws: &mut Draws,
    users: impl Iterator<Item = usize>,
) {
    let mut scratch = Scratch::default();
    let mut decisions = Vec::with_capacity(AT_ONCE);
    for user in users {
        decisions.push(shown(engine, &mut scratch, draws, user));
    }
    let rounds = decisions.iter().map(|decision| sent(engine, decision));
    runtime.block_on(join_all(rounds));
}

/// Shows an item to a user. Returns the decision and the reward.
fn shown(engine: &Engine, scratch: &mut Scratch, draws: &mut Draws, user: usize) -> (String, f64) {
    let features = draws.features(1);
    let items = ItemSet::from_rows(DIM, &features).expect("an item");
    let asked = RecommendQuery {
        user: &format!("user-{user}"),
        among: CandidateSet::Inline(vec!["item"], &items),
        rules: Rules::default(),
        k: 1,
        context: None,
    };
    let shown = engine.recommend(&asked, scratch).expect("a decision");
    (shown.decision, draws.reward(user, &features))
}

/// Sends a reward and waits until it is learned.
async fn sent(engine: &Engine, (decision, reward): &(String, f64)) {
    let given = Feedback::of_item(decision, None, *reward);
    engine.feedback(&given).await.expect("learned");
}

/// Recommends while rewards come in: for some seconds, then during a whole fit, which forgetting a user makes
/// due. Prints the latency of recommendations.
fn measure(engine: &Engine, runtime: &tokio::runtime::Runtime, users: usize) {
    let makes_fits = engine
        .state()
        .policy()
        .is_some_and(|policy| policy.inspect().outlook().is_some());
    let is_over = AtomicBool::new(false);
    let [mut idle, mut busy] = [Vec::new(), Vec::new()];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut draws = Draws(2);
            while !is_over.load(Ordering::Relaxed) {
                let some: Vec<usize> = (0..100)
                    .map(|_| (draws.unit() * users as f64) as usize)
                    .collect();
                learn(engine, runtime, &mut draws, some.into_iter());
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let mut draws = Draws(3);
        let mut scratch = Scratch::default();
        let items = ItemSet::from_rows(DIM, &draws.features(CANDIDATES)).expect("items");
        let ids: Vec<String> = (0..CANDIDATES).map(|id| id.to_string()).collect();
        let mut serve_until = |is_enough: &mut dyn FnMut(bool, Duration) -> bool| {
            let begun = Instant::now();
            loop {
                let user = format!("user-{}", (draws.unit() * users as f64) as usize);
                let asked = RecommendQuery {
                    user: &user,
                    among: CandidateSet::Inline(ids.iter().map(String::as_str).collect(), &items),
                    rules: Rules::default(),
                    k: 1,
                    context: None,
                };
                let is_fitting = engine.is_fitting();
                let since = Instant::now();
                engine.recommend(&asked, &mut scratch).expect("a decision");
                let took = since.elapsed();
                match is_fitting {
                    true => busy.push(took),
                    false => idle.push(took),
                }
                if is_enough(is_fitting, begun.elapsed()) {
                    return;
                }
            }
        };
        // A fit that was being computed before does not count.
        serve_until(&mut |is_fitting, waited| !is_fitting || waited > FIT_TIMEOUT);
        serve_until(&mut |_, waited| waited > WITHOUT_FIT);
        if makes_fits {
            let forgotten = runtime.block_on(engine.forget("user-0"));
            assert_eq!(forgotten, Ok(true));
            let mut was_fitting = false;
            serve_until(&mut |is_fitting, waited| {
                let is_over = was_fitting && !is_fitting;
                was_fitting = is_fitting;
                is_over || waited > FIT_TIMEOUT
            });
        }
        is_over.store(true, Ordering::Relaxed);
    });
    println!("recommend while no fit is computed: {}", summary(&mut idle));
    if let Some(took) = engine.fit_took() {
        println!("recommend while a fit is computed:  {}", summary(&mut busy));
        println!("the last fit took {:.1} s", took.as_secs_f64());
    }
}

/// Learns without and with snapshots in the background, and prints the latency of rewards.
fn snapshots(users: usize) {
    let kept = tempfile::tempdir().expect("a folder");
    let engine = open("sclub", &kept.path().join("data"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut draws = Draws(1);
    for first in (0..users).step_by(AT_ONCE) {
        let some = first..(first + AT_ONCE).min(users);
        learn(&engine, &runtime, &mut draws, some);
    }
    println!("{}", describe(&engine));
    let is_over = AtomicBool::new(false);
    let mut round_trips = |is_enough: &dyn Fn(Duration) -> bool| {
        let begun = Instant::now();
        let mut times = Vec::new();
        while !is_enough(begun.elapsed()) {
            let user = (draws.unit() * users as f64) as usize;
            let decision = shown(&engine, &mut Scratch::default(), &mut draws, user);
            let since = Instant::now();
            runtime.block_on(sent(&engine, &decision));
            times.push(since.elapsed());
        }
        times
    };
    let mut without = round_trips(&|waited| waited > WITHOUT_FIT);
    let (mut with, taken) = std::thread::scope(|scope| {
        let beside = scope.spawn(|| {
            let begun = Instant::now();
            let mut taken = Vec::new();
            // Long enough for as many round trips as without snapshots.
            while begun.elapsed() < WITHOUT_FIT {
                let since = Instant::now();
                let event = runtime.block_on(engine.snapshot()).expect("a snapshot");
                taken.push(since.elapsed());
                assert!(event > 0);
            }
            is_over.store(true, Ordering::Relaxed);
            taken
        });
        let with = round_trips(&|_| is_over.load(Ordering::Relaxed));
        (with, beside.join().expect("it ended"))
    });
    println!("learn without a snapshot:     {}", summary(&mut without));
    println!(
        "learn beside {:3} snapshots:   {}",
        taken.len(),
        summary(&mut with)
    );
    let longest = taken.iter().max().map_or(0.0, Duration::as_secs_f64);
    println!("a snapshot took {longest:.2} s at most");
    for share in [0.5, 0.99] {
        let ratio = percentile(&with, share) / percentile(&without, share);
        println!("p{:.0} with / without: {ratio:.2}", share * 100.0);
    }
}

/// A percentile of sorted times, in microseconds.
fn percentile(times: &[Duration], share: f64) -> f64 {
    let place = (share * times.len() as f64) as usize;
    let time = times.get(place.min(times.len().saturating_sub(1)));
    time.map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

/// The percentiles as text.
fn summary(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |share: f64| percentile(times, share);
    format!(
        "p50 {:.0} µs, p99 {:.0} µs, p99.9 {:.0} µs, at most {:.0} µs, of {}",
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
        times.len()
    )
}

/// Opens the folder.
fn again(policy: &str, folder: &Path) {
    let begun = Instant::now();
    let engine = open(policy, folder);
    let seconds = begun.elapsed().as_secs_f64();
    println!("ready again in {seconds:.1} s: {}", describe(&engine));
    // Without closing, so that the next one opens the folder as after a crash.
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
    let per_user = memory("VmRSS:") * 1e6 / state.users().len() as f64;
    format!(
        "{} users, {} clusters, {} events; memory {:.2} GB ({per_user:.2} KB a user), at most {:.2} GB; folder {:.2} GB",
        state.users().len(),
        state.clusters(),
        state.events(),
        memory("VmRSS:"),
        memory("VmHWM:"),
        engine.folder().bytes() as f64 / 1e9
    )
}
