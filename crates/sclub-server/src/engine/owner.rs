//! The owner of the log: the one task that writes to it and changes the state.
//!
//! It takes writes from the queue, admits them against the state, appends them as one batch (so that many
//! share one sync), applies the batch, and only then answers.
//!
//! If an append fails, its bytes may still become durable. So its callers are answered only after a new file
//! of the log was begun, which makes the failed append void: then the answer is that nothing was written.
//! The owner retries this, so writing resumes by itself as soon as the device works.

mod follow;
mod prepare;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use opentelemetry::trace::SpanContext;
use tokio::sync::{mpsc, oneshot};

use self::prepare::{prepare, size_of_event};
use super::feedback::{self, Round};
use super::fit::Fits;
use super::{Refusal, Role, Shared, lock};
use crate::decision::DecisionContents;
use crate::event::{Batch, DescribedItem, Event, Stamp};
use crate::state::{Ahead, Effect, State};
use crate::store::{AppendError, Epochs, Origin, StoreError};
use crate::traces;

/// The maximum number of rounds, and of bytes, in one append. A larger round has an append of its own. Bytes are estimated,
/// and must stay below the maximum length of a message of a stream.
const MAX_ROUNDS_PER_COMMIT: usize = 1024;
const MAX_BYTES_PER_COMMIT: usize = 4 << 20;

/// After a batch of at least this many rounds more are likely to come, so the owner waits a moment: more
/// rounds share a sync. A single writer never waits.
const MIN_ROUNDS_TO_WAIT: usize = 4;
/// The microseconds of this wait, and the maximum number of further ones for an append to a stream.
const GROUP_WAIT: u64 = 60;
const MAX_WAITS: u64 = 50;

/// The milliseconds between two attempts to write after a failure.
const RETRY_INTERVAL: u64 = 200;

/// The milliseconds after which the callers of a failed append are answered that its outcome is unknown.
const UNDECIDED_TIMEOUT: u64 = 10_000;

/// The maximum number of milliseconds between two stamps in a replicated log. The clocks of two owners differ by no
/// more. It is less than the time for which the record of a forgotten user outlives their decisions.
const MAX_BETWEEN_STAMPS: u64 = 20_000;

/// The maximum number of milliseconds between two looks at decisions that wait for their rewards.
const MAX_WAIT: u64 = 1_000;

/// The maximum number of decisions that get assumed rewards in one append.
const MAX_ASSUMED_PER_COMMIT: usize = 256;

/// The minimum number of milliseconds between two such appends, unless more decisions are due than one can take.
const MIN_BETWEEN_ASSUMED: u64 = 100;

/// The minimum number of milliseconds between two [`Event::Expire`].
const MIN_EXPIRY_STEP: u64 = 1_000;

/// A write request and the channel its result goes to.
#[derive(Debug)]
pub(super) struct WriteRequest {
    pub command: Command,
    pub reply: Reply,
    /// The request that waits for it, if it is traced.
    pub caller: traces::Caller,
}

type Reply = oneshot::Sender<Result<Done, Refusal>>;

/// A command to the owner.
#[derive(Debug)]
pub(super) enum Command {
    Learn(Round),
    Upsert(Vec<DescribedItem>),
    /// Change some fields of an item.
    Patch(String, serde_json::Map<String, serde_json::Value>),
    Remove(String),
    Forget(String),
    Expect(u64),
    /// Begin or end an experiment.
    Experiment(Event),
    /// A fit was computed; `None` if that failed.
    Fit(Option<Vec<u8>>),
    /// A fit was computed from all partitions.
    LogFit {
        fit: Vec<u8>,
        position: u64,
    },
    /// Write the log, once every batch up to `last` is applied.
    Lead {
        last: u64,
        epochs: Epochs,
    },
    /// Stop writing the log.
    Resign,
    /// Begin a new file of the log, and return the last batch before it.
    Roll,
    /// Drop the batches of the log before this number.
    DropBefore(u64),
    Stop,
}

