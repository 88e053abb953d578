//! Requests to other nodes. Requests that wait for the same node go together in one message. Those that may take long go
//! alone, so that no other waits for their answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::locks::lock;

use tokio::sync::{Semaphore, mpsc, oneshot};

use super::bus::BusError;
use super::call::{GroupAnswer, GroupCall, NodeCall, decode, encode_traced};
use super::members::owner;
use super::node::{Group, Node};
use super::serve::{execute_as_owner, subject_of};
use crate::api;
use crate::edge::ApiError;
use crate::traces::{self, Caller, sent_callers};

/// The maximum number of requests, and of bytes, in a message. A larger request goes alone.
const MAX_CALLS: usize = 256;
const MAX_BYTES: usize = 1 << 20;
/// The number of messages to one queue that may wait for their answers. With more, messages would be smaller.
const MAX_IN_FLIGHT: usize = 3;
/// The maximum number of requests in a queue.
const MAX_QUEUE: usize = 4_096;
/// The maximum timeout in milliseconds of a request that goes together with others.
const MAX_SHARED_MS: u64 = 3_000;
/// The milliseconds between two looks at the owner while a request that takes long is answered.
const OWNER_CHECK: u64 = 500;
/// The milliseconds between two looks at the catalogue.
const CATALOGUE_CHECK: u64 = 2;

/// The reason why a request has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unanswered {
    /// The request was not executed: the owner is not known, or has changed.
    NotDone,
    /// The request may have been executed.
    Unknown,
}

/// A request in a message.
#[derive(Debug)]
struct Sent {
    group: u32,
    call: GroupCall,
    /// The span of the request on this node, if it is sampled.
    caller: Caller,
}

/// A request that waits to be sent.
#[derive(Debug)]
struct Waiting {
    call: Sent,
    /// The time at which the caller gives up.
    until: u64,
    /// Closed once the caller has given up.
    reply: oneshot::Sender<Result<GroupAnswer, Unanswered>>,
}

/// The destination of requests: a node; for writes also a group, so that one that is slow does not delay others.
type Queue = (Arc<str>, Option<usize>);

/// The requests to other nodes.
#[derive(Debug, Default)]
pub(super) struct Forwarder {
    queues: Mutex<HashMap<Queue, mpsc::Sender<Waiting>>>,
    /// The last batch of the catalogue's stream, and the time at which it was asked for.
    catalogue: tokio::sync::Mutex<Option<(u64, u64)>>,
}

impl Forwarder {
    /// Returns false if the queue is full.
    fn send(&self, node: &Arc<Node>, to: Queue, waiting: Waiting) -> bool {
        let mut queues = lock(&self.queues);
        let queue = queues.entry(to.clone()).or_insert_with(|| {
            let (sender, queue) = mpsc::channel(MAX_QUEUE);
            node.tasks
                .spawn(Box::pin(send_all(Arc::downgrade(node), to.0, queue)));
            sender
        });
        // The task ends with the node.
        queue.try_send(waiting).is_ok()
    }
}

impl Node {
    /// Asks the owner of a group: this node, or another one. `None` if there is no answer in time, or the owner has
    /// changed: then the call can be repeated.
    pub async fn ask_owner(
        self: &Arc<Self>,
        group: &Arc<Group>,
        call: GroupCall,
        timeout_ms: u64,
    ) -> Option<GroupAnswer> {
        self.try_owner(group, call, timeout_ms).await.ok()
    }

    /// As [`Node::ask_owner`], with the reason why there is no answer.
    ///
    /// # Errors
    /// If there is no answer in time, or the owner has changed.
    pub async fn try_owner(
        self: &Arc<Self>,
        group: &Arc<Group>,
        call: GroupCall,
        timeout_ms: u64,
    ) -> Result<GroupAnswer, Unanswered> {
        let answer = match self.owns(group) {
            true => execute_as_owner(self, group, call).await,
            false => self.ask_other(group, call, timeout_ms).await?,
        };
        match answer {
            GroupAnswer::Moved => Err(Unanswered::NotDone),
            answer => Ok(answer),
        }
    }

