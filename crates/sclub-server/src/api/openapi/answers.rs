//! Answers that many calls have in common: each is described once, and added to every call that can have it.

use serde_json::{Value, json};

use super::{each_operation, object};

/// The name, the meaning, and the headers of each answer.
const ANSWERS: [(&str, &str, &[&str]); 14] = [
    (
        "BadBody",
        "`bad_json`: the body is not as described. `bad_body`: it is incomplete or malformed",
        &[],
    ),
    (
        "Unauthorized",
        "`unauthorized`: the server has keys, and the request has none or an unknown one",
        &["WWW-Authenticate"],
    ),
    (
        "Forbidden",
        "`forbidden`: the role or the space of the key does not allow this. `cross_site`: a page of another web site \
         made the call",
        &[],
    ),
    (
        "UnknownSpace",
        "`unknown_space`: there is no such space, or no longer",
        &[],
    ),
    ("Timeout", "`timeout`: the body did not arrive in time", &[]),
    ("TooLarge", "`too_large`: the body is too large", &[]),
    (
        "WrongType",
        "`wrong_type`: the body is compressed, or a browser sent it with another content type than JSON",
        &[],
    ),
    (
        "WrongHost",
        "`wrong_host`: the host name is not one of this server",
        &[],
    ),
    (
        "Invalid",
        "`invalid`: a parameter or a field is out of range; `field` names it",
        &[],
    ),
    (
        "RateLimited",
        "`rate_limited`: there are more requests a second than the server allows for the key or the address",
        &["Retry-After"],
    ),
    (
        "Internal",
        "`internal`: the server's log has the details",
        &[],
    ),
    (
        "Unsupported",
        "`unsupported`: the server is a node of a cluster",
        &[],
    ),
    (
        "Unavailable",
        "`starting`: the server is reading its log. `overloaded`: there is too much work or there are too many connections. \
         `read_only`: the server cannot write at the moment. `broken`: the space cannot be opened. `moved`: a node of a \
         cluster got no answer from the owner of the partition, for example because it changes, or because NATS has no \
         majority; the request may have been executed. Otherwise nothing was changed. Retry: rewards count once",
        &["Retry-After"],
    ),
    (
        "UnknownOutcome",
        "`unknown_outcome`: the disk failed, and the request may be written or not. Send it again; it counts once",
        &["Retry-After"],
    ),
];

/// Adds the answers to the description and to its operations.
pub(super) fn add(document: &mut Value) {
    let mut all = serde_json::Map::new();
    for (name, meaning, headers) in ANSWERS {
        let mut answer = json!({
            "description": meaning,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
        });
        for &header in headers {
            answer["headers"][header] = match header {
                "Retry-After" => json!({
                    "description": "The number of seconds after which to retry. Not in every answer",
                    "schema": {"type": "integer", "minimum": 0}
                }),
                _ => json!({
                    "description": "The way to send a key",
                    "required": true,
                    "schema": {"type": "string", "const": "Bearer"}
                }),
            };
        }
        all.insert(name.to_owned(), answer);
    }
    object(document, "/components").insert("responses".to_owned(), Value::Object(all));
    each_operation(document, |path, method, operation| {
        for (status, name) in answers_of(path, method, operation) {
            add_reference(operation, status, name);
        }
    });
}

/// Removes the answers that no operation has.
pub(super) fn drop_unused(document: &mut Value) {
    let paths = document["paths"].to_string();
    object(document, "/components/responses")
        .retain(|name, _| paths.contains(&format!("\"#/components/responses/{name}\"")));
}

/// The answers that an operation can have beside its own.
fn answers_of(path: &str, method: &str, operation: &Value) -> Vec<(&'static str, &'static str)> {
    let mut answers = vec![("421", "WrongHost"), ("503", "Unavailable")];
    // Health checks need no key.
    if operation.get("security").is_none() {
        answers.extend([
            ("401", "Unauthorized"),
            ("403", "Forbidden"),
            ("429", "RateLimited"),
            ("500", "Internal"),
        ]);
    }
    if operation.get("requestBody").is_some() {
        answers.extend([
            ("400", "BadBody"),
            ("408", "Timeout"),
            ("413", "TooLarge"),
            ("415", "WrongType"),
            ("422", "Invalid"),
        ]);
    }
    if operation.get("parameters").is_some() {
        answers.push(("422", "Invalid"));
    }
    let is_logged = !(path.starts_with("/v1/recommend") || path.starts_with("/v1/spaces"));
    if method != "get" && is_logged {
        answers.push(("504", "UnknownOutcome"));
    }
    if path.starts_with("/v1/spaces") {
        answers.push(("501", "Unsupported"));
    }
    answers
}

/// Adds an answer to an operation, unless the operation describes this status itself.
pub(super) fn add_reference(operation: &mut Value, status: &str, name: &str) {
    let reference = json!({"$ref": format!("#/components/responses/{name}")});
    let own = operation["responses"].as_object_mut();
    own.expect("an operation has answers")
        .entry(status)
        .or_insert(reference);
}
