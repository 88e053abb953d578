//! Any node answers any request: a request is handed to the owner of the group that it is about.
//!
//! Each group of a node has an [`App`] with the group's engine, and every handler works on it as on a single server.
//! [`spread`] finds the group, or the groups of a batch.

mod all;
mod batch;
mod figures;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Query, Request, State};
use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use axum::http::{Method, Response, StatusCode};
use axum::middleware::Next;
use axum::response::IntoResponse;
use http_body_util::BodyExt;
use serde::Deserialize;
use tower::ServiceExt;

pub(super) use all::{__path_nodes, nodes};
use all::{ask_all, compact, hashes, metrics, node_list, state};
use batch::{Share, error_of, feedback_batch, is_idle_round, of_whole_batch, recommend_batch};

use super::items::parsed_query;
use super::query::StateQuery;
use super::scalars::GivenId;
use super::{Answer, App, Routes, Shared, body, calls, id_not_utf8, items, json, parse};
use crate::cluster::call::{GroupAnswer, GroupCall, HttpAnswer, HttpCall, Route};
use crate::cluster::node::Group;
use crate::cluster::{Node, Unanswered};
use crate::decision::{DecisionContents, Sealer};
use crate::edge::error::ErrorCode;
use crate::edge::serve::forwarded;
use crate::edge::{ApiError, Closing};
use crate::engine::{Engine, Refusal};
use crate::meters::Call;

/// The milliseconds for which a request waits for an owner: a takeover takes the length of a lease and a second.
const DEADLINE: u64 = crate::cluster::TTL + 3_000;
/// The milliseconds after which a request is answered in any case.
const LIMIT: u64 = crate::cluster::TTL + 4_000;
/// The milliseconds for which one attempt waits for its answer. Then the owner may be another one.
const ATTEMPT_MS: u64 = 1_500;
/// The milliseconds for which a compaction, a snapshot or a hash of the state may take.
const LONG_MS: u64 = 600_000;
/// The milliseconds between the first two attempts, and the maximum between later ones.
const RETRY: u64 = 15;
const MAX_RETRY: u64 = 100;
/// The maximum length of a message to another node, without the body of the request.
const MAX_ENVELOPE: usize = 4 << 10;

/// The code of the error for a write that may have been executed.
const UNKNOWN_OUTCOME: &str = "unknown_outcome";

/// In a cluster, hands a request to the owner of its group. On a single server it does nothing.
pub(super) async fn spread(State(app): State<Shared>, request: Request, next: Next) -> Answer {
    let Some(node) = app.node().map(Arc::clone) else {
        return next.run(request).await;
    };
    answer(&app, node, request)
        .await
        .unwrap_or_else(IntoResponse::into_response)
}

async fn answer(app: &Shared, node: Arc<Node>, mut request: Request) -> Result<Answer, ApiError> {
    // The answer to HEAD is that to GET, without the body, which the router drops.
    if request.method() == Method::HEAD {
        *request.method_mut() = Method::GET;
    }
    let path = request.uri().path().to_owned();
    let method = request.method().clone();
    let query = request.uri().query().map(|query| format!("?{query}"));
    let target = format!("{path}{}", query.unwrap_or_default());
    let route = Route::Other(method.to_string(), target);
    let nothing = Bytes::new();
    match path.as_str() {
        "/v1/nodes" => {
            let query = parsed_query(Query::<StateQuery>::try_from_uri(request.uri()))?;
            let mut list = node_list(&node);
            if query.hash == Some(true) {
                list.hashes = Some(hashes(&node).await?);
            }
            Ok(json(&list))
        }
        "/v1/state" => {
            let manner = match request.uri().query() {
                Some(query) if query.contains("hash") => Manner::Long,
                _ => Manner::Repeat,
            };
            state(&node, &route, manner).await
        }
        "/metrics" => Ok(metrics(app, &node)),
        "/v1/items" if method == Method::PUT => {
            let (head, sent) = request.into_parts();
            let dim = catalogue_dim(&node);
            let to = items::Target::Cluster(&node);
            items::put_into(app, &head.headers, sent, dim, to).await
        }
        "/v1/items" if method == Method::GET => {
            let query = Query::try_from_uri(request.uri());
            figures::items_page(&node, parsed_query(query)?).await
        }
        _ if method == Method::GET && path.starts_with("/v1/items") => {
            let catalogue = node.catalogue().app().ok_or_else(starting)?;
            Ok(inner(&catalogue, request).await)
        }
        _ if path.starts_with("/v1/items") => {
            let bytes = body_of(app, &method, request).await?;
            ask(&node, node.catalogue(), route, bytes).await
        }
        _ if path.starts_with("/v1/users/") => {
            let rest = path.trim_start_matches("/v1/users/");
            let (id, rest) = rest.split_once('/').unwrap_or((rest, ""));
            let id = percent_decoded(id).ok_or_else(id_not_utf8)?;
            if rest == "recent" {
                return figures::recent_of_all(&node, id).await;
            }
            ask(&node, node.group_of(&id), route, nothing).await
        }
        _ if path.starts_with("/v1/experiments") => Err(ApiError::new(
            StatusCode::NOT_IMPLEMENTED,
            "unsupported",
            "experiments are not supported in a cluster; use a single server",
        )),
        "/v1/admin/snapshot" => Ok(json(&ask_all(&node, &route, Manner::Long).await?)),
        "/v1/admin/compact" => compact(&node).await,
        "/v1/admin/export" => Ok(super::admin::export_cluster(node)),
        "/v1/admin/backup" => Err(ApiError::new(
            StatusCode::NOT_IMPLEMENTED,
            "unsupported",
            "a node has no backup of the cluster; use 'sclub cluster backup'",
        )),
        // A node has figures of its own requests.
        "/v1/timeline" => Ok(inner(app, request).await),
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
    match *method == Method::POST || *method == Method::PATCH {
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
    // Without the parameters of the path that the first router has found: there would be two of each.
    let uri = request.uri().clone();
    router
        .oneshot(forwarded(request, uri))
        .await
        .unwrap_or_else(|error| match error {})
}

/// The group that a request is about.
fn group_of<'a>(node: &'a Node, call: Call, bytes: &[u8]) -> Result<&'a Arc<Group>, ApiError> {
    #[derive(Deserialize)]
    struct OfUser<'a> {
        #[serde(borrow)]
        user: GivenId<'a>,
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

/// The way in which an owner is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// The call is repeated until there is an answer.
    Repeat,
    /// The call is not repeated if it may have been executed.
    Once,
    /// As `Repeat`, and the owner may take long for it.
    Long,
}

