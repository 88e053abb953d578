"""Makes the folder that Sphinx reads: the pages, and those that are generated.

    python stage.py SCLUB FOLDER
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import reference
from pages import ROOT, Mistake

# Pages outside of docs/, and their names on the site. Others that are linked to are added.
OTHERS = {
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "crates/sclub/docs/which-policy.md": "which-policy.md",
    "README.md": "index.md",
}

RUST = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "doc/sclub/index.html"
# Pages say `[service.md](service.md)`, which is right in the repository. On the site a link has the name of the page in the table of contents.
TITLES = {
    path.rpartition("/")[2].lower(): title
    for title, path in re.findall(r"^\| \[([^\]]+)\]\(([^)]+\.md)\)", (ROOT / "docs/index.md").read_text(encoding="utf-8"), re.MULTILINE)
}
GENERATED = ("cli.md", "http-api.md", "python-api.md")


def relinked(text: str, page: Path, folder: Path) -> str:
    """The text of a page with its relative links as they are from the folder of Sphinx."""

    def target(match: re.Match[str]) -> str:
        path, hash, anchor = match[1].partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return match[0]
        file = (page.parent / path).resolve()
        inside = str(file.relative_to(ROOT))
        if file.suffix == ".md" and file.parent != ROOT / "docs":
            path = OTHERS.setdefault(inside, inside.replace("/", "-").lower())
        elif file.parent != ROOT / "docs":
            path = os.path.relpath(file, folder)
        else:
            path = file.name
        return f"]({path}{hash}{anchor})"

    # Code is left alone.
    text = re.sub(r"\[(?:docs/)?([\w-]+\.md)\]\((?!http)", lambda match: f"[{TITLES.get(match[1].lower(), match[1])}](", text)
    parts = re.split(r"(^ *```.*?^ *```$|`[^`\n]+`)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if at % 2 else re.sub(r"\]\(([^)\s]+)\)", target, part) for at, part in enumerate(parts))


def exists(row: str) -> bool:
    """Whether the page of a row of the first page is there."""
    if 'href="rust/' in row:
        return RUST.exists()
    name = re.search(r"\(([\w-]+\.md)\)", row)
    return bool(name) and (name[1] in GENERATED or (ROOT / "docs" / name[1]).exists())


def with_generated(match: re.Match[str]) -> str:
    """A table with the rows of the comments before it. In the table they would end it, on GitHub."""
    rows = re.findall(r"<!-- generated: (.*) -->\n", match[1])
    return match[2] + "".join(f"{row}\n" for row in rows if exists(row))


def contents(index: str) -> str:
    """The tables of contents: each section of the first page, with the pages that it links to."""
    trees = ""
    for section in index.split("\n## ")[1:]:
        name = section.splitlines()[0]
        links = dict.fromkeys(re.findall(r"\[([^\]]+)\]\(([\w-]+\.md)\)", section))
        lines = "\n".join(f"{title} <{page.removesuffix('.md')}>" for title, page in links)
        trees += f"\n```{{toctree}}\n:hidden:\n:caption: {name}\n\n{lines}\n```\n"
    return trees


def stage(file: Path, name: str, folder: Path, orphan: bool = False) -> None:
    """Copies a page, without its comments."""
    text = file.read_text(encoding="utf-8")
    text = re.sub(r"((?:<!-- generated: .* -->\n)+)\n(\|.*\n\|[-|]+\n)", with_generated, text)
    text = re.sub(r"^ *<!--.*?-->\n", "", text, flags=re.DOTALL | re.MULTILINE)
    text = relinked(text, file, folder)
    if name == "index.md":
        text += contents(text)
    if orphan:  # it is in no table of contents
        text = f"---\norphan: true\n---\n\n{text}"
    (folder / name).write_text(text, encoding="utf-8")


def sections(text: str) -> list[list[str]]:
    """The headings of a page, each with the text below it, without marks of Markdown."""
    text = re.sub(r"\A---\n.*?\n---\n|^```\{toctree\}.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    found, code = [], False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            code = not code
            continue
        if not code:
            line = re.sub(r"!?\[([^\]]*)\]\([^)\s]*\)", r"\1", line)
            line = re.sub(r"[`*]|^ *\|[-:| ]*| *\|$", "", line)
            line = re.sub(r"( \|)+ ", " – ", line).replace("\\|", "|")
            if heading := re.match(r"#+ (.*)", line):
                found.append([heading[1], ""])
                continue
        if found:
            found[-1][1] += f" {line.strip()}"
    return [[heading, " ".join(text.split())] for heading, text in found]


def scorer(folder: Path) -> str:
    """The program that ranks hits of the search, with the text of each page."""
    texts = {file.stem: sections(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.md"))}
    code = (ROOT / "docs/site/scorer.js").read_text(encoding="utf-8")
    return code.replace("TEXTS = {}", f"TEXTS = {json.dumps(texts, separators=(',', ':'))}")


def main() -> None:
    sclub, folder = sys.argv[1], Path(sys.argv[2]).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in (ROOT / "docs").iterdir():
        if file.is_file() and file.suffix != ".md" and file.name != "build":
            shutil.copy(file, folder)
    listed = set(OTHERS)
    for file in (ROOT / "docs").glob("*.md"):
        stage(file, file.name, folder)
    done = {"README.md"}
    while waiting := set(OTHERS) - done:
        for path in sorted(waiting):
            stage(ROOT / path, OTHERS[path], folder, orphan=path not in listed)
        done |= waiting
    (folder / "cli.md").write_text(reference.command_line(sclub), encoding="utf-8")
    (folder / "http-api.md").write_text(reference.http(ROOT / "docs/openapi.json"), encoding="utf-8")
    (folder / "python-api.md").write_text(reference.python(), encoding="utf-8")
    folder.with_name("scorer.js").write_text(scorer(folder), encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except Mistake as mistake:
        sys.exit(str(mistake))
