//! Headers for what a browser shows.

use axum::http::header::{
    CONTENT_SECURITY_POLICY, HeaderMap, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};

/// What the page may load: what this server has, and pictures inside the page.
pub const POLICY: &str = "default-src 'self'; img-src 'self' data:; style-src 'self'; \
                          script-src 'self'; frame-ancestors 'none'";

/// Has a browser load nothing from elsewhere, guess no types, tell nobody where it was, and show the
/// page in no other's frame.
pub fn secure(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}
