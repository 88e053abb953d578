//! Any node answers any request: a request is handed to the owner of the group that it is about.
//!
//! Each group of a node has an [`App`] with the group's engine, and every handler works on it as on a single server.
//! [`spread`] finds the group, or the groups of a batch.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use axum::http::{Method, Response, StatusCode};
use axum::middleware::Next;
use axum::response::IntoResponse;
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tower::ServiceExt;

use super::{Answer, App, Routes, Shared, body, calls, items, json, parse};
use crate::cluster::call::{GroupAnswer, GroupCall, HttpAnswer, HttpCall, NodeCall, Route, decode};
use crate::cluster::members::{Members, Move, owners};
use crate::cluster::node::Group;
use crate::cluster::{Node, ask_node, execute_on_node};
use crate::decision::{DecisionContents, Sealer};
use crate::edge::error::ErrorBody;
use crate::edge::{ApiError, Closing};
use crate::engine::{Compacted, Engine, Refusal};
use crate::meters::Call;

/// The milliseconds for which a request waits for an owner: a takeover takes the length of a lease and a second.
const DEADLINE: u64 = crate::cluster::TTL + 3_000;
/// The milliseconds after which a request is answered in any case.
const LIMIT: u64 = crate::cluster::TTL + 4_000;
/// The milliseconds for which one attempt waits for its answer. Then the owner may be another one.
const ATTEMPT_MS: u64 = 1_500;
/// The milliseconds for which a compaction may take.
const LONG_MS: u64 = 600_000;
/// The milliseconds between two attempts.
const RETRY: u64 = 15;

/// In a cluster, hands a request to the owner of its group. On a single server it does nothing.
pub(super) async fn spread(State(app): State<Shared>, request: Request, next: Next) -> Answer {
    let Some(node) = app.node().map(Arc::clone) else {
        return next.run(request).await;
    };
    answer(&app, node, request)
        .await
        .unwrap_or_else(IntoResponse::into_response)
}

async fn answer(app: &Shared, node: Arc<Node>, request: Request) -> Result<Answer, ApiError> {
    let path = request.uri().path().to_owned();
    let method = request.method().clone();
    let query = request.uri().query().map(|query| format!("?{query}"));
    let target = format!("{path}{}", query.unwrap_or_default());
    let route = Route::Other(method.to_string(), target);
    let nothing = Bytes::new();
    match path.as_str() {
        "/v1/nodes" => {
            let mut list = node_list(&node);
            if request.uri().query() == Some("hash=true") {
                list.hashes = Some(hashes(&node).await?);
            }
            Ok(json(&list))
        }
        "/v1/state" => state(&node, &route).await,
        "/metrics" => Ok(metrics(&node)),
        "/v1/items" if method == Method::PUT => {
            let (head, sent) = request.into_parts();
            let dim = catalogue_dim(&node);
            let to = items::Target::Cluster(&node);
            items::put_into(app, &head.headers, sent, dim, to).await
        }
        _ if method == Method::GET && path.starts_with("/v1/items") => {
            let catalogue = node.catalogue().app().ok_or_else(starting)?;
            Ok(inner(&catalogue, request).await)
        }
        _ if path.starts_with("/v1/items") => ask(&node, node.catalogue(), route, nothing).await,
        _ if path.starts_with("/v1/users/") => {
            let id = path.trim_start_matches("/v1/users/");
            let id = percent_decoded(id);
            ask(&node, node.group_of(&id), route, nothing).await
        }
        "/v1/admin/snapshot" => Ok(json(&ask_all(&node, &route).await?)),
        "/v1/admin/compact" => compact(&node).await,
        "/v1/admin/export" => Ok(super::admin::export_cluster(node)),
        "/v1/admin/backup" => Err(ApiError::new(
            StatusCode::NOT_IMPLEMENTED,
            "unsupported",
            "a node has no backup of the cluster; use 'sclub cluster backup'",
        )),
        "/v1/stream" => {
            let mut head = request.into_parts().0;
            let closing = Closing::from_request_parts(&mut head, app).await;
            let closing = closing.unwrap_or_else(|never| match never {});
            Ok(super::stream::follow(Arc::clone(app), None, closing))
        }
        // Clusters and their history: those of the first partition. Fits are the same in all.
        _ => {
            let bytes = body_of(app, &method, request).await?;
            ask(&node, &node.partitions()[0], route, bytes).await
        }
    }
}