/// The result of a command.
#[derive(Debug)]
pub(super) enum Done {
    /// For each reward, true if it was new.
    Applied(Vec<bool>),
    /// The number of things changed.
    Changed(usize),
    /// The last batch of the log.
    Position(u64),
}

/// The next step of the owner.
enum Next {
    Request(WriteRequest),
    /// Retry after an append that failed.
    Retry,
    /// Write a stamp, because nothing was written for long.
    Stamp,
    /// Some decisions have waited long enough for their rewards.
    Assume,
    /// Look at everything again.
    Wake,
    Closed,
}

/// The owner of the log.
pub(super) struct Owner {
    shared: Arc<Shared>,
    requests: mpsc::Receiver<WriteRequest>,
    fits: Fits,
    /// A request that was taken from the queue and is left for the next batch.
    held: Option<WriteRequest>,
    /// The callers of appends whose outcome is not decided, and the time of the first one.
    undecided: Vec<Reply>,
    undecided_since: u64,
    /// True while an append that failed may still be found after a restart.
    is_in_doubt: bool,
    /// The time of the last attempt to write.
    tried_at: u64,
    /// The number of rounds in the previous batch.
    last_rounds: usize,
    /// The time that the last append took.
    last_append: Duration,
    /// The service-clock time before which no rewards are assumed.
    assume_from: u64,
    /// True if rewards were assumed in the last step, so that a request is next.
    has_assumed: bool,
    /// The last batch at which a user was forgotten.
    forgot_at: u64,
    /// The term that begins as soon as every batch before it is applied.
    candidate: Option<(u64, Epochs, Reply)>,
    /// The last append whose outcome was unknown: the number of the batch, and its bytes.
    uncertain: Option<(u64, Bytes)>,
}

impl Owner {
    pub fn new(shared: Arc<Shared>, requests: mpsc::Receiver<WriteRequest>, fits: Fits) -> Self {
        Self {
            shared,
            requests,
            fits,
            held: None,
            undecided: Vec::new(),
            undecided_since: 0,
            is_in_doubt: false,
            tried_at: 0,
            last_rounds: 0,
            last_append: Duration::ZERO,
            assume_from: 0,
            has_assumed: false,
            forgot_at: 0,
            candidate: None,
            uncertain: None,
        }
    }

    /// Executes commands until it gets a request to stop, or the engine is dropped.
    pub async fn run(mut self) {
        loop {
            if !self.shared.is_leading() {
                match self.follow().await {
                    Some(stop) => return self.stop(stop),
                    None if self.requests.is_closed() => return,
                    None => continue,
                }
            }
            self.shared.begin_fit(&mut self.fits);
            let first = match self.next().await {
                Next::Request(request) => request,
                Next::Retry => {
                    let _ = self.roll().await;
                    continue;
                }
                Next::Stamp => {
                    let before = self.shared.read().horizon();
                    let mut commit = Commit::default();
                    commit.events.push(Event::Expire { before });
                    self.commit(commit).await;
                    continue;
                }
                Next::Assume => {
                    self.assume().await;
                    continue;
                }
                Next::Wake => continue,
                Next::Closed => return,
            };
            match first.command {
                Command::Stop => return self.stop(first.reply),
                Command::Lead { epochs, .. } => {
                    self.shared.begin_term(epochs);
                    let _ = first.reply.send(Ok(Done::Changed(0)));
                }
                Command::Resign => {
                    self.step_down(&Refusal::Moved);
                    let _ = first.reply.send(Ok(Done::Changed(0)));
                }
                Command::Roll => {
                    let rolled = self.roll().await.map(Done::Position);
                    let _ = first.reply.send(rolled);
                }
                Command::DropBefore(number) => {
                    let dropped = self.shared.log.drop_before(number).await;
                    let dropped = dropped.map_err(|error| Refusal::from(&error));
                    let _ = first.reply.send(dropped.map(|()| Done::Changed(0)));
                }
                _ => self.write(first).await,
            }
        }
    }

