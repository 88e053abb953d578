//! The owner's side of requests between nodes.

use std::sync::Arc;

use axum::http::StatusCode;
use bytes::Bytes;
use tokio::sync::{Semaphore, oneshot};

use super::bus::Incoming;
use super::call::{GroupAnswer, GroupCall, NodeCall, decode_traced, encode};
use super::node::{Group, Node};
use crate::api::{self, App};
use crate::edge::ApiError;
use crate::engine::{
    Compaction, Confirmed, Engine, Refusal, SeenDecision, SomeCounts, forget_in_folder,
};
use crate::store::COPIES;
use crate::traces::{RequestSpan, SentCaller};

/// The milliseconds between two attempts to listen.
const RETRY: u64 = 100;
/// The milliseconds for which a request waits until this node has read the catalogue.
const MAX_CATALOGUE_WAIT: u64 = 1_000;
/// The maximum number of messages of other nodes that are answered at once: those that only read, and others. Others
/// wait for the disks of NATS, so they must not keep out those that read.
const MAX_MESSAGES: usize = 1_024;

/// The milliseconds for which a node that is to remove the data of users catches up with the log first.
const MAX_BEHIND: u64 = 10_000;

/// Executes a call on the engine of a group. A call that computes for long has a thread of its own.
async fn execute_long(node: &Node, app: Arc<App>, call: GroupCall) -> GroupAnswer {
    let GroupCall::Question(question) = call else {
        return execute(&app, call).await;
    };
    let work = move || {
        let engine = app.engine().filter(|engine| engine.is_leading());
        let engine = engine.ok_or("the group has moved")?;
        engine.answer_question(&question)
    };
    match run_blocking(node, work).await {
        Ok((answer, position)) => GroupAnswer::Result(answer, position),
        Err(reason) => GroupAnswer::Failed(reason),
    }
}

/// Executes a call if this node owns the group; calls that only read also without.
pub(super) async fn execute_as_owner(node: &Node, group: &Group, call: GroupCall) -> GroupAnswer {
    let Some(app) = group.app() else {
        return GroupAnswer::Moved;
    };
    if let GroupCall::Http(http) = &call
        && !node
            .has_catalogue_until(http.catalogue, MAX_CATALOGUE_WAIT)
            .await
    {
        return GroupAnswer::Moved;
    }
    if call.is_read() {
        return execute(&app, call).await;
    }
    if !node.owns(group) {
        return GroupAnswer::Moved;
    }
    match execute_long(node, app, call).await {
        // The reason may be that another node owns the group now, which knows more. An unknown outcome stays unknown.
        GroupAnswer::Http(answer)
            if answer.status >= 400
                && answer.status != StatusCode::GATEWAY_TIMEOUT
                && !node.owns(group) =>
        {
            GroupAnswer::Moved
        }
        answer => answer,
    }
}

/// Executes a call on the engine of a group.
pub(crate) async fn execute(app: &Arc<App>, call: GroupCall) -> GroupAnswer {
    // A node that owned the group last answers requests that only read until there is another owner.
    let may_answer = |engine: &&Engine| engine.is_leading() || (call.is_read() && engine.has_led());
    let Some(engine) = app.engine().filter(may_answer) else {
        return GroupAnswer::Moved;
    };
    let position = || engine.state().position();
    match call {
        GroupCall::Http(call) => match api::answer_call(app, call).await {
            Some(answer) => GroupAnswer::Http(answer),
            None => GroupAnswer::Moved,
        },
        GroupCall::Upsert(items) => match engine.upsert(items).await {
            Ok(changed) => GroupAnswer::Changed(changed as u64, position()),
            Err(refusal) => refused(refusal).await,
        },
        GroupCall::Progress => match engine.progress() {
            Some((progress, dim, position)) => {
                let result = encode(&(progress.to_bytes(), dim as u64));
                GroupAnswer::Result(result.to_vec(), position)
            }
            None => GroupAnswer::Result(Vec::new(), position()),
        },
        GroupCall::Question(question) => match engine.answer_question(&question) {
            Ok((answer, position)) => GroupAnswer::Result(answer, position),
            Err(error) => GroupAnswer::Failed(error),
        },
        GroupCall::Fit { fit, position } => match engine.log_fit(fit, position).await {
            Ok(()) => GroupAnswer::Changed(1, position),
            Err(refusal) => refused(refusal).await,
        },
        GroupCall::Compact => match engine.compact_with(Compaction::Owner).await {
            Ok((compacted, gone)) => {
                let gone: Vec<(String, u64)> = gone.into_iter().collect();
                let result = encode(&(compacted, gone));
                GroupAnswer::Result(result.to_vec(), position())
            }
            Err(error) => GroupAnswer::Failed(error.to_string()),
        },
    }
}

