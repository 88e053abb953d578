//! Error answers.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, OnceLock};

use axum::Router;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::limit::Connections;
use crate::locks::lock;
use crate::meters::metric;

/// The body of every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// An error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// The error code for programs. It does not change.
    pub code: Cow<'static, str>,
    /// The error message for people.
    pub message: String,
    /// The invalid field of the request, if any.
    pub field: Option<Cow<'static, str>>,
}

/// The error code of an answer, for metrics and traces. An extension of the answer.
#[derive(Debug, Clone)]
pub struct ErrorCode(pub Cow<'static, str>);

/// The code of answers to connections and requests that are too many.
pub(super) const OVERLOADED: &str = "overloaded";

/// All error codes, with their statuses. docs/service.md explains them.
pub const ERROR_CODES: [(u16, &str); 35] = [
    (400, "bad_body"),
    (400, "bad_json"),
    (401, "unauthorized"),
    (403, "cross_site"),
    (403, "forbidden"),
    (404, "no_candidates"),
    (404, "unknown_cluster"),
    (404, "unknown_decision"),
    (404, "unknown_experiment"),
    (404, "unknown_item"),
    (404, "unknown_path"),
    (404, "unknown_space"),
    (404, "unknown_user"),
    (405, "wrong_method"),
    (408, "timeout"),
    (409, "answered"),
    (409, "begun"),
    (409, "exists"),
    (409, "experiment_runs"),
    (409, "other_copy"),
    (410, "expired"),
    (410, "forgotten"),
    (413, "too_large"),
    (415, "wrong_type"),
    (421, "wrong_host"),
    (422, "invalid"),
    (429, "rate_limited"),
    (500, "internal"),
    (501, "unsupported"),
    (503, "broken"),
    (503, "moved"),
    (503, "overloaded"),
    (503, "read_only"),
    (503, "starting"),
    (504, "unknown_outcome"),
];

/// The numbers of error answers of a server, by status and code. Those of [`ERROR_CODES`] begin with 0.
pub struct ErrorCounts {
    /// The number of connections of the server.
    pub connections: Connections,
    counts: Mutex<BTreeMap<(u16, Cow<'static, str>), u64>>,
    unrouted: OnceLock<OnUnrouted>,
}

/// Called with the path of each request that is refused before it is routed.
type OnUnrouted = Box<dyn Fn(&str) + Send + Sync>;

impl fmt::Debug for ErrorCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErrorCounts")
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl Default for ErrorCounts {
    fn default() -> Self {
        let zeros = ERROR_CODES.map(|(status, code)| ((status, Cow::Borrowed(code)), 0));
        Self {
            connections: Connections::default(),
            counts: Mutex::new(zeros.into()),
            unrouted: OnceLock::new(),
        }
    }
}

impl ErrorCounts {
    /// Calls `unrouted` from now on with the path of each request that is refused before it is routed, for counts by call.
    pub fn on_unrouted(&self, unrouted: impl Fn(&str) + Send + Sync + 'static) {
        // This is called once only.
        let _ = self.unrouted.set(Box::new(unrouted));
    }

    /// Counts a request that is refused before it is routed, by its call. [`ErrorCounts::count`] counts the answer.
    pub(super) fn unrouted(&self, path: &str) {
        if let Some(unrouted) = self.unrouted.get() {
            unrouted(path);
        }
    }

    /// Counts an answer, if it is an error.
    pub fn count<B>(&self, answer: &axum::http::Response<B>) {
        let status = answer.status();
        if status.is_client_error() || status.is_server_error() {
            let code = answer.extensions().get::<ErrorCode>();
            let code = code.map_or(Cow::Borrowed("other"), |code| code.0.clone());
            self.add(status, code);
        }
    }

    /// Counts a connection that was refused. With TLS it has no answer.
    pub(super) fn refused_connection(&self) {
        self.add(StatusCode::SERVICE_UNAVAILABLE, OVERLOADED.into());
    }

    fn add(&self, status: StatusCode, code: Cow<'static, str>) {
        let mut counts = lock(&self.counts);
        *counts.entry((status.as_u16(), code)).or_default() += 1;
    }

    /// The counts, in Prometheus' text format.
    pub fn render(&self) -> String {
        let counts = lock(&self.counts);
        let values = counts.iter().map(|((status, code), count)| {
            let labels = format!("{{status=\"{status}\",code=\"{code}\"}}");
            (labels, *count as f64)
        });
        let help = "Error answers by status and code";
        metric("sclub_errors_total", "counter", help, values)
    }
}

/// An error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// The HTTP status.
    pub status: StatusCode,
    /// The error code for programs. It does not change.
    pub code: &'static str,
    /// The error message for people.
    pub message: String,
    /// The invalid field of the request, if any.
    pub field: Option<Cow<'static, str>>,
    /// The number of seconds after which to retry.
    pub retry_after: Option<u64>,
}

impl ApiError {
    /// An error of any kind. The status and the code are in [`ERROR_CODES`].
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        debug_assert!(ERROR_CODES.contains(&(status.as_u16(), code)), "{code}");
        Self {
            status,
            code,
            message: message.into(),
            field: None,
            retry_after: None,
        }
    }

    /// Sets the invalid field.
    #[must_use]
    pub fn field(mut self, field: impl Into<Cow<'static, str>>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Sets the time after which to retry.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// 400: the body is not valid JSON for this call.
    pub fn bad_json(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_json", message)
    }

    /// 400: the body is incomplete or malformed.
    pub fn bad_body(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_body", message)
    }

    /// 401: no API key, or an unknown one.
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    /// 403: the role of the key does not allow this.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    /// 404: not found. The code is `unknown_` and the kind of thing.
    pub fn unknown(code: &'static str, message: impl Into<String>) -> Self {
        debug_assert!(code.starts_with("unknown_"));
        Self::new(StatusCode::NOT_FOUND, code, message)
    }

    /// 405: the path does not have this method.
    pub fn wrong_method(message: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message)
    }

    /// 408: the request did not arrive in time.
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "timeout", message)
    }

    /// 409: not allowed in this state.
    pub fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    /// 410: the decision has expired.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "expired", message)
    }

    /// 410: the user was forgotten.
    pub fn forgotten(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "forgotten", message)
    }

    /// 413: the body is too large.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    /// 415: the content type is not JSON.
    pub fn wrong_type(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "wrong_type", message).field("Content-Type")
    }

    /// 422: a field has an invalid value.
    pub fn invalid(field: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message).field(field)
    }

    /// 429: too many requests.
    pub fn rate_limited(message: impl Into<String>, retry_after: u64) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message).retry_after(retry_after)
    }

    /// 500: an internal error. The answer has no details; log them before.
    pub fn internal() -> Self {
        let message = "internal error; the server's log has the details";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    /// 503: the server is read-only.
    pub fn read_only(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "read_only", message)
    }

    /// 503: another node of the cluster must answer.
    pub fn moved(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "moved", message).retry_after(1)
    }

    /// 503: the server is overloaded.
    pub fn overloaded(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, OVERLOADED, message).retry_after(1)
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

