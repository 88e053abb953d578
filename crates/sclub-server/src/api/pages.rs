//! The dashboard, the API browser and the OpenAPI description. All files are in the binary.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::Response;
use axum::http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use axum::routing::get;

use super::{Answer, App, Shared, openapi};
use crate::edge::page::secure;
use crate::edge::{Guard, Role};
use crate::locks::lock;

/// A file in the binary.
#[derive(Debug, Clone, Copy)]
struct File {
    path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
    /// True if the bytes are gzip-compressed. They are sent as they are: every browser that supports the
    /// page's modules can read them.
    is_gzip: bool,
    /// True if browsers may cache the file forever, because its path has a version.
    is_fixed: bool,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";

/// A file of this project.
macro_rules! own {
    ($path:expr, $kind:expr, $name:literal) => {
        File {
            path: $path,
            kind: $kind,
            bytes: include_bytes!(concat!("../page/", $name)),
            is_gzip: false,
            is_fixed: false,
        }
    };
    ($kind:expr, $name:literal) => {
        own!(concat!("/page/", $name), $kind, $name)
    };
}

/// A third-party file, unchanged or compressed.
macro_rules! vendored {
    ($kind:expr, $name:literal, $is_gzip:literal, $end:literal) => {
        File {
            path: concat!("/vendor/", $name),
            kind: $kind,
            bytes: include_bytes!(concat!("../page/vendor/", $name, $end)),
            is_gzip: $is_gzip,
            is_fixed: true,
        }
    };
}

const FILES: &[File] = &[
    own!("/", HTML, "index.html"),
    own!("/docs", HTML, "docs.html"),
    own!(CSS, "base.css"),
    own!(CSS, "docs.css"),
    own!(CSS, "page.css"),
    own!(JS, "address.js"),
    own!(JS, "api.js"),
    own!(JS, "catalogue.js"),
    own!(JS, "charts.js"),
    own!(JS, "cluster_card.js"),
    own!(JS, "clustering.js"),
    own!(JS, "docs.js"),
    own!(JS, "dom.js"),
    own!(JS, "events.js"),
    own!(JS, "experiments.js"),
    own!(JS, "figures.js"),
    own!(JS, "key.js"),
    own!(JS, "live_charts.js"),
    own!(JS, "main.js"),
    own!(JS, "map.js"),
    own!(JS, "nodes.js"),
    own!(JS, "numbers.js"),
    own!(JS, "plane.js"),
    own!(JS, "spaces.js"),
    own!(JS, "start.js"),
    own!(JS, "storage.js"),
    own!(JS, "stream.js"),
    own!(JS, "theme.js"),
    own!(JS, "user_card.js"),
    own!(JS, "words.js"),
    own!(JS, "world.js"),
    vendored!(JS, "uplot-1.6.32/uPlot.iife.min.js", false, ""),
    vendored!(CSS, "uplot-1.6.32/uPlot.min.css", false, ""),
    vendored!(JS, "swagger-ui-5.34.1/swagger-ui-bundle.js", true, ".gz"),
    vendored!(CSS, "swagger-ui-5.34.1/swagger-ui.css", true, ".gz"),
];

/// The routes of the pages.
pub(super) fn routes(guard: &Guard) -> Router<Shared> {
    let guard = guard.clone();
    let description = get(async move |State(app): State<Shared>, request: Request| {
        let is_whole = guard.admits(Role::Read, &request);
        let description = app.description(guard.needs_key(), is_whole);
        answer(description, "application/json", false)
    });
    let router = Router::new().route("/v1/openapi.json", description);
    FILES.iter().copied().fold(router, |router, file| {
        router.route(file.path, get(move || async move { file.answer() }))
    })
}

impl App {
    /// The OpenAPI description of the server or the space as it is now. It is kept until more is known: the number of features
    /// is that of the first item, and the data folder has the rest. If it is not `is_whole`, what the data folder has is left
    /// out: names and values of features tell of the catalogue.
    fn description(&self, needs_key: bool, is_whole: bool) -> Bytes {
        let of_node = self.node().and_then(|node| node.catalogue().app());
        let engine = of_node.as_deref().unwrap_or(self).engine();
        let engine = engine.filter(|_| is_whole);
        let known = engine.map(|engine| {
            let state = engine.state();
            let identity = state.identity();
            let dim = identity.features.as_ref().map(|transform| transform.dim());
            (state.dim().or(dim), identity.clone())
        });
        let dim = known.as_ref().map(|(dim, _)| *dim);
        if let Some(text) = lock(&self.descriptions).get(&dim) {
            return text.clone();
        }
        let mut settings = self.settings.clone();
        settings.transform = None;
        if let Some((dim, identity)) = &known {
            settings.dim = *dim;
            settings.transform = identity.features.clone();
        }
        let text: Bytes = openapi::description(&openapi::Subject {
            settings: &settings,
            context: known.as_ref().map(|(_, identity)| &identity.context),
            needs_key,
            space: self.space.as_deref(),
        })
        .into();
        lock(&self.descriptions).insert(dim, text.clone());
        text
    }
}

impl File {
    fn answer(self) -> Answer {
        let mut answer = answer(Bytes::from_static(self.bytes), self.kind, self.is_fixed);
        if self.is_gzip {
            let gzip = HeaderValue::from_static("gzip");
            answer.headers_mut().insert(CONTENT_ENCODING, gzip);
        }
        answer
    }
}

fn answer(bytes: Bytes, kind: &'static str, is_fixed: bool) -> Answer {
    let mut answer = Response::new(Body::from(bytes));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    let cache = if is_fixed {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    secure(headers);
    answer
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn text(file: &File) -> &'static str {
        std::str::from_utf8(file.bytes).unwrap()
    }

    fn own() -> impl Iterator<Item = &'static File> {
        FILES.iter().filter(|file| !file.is_fixed)
    }

    /// Every text between two marks.
    fn between<'a>(text: &'a str, before: &str, after: char) -> Vec<&'a str> {
        let pieces = text.split(before).skip(1);
        pieces
            .filter_map(|piece| Some(piece.split_once(after)?.0))
            .collect()
    }

    fn is_served(path: &str) -> bool {
        path.starts_with("/v1/") || FILES.iter().any(|file| file.path == path)
    }

    #[test]
    fn every_script_and_style_sheet_is_served() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/page");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".js") || name.ends_with(".css") {
                assert!(is_served(&format!("/page/{name}")), "{name}");
            }
        }
    }

    #[test]
    fn whatever_a_page_or_a_module_names_is_served() {
        for file in own() {
            let text = text(file);
            let mut named: Vec<String> = Vec::new();
            for mark in ["src=\"", "href=\""] {
                let paths = between(text, mark, '"').into_iter();
                named.extend(
                    paths
                        .filter(|path| path.starts_with('/'))
                        .map(str::to_owned),
                );
            }
            let modules = between(text, "from \"./", '"').into_iter();
            named.extend(modules.map(|name| format!("/page/{name}")));
            for path in named {
                assert!(is_served(&path), "{path}, in {}", file.path);
            }
        }
    }

    #[test]
    fn the_dashboard_fetches_all_its_modules_at_once() {
        let page = text(&FILES[0]);
        for file in own().filter(|file| file.kind == JS && file.path != "/page/docs.js") {
            assert!(
                page.contains(&format!("\"{}\"", file.path)),
                "{}",
                file.path
            );
        }
    }
}
