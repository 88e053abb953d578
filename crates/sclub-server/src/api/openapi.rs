//! The OpenAPI description: generated from the code, then made exact. The description that a server sends has the limits of
//! that server, and says whether calls need a key.

mod answers;
mod exact;
mod examples;
mod links;
mod parts;

use serde_json::{Map, Value, json};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::{admin, calls, cluster, experiments, figures, items, look, model, spaces, stream};
use crate::context::Context;
use crate::settings::Settings;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "sclub",
        description = "Recommends items to people it knows little about, and learns who is alike. An application makes two \
                       calls:\n\n\
                       1. `POST /v1/recommend` with `{\"user\": \"anna\", \"k\": 3}` answers with items of the catalogue, and with \
                       a `decision`.\n\
                       2. `POST /v1/feedback` with `{\"decision\": \"…\", \"reward\": 1, \"others\": 0}` sends back that decision, \
                       and what the user did.\n\n\
                       `PUT /v1/items` fills the catalogue first.\n\n\
                       **Keys.** Where keys are configured, send one as `Authorization: Bearer KEY`.\n\n\
                       **Errors** are `{\"error\": {\"code\", \"message\", \"field\"}}`, and every answer has a header \
                       `x-request-id`. A path that does not exist is answered 404 with the code `unknown_path`, and a method that a \
                       path does not have 405 with the code `wrong_method` and the header `Allow`. Only a request that is not \
                       valid HTTP, or whose head is too long, has an answer without a body and without `x-request-id`: 400, 414 \
                       or 431.\n\n\
                       **Spaces.** Every path under `/v1` is that of the space `default`. `/v1/spaces/NAME/recommend` is \
                       `/v1/recommend` of the space NAME, and so on for every call, and for `/metrics`, `/healthz` and `/readyz`. \
                       `/v1/spaces/NAME/openapi.json` describes the calls of that space.\n\n\
                       **Connections.** An answer with the header `Connection: close` is the last one of its connection; an error \
                       that comes before the whole body of its request has arrived has it."
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
        figures::preview,
        figures::recent,
        look::clusters,
        look::cluster,
        look::history,
        look::state,
        figures::timeline,
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
    components(schemas(model::HistoryEntry, model::SecondCard)),
    modifiers(&Key),
    security((), ("key" = [])),
    tags(
        (name = "recommend", description = "The two calls of an application. Role: write."),
        (name = "items", description = "The catalogue. Role: write to change it, read to read it."),
        (name = "look", description = "Users, clusters, history and the state of the server. Role: read."),
        (name = "spaces", description = "Several catalogues and models in one server. Role: read to see one's own, admin of all spaces to change them."),
        (name = "admin", description = "For operators. Role: admin.")
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

/// The subject of a description: a server or a space of it.
pub(super) struct Subject<'a> {
    /// Its limits, the number of features if it is known, and the transform.
    pub settings: &'a Settings,
    /// The context features of requests; `None` describes any.
    pub context: Option<&'a Context>,
    /// True if calls need a key.
    pub needs_key: bool,
    /// The name of the space, if it is not the default one.
    pub space: Option<&'a str>,
}

/// The OpenAPI description as JSON, with the limits that a server has by default.
pub fn document() -> String {
    description(&Subject {
        settings: &Settings::default(),
        context: None,
        needs_key: false,
        space: None,
    })
}

/// The OpenAPI description of a server or of a space.
pub(super) fn description(subject: &Subject<'_>) -> String {
    let mut document = serde_json::to_value(Document::openapi()).expect("plain data");
    // Clients are told the address. A description is read from the server itself.
    document["servers"] = json!([{"url": "/"}]);
    parts::add(&mut document, subject);
    exact::make_exact(&mut document, subject);
    if subject.settings.cluster.is_some() {
        leave_out_calls_of_single_servers(&mut document);
    }
    if subject.space.is_some() {
        // Nothing of a space is open to everyone.
        each_operation(&mut document, |_, _, operation| {
            operation
                .as_object_mut()
                .map(|about| about.remove("security"));
        });
    }
    answers::add(&mut document);
    links::add(&mut document);
    if subject.needs_key {
        document["security"] = json!([{"key": []}]);
    }
    if let Some(space) = subject.space {
        move_to_space(&mut document, space);
    }
    answers::drop_unused(&mut document);
    each_operation(&mut document, |_, _, operation| split_summary(operation));
    examples::fit(&mut document);
    let mut text = serde_json::to_string_pretty(&document).expect("plain data");
    text.push('\n');
    text
}

