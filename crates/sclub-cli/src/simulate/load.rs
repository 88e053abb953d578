//! Measures how fast a server is, with as little work as possible on this side of the connection.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, Table};
use futures_util::future::join_all;
use sclub_lab::summary::thousands;
use sclub_server::client::{Connection, Response};
use serde_json::{Value, json};

use super::latency::{Latencies, shown};
use super::play::{Decision, Decisions, read, state, write_feedback};
use super::{Load, SimulateArgs, connections};
use crate::files::{print_line, save};
use crate::remote::{Refusal, Remote, block_on, body_of, call};

/// Items that the candidates of `--load recommend` are drawn from.
const CATALOGUE: usize = 1000;

/// Lists of candidates that are made beforehand.
const LISTS: usize = 1024;

/// Requests in a batch where nothing is measured.
const BATCH: usize = 500;

/// Lines of items in one request.
const ITEMS_AT_ONCE: usize = 2000;

/// Rounds that users learn from before a catalogue is searched for them.
const LESSONS: usize = 5000;

/// Features of a catalogue unless the server or a flag says.
const CATALOGUE_DIM: usize = 32;

/// Failures in a row after which a connection gives up.
const PATIENCE: u32 = 100;

/// Rewards fetched beforehand, a second, where nothing has been measured yet.
const GUESS: f64 = 20_000.0;