    fn stop(mut self, reply: Reply) {
        let closing = Refusal::Unknown("the server is shutting down".to_owned());
        refuse(self.undecided.drain(..), &closing);
        self.requests.close();
        while let Ok(request) = self.requests.try_recv() {
            let _ = request.reply.send(Err(Refusal::Closing));
        }
        drop(self);
        let _ = reply.send(Ok(Done::Changed(0)));
    }

    /// Stops writing. Writes whose outcome is not decided are answered with `refusal`.
    fn step_down(&mut self, refusal: &Refusal) {
        refuse(self.undecided.drain(..), refusal);
        self.is_in_doubt = false;
        lock(&self.shared.read_only).take();
        self.shared.role.send_replace(Role::Following);
    }

    async fn next(&mut self) -> Next {
        if let Some(held) = self.held.take() {
            return Next::Request(held);
        }
        let or_closed = |request: Option<WriteRequest>| request.map_or(Next::Closed, Next::Request);
        let is_failing = lock(&self.shared.read_only).is_some();
        if !is_failing {
            let stamped = match self.shared.is_replicated {
                true => self.shared.read().clock(),
                false => 0,
            };
            if let Some(due) = self.next_assumption() {
                let wait = due.saturating_sub(self.shared.clock());
                // Requests and assumed rewards take turns, so that neither waits for a pause of the other.
                if wait == 0 {
                    if std::mem::take(&mut self.has_assumed)
                        && let Ok(request) = self.requests.try_recv()
                    {
                        return Next::Request(request);
                    }
                    self.has_assumed = true;
                    return Next::Assume;
                }
                // Decisions come in meanwhile.
                let wait = wait.min(MAX_WAIT);
                let sleep = self.shared.env().clock.sleep(wait);
                return tokio::select! {
                    biased;
                    request = self.requests.recv() => or_closed(request),
                    () = sleep => Next::Wake,
                };
            }
            // Before the first batch there are no decisions that rewards could come for.
            if stamped == 0 {
                return or_closed(self.requests.recv().await);
            }
            let wait = (stamped + MAX_BETWEEN_STAMPS).saturating_sub(self.shared.clock());
            let stamp = self.shared.env().clock.sleep(wait);
            return tokio::select! {
                biased;
                request = self.requests.recv() => or_closed(request),
                () = stamp => Next::Stamp,
            };
        }
        // Requests that come meanwhile do not delay the retry.
        let now = self.shared.env().clock.monotonic();
        let wait = (self.tried_at + RETRY_INTERVAL).saturating_sub(now);
        if wait == 0 {
            return Next::Retry;
        }
        let retry = self.shared.env().clock.sleep(wait);
        tokio::select! {
            biased;
            request = self.requests.recv() => or_closed(request),
            () = retry => Next::Retry,
        }
    }

    /// The service-clock time at which the next decision will have waited long enough, if rewards are assumed at all.
    fn next_assumption(&self) -> Option<u64> {
        self.shared.settings.unanswered?;
        let after = self.shared.settings.after.as_millis();
        let first = self.shared.unanswered.first();
        let due = first.map_or(u64::MAX, |first| first.saturating_add(after));
        Some(due.max(self.assume_from))
    }

