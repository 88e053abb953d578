"""The pages of the documentation, and the code blocks in them.

A comment of HTML before a block says what is special about it. A block of text needs one: `output` or `not run`.

    <!-- not run: needs an hour -->       the block is not run, or not compared with anything, for this reason
    <!-- shorter: run --rounds 300 -->    commands `sclub run` of the block are run with these flags, in place of others of the name
    <!-- output -->                       a block of text: what the block before it prints. `…` stands for anything
    <!-- output: numbers vary -->         the same, and numbers may be others
    <!-- part of: crates/x/examples/y.rs -->   the block is a piece of this file, which other tests run
    <!-- run by: clients/js/run-tests -->      other tests run the block: this file
    <!-- body: POST /v1/recommend -->     a block of JSON: a valid body of this call, by docs/openapi.json
    <!-- setup sh
    …
    -->                                   commands that are run here and not shown; also `setup python` and `setup rust`
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATTERNS = ["*.md", "docs/*.md", "crates/*/README.md", "crates/*/docs/*.md", "clients/*/README.md", "deploy/*.md"]
LANGUAGES = {"sh", "python", "rust", "js", "json", "toml", "yaml", "ini", "text"}
# Other ways to write a code block: with tildes, after a marker of a list or a quotation, by indentation with a tab.
HIDDEN = re.compile(r"\s*(?:[-*+>]|\d+[.)])?\s*(?:~~~|(?<=[-*+>.)] )```|(?<=>)```)|\t")
# A line that begins a code block by indentation with spaces, after an empty line and a line of text that is no part of a list.
INDENTED, LISTED = re.compile(r" {4,}\S"), re.compile(r"\s|[-*+] |\d+[.)] ")
MARKERS = ("not run", "output", "shorter", "part of", "run by", "body", "setup")


class Mistake(Exception):
    """Something in a page is wrong."""


@dataclass
class Block:
    page: Path
    line: int
    language: str
    code: str
    marker: str = ""  # one of MARKERS, or nothing
    value: str = ""  # the text of the marker

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    return [path for pattern in PATTERNS for path in sorted(ROOT.glob(pattern))]


def without_code(text: str) -> str:
    """The text with empty lines in place of code blocks and comments, and without inline code."""
    blank = lambda match: "\n" * match[0].count("\n")
    text = re.sub(r"^( *)(```+|~~~+).*?^\1\2 *$", blank, text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", blank, text, flags=re.DOTALL)
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "``", text)


def blocks(page: Path) -> list[Block]:
    """The blocks of a page in their order, with hidden ones."""
    found: list[Block] = []
    marker, value, before, is_apart = "", "", "", True
    lines = page.read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        line, start = lines[at], at + 1
        at += 1
        if is_apart and INDENTED.match(line) and not LISTED.match(before):
            raise Mistake(f"{page}:{start}: a code block by indentation would not be run: begin it with ```")
        is_apart, before = not line.strip(), line if line.strip() else before
        if comment := re.match(r" *<!-- *(.*)", line):
            text = comment[1]
            while "-->" not in text and at < len(lines):
                text += "\n" + lines[at]
                at += 1
            text = text.split("-->")[0].rstrip()
            name = next((one for one in MARKERS if re.match(rf"{one}\b", text)), "")
            if name == "setup":
                language, _, code = text.removeprefix("setup").strip().partition("\n")
                found.append(Block(page, start, language, textwrap.dedent(code), "setup"))
            elif name:
                marker, value = name, text.removeprefix(name).lstrip(": ")
                if name != "output" and not value:
                    raise Mistake(f"{page}:{start}: the comment '{name}' says no more")
        elif fence := re.match(r"( *)(```+)(.*)$", line):
            indent, ticks, language = fence.groups()
            code = []
            while at < len(lines) and lines[at].strip() != ticks:
                code.append(lines[at].removeprefix(indent))
                at += 1
            if at == len(lines):
                raise Mistake(f"{page}:{start}: the code block has no end")
            at += 1
            found.append(Block(page, start, language.strip(), "\n".join(code) + "\n", marker, value))
            marker, value = "", ""
        elif HIDDEN.match(line):
            raise Mistake(f"{page}:{start}: a code block begins with ``` on a line of its own, or it would not be run")
        elif line.strip() and marker:
            raise Mistake(f"{page}:{start}: no code block follows the comment '{marker}'")
    if marker:
        raise Mistake(f"{page}: no code block follows the last comment '{marker}'")
    for block in found:
        if block.language not in LANGUAGES:
            raise Mistake(f"{block.place}: a code block of '{block.language}'; known are {', '.join(sorted(LANGUAGES))}")
        if block.language == "text" and block.marker not in ("output", "not run"):
            raise Mistake(f"{block.place}: a block of text has <!-- output --> or <!-- not run: reason --> before it")
    return found