/// Numbers as good as random, the same each time.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Between −1 and 1.
    fn signed(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// The settings that all senders share.
struct Plan {
    remote: Remote,
    users: usize,
    dim: usize,
    candidates: usize,
    connections: usize,
    threads: usize,
    duration: Duration,
    repeat: usize,
    /// `"candidates":[…]}` for a user.
    lists: Vec<String>,
    /// `"k":…}` for a user whose candidates are all there are.
    whole: String,
    disk: Option<PathBuf>,
    quiet: bool,
}

/// The kind of request that is sent.
enum Work {
    Healthz,
    Recommend,
    Feedback(Mutex<Vec<String>>),
    Catalogue,
}

/// The result of a measurement.
#[derive(Default)]
struct Measured {
    latencies: Latencies,
    errors: u64,
    first_error: Option<anyhow::Error>,
    seconds: f64,
}

impl Measured {
    fn rate(&self) -> f64 {
        self.latencies.count() as f64 / self.seconds.max(1e-9)
    }

    fn merge(&mut self, other: Self) {
        self.latencies.merge(&other.latencies);
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.seconds = self.seconds.max(other.seconds);
    }

    fn fail(&mut self, error: anyhow::Error) {
        self.errors += 1;
        self.first_error.get_or_insert(error);
    }
}

/// Loads, shows and writes.
pub fn load(args: &SimulateArgs, what: Load) -> Result<ExitCode> {
    let mut plan = plan(args, what)?;
    let mut report = Report::default();
    if what == Load::Catalogue {
        plan.connections = 1;
        plan.threads = 1;
        let items = usize::try_from(args.catalogue).context("catalogue is too large")?;
        plan.print_line(&format!("putting {} items", thousands(items as f64)));
        block_on(async {
            let mut connection = plan.remote.open().await?;
            let liked = put_items(&mut connection, items, plan.dim).await?;
            teach(&plan, &mut connection, &liked).await
        })?;
        plan.measure_in_turns(&["catalogue"], &mut report)?;
    } else {
        let names: &[&str] = match what {
            Load::All => &["healthz", "recommend", "feedback"],
            Load::Healthz => &["healthz"],
            Load::Recommend => &["recommend"],
            _ => &["feedback"],
        };
        if what != Load::Healthz {
            block_on(async {
                let mut connection = plan.remote.open().await?;
                put_items(&mut connection, CATALOGUE, plan.dim).await
            })
            .map(drop)?;
        }
        plan.measure_in_turns(names, &mut report)?;
        if what == Load::All {
            plan.measure_half(&mut report)?;
        }
    }
    print_line(&report.table());
    if let Some(path) = &args.json {
        let document = json!({ "config": plan.config(), "results": report.to_json() });
        let text = serde_json::to_string_pretty(&document).context("cannot write JSON")?;
        save(path, text.as_bytes())?;
        print_line(&format!("Written: {}", path.display()));
    }
    match report.first_error {
        Some(error) => Err(error.context("some requests failed")),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn plan(args: &SimulateArgs, what: Load) -> Result<Plan> {
    let within = |name: &str, value: u64, most: u64| -> Result<usize> {
        if (1..=most).contains(&value) {
            Ok(value as usize)
        } else {
            bail!("{name} is {value}; it must be between 1 and {most}")
        }
    };
    if !(args.seconds > 0.0 && args.seconds <= 86_400.0) {
        bail!(
            "seconds is {}; it must be above 0 and at most 86400",
            args.seconds
        );
    }
    let remote = Remote::new(&args.url, &args.trust)?;
    let asked = args.given.iter().any(|given| given == "dim");
    let dim = within("dim", args.recipe.dim, 1_000_000)?;
    let known = block_on(async { Ok(state(&mut remote.open().await?).await?.dim) })?;
    let dim = match known {
        Some(known) if asked && known != dim => {
            bail!("the server's items have {known} features: load it with --dim {known}")
        }
        Some(known) => known,
        None if what == Load::Catalogue && !asked => CATALOGUE_DIM,
        None => dim,
    };
    let candidates = within("items", args.recipe.items, CATALOGUE as u64)?;
    let connections = connections(args, 64)?;
    Ok(Plan {
        remote,
        users: within("users", args.recipe.users, 1 << 40)?,
        dim,
        candidates,
        connections,
        threads: within("threads", args.threads, 256)?.min(connections),
        duration: Duration::from_secs_f64(args.seconds),
        repeat: within("repeat", args.repeat, 1000)?,
        lists: lists(candidates),
        whole: format!("\"k\":{}}}", args.k),
        disk: args.disk.clone(),
        quiet: args.quiet,
    })
}

/// Lists of different candidates.
fn lists(candidates: usize) -> Vec<String> {
    let mut draws = Draws(1);
    let list = |_| {
        let mut ids: Vec<usize> = (0..CATALOGUE).collect();
        let some = (0..candidates).map(|at| {
            let other = at + draws.below(CATALOGUE - at);
            ids.swap(at, other);
            format!("\"load-{}\"", ids[at])
        });
        let some: Vec<String> = some.collect();
        format!("\"candidates\":[{}]}}", some.join(","))
    };
    (0..LISTS).map(list).collect()
}

/// Features as those of the lab: a direction and a constant, of length 1 together.
///
/// Returns the first of them.
fn write_features(line: &mut Vec<u8>, dim: usize, draws: &mut Draws) -> Result<f64> {
    let direction: Vec<f64> = (1..dim).map(|_| draws.signed()).collect();
    let length = direction.iter().map(|x| x * x).sum::<f64>().sqrt();
    let scale = std::f64::consts::FRAC_1_SQRT_2;
    let features = direction.iter().map(|x| x / length * scale);
    let features: Vec<f64> = features.chain([scale]).collect();
    serde_json::to_writer(line, &features)?;
    Ok(features[0])
}

/// Puts items into the catalogue. Returns the first feature of each.
async fn put_items(connection: &mut Connection, items: usize, dim: usize) -> Result<Vec<f64>> {
    let mut draws = Draws(2);
    let mut firsts = Vec::with_capacity(items);
    let mut body = Vec::new();
    for first in (0..items).step_by(ITEMS_AT_ONCE) {
        body.clear();
        for item in first..items.min(first + ITEMS_AT_ONCE) {
            write!(body, "{{\"id\":\"load-{item}\",\"features\":")?;
            firsts.push(write_features(&mut body, dim, &mut draws)?);
            body.extend_from_slice(b"}\n");
        }
        call(connection, "PUT", "/v1/items", &body).await?;
    }
    Ok(firsts)
}

/// Has users reward items the more often the larger their first feature is, so that there is a taste
/// to know.
async fn teach(plan: &Plan, connection: &mut Connection, liked: &[f64]) -> Result<()> {
    let mut draws = Draws(3);
    let decisions = decisions(plan, connection, LESSONS, &mut draws).await?;
    let mut body = Vec::new();
    for some in decisions.chunks(BATCH) {
        body.clear();
        body.extend_from_slice(b"{\"feedback\":[");
        for (at, (decision, item)) in some.iter().enumerate() {
            if at > 0 {
                body.push(b',');
            }
            let likes = liked
                .get(*item)
                .is_some_and(|liked| draws.signed() < *liked);
            write_feedback(&mut body, decision, f64::from(u8::from(likes)))?;
        }
        body.extend_from_slice(b"]}");
        call(connection, "POST", "/v1/feedback/batch", &body).await?;
    }
    Ok(())
}

/// Fetches so many decisions, each with the number of the item to show.
async fn decisions(
    plan: &Plan,
    connection: &mut Connection,
    count: usize,
    draws: &mut Draws,
) -> Result<Vec<(String, usize)>> {
    let mut all = Vec::with_capacity(count);
    let mut body = Vec::new();
    while all.len() < count {
        body.clear();
        body.extend_from_slice(b"{\"requests\":[");
        for at in 0..BATCH.min(count - all.len()) {
            if at > 0 {
                body.push(b',');
            }
            plan.write_recommend(&mut body, draws, false);
        }
        body.extend_from_slice(b"]}");
        let response = connection
            .request("POST", "/v1/recommend/batch", &body)
            .await?;
        let fetched: Decisions<'_> = read(body_of(&response)?)?;
        if fetched.decisions.is_empty() {
            bail!("the server decided nothing");
        }
        let number = |decision: &Decision<'_>| -> Option<usize> {
            let shown = decision.items.first()?;
            shown.id.strip_prefix("load-")?.parse().ok()
        };
        let decided = fetched.decisions.into_iter();
        all.extend(decided.map(|decision| {
            let item = number(&decision).unwrap_or(usize::MAX);
            (decision.decision.into_owned(), item)
        }));
    }
    Ok(all)
}

impl Plan {
    fn print_line(&self, line: &str) {
        if !self.quiet {
            eprintln!("{line}");
        }
    }

    fn config(&self) -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "url": self.remote.url().to_string(),
            "users": self.users,
            "dim": self.dim,
            "items": self.candidates,
            "connections": self.connections,
            "threads": self.threads,
            "seconds": self.duration.as_secs_f64(),
            "repeat": self.repeat,
        })
    }

    fn write_recommend(&self, body: &mut Vec<u8>, draws: &mut Draws, is_whole: bool) {
        let user = draws.below(self.users);
        let rest = if is_whole {
            &self.whole
        } else {
            &self.lists[user % LISTS]
        };
        body.extend_from_slice(b"{\"user\":\"load-u");
        // Writing to memory does not fail.
        let _ = write!(body, "{user}");
        body.extend_from_slice(b"\",");
        body.extend_from_slice(rest.as_bytes());
    }

    /// Measures each of some in turns, as often as is planned.
    fn measure_in_turns(&self, names: &[&'static str], report: &mut Report) -> Result<()> {
        for turn in 1..=self.repeat {
            for &name in names {
                let work = match name {
                    "healthz" => Work::Healthz,
                    "recommend" => Work::Recommend,
                    "catalogue" => Work::Catalogue,
                    _ => Work::Feedback(Mutex::new(self.fetch(report, turn)?)),
                };
                let measured = self.measure(&work, None)?;
                self.tell(turn, name, &measured);
                report.add(name, measured)?;
            }
            if let Some(dir) = &self.disk {
                let measured = measure_disk(dir, self.duration)
                    .with_context(|| format!("cannot write to {}", dir.display()))?;
                self.tell(turn, DISK, &measured);
                report.add(DISK, measured)?;
            }
        }
        Ok(())
    }

    fn tell(&self, turn: usize, name: &str, measured: &Measured) {
        let rate = thousands(measured.rate());
        self.print_line(&format!("{turn} of {}: {name} {rate}/s", self.repeat));
    }

    /// Enough decisions to reward for as long as is planned; if they are not, it ends before.
    fn fetch(&self, report: &Report, turn: usize) -> Result<Vec<String>> {
        let rate = report.rate("recommend").unwrap_or(GUESS).max(1000.0);
        let count = (1.1 * rate * self.duration.as_secs_f64()) as usize;
        block_on(async {
            let mut connection = self.remote.open().await?;
            let mut draws = Draws(1000 + turn as u64);
            let fetched = decisions(self, &mut connection, count, &mut draws).await?;
            Ok(fetched.into_iter().map(|(decision, _)| decision).collect())
        })
    }

    /// Sends as fast as the answers come, or each connection once in some time.
    fn measure(&self, work: &Work, between: Option<Duration>) -> Result<Measured> {
        let barrier = Barrier::new(self.threads);
        let outcomes: Vec<Result<Measured>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let barrier = &barrier;
                    scope.spawn(move || self.measure_on_thread(work, between, thread, barrier))
                })
                .collect();
            threads.into_iter().map(joined).collect()
        });
        merged(outcomes)
    }

    /// One thread's share of the connections.
    fn measure_on_thread(
        &self,
        work: &Work,
        between: Option<Duration>,
        thread: usize,
        barrier: &Barrier,
    ) -> Result<Measured> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let mine = (thread..self.connections).step_by(self.threads);
        let opened = runtime.block_on(async {
            let mut opened = Vec::new();
            for number in mine {
                opened.push((number, self.remote.open().await?));
            }
            Ok::<_, anyhow::Error>(opened)
        });
        // Whoever could not connect must not let the others wait.
        barrier.wait();
        let start = Instant::now();
        let senders = opened?.into_iter().map(|(number, connection)| {
            let pace = between.map(|between| Pace {
                due: start + between.mul_f64(number as f64 / self.connections as f64),
                between,
            });
            self.send_until(work, connection, number, start + self.duration, pace)
        });
        let mut all = Measured::default();
        for measured in runtime.block_on(join_all(senders)) {
            all.merge(measured);
        }
        all.seconds = start.elapsed().as_secs_f64();
        Ok(all)
    }

    async fn send_until(
        &self,
        work: &Work,
        mut connection: Connection,
        number: usize,
        end: Instant,
        mut pace: Option<Pace>,
    ) -> Measured {
        let mut measured = Measured::default();
        let mut sender = Sender::new(self, work, number);
        let mut failed = 0;
        let mut before = Instant::now();
        while before < end && failed < PATIENCE && sender.prepare() {
            if let Some(pace) = &mut pace {
                before = pace.due;
                pace.due += pace.between;
                if before > Instant::now() {
                    tokio::time::sleep_until(before.into()).await;
                }
            }
            let outcome = sender.send(&mut connection).await;
            let now = Instant::now();
            match outcome {
                Ok(()) => {
                    measured.latencies.add(now - before);
                    failed = 0;
                }
                Err(error) => {
                    measured.fail(error);
                    failed += 1;
                }
            }
            before = now;
        }
        measured
    }

    /// Recommendations at half of the rate that was reached, each at its time whether or not the one
    /// before has been answered. The runtime's timer wakes up to a millisecond late, which counts.
    fn measure_half(&self, report: &mut Report) -> Result<()> {
        let Some(rate) = report.rate("recommend").filter(|&rate| rate > 0.0) else {
            return Ok(());
        };
        let between = Duration::from_secs_f64(2.0 * self.connections as f64 / rate);
        for turn in 1..=self.repeat {
            let measured = self.measure(&Work::Recommend, Some(between))?;
            self.tell(turn, HALF, &measured);
            report.add(HALF, measured)?;
        }
        Ok(())
    }
}