    /// Gives items of decisions that have waited long enough for their rewards the assumed one.
    async fn assume(&mut self) {
        let shared = Arc::clone(&self.shared);
        let Some(reward) = shared.settings.unanswered else {
            return;
        };
        let after = shared.settings.after.as_millis();
        let until = shared.clock().saturating_sub(after);
        let mut taken = VecDeque::from(shared.unanswered.take(until, MAX_ASSUMED_PER_COMMIT));
        let mut has_more = taken.len() == MAX_ASSUMED_PER_COMMIT;
        let mut commit = Commit::default();
        let mut assumed = Vec::new();
        while let Some((clock, bytes)) = taken.pop_front() {
            let state = shared.read();
            let catalogue = shared.catalogue_of(&state);
            let decision = DecisionContents::decode(&bytes);
            let decision = decision.and_then(|decision| shared.own_decision(decision));
            let event = decision.and_then(|decision| {
                feedback::assume(&state, catalogue.get(), &commit.ahead, decision, reward)
            });
            if let Some(event) = event
                && state.admit(&event, &mut commit.ahead).is_ok()
            {
                let number = event.first_number();
                commit.bytes += size_of_event(&event);
                commit.events.push(event);
                assumed.extend(number.map(|number| (number, clock, bytes)));
            }
            if commit.bytes > MAX_BYTES_PER_COMMIT {
                has_more = true;
                shared.unanswered.put_back(taken.into());
                break;
            }
        }
        let before = shared.read().rewards().0;
        self.commit(commit).await;
        let learned = shared.read().rewards().0 - before;
        shared.meters.rewards_assumed.increment(learned);
        self.assume_from = match has_more {
            true => 0,
            false => shared.clock() + MIN_BETWEEN_ASSUMED,
        };
        // If the log could not be written, they wait for the next time.
        let state = shared.read();
        assumed.retain(|(number, ..)| !state.answered().contains(*number));
        let left = assumed.into_iter().map(|(_, clock, bytes)| (clock, bytes));
        shared.unanswered.put_back(left.collect());
    }

    /// Begins a new file of the log. Returns the last batch before it.
    async fn roll(&mut self) -> Result<u64, Refusal> {
        self.tried_at = self.shared.env().clock.monotonic();
        let last = self.shared.read().position();
        self.shared.appending.begin(self.tried_at);
        let appended = self.shared.log.append(last, Bytes::new()).await;
        self.shared.appending.end();
        match appended {
            Ok(()) => {
                self.writable();
                Ok(last)
            }
            Err(error) => Err(self.failing(&error)),
        }
    }

    /// Writes a request. Rounds are written together with other rounds in the queue.
    async fn write(&mut self, first: WriteRequest) {
        let shares = |request: &WriteRequest| matches!(request.command, Command::Learn(_));
        let can_share = shares(&first) && self.shared.read().dim().is_some();
        if can_share && self.last_rounds >= MIN_ROUNDS_TO_WAIT {
            self.gather();
        }
        let mut commit = Commit::default();
        let mut next = Some(first);
        while let Some(request) = next.take() {
            if let Command::Learn(round) = &request.command
                && round.must_wait(&commit.ahead)
            {
                self.held = Some(request);
                break;
            }
            self.admit(&mut commit, request);
            if can_share
                && commit.waiting.len() < MAX_ROUNDS_PER_COMMIT
                && let Ok(request) = self.requests.try_recv()
            {
                match self.round_size(&request) {
                    Some(bytes) if commit.bytes + bytes <= MAX_BYTES_PER_COMMIT => {
                        next = Some(request);
                    }
                    _ => self.held = Some(request),
                }
            }
        }
        self.last_rounds = commit.waiting.len();
        self.commit(commit).await;
    }

    /// The approximate length in the log of a request that is a round.
    fn round_size(&self, request: &WriteRequest) -> Option<usize> {
        match &request.command {
            Command::Learn(round) => {
                let dim = self.shared.read().dim().unwrap_or(0);
                Some(round.max_size(dim))
            }
            _ => None,
        }
    }

    /// Waits for more rounds to share the next append: a moment if the log is on a disk. An append to a stream takes
    /// longer, so then it waits until most of the writers of the last batch are back, for a quarter of the last
    /// append at most.
    fn gather(&self) {
        let clock = &self.shared.env().clock;
        clock.pause(GROUP_WAIT);
        if !self.shared.is_replicated {
            return;
        }
        let enough = self.last_rounds * 3 / 4;
        let max = self.last_append.as_micros() as u64 / 4 / GROUP_WAIT;
        for _ in 0..max.min(MAX_WAITS) {
            if self.requests.len() + 1 >= enough {
                return;
            }
            clock.pause(GROUP_WAIT);
        }
    }

