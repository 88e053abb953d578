"""Follows every link: those of the pages as they are in the repository, and those of the site that was built.

    python links.py SITE

Links to other hosts are checked by their form alone: the tests need no internet.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pages import ROOT, pages, without_code


def well_formed(link: str) -> bool:
    parts = urlsplit(link)
    host = parts.hostname or ""
    return parts.scheme in ("http", "https") and bool(re.fullmatch(r"[\w-]+(\.[\w-]+)+|localhost", host)) and " " not in link


@cache
def anchors_of_page(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    found: set[str] = set()
    text = re.sub(r"^( *)(```+|~~~+).*?^\1\2 *$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for heading in re.findall(r"^#{1,6} +(.*?) *#* *$", text, re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        name, number = slug, 0
        while name in found:
            number += 1
            name = f"{slug}-{number}"
        found.add(name)
    return found


# A link or a picture, with or without a title; an address in angle brackets; the target of a reference; an attribute of HTML.
LINK = re.compile(
    r"""\]\(\s*<?([^)\s>]+)>?(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)|<(https?://[^>]+)>|^ *\[[^\]]+\]: *(\S+)|\b(?:href|src)=["']([^"']+)["']""",
    re.MULTILINE,
)


def check_pages(chosen: list[Path]) -> tuple[int, list[str]]:
    count, wrong = 0, []
    for page in chosen:
        text = without_code(page.read_text(encoding="utf-8"))
        for match in re.finditer(r"^ *\|.*\n *<!--|^ *<!--[^\n]*-->\n *\|", page.read_text(encoding="utf-8"), re.MULTILINE):
            wrong.append(f"{place_of(page, page.read_text(encoding='utf-8'), match)}: a comment beside a row ends the table")
        defined = {name.lower() for name in re.findall(r"^ *\[([^\]]+)\]:", text, re.MULTILINE)}
        for match in re.finditer(r"\[([^\[\]]+)\]\[([^\]]*)\]", text):
            if (match[2] or match[1]).lower() not in defined:
                wrong.append(f"{place_of(page, text, match)}: {match[0]} is defined nowhere")
        found = len(LINK.findall(text))
        if text.count("](") > sum(match[0].startswith("](") for match in LINK.finditer(text)):
            wrong.append(f"{page.relative_to(ROOT)}: a link that cannot be read")
        count += found
        for match in LINK.finditer(text):
            link = next(filter(None, match.groups()))
            place = place_of(page, text, match)
            if re.match(r"[a-z]+:", link):
                if not well_formed(link):
                    wrong.append(f"{place}: {link} is no address")
                continue
            path, _, anchor = link.partition("#")
            file = (page.parent / unquote(path)).resolve() if path else page
            if not file.exists():
                wrong.append(f"{place}: there is no {path}")
            elif anchor and file.suffix == ".md" and unquote(anchor) not in anchors_of_page(file):
                wrong.append(f"{place}: {path or page.name} has no heading #{anchor}")
    return count, wrong


def place_of(page: Path, text: str, match: re.Match[str]) -> str:
    return f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}"


class Document(HTMLParser):
    """The links and the ids of a page of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if value is None:
                continue
            if name in ("id", "name"):
                self.ids.add(value)
            elif name in ("href", "src") and not (tag == "link" and value.startswith("data:")):
                self.links.append(value)


def check_site(site: Path) -> tuple[int, list[str]]:
    documents = {file: Document(file.read_text(encoding="utf-8")) for file in site.glob("*.html")}  # not those of rustdoc
    count, wrong = 0, []
    for file, document in documents.items():
        for link in dict.fromkeys(document.links):
            count += 1
            place = file.relative_to(site)
            if re.match(r"[a-z]+:", link):
                if not link.startswith(("data:", "mailto:")) and not well_formed(link):
                    wrong.append(f"{place}: {link} is no address")
                continue
            path, _, anchor = link.partition("#")
            path = path.partition("?")[0]
            target = (file.parent / unquote(path)).resolve() if path else file
            if not target.is_file():
                wrong.append(f"{place}: there is no {path}")
            elif anchor and target in documents and unquote(anchor) not in documents[target].ids:
                wrong.append(f"{place}: {path} has no #{anchor}")
    # The page works without a network: nothing is loaded from other hosts.
    for file in documents:
        for loaded in re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', file.read_text(encoding="utf-8")):
            wrong.append(f"{file.relative_to(site)}: it loads {loaded}")
    return count, wrong


def main() -> int:
    in_pages, wrong = check_pages(pages())
    in_site, more = check_site(Path(sys.argv[1]).resolve())
    for one in [*wrong, *more]:
        print(one)
    print(f"{in_pages} links of pages and {in_site} links of the site: {len(wrong) + len(more)} broken")
    return bool(wrong or more)


if __name__ == "__main__":
    sys.exit(main())
