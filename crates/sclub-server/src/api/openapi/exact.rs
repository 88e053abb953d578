//! Lengths, ranges and rules between fields: those of the settings of a server, and those that the types of the code do not
//! have.

use sclub::{MAX_MAGNITUDE, Preset, Users};
use sclub_features::Transform;
use serde_json::{Value, json};

use super::super::figures::DEFAULT_K;
use super::{Subject, each_operation, object};
use crate::description::{MAX_TAG, MAX_TAGS, MAX_TITLE, RESERVED};
use crate::edge::keys::{DEFAULT_SPACE, MAX_SPACE_LENGTH};
use crate::experiment::plan::{MAX_ARMS, MAX_NAME};
use crate::filter::MAX_CONDITIONS;
use crate::identity::servable;
use crate::settings::{Settings, constants, setting_name};

/// The names of time spans.
const RANGES: [&str; 3] = ["10m", "24h", "60d"];

/// Adds what the settings and the rules say to a description.
pub(super) fn make_exact(document: &mut Value, subject: &Subject<'_>) {
    let settings = subject.settings;
    for (pointer, keywords) in schemas(settings) {
        let schema = object(document, &format!("/components/schemas/{pointer}"));
        for (keyword, value) in keywords.as_object().into_iter().flatten() {
            schema.insert(keyword.clone(), value.clone());
        }
    }
    if let Some(context) = subject.context {
        let schema = object(
            document,
            "/components/schemas/RecommendRequest/properties/context",
        );
        let exact = context.schema();
        schema.extend(
            exact
                .as_object()
                .into_iter()
                .flatten()
                .map(|(k, v)| (k.clone(), v.clone())),
        );
        schema.remove("propertyNames");
        schema.insert("example".to_owned(), context.example());
    }
    bodies(document, settings.transform.as_deref());
    each_operation(document, |path, method, operation| {
        let parameters = operation.get_mut("parameters");
        let parameters = parameters.and_then(Value::as_array_mut);
        for parameter in parameters.into_iter().flatten() {
            let name = parameter["name"].as_str().unwrap_or_default().to_owned();
            let schema = &mut parameter["schema"];
            match parameter_schema(settings, path, method, &name) {
                Some(exact) => *schema = exact,
                // `null` cannot be written in a query.
                None => schema["type"] = not_null(&schema["type"]),
            }
        }
    });
}

fn not_null(kind: &Value) -> Value {
    match kind.as_array() {
        Some(kinds) => kinds
            .iter()
            .find(|kind| *kind != "null")
            .cloned()
            .unwrap_or_default(),
        None => kind.clone(),
    }
}

/// The schema of a parameter, if the one of its type is not exact.
fn parameter_schema(settings: &Settings, path: &str, method: &str, name: &str) -> Option<Value> {
    let id = json!({"type": "string", "minLength": 1, "maxLength": settings.max_id});
    let label = json!({"type": "integer", "minimum": 0, "maximum": u64::MAX});
    match (path, name) {
        ("/v1/items" | "/v1/items/{id}", "id" | "after") => Some(id),
        (path, "id") if path.starts_with("/v1/users/{id}") => Some(id),
        ("/v1/users/{id}/preview", "k") => Some(json!({
            "type": "integer", "minimum": 1, "maximum": settings.max_k, "default": DEFAULT_K.min(settings.max_k)
        })),
        ("/v1/items", "sort") => {
            Some(json!({"type": "string", "enum": ["shown", "rewards", "reward_rate"]}))
        }
        ("/v1/timeline", "range") => {
            Some(json!({"type": "string", "enum": RANGES, "default": RANGES[0]}))
        }
        ("/v1/clusters" | "/v1/clusters/{id}", "id" | "after") | ("/v1/history", "before") => {
            Some(label)
        }
        (_, "space" | "confirm") => {
            let length = MAX_SPACE_LENGTH - 1;
            let mut space =
                json!({"type": "string", "pattern": format!("^[a-z0-9][a-z0-9_-]{{0,{length}}}$")});
            if method == "delete" {
                space["not"] = json!({"const": DEFAULT_SPACE});
            }
            Some(space)
        }
        (_, "name") => Some(name_schema()),
        _ => None,
    }
}

/// The name of an experiment or an arm.
fn name_schema() -> Value {
    json!({"type": "string", "pattern": format!("^[A-Za-z0-9._-]{{1,{MAX_NAME}}}$")})
}

