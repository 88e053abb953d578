//! Schemas that no type of the code has.

use serde_json::{Value, json};

use sclub_features::{AVAILABLE, Transform};

use super::{Subject, object};
use crate::description::{MAX_TAG, MAX_TAGS, MAX_TITLE, RESERVED};
use crate::settings::{MAX_PROPENSITIES, constants, setting_name};

/// Adds the schemas to the description.
pub(super) fn add(document: &mut Value, subject: &Subject<'_>) {
    let schemas = object(document, "/components/schemas");
    for (name, schema) in [
        ("Condition", condition()),
        ("ExportLine", export_line()),
        ("SpaceSettings", space_settings()),
        ("StreamEvent", stream_event()),
    ] {
        schemas.insert(name.to_owned(), schema);
    }
    if let Some(transform) = &subject.settings.transform {
        schemas.insert("RawItem".to_owned(), raw_item(transform));
        // All columns are fields of a patch too, and one tag needs no list. With features, a column is data of any type.
        let fields = &mut schemas["ItemPatch"]["properties"];
        fields["tags"]["type"] = json!(["array", "string", "null"]);
        for (name, kind) in columns(transform) {
            if fields[name].is_null() {
                fields[name] = json!({"description": column(kind)["description"]});
            }
        }
    }
}

/// The columns that a transform makes features from.
fn columns(transform: &Transform) -> impl Iterator<Item = (&str, &'static str)> {
    transform.columns().filter(|(name, _)| *name != AVAILABLE)
}

/// A field that a transform makes features from.
fn column(kind: &str) -> Value {
    let texts = json!({"type": "array", "items": {"type": "string"}});
    match kind {
        "number" => json!({
            "description": "A number, or a text with one, such as a price.",
            "type": ["number", "boolean", "string", "null"]
        }),
        "tags" => json!({
            "description": "A name, or several in a list or between separators.",
            "anyOf": [{"type": ["string", "number", "boolean", "null"]}, texts]
        }),
        _ => {
            json!({"description": "A text.", "anyOf": [{"type": ["string", "number", "boolean", "null"]}, texts]})
        }
    }
}

/// An item with raw fields, as `raw.rs` reads it.
fn raw_item(transform: &Transform) -> Value {
    let id = json!({"$ref": "#/components/schemas/Id"});
    let id_column = transform.id_column().unwrap_or("id");
    let mut fields = json!({
        id_column: id,
        "id": id,
        // With features, it is an item of the other kind.
        "features": false,
        "title": {"description": "Its title, for people.", "type": ["string", "null"], "maxLength": MAX_TITLE},
        "tags": {
            "description": "Its tags, for filters.",
            "type": ["array", "string", "null"],
            "maxItems": MAX_TAGS,
            "items": {"type": "string", "maxLength": MAX_TAG}
        },
        "available": {"description": "False if it must not be shown.", "type": ["boolean", "null"]},
        "data": {"description": "More fields.", "type": ["object", "null"], "propertyNames": {"not": {"enum": RESERVED}}}
    });
    for (name, kind) in columns(transform) {
        if fields[name].is_null() {
            fields[name] = column(kind);
        }
    }
    let mut needed: Vec<Value> = columns(transform)
        .map(|(name, _)| json!({"required": [name]}))
        .collect();
    let in_data = json!({"type": "object", "anyOf": needed});
    needed.push(json!({"required": ["data"], "properties": {"data": in_data}}));
    json!({
        "description": "An item that is put into the catalogue with its raw fields; the server's transform makes its features. It has at least one \
                        of the fields that they are made from, here or in `data`. Other fields are kept in its data.",
        "type": "object",
        "allOf": [
            {"anyOf": [{"required": ["id"]}, {"required": [id_column]}]},
            {"anyOf": needed}
        ],
        "properties": fields
    })
}

/// A condition of a filter, as `filter.rs` reads it.
fn condition() -> Value {
    let value = json!({"type": ["string", "number", "boolean"]});
    let values = json!({"type": "array", "items": value});
    json!({
        "description": "A condition on a field of an item: a value, a list of values of which one must be there, or an object. \
                        All parts of an object must hold.",
        "anyOf": [
            value,
            values,
            {
                "type": "object",
                "additionalProperties": false,
                "minProperties": 1,
                "properties": {
                    "any": {"description": "At least one of these values is there.", "type": "array", "items": value},
                    "all": {"description": "All of these values are there.", "type": "array", "items": value},
                    "none": {"description": "None of these values is there.", "type": "array", "items": value},
                    "min": {"description": "The value is a number that is not smaller.", "type": "number"},
                    "max": {"description": "The value is a number that is not larger.", "type": "number"}
                }
            }
        ]
    })
}