impl Manner {
    /// The milliseconds for which one attempt waits for its answer, and those after which a request is answered in any
    /// case.
    fn limits(self) -> (u64, u64) {
        match self {
            Manner::Repeat | Manner::Once => (ATTEMPT_MS, LIMIT),
            Manner::Long => (LONG_MS, LONG_MS),
        }
    }
}

/// The pauses between attempts, in milliseconds: each is longer than the one before.
struct Pauses(u64);

impl Pauses {
    fn new() -> Self {
        Self(RETRY)
    }

    fn next(&mut self) -> u64 {
        let pause = self.0;
        self.0 = (pause * 3 / 2).min(MAX_RETRY);
        pause
    }
}

/// Asks the owner of a group, which may be this node. Waits while the group moves.
async fn ask(
    node: &Arc<Node>,
    group: &Arc<Group>,
    route: Route,
    bytes: Bytes,
) -> Result<Answer, ApiError> {
    ask_as(node, group, route, bytes, Manner::Repeat).await
}

/// As [`ask`], in a manner.
async fn ask_as(
    node: &Arc<Node>,
    group: &Arc<Group>,
    route: Route,
    bytes: Bytes,
    manner: Manner,
) -> Result<Answer, ApiError> {
    check_length(node, bytes.len())?;
    let can_be_stale = route.is_read();
    let is_once = manner == Manner::Once;
    let (attempt, limit) = manner.limits();
    let clock = &node.env.clock;
    let begun = clock.monotonic();
    let mut pauses = Pauses::new();
    // The batch of the catalogue that the owner must have read.
    let mut catalogue = 0;
    loop {
        let left = limit.saturating_sub(clock.monotonic() - begun);
        // Not held while another node is asked: the group could not be closed and opened again meanwhile.
        let own = group.app().filter(|_| node.owns(group));
        if let Some(app) = own {
            let answered = async {
                let has_read = node.has_catalogue_until(catalogue, attempt).await;
                match has_read {
                    true => Some(answer_local(&app, &route, bytes.clone()).await),
                    false => None,
                }
            };
            let answered = tokio::select! {
                biased;
                answered = answered => answered,
                () = clock.sleep(left) => None,
            };
            match answered {
                Some(Err(error)) if is_once && is_unknown(&error) => return Err(unknown_once()),
                Some(Err(error)) if is_moving(&error) || !node.owns(group) => {}
                Some(Ok(answer)) if answer.status().as_u16() >= 500 && !node.owns(group) => {}
                Some(Err(error)) if can_be_stale && catalogue == 0 && lacks_items(&error) => {
                    match node.last_catalogue_batch().await {
                        Some(last) if last > 0 => catalogue = last,
                        _ => return Err(error),
                    }
                    continue;
                }
                Some(Ok(answer))
                    if can_be_stale
                        && catalogue == 0
                        && answer.extensions().get::<calls::NamesMissing>().is_some() =>
                {
                    match node.last_catalogue_batch().await {
                        Some(last) if last > 0 => catalogue = last,
                        _ => return Ok(answer),
                    }
                    continue;
                }
                Some(answered) => return answered,
                None if is_once => return Err(unknown_once()),
                // It waits behind a write that takes long.
                None => {}
            }
        } else {
            let call = GroupCall::Http(HttpCall {
                route: route.clone(),
                body: bytes.to_vec(),
                catalogue,
            });
            let sent = Instant::now();
            match node.try_owner(group, call, attempt.min(left)).await {
                Ok(GroupAnswer::Http(answer)) => {
                    node.meters.forwarded(sent.elapsed());
                    if can_be_stale
                        && catalogue == 0
                        && (names_missing(&answer)
                            || error_of(&answer).is_some_and(|error| lacks_items(&error)))
                        && let Some(last) = node.last_catalogue_batch().await
                        && last > 0
                    {
                        catalogue = last;
                        continue;
                    }
                    return Ok(response(answer));
                }
                Ok(GroupAnswer::Failed(reason)) => {
                    tracing::error!(group = group.name, reason, "a forwarded request failed");
                    return Err(ApiError::internal());
                }
                Err(Unanswered::Unknown) if is_once => return Err(unknown_once()),
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
        clock.sleep(pauses.next()).await;
    }
}

/// Checks that another node can be sent a body of this length. The answer is the same if this node owns the group.
fn check_length(node: &Node, length: usize) -> Result<(), ApiError> {
    let max = node.bus.max_message().saturating_sub(MAX_ENVELOPE);
    if length <= max {
        return Ok(());
    }
    let message = format!(
        "the body, or its part for one partition, has {length} bytes; nodes can send each other at most {max}; send \
         it in several requests"
    );
    Err(ApiError::too_large(message))
}

/// Returns true if the reason of an error may be that the owner has not read the end of the catalogue: an item was put
/// through another node just now.
fn lacks_items(error: &ApiError) -> bool {
    matches!(error.code, "unknown_item" | "no_candidates")
}

/// Returns true if an answer names missing candidates, or has an entry without candidates. Quotes in strings are escaped, so
/// the names cannot be in one.
fn names_missing(answer: &HttpAnswer) -> bool {
    let has = |name: &[u8]| answer.body.windows(name.len()).any(|part| part == name);
    answer.status < 400 && (has(b"\"missing\":[") || has(b"\"code\":\"no_candidates\""))
}

fn is_unknown(error: &ApiError) -> bool {
    error.code == UNKNOWN_OUTCOME
}

/// The answer to a call that must not be repeated, if its outcome is not known.
fn unknown_once() -> ApiError {
    let message =
        "it is not known whether the round was logged; if it is sent again, it may count twice";
    ApiError::new(StatusCode::GATEWAY_TIMEOUT, UNKNOWN_OUTCOME, message)
}

/// Returns true if an error may be gone after a moment, on this node or another.
fn is_moving(error: &ApiError) -> bool {
    error.code == "moved" || is_unknown(error)
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
    let (route, body) = (call.route, Bytes::from(call.body));
    match answer_local(app, &route, body.clone()).await {
        Err(error) if is_unknown(&error) && is_idle_round(&route, &body) => {
            Some(error_answer(error).await)
        }
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
        warning: header(calls::WARNING),
        body: body
            .map(|body| body.to_bytes().to_vec())
            .unwrap_or_default(),
    }
}

fn response(answer: HttpAnswer) -> Answer {
    let error = error_of(&answer);
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(value) = HeaderValue::from_str(&answer.content_type) {
        response.headers_mut().insert(CONTENT_TYPE, value);
    }
    if let Some(error) = error {
        response
            .extensions_mut()
            .insert(ErrorCode(error.code.into()));
    }
    if let Some(seconds) = answer.retry_after {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    let warning = answer.warning.map(HeaderValue::try_from);
    if let Some(Ok(value)) = warning {
        response.headers_mut().insert(calls::WARNING, value);
    }
    response
}

/// Writes items through the owner of the catalogue, and waits until this node has them.
pub(super) async fn upsert(
    node: &Arc<Node>,
    items: Vec<crate::event::DescribedItem>,
) -> Result<usize, ApiError> {
    let group = node.catalogue();
    let call = GroupCall::Upsert(items);
    let clock = &node.env.clock;
    let begun = clock.monotonic();
    let mut pauses = Pauses::new();
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
        clock.sleep(pauses.next()).await;
    };
    let left = DEADLINE.saturating_sub(clock.monotonic() - begun);
    node.has_catalogue_until(position, left).await;
    Ok(changed as usize)
}

fn catalogue_dim(node: &Node) -> Option<usize> {
    let app = node.catalogue().app();
    let engine = app.as_ref().and_then(|app| app.engine());
    engine.and_then(|engine| engine.state().dim())
}

/// An id of a path as the router decodes it; `None` if it is not UTF-8.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let code = after
            .get(..2)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        // A sign is not a digit.
        let code = code.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
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
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_decoded_as_the_router_does_it() {
        for (path, id) in [
            ("a", "a"),
            ("%41%c3%A9", "Aé"),
            ("%2541", "%41"),
            ("100%", "100%"),
            ("%+1", "%+1"),
            ("%zz%4", "%zz%4"),
        ] {
            assert_eq!(percent_decoded(path).as_deref(), Some(id), "{path}");
        }
        assert_eq!(percent_decoded("%ff"), None);
    }
}