    /// Asks the node that owns a group and is not this one.
    async fn ask_other(
        self: &Arc<Self>,
        group: &Arc<Group>,
        call: GroupCall,
        timeout_ms: u64,
    ) -> Result<GroupAnswer, Unanswered> {
        let is_other = |owner: &Arc<str>| **owner != *self.name;
        let known = self.owner_of(group).filter(is_other);
        let owner = known.clone().or_else(|| {
            // A node that shuts down no longer takes note of owners, but finishes its requests.
            let owner = owner(&*self.bus, &group.name)?;
            Some(Arc::from(owner)).filter(is_other)
        });
        let owner = owner.ok_or(Unanswered::NotDone)?;
        let clock = &self.env.clock;
        let until = clock.monotonic().saturating_add(timeout_ms);
        let span = traces::forward(&group.name, &owner);
        let (is_alone, is_read) = (is_alone(&call, timeout_ms), call.is_read());
        let call = Sent {
            group: group.index as u32,
            call,
            caller: span.caller(),
        };
        if is_alone {
            let mut asked = Box::pin(send_alone(self, &owner, call, until));
            loop {
                tokio::select! {
                    biased;
                    answer = &mut asked => return answer,
                    () = clock.sleep(OWNER_CHECK) => {}
                }
                // The node may be gone. It has not answered, and the next one does not know of the request.
                if known.is_some() && self.owner_of(group) != known {
                    return Err(Unanswered::Unknown);
                }
            }
        }
        let to = (owner, (!is_read).then_some(group.index));
        let (reply, answer) = oneshot::channel();
        let waiting = Waiting { call, until, reply };
        if !self.forwarder.send(self, to, waiting) {
            return Err(Unanswered::NotDone);
        }
        tokio::select! {
            biased;
            answer = answer => answer.unwrap_or(Err(Unanswered::Unknown)),
            () = clock.sleep(timeout_ms) => Err(Unanswered::Unknown),
        }
    }

    /// The last batch of the catalogue's stream, as its leader knows it after this was called; `None` if it cannot be
    /// asked. Calls at the same time share a request.
    pub(crate) async fn last_catalogue_batch(&self) -> Option<u64> {
        let clock = &self.env.clock;
        let called = clock.monotonic();
        let mut known = self.forwarder.catalogue.lock().await;
        match *known {
            Some((last, asked)) if asked > called => Some(last),
            _ => {
                let asked = clock.monotonic();
                let bounds = self.bus.bounds(&self.catalogue().name).await;
                *known = bounds.ok().map(|(_, last)| (last, asked));
                known.map(|(last, _)| last)
            }
        }
    }

    /// Waits until this node has read a batch of the catalogue. Returns false if it has not after some milliseconds.
    pub(crate) async fn has_catalogue_until(&self, batch: u64, timeout_ms: u64) -> bool {
        let clock = &self.env.clock;
        let has_read = || {
            let app = self.catalogue().app();
            let engine = app.as_ref().and_then(|app| app.engine());
            engine.is_some_and(|engine| engine.state().position() >= batch)
        };
        let begun = clock.monotonic();
        while batch > 0 && !has_read() {
            if clock.monotonic() - begun >= timeout_ms {
                return false;
            }
            clock.sleep(CATALOGUE_CHECK).await;
        }
        true
    }
}

/// Returns true if a request may take long, so that others must not wait for it.
fn is_alone(call: &GroupCall, timeout_ms: u64) -> bool {
    let is_long = match call {
        GroupCall::Http(call) => call.catalogue > 0,
        GroupCall::Question(_) | GroupCall::Fit { .. } | GroupCall::Compact => true,
        GroupCall::Upsert(_) | GroupCall::Progress => false,
    };
    is_long || timeout_ms > MAX_SHARED_MS
}

/// Sends the requests of a queue for as long as the node runs.
async fn send_all(node: std::sync::Weak<Node>, to: Arc<str>, mut queue: mpsc::Receiver<Waiting>) {
    let in_flight = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
    // A request for which the last message had no room.
    let mut held: Option<Waiting> = None;
    loop {
        // What comes while all messages are on their way goes with the next one.
        let Ok(permit) = Arc::clone(&in_flight).acquire_owned().await else {
            return;
        };
        let first = match held.take() {
            Some(held) => held,
            None => match queue.recv().await {
                Some(first) => first,
                None => return,
            },
        };
        let mut bytes = 0;
        let mut waiting = Vec::new();
        let mut next = Some(first);
        while let Some(one) = next.take().or_else(|| queue.try_recv().ok()) {
            // The caller has given up.
            if one.reply.is_closed() {
                continue;
            }
            bytes += length_of(&one.call.call);
            if bytes > MAX_BYTES && !waiting.is_empty() {
                held = Some(one);
                break;
            }
            waiting.push(one);
            if waiting.len() == MAX_CALLS {
                break;
            }
        }
        if waiting.is_empty() {
            continue;
        }
        let Some(node) = node.upgrade() else { return };
        let (tasks, to) = (Arc::clone(&node.tasks), Arc::clone(&to));
        tasks.spawn(Box::pin(async move {
            let _permit = permit;
            send_together(&node, &to, waiting).await;
        }));
    }
}