/// Answers a call of an application.
pub(super) async fn call(node: &Arc<Node>, call: Call, bytes: Bytes) -> Result<Answer, ApiError> {
    match call {
        Call::RecommendBatch => recommend_batch(node, bytes).await,
        Call::FeedbackBatch => feedback_batch(node, bytes).await,
        call => {
            let group = group_of(node, call, &bytes)?;
            ask(node, group, route_of(call), bytes).await
        }
    }
}

async fn body_of(app: &App, method: &Method, request: Request) -> Result<Bytes, ApiError> {
    match *method == Method::POST {
        true => body(app, request).await,
        false => Ok(Bytes::new()),
    }
}

fn starting() -> ApiError {
    let message = "the node is reading the catalogue";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "starting", message).retry_after(1)
}

fn route_of(call: Call) -> Route {
    match call {
        Call::Recommend => Route::Recommend,
        Call::RecommendBatch => Route::RecommendBatch,
        Call::Feedback => Route::Feedback,
        _ => Route::FeedbackBatch,
    }
}

/// Answers a request with the handlers of a single server.
async fn inner(app: &Shared, request: Request) -> Answer {
    let router = Routes::new().merge().with_state(Arc::clone(app));
    router
        .oneshot(request)
        .await
        .unwrap_or_else(|error| match error {})
}

/// The group that a request is about.
fn group_of<'a>(node: &'a Node, call: Call, bytes: &[u8]) -> Result<&'a Arc<Group>, ApiError> {
    #[derive(Deserialize)]
    struct OfUser<'a> {
        #[serde(borrow)]
        user: Cow<'a, str>,
    }
    #[derive(Deserialize)]
    struct OfDecision<'a> {
        #[serde(borrow)]
        decision: Cow<'a, str>,
    }
    match call {
        Call::Recommend => {
            let OfUser { user } = parse(bytes)?;
            Ok(node.group_of(&user))
        }
        _ => {
            let OfDecision { decision } = parse(bytes)?;
            group_of_decision(node, &decision)
        }
    }
}

fn group_of_decision<'a>(node: &'a Node, decision: &str) -> Result<&'a Arc<Group>, ApiError> {
    let encoded = Sealer::new(node.identity.key()).open(decision);
    let encoded = encoded.ok_or(Refusal::UnknownDecision)?;
    let contents = DecisionContents::decode(&encoded).ok_or(Refusal::UnknownDecision)?;
    Ok(node.group_of(&contents.user))
}

/// Asks the owner of a group, which may be this node. Waits while the group moves.
async fn ask(
    node: &Arc<Node>,
    group: &Arc<Group>,
    route: Route,
    bytes: Bytes,
) -> Result<Answer, ApiError> {
    let can_be_stale = route.is_read();
    let clock = &node.env.clock;
    let begun = clock.monotonic();
    loop {
        // Not held while another node is asked: the group could not be closed and opened again meanwhile.
        let own = group.app().filter(|_| node.owns(group));
        if let Some(app) = own {
            let left = LIMIT.saturating_sub(clock.monotonic() - begun);
            let answered = tokio::select! {
                biased;
                answered = answer_local(&app, &route, bytes.clone()) => Some(answered),
                () = clock.sleep(left) => None,
            };
            match answered {
                Some(Err(error)) if is_moving(&error) || !node.owns(group) => {}
                Some(Ok(answer)) if answer.status().as_u16() >= 500 && !node.owns(group) => {}
                Some(answered) => return answered,
                // It waits behind a write that takes long.
                None => {}
            }
        } else {
            let call = GroupCall::Http(HttpCall {
                route: route.clone(),
                body: bytes.to_vec(),
            });
            let sent = Instant::now();
            match node.ask_owner(group, call, ATTEMPT_MS).await {
                Some(GroupAnswer::Http(answer)) => {
                    node.meters.forwarded(sent.elapsed());
                    return Ok(response(answer));
                }
                Some(GroupAnswer::Failed(reason)) => {
                    tracing::error!(group = group.name, reason, "a forwarded request failed");
                    return Err(ApiError::internal());
                }
                _ => {}
            }
            // Without an owner, this node answers from what it knows.
            if let Some(app) = group.app()
                && can_be_stale
                && app.engine().is_some_and(Engine::has_led)
            {
                return answer_local(&app, &route, bytes.clone()).await;
            }
        }
        if clock.monotonic() - begun >= DEADLINE {
            return Err(ApiError::moved(
                "the owner of the partition does not answer; retry",
            ));
        }
        clock.sleep(RETRY).await;
    }
}

