//! Errors as callers see them.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;

use axum::Router;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorDetail,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// For programs: one word that stays the same.
    pub code: Cow<'static, str>,
    /// For people: a sentence.
    pub message: String,
    /// The field of the request that is wrong, if it is one.
    pub field: Option<Cow<'static, str>>,
}

/// An answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// HTTP's number for it.
    pub status: StatusCode,
    /// For programs: one word that stays the same.
    pub code: &'static str,
    /// For people: a sentence.
    pub message: String,
    /// The field of the request that is wrong, if it is one.
    pub field: Option<Cow<'static, str>>,
    /// Seconds after which it is worth to try again.
    pub retry_after: Option<u64>,
}

impl ApiError {
    /// An error of any kind.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            field: None,
            retry_after: None,
        }
    }

    /// Names the field that is wrong.
    #[must_use]
    pub fn field(mut self, field: impl Into<Cow<'static, str>>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Says when to try again.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// 400: the body is not the JSON that is needed.
    pub fn bad_json(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_json", message)
    }

    /// 400: the body broke off or was not sent as HTTP has it.
    pub fn bad_body(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_body", message)
    }

    /// 401: no key, or an unknown one.
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    /// 403: a key that may not do this.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    /// 404: there is no such thing. The code is `unknown_` and its kind.
    pub fn unknown(code: &'static str, message: impl Into<String>) -> Self {
        debug_assert!(code.starts_with("unknown_"));
        Self::new(StatusCode::NOT_FOUND, code, message)
    }

    /// 405: the path is there, but not for this method.
    pub fn wrong_method(message: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message)
    }

    /// 408: the request did not arrive in time.
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "timeout", message)
    }

    /// 409: not in this state.
    pub fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    /// 410: the decision's lifetime has ended.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "expired", message)
    }

    /// 410: the user was forgotten.
    pub fn forgotten(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "forgotten", message)
    }

    /// 413: more than is taken.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    /// 415: a body that is not JSON by its own account.
    pub fn wrong_type(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "wrong_type", message).field("Content-Type")
    }

    /// 422: a field has a value that it cannot have.
    pub fn invalid(field: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message).field(field)
    }

    /// 429: too many requests.
    pub fn rate_limited(message: impl Into<String>, retry_after: u64) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message).retry_after(retry_after)
    }

    /// 500. Says nothing of the inside; log it before.
    pub fn internal() -> Self {
        let message = "something went wrong inside the server, its log has more";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    /// 503: nothing can be written now.
    pub fn read_only(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "read_only", message)
    }

    /// 503: too much to do.
    pub fn overloaded(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", message).retry_after(1)
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = ErrorBody {
            error: ErrorDetail {
                code: Cow::Borrowed(self.code),
                message: self.message,
                field: self.field,
            },
        };
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Gives a router our answers for paths it does not know and methods a path does not take. The latter
/// only for routes it has by now, so this comes after the last of them.
pub fn with_fallbacks<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    router
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
}

async fn unknown_path(uri: Uri) -> ApiError {
    let message = format!("there is nothing at {}", shortened(uri.path()));
    ApiError::unknown("unknown_path", message)
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let path = shortened(uri.path());
    ApiError::wrong_method(format!("{path} does not take {method}"))
}

/// A path that somebody made up, in a length to be repeated.
fn shortened(path: &str) -> Cow<'_, str> {
    const MOST: usize = 100;
    match path.char_indices().nth(MOST) {
        None => Cow::Borrowed(path),
        Some((end, _)) => Cow::Owned(format!("{}…", &path[..end])),
    }
}

/// The answer in place of a handler's that panicked. What it said goes to the log.
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
