//! Any node answers any request: a request is handed to the owner of the group that it is about.
//!
//! Each group of a node has an [`App`] with the group's engine, and every handler works on it as on a single server.
//! [`spread`] finds the group, or the groups of a batch.

mod all;
mod batch;

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
use serde::Deserialize;
use tower::ServiceExt;

pub(super) use all::{__path_nodes, nodes};
use all::{ask_all, compact, hashes, metrics, node_list, state};
use batch::{Share, feedback_batch, of_whole_batch, recommend_batch};

use super::{Answer, App, Routes, Shared, body, calls, items, json, parse};
use crate::cluster::Node;
use crate::cluster::call::{GroupAnswer, GroupCall, HttpAnswer, HttpCall, Route};
use crate::cluster::node::Group;
use crate::decision::{DecisionContents, Sealer};
use crate::edge::{ApiError, Closing};
use crate::engine::{Engine, Refusal};
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