/// Leaves out the calls and the parameters that a node of a cluster does not have.
fn leave_out_calls_of_single_servers(document: &mut Value) {
    object(document, "/paths").retain(|path, _| {
        let others = ["/v1/spaces", "/v1/experiments", "/v1/admin/backup"];
        !others.iter().any(|other| path.starts_with(other))
    });
    let items = &mut document["paths"]["/v1/items"]["get"]["parameters"];
    items.as_array_mut().into_iter().for_each(|parameters| {
        parameters.retain(|one| one["name"] != "sort" && one["name"] != "ascending");
    });
}

/// The first sentence of a summary stays, as plain text. The others are the description, which is Markdown.
fn split_summary(operation: &mut Value) {
    let summary = operation["summary"].as_str().unwrap_or_default();
    let summary = summary.replace('\n', " ");
    let Some(end) = summary.find(". ") else {
        operation["summary"] = summary.replace('`', "").into();
        return;
    };
    let (first, rest) = summary.split_at(end + 1);
    operation["summary"] = first.replace('`', "").into();
    operation["description"] = rest.trim_start().into();
}

/// Changes the paths of a description to those of a space. The calls about all spaces and nodes are left out.
fn move_to_space(document: &mut Value, space: &str) {
    document["info"]["title"] = format!("sclub, space {space}").into();
    let paths = object(document, "/paths");
    for (path, mut about) in std::mem::take(paths) {
        if path.starts_with("/v1/spaces") || path == "/v1/nodes" {
            continue;
        }
        for (_, operation) in about.as_object_mut().into_iter().flatten() {
            answers::add_reference(operation, "404", "UnknownSpace");
        }
        let call = path.strip_prefix("/v1").unwrap_or(&path);
        paths.insert(format!("/v1/spaces/{space}{call}"), about);
    }
}

/// An object of the description.
fn object<'a>(document: &'a mut Value, pointer: &str) -> &'a mut Map<String, Value> {
    let found = document.pointer_mut(pointer).and_then(Value::as_object_mut);
    found.unwrap_or_else(|| panic!("the description has no object {pointer}"))
}