    /// Turns a request into an event, if it is valid.
    fn admit(&mut self, commit: &mut Commit, request: WriteRequest) {
        let WriteRequest {
            command,
            reply,
            caller,
        } = request;
        let is_round = matches!(command, Command::Learn(_));
        let shared = Arc::clone(&self.shared);
        let state = shared.read();
        let command = match command {
            Command::LogFit { position, .. } if position < self.forgot_at => {
                tracing::info!("a fit is dropped: a user in it was forgotten meanwhile");
                drop(reply.send(Ok(Done::Changed(0))));
                return;
            }
            command => command,
        };
        let catalogue = shared.catalogue_of(&state);
        let prepared = prepare(
            &state,
            catalogue.get(),
            &mut commit.ahead,
            &mut self.fits,
            command,
        );
        drop(catalogue);
        match prepared {
            Err(refusal) => drop(reply.send(Err(refusal))),
            // "Nothing to change" would be wrong if the failed append is found after a restart. A reward that
            // was learned before stays learned either way.
            Ok((None, _)) if self.is_in_doubt && !is_round => {
                let reason = lock(&shared.read_only).clone().unwrap_or_default();
                drop(reply.send(Err(Refusal::ReadOnly(reason))));
            }
            Ok((None, done)) if commit.events.is_empty() => drop(reply.send(Ok(done))),
            Ok((event, done)) => {
                commit.bytes += event.as_ref().map_or(0, size_of_event);
                commit.events.extend(event);
                commit.waiting.push((done, reply));
                commit.callers.extend(caller.map(|caller| *caller));
            }
        }
    }

    /// Appends events to the log, applies them, and answers.
    async fn commit(&mut self, commit: Commit) {
        let Commit {
            mut events,
            waiting,
            callers,
            ..
        } = commit;
        if events.is_empty() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let clock = &shared.env().clock;
        let stamp = Stamp {
            at: clock.wall(),
            clock: shared.clock(),
        };
        let position = {
            let state = shared.read();
            if let Some(before) = expiry(&shared, &state, stamp.clock) {
                // Last in the batch: the others were admitted without it.
                events.push(Event::Expire { before });
            }
            state.position()
        };
        let batch = Batch { stamp, events };
        let bytes = Bytes::from(batch.encode());
        let begun = Instant::now();
        let mut span = traces::span_for("commit", callers);
        span.number("sclub.events", batch.events.len() as u64);
        span.number("sclub.bytes", bytes.len() as u64);
        clock.yield_now().await;
        shared.appending.begin(clock.monotonic());
        let appended = shared.log.append(position, bytes.clone()).await;
        shared.appending.end();
        span.end(appended.is_ok());
        match appended {
            Ok(()) => {
                self.last_append = begun.elapsed();
                shared.meters.commit(self.last_append, batch.events.len());
                let appended = bytes.len() as u64;
                shared.log_bytes.fetch_add(appended, Ordering::Relaxed);
                self.writable();
                clock.yield_now().await;
                // The journal reads what is applied.
                shared.log.remember(position + 1, &bytes);
                self.apply(position + 1, &batch);
                for (done, reply) in waiting {
                    // The caller may be gone.
                    let _ = reply.send(Ok(done));
                }
            }
            Err(AppendError::TooLarge) => {
                let replies = waiting.into_iter().map(|(_, reply)| reply);
                refuse(replies, &Refusal::TooLarge);
            }
            Err(error) if shared.is_replicated && !matches!(error, AppendError::NotWritten(_)) => {
                // Another node writes, or the batch may be found in the log later. To follow tells.
                tracing::info!(%error, "stepping down");
                let refusal = match error {
                    AppendError::Conflict { .. } => Refusal::Moved,
                    _ => Refusal::Unknown(error.to_string()),
                };
                refuse(waiting.into_iter().map(|(_, reply)| reply), &refusal);
                self.uncertain = Some((position + 1, bytes));
                self.step_down(&refusal);
            }
            Err(error) => {
                let refusal = self.failing(&error);
                let replies = waiting.into_iter().map(|(_, reply)| reply);
                if let AppendError::Unknown(_) = error {
                    if self.undecided.is_empty() {
                        self.undecided_since = clock.monotonic();
                    }
                    self.is_in_doubt = true;
                    self.undecided.extend(replies);
                    let _ = self.roll().await;
                } else {
                    refuse(replies, &refusal);
                }
            }
        }
    }

