//! The page, the browser of the API, and the API's description: all in the binary.

use axum::Router;
use axum::body::Body;
use axum::http::Response;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use axum::routing::get;

use super::{Answer, Shared, openapi};
use crate::edge::page::secure;

/// Path, type and text of each file.
const FILES: [(&str, &str, &str); 5] = [
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("../page/index.html"),
    ),
    (
        "/page.css",
        "text/css; charset=utf-8",
        include_str!("../page/page.css"),
    ),
    (
        "/page.js",
        "text/javascript; charset=utf-8",
        include_str!("../page/page.js"),
    ),
    (
        "/docs",
        "text/html; charset=utf-8",
        include_str!("../page/docs.html"),
    ),
    (
        "/docs.js",
        "text/javascript; charset=utf-8",
        include_str!("../page/docs.js"),
    ),
];

/// The pages' paths.
pub(super) fn routes() -> Router<Shared> {
    let document: &'static str = Box::leak(openapi::document().into_boxed_str());
    let router = Router::new().route(
        "/v1/openapi.json",
        get(move || async move { file("application/json", document) }),
    );
    FILES
        .into_iter()
        .fold(router, |router, (path, kind, text)| {
            router.route(path, get(move || async move { file(kind, text) }))
        })
}

fn file(kind: &'static str, text: &'static str) -> Answer {
    let mut answer = Response::new(Body::from(text));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    secure(headers);
    answer
}