/// The subject of a node.
pub(crate) fn subject_of(node: &str) -> String {
    format!("node.{node}")
}

/// Answers requests to this node for as long as it runs.
pub(super) async fn answer_as_node(node: Arc<Node>) {
    let [reads, others] = [(); 2].map(|()| Arc::new(Semaphore::new(MAX_MESSAGES)));
    while !node.is_closed() {
        let Ok(mut requests) = node.bus.listen(&subject_of(&node.name)).await else {
            node.env.clock.sleep(RETRY).await;
            continue;
        };
        while let Some(Incoming { bytes, reply }) = requests.recv().await {
            let own = Arc::clone(&node);
            let (reads, others) = (Arc::clone(&reads), Arc::clone(&others));
            node.tasks.spawn(Box::pin(async move {
                let Some((call, callers)) = decode_traced(&bytes) else {
                    return;
                };
                drop(bytes);
                let limit = match call.is_read() {
                    true => reads,
                    false => others,
                };
                let Ok(_permit) = limit.try_acquire() else {
                    return reply.send(refused_all(&call));
                };
                let answer = match call {
                    NodeCall::Groups(calls) => {
                        let mut callers = callers.into_iter().peekable();
                        let calls = (0..).zip(calls).map(|(place, (group, call))| {
                            let caller = callers.next_if(|(of, _)| *of == place);
                            answer(&own, group, call, caller.map(|(_, caller)| caller))
                        });
                        // Made in order, since each takes its caller.
                        let answers: Vec<_> = calls.collect();
                        let answers = futures_util::future::join_all(answers).await;
                        encode_answers(answers, own.bus.max_message()).await
                    }
                    NodeCall::Recent { user } => result(&recent(&own, &user)),
                    NodeCall::Counts { items } => result(&counts(&own, &items)),
                    call => match execute_on_node(&own, call).await {
                        Ok(result) => encode(&GroupAnswer::Result(encode(&result).to_vec(), 0)),
                        Err(reason) => encode(&GroupAnswer::Failed(reason)),
                    },
                };
                reply.send(answer);
            }));
        }
    }
}

/// A result as the answer to another node.
fn result<T: serde::Serialize>(value: &T) -> Bytes {
    encode(&GroupAnswer::Result(encode(value).to_vec(), 0))
}

/// The last decisions of a user that this node made, newest first, if it follows the user's partition. As many as one message
/// has room for.
pub(crate) fn recent(node: &Node, user: &str) -> Vec<SeenDecision> {
    let app = node.group_of(user).app();
    let engine = app.as_ref().and_then(|app| app.engine());
    let mut decisions = engine.map_or_else(Vec::new, |engine| engine.seen(user));
    while !decisions.is_empty() && result(&decisions).len() > node.bus.max_message() {
        decisions.truncate(decisions.len() / 2);
    }
    decisions
}

/// The counts of items of this node.
pub(crate) fn counts(node: &Node, items: &[String]) -> SomeCounts {
    node.item_counts.get(items.iter().map(String::as_str))
}

/// The answer to a message that this node has no room for. Nothing was done.
fn refused_all(call: &NodeCall) -> Bytes {
    match call {
        NodeCall::Groups(calls) => encode(&vec![GroupAnswer::Moved; calls.len()]),
        _ => encode(&GroupAnswer::Failed("the node is overloaded".to_owned())),
    }
}

/// Encodes answers to one message of at most `max` bytes. Those that have no room are to be asked for again, each in a
/// message of its own. An answer that is too large even then is an error.
async fn encode_answers(mut answers: Vec<GroupAnswer>, max: usize) -> Bytes {
    let bytes = encode(&answers);
    if bytes.len() <= max {
        return bytes;
    }
    if let [_] = answers[..] {
        let message = format!(
            "the answer has {} bytes, and nodes can send each other at most {max}; ask for less at once",
            bytes.len()
        );
        let error = api::error_answer(ApiError::too_large(message)).await;
        return encode(&[GroupAnswer::Http(error)].to_vec());
    }
    // The number of answers, and one byte for each that has no room.
    let mut left = max.saturating_sub(10 + answers.len());
    for answer in &mut answers {
        let length = encode(answer).len();
        match left.checked_sub(length) {
            Some(rest) => left = rest,
            None => *answer = GroupAnswer::Alone,
        }
    }
    encode(&answers)
}