/// Returns true if an error may be gone after a moment, on this node or another. Every call can be repeated.
fn is_moving(error: &ApiError) -> bool {
    error.code == "moved" || error.code == "unknown_outcome"
}

/// Answers a call with the engine of a group.
async fn answer_local(app: &Shared, route: &Route, bytes: Bytes) -> Result<Answer, ApiError> {
    let call = match route {
        Route::Recommend => Call::Recommend,
        Route::RecommendBatch => Call::RecommendBatch,
        Route::Feedback => Call::Feedback,
        Route::FeedbackBatch => Call::FeedbackBatch,
        Route::Other(method, target) => {
            let request = Request::builder()
                .method(method.as_str())
                .uri(target.as_str())
                .header(CONTENT_TYPE, "application/json")
                .body(Body::from(bytes))
                .map_err(|_| ApiError::internal())?;
            return Ok(inner(app, request).await);
        }
    };
    calls::answer_bytes(app, call, bytes).await
}

/// Answers a request of another node; `None` if the group has moved.
pub(crate) async fn answer_call(app: &Shared, call: HttpCall) -> Option<HttpAnswer> {
    match answer_local(app, &call.route, call.body.into()).await {
        Err(error) if is_moving(&error) => None,
        Err(error) => Some(error_answer(error).await),
        Ok(answer) => Some(whole(answer).await),
    }
}

/// An error as the answer to another node.
pub(crate) async fn error_answer(error: ApiError) -> HttpAnswer {
    whole(error.into_response()).await
}

async fn whole(answer: Answer) -> HttpAnswer {
    let (head, body) = answer.into_parts();
    let body = body.collect().await;
    let header = |name| {
        let value: Option<&HeaderValue> = head.headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    };
    HttpAnswer {
        status: head.status.as_u16(),
        content_type: header(CONTENT_TYPE).unwrap_or_default(),
        retry_after: header(RETRY_AFTER).and_then(|seconds| seconds.parse().ok()),
        body: body
            .map(|body| body.to_bytes().to_vec())
            .unwrap_or_default(),
    }
}

fn response(answer: HttpAnswer) -> Answer {
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(value) = HeaderValue::from_str(&answer.content_type) {
        response.headers_mut().insert(CONTENT_TYPE, value);
    }
    if let Some(seconds) = answer.retry_after {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// The entries of a batch that go to one group.
struct Share<'a> {
    group: &'a Arc<Group>,
    /// The places of the entries in the batch.
    places: Vec<usize>,
    entries: Vec<&'a RawValue>,
}

/// Divides the entries of a batch by group.
fn shares<'a>(
    groups: impl Iterator<Item = Result<&'a Arc<Group>, ApiError>>,
    entries: &[&'a RawValue],
    list: &str,
) -> Result<Vec<Share<'a>>, ApiError> {
    let mut shares: Vec<Share<'a>> = Vec::new();
    for (place, (group, entry)) in groups.zip(entries).enumerate() {
        let group = group.map_err(|error| within(error, list, place))?;
        let share = shares.iter().position(|s| s.group.index == group.index);
        let share = share.unwrap_or_else(|| {
            shares.push(Share {
                group,
                places: Vec::new(),
                entries: Vec::new(),
            });
            shares.len() - 1
        });
        shares[share].places.push(place);
        shares[share].entries.push(entry);
    }
    Ok(shares)
}