/// A line of the export, as `engine/export.rs` writes it.
fn export_line() -> Value {
    let ids = json!({"type": "array", "items": {"type": "string"}});
    let number = json!({"type": ["number", "null"]});
    let whole = json!({"type": ["integer", "null"], "minimum": 0});
    json!({
        "description": "An item shown, and its reward.",
        "type": "object",
        "required": ["decision", "user", "item", "position", "propensity", "features", "score", "cluster", "reward", "decided", "rewarded"],
        "additionalProperties": false,
        "properties": {
            "decision": {"description": "The number of the decision plus the position of the item.", "type": "integer", "minimum": 0},
            "user": {"type": "string"},
            "item": {"type": "string"},
            "position": whole,
            "propensity": number,
            "slot_propensity": {"type": "number"},
            "features": {"type": ["array", "null"], "items": {"type": "number"}},
            "context": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/ContextValue"}},
            "score": {"type": "number"},
            "cluster": {"type": "integer", "minimum": 0},
            "reward": number,
            "assumed": {"description": "True for an assumed reward: of `others`, or of `--unanswered`.", "type": "boolean", "const": true},
            "decided": {"description": "The time of the decision, in milliseconds since 1970.", "type": "integer", "minimum": 0},
            "rewarded": {"description": "The time of the reward, in milliseconds since 1970.", "type": ["integer", "null"], "minimum": 0},
            "imported": {"description": "True if the item was not shown here.", "type": "boolean", "const": true},
            "experiment": {"type": "string"},
            "arm": {"type": "string"},
            "draw": {"description": "The random number of the decision, in hexadecimal.", "type": "string", "pattern": "^[0-9a-f]{16}$"},
            "candidates": ids,
            "catalogue": {
                "type": "object",
                "required": ["revision"],
                "additionalProperties": false,
                "properties": {
                    "revision": {"type": "integer", "minimum": 0},
                    "filter": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/Condition"}},
                    "exclude": ids,
                    "seen": {"type": "integer", "minimum": 1}
                }
            }
        }
    })
}

/// An event of the stream, as `stream.rs` sends it.
fn stream_event() -> Value {
    let event = |name: &str, about: &str, content: Value| {
        json!({
            "description": about,
            "type": "object",
            "required": ["event", "data"],
            "properties": {
                "event": {"type": "string", "const": name},
                "data": {"type": "string", "contentMediaType": "application/json", "contentSchema": content}
            }
        })
    };
    let of = |schema: &str| json!({"$ref": format!("#/components/schemas/{schema}")});
    let missed = json!({"type": "integer", "minimum": 1});
    json!({"anyOf": [
        event("state", "A summary, once a second.", of("SecondCard")),
        event("change", "A change, as in the history.", of("HistoryEntry")),
        event("missed", "The number of changes that a slow client has missed.", missed)
    ]})
}

/// The settings of a space, by the names of flags of `sclub serve`.
fn space_settings() -> Value {
    let text = || json!({"type": ["string", "null"]});
    let number = || json!({"type": ["number", "null"]});
    let whole =
        |min: u64, max: u64| json!({"type": ["integer", "null"], "minimum": min, "maximum": max});
    let any = |min: u64| whole(min, i64::MAX as u64);
    let mut properties = json!({
        "policy": text(), "preset": text(),
        "dim": whole(1, sclub::MAX_DIM as u64),
        "features": {"description": "A file on the server.", "type": ["string", "null"]},
        "context": {"type": ["array", "null"], "items": {"type": "string"}},
        "context-mode": {"enum": ["cross", "append", null]},
        "reward-min": number(), "reward-max": number(),
        "lifetime": any(1),
        "propensities": whole(0, u64::from(MAX_PROPENSITIES)),
        "explore-share": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
        "unanswered": number(),
        "after": {"type": ["string", "null"], "pattern": "^0*[1-9][0-9]{0,9}[smhd]$"},
        "journal-days": any(0),
        "keep-log": {"type": ["string", "null"], "pattern": "^[0-9]+([bB]|[kKmMgGtT][bB]|[dD])?$"},
        "snapshot-every": any(1),
        "max-body": any(1), "max-candidates": any(1), "max-k": any(1), "max-seen": any(0),
        "max-dim": any(1), "max-id": any(1), "max-batch": any(1),
        "rate": whole(0, u64::from(u32::MAX))
    });
    for constant in constants() {
        let literal = json!({"$ref": "#/components/schemas/Literal"});
        let about = json!({"description": constant.meaning, "anyOf": [literal, {"type": "null"}]});
        properties[setting_name(constant.name)] = about;
    }
    json!({
        "description": "Settings of a space, by their names as flags of `sclub serve`, whose help explains them. `null` is as if it \
                        were left out. Constants must be those of the policy.",
        "type": "object",
        "additionalProperties": false,
        // Nothing comes after a time if there is nothing to come.
        "if": {"required": ["after"], "properties": {"after": {"type": "string"}}},
        "then": {"required": ["unanswered"], "properties": {"unanswered": {"type": "number"}}},
        "properties": properties
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_of_a_space_are_all_described() {
        let described = space_settings();
        let described = described["properties"].as_object().unwrap();
        let mut expected = crate::spaces::names_of_settings();
        expected.sort_unstable();
        assert_eq!(
            described.keys().collect::<Vec<_>>(),
            expected.iter().collect::<Vec<_>>()
        );
    }
}