/// The time of a connection's next request, and the time between two.
struct Pace {
    due: Instant,
    between: Duration,
}

/// Name of the row for the yardstick: an append and a sync of a small record.
const DISK: &str = "append 512 bytes, sync";

/// Appends 512 bytes to a new file and syncs it, again and again.
fn measure_disk(dir: &Path, duration: Duration) -> std::io::Result<Measured> {
    let mut file = tempfile::tempfile_in(dir)?;
    let bytes = [7; 512];
    let mut measured = Measured::default();
    let start = Instant::now();
    let mut before = start;
    while before < start + duration {
        file.write_all(&bytes)?;
        file.sync_data()?;
        let now = Instant::now();
        measured.latencies.add(now - before);
        before = now;
    }
    measured.seconds = start.elapsed().as_secs_f64();
    Ok(measured)
}

const HALF: &str = "recommend at half load";

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread
        .join()
        .unwrap_or_else(|_| Err(anyhow!("a thread that sends has failed")))
}

fn merged(outcomes: Vec<Result<Measured>>) -> Result<Measured> {
    let mut all = Measured::default();
    for measured in outcomes {
        all.merge(measured?);
    }
    Ok(all)
}

/// Makes the requests of one connection.
struct Sender<'p> {
    plan: &'p Plan,
    work: &'p Work,
    draws: Draws,
    body: Vec<u8>,
}

