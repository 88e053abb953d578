//! Security headers of pages.

use axum::http::header::{
    CONTENT_SECURITY_POLICY, HeaderMap, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};

/// The content security policy of pages: they may load files of this server, and inline pictures.
pub const POLICY: &str = "default-src 'self'; img-src 'self' data:; style-src 'self'; \
                          script-src 'self'; frame-ancestors 'none'";

/// Sets headers so that a browser loads nothing from other servers, guesses no content types, sends no
/// referrer, and shows the page in no frame.
pub fn secure(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}
