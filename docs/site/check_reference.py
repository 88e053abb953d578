"""Compares the pages with the program: commands and flags that are shown but not run, error codes, the number of policies, the public names of the Python package.

    python check_reference.py SCLUB SITE
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import reference
from pages import ROOT, blocks, pages

SOURCE = ROOT / "crates/sclub-server/src"
# ApiError::new(StatusCode::…, "code", and the short forms for statuses that have several codes.
CODE = re.compile(r'(?:ApiError|Self)::(?:new\(\s*StatusCode::\w+,|unknown\(|conflict\()\s*"([a-z_]+)"')
CONST = re.compile(r'(?:ApiError|Self)::(?:new\(\s*StatusCode::\w+,|unknown\(|conflict\()\s*([A-Z_]+)\b')


def commands(sclub: str) -> dict[str, set[str]]:
    """The flags of every command: `cluster init`, and so on."""
    found: dict[str, set[str]] = {}

    def add(words: list[str]) -> None:
        text = reference.help_of(sclub, *words)
        found[" ".join(words)] = set(re.findall(r"(?<![\w-])(--[a-z][\w-]*|-[A-Za-z])(?![\w-])", text)) | {"--help", "--version"}
        for name in reference.commands(text):
            add([*words, name])

    add([])
    return found


def wrong_flags(sclub: str) -> list[str]:
    """Commands in the text and in blocks that are not run: they name a command and flags that exist."""
    known = commands(sclub)
    wrong = []
    for page in pages():
        if page.name == "CHANGELOG.md":  # it names what was removed
            continue
        text = page.read_text(encoding="utf-8")
        inline = re.findall(r"`(sclub [^`\n]+)`", text)
        shown = [line for block in blocks(page) if block.marker == "not run" and block.language == "sh" for line in block.code.replace("\\\n", " ").splitlines()]
        for line in [*inline, *(line for line in shown if line.startswith("sclub "))]:
            line = re.split(r"\s[|>#&;]|&&", line)[0]
            words = line.split()[1:]
            name = next((name for name in (" ".join(words[:2]), *words[:1]) if name in known), None)
            if name is None:
                if re.fullmatch(r"[a-z][a-z-]*", words[0]):
                    wrong.append(f"{page.relative_to(ROOT)}: `{line}`: there is no command {words[0]}")
                continue
            for flag in re.findall(r"(?<=[\s\[])--[a-z][\w-]*", line):
                if flag not in known[name]:
                    wrong.append(f"{page.relative_to(ROOT)}: `{line}`: sclub {name} has no flag {flag}")
    return wrong


def wrong_codes() -> list[str]:
    """The table of error codes has those of the source."""
    used: set[str] = set()
    for file in SOURCE.rglob("*.rs"):
        text = file.read_text(encoding="utf-8").split("\nmod tests {")[0]
        used |= set(CODE.findall(text))
        for name in CONST.findall(text):
            used |= set(re.findall(rf'const {name}: &str = "([a-z_]+)"', text))
    page = (ROOT / "docs/service.md").read_text(encoding="utf-8")
    table = re.search(r"\n### Errors\n.*?\n(\|.*?)\n\n", page, re.DOTALL)
    listed = {code for row in table[1].splitlines() for code in re.findall(r"`([a-z_]+)`", row.split("|")[2])} if table else set()
    wrong = [f"docs/service.md, Errors: `{code}` is missing" for code in sorted(used - listed)]
    return wrong + [f"docs/service.md, Errors: no answer has the code `{code}`" for code in sorted(listed - used)]


def wrong_counts(sclub: str) -> list[str]:
    """The pages say how many policies there are."""
    said = subprocess.run([sclub, "run", "--policies", "?"], capture_output=True, text=True).stderr
    names = re.search(r"use one of (.*)", said)
    yardsticks = {"oracle", "informed", "best-item", "random"}
    count = len(set(names[1].split(", ")) - yardsticks) if names else 0
    wrong = []
    for name in ("README.md", "docs/index.md", "docs/tutorial-researcher.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        for number in re.findall(r"(\d+) (?:policies,|policies:|others)", text):
            if int(number) != count:
                wrong.append(f"{name}: {number} policies; there are {count}")
    return wrong


def missing_names(site: Path) -> list[str]:
    """Every public name of the Python package is on the page of its API."""
    import sclub

    page = re.sub(r"<[^>]+>", "", (site / "python-api.html").read_text(encoding="utf-8"))
    modules = {"sclub": sclub, "sclub.lab": sclub.lab, "sclub.ope": sclub.ope}
    names = [f"{module}.{name}" for module, one in modules.items() for name in one.__all__ if not name.startswith("_")]
    return [f"python-api.html: {name} is missing" for name in names if not re.search(rf"\b{name}\b", page) and name not in modules]


def main() -> bool:
    sclub = sys.argv[1]
    wrong = [*wrong_flags(sclub), *wrong_codes(), *wrong_counts(sclub), *missing_names(Path(sys.argv[2]))]
    for one in wrong:
        print(one)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
