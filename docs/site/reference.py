"""Pages of reference, made from the program, from the description of its API and from the Python package."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any


def help_of(sclub: str, *words: str) -> str:
    done = subprocess.run([sclub, *words, "--help"], capture_output=True, text=True, check=True)
    return done.stdout


def commands(text: str) -> list[str]:
    """The names under `Commands:` of a help text."""
    part = re.search(r"^Commands:\n(.*?)(\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    return [name for name in re.findall(r"^  (\S+)", part[1], re.MULTILINE) if name != "help"] if part else []


def command_line(sclub: str) -> str:
    """All help texts of the program."""
    page = "# The command line\n\nThe help texts of `sclub`, as `sclub help COMMAND` prints them.\n"

    def add(words: list[str]) -> None:
        nonlocal page
        text = help_of(sclub, *words)
        page += f"\n{'#' * (len(words) + 1)} `{' '.join(['sclub', *words])}`\n\n```text\n{text.rstrip()}\n```\n"
        for name in commands(text):
            add([*words, name])

    page += f"\n```text\n{help_of(sclub).rstrip()}\n```\n"
    for name in commands(help_of(sclub)):
        add([name])
    return page


def one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def kind(schema: dict[str, Any]) -> str:
    """The type of a field in a few words, with links to types that have a section of their own."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    for word in ("oneOf", "anyOf", "allOf"):
        if word in schema and "properties" not in schema and schema.get("type") != "object":
            return " or ".join(dict.fromkeys(kind(one) for one in schema[word] if one.get("type") != "null"))
    names = schema.get("type", "any value")
    names = [names] if isinstance(names, str) else [name for name in names if name != "null"]
    text = " or ".join(names)
    if "array" in names and "items" in schema:
        text = text.replace("array", f"array of {kind(schema['items'])}")
    if "object" in names and isinstance(schema.get("additionalProperties"), dict) and "properties" not in schema:
        text = text.replace("object", f"object of {kind(schema['additionalProperties'])}")
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None or high is not None:
        text += f", {low if low is not None else '…'} to {high if high is not None else '…'}"
    if "maxLength" in schema:
        text += f", {schema.get('minLength', 0)} to {schema['maxLength']} characters"
    if "maxItems" in schema:
        text += f", at most {schema['maxItems']:,}"
    return text


