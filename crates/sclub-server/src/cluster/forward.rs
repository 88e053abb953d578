//! Requests to other nodes. Requests that wait for the same node go together in one message.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::locks::lock;

use tokio::sync::{Semaphore, mpsc, oneshot};

use super::call::{GroupAnswer, GroupCall, NodeCall, decode, encode};
use super::members::owners;
use super::node::{Group, Node};
use super::serve::{execute_as_owner, subject_of};

/// The maximum number of requests, and of bytes, in a message.
const MAX_CALLS: usize = 256;
const MAX_BYTES: usize = 1 << 20;
/// The number of messages to one queue that may wait for their answers. With more, messages would be smaller.
const MAX_IN_FLIGHT: usize = 3;

/// A request that waits to be sent.
#[derive(Debug)]
struct Waiting {
    group: usize,
    call: GroupCall,
    timeout_ms: u64,
    reply: oneshot::Sender<GroupAnswer>,
}

/// The destination of requests: a node; for writes also a group, so that one that is slow does not delay others.
type Queue = (Arc<str>, Option<usize>);

/// The requests to other nodes.
#[derive(Debug, Default)]
pub(super) struct Forwarder {
    queues: Mutex<HashMap<Queue, mpsc::UnboundedSender<Waiting>>>,
}

impl Forwarder {
    fn send(&self, node: &Arc<Node>, to: Queue, waiting: Waiting) {
        let mut queues = lock(&self.queues);
        let queue = queues.entry(to.clone()).or_insert_with(|| {
            let (sender, queue) = mpsc::unbounded_channel();
            node.tasks
                .spawn(Box::pin(send_all(Arc::downgrade(node), to.0, queue)));
            sender
        });
        // The task ends with the node.
        let _ = queue.send(waiting);
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
        if self.owns(group) {
            let answer = execute_as_owner(self, group, call).await;
            return (answer != GroupAnswer::Moved).then_some(answer);
        }
        let is_other = |owner: &Arc<str>| **owner != *self.name;
        let owner = self.owner_of(group).filter(is_other).or_else(|| {
            // A node that shuts down no longer takes note of owners, but finishes its requests.
            let owner = owners(&*self.bus).remove(&group.name)?;
            Some(Arc::from(owner)).filter(is_other)
        })?;
        let is_read = matches!(&call, GroupCall::Http(call) if call.route.is_read());
        let (reply, answer) = oneshot::channel();
        let waiting = Waiting {
            group: group.index,
            call,
            timeout_ms,
            reply,
        };
        let to = (owner, (!is_read).then_some(group.index));
        self.forwarder.send(self, to, waiting);
        let answer = answer.await.ok()?;
        (answer != GroupAnswer::Moved).then_some(answer)
    }
}

/// Sends the requests of a queue for as long as the node runs.
async fn send_all(
    node: std::sync::Weak<Node>,
    to: Arc<str>,
    mut queue: mpsc::UnboundedReceiver<Waiting>,
) {
    let in_flight = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
    loop {
        // What comes while all messages are on their way goes with the next one.
        let Ok(permit) = Arc::clone(&in_flight).acquire_owned().await else {
            return;
        };
        let Some(first) = queue.recv().await else {
            return;
        };
        let mut bytes = length_of(&first.call);
        let mut waiting = vec![first];
        while waiting.len() < MAX_CALLS
            && bytes < MAX_BYTES
            && let Ok(next) = queue.try_recv()
        {
            bytes += length_of(&next.call);
            waiting.push(next);
        }
        let Some(node) = node.upgrade() else { return };
        let (tasks, to) = (Arc::clone(&node.tasks), Arc::clone(&to));
        tasks.spawn(Box::pin(async move {
            let _permit = permit;
            send_one(&node, &to, waiting).await;
        }));
    }
}

/// Sends requests in one message, and distributes the answers.
async fn send_one(node: &Node, to: &str, waiting: Vec<Waiting>) {
    let timeout_ms = waiting.iter().map(|waiting| waiting.timeout_ms).max();
    let mut calls = Vec::with_capacity(waiting.len());
    let mut replies = Vec::with_capacity(waiting.len());
    for Waiting {
        group, call, reply, ..
    } in waiting
    {
        calls.push((group as u32, call));
        replies.push(reply);
    }
    let request = encode(&NodeCall::Groups(calls));
    let subject = subject_of(to);
    let answer = node.bus.request(&subject, request, timeout_ms.unwrap_or(0));
    let answers: Option<Vec<GroupAnswer>> = answer.await.ok().and_then(|bytes| decode(&bytes));
    // Without answers, the callers see that their channels are closed.
    for (reply, answer) in replies.into_iter().zip(answers.unwrap_or_default()) {
        let _ = reply.send(answer);
    }
}

fn length_of(call: &GroupCall) -> usize {
    64 + match call {
        GroupCall::Http(call) => call.body.len(),
        GroupCall::Upsert(items) => items
            .iter()
            .map(|item| item.id.len() + item.features.len() * size_of::<f64>())
            .sum(),
        GroupCall::Question(bytes) | GroupCall::Fit { fit: bytes, .. } => bytes.len(),
        GroupCall::Progress | GroupCall::Compact => 0,
    }
}