impl From<ApiError> for ErrorDetail {
    fn from(error: ApiError) -> Self {
        Self {
            code: Cow::Borrowed(error.code),
            message: error.message,
            field: error.field,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, retry_after) = (self.status, self.retry_after);
        let code = ErrorCode(Cow::Borrowed(self.code));
        let body = ErrorBody { error: self.into() };
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = (status, body).into_response();
        response.extensions_mut().insert(code);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Sets a router's answers for unknown paths and methods. Unknown methods are answered only for the routes
/// that the router has by now, so call this after the last of them.
pub fn with_fallbacks<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    router
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
}

async fn unknown_path(uri: Uri) -> ApiError {
    let message = format!("there is no path {}", shortened(uri.path()));
    ApiError::unknown("unknown_path", message)
}

pub(crate) async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let path = shortened(uri.path());
    ApiError::wrong_method(format!("{path} does not take {method}"))
}

/// A path of a request, shortened for an error message.
fn shortened(path: &str) -> Cow<'_, str> {
    const MAX_LENGTH: usize = 100;
    match path.char_indices().nth(MAX_LENGTH) {
        None => Cow::Borrowed(path),
        Some((end, _)) => Cow::Owned(format!("{}…", &path[..end])),
    }
}

/// The answer for a handler that panicked. The panic's message goes to the log.
pub(super) fn panicked(payload: &(dyn Any + Send), id: &HeaderValue) -> Response {
    let said = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    tracing::error!(
        said,
        request_id = id.to_str().unwrap_or_default(),
        "a handler panicked"
    );
    ApiError::internal().into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_answers_are_counted_by_status_and_code() {
        let counts = ErrorCounts::default();
        counts.count(&Response::new(axum::body::Body::empty()));
        let at_start = counts.render();
        assert_eq!(at_start.matches("\"} 0\n").count(), ERROR_CODES.len());
        counts.count(&ApiError::bad_json("x").into_response());
        counts.count(&ApiError::overloaded("x").into_response());
        counts.count(&ApiError::bad_json("y").into_response());
        counts.count(&StatusCode::IM_A_TEAPOT.into_response());
        let text = counts.render();
        let lines: Vec<&str> = text
            .lines()
            .skip(1)
            .filter(|line| !line.ends_with(" 0"))
            .collect();
        assert_eq!(
            lines,
            [
                "# TYPE sclub_errors_total counter",
                "sclub_errors_total{status=\"400\",code=\"bad_json\"} 2",
                "sclub_errors_total{status=\"418\",code=\"other\"} 1",
                "sclub_errors_total{status=\"503\",code=\"overloaded\"} 1",
                "",
            ]
        );
    }
}