def fields(schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    rows = ""
    for name, field in schema.get("properties", {}).items():
        about = one_line(field.get("description", ""))
        if "default" in field:
            about += f" Default: `{json.dumps(field['default'])}`."
        rows += f"| `{name}`{' (required)' if name in required else ''} | {kind(field)} | {about.strip()} |\n"
    return f"| field | type | |\n|---|---|---|\n{rows}\n" if rows else ""


def call(document: dict[str, Any], path: str, method: str, about: dict[str, Any]) -> str:
    text = f"### {method.upper()} {path}\n\n{about.get('summary', '')}\n\n{about.get('description', '')}\n\n"
    if parameters := about.get("parameters"):
        text += "| parameter | in | type | |\n|---|---|---|---|\n"
        for one in parameters:
            name = f"`{one['name']}`{' (required)' if one.get('required') else ''}"
            text += f"| {name} | {one['in']} | {kind(one.get('schema', {}))} | {one_line(one.get('description', ''))} |\n"
        text += "\n"
    for media, body in about.get("requestBody", {}).get("content", {}).items():
        schema = body.get("schema") or body.get("itemSchema") or {}
        text += f"Body: `{media}`" + (f", {kind(schema)}" if schema else "") + "\n\n"
        if "example" in body and media == "application/json":
            text += f"```json\n{json.dumps(body['example'])}\n```\n\n"
    text += "| status | answer |\n|---|---|\n"
    for status, answer in about["responses"].items():
        if "$ref" in answer:
            answer = document["components"]["responses"][answer["$ref"].rsplit("/", 1)[1]]
        shapes = ", ".join(
            kind(body.get("schema") or body.get("itemSchema") or {}) if "json" in media else f"`{media}`"
            for media, body in answer.get("content", {}).items()
        )
        # All errors have the same body, which the first paragraph of the page describes.
        shapes = "" if shapes == "[ErrorBody](#errorbody)" else f"{shapes}. " if shapes else ""
        text += f"| {status} | {shapes}{one_line(answer.get('description', ''))} |\n"
    return text + "\n"


def http(file: Path) -> str:
    """The calls by their groups, then the types of their bodies."""
    document = json.loads(file.read_text(encoding="utf-8"))
    page = f"# The HTTP API\n\n{document['info']['description']}\n\nErrors have the body [ErrorBody](#errorbody), and [The service](service.md#errors) lists their codes. This page is made from [openapi.json](openapi.json).\n\n"
    for tag in document["tags"]:
        page += f"## {tag['name'].capitalize()}\n\n{tag.get('description', '')}\n\n"
        # In the order of use: an application recommends, then sends feedback.
        for path, methods in sorted(document["paths"].items(), key=lambda one: (one[0].count("/"), one[0] != "/v1/recommend")):
            for method, about in methods.items():
                if isinstance(about, dict) and tag["name"] in about.get("tags", []):
                    page += call(document, path, method, about)
    page += "## Types\n\n"
    for name, schema in sorted(document["components"]["schemas"].items()):
        page += f"### {name}\n\n{schema.get('description', '')}\n\n{fields(schema)}"
        if not schema.get("properties"):
            page += f"{kind(schema)}\n\n"
    return page


def python() -> str:
    """The public names of the package, by subject."""
    import sclub

    policies = list(dict.fromkeys(["LinUcb", *(kind.__name__ for kind in sclub.policy_classes.values())]))
    clients = ["Client", "AsyncClient", "Recommendation", "Scored"]
    named = {*policies, *clients, "Policy", "Items", "ItemFeatures", "Recommender", "evaluate", "item_id", "load"}
    kinds = [name for name in sclub.__all__ if isinstance(getattr(sclub, name), type) and name not in named]
    errors = [name for name in kinds if issubclass(getattr(sclub, name), Exception)]
    results = [name for name in kinds if name not in errors]

    def rst(lines: list[str]) -> str:
        return "```{eval-rst}\n" + "\n".join(lines) + "\n```\n\n"

    def classes(names: list[str], *options: str) -> str:
        return rst([line for name in names for line in (f".. autoclass:: sclub.{name}", *(f"   {option}" for option in options), "")])

    page = "# The Python API\n\nThe guides are [Python](python.md), [the lab](python-lab.md) and [the client](python-client.md).\n\n"
    page += "## Every policy\n\n" + classes(["Policy"])
    names = "".join(f"| `{name}` | `sclub.{kind.__name__}` |\n" for name, kind in sclub.policy_classes.items())
    page += f"## Policies\n\n`sclub.policy_classes` has the class of each policy, by its name:\n\n| name | class |\n|---|---|\n{names}\n" + classes(policies, ":no-members:")
    page += "## Items\n\n" + classes(["Items", "ItemFeatures"]) + rst([".. autofunction:: sclub.item_id", "", ".. autofunction:: sclub.load"])
    lists = {name: ", ".join(f"`{one}`" for one in getattr(sclub.lab, name)) for name in ("field_policies", "field_worlds")}
    page += "## The lab\n\n" + rst([".. automodule:: sclub.lab"]) + "".join(f"`sclub.lab.{name}`: {names}.\n\n" for name, names in lists.items())
    page += "## Evaluation\n\n" + rst([".. autofunction:: sclub.evaluate", "", ".. automodule:: sclub.ope"])
    page += "## Other tools\n\n" + classes(["Recommender"])
    page += "## Clients\n\n" + classes(clients, ":inherited-members:")
    page += "## Errors\n\n" + classes(errors, ":no-members:")
    page += "## Results\n\n" + classes(results)
    return page