fn within(error: ApiError, list: &str, place: usize) -> ApiError {
    let field = match &error.field {
        Some(field) => format!("{list}[{place}].{field}"),
        None => format!("{list}[{place}]"),
    };
    error.field(field)
}

#[derive(Deserialize)]
struct RawRequests<'a> {
    #[serde(borrow)]
    requests: Vec<&'a RawValue>,
}

#[derive(Serialize, Deserialize)]
struct RawDecisions {
    decisions: Vec<Box<RawValue>>,
}

async fn recommend_batch(node: &Arc<Node>, bytes: Bytes) -> Result<Answer, ApiError> {
    let RawRequests { requests } = parse(&bytes)?;
    let groups = requests
        .iter()
        .map(|entry| group_of(node, Call::Recommend, entry.get().as_bytes()));
    let shares = shares(groups, &requests, "requests")?;
    if shares.len() <= 1 {
        let group = shares.first().map_or(&node.partitions()[0], |s| s.group);
        return ask(node, group, Route::RecommendBatch, bytes.clone()).await;
    }
    let answers = ask_shares(node, &shares, "requests", Route::RecommendBatch).await?;
    let mut all: Vec<Option<Box<RawValue>>> = requests.iter().map(|_| None).collect();
    for (share, answer) in shares.iter().zip(answers) {
        let RawDecisions { decisions } =
            serde_json::from_slice(&answer).map_err(|_| ApiError::internal())?;
        for (&place, decision) in share.places.iter().zip(decisions) {
            all[place] = Some(decision);
        }
    }
    let decisions: Option<Vec<Box<RawValue>>> = all.into_iter().collect();
    let decisions = decisions.ok_or_else(ApiError::internal)?;
    Ok(json(&RawDecisions { decisions }))
}

#[derive(Deserialize)]
struct RawFeedback<'a> {
    #[serde(borrow)]
    feedback: Vec<&'a RawValue>,
}

/// A batch over several partitions is one round in each. If one of them refuses its part, the others may have
/// learned theirs; the batch can be repeated.
async fn feedback_batch(node: &Arc<Node>, bytes: Bytes) -> Result<Answer, ApiError> {
    let RawFeedback { feedback } = parse(&bytes)?;
    let groups = feedback
        .iter()
        .map(|entry| group_of(node, Call::Feedback, entry.get().as_bytes()));
    let shares = shares(groups, &feedback, "feedback")?;
    if shares.len() <= 1 {
        let group = shares.first().map_or(&node.partitions()[0], |s| s.group);
        return ask(node, group, Route::FeedbackBatch, bytes.clone()).await;
    }
    let answers = ask_shares(node, &shares, "feedback", Route::FeedbackBatch).await?;
    let mut applied = vec![false; feedback.len()];
    for (share, answer) in shares.iter().zip(answers) {
        #[derive(Deserialize)]
        struct Applied {
            applied: Vec<bool>,
        }
        let part: Applied = serde_json::from_slice(&answer).map_err(|_| ApiError::internal())?;
        for (&place, is_new) in share.places.iter().zip(part.applied) {
            applied[place] = is_new;
        }
    }
    Ok(json(&super::model::FeedbackBatchResponse { applied }))
}

/// Asks the groups of a batch at the same time. Returns the bodies of their answers, or the first error.
async fn ask_shares(
    node: &Arc<Node>,
    shares: &[Share<'_>],
    list: &str,
    route: Route,
) -> Result<Vec<Bytes>, ApiError> {
    let asked = shares.iter().map(|share| {
        let entries: Vec<&str> = share.entries.iter().map(|entry| entry.get()).collect();
        let part = format!("{{\"{list}\":[{}]}}", entries.join(","));
        ask(node, share.group, route.clone(), part.into())
    });
    let answers = futures_util::future::join_all(asked).await;
    let mut bodies = Vec::with_capacity(answers.len());
    for (share, answer) in shares.iter().zip(answers) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => error.into_response(),
        };
        let answer = whole(answer).await;
        if answer.status >= 400 {
            return Err(of_whole_batch(&answer, share, list));
        }
        bodies.push(answer.body.into());
    }
    Ok(bodies)
}

