//! The owner's side of requests between nodes.

use std::sync::Arc;

use super::bus::Incoming;
use super::call::{GroupAnswer, GroupCall, decode, encode};
use super::node::{Group, Node};
use crate::api::{self, App};
use crate::engine::{Engine, Refusal};

/// The milliseconds between two attempts to listen.
const RETRY: u64 = 100;

/// Answers requests of other nodes for as long as this node owns the group.
pub(super) async fn answer(node: Arc<Node>, group: Arc<Group>) {
    let mut requests = loop {
        match node.bus.listen(&group.name).await {
            Ok(requests) => break requests,
            Err(error) => {
                tracing::debug!(group = group.name, %error, "cannot listen; retrying");
                let is_over = tokio::select! {
                    () = node.env.clock.sleep(RETRY) => false,
                    () = group.stopped_serving() => true,
                };
                if is_over {
                    return;
                }
            }
        }
    };
    let mut is_open = true;
    loop {
        let next = tokio::select! {
            next = requests.recv() => next,
            () = group.stopped_serving(), if is_open => {
                // Requests that have arrived are answered that the group has moved.
                requests.close();
                is_open = false;
                continue;
            }
        };
        let Some(Incoming { bytes, reply }) = next else {
            return;
        };
        let (node, group) = (Arc::clone(&node), Arc::clone(&group));
        let tasks = Arc::clone(&node.tasks);
        tasks.spawn(Box::pin(async move {
            let answer = match (decode::<GroupCall>(&bytes), group.app()) {
                (Some(call), Some(app)) => execute_as_owner(&node, &group, &app, call).await,
                (None, _) => GroupAnswer::Failed("the request cannot be decoded".to_owned()),
                (_, None) => GroupAnswer::Moved,
            };
            reply.send(encode(&answer));
        }));
    }
}

/// Executes a call if this node owns the group; calls that only read also without.
async fn execute_as_owner(
    node: &Node,
    group: &Group,
    app: &Arc<App>,
    call: GroupCall,
) -> GroupAnswer {
    if matches!(&call, GroupCall::Http(call) if call.route.is_read()) {
        return execute(app, call).await;
    }
    if !node.owns(group) {
        return GroupAnswer::Moved;
    }
    match execute(app, call).await {
        // The reason may be that another node owns the group now, which knows more.
        GroupAnswer::Http(answer) if answer.status >= 400 && !node.owns(group) => {
            GroupAnswer::Moved
        }
        answer => answer,
    }
}

/// Executes a call on the engine of a group.
pub(crate) async fn execute(app: &Arc<App>, call: GroupCall) -> GroupAnswer {
    // A node that owned the group last answers requests that only read until there is another owner.
    let may_answer = |engine: &&Engine| {
        engine.is_leading()
            || (matches!(&call, GroupCall::Http(call) if call.route.is_read()) && engine.has_led())
    };
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
            Some((progress, position)) => GroupAnswer::Result(progress, position),
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
        GroupCall::Compact => match engine.compact().await {
            Ok(compacted) => {
                let compacted = serde_json::to_vec(&compacted).expect("plain data");
                GroupAnswer::Result(compacted, position())
            }
            Err(error) => GroupAnswer::Failed(error.to_string()),
        },
        GroupCall::Hash => hash(engine),
    }
}

/// The hash of the state of an engine.
pub(super) fn hash(engine: &Engine) -> GroupAnswer {
    let (state, hash) = engine.hashed();
    let position = state.position();
    GroupAnswer::Result(hash.unwrap_or_default().into_bytes(), position)
}

/// The answer to a write that was refused.
async fn refused(refusal: Refusal) -> GroupAnswer {
    match refusal {
        Refusal::Moved => GroupAnswer::Moved,
        refusal => GroupAnswer::Http(api::error_answer(refusal.into()).await),
    }
}
