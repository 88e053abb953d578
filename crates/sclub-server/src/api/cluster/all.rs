//! Requests about the whole cluster: every group is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::Response;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use serde::Serialize;
use utoipa::ToSchema;

use super::batch::{Share, of_whole_batch};
use super::{DEADLINE, LONG_MS, Manner, RETRY, ask_as, whole};
use crate::api::App;
use crate::api::model::CompactResponse;
use crate::api::{Answer, json};
use crate::cluster::bus::{Bucket, BusError};
use crate::cluster::call::{GroupAnswer, GroupCall, NodeCall, Route, decode, encode};
use crate::cluster::members::{Member, Members, Move, forget_key, owners};
use crate::cluster::node::Group;
use crate::cluster::{Node, ask_node, execute_on_node, sweep_exports};
use crate::edge::ApiError;
use crate::edge::error::ErrorBody;
use crate::edge::keys::DEFAULT_SPACE;
use crate::engine::{Compacted, RewardValues};
use crate::identity::UserHash;
use crate::meters::{labelled, ready_metric};

/// Asks every partition, and returns the answers by name. The first error is the answer.
pub(super) async fn ask_all(
    node: &Arc<Node>,
    route: &Route,
    manner: Manner,
) -> Result<std::collections::BTreeMap<String, serde_json::Value>, ApiError> {
    let asked = node.groups().iter().map(|group| async move {
        let answer = ask_as(node, group, route.clone(), Bytes::new(), manner).await?;
        Ok::<_, ApiError>((group, whole(answer).await))
    });
    let mut all = std::collections::BTreeMap::new();
    for answer in futures_util::future::join_all(asked).await {
        let (group, answer) = answer?;
        if answer.status >= 400 {
            let share = Share {
                group,
                places: Vec::new(),
                entries: Vec::new(),
            };
            return Err(of_whole_batch(&answer, &share, ""));
        }
        let value = serde_json::from_slice(&answer.body).map_err(|_| ApiError::internal())?;
        all.insert(group.name.clone(), value);
    }
    Ok(all)
}

/// Removes the data of forgotten users from all streams, snapshots and journals. Nodes that have not confirmed are
/// named: repeat it when they are back.
pub(super) async fn compact(node: &Arc<Node>) -> Result<Answer, ApiError> {
    let members = Members::read(&*node.bus);
    let mut unconfirmed = node.missing();
    let mut total = CompactResponse {
        events: 0,
        dropped: 0,
        bytes_before: 0,
        bytes_after: 0,
        unconfirmed: Vec::new(),
    };
    // The catalogue has no data of users.
    for group in node.partitions() {
        let (result, position) = ask_group(node, group, &GroupCall::Compact).await?;
        let decoded: Option<(Compacted, Vec<(String, u64)>)> = decode(&result);
        let (done, known) = decoded.ok_or_else(ApiError::internal)?;
        total.events += done.events;
        total.dropped += done.dropped;
        total.bytes_before += done.bytes_before;
        total.bytes_after += done.bytes_after;
        // Each journal has its requests to forget until they are kept for every node. A node that followed the
        // partition earlier may have some that the owner does not have.
        let hash = node.identity.user_hash();
        let mut users = BTreeMap::new();
        merge(&mut users, hashed(&hash, known));
        let running: Vec<&String> = members.members.iter().map(|member| &member.name).collect();
        let mut refused = BTreeSet::new();
        for name in &running {
            match forget(node, group, name, Vec::new(), position).await {
                Ok((dropped, known)) => {
                    total.dropped += dropped;
                    merge(&mut users, hashed(&hash, known));
                }
                Err(reason) => {
                    tracing::warn!(node = name, group = group.name, reason, "not compacted");
                    refused.insert(name.as_str());
                }
            }
        }
        let mut pending = Vec::new();
        for name in nodes_of(&members) {
            pending.push((name, keep_pending(node, name, group, &users).await?));
        }
        for (name, (users, revision)) in pending {
            if members.get(name).is_none() || refused.contains(name.as_str()) {
                continue;
            }
            match forget(node, group, name, users, position).await {
                Ok((dropped, _)) => {
                    total.dropped += dropped;
                    // Not if another compaction has added users.
                    let key = forget_key(name, &group.name);
                    let _ = node.bus.delete(Bucket::Config, &key, revision).await;
                }
                Err(reason) => {
                    tracing::warn!(node = name, group = group.name, reason, "not compacted");
                    refused.insert(name.as_str());
                }
            }
        }
        unconfirmed.extend(refused.into_iter().map(str::to_owned));
    }
    unconfirmed.sort_unstable();
    unconfirmed.dedup();
    let swept = match sweep_exports(node).await {
        Ok(()) => node.bus.sweep().await,
        error => error,
    };
    if let Err(error) = swept {
        tracing::error!(%error, "parts of old objects cannot be removed");
        return Err(ApiError::internal());
    }
    total.unconfirmed = unconfirmed;
    Ok(json(&total))
}