impl<'p> Sender<'p> {
    fn new(plan: &'p Plan, work: &'p Work, number: usize) -> Self {
        Self {
            plan,
            work,
            draws: Draws(10 + number as u64),
            body: Vec::new(),
        }
    }

    /// Makes the body of the next request; false where there is none.
    fn prepare(&mut self) -> bool {
        self.body.clear();
        match self.work {
            Work::Healthz => true,
            Work::Recommend | Work::Catalogue => {
                let is_whole = matches!(self.work, Work::Catalogue);
                self.plan
                    .write_recommend(&mut self.body, &mut self.draws, is_whole);
                true
            }
            Work::Feedback(decisions) => {
                let mut decisions = decisions.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(decision) = decisions.pop() else {
                    return false;
                };
                drop(decisions);
                let reward = (self.draws.next() % 2) as f64;
                write_feedback(&mut self.body, &decision, reward).is_ok()
            }
        }
    }

    async fn send(&self, connection: &mut Connection) -> Result<()> {
        let (method, path) = match self.work {
            Work::Healthz => ("GET", "/healthz"),
            Work::Recommend | Work::Catalogue => ("POST", "/v1/recommend"),
            Work::Feedback(_) => ("POST", "/v1/feedback"),
        };
        let response = connection.request(method, path, &self.body).await?;
        if !response.is_success() {
            return Err(Refusal::of(&response).into());
        }
        match self.work {
            Work::Feedback(_) if !is_applied(&response) => {
                bail!("a reward was not applied that nobody has given before")
            }
            _ => Ok(()),
        }
    }
}

