//! The HTTP API.

mod admin;
mod blocking;
mod calls;
mod cluster;
mod experiments;
pub mod explain;
mod figures;
mod items;
mod look;
pub mod model;
mod openapi;
mod pages;
pub mod query;
mod raw_items;
mod route;
mod scalars;
mod spaces;
mod stream;
mod wrong_json;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::http::request::Parts;
use axum::http::{Method, Response, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

pub use admin::MISSING_NODES;
pub(crate) use cluster::{answer_call, error_answer};
pub use items::item_line;
pub use openapi::document;
pub use route::route_of;
pub use spaces::{no_spaces, with_spaces};
pub use wrong_json::plain;

use blocking::{Permits, Work, run_blocking};
use wrong_json::wrong_json;

use crate::cluster::Node;
use crate::edge::body::{check_json, whole};
use crate::edge::error::{ErrorCounts, with_fallbacks};
use crate::edge::keys::DEFAULT_SPACE;
use crate::edge::{ApiError, Guard, Role};
use crate::engine::{Engine, FoldError, Refusal};
use crate::locks::lock;
use crate::meters::{Call, Meters, open_process_files, process_metrics};
use crate::settings::Settings;
use crate::spaces::{Spaces, Turns};
use crate::store::StoreError;
use crate::timeline::Timeline;
use crate::traces::span_metrics;

/// The data that all handlers share.
#[derive(Debug)]
pub struct App {
    settings: Settings,
    engine: OnceLock<Engine>,
    /// The node, in a cluster. Then the groups of the node have applications with engines, and this one has none.
    node: OnceLock<Arc<Node>>,
    started: Instant,
    /// The summary of the last second, as it is sent to listeners.
    second: watch::Sender<Bytes>,
    /// True once the space is closed.
    is_ended: watch::Sender<bool>,
    /// Figures over time. The counts of items are in the engine.
    timeline: Mutex<Timeline>,
    /// Held while they are written.
    saving_figures: Mutex<()>,
    permits: Permits,
    /// The name of the space, if it is not the default one.
    space: Option<Arc<str>>,
    /// The turns of the space, if the server can have several.
    turns: Option<Turns>,
    /// The reason why the engine cannot be opened.
    failure: OnceLock<String>,
    /// The spaces of the server. Only the application of the default space has them.
    spaces: OnceLock<Weak<Spaces>>,
    /// The counts of error answers. Only the application of the default space, or of a node, has them.
    errors: OnceLock<Arc<ErrorCounts>>,
    /// The OpenAPI description, once it was asked for, and the number of features that it has; `None` if nothing was known.
    descriptions: Mutex<BTreeMap<Option<Option<usize>>, Bytes>>,
}

type Shared = Arc<App>;
type Answer = Response<Body>;

impl App {
    /// The data before the engine is open.
    pub fn new(settings: Settings) -> Arc<Self> {
        Arc::new(Self::build(settings))
    }

    /// Like [`App::new`], for a space of a server that can have several.
    pub fn of_space(settings: Settings, name: &str, turns: Turns) -> Arc<Self> {
        Arc::new(Self {
            space: (name != DEFAULT_SPACE).then(|| name.into()),
            turns: Some(turns),
            ..Self::build(settings)
        })
    }

    fn build(settings: Settings) -> Self {
        Self {
            settings,
            engine: OnceLock::new(),
            node: OnceLock::new(),
            started: Instant::now(),
            second: watch::channel(Bytes::new()).0,
            is_ended: watch::channel(false).0,
            timeline: Mutex::default(),
            saving_figures: Mutex::default(),
            permits: Permits::new(),
            space: None,
            turns: None,
            failure: OnceLock::new(),
            spaces: OnceLock::new(),
            errors: OnceLock::new(),
            descriptions: Mutex::default(),
        }
    }

    /// Ends the streams of listeners.
    pub fn end_streams(&self) {
        self.is_ended.send_replace(true);
    }

    /// Sets the reason why the engine cannot be opened. Requests are answered with it from now on.
    pub fn fail(&self, reason: String) {
        // This is called once only.
        let _ = self.failure.set(reason);
    }

    /// The reason why the engine cannot be opened.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Sets the spaces of the server.
    pub fn know_spaces(&self, spaces: &Arc<Spaces>) {
        // This is called once only.
        let _ = self.spaces.set(Arc::downgrade(spaces));
    }

    /// Sets the engine. Requests are answered from now on.
    pub fn begin(&self, engine: Engine) {
        // No figures are written before those of the last run are read.
        let _loading = lock(&self.saving_figures);
        // This is called once only.
        let _ = self.engine.set(engine);
        self.load_figures();
    }

    /// Sets the node. Requests are answered by the cluster from now on.
    pub fn join(&self, node: Arc<Node>) {
        let _loading = lock(&self.saving_figures);
        // This is called once only.
        let _ = self.node.set(node);
        self.load_figures();
    }

    /// The node, in a cluster.
    pub fn node(&self) -> Option<&Arc<Node>> {
        self.node.get()
    }

    /// The settings of the server.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The engine, if it is open.
    pub fn engine(&self) -> Option<&Engine> {
        self.engine.get()
    }

    /// The metrics, once there are any.
    pub fn meters(&self) -> Option<&Meters> {
        let engine = self.engine().map(Engine::meters);
        engine.or_else(|| self.node().map(|node| &*node.meters))
    }

    fn ready(&self) -> Result<&Engine, ApiError> {
        self.engine.get().ok_or_else(|| match self.failure() {
            Some(reason) => ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "broken",
                format!("the space cannot be opened: {reason}"),
            ),
            None => ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "starting",
                "the server is reading its log",
            )
            .retry_after(1),
        })
    }

    /// Sets the counts of error answers of the server, and counts requests that are refused before they are routed. Called at
    /// the start of a server.
    pub fn know_errors(self: &Arc<Self>, errors: Arc<ErrorCounts>) {
        open_process_files();
        let app = Arc::downgrade(self);
        errors.on_unrouted(move |path| {
            if let Some(app) = app.upgrade() {
                app.refused_outside(path);
            }
        });
        // This is called once only.
        let _ = self.errors.set(errors);
    }

    /// Counts a request that was refused before it was routed to its space. All of them count in the default space: nobody
    /// without a key of another space touches its metrics.
    fn refused_outside(&self, path: &str) {
        let in_space = path
            .strip_prefix("/v1/spaces/")
            .and_then(|rest| rest.split_once('/'));
        match (in_space, path.strip_prefix("/v1/")) {
            (Some((_, call)), _) | (None, Some(call)) => self.refused(call),
            (None, None) if path == "/metrics" => self.refused("metrics"),
            (None, None) => {}
        }
    }

    /// Counts a request of this space that did not reach its handler. `call` is the path behind `/v1/`, or that of the space.
    fn refused(&self, call: &str) {
        if let Some(meters) = self.meters() {
            meters.refused(match call {
                "recommend" => Call::Recommend,
                "recommend/batch" => Call::RecommendBatch,
                "feedback" => Call::Feedback,
                "feedback/batch" => Call::FeedbackBatch,
                _ => Call::Other,
            });
        }
    }

    /// The metrics of the server as a whole, in Prometheus' text format.
    fn server_metrics(&self) -> String {
        let errors = self.errors.get();
        let errors = errors.map(|errors| errors.render() + &errors.connections.render());
        errors.unwrap_or_default() + &span_metrics() + &process_metrics(&self.settings.data)
    }

    /// Adds what has happened since the last call to the figures over time. Returns a summary, once there is an engine.
    fn count_second(&self) -> Option<model::SecondCard> {
        let (card, second) = match (self.engine(), self.node()) {
            (Some(engine), _) => stream::second(engine),
            (None, Some(node)) => stream::second_of_node(node),
            (None, None) => return None,
        };
        lock(&self.timeline).add(card.at, &second, card.users, card.clusters);
        Some(card)
    }

    /// Writes the figures of a server that stops, with those of its last second. Blocks.
    pub fn save_last_figures(&self) {
        self.count_second();
        self.save_figures();
    }

    /// Summarizes each second for listeners and for the figures over time, for as long as the runtime lives.
    pub async fn count_seconds(self: Arc<Self>) {
        let mut every = tokio::time::interval(Duration::from_secs(1));
        for tick in 0u64.. {
            every.tick().await;
            let Some(card) = self.count_second() else {
                continue;
            };
            if tick % figures::SECONDS_PER_WRITE == figures::SECONDS_PER_WRITE - 1 {
                let (app, minute) = (Arc::clone(&self), tick / figures::SECONDS_PER_WRITE);
                tokio::task::spawn_blocking(move || app.save_figures_at(minute));
            }
            self.second.send_replace(stream::event("state", &card));
        }
    }
}