/// Has a node remove users, who are given by hash, from its journal of a group. Returns the number of rows, and the users that its journal has
/// requests to forget of.
async fn forget(
    node: &Arc<Node>,
    group: &Group,
    name: &str,
    users: Vec<(String, u64)>,
    position: u64,
) -> Result<(u64, Vec<(String, u64)>), String> {
    let call = NodeCall::Forget {
        group: group.name.clone(),
        users,
        position,
    };
    match name == node.name {
        true => execute_on_node(node, call).await,
        false => ask_node(node, name, &call).await,
    }
}

/// Users by hash.
fn hashed(hash: &UserHash, users: Vec<(String, u64)>) -> Vec<(String, u64)> {
    let users = users.into_iter();
    users.map(|(user, event)| (hash.of(&user), event)).collect()
}

/// Adds users to others; of two events the later one counts.
fn merge(users: &mut BTreeMap<String, u64>, others: Vec<(String, u64)>) {
    for (user, event) in others {
        let latest = users.entry(user).or_default();
        *latest = (*latest).max(event);
    }
}

/// The names of all nodes that may have a journal.
fn nodes_of(members: &Members) -> Vec<&String> {
    let running = members.members.iter().map(|member| &member.name);
    let others = members.registered.iter();
    let others = others.filter(|name| members.get(name).is_none());
    running.chain(others).collect()
}

/// Adds users to those that a node has yet to forget. Returns all of them, with the revision of their entry.
async fn keep_pending(
    node: &Node,
    name: &str,
    group: &Group,
    users: &BTreeMap<String, u64>,
) -> Result<(Vec<(String, u64)>, Option<u64>), ApiError> {
    let key = forget_key(name, &group.name);
    let failed = |error: BusError| {
        tracing::error!(%error, key, "users to be forgotten cannot be kept");
        ApiError::internal()
    };
    loop {
        let entry = node.bus.get(Bucket::Config, &key).await.map_err(failed)?;
        let mut revision = entry.as_ref().map(|entry| entry.revision);
        let mut pending: BTreeMap<String, u64> = match entry {
            Some(entry) => decode(&entry.value)
                .ok_or_else(|| failed(BusError::Failed("the entry is damaged".to_owned())))?,
            None => BTreeMap::new(),
        };
        merge(&mut pending, users.clone().into_iter().collect());
        if !users.is_empty() {
            let value = encode(&pending);
            let written = match revision {
                None => node.bus.create(Bucket::Config, &key, value).await,
                Some(at) => node.bus.update(Bucket::Config, &key, value, at).await,
            };
            match written {
                Ok(at) => revision = Some(at),
                Err(BusError::Conflict) => continue,
                Err(error) => return Err(failed(error)),
            }
        }
        return Ok((pending.into_iter().collect(), revision));
    }
}

/// Asks the owner of a group. Waits while the group moves.
async fn ask_group(
    node: &Arc<Node>,
    group: &Arc<Group>,
    call: &GroupCall,
) -> Result<(Vec<u8>, u64), ApiError> {
    let clock = &node.env.clock;
    let begun = clock.monotonic();
    loop {
        let answer = node.ask_owner(group, call.clone(), LONG_MS).await;
        match answer {
            Some(GroupAnswer::Result(result, position)) => return Ok((result, position)),
            Some(GroupAnswer::Failed(reason)) => {
                tracing::error!(group = group.name, reason, "the owner of a group failed");
                return Err(ApiError::internal());
            }
            _ => {}
        }
        if clock.monotonic() - begun >= DEADLINE {
            return Err(ApiError::moved(
                "the owner of a group does not answer; retry",
            ));
        }
        clock.sleep(RETRY).await;
    }
}

