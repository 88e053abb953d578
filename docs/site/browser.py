"""Looks at the site in a real browser, from the disk and without a network: the search finds pages, no page is wider than its
window, and axe-core, if ./test has installed it, finds nothing.

    python browser.py SITE [FOLDER]       with a folder: pictures of some pages
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pages import ROOT

AXE = ROOT / "target/axe/node_modules/axe-core/axe.min.js"

# A query, and a page, or a section of one, that must be among the first three.
QUERIES = {
    "propensity": "evaluate",
    "cold start": "catalogue",
    "backup": "operations#backups-and-drills",
    "restore": "operations",
    "nats": "cluster",
    "docker": "install",
    "install": "install",
    "regret": "tutorial-researcher",
    "linucb": "which-policy",
    "feedback": "service",
    "reward": "service",
    "timeout": "service",
    "scaling": "features",
    "forget user": "service#forgetting",
    "delete user": "service#forgetting",
    "authentication": "service#safety",
    "login": "service#safety",
    "password": "service#safety",
    "api key": "service",
    "implicit feedback": "service#what-a-reward-is",
    "warm start": "service#what-is-already-known",
    "new user": "tutorial-engineer#questions-of-the-first-week",
    "docker compose": "install#container-image",
    "high availability": "cluster",
    "embedding": "features",
    "collaborative filtering": "features#what-to-put-in",
    "RecommendRequest": "http-api",
    "constructor": "architecture",
    "AsyncClient": "python-api",
    "--explore-share": "evaluate",
    "unknown_decision": "service",
    "sclub_writable": "operations",
}
# A character of HTML that is shown as it is written, such as `&gt;`.
ENTITY = re.compile(r"&(?:[a-z]\w*|#\w+);", re.IGNORECASE)
# Windows from phones to large screens.
WIDTHS = (360, 390, 768, 1024, 1280, 1366, 1440, 1680, 1920)
# Where the list of pages begins, by how much the page is wider than the window, and what is cut off: elements of the text past the right
# edge that are in no box that scrolls.
WIDE = """(() => {
  const page = document.documentElement, room = page.clientWidth;
  const scrolls = (e) => e.tagName !== "ARTICLE" && (["auto", "scroll"].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
  const wide = [...document.querySelectorAll("article *")].filter((e) => e.getBoundingClientRect().right > room + 1 && !scrolls(e));
  const left = document.querySelector(".sidebar-container").getBoundingClientRect().left;
  return [Math.round(left), page.scrollWidth - room, wide.slice(0, 3).map((e) => `${Math.round(e.getBoundingClientRect().right)}: ${e.outerHTML.slice(0, 90)}`)];
})()"""
PICTURES = ["index", "tutorial-engineer", "features", "service", "http-api", "python-api", "cli", "results"]


class Left(RuntimeError):
    """The page was left before it had answered."""


class Browser:
    """Chromium, driven over a pipe."""

    def __init__(self, name: str) -> None:
        self.profile = tempfile.mkdtemp(prefix="sclub-browser-")
        to_read, self.to = os.pipe()
        self.back, back_write = os.pipe()
        flags = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --remote-debugging-pipe"
        flags += f" --user-data-dir={self.profile}"
        script = f'exec {name} {flags} 3<&"$0" 4>&"$1"'
        self.child = subprocess.Popen(
            ["bash", "-c", script, str(to_read), str(back_write)],
            pass_fds=(to_read, back_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(back_write)
        self.buffer, self.last, self.session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Runtime.enable")

    def read(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            part = os.read(self.back, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self.buffer += part
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.last += 1
        message = {"id": self.last, "method": method, "params": params} | ({"sessionId": self.session} if self.session else {})
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.last:
                if "error" in answer:
                    left = ("navigated", "context")
                    raise (Left if any(word in answer["error"]["message"] for word in left) else RuntimeError)(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def run(self, code: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{code}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)
        self.until(f"location.href === {json.dumps(address)} && document.readyState === 'complete'")

    def until(self, condition: str) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            # A page that is being left cannot answer.
            with contextlib.suppress(Left):
                if self.run(condition):
                    return
            time.sleep(0.02)
        raise RuntimeError(f"never true: {condition}")

    def width(self, pixels: int, height: int = 900) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=pixels, height=height, deviceScaleFactor=1, mobile=pixels < 600)

    def close(self) -> None:
        self.child.terminate()
        self.child.wait()
        shutil.rmtree(self.profile, ignore_errors=True)


def type_search(browser: Browser, site: Path, query: str) -> None:
    """Types a query into the search field of the first page."""
    browser.open((site / "index.html").as_uri())
    browser.run("document.querySelector('.sidebar-search').focus()")
    browser.call("Input.insertText", text=query)
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
    browser.until(f"new URLSearchParams(location.search).get('q') === {json.dumps(query)}")


def search(browser: Browser, site: Path, query: str) -> list[str]:
    """The pages and sections that are found, best first."""
    browser.open(f"{(site / 'search.html').as_uri()}?q={quote(query)}")
    browser.until("location.pathname.endsWith('/search.html') && /found|match/.test(document.querySelector('.search-summary')?.textContent ?? '')")
    links = browser.run(
        "[...document.querySelectorAll('#search-results li')].map(li => [li.querySelector('a').getAttribute('href'), li.querySelector('span')?.textContent, li.textContent])"
    )
    for link, lines, text in links:
        if not lines:
            raise RuntimeError(f"a search for {query}: {link} is shown without a line of its text")
        if entity := ENTITY.search(text):
            raise RuntimeError(f"a search for {query}: {link} is shown with {entity[0]} in place of a character")
    return [link.replace(".html", "") for link, _, _ in links]


def main() -> int:
    site = Path(sys.argv[1]).resolve()
    name = next((name for name in ("chromium", "chromium-browser", "google-chrome", "chrome") if shutil.which(name)), None)
    if not name:
        print("No Chromium here: the site is not looked at.")
        return "CI" in os.environ
    browser, wrong = Browser(name), []
    try:
        browser.width(1280)
        type_search(browser, site, "cold start")
        for query, page in QUERIES.items():
            found = search(browser, site, query)
            found = list(dict.fromkeys(one if "#" in page else one.split("#")[0] for one in found))
            if page not in found[:3]:
                wrong.append(f"a search for {query}: {page} is not among the first three of {len(found)}: {', '.join(found[:5])}")
        print(f"{len(QUERIES)} searches")
        lefts: dict[int, int] = {}
        for file in sorted(site.glob("*.html")):
            browser.open(file.as_uri())
            for width in WIDTHS:
                browser.width(width)
                left, over, cut = browser.run(WIDE)
                place = f"{file.name} in a window of {width} pixels"
                if over > 0:
                    wrong.append(f"{place} is wider than it by {over}")
                wrong += [f"{place}: this ends at {one}" for one in cut]
                if left != lefts.setdefault(width, left):
                    wrong.append(f"{place}: the list of pages begins at {left}, on other pages at {lefts[width]}")
            broken = browser.run("[...document.images].filter(one => one.complete && !one.naturalWidth).map(one => one.src)")
            wrong += [f"{file.name}: no picture {one}" for one in broken]
        print(f"{len(WIDTHS)} widths of each page")
        wrong += accessible(browser, site)
        thrown = [event["params"]["exceptionDetails"] for event in browser.events if event.get("method") == "Runtime.exceptionThrown"]
        thrown = [one.get("exception", {}).get("description") or one["text"] for one in thrown]
        wrong += [f"an exception: {one}" for one in dict.fromkeys(thrown)]
        if len(sys.argv) > 2:
            pictures(browser, site, Path(sys.argv[2]))
    finally:
        browser.close()
    for one in wrong:
        print(one)
    return bool(wrong)


def accessible(browser: Browser, site: Path) -> list[str]:
    """What axe-core finds on pages of each kind."""
    if not AXE.exists():
        print("No axe-core here: see ./test.")
        return []
    wrong, code = [], AXE.read_text(encoding="utf-8")
    for scheme, width, pages in (("light", 1280, ("index", "features")), ("dark", 390, ("results", "search"))):
        scheme_is(browser, scheme)
        browser.width(width)
        for page in pages:
            browser.open((site / f"{page}.html").as_uri())
            browser.run(f"{code};0")
            found = browser.run("axe.run().then((all) => all.violations.map((one) => `${one.help}: ${one.nodes[0].html.slice(0, 120)}`))")
            wrong += [f"{page}.html, {scheme}, {width} pixels: {one}" for one in found]
    return wrong


def scheme_is(browser: Browser, scheme: str) -> None:
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


def pictures(browser: Browser, site: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        scheme_is(browser, scheme)
        for width in (1280, 390):
            browser.width(width, 1400)
            for page in PICTURES:
                browser.open((site / f"{page}.html").as_uri())
                image = browser.call("Page.captureScreenshot", format="png")["data"]
                (folder / f"{page}-{width}-{scheme}.png").write_bytes(base64.b64decode(image))


if __name__ == "__main__":
    sys.exit(main())
