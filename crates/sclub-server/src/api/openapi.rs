//! The OpenAPI description, generated from the code.

use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::{admin, calls, cluster, experiments, items, look, model, spaces, stream};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "sclub",
        description = "Recommends items to people it knows little about, learns who is alike, and \
                       loses nothing. Errors are {\"error\": {\"code\", \"message\", \"field\"}}. \
                       Where keys are configured, send one as Authorization: Bearer KEY. Every path \
                       under /v1 is that of the space default; /v1/spaces/NAME/recommend is \
                       /v1/recommend of the space NAME, and so on for every call, and for /metrics, \
                       /healthz and /readyz."
    ),
    paths(
        calls::recommend,
        calls::feedback,
        calls::recommend_batch,
        calls::feedback_batch,
        items::put,
        items::list,
        items::show,
        items::patch,
        items::remove,
        look::user,
        look::clusters,
        look::cluster,
        look::history,
        look::state,
        experiments::list,
        experiments::start,
        experiments::end,
        cluster::nodes,
        stream::listen,
        look::metrics,
        look::healthz,
        look::readyz,
        admin::forget,
        admin::expect,
        admin::compact,
        admin::snapshot,
        admin::backup,
        admin::export,
        spaces::list,
        spaces::show,
        spaces::create,
        spaces::delete
    ),
    components(schemas(model::HistoryEntry)),
    modifiers(&Key),
    security((), ("key" = [])),
    tags(
        (name = "recommend", description = "The two calls of an application. Role: write."),
        (name = "items", description = "The catalogue. Role: write to change it, read to read it."),
        (name = "look", description = "Users, clusters, history and the state of the server. Role: read."),
        (name = "admin", description = "For operators. Role: admin."),
        (name = "spaces", description = "Several catalogues and models in one server. Role: read to see one's own, admin of all spaces to change them.")
    )
)]
struct Document;

/// Describes how an API key is sent. Needed only if the server has keys.
struct Key;

impl Modify for Key {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let key = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("An API key, if the server has keys."))
            .build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("key", SecurityScheme::Http(key));
    }
}

/// The OpenAPI description as JSON.
pub fn document() -> String {
    let mut text = Document::openapi().to_pretty_json().expect("plain data");
    text.push('\n');
    text
}