fn is_applied(response: &Response) -> bool {
    response.body.windows(4).any(|four| four == b"true")
}

/// All measurements, each with its turns.
#[derive(Default)]
struct Report {
    lines: Vec<Line>,
    first_error: Option<anyhow::Error>,
}

struct Line {
    name: &'static str,
    turns: Vec<Measured>,
}

/// The middle one, or the mean of the two in the middle.
fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[half]),
        _ => Some((values[half - 1] + values[half]) / 2.0),
    }
}

impl Line {
    fn rate(&self) -> Option<f64> {
        median(self.turns.iter().map(Measured::rate))
    }

    fn latency(&self, of: impl Fn(&Latencies) -> Option<f64>) -> Option<f64> {
        median(self.turns.iter().filter_map(|turn| of(&turn.latencies)))
    }

    fn errors(&self) -> u64 {
        self.turns.iter().map(|turn| turn.errors).sum()
    }
}

impl Report {
    /// Adds a turn; an error where nothing at all went well in it.
    fn add(&mut self, name: &'static str, mut measured: Measured) -> Result<()> {
        let error = measured.first_error.take();
        if measured.latencies.count() == 0 {
            let error = error.unwrap_or_else(|| anyhow!("nothing was answered in time"));
            return Err(error.context(format!("cannot measure {name}")));
        }
        self.first_error = self.first_error.take().or(error);
        match self.lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.turns.push(measured),
            None => self.lines.push(Line {
                name,
                turns: vec![measured],
            }),
        }
        Ok(())
    }

    fn line(&self, name: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.name == name)
    }

    fn rate(&self, name: &str) -> Option<f64> {
        self.line(name).and_then(Line::rate)
    }

    /// The rate to that of empty requests, turn by turn.
    fn share(&self, line: &Line) -> Option<f64> {
        let is_request = line.name != HALF && line.name != DISK;
        let healthz = self.line("healthz").filter(|_| is_request)?;
        let turns = line.turns.iter().zip(&healthz.turns);
        median(turns.map(|(turn, empty)| turn.rate() / empty.rate()))
    }

    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_HORIZONTAL_ONLY);
        table.set_header([
            "what",
            "requests/s",
            "of healthz",
            "p50",
            "p99",
            "max",
            "errors",
        ]);
        for line in &self.lines {
            let share = self.share(line);
            table.add_row([
                line.name.to_owned(),
                line.rate().map_or_else(String::new, thousands),
                share.map_or_else(|| "–".into(), |share| format!("{:.0}%", 100.0 * share)),
                shown(line.latency(|latencies| latencies.quantile(0.5))),
                shown(line.latency(|latencies| latencies.quantile(0.99))),
                shown(line.latency(Latencies::longest)),
                line.errors().to_string(),
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.to_string()
    }

    fn to_json(&self) -> Value {
        let line = |line: &Line| {
            json!({
                "what": line.name,
                "requests_per_second": line.rate(),
                "share_of_healthz": self.share(line),
                "p50_ms": line.latency(|latencies| latencies.quantile(0.5)),
                "p99_ms": line.latency(|latencies| latencies.quantile(0.99)),
                "max_ms": line.latency(Latencies::longest),
                "errors": line.errors(),
                "turns": line.turns.iter().map(Measured::rate).collect::<Vec<_>>(),
            })
        };
        self.lines.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn candidates_are_different_items_of_the_catalogue() {
        let lists = lists(20);
        assert_eq!(lists.len(), LISTS);
        for list in lists {
            let list: Value = serde_json::from_str(&format!("{{{list}")).unwrap();
            let ids = list["candidates"].as_array().unwrap().iter();
            let mut ids: Vec<&str> = ids.map(|id| id.as_str().unwrap()).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), 20);
            for id in ids {
                let number: usize = id.strip_prefix("load-").unwrap().parse().unwrap();
                assert!(number < CATALOGUE);
            }
        }
    }

    #[test]
    fn features_have_length_one() {
        for dim in [1, 2, 32] {
            let mut line = Vec::new();
            write_features(&mut line, dim, &mut Draws(5)).unwrap();
            let features: Vec<f64> = serde_json::from_slice(&line).unwrap();
            assert_eq!(features.len(), dim);
            let length: f64 = features.iter().map(|x| x * x).sum();
            let expected = if dim == 1 { 0.5 } else { 1.0 };
            assert!((length - expected).abs() < 1e-12, "{length}");
        }
    }
}