/// The routes of each role.
struct Routes {
    read: Router<Shared>,
    /// The calls of an application, which have metrics of their own.
    calls: Router<Shared>,
    items: Router<Shared>,
    admin: Router<Shared>,
}

impl Routes {
    fn new() -> Self {
        Self {
            read: Router::new()
                .route("/v1/items", get(items::list))
                .route("/v1/items/{id}", get(items::show))
                .route("/v1/users/{id}", get(look::user))
                .route("/v1/users/{id}/preview", get(figures::preview))
                .route("/v1/users/{id}/recent", get(figures::recent))
                .route("/v1/clusters", get(look::clusters))
                .route("/v1/clusters/{id}", get(look::cluster))
                .route("/v1/history", get(look::history))
                .route("/v1/state", get(look::state))
                .route("/v1/timeline", get(figures::timeline))
                .route("/v1/experiments", get(experiments::list))
                .route("/v1/nodes", get(cluster::nodes))
                .route("/v1/stream", get(stream::listen))
                .route("/metrics", get(look::metrics)),
            calls: Router::new()
                .route("/v1/recommend", post(calls::recommend))
                .route("/v1/recommend/batch", post(calls::recommend_batch))
                .route("/v1/feedback", post(calls::feedback))
                .route("/v1/feedback/batch", post(calls::feedback_batch)),
            items: Router::new()
                .route("/v1/items", axum::routing::put(items::put))
                .route(
                    "/v1/items/{id}",
                    axum::routing::delete(items::remove).patch(items::patch),
                ),
            admin: Router::new()
                .route("/v1/users/{id}", axum::routing::delete(admin::forget))
                .route("/v1/experiments", post(experiments::start))
                .route("/v1/experiments/{name}/end", post(experiments::end))
                .route("/v1/admin/expect", post(admin::expect))
                .route("/v1/admin/compact", post(admin::compact))
                .route("/v1/admin/snapshot", post(admin::snapshot))
                .route("/v1/admin/backup", get(admin::backup))
                .route("/v1/admin/export", get(admin::export)),
        }
    }

