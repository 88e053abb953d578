"""Runs every code block of the documentation.

    python run_blocks.py SCLUB [PAGE…]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pages import ROOT, Block, Mistake, blocks, pages
from run_page import DONE

RUST = """#[test]
fn {name}() -> Result<(), Box<dyn std::error::Error>> {{
{code}
Ok(())
}}
"""


def built_library() -> str:
    """The file of the library, as the tests of Rust use it: with other flags cargo would build it again."""
    command = ["cargo", "test", "--workspace", "--exclude", "sclub-python", "--locked", "--no-run", "--quiet", "--message-format=json"]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    return next(
        file
        for message in messages
        if message["reason"] == "compiler-artifact" and message["target"]["name"] == "sclub"
        for file in message["filenames"]
        if file.endswith(".rlib")
    )


def rust(found: list[Block]) -> None:
    """Compiles the blocks of Rust against the library, each as the body of a function, and runs them."""
    code, setup, tests = "#![allow(unused)]\n", "", 0
    page = None
    for block in found:
        if block.page != page:
            page, setup = block.page, ""
        if block.language != "rust" or block.marker in ("not run", "part of", "run by"):
            continue
        if block.marker == "setup":
            setup += block.code
            continue
        name = f"{block.page.stem}_{block.line}".lower().replace("-", "_")
        code += RUST.format(name=name, code=setup + block.code)
        tests += 1
    if not tests:
        return
    folder = ROOT / "target/docs/rust"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "blocks.rs").write_text(code)
    library = os.environ.get("SCLUB_RLIB") or built_library()
    folder_of = Path(library).parent
    parts = folder_of if folder_of.name == "deps" else folder_of / "deps"
    command = ["rustc", "--edition", "2024", "--test", "--extern", f"sclub={library}", "-L", f"dependency={parts}"]
    for step in ([*command, "blocks.rs", "-o", "blocks"], ["./blocks", "-q"]):
        done = subprocess.run(step, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise Mistake(done.stdout + done.stderr)


def run(page: Path, sclub: str) -> tuple[Path, bool, str, float]:
    """Whether a page failed, what it printed, and the seconds that it took."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("run_page.py"), page, sclub],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return page, done.returncode != DONE, done.stdout, time.monotonic() - began


def main() -> bool:
    sclub = sys.argv[1]
    chosen = [Path(name).resolve() for name in sys.argv[2:]] or pages()
    found = [block for page in chosen for block in blocks(page)]
    programs = ("sh", "python", "js", "json", "toml", "yaml", "ini")
    work = Counter(
        block.page
        for block in found
        if block.marker in ("part of", "run by") or (block.marker != "not run" and (block.language in programs or block.marker == "output"))
    )
    # A page with more blocks takes longer: those first, so that no core waits at the end.
    order = sorted(work, key=lambda page: -work[page])
    failed = 0
    with ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as pool:
        compiled = pool.submit(rust, found)
        for page, has_failed, text, seconds in pool.map(lambda page: run(page, sclub), order):
            print(f"{page.relative_to(ROOT)}: {work[page]} blocks, {seconds:.1f} s{', FAILED' if has_failed else ''}", flush=True)
            print(text if has_failed or "VERBOSE" in os.environ else "".join(line for line in text.splitlines(True) if line.startswith("  slow:")), end="", flush=True)
            failed += has_failed
        try:
            compiled.result()
        except Mistake as mistake:
            print(f"blocks of Rust: FAILED\n{mistake}")
            failed += 1
    skipped = [block for block in found if block.marker == "not run"]
    for block in skipped:
        print(f"not run: {block.place}: {block.value}")
    count = sum(block.language != "text" and block.marker not in ("setup", "not run") for block in found)
    print(f"{count} code blocks run, {sum(block.marker == 'output' for block in found)} outputs compared, {len(skipped)} blocks not run")
    return failed > 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Mistake as mistake:
        sys.exit(str(mistake))
