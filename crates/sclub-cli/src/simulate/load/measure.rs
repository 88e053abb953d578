//! Senders that load a server for some time, and the latencies that they see.

use std::io::Write;
use std::path::Path;
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use futures_util::future::join_all;
use sclub_lab::summary::thousands;
use sclub_server::client::{Connection, Response};

use super::Plan;
use super::report::{DISK, HALF, Measured, Report};
use super::traffic::{Draws, decisions};
use crate::remote::{Refusal, block_on};
use crate::simulate::wire::write_feedback;

/// Failures in a row after which a connection gives up.
const MAX_FAILURES: u32 = 100;

/// Requests a second that are assumed before anything is measured.
const ASSUMED_RATE: f64 = 20_000.0;

/// The kind of request that is sent.
enum Work {
    Healthz,
    Recommend,
    Feedback(Mutex<Vec<String>>),
    Catalogue,
}

impl Plan {
    /// Measures each of some in turns, as often as is planned.
    pub(super) fn measure_in_turns(
        &self,
        names: &[&'static str],
        report: &mut Report,
    ) -> Result<()> {
        for turn in 1..=self.repeat {
            for &name in names {
                let work = match name {
                    "healthz" => Work::Healthz,
                    "recommend" | "filter" => Work::Recommend,
                    "catalogue" => Work::Catalogue,
                    _ => Work::Feedback(Mutex::new(self.fetch(report, turn)?)),
                };
                let measured = self.measure(&work, None)?;
                self.report_turn(turn, name, &measured);
                report.add(name, measured)?;
            }
            if let Some(dir) = &self.disk {
                let measured = measure_disk(dir, self.duration)
                    .with_context(|| format!("cannot write to {}", dir.display()))?;
                self.report_turn(turn, DISK, &measured);
                report.add(DISK, measured)?;
            }
        }
        Ok(())
    }

    fn report_turn(&self, turn: usize, name: &str, measured: &Measured) {
        let rate = thousands(measured.rate());
        self.report_progress(&format!("{turn} of {}: {name} {rate}/s", self.repeat));
    }

    /// Fetches decisions, by the measured rate enough for the planned time. The measurement ends early if they
    /// run out.
    fn fetch(&self, report: &Report, turn: usize) -> Result<Vec<String>> {
        let rate = report.rate("recommend").unwrap_or(ASSUMED_RATE).max(1000.0);
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
        // A thread that could not connect must not block the others.
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
        while before < end && failed < MAX_FAILURES && sender.prepare() {
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
    pub(super) fn measure_half(&self, report: &mut Report) -> Result<()> {
        let Some(rate) = report.rate("recommend").filter(|&rate| rate > 0.0) else {
            return Ok(());
        };
        let between = Duration::from_secs_f64(2.0 * self.connections as f64 / rate);
        for turn in 1..=self.repeat {
            let measured = self.measure(&Work::Recommend, Some(between))?;
            self.report_turn(turn, HALF, &measured);
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

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread
        .join()
        .unwrap_or_else(|_| Err(anyhow!("a sending thread has panicked")))
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

    /// Makes the body of the next request. Returns false if there is no next request.
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
                bail!("the server did not apply the first reward of a decision")
            }
            _ => Ok(()),
        }
    }
}

fn is_applied(response: &Response) -> bool {
    response.body.windows(4).any(|four| four == b"true")
}
