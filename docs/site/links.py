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


def check_pages() -> tuple[int, list[str]]:
    count, wrong = 0, []
    for page in pages():
        text = without_code(page.read_text(encoding="utf-8"))
        for at, line in enumerate(text.splitlines(), 1):
            for link in re.findall(r"\]\(([^)\s]+)\)|<(https?://[^>]+)>|^\[[^\]]+\]: *(\S+)", line):
                link = "".join(link)
                count += 1
                place = f"{page.relative_to(ROOT)}:{at}"
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
    in_pages, wrong = check_pages()
    in_site, more = check_site(Path(sys.argv[1]).resolve())
    for one in [*wrong, *more]:
        print(one)
    print(f"{in_pages} links of pages and {in_site} links of the site: {len(wrong) + len(more)} broken")
    return bool(wrong or more)


if __name__ == "__main__":
    sys.exit(main())