    fn apply(&mut self, number: u64, batch: &Batch) {
        let shared = &self.shared;
        let mut effect = Effect::default();
        let replaced = shared.replaced(&batch.events);
        shared.state.change(|state| {
            state.apply_batch(number, batch, &mut effect);
        });
        self.fits.applied(&effect, &shared.read());
        shared.meters.learned(&effect);
        if effect.changed_policies {
            shared.announce_policies();
        }
        for event in &batch.events {
            shared.note(event, batch.stamp.at, &replaced);
            if matches!(event, Event::Fit { .. } | Event::FitArm { .. })
                && effect.fit_refused.is_none()
            {
                shared.meters.fitted();
            }
        }
        self.applied(number, effect);
    }

    /// Takes note of the effects of a batch.
    fn applied(&mut self, number: u64, effect: Effect) {
        if effect.forgot {
            self.forgot_at = number;
        }
        self.shared.meters.changes(&effect.changes);
        for record in effect.changes {
            let _ = self.shared.changes.send(record);
        }
    }

    /// The log is writable again. Earlier failed appends are void by now.
    fn writable(&mut self) {
        let reason = lock(&self.shared.read_only).take();
        self.is_in_doubt = false;
        if let Some(reason) = reason {
            tracing::info!("the log is writable again");
            refuse(self.undecided.drain(..), &Refusal::ReadOnly(reason));
        }
    }

    /// An append failed: the engine becomes read-only.
    fn failing(&mut self, error: &AppendError) -> Refusal {
        let refusal = match error {
            AppendError::NotWritten(error) | AppendError::Unknown(error) => Refusal::from(error),
            AppendError::Conflict { .. } => {
                Refusal::from(&StoreError::Refused(format!("another writer: {error}")))
            }
            AppendError::TooLarge => Refusal::TooLarge,
        };
        if let Refusal::ReadOnly(reason) = &refusal {
            let before = lock(&self.shared.read_only).replace(reason.clone());
            if before.is_none() {
                self.tried_at = self.shared.env().clock.monotonic();
                tracing::error!(%error, "the log cannot be written; the server is read-only");
            }
            let waited = self.shared.env().clock.monotonic();
            if waited.saturating_sub(self.undecided_since) > UNDECIDED_TIMEOUT {
                refuse(self.undecided.drain(..), &Refusal::Unknown(reason.clone()));
            }
        }
        refusal
    }
}

/// Events that will be appended as one batch.
#[derive(Default)]
struct Commit {
    events: Vec<Event>,
    ahead: Ahead,
    bytes: usize,
    waiting: Vec<(Done, Reply)>,
    /// The requests in it that are traced.
    callers: Vec<SpanContext>,
}

fn refuse(replies: impl Iterator<Item = Reply>, refusal: &Refusal) {
    for reply in replies {
        let _ = reply.send(Err(refusal.clone()));
    }
}

impl Shared {
    /// A decision that was made by this folder or the one that it is a copy of, with the service-clock time that counts.
    pub(super) fn own_decision<'a>(
        &self,
        mut decision: DecisionContents<'a>,
    ) -> Option<DecisionContents<'a>> {
        let term = self.term().ok()?;
        match term.epochs.origin(&decision) {
            Origin::Own { clock } => decision.clock = clock,
            Origin::OtherCopy | Origin::Forgotten => return None,
        }
        Some(decision)
    }
}

/// The service-clock time before which decisions expire, if an [`Event::Expire`] is due.
fn expiry(shared: &Shared, state: &State, clock: u64) -> Option<u64> {
    let lifetime = shared.lifetime();
    let before = clock.checked_sub(lifetime)?;
    let step = (lifetime / 16).max(MIN_EXPIRY_STEP);
    (before >= state.horizon() + step).then_some(before)
}