/// Calls a function with each operation: its path, its method, and the operation itself.
fn each_operation(document: &mut Value, mut change: impl FnMut(&str, &str, &mut Value)) {
    for (path, methods) in object(document, "/paths") {
        for (method, operation) in methods.as_object_mut().into_iter().flatten() {
            change(path, method, operation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(settings: &Settings, needs_key: bool, space: Option<&str>) -> Value {
        let context = Context::new(&settings.context, sclub::ContextMode::Cross).unwrap();
        let subject = Subject {
            settings,
            context: Some(&context),
            needs_key,
            space,
        };
        serde_json::from_str(&description(&subject)).unwrap()
    }

    #[test]
    fn every_body_has_an_example() {
        let mut document: Value = serde_json::from_str(&document()).unwrap();
        let mut bodies = 0;
        each_operation(&mut document, |path, method, operation| {
            let content = operation["requestBody"]["content"].as_object();
            for (kind, body) in content.into_iter().flatten() {
                bodies += 1;
                assert!(!body["example"].is_null(), "{method} {path}, {kind}");
            }
        });
        assert!(bodies > 8, "{bodies}");
    }

    #[test]
    fn a_server_describes_its_own_limits_and_whether_it_has_keys() {
        let settings = Settings {
            max_k: 7,
            max_id: 16,
            dim: Some(3),
            reward_min: -1.0,
            ..Settings::default()
        };
        let of = |pointer: &str| {
            let document = parsed(&settings, true, None);
            document.pointer(pointer).cloned().unwrap_or_default()
        };
        let schema = |rest: &str| of(&format!("/components/schemas/{rest}"));
        assert_eq!(schema("RecommendRequest/properties/k/maximum"), 7);
        assert_eq!(schema("Id/maxLength"), 16);
        assert_eq!(
            of("/paths/~1v1~1users~1{id}/get/parameters/0/schema/maxLength"),
            16
        );
        assert_eq!(schema("ItemLine/properties/features/minItems"), 3);
        assert_eq!(schema("ItemLine/properties/features/maxItems"), 3);
        assert_eq!(schema("FeedbackRequest/properties/reward/minimum"), -1.0);
        assert_eq!(of("/security"), json!([{"key": []}]));
        assert_eq!(of("/paths/~1healthz/get/security"), json!([{}]));
        let without = parsed(&settings, false, None);
        assert_eq!(without["security"], json!([{}, {"key": []}]));
    }

    #[test]
    fn a_space_describes_its_own_paths() {
        let document = parsed(&Settings::default(), false, Some("shop"));
        let paths = document["paths"].as_object().unwrap();
        assert!(paths.contains_key("/v1/spaces/shop/users/{id}"));
        assert!(paths.contains_key("/v1/spaces/shop/metrics"));
        assert!(
            paths
                .keys()
                .all(|path| path.starts_with("/v1/spaces/shop/"))
        );
        let all = parsed(&Settings::default(), false, None);
        let own = all["paths"].as_object().unwrap().keys();
        let own = own.filter(|path| !path.starts_with("/v1/spaces") && *path != "/v1/nodes");
        assert_eq!(paths.len(), own.count());
        let answers = |path: &str| &document["paths"][path]["get"]["responses"];
        let unknown = &answers("/v1/spaces/shop/state")["404"];
        assert_eq!(unknown["$ref"], "#/components/responses/UnknownSpace");
        assert!(answers("/v1/spaces/shop/healthz")["401"].is_object());
    }

    #[test]
    fn ids_that_are_numbers_are_no_longer_than_others() {
        let range = |max_id| {
            let settings = Settings {
                max_id,
                ..Settings::default()
            };
            let id = &parsed(&settings, false, None)["components"]["schemas"]["Id"];
            (id["minimum"].clone(), id["maximum"].clone())
        };
        assert_eq!(range(1), (json!(0), json!(9)));
        assert_eq!(range(4), (json!(-999), json!(9999)));
        assert_eq!(
            range(19),
            (
                json!(-999_999_999_999_999_999_i64),
                json!(9_999_999_999_999_999_999_u64)
            )
        );
        assert_eq!(range(20), (json!(i64::MIN), json!(u64::MAX)));
        assert_eq!(range(usize::MAX), (json!(i64::MIN), json!(u64::MAX)));
    }

    #[test]
    fn the_context_of_a_server_is_described() {
        let context = |context: &[&str]| {
            let settings = Settings {
                context: context.iter().map(|&text| text.to_owned()).collect(),
                ..Settings::default()
            };
            let document = parsed(&settings, false, None);
            document["components"]["schemas"]["RecommendRequest"]["properties"]["context"].clone()
        };
        let some = context(&["hour", "device=phone|tv"]);
        assert_eq!(some["additionalProperties"], false);
        assert_eq!(
            some["properties"]["device"]["enum"],
            json!(["phone", "tv", null])
        );
        assert_eq!(
            some["properties"]["hour"]["maximum"],
            json!(sclub::MAX_MAGNITUDE)
        );
        assert_eq!(some["example"], json!({"hour": 0.75, "device": "phone"}));
        let none = context(&[]);
        assert_eq!(
            (&none["properties"], &none["example"]),
            (&json!({}), &json!({}))
        );
        // In general, it can be any.
        let general: Value = serde_json::from_str(&document()).unwrap();
        let general = &general["components"]["schemas"]["RecommendRequest"]["properties"];
        assert!(general["context"]["additionalProperties"].is_object());
    }

    #[test]
    fn a_node_describes_the_calls_that_it_has() {
        let settings = Settings {
            cluster: Some("nats://127.0.0.1".to_owned()),
            ..Settings::default()
        };
        let document = parsed(&settings, false, None);
        let paths = document["paths"].as_object().unwrap();
        for (path, is_there) in [
            ("/v1/recommend", true),
            ("/v1/nodes", true),
            ("/v1/admin/export", true),
            ("/v1/admin/backup", false),
            ("/v1/experiments", false),
            ("/v1/experiments/{name}/end", false),
            ("/v1/spaces", false),
            ("/v1/spaces/{space}", false),
        ] {
            assert_eq!(paths.contains_key(path), is_there, "{path}");
        }
        assert!(document["components"]["responses"]["Unsupported"].is_null());
        let seen = &document["components"]["schemas"]["RecommendRequest"]["properties"]["seen"];
        assert_eq!(seen["maximum"], 0);
        let parameters = paths["/v1/items"]["get"]["parameters"].as_array().unwrap();
        let names: Vec<_> = parameters.iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["after", "limit", "search", "counts"]);
    }

    #[test]
    fn raw_items_are_described_by_the_fields_of_the_transform() {
        let item = |text: &str| serde_json::from_str::<sclub_features::RawItem>(text).unwrap();
        let items = [
            item(r#"{"id": "a", "category": ["tea"], "price": 4}"#),
            item(r#"{"id": "b", "category": ["tea", "cold"], "price": 5}"#),
            item(r#"{"id": "c", "category": ["cold", "coffee"], "price": 5}"#),
            item(r#"{"id": "d", "category": ["tea"], "price": 5}"#),
        ];
        let options = sclub_features::Options::default();
        let fitted = sclub_features::fit(&items, &options, None).unwrap();
        let settings = Settings {
            transform: Some(std::sync::Arc::new(fitted.transform)),
            ..Settings::default()
        };
        let document = parsed(&settings, false, None);
        let schemas = &document["components"]["schemas"];
        assert!(schemas["RawItem"]["properties"]["price"].is_object());
        assert!(schemas["ItemPatch"]["properties"]["price"].is_object());
        let lines =
            document.pointer("/paths/~1v1~1items/put/requestBody/content/application~1x-ndjson");
        let item = &lines.unwrap()["schema"]["items"]["anyOf"];
        assert_eq!(item[1]["$ref"], "#/components/schemas/RawItem");
        // The example has values that the transform knows.
        let example = json!([{"id": "i1", "category": ["tea"], "price": 4.75}]);
        assert_eq!(lines.unwrap()["example"], example);
    }

    #[test]
    fn a_summary_is_one_sentence() {
        let mut document = parsed(&Settings::default(), false, None);
        each_operation(&mut document, |path, method, operation| {
            let summary = operation["summary"].as_str().unwrap();
            assert!(
                !summary.contains(". ") && summary.ends_with('.') && !summary.contains('`'),
                "{method} {path}: {summary}"
            );
        });
        let put = &document["paths"]["/v1/items"]["put"];
        assert!(
            put["description"]
                .as_str()
                .unwrap()
                .starts_with("An invalid line ends the upload")
        );
    }

    /// Every value of `$ref`.
    fn references(value: &Value, all: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                let own = fields.get("$ref").and_then(Value::as_str);
                all.extend(own.map(str::to_owned));
                fields.values().for_each(|field| references(field, all));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, all)),
            _ => {}
        }
    }

    #[test]
    fn names_are_unique_and_references_lead_somewhere() {
        let mut document = parsed(&Settings::default(), false, None);
        let mut all = Vec::new();
        references(&document, &mut all);
        assert!(all.len() > 100);
        for reference in all {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
        let mut ids = Vec::new();
        each_operation(&mut document, |_, _, operation| {
            ids.push(operation["operationId"].as_str().unwrap().to_owned());
        });
        ids.sort_unstable();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count, "{ids:?}");
    }
}
