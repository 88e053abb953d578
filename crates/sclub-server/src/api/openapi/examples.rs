//! Examples, made to fit the limits of a server.

use serde_json::{Number, Value, json};

use super::{each_operation, object};

/// Makes the examples of schemas and of request bodies fit.
pub(super) fn fit(document: &mut Value) {
    let all = document.clone();
    for schema in object(document, "/components/schemas").values_mut() {
        let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
        for property in properties.into_iter().flat_map(|all| all.values_mut()) {
            fit_own(&all, property);
        }
    }
    each_operation(document, |_, _, operation| {
        let content = operation.pointer_mut("/requestBody/content");
        let content = content.and_then(Value::as_object_mut);
        for body in content.into_iter().flat_map(|content| content.values_mut()) {
            let schema = body["schema"].clone();
            if let Some(example) = body.get_mut("example") {
                fit_to(&all, &schema, example);
            }
        }
    });
}

/// Makes the example in a schema fit.
fn fit_own(all: &Value, schema: &mut Value) {
    let about = schema.clone();
    if let Some(example) = schema.get_mut("example") {
        fit_to(all, &about, example);
    }
}

/// Makes a value fit a schema: numbers are moved into their range, texts and lists are cut, and lists of numbers are made
/// longer.
fn fit_to(all: &Value, schema: &Value, value: &mut Value) {
    let schema = resolved(all, schema);
    match value {
        Value::Number(number) => {
            let given = number.as_f64().unwrap_or_default();
            let bound = |name: &str| schema[name].as_f64();
            let moved = bound("minimum").map_or(given, |min| given.max(min));
            let moved = bound("maximum").map_or(moved, |max| moved.min(max));
            // A number that fits keeps its form.
            if moved != given {
                let whole = Some(moved as i64).filter(|&whole| whole as f64 == moved);
                let whole = whole.map(Number::from);
                *number = whole.or_else(|| Number::from_f64(moved)).expect("finite");
            }
        }
        Value::String(text) => {
            let max = count(&schema["maxLength"]).unwrap_or(usize::MAX);
            if let Some((end, _)) = text.char_indices().nth(max) {
                text.truncate(end);
            }
        }
        Value::Array(values) => {
            values.truncate(count(&schema["maxItems"]).unwrap_or(usize::MAX));
            if values.last().is_some_and(Value::is_number) {
                let min = count(&schema["minItems"]).unwrap_or(0);
                values.resize(min.max(values.len()), json!(0.0));
            }
            for value in values {
                fit_to(all, &schema["items"], value);
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                fit_to(all, &schema["properties"][name.as_str()], value);
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// The schema that a reference leads to, or the first of several.
fn resolved<'a>(all: &'a Value, schema: &'a Value) -> &'a Value {
    let target = schema["$ref"].as_str().and_then(|to| to.strip_prefix('#'));
    let target = target.and_then(|pointer| all.pointer(pointer));
    let first = schema["anyOf"][0].is_object() && schema["properties"].is_null();
    match target {
        Some(target) => resolved(all, target),
        None if first => resolved(all, &schema["anyOf"][0]),
        None => schema,
    }
}

fn count(value: &Value) -> Option<usize> {
    value
        .as_u64()
        .map(|count| usize::try_from(count).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_moved_into_its_range() {
        let all = json!({"components": {"schemas": {"Short": {"maxLength": 2}}}});
        let schema = json!({"properties": {
            "k": {"maximum": 1},
            "reward": {"minimum": 2.5, "maximum": 3},
            "name": {"$ref": "#/components/schemas/Short"},
            "either": {"anyOf": [{"$ref": "#/components/schemas/Short"}, {"type": "null"}]},
            "features": {"minItems": 3, "maxItems": 3, "items": {"maximum": 0.7}},
            "names": {"maxItems": 1, "items": {"$ref": "#/components/schemas/Short"}}
        }});
        let mut value = json!({
            "k": 2, "reward": 1.0, "name": "äöü", "either": "abc", "features": [0.6, 0.8], "names": ["abc", "d"],
            "other": 5.0
        });
        fit_to(&all, &schema, &mut value);
        assert_eq!(
            value,
            json!({
                "k": 1, "reward": 2.5, "name": "äö", "either": "ab", "features": [0.6, 0.7, 0.0], "names": ["ab"],
                "other": 5.0
            })
        );
    }
}