/// The error of a share, with the places that its entries have in the batch.
fn of_whole_batch(answer: &HttpAnswer, share: &Share<'_>, list: &str) -> ApiError {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let Ok(ErrorBody { error }) = serde_json::from_slice(&answer.body) else {
        return ApiError::internal();
    };
    // Codes are names in the program.
    let code: &'static str = match error.code {
        Cow::Borrowed(code) => code,
        Cow::Owned(code) => known_code(&code),
    };
    let mut own = ApiError::new(status, code, error.message);
    own.retry_after = answer.retry_after;
    own.field = error
        .field
        .map(|field| moved_field(&field, share, list).into());
    own
}

fn known_code(code: &str) -> &'static str {
    const CODES: [&str; 16] = [
        "bad_json",
        "unknown_decision",
        "unknown_item",
        "unknown_user",
        "expired",
        "forgotten",
        "invalid",
        "begun",
        "answered",
        "other_copy",
        "unknown_outcome",
        "read_only",
        "overloaded",
        "moved",
        "too_large",
        "internal",
    ];
    let known = CODES.iter().copied().find(|known| *known == code);
    known.unwrap_or("internal")
}

/// `feedback[1].reward` of a share is, say, `feedback[7].reward` of the batch. A share of one entry has no place.
fn moved_field(field: &str, share: &Share<'_>, list: &str) -> String {
    let rest = field
        .strip_prefix(list)
        .and_then(|rest| rest.strip_prefix('['));
    let parsed = rest.and_then(|rest| {
        let (place, rest) = rest.split_once(']')?;
        Some((place.parse::<usize>().ok()?, rest))
    });
    match parsed {
        Some((place, rest)) => {
            let place = share.places.get(place).copied().unwrap_or(place);
            format!("{list}[{place}]{rest}")
        }
        None => match share.places[..] {
            [place] => format!("{list}[{place}].{field}"),
            _ => field.to_owned(),
        },
    }
}

/// Writes items through the owner of the catalogue, and waits until this node has them.
pub(super) async fn upsert(
    node: &Arc<Node>,
    items: Vec<crate::event::Item>,
) -> Result<usize, ApiError> {
    let group = node.catalogue();
    let call = GroupCall::Upsert(items);
    let clock = &node.env.clock;
    let begun = clock.monotonic();
    let (changed, position) = loop {
        let answer = node.ask_owner(group, call.clone(), ATTEMPT_MS).await;
        match answer {
            Some(GroupAnswer::Changed(changed, position)) => break (changed, position),
            Some(GroupAnswer::Http(answer)) => {
                let share = Share {
                    group,
                    places: Vec::new(),
                    entries: Vec::new(),
                };
                return Err(of_whole_batch(&answer, &share, "items"));
            }
            Some(GroupAnswer::Failed(_)) => return Err(ApiError::internal()),
            _ => {}
        }
        if clock.monotonic() - begun >= DEADLINE {
            return Err(ApiError::moved(
                "the owner of the catalogue does not answer; retry",
            ));
        }
        clock.sleep(RETRY).await;
    };
    while clock.monotonic() - begun < DEADLINE {
        let app = group.app();
        let engine = app.as_ref().and_then(|app| app.engine());
        if engine.is_some_and(|engine| engine.state().position() >= position) {
            break;
        }
        clock.sleep(2).await;
    }
    Ok(changed as usize)
}

fn catalogue_dim(node: &Node) -> Option<usize> {
    let app = node.catalogue().app();
    let engine = app.as_ref().and_then(|app| app.engine());
    engine.and_then(|engine| engine.state().dim())
}