    /// All routes, without roles.
    fn merge(self) -> Router<Shared> {
        let Self {
            read,
            calls,
            items,
            admin,
        } = self;
        read.merge(calls).merge(items).merge(admin)
    }
}

/// The router with every path of the service.
pub fn router(app: Arc<App>, guard: &Guard) -> Router {
    let spread = from_fn_with_state(Arc::clone(&app), cluster::spread);
    let mut routes = Routes::new();
    // The calls of an application look for a cluster themselves: that is faster.
    for part in [&mut routes.read, &mut routes.items, &mut routes.admin] {
        *part = std::mem::take(part).route_layer(spread.clone());
    }
    let open = Router::new()
        .route("/healthz", get(look::healthz))
        .route("/readyz", get(look::readyz))
        .merge(pages::routes(guard));
    let counted = from_fn_with_state(Arc::clone(&app), counted);
    // The calls of an application count themselves, too.
    let refused = {
        let app = Arc::clone(&app);
        Arc::new(move |request: &Request| app.refused_outside(request.uri().path()))
    };
    let others = guard
        .protect(Role::Read, routes.read)
        .merge(guard.protect(Role::Write, routes.items))
        .merge(guard.protect(Role::Admin, routes.admin))
        .route_layer(counted);
    let router =
        open.merge(others)
            .merge(guard.protect_counted(Role::Write, routes.calls, refused));
    let turns = app.turns.clone();
    let router = with_fallbacks(router).with_state(app);
    match turns {
        Some(turns) => router.layer(turns),
        None => router,
    }
}

/// The pattern of the route for a method and a path, if the route needs the admin role, and the name of its space. For
/// requests that are refused before they are routed.
pub fn admin_route<'a>(method: &Method, path: &'a str) -> Option<(&'static str, Option<&'a str>)> {
    let rest = path.strip_prefix("/v1/")?;
    let Some(rest) = rest.strip_prefix("spaces/") else {
        return admin_route_of_space(method, rest).map(|route| (route, Some(DEFAULT_SPACE)));
    };
    let (space, rest) = rest.split_once('/').unwrap_or((rest, ""));
    let is_change = method == Method::PUT || method == Method::DELETE;
    let route = match rest {
        "" => is_change.then_some(spaces::ONE),
        rest => admin_route_of_space(method, rest),
    };
    route.map(|route| (route, Some(space)))
}

/// The pattern of the route for a path behind `/v1/`, or behind that of a space.
fn admin_route_of_space(method: &Method, rest: &str) -> Option<&'static str> {
    if let Some(id) = rest.strip_prefix("users/") {
        let is_one = !id.is_empty() && !id.contains('/');
        return (is_one && method == Method::DELETE).then_some("/v1/users/{id}");
    }
    let is_get = method == Method::GET || method == Method::HEAD;
    let is_post = method == Method::POST;
    if rest == "experiments" && is_post {
        return Some("/v1/experiments");
    }
    if let Some(rest) = rest.strip_prefix("experiments/") {
        let name = rest.strip_suffix("/end")?;
        let is_one = !name.is_empty() && !name.contains('/');
        return (is_one && is_post).then_some("/v1/experiments/{name}/end");
    }
    match rest.strip_prefix("admin/")? {
        "expect" if is_post => Some("/v1/admin/expect"),
        "compact" if is_post => Some("/v1/admin/compact"),
        "snapshot" if is_post => Some("/v1/admin/snapshot"),
        "backup" if is_get => Some("/v1/admin/backup"),
        "export" if is_get => Some("/v1/admin/export"),
        _ => None,
    }
}