/// Answers a request to the owner of a group, within the span of the node that has sent it.
async fn answer(
    node: &Node,
    group: u32,
    call: GroupCall,
    caller: Option<SentCaller>,
) -> GroupAnswer {
    let Some(group) = node.groups().get(group as usize) else {
        return GroupAnswer::Moved;
    };
    let answer = execute_as_owner(node, group, call);
    let Some(span) = RequestSpan::begin_forwarded(caller.as_ref(), &group.name) else {
        return answer.await;
    };
    let answer = span.within(answer).await;
    span.end(match &answer {
        GroupAnswer::Http(answer) => answer.status < 500,
        GroupAnswer::Failed(_) | GroupAnswer::Moved => false,
        _ => true,
    });
    answer
}

/// The number of rows or lines, and users that the journal has requests to forget of.
pub(crate) type NodeResult = (u64, Vec<(String, u64)>);

/// Executes a call on this node.
pub(crate) async fn execute_on_node(
    node: &Arc<Node>,
    call: NodeCall,
) -> Result<NodeResult, String> {
    match call {
        NodeCall::Groups(_) | NodeCall::Recent { .. } | NodeCall::Counts { .. } => {
            Err("these have answers of another kind".to_owned())
        }
        NodeCall::Forget {
            group,
            users,
            position,
        } => {
            let gone = Confirmed::new(node.identity.user_hash(), users);
            let group = node.group(&group).ok_or("there is no such group")?;
            if let Some(app) = group.app()
                && let Some(engine) = app.engine()
            {
                // Rows of batches that are applied later would stay.
                let clock = &node.env.clock;
                let begun = clock.monotonic();
                while engine.state().position() < position {
                    if clock.monotonic() - begun >= MAX_BEHIND {
                        return Err("the node has not applied the whole log yet".to_owned());
                    }
                    clock.sleep(RETRY).await;
                }
                let compacted = engine.compact_with(Compaction::Journal(gone)).await;
                return compacted
                    .map(|(done, known)| (done.dropped, known.into_iter().collect()))
                    .map_err(|e| e.to_string());
            }
            let path = node.settings.data.join(&group.name);
            let env = node.env.clone();
            run_blocking(node, move || match env.disk.names(&path) {
                Ok(names) => {
                    if names.iter().any(|name| name == COPIES) {
                        let removed = env.disk.remove_dir_all(&path.join(COPIES));
                        removed.map_err(|error| error.to_string())?;
                    }
                    let (dropped, known) =
                        forget_in_folder(&env, &path, &gone).map_err(|error| error.to_string())?;
                    Ok((dropped, known.into_iter().collect()))
                }
                Err(_) => Ok((0, Vec::new())),
            })
            .await
        }
        NodeCall::Export { group, object } => {
            let group = Arc::clone(node.group(&group).ok_or("there is no such group")?);
            let own = Arc::clone(node);
            let export = move || super::export::export(&own, &group, &object);
            Ok((run_blocking(node, export).await?, Vec::new()))
        }
    }
}

/// Runs work that blocks, and returns its result.
pub(super) async fn run_blocking<T: Send + 'static>(
    node: &Node,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let (sender, result) = oneshot::channel();
    let work = move || drop(sender.send(work()));
    node.tasks.blocking(Box::new(work)).await;
    result
        .await
        .unwrap_or_else(|_| Err("the work panicked".to_owned()))
}

/// The answer to a write that was refused.
async fn refused(refusal: Refusal) -> GroupAnswer {
    match refusal {
        Refusal::Moved => GroupAnswer::Moved,
        refusal => GroupAnswer::Http(api::error_answer(refusal.into()).await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::call::{HttpAnswer, decode};

    fn of_length(length: usize) -> GroupAnswer {
        GroupAnswer::Http(HttpAnswer {
            status: 200,
            content_type: String::new(),
            retry_after: None,
            warning: None,
            body: vec![7; length],
        })
    }

    async fn encoded(answers: Vec<GroupAnswer>, max: usize) -> Vec<GroupAnswer> {
        let bytes = encode_answers(answers, max).await;
        assert!(bytes.len() <= max, "{} of {max} bytes", bytes.len());
        decode(&bytes).unwrap()
    }

    #[tokio::test]
    async fn answers_without_room_are_asked_for_again_alone() {
        let all = vec![of_length(600), of_length(600), of_length(100)];
        assert_eq!(encoded(all.clone(), 2_000).await, all);
        let some = vec![of_length(600), GroupAnswer::Alone, of_length(100)];
        assert_eq!(encoded(all, 1_000).await, some);
    }

    #[tokio::test]
    async fn an_answer_that_is_too_large_is_an_error() {
        let answers = encoded(vec![of_length(2_000)], 1_000).await;
        let [GroupAnswer::Http(answer)] = &answers[..] else {
            panic!("{answers:?}");
        };
        assert_eq!(answer.status, 413);
    }
}