/// The state of the whole cluster: sums over the partitions.
pub(super) async fn state(
    node: &Arc<Node>,
    route: &Route,
    manner: Manner,
) -> Result<Answer, ApiError> {
    let mut parts = ask_all(node, route, manner).await?;
    let catalogue = parts.remove(&node.catalogue().name).unwrap_or_default();
    let mut whole = parts.values().next().cloned().unwrap_or_default();
    for field in ["events", "rounds", "users", "rewards"] {
        let sum: u64 = parts.values().filter_map(|part| part[field].as_u64()).sum();
        whole[field] = sum.into();
    }
    let sum: f64 = parts
        .values()
        .filter_map(|p| p["reward_sum"].as_f64())
        .sum();
    whole["reward_sum"] = sum.into();
    let rewards = parts.values().map(|part| {
        let count = part["rewards"].as_u64().unwrap_or(0);
        let sum = part["reward_sum"].as_f64().unwrap_or(0.0);
        RewardValues::of_part(count, sum, !part["reward_warning"].is_null())
    });
    let warning = rewards
        .fold(RewardValues::default(), RewardValues::and)
        .warning();
    if let Some(card) = whole.as_object_mut() {
        card.remove("reward_warning");
        card.extend(warning.map(|text| ("reward_warning".to_owned(), text.into())));
    }
    whole["decisions"] = node.meters.decisions().into();
    whole["items"] = catalogue["items"].clone();
    let dims = std::iter::once(&catalogue).chain(parts.values());
    let dim = dims.map(|part| &part["dim"]).find(|dim| !dim.is_null());
    whole["dim"] = dim.cloned().unwrap_or_default();
    let writable = parts.values().all(|part| part["writable"] == true);
    whole["writable"] = writable.into();
    if let Some(whole) = whole.as_object_mut()
        && whole.remove("hash").is_some()
    {
        let hashes = parts
            .iter()
            .map(|(name, part)| (name.clone(), part["hash"].clone()));
        whole.insert(
            "hashes".to_owned(),
            hashes.collect::<serde_json::Map<_, _>>().into(),
        );
    }
    whole["partitions"] = (parts.len() as u64).into();
    whole["node"] = node.name.clone().into();
    Ok(json(&whole))
}

/// The nodes of a cluster.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct NodeList {
    /// The node that answers.
    node: String,
    /// The nodes that are running.
    nodes: Vec<Member>,
    /// The owner of each group.
    owners: BTreeMap<String, String>,
    /// The nodes that own nothing, because an operator has said so.
    drained: Vec<String>,
    /// The number of partitions.
    partitions: usize,
    /// The last changes of owners that this node has seen, the newest first.
    moves: Vec<Move>,
    /// The state of each group that this node follows or owns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hashes: Option<BTreeMap<String, GroupHash>>,
}

/// The state of a group on one node.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct GroupHash {
    /// True if the node writes the group's log.
    is_leading: bool,
    /// The last batch.
    position: u64,
    /// A hash of everything learned.
    hash: String,
}

/// The states of the groups that a node follows or owns. This takes time with many users.
pub(super) async fn hashes(
    node: &Arc<Node>,
) -> Result<std::collections::BTreeMap<String, GroupHash>, ApiError> {
    let node = Arc::clone(node);
    let work = move || {
        let hashed = node.groups().iter().filter_map(|group| {
            let app = group.app()?;
            let engine = app.engine()?;
            let (state, hash) = engine.hashed();
            let hash = GroupHash {
                is_leading: engine.is_leading(),
                position: state.position(),
                hash: hash.unwrap_or_default(),
            };
            Some((group.name.clone(), hash))
        });
        hashed.collect()
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| ApiError::internal())
}

/// The nodes and the owners of the groups, as a node sees them.
pub(super) fn node_list(node: &Node) -> NodeList {
    let members = Members::read(&*node.bus);
    NodeList {
        node: node.name.clone(),
        owners: owners(&*node.bus),
        nodes: members.members,
        drained: members.drained,
        partitions: node.partitions().len(),
        moves: node.moves(),
        hashes: None,
    }
}

/// Returns the nodes of the cluster, and the owner of each partition; with `hash=true` also a hash of the state of each
/// partition that this node has, which takes time with many users.
#[utoipa::path(get, path = "/v1/nodes", tag = "look", params(("hash" = Option<bool>, Query, description = "True to include hashes")), responses(
    (status = 200, body = NodeList, description = "The nodes"),
    (status = 404, body = ErrorBody, description = "`unknown_path`: the server is not part of a cluster")))]
pub(in crate::api) async fn nodes() -> ApiError {
    ApiError::unknown("unknown_path", "this server is not part of a cluster")
}

/// The metrics of a node.
pub(super) fn metrics(app: &App, node: &Node) -> Answer {
    node.count();
    // A cluster has one space.
    let text = node.meters.render() + &ready_metric(node.is_ready());
    let text = labelled(&text, DEFAULT_SPACE) + &app.server_metrics();
    let mut answer = Response::new(Body::from(text));
    let name = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, name);
    answer
}