/// The range of ids that are numbers. A number has as many characters as its digits.
fn id_range(max_id: usize) -> (i64, u64) {
    let power = |digits: usize| 10u64.checked_pow(u32::try_from(digits).unwrap_or(u32::MAX));
    let max = power(max_id).map_or(u64::MAX, |power| power - 1);
    let min = power(max_id.saturating_sub(1)).and_then(|power| i64::try_from(power - 1).ok());
    (min.map_or(i64::MIN, |min| -min), max)
}

/// Keywords for schemas: the place of each, and what is added there.
fn schemas(settings: &Settings) -> Vec<(&'static str, Value)> {
    let number = json!({"type": "number", "minimum": -MAX_MAGNITUDE, "maximum": MAX_MAGNITUDE});
    let (min_dim, max_dim) = settings.dim.map_or((1, settings.max_dim), |dim| (dim, dim));
    let (min_id, max_id) = id_range(settings.max_id);
    // A node does not know what users have seen.
    let max_seen = match settings.cluster {
        None => settings.max_seen,
        Some(_) => 0,
    };
    let features = json!({"minItems": min_dim, "maxItems": max_dim, "items": number});
    let (min, max) = (settings.reward_min, settings.reward_max);
    let reward = json!({"minimum": min, "maximum": max});
    let rewards = json!({
        "maxItems": settings.max_k,
        "items": {"type": "number", "minimum": min, "maximum": max}
    });
    let policies: Vec<&str> = servable().into_iter().map(|spec| spec.name).collect();
    let presets = Preset::ALL
        .into_iter()
        .filter(|preset| *preset != Preset::Theory);
    let presets = presets
        .map(|preset| json!(preset.as_str()))
        .chain([Value::Null]);
    let names: Vec<String> = constants()
        .iter()
        .map(|known| setting_name(known.name))
        .collect();
    let policy = json!({"enum": policies});
    let preset = json!({"enum": presets.collect::<Vec<_>>()});
    let constant = json!({"propertyNames": {"enum": names}});
    let nothing = json!({"type": "null"});
    let title = json!({"maxLength": MAX_TITLE});
    let tags = json!({"maxItems": MAX_TAGS, "items": {"type": "string", "maxLength": MAX_TAG}});
    let data = json!({"propertyNames": {"not": {"enum": RESERVED}}});
    let name = name_schema();
    vec![
        (
            "Id",
            json!({
                "type": ["string", "integer"], "maxLength": settings.max_id, "minimum": min_id, "maximum": max_id
            }),
        ),
        // Not by `anyOf`: generators of clients make a type of each part then, and leave out the properties.
        (
            "RecommendRequest",
            json!({
                "if": {"required": ["items"], "properties": {"items": {"type": "array", "items": {}}}},
                "then": {"properties": {"candidates": nothing, "filter": nothing}}
            }),
        ),
        (
            "RecommendRequest/properties/candidates",
            json!({"maxItems": settings.max_candidates, "uniqueItems": true}),
        ),
        (
            "RecommendRequest/properties/items",
            json!({"maxItems": settings.max_candidates}),
        ),
        (
            "RecommendRequest/properties/exclude",
            json!({"maxItems": settings.max_candidates}),
        ),
        (
            "RecommendRequest/properties/filter",
            json!({"maxProperties": MAX_CONDITIONS, "additionalProperties": {"$ref": "#/components/schemas/Condition"}}),
        ),
        (
            "RecommendRequest/properties/k",
            json!({"maximum": settings.max_k}),
        ),
        (
            "RecommendRequest/properties/seen",
            json!({"maximum": max_seen}),
        ),
        (
            "RecommendRequest/properties/ties",
            json!({"enum": ["draw", "order"]}),
        ),
        ("InlineItem/properties/features", features.clone()),
        ("ItemLine/properties/features", features.clone()),
        ("ItemLine/properties/title", title.clone()),
        ("ItemLine/properties/tags", tags.clone()),
        ("ItemLine/properties/data", data.clone()),
        ("ItemPatch", json!({"additionalProperties": false})),
        ("ItemPatch/properties/features", features),
        ("ItemPatch/properties/title", title),
        ("ItemPatch/properties/tags", tags),
        ("ItemPatch/properties/data", data),
        (
            "FeedbackRequest",
            json!({
                "if": {"required": ["reward"], "properties": {"reward": {"type": "number"}}},
                "then": {"properties": {"rewards": nothing}},
                "else": {
                    "properties": {"item": nothing},
                    "anyOf": [
                        {"required": ["rewards"], "properties": {"rewards": {"type": "array", "items": {}, "minItems": 1}}},
                        {"required": ["others"], "properties": {"others": {"type": "number"}}}
                    ]
                }
            }),
        ),
        ("FeedbackRequest/properties/reward", reward.clone()),
        ("FeedbackRequest/properties/others", reward),
        ("FeedbackRequest/properties/rewards", rewards),
        (
            "RecommendBatchRequest/properties/requests",
            json!({"maxItems": settings.max_batch}),
        ),
        (
            "FeedbackBatchRequest/properties/feedback",
            json!({"maxItems": settings.max_batch}),
        ),
        (
            "ExpectRequest/properties/users",
            json!({"maximum": Users::LIMIT}),
        ),
        ("ExperimentRequest/properties/name", name.clone()),
        (
            "ExperimentRequest/properties/arms",
            json!({"maxItems": MAX_ARMS}),
        ),
        (
            "ExperimentRequest/properties/shadows",
            json!({"maxItems": MAX_ARMS - 2}),
        ),
        ("ArmBody/properties/name", name.clone()),
        ("ArmBody/properties/policy", policy.clone()),
        ("ArmBody/properties/preset", preset.clone()),
        ("ArmBody/properties/constants", constant.clone()),
        ("ShadowBody/properties/name", name.clone()),
        ("ShadowBody/properties/policy", policy.clone()),
        ("ShadowBody/properties/preset", preset.clone()),
        ("ShadowBody/properties/constants", constant),
        ("EndRequest/properties/winner", name),
        (
            "SpaceSettings/properties/policy",
            json!({"enum": nullable(policy)}),
        ),
        ("SpaceSettings/properties/preset", preset),
        (
            "SpaceSettings/properties/dim",
            json!({"maximum": settings.max_dim}),
        ),
        (
            "SpaceCard/properties/status",
            json!({"enum": ["ready", "starting", "broken"]}),
        ),
        ("TimelineCard/properties/range", json!({"enum": RANGES})),
        (
            "HistoryEntry/properties/kind",
            json!({"enum": ["split", "merge"]}),
        ),
        (
            "WhyEntry/properties/reason",
            json!({"enum": ["estimates", "frequencies", "both", "connected", "forgotten"]}),
        ),
    ]
}