/// Sends requests in one message, and distributes the answers.
async fn send_together(node: &Node, to: &str, waiting: Vec<Waiting>) {
    let until = waiting.iter().map(|waiting| waiting.until).max();
    let mut calls = Vec::with_capacity(waiting.len());
    let mut replies = Vec::with_capacity(waiting.len());
    for Waiting { call, until, reply } in waiting {
        calls.push(call);
        replies.push((until, reply));
    }
    let (calls, answers) = send(node, to, calls, until.unwrap_or(0)).await;
    let mut alone = Vec::new();
    for ((call, (until, reply)), answer) in calls.into_iter().zip(replies).zip(answers) {
        match answer {
            Ok(GroupAnswer::Alone) => alone.push(async move {
                let _ = reply.send(send_alone(node, to, call, until).await);
            }),
            answer => drop(reply.send(answer)),
        }
    }
    futures_util::future::join_all(alone).await;
}

/// Sends a request in a message of its own.
async fn send_alone(
    node: &Node,
    to: &str,
    call: Sent,
    until: u64,
) -> Result<GroupAnswer, Unanswered> {
    let (_, answers) = send(node, to, vec![call], until).await;
    let answer = answers.into_iter().next();
    answer.unwrap_or(Err(Unanswered::Unknown))
}

/// Sends a message. Returns its requests, and an answer for each.
async fn send(
    node: &Node,
    to: &str,
    calls: Vec<Sent>,
    until: u64,
) -> (Vec<Sent>, Vec<Result<GroupAnswer, Unanswered>>) {
    let count = calls.len();
    let sent = sent_callers(calls.iter().map(|call| &call.caller));
    let split = |call: Sent| ((call.group, call.call), call.caller);
    let (calls, callers): (Vec<_>, Vec<Caller>) = calls.into_iter().map(split).unzip();
    let message = NodeCall::Groups(calls);
    let request = encode_traced(&message, &sent);
    let timeout_ms = until.saturating_sub(node.env.clock.monotonic());
    let answered = node.bus.request(&subject_of(to), request, timeout_ms).await;
    let NodeCall::Groups(calls) = message else {
        return (Vec::new(), Vec::new());
    };
    let same = |answer| vec![answer; count];
    let answers = match answered {
        Ok(bytes) => match decode::<Vec<GroupAnswer>>(&bytes) {
            Some(answers) if answers.len() == count => answers.into_iter().map(Ok).collect(),
            _ => same(Err(Unanswered::Unknown)),
        },
        Err(BusError::NoResponders) => same(Err(Unanswered::NotDone)),
        Err(BusError::TooLarge) => {
            let message = "the request is too large to be sent to the node that answers it";
            let error = api::error_answer(ApiError::too_large(message)).await;
            same(Ok(GroupAnswer::Http(error)))
        }
        Err(_) => same(Err(Unanswered::Unknown)),
    };
    let calls = calls.into_iter().zip(callers);
    let calls = calls.map(|((group, call), caller)| Sent {
        group,
        call,
        caller,
    });
    (calls.collect(), answers)
}

/// The approximate length of a request in a message.
fn length_of(call: &GroupCall) -> usize {
    64 + match call {
        GroupCall::Http(call) => call.body.len(),
        GroupCall::Upsert(items) => items
            .iter()
            .map(|item| {
                item.id.len() + item.features.len() * size_of::<f64>() + item.description.len()
            })
            .sum(),
        GroupCall::Question(bytes) | GroupCall::Fit { fit: bytes, .. } => bytes.len(),
        GroupCall::Progress | GroupCall::Compact => 0,
    }
}
