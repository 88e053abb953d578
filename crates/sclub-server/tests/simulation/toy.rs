//! A small engine with the promises of the real one and faults to order, to try the simulation on.
//! It recommends whatever comes first and learns nothing but sums.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use sclub::Score;
use sclub_server::engine::{Among, Asked, Given, Recommended};
use sclub_server::env::{Access, DiskFile, Env, LockGuard};
use sclub_server::event::Item;
use sclub_server::settings::Settings;
use sclub_server::state::Scratch;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

/// Mistakes that can be built in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bug {
    None,
    AnswersBeforeSync,
    TrustsPageCacheAtOpen,
    DoesNotSyncNames,
    ForgetsAnswersWhenCompacting,
    KeepsForgottenLines,
    ExpiresByWallClock,
    TakesOtherCopies,
    CallsUnknownRefused,
    AcceptsForForgotten,
    LosesItemsWhenCompacting,
    PanicsOnError,
}

thread_local! {
    pub static BUG: Cell<Bug> = const { Cell::new(Bug::None) };
}

fn has(bug: Bug) -> bool {
    BUG.get() == bug
}

pub type OpenError = io::Error;
pub type StoreError = io::Error;
pub type FoldError = io::Error;

#[derive(Debug)]
#[allow(dead_code)]
pub enum Refusal {
    UnknownDecision,
    Expired,
    Forgotten,
    OtherCopy,
    UnknownItem { id: String },
    Invalid { field: String, message: String },
    At(String, Box<Refusal>),
    ReadOnly(String),
    Unknown(String),
    Overloaded,
    Closing,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct State {
    events: u64,
    running: u64,
    users: BTreeMap<String, (u64, f64)>,
    items: BTreeMap<String, Vec<f64>>,
    answered: BTreeSet<String>,
    lines: Vec<Line>,
    /// Print of a user and the event of the request.
    forgotten: Vec<(String, u64)>,
    /// Starts and the events that they are.
    starts: Vec<(String, u64)>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Line {
    user: String,
    item: String,
    reward: Option<f64>,
    key: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Event {
    Start(String),
    Learn(Vec<Line>),
    Upsert(Vec<(String, Vec<f64>)>),
    Remove(String),
    Forget(String),
    State(Box<State>),
}

#[derive(Serialize, Deserialize)]
struct Decision {
    user: String,
    items: Vec<String>,
    start: String,
    number: u64,
    event: u64,
    at: u64,
    wall: u64,
}

enum Want {
    Event(Event),
    Learn(Vec<(Decision, Line)>),
    Compact,
    Stop,
}

type Reply = oneshot::Sender<Result<Vec<bool>, Refusal>>;

struct Shared {
    env: Env,
    folder: PathBuf,
    settings: Settings,
    state: Mutex<State>,
    log: Mutex<Log>,
    start: String,
    opened: u64,
    running: u64,
    number: Mutex<u64>,
    read_only: Mutex<Option<String>>,
}

struct Log {
    file: Option<Arc<dyn DiskFile>>,
    end: u64,
    events: Vec<Vec<u8>>,
}

pub struct Engine {
    shared: Arc<Shared>,
    queue: mpsc::UnboundedSender<(Want, Reply)>,
    _lock: Box<dyn LockGuard>,
}

fn print(user: &str) -> String {
    blake3::hash(user.as_bytes()).to_hex()[..16].to_owned()
}

fn seal(decision: &Decision) -> String {
    let text = serde_json::to_string(decision).unwrap();
    print(&text) + &text
}

fn unseal(text: &str) -> Option<Decision> {
    let (seal, text) = text.split_at_checked(16)?;
    (print(text) == seal).then(|| serde_json::from_str(text).unwrap())
}

impl State {
    fn apply(&mut self, running: u64, event: &Event) {
        self.events += 1;
        match event {
            Event::Start(start) => self.starts.push((start.clone(), self.events)),
            Event::Learn(lines) => {
                for line in lines {
                    self.answered.insert(line.key.clone());
                    let user = self.users.entry(line.user.clone()).or_default();
                    user.0 += 1;
                    user.1 += line.reward.unwrap_or(0.0);
                    self.lines.push(line.clone());
                }
            }
            Event::Upsert(items) => self.items.extend(items.iter().cloned()),
            Event::Remove(item) => drop(self.items.remove(item)),
            Event::Forget(user) => {
                self.users.remove(user);
                self.forgotten.push((print(user), self.events));
                if !has(Bug::KeepsForgottenLines) {
                    self.lines.retain(|line| line.user != *user);
                }
            }
            Event::State(state) => *self = (**state).clone(),
        }
        self.running = running;
    }

    fn hash(&self) -> String {
        let learned = (&self.users, &self.items, &self.answered);
        let bytes = serde_json::to_vec(&learned).unwrap();
        blake3::hash(&bytes).to_hex()[..16].to_owned()
    }
}

fn frame(running: u64, event: &Event) -> Vec<u8> {
    let bytes = serde_json::to_vec(&(running, event)).unwrap();
    let mut framed = (bytes.len() as u32).to_le_bytes().to_vec();
    framed.extend(&blake3::hash(&bytes).as_bytes()[..8]);
    framed.extend(bytes);
    framed
}

/// The whole events at the beginning of a log.
fn frames(mut bytes: &[u8]) -> (State, Vec<Vec<u8>>) {
    let mut state = State::default();
    let mut all = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>()
        && let Some((sum, rest)) = rest.split_first_chunk::<8>()
        && let Some((event, rest)) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)
        && blake3::hash(event).as_bytes()[..8] == *sum
        && let Ok((running, decoded)) = serde_json::from_slice::<(u64, Event)>(event)
    {
        state.apply(running, &decoded);
        all.push(bytes[..bytes.len() - rest.len()].to_vec());
        bytes = rest;
    }
    (state, all)
}

fn read_log(env: &Env, folder: &Path) -> io::Result<Vec<u8>> {
    let file = match env.disk.open(&folder.join("log"), Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut bytes = vec![0; file.len()? as usize];
    let count = file.read_full_at(&mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// Puts a log in place of the one that is there.
fn write_log(env: &Env, folder: &Path, events: &[Vec<u8>]) -> io::Result<Arc<dyn DiskFile>> {
    let file = env.disk.open(&folder.join("log.new"), Access::Create)?;
    file.write_all_at(&events.concat(), 0)?;
    file.sync()?;
    env.disk
        .rename(&folder.join("log.new"), &folder.join("log"))?;
    if !has(Bug::DoesNotSyncNames) {
        env.disk.sync_dir(folder)?;
    }
    Ok(file)
}

impl Engine {
    pub fn open(env: Env, folder: &Path, settings: &Settings) -> Result<Self, OpenError> {
        env.disk.make_dir(folder)?;
        env.disk.sync_dir(folder.parent().unwrap())?;
        let lock = env.disk.lock(&folder.join("lock"))?;
        let (state, mut events) = frames(&read_log(&env, folder)?);
        let mut bytes = [0; 8];
        env.random.fill(&mut bytes)?;
        let start = format!("{:016x}", u64::from_le_bytes(bytes));
        let running = state.running;
        let mut state = state;
        let event = Event::Start(start.clone());
        state.apply(running, &event);
        events.push(frame(running, &event));
        let file = if has(Bug::TrustsPageCacheAtOpen) && events.len() > 1 {
            let file = env.disk.open(&folder.join("log"), Access::Write)?;
            let last = events.last().unwrap();
            let end: usize = events[..events.len() - 1].iter().map(Vec::len).sum();
            file.write_all_at(last, end as u64)?;
            file.sync()?;
            file
        } else {
            write_log(&env, folder, &events)?
        };
        let shared = Arc::new(Shared {
            opened: env.clock.monotonic(),
            running,
            folder: folder.to_owned(),
            settings: settings.clone(),
            state: Mutex::new(state),
            log: Mutex::new(Log {
                end: events.iter().map(|event| event.len() as u64).sum(),
                file: Some(file),
                events,
            }),
            start,
            number: Mutex::new(0),
            read_only: Mutex::default(),
            env,
        });
        let (queue, mut jobs) = mpsc::unbounded_channel::<(Want, Reply)>();
        let writer = Arc::clone(&shared);
        let spawner = Arc::clone(&shared.env.spawner);
        spawner.spawn(
            "writer",
            Box::pin(async move {
                while let Some(first) = jobs.recv().await {
                    let mut batch = vec![first];
                    while let Ok(next) = jobs.try_recv() {
                        batch.push(next);
                    }
                    writer.env.clock.yield_now().await;
                    for (want, reply) in batch {
                        let is_last = matches!(want, Want::Stop);
                        let answer = writer.perform(want);
                        let _ = reply.send(answer);
                        if is_last {
                            return;
                        }
                    }
                }
            }),
        )?;
        Ok(Self {
            shared,
            queue,
            _lock: lock,
        })
    }

    async fn ask(&self, want: Want) -> Result<Vec<bool>, Refusal> {
        let (reply, answer) = oneshot::channel();
        if self.queue.send((want, reply)).is_err() {
            return Err(Refusal::Closing);
        }
        answer.await.unwrap_or(Err(Refusal::Closing))
    }

    pub fn recommend(&self, asked: &Asked<'_>, _: &mut Scratch) -> Result<Recommended, Refusal> {
        let state = self.shared.state.lock().unwrap();
        let mut items: Vec<String> = match &asked.among {
            Among::All(excluded) => {
                let all = state.items.keys();
                all.filter(|id| !excluded.contains(&id.as_str()))
                    .cloned()
                    .collect()
            }
            Among::Candidates(ids) => {
                if let Some(id) = ids.iter().find(|id| !state.items.contains_key(**id)) {
                    let id = (*id).to_owned();
                    return Err(Refusal::UnknownItem { id });
                }
                ids.iter().map(|&id| id.to_owned()).collect()
            }
            Among::Inline(ids, _) => ids.iter().map(|&id| id.to_owned()).collect(),
        };
        if items.is_empty() {
            return Err(Refusal::Invalid {
                field: "candidates".to_owned(),
                message: "nothing to choose from".to_owned(),
            });
        }
        items.truncate(asked.k);
        let mut number = self.shared.number.lock().unwrap();
        *number += 1;
        let decision = Decision {
            user: asked.user.to_owned(),
            items: items.clone(),
            start: self.shared.start.clone(),
            number: *number,
            event: state.events,
            at: self.shared.running(),
            wall: self.shared.env.clock.wall(),
        };
        let score = Score {
            score: 0.0,
            mean: 0.0,
            width: 0.0,
        };
        Ok(Recommended {
            decision: seal(&decision),
            items: items.into_iter().map(|item| (item, score)).collect(),
            cluster: 0,
            cluster_users: 0,
        })
    }

    pub fn recommend_all(&self, all: &[Asked<'_>]) -> Result<Vec<Recommended>, Refusal> {
        all.iter()
            .map(|asked| self.recommend(asked, &mut Scratch::default()))
            .collect()
    }

    pub async fn feedback(&self, round: &[Given<'_>]) -> Result<Vec<bool>, Refusal> {
        let settings = &self.shared.settings;
        let mut answers = Vec::new();
        for given in round {
            if !(settings.reward_min..=settings.reward_max).contains(&given.reward) {
                return Err(Refusal::Invalid {
                    field: "reward".to_owned(),
                    message: "out of range".to_owned(),
                });
            }
            let decision = unseal(given.decision).ok_or(Refusal::UnknownDecision)?;
            let item = given.item.unwrap_or(&decision.items[0]).to_owned();
            if !decision.items.contains(&item) {
                return Err(Refusal::UnknownItem { id: item });
            }
            let key = format!("{}:{}:{item}", decision.start, decision.number);
            let line = Line {
                user: decision.user.clone(),
                item,
                reward: Some(given.reward),
                key,
            };
            answers.push((decision, line));
        }
        self.ask(Want::Learn(answers)).await
    }

    pub async fn upsert(&self, items: Vec<Item>) -> Result<usize, Refusal> {
        let count = items.len();
        let items = items.into_iter().map(|item| (item.id, item.features));
        let event = Event::Upsert(items.collect());
        self.ask(Want::Event(event)).await.map(|_| count)
    }

    pub async fn remove(&self, item: &str) -> Result<bool, Refusal> {
        let event = Event::Remove(item.to_owned());
        Ok(self.ask(Want::Event(event)).await?[0])
    }

    pub async fn forget(&self, user: &str) -> Result<bool, Refusal> {
        let event = Event::Forget(user.to_owned());
        Ok(self.ask(Want::Event(event)).await?[0])
    }

    pub async fn snapshot(&self) -> Result<u64, StoreError> {
        Ok(self.shared.state.lock().unwrap().events)
    }

    pub async fn compact(&self) -> Result<(), FoldError> {
        let done = self.ask(Want::Compact).await;
        done.map(drop)
            .map_err(|refusal| io::Error::other(format!("{refusal:?}")))
    }

    pub async fn backup(&self, out: &mut dyn Write) -> Result<(), FoldError> {
        let events = self.shared.log.lock().unwrap().events.clone();
        for event in events {
            self.shared.env.clock.yield_now().await;
            out.write_all(&event)?;
        }
        Ok(())
    }

    pub async fn export(&self, out: &mut dyn Write) -> Result<u64, FoldError> {
        let lines = self.shared.state.lock().unwrap().lines.clone();
        for line in &lines {
            serde_json::to_writer(&mut *out, line)?;
            out.write_all(b"\n")?;
        }
        Ok(lines.len() as u64)
    }

    pub fn hash(&self) -> String {
        self.shared.state.lock().unwrap().hash()
    }

    pub fn read_only(&self) -> Option<String> {
        self.shared.read_only.lock().unwrap().clone()
    }

    pub fn users(&self) -> BTreeMap<String, (u64, f64)> {
        self.shared.state.lock().unwrap().users.clone()
    }

    pub fn items(&self) -> BTreeMap<String, Vec<f64>> {
        self.shared.state.lock().unwrap().items.clone()
    }

    pub async fn close(&self) {
        let _ = self.ask(Want::Stop).await;
    }
}

impl Shared {
    fn running(&self) -> u64 {
        self.running + self.env.clock.monotonic() - self.opened
    }

    fn perform(&self, want: Want) -> Result<Vec<bool>, Refusal> {
        let state = self.state.lock().unwrap().clone();
        let (event, answer) = match want {
            Want::Stop => return Ok(Vec::new()),
            Want::Compact => {
                let mut saved = state;
                if has(Bug::ForgetsAnswersWhenCompacting) {
                    saved.answered.clear();
                }
                if has(Bug::LosesItemsWhenCompacting) {
                    saved.items.pop_last();
                }
                let running = self.running();
                let events = vec![frame(running, &Event::State(Box::new(saved)))];
                self.repair(&events).map_err(|error| {
                    *self.read_only.lock().unwrap() = Some(error.to_string());
                    Refusal::Unknown(error.to_string())
                })?;
                return Ok(Vec::new());
            }
            Want::Event(event) => {
                let was_there = match &event {
                    Event::Remove(item) => state.items.contains_key(item),
                    Event::Forget(user) => state.users.contains_key(user),
                    _ => true,
                };
                (event, vec![was_there])
            }
            Want::Learn(answers) => {
                let mut applied = Vec::new();
                let mut lines: Vec<Line> = Vec::new();
                let is_alone = answers.len() == 1;
                for (index, (decision, line)) in answers.into_iter().enumerate() {
                    self.check(&state, &decision)
                        .map_err(|refusal| match is_alone {
                            true => refusal,
                            false => Refusal::At(format!("feedback[{index}]"), Box::new(refusal)),
                        })?;
                    let is_new = !state.answered.contains(&line.key)
                        && !lines.iter().any(|other| other.key == line.key);
                    applied.push(is_new);
                    if is_new {
                        lines.push(line);
                    }
                }
                if lines.is_empty() {
                    return Ok(applied);
                }
                (Event::Learn(lines), applied)
            }
        };
        let running = self.running();
        self.append(frame(running, &event))?;
        self.state.lock().unwrap().apply(running, &event);
        Ok(answer)
    }

    fn check(&self, state: &State, decision: &Decision) -> Result<(), Refusal> {
        let place = state
            .starts
            .iter()
            .position(|(start, _)| *start == decision.start);
        let next = place.and_then(|place| state.starts.get(place + 1));
        let is_ours = place.is_some() && next.is_none_or(|(_, event)| decision.event < *event);
        if !is_ours && !has(Bug::TakesOtherCopies) {
            return Err(Refusal::OtherCopy);
        }
        let mark = print(&decision.user);
        let mut forgotten = state.forgotten.iter();
        if forgotten.any(|(print, event)| *print == mark && decision.event < *event)
            && !has(Bug::AcceptsForForgotten)
        {
            return Err(Refusal::Forgotten);
        }
        let age = match has(Bug::ExpiresByWallClock) {
            true => self.env.clock.wall().saturating_sub(decision.wall),
            false => self.running().saturating_sub(decision.at),
        };
        if age > self.settings.lifetime * 1000 {
            return Err(Refusal::Expired);
        }
        Ok(())
    }

    fn append(&self, bytes: Vec<u8>) -> Result<(), Refusal> {
        if self.log.lock().unwrap().file.is_none() {
            let events = self.log.lock().unwrap().events.clone();
            self.repair(&events)
                .map_err(|error| Refusal::ReadOnly(error.to_string()))?;
        }
        let mut log = self.log.lock().unwrap();
        let file = log.file.clone().expect("repaired");
        let written = file.write_all_at(&bytes, log.end).and_then(|()| {
            if has(Bug::AnswersBeforeSync) {
                return Ok(());
            }
            file.sync()
        });
        match written {
            Ok(()) => {
                log.end += bytes.len() as u64;
                log.events.push(bytes);
                Ok(())
            }
            Err(error) => {
                assert!(!has(Bug::PanicsOnError), "{error}");
                *self.read_only.lock().unwrap() = Some(error.to_string());
                log.file = None;
                let events = log.events.clone();
                drop(log);
                match self.repair(&events) {
                    Ok(()) => Err(Refusal::ReadOnly(error.to_string())),
                    Err(_) if has(Bug::CallsUnknownRefused) => {
                        Err(Refusal::ReadOnly(error.to_string()))
                    }
                    Err(_) => Err(Refusal::Unknown(error.to_string())),
                }
            }
        }
    }

    /// Writes the log anew: what a failed write left in the old file is gone.
    fn repair(&self, events: &[Vec<u8>]) -> io::Result<()> {
        let mut log = self.log.lock().unwrap();
        log.file = None;
        let file = write_log(&self.env, &self.folder, events)?;
        log.file = Some(file);
        log.events = events.to_vec();
        log.end = events.iter().map(|event| event.len() as u64).sum();
        *self.read_only.lock().unwrap() = None;
        Ok(())
    }
}

pub fn restore(env: &Env, from: &mut dyn Read, folder: &Path) -> Result<(), StoreError> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes)?;
    env.disk.make_dir(folder)?;
    write_log(env, folder, &[bytes])?;
    env.disk.sync_dir(folder.parent().unwrap())
}

pub struct Verified {
    pub hash: String,
}

pub fn verify(env: &Env, folder: &Path, _: &mut dyn FnMut(u64)) -> Result<Verified, FoldError> {
    let (state, _) = frames(&read_log(env, folder)?);
    Ok(Verified { hash: state.hash() })
}

#[test]
fn every_built_in_mistake_is_found() {
    use crate::OPS;
    use crate::plan::Plan;
    use crate::run::run;
    for bug in [
        Bug::AnswersBeforeSync,
        Bug::TrustsPageCacheAtOpen,
        Bug::DoesNotSyncNames,
        Bug::ForgetsAnswersWhenCompacting,
        Bug::KeepsForgottenLines,
        Bug::ExpiresByWallClock,
        Bug::TakesOtherCopies,
        Bug::CallsUnknownRefused,
        Bug::AcceptsForForgotten,
        Bug::LosesItemsWhenCompacting,
        Bug::PanicsOnError,
    ] {
        BUG.set(bug);
        let found = (0..300).find_map(|seed| {
            let failure = run(Plan::new(seed, OPS), false).err()?;
            Some((seed, failure.what))
        });
        BUG.set(Bug::None);
        eprintln!("{bug:?}: {found:?}");
        assert!(found.is_some(), "{bug:?}");
    }
}
