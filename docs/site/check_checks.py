"""Pages with a mistake each: the checks must refuse every one of them, and nothing else.

    python check_checks.py SCLUB
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import links
from pages import ROOT, Mistake, blocks
from run_page import DONE

FOLDER = ROOT / "target/docs/mistakes"


def block(language: str, code: str, marker: str = "") -> str:
    return f"{marker}\n```{language}\n{code}\n```\n"


# The name of a page, its text, and a part of the complaint.
BLOCKS = {
    "wrong flag": (block("sh", "sclub features --itemz x.csv"), "--itemz"),
    "wrong flag of a server": (block("sh", "sclub serve --polcy sclub"), "--polcy"),
    "failure in the middle of a pipe": (block("sh", "echo a | grep b | cat"), "the commands failed"),
    "failure in a substitution": (block("sh", "a=$(false; echo b)\necho $a"), "the commands failed"),
    "failure after set +e": (block("sh", "set +e") + block("sh", "false\ntrue"), "the commands failed"),
    "error of the server": (block("sh", "sclub serve\ncurl -s localhost:8080/v1/users/nobody"), "unknown_user"),
    "server that dies": (block("sh", 'sclub serve\npid=$(cat "$SERVERS"/server-*[0-9])\nkill -9 $pid\nwhile alive $pid; do sleep 0.05; done'), "has ended"),
    "wrong output": (block("sh", "echo 1") + block("text", "2", "<!-- output -->"), "the page shows"),
    "wrong words beside numbers": (block("sh", "echo 1 user") + block("text", "3 items", "<!-- output: numbers vary -->"), "the page shows"),
    "exception": (block("python", "1 / 0"), "ZeroDivisionError"),
    "exit of the process": (block("python", "import os; os._exit(0)") + block("sh", "false"), "no reason"),
    "return": (block("sh", "return 0\nfalse"), "the commands failed"),
    "exit": (block("python", "raise SystemExit(0)"), "SystemExit"),
    "shortened command that is not there": (block("sh", "echo", "<!-- shorter: run --rounds 3 -->"), "has no command"),
    "file that does not run the page": (block("js", "x", "<!-- run by: clients/js/test/client.test.js -->"), "does not name this page"),
    "part of another file": (block("rust", "fn nowhere() {}", "<!-- part of: crates/sclub/src/lib.rs -->"), "not a part"),
    "wrong body": (block("json", '{"user": "a", "kk": 3}', "<!-- body: POST /v1/recommend -->"), "not a body"),
    "wrong json": (block("json", "{"), "Expecting"),
    "unknown language": (block("console", "ls"), "a code block of 'console'"),
    "text that is compared with nothing": (block("text", "2"), "a block of text has"),
    "block without an end": ("```sh\necho\n", "has no end"),
    "block with tildes": ("~~~sh\nfalse\n~~~\n", "begins with ```"),
    "block by indentation": ("words\n\n    false\n", "by indentation"),
    "block in a list": ("- ```sh\n  false\n  ```\n", "begins with ```"),
    "block in a quotation": ("> ```sh\n> false\n> ```\n", "begins with ```"),
    "comment without a reason": (block("sh", "false", "<!-- not run: -->"), "says no more"),
    "comment without a block": ("<!-- output -->\n\nwords\n", "no code block follows"),
    "comment at the end": ("words\n\n<!-- not run: for some reason -->\n", "no code block follows"),
}
LINKS = {
    "missing page": ("[a](nothing.md)\n", "there is no nothing.md"),
    "missing anchor": ("# One\n\n[a](#two)\n", "has no heading #two"),
    "missing picture": ("![a](nothing.png)\n", "there is no nothing.png"),
    "missing picture with a title": ('![a](nothing.png "title")\n', "there is no nothing.png"),
    "missing picture of html": ('<img src="nothing.png" alt="a">\n', "there is no nothing.png"),
    "comment in a table": ("| a |\n|---|\n<!-- b -->\n| c |\n", "ends the table"),
    "missing reference": ("[a][b]\n", "is defined nowhere"),
    "address without a host": ("[a](https://)\n", "is no address"),
}
RIGHT = """# One

[a](#one), [b][c], <https://example.org>

[c]: https://example.org

```sh
sclub serve
a=$(echo 1 | cat)
curl -s localhost:8080/healthz
echo " $a user, hash fbd332e3b417f8c4, 2.5"
```

<!-- output: numbers vary -->
```text
ok
2 user, hash …, 1,000.0
```

```python
print(1)
```

<!-- output -->
```text
1
```
"""


def write(name: str, text: str) -> Path:
    page = FOLDER / f"{name.replace(' ', '-')}.md"
    page.write_text(text, encoding="utf-8")
    return page


def complaint(page: Path, sclub: str) -> str:
    """What the check of a page's blocks says; nothing if it passes."""
    try:
        blocks(page)
    except Mistake as mistake:
        return str(mistake)
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("run_page.py"), page, sclub],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return textwrap.indent(done.stdout, "  ") or "no reason" if done.returncode != DONE else ""


def main() -> bool:
    sclub = sys.argv[1]
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    wrong = []
    right = write("right", RIGHT)
    with ThreadPoolExecutor(4) as pool:
        said = pool.map(lambda name: complaint(write(name, BLOCKS[name][0]), sclub), BLOCKS)
        for (name, (_, expected)), text in zip(BLOCKS.items(), [*said], strict=True):
            if expected not in text:
                wrong.append(f"blocks: {name}: '{expected}' was expected, and this was said:\n{text}")
        if text := complaint(right, sclub) + "".join(links.check_pages([right])[1]):
            wrong.append(f"a page without mistakes: {text}")
    for name, (text, expected) in LINKS.items():
        found = "\n".join(links.check_pages([write(name, text)])[1])
        if expected not in found:
            wrong.append(f"links: {name}: '{expected}' was expected, and this was said:\n{found}")
    for one in wrong:
        print(one)
    print(f"{len(BLOCKS) + len(LINKS)} mistakes, {len(BLOCKS) + len(LINKS) - len(wrong)} of them found")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
