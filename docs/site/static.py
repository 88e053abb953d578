"""Blocks that are not programs: they are parsed, or compared with what they show."""

from __future__ import annotations

import configparser
import json
import re
import tomllib

import jsonschema
import yaml
from pages import ROOT, Block, Mistake


def normal(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def check_output(block: Block, printed: str) -> None:
    """Compares a block with what was printed. White space does not count, and `…` stands for anything."""
    shown, got = block.code, printed
    if block.value == "numbers vary":
        shown, got = (re.sub(r"-?\d+(?:[.,]\d+)*(?:e-?\d+)?", "0", text) for text in (shown, got))
    pattern = " ?.*? ?".join(re.escape(normal(part)) for part in shown.split("…"))
    if not re.fullmatch(pattern, normal(got)):
        raise Mistake(f"{block.place}: the page shows\n{block.code}\nand this was printed\n{printed}")


def check_elsewhere(block: Block) -> None:
    """A block that the tests of another file run: the file is there, and has the block if it says so."""
    path = ROOT / block.value
    if not path.is_file():
        raise Mistake(f"{block.place}: there is no file {block.value}")
    if block.marker == "run by" and block.page.name not in path.read_text(encoding="utf-8"):
        raise Mistake(f"{block.place}: {block.value} does not name this page, so it cannot run the block")
    if block.marker == "part of" and normal(block.code) not in normal(path.read_text(encoding="utf-8")):
        raise Mistake(f"{block.place}: the block is not a part of {block.value}")


def check_body(block: Block) -> None:
    method, path = block.value.split()
    document = json.loads((ROOT / "docs/openapi.json").read_text(encoding="utf-8"))
    call = document["paths"].get(path, {}).get(method.lower())
    if not call or "requestBody" not in call:
        raise Mistake(f"{block.place}: docs/openapi.json has no body for {block.value}")
    schema = dict(call["requestBody"]["content"]["application/json"]["schema"], components=document["components"])
    errors = [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(json.loads(block.code))]
    if errors:
        raise Mistake(f"{block.place}: not a body of {block.value}: {'; '.join(errors)}")


def check(block: Block) -> None:
    """Parses a block of data."""
    try:
        match block.language:
            case "json":
                json.loads(block.code)
            case "toml":
                tomllib.loads(block.code)
            case "yaml":
                list(yaml.safe_load_all(block.code))
            case "ini":
                configparser.ConfigParser(strict=False, interpolation=None).read_string(block.code)
    except (ValueError, yaml.YAMLError, configparser.Error) as error:
        raise Mistake(f"{block.place}: {error}") from error
    if block.marker == "body":
        check_body(block)
