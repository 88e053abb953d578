"""Checks that the examples in a description (standard input) are as their schemas say, and that links lead to calls."""

import json
import sys

import jsonschema_rs

document = json.load(sys.stdin)
operations = [
    operation
    for path in document["paths"].values()
    for operation in path.values()
]
ids = {operation["operationId"] for operation in operations}
checked = 0


def check(place, schema, example):
    global checked
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "components": document["components"], **schema}
    for error in jsonschema_rs.validator_for(whole).iter_errors(example):
        sys.exit(f"{place}: the example {json.dumps(example)} is not as its schema says: {error.message}")
    checked += 1


for name, schema in document["components"]["schemas"].items():
    for field, about in schema.get("properties", {}).items():
        if isinstance(about, dict) and "example" in about:
            check(f"{name}.{field}", about, about["example"])
for operation in operations:
    name = operation["operationId"]
    bodies = operation.get("requestBody", {}).get("content", {})
    for body in bodies.values():
        if "example" in body:
            check(name, body["schema"], body["example"])
    for parameter in operation.get("parameters", []):
        schema = parameter["schema"]
        if "default" in schema:
            check(f"{name}, {parameter['name']}", schema, schema["default"])
    for status, answer in operation["responses"].items():
        for link in answer.get("links", {}).values():
            if link["operationId"] not in ids:
                sys.exit(f"{name}, {status}: a link leads to {link['operationId']}, which is not here")
print(f"{checked} examples and defaults are as their schemas say")