/// The values of an enumeration, and `null`.
fn nullable(mut schema: Value) -> Value {
    if let Some(values) = schema["enum"].as_array_mut() {
        values.push(Value::Null);
    }
    schema["enum"].take()
}

/// Bodies that are not one JSON value of a type.
fn bodies(document: &mut Value, transform: Option<&Transform>) {
    let lines = |of: &str| json!({"type": "array", "items": {"$ref": format!("#/components/schemas/{of}")}});
    let of = |schema: &str| json!({"$ref": format!("#/components/schemas/{schema}")});
    // No line is no item, and no settings are the defaults.
    let put = object(document, "/paths/~1v1~1items/put/requestBody");
    put.insert("required".to_owned(), false.into());
    let content = &mut put["content"]["application/x-ndjson"];
    content["schema"] = lines("ItemLine");
    if let Some(transform) = transform {
        content["schema"]["items"] = json!({"anyOf": [of("ItemLine"), of("RawItem")]});
        let mut item = transform.example();
        item.insert("id".to_owned(), "i1".into());
        content["example"] = json!([item]);
    }
    let make = object(document, "/paths/~1v1~1spaces~1{space}/put/requestBody");
    make.insert("required".to_owned(), false.into());
    make["content"]["application/json"]["schema"] = of("SpaceSettings");
    for (path, kind, schema) in [
        (
            "~1v1~1admin~1export",
            "application~1x-ndjson",
            lines("ExportLine"),
        ),
        ("~1v1~1stream", "text~1event-stream", of("StreamEvent")),
        (
            "~1v1~1admin~1backup",
            "application~1octet-stream",
            json!({"type": "string", "format": "binary"}),
        ),
    ] {
        let body = format!("/paths/{path}/get/responses/200/content/{kind}");
        object(document, &body).insert("schema".to_owned(), schema);
    }
    let snapshot = "/paths/~1v1~1admin~1snapshot/post/responses/200/content/application~1json";
    let of_partitions = json!({
        "description": "In a cluster: the snapshot of each group.",
        "type": "object",
        "additionalProperties": of("SnapshotResponse")
    });
    let any = json!({"anyOf": [of("SnapshotResponse"), of_partitions]});
    object(document, snapshot).insert("schema".to_owned(), any);
}