/// Handles bytes as every kind of request body. It must never panic. For fuzzing.
#[doc(hidden)]
pub fn probe(app: &App, bytes: &[u8]) {
    let Some(engine) = app.engine() else { return };
    calls::probe(app, engine, bytes);
    let line = crate::edge::body::Line {
        number: 1,
        bytes: Bytes::copy_from_slice(bytes),
    };
    let _ = items::read(app, &line);
    let _ = parse::<model::ExpectRequest>(bytes);
    let _ = parse::<experiments::ExperimentRequest>(bytes);
}

/// An answer in JSON.
fn json<T: Serialize>(value: &T) -> Answer {
    let body = serde_json::to_vec(value).expect("plain data");
    let mut answer = Response::new(Body::from(body));
    let name = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, name);
    answer
}

/// The body of a request, whole.
async fn body(app: &App, request: Request) -> Result<Bytes, ApiError> {
    let (head, body) = request.into_parts();
    check_json(&head.headers)?;
    whole(&head.headers, body, app.settings.max_body).await
}

/// Parses the body of a request.
fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(ApiError::bad_json(
            "the body is a list; it must be an object",
        ));
    }
    serde_json::from_slice(body).map_err(|error| wrong_json("the body is invalid", body, &error))
}

/// The id in the path.
struct Id(String);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        match path {
            Ok(Path(id)) => Ok(Self(id)),
            Err(_) => Err(id_not_utf8()),
        }
    }
}

fn id_not_utf8() -> ApiError {
    ApiError::invalid("id", "the id in the path is not UTF-8")
}

/// Records the count and the time of calls that have no metrics of their own.
async fn counted(State(app): State<Shared>, request: Request, next: Next) -> Answer {
    let begun = Instant::now();
    let answer = next.run(request).await;
    if let Some(meters) = app.meters() {
        let status = answer.status().as_u16();
        meters.answered(Call::Other, begun.elapsed(), status);
    }
    answer
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            Refusal::At(place, refusal) => {
                let error = ApiError::from(*refusal);
                match &error.field {
                    Some(field) => {
                        let field = format!("{place}.{field}");
                        error.field(field)
                    }
                    None => error.field(place),
                }
            }
            Refusal::UnknownDecision => {
                ApiError::unknown("unknown_decision", message).field("decision")
            }
            Refusal::Expired => ApiError::expired(message).field("decision"),
            Refusal::Forgotten => ApiError::forgotten(message).field("decision"),
            Refusal::UnknownItem { field, .. } => {
                ApiError::unknown("unknown_item", message).field(field)
            }
            Refusal::UnknownUser(_) => ApiError::unknown("unknown_user", message).field("user"),
            Refusal::UnknownCluster(_) => {
                ApiError::unknown("unknown_cluster", message).field("cluster")
            }
            Refusal::UnknownExperiment(_) => {
                ApiError::unknown("unknown_experiment", message).field("name")
            }
            Refusal::ExperimentRuns(_) => ApiError::conflict("experiment_runs", message),
            Refusal::Unsupported(_) => {
                ApiError::new(StatusCode::NOT_IMPLEMENTED, "unsupported", message)
            }
            Refusal::Invalid { field, .. } => ApiError::invalid(field, message),
            Refusal::NoCandidates { field, .. } => {
                ApiError::new(StatusCode::NOT_FOUND, "no_candidates", message).field(field)
            }
            Refusal::Begun(_) => ApiError::conflict("begun", message),
            Refusal::Answered => ApiError::conflict("answered", message).field("decision"),
            Refusal::OtherCopy => ApiError::conflict("other_copy", message).field("decision"),
            Refusal::Unknown(_) => {
                ApiError::new(StatusCode::GATEWAY_TIMEOUT, "unknown_outcome", message)
                    .retry_after(5)
            }
            Refusal::ReadOnly(_) => ApiError::read_only(message).retry_after(5),
            Refusal::TooLarge => ApiError::too_large(message),
            Refusal::Moved => ApiError::moved(message),
            Refusal::Overloaded | Refusal::Closing => ApiError::overloaded(message),
        }
    }
}

/// Logs an error of the store. The client gets no details.
fn store_failed(error: &StoreError) -> ApiError {
    tracing::error!(%error, "the store failed");
    match error {
        StoreError::Write { .. } => Refusal::from(error).into(),
        _ => ApiError::internal(),
    }
}

fn fold_failed(error: &FoldError) -> ApiError {
    match error {
        FoldError::Store(error) => store_failed(error),
        FoldError::Refused(refusal) => refusal.clone().into(),
        other => {
            tracing::error!(error = %other, "the log cannot be read");
            ApiError::internal()
        }
    }
}
