//! The stream of changes and of a summary each second.

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::Response;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use futures_util::stream;
use serde::Serialize;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use super::look::entry;
use super::model::SecondCard;
use super::{Answer, Shared};
use crate::cluster::Node;
use crate::edge::{ApiError, Closing};
use crate::engine::Engine;
use crate::meters::Summary;
use crate::state::{Record, Served};

/// Streams changes as they happen (`change`, each as in the history) and a summary once a second (`state`), as
/// server-sent events. A slow client misses changes; `missed` has their number.
#[utoipa::path(get, path = "/v1/stream", operation_id = "stream", tag = "look", responses(
    (status = 200, body = SecondCard, content_type = "text/event-stream", description = "Server-sent events")))]
pub(super) async fn listen(
    State(app): State<Shared>,
    closing: Closing,
) -> Result<Answer, ApiError> {
    let changes = app.ready()?.changes();
    Ok(follow(app, Some(changes), closing))
}

/// The stream, without changes on a node of a cluster.
pub(super) fn follow(
    app: Shared,
    changes: Option<broadcast::Receiver<Record>>,
    closing: Closing,
) -> Answer {
    let mut seconds = app.second.subscribe();
    if !seconds.borrow().is_empty() {
        seconds.mark_changed();
    }
    let listener = Listener {
        ended: app.is_ended.subscribe(),
        app,
        changes,
        seconds,
        closing,
    };
    let parts = stream::unfold(listener, |mut listener| async {
        let part = listener.next().await?;
        Some((Ok::<_, std::convert::Infallible>(part), listener))
    });
    let mut answer = Response::new(Body::from_stream(parts));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

struct Listener {
    app: Shared,
    changes: Option<broadcast::Receiver<Record>>,
    seconds: watch::Receiver<Bytes>,
    ended: watch::Receiver<bool>,
    closing: Closing,
}

impl Listener {
    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        let change = async {
            match &mut self.changes {
                Some(changes) => changes.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.closing.clone().wait() => None,
            _ = self.ended.wait_for(|ended| *ended) => None,
            change = change => match change {
                Ok(record) => {
                    let state = self.app.engine()?.state();
                    Some(event("change", &entry(&state, &record)))
                }
                Err(RecvError::Lagged(missed)) => Some(event("missed", &missed)),
                Err(RecvError::Closed) => None,
            },
            changed = self.seconds.changed() => {
                changed.ok()?;
                Some(self.seconds.borrow_and_update().clone())
            }
        }
    }
}

/// The summary of the last second, and its counts.
pub(super) fn second(engine: &Engine) -> (SecondCard, Summary) {
    engine.check_append();
    let summary = engine.meters().second();
    let milliseconds = |seconds: Option<f64>| seconds.map(|seconds| seconds * 1e3);
    let state = engine.state();
    let card = SecondCard {
        at: engine.now(),
        events: state.events(),
        rounds: state.rounds(),
        users: state.users().len() as u64,
        clusters: state.clusters(),
        singletons: state
            .policy()
            .map_or(0, |policy| policy.inspect().singletons()),
        items: state.catalogue().map_or(0, |catalogue| catalogue.len()) as u64,
        recommends_per_second: summary.recommends as f64,
        feedbacks_per_second: summary.feedbacks as f64,
        rewards_per_second: summary.rewards as f64,
        reward_rate: summary.reward_rate(),
        recommend_p50_ms: milliseconds(summary.recommend.quantile(0.5)),
        recommend_p99_ms: milliseconds(summary.recommend.quantile(0.99)),
        feedback_p99_ms: milliseconds(summary.feedback.quantile(0.99)),
        fitting: engine.is_fitting(),
        fits: state.policy().map_or(0, fits),
        writable: engine.read_only().is_none(),
    };
    drop(state);
    (card, summary)
}

/// The summary of the last second of a node, and its counts: its own requests, and the users of the whole cluster.
pub(super) fn second_of_node(node: &Node) -> (SecondCard, Summary) {
    node.count();
    let summary = node.meters.second();
    let milliseconds = |seconds: Option<f64>| seconds.map(|seconds| seconds * 1e3);
    let parts = node.owned_parts();
    let catalogue = node.catalogue().app();
    let items = catalogue.as_ref().and_then(|app| app.engine());
    let items = items.map_or(0, |e| e.state().catalogue().map_or(0, |c| c.len()));
    let app = node.partitions().iter().find_map(|group| group.app());
    let engine = app.as_ref().and_then(|app| app.engine());
    let (clusters, singletons, fits) = engine.map_or((0, 0, 0), |engine| {
        let state = engine.state();
        let policy = state.policy();
        let singletons = policy.map_or(0, |policy| policy.inspect().singletons());
        (state.clusters(), singletons, policy.map_or(0, fits))
    });
    let card = SecondCard {
        at: node.now(),
        events: parts.iter().map(|part| part.events).sum(),
        rounds: parts.iter().map(|part| part.rounds).sum(),
        users: parts.iter().map(|part| part.users).sum(),
        clusters,
        singletons,
        items: items as u64,
        recommends_per_second: summary.recommends as f64,
        feedbacks_per_second: summary.feedbacks as f64,
        rewards_per_second: summary.rewards as f64,
        reward_rate: summary.reward_rate(),
        recommend_p50_ms: milliseconds(summary.recommend.quantile(0.5)),
        recommend_p99_ms: milliseconds(summary.recommend.quantile(0.99)),
        feedback_p99_ms: milliseconds(summary.feedback.quantile(0.99)),
        fitting: false,
        fits,
        writable: parts.len() == node.partitions().len(),
    };
    (card, summary)
}

fn fits(policy: &Served) -> u64 {
    policy.inspect().outlook().map_or(0, |outlook| outlook.fits)
}

/// An event of the stream.
pub(super) fn event<T: Serialize>(name: &str, data: &T) -> Bytes {
    let data = serde_json::to_string(data).expect("plain data");
    format!("event: {name}\ndata: {data}\n\n").into()
}