/// Asks every partition, and returns the answers by name. The first error is the answer.
async fn ask_all(
    node: &Arc<Node>,
    route: &Route,
) -> Result<std::collections::BTreeMap<String, serde_json::Value>, ApiError> {
    let asked = node.groups().iter().map(|group| async move {
        let answer = ask(node, group, route.clone(), Bytes::new()).await?;
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
async fn compact(node: &Arc<Node>) -> Result<Answer, ApiError> {
    let members = Members::read(&*node.bus);
    let mut unconfirmed: Vec<String> = members
        .registered
        .iter()
        .filter(|name| members.get(name).is_none())
        .cloned()
        .collect();
    let mut total = super::model::CompactResponse {
        events: 0,
        dropped: 0,
        bytes_before: 0,
        bytes_after: 0,
        unconfirmed: Vec::new(),
    };
    for group in node.groups() {
        let result = ask_group(node, group, &GroupCall::Compact).await?;
        let decoded: Option<(Compacted, Vec<(String, u64)>)> = decode(&result);
        let (done, users) = decoded.ok_or_else(ApiError::internal)?;
        total.events += done.events;
        total.dropped += done.dropped;
        total.bytes_before += done.bytes_before;
        total.bytes_after += done.bytes_after;
        for member in &members.members {
            let call = NodeCall::Forget {
                group: group.name.clone(),
                users: users.clone(),
            };
            let done = match member.name == node.name {
                true => execute_on_node(node, call).await,
                false => ask_node(node, &member.name, &call).await,
            };
            match done {
                Ok(dropped) => total.dropped += dropped,
                Err(reason) => {
                    tracing::warn!(
                        node = member.name,
                        group = group.name,
                        reason,
                        "not compacted"
                    );
                    if !unconfirmed.contains(&member.name) {
                        unconfirmed.push(member.name.clone());
                    }
                }
            }
        }
    }
    total.unconfirmed = unconfirmed;
    Ok(json(&total))
}

/// Asks the owner of a group. Waits while the group moves.
async fn ask_group(
    node: &Arc<Node>,
    group: &Arc<Group>,
    call: &GroupCall,
) -> Result<Vec<u8>, ApiError> {
    let clock = &node.env.clock;
    let begun = clock.monotonic();
    loop {
        let answer = node.ask_owner(group, call.clone(), LONG_MS).await;
        match answer {
            Some(GroupAnswer::Result(result, _)) => return Ok(result),
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
async fn state(node: &Arc<Node>, route: &Route) -> Result<Answer, ApiError> {
    let mut parts = ask_all(node, route).await?;
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

/// A node, and a group of a cluster.
#[derive(Debug, Serialize)]
pub(super) struct NodeList {
    node: String,
    nodes: Vec<crate::cluster::members::Member>,
    owners: std::collections::BTreeMap<String, String>,
    drained: Vec<String>,
    partitions: usize,
    /// The last changes of owners that this node has seen, the newest first.
    moves: Vec<Move>,
    /// The state of each group that this node follows or owns.
    #[serde(skip_serializing_if = "Option::is_none")]
    hashes: Option<std::collections::BTreeMap<String, GroupHash>>,
}

/// The state of a group on one node.
#[derive(Debug, Serialize)]
struct GroupHash {
    is_leading: bool,
    /// The last batch.
    position: u64,
    hash: String,
}

/// The states of the groups that a node follows or owns. This takes time with many users.
async fn hashes(
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
#[utoipa::path(get, path = "/v1/nodes", tag = "look", responses(
    (status = 200, body = serde_json::Value, description = "The nodes"),
    (status = 404, body = ErrorBody, description = "The server is not part of a cluster")))]
pub(super) async fn nodes() -> ApiError {
    ApiError::unknown("unknown_path", "this server is not part of a cluster")
}

/// The metrics of a node.
fn metrics(node: &Node) -> Answer {
    node.count();
    let mut answer = Response::new(Body::from(node.meters.render()));
    let name = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, name);
    answer
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let code = after
            .get(..2)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let code = code.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (byte, code) {
            (b'%', Some(code)) => {
                bytes.push(code);
                rest = &after[2..];
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
