"""Runs the blocks of one page, in their order, in a folder of its own.

    python run_page.py PAGE SCLUB

Blocks of sh share one shell, blocks of python one namespace. `sclub serve` starts a server beside them, on a free port: the ports that
the page names are replaced. All servers are stopped at the end.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

import static
from pages import ROOT, Block, Mistake, blocks

DONE = 9  # the exit code if every block was run to its end; a page that ends this process has another
LIMIT = 180  # seconds for one block: a page that hangs
ADDRESS = re.compile(r"\b(localhost|127\.0\.0\.1|0\.0\.0\.0):(\d{4,5})\b")

# A process that has ended may stay for seconds until the first process of the system notices.
ALIVE = "alive() { kill -0 $1 2>/dev/null && ! grep -qs '^State:.*Z' /proc/$1/status; }"

SHIM = r"""#!/usr/bin/env bash
# sclub, with servers in the background: as if they were in another terminal.
sclub={sclub} folder={folder}
{alive}
case " $* " in
  " serve "*--print-config*|" serve "*--help*) exec $sclub "$@" ;;
  " serve "*) ;;
  *) exec $sclub "$@" ;;
esac
address=${{SCLUB_ADDR}} scheme=http previous=
for word in "$@"; do
  [ "$previous" = --addr ] && address=$word
  [ "$word" = --tls-cert ] && scheme=https
  previous=$word
done
port=${{address##*:}}
# A server on the same port was stopped by the reader.
if [ -f $folder/server-$port ]; then
  old=$(cat $folder/server-$port); kill -TERM $old 2>/dev/null; while alive $old; do sleep 0.05; done
fi
start() {{
  nohup $sclub "$@" >$folder/server-$port.log 2>&1 &
  echo $! >$folder/server-$port
}}
start "$@"
for _ in $(seq 1200); do
  if ! alive $!; then
    # Programs that look for free ports have each for a moment.
    grep -q 'Address already in use' $folder/server-$port.log || break
    start "$@"
  # Another server may answer at this port until its own one listens there.
  elif grep -q 'listens on' $folder/server-$port.log && {curl} -skf $scheme://127.0.0.1:$port/readyz >/dev/null; then
    exit 0
  fi
  sleep 0.05
done
cat $folder/server-$port.log >&2
exit 1
"""

CURL = """#!/usr/bin/env bash
# curl for which an error of the server is an error.
exec {curl} --fail-with-body "$@"
"""

# A command that fails ends the shell, also inside of `$(…)` and of pipes. It is said again for each block, which may have changed it.
STRICT = "set -euo pipefail; shopt -s inherit_errexit\n"

STOP = rf"""
{ALIVE}
stop_servers() {{
  local file pid
  for file in "$SERVERS"/server-*; do
    case $file in *.log|*\*) continue ;; esac
    pid=$(cat "$file"); rm "$file"
    kill -TERM "$pid" 2>/dev/null || true
    while alive "$pid"; do sleep 0.05; done
  done
}}
"""


def shorter(code: str, flags: str) -> str:
    """Gives a command of sclub these flags, in place of those of the same names."""
    command, flags = flags.split(maxsplit=1)
    names = [word for word in flags.split() if word.startswith("--")]
    lines = code.replace("\\\n", " ").splitlines()
    changed = False
    for at, line in enumerate(lines):
        if line.startswith(f"sclub {command} ") or line == f"sclub {command}":
            start, hash, comment = line.partition(" #")
            for name in names:
                start = re.sub(rf" {name} [^-\s]\S*", "", start)
            lines[at] = f"{start.rstrip()} {flags}{hash}{comment}"
            changed = True
    if not changed:
        raise Mistake(f"<!-- shorter: {command} … -->: the block has no command `sclub {command}`")
    return "\n".join(lines) + "\n"


def free_port() -> socket.socket:
    """A port that is free, and stays so until this is closed. Neither the system nor other tests draw from this range: those in Rust
    begin at 15,000."""
    while True:
        held = socket.socket()
        try:
            held.bind(("127.0.0.1", random.randrange(10_000, 12_500)))
            return held
        except OSError:
            held.close()


class Runner:
    def __init__(self, page: Path, sclub: Path, folder: Path) -> None:
        self.page, self.folder = page, folder
        self.ports: dict[str, int] = {}
        self.held: list[socket.socket] = []
        self.work, self.aside = folder / "work", folder / "aside"
        self.work.mkdir()
        self.aside.mkdir()
        self.names: dict[str, object] = {"__name__": "__main__"}
        self.printed = ""
        for name, text in [("sclub", SHIM), ("curl", CURL)]:
            shim = self.aside / name
            shim.write_text(text.format(sclub=sclub, folder=self.aside, curl=shutil.which("curl"), alive=ALIVE))
            shim.chmod(0o755)
        os.chdir(self.work)
        for name in [name for name in os.environ if name.startswith("SCLUB_")]:
            del os.environ[name]
        address = f"127.0.0.1:{self.port('8080')}"
        os.environ |= {
            "PATH": f"{self.aside}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "REPOSITORY": str(ROOT),
            "SERVERS": str(self.aside),
            "SCLUB_ADDR": address,
            "SCLUB_URL": f"http://{address}",
            "MPLBACKEND": "Agg",
            "COLUMNS": "100",
        }
        self.shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self.aside / "stderr").open("w"),
            text=True,
            start_new_session=True,
        )
        self.sh(STOP)

    def port(self, named: str) -> int:
        """The port in place of one that the page names."""
        if named not in self.ports:
            held = free_port()
            while (port := held.getsockname()[1]) in self.ports.values():
                held = free_port()
            self.held.append(held)
            self.ports[named] = port
        return self.ports[named]

    def moved(self, code: str) -> str:
        return ADDRESS.sub(lambda match: f"{match[1]}:{self.port(match[2])}", code)

    def as_named(self, text: str) -> str:
        for named, port in self.ports.items():
            text = text.replace(f":{port}", f":{named}")
        return text

    def sh(self, code: str) -> str:
        script = self.aside / "block.sh"
        script.write_text(f"{STRICT}{code}\nblock_is_whole=yes\n")
        assert self.shell.stdin and self.shell.stdout
        self.shell.stdin.write(f"block_is_whole=; . {script} </dev/null; [ $block_is_whole ]; echo; echo ::done::\n")
        self.shell.stdin.flush()
        watchdog = threading.Timer(LIMIT, lambda: os.killpg(self.shell.pid, signal.SIGKILL))
        watchdog.start()
        printed = []
        for line in self.shell.stdout:
            if line == "::done::\n":
                watchdog.cancel()
                return "".join(printed)
            printed.append(line)
        watchdog.cancel()
        raise Mistake("the commands failed, or took too long:\n" + "".join(printed) + (self.aside / "stderr").read_text())

    def python(self, code: str, block: Block) -> str:
        printed = io.StringIO()
        tree = compile("\n" * (block.line - 1) + code, str(self.page), "exec", dont_inherit=True)
        signal.alarm(LIMIT)
        with contextlib.redirect_stdout(printed):
            exec(tree, self.names)
        signal.alarm(0)
        return printed.getvalue()

    def check_servers(self) -> None:
        """Every server that was started is alive: one that dies after the last request to it would not be noticed."""
        for file in self.aside.glob("server-*[0-9]"):
            if subprocess.run(["bash", "-c", f"{ALIVE}; alive {file.read_text().strip()}"]).returncode:
                port = file.name.removeprefix("server-")
                raise Mistake(f"the server on port {port} has ended:\n{file.with_name(file.name + '.log').read_text()}")

    def run(self, block: Block) -> bool:
        """Runs a block. False if it is not one that is run."""
        if block.marker == "not run":
            return False
        if block.marker in ("part of", "run by"):
            static.check_elsewhere(block)
            return True
        code = self.moved(block.code)
        if block.marker == "shorter":
            code = shorter(code, block.value)
        if re.search(r"serve|cluster up", code, re.IGNORECASE):
            # It may listen there itself.
            while self.held:
                self.held.pop().close()
        match block.language:
            case "sh":
                self.printed = self.sh(code)
            case "python":
                self.printed = self.python(code, block)
            case "js":
                raise Mistake("blocks of js are run by other tests: say which, <!-- run by: FILE -->")
            case "text" if block.marker == "output":
                static.check_output(block, self.as_named(self.printed))
            case "text" | "rust":
                return False
            case _:
                static.check(block)
        return True

    def close(self) -> None:
        for file in self.aside.glob("server-*"):
            if file.suffix != ".log":
                with contextlib.suppress(ProcessLookupError, ValueError):
                    os.kill(int(file.read_text()), signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.shell.pid, signal.SIGKILL)


def too_long(*_: object) -> None:
    raise Mistake(f"the block took longer than {LIMIT} seconds")


def main() -> int:
    """The exit code: DONE, or 1 if a block failed."""
    page, sclub = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    found = blocks(page)
    folder = Path(tempfile.mkdtemp(prefix="sclub-docs-"))
    runner = Runner(page, sclub, folder)
    signal.signal(signal.SIGALRM, too_long)
    try:
        for block in found:
            began = time.monotonic()
            try:
                ran = runner.run(block)
                runner.check_servers()
            except Mistake as mistake:
                print(f"FAILED {block.place}\n{mistake}")
                return 1
            except BaseException:
                print(f"FAILED {block.place}\n{traceback.format_exc()}")
                return 1
            if ran and "VERBOSE" in os.environ and block.language in ("sh", "python"):
                print(f"{block.place}:\n{runner.as_named(runner.printed)}")
            if ran and time.monotonic() - began > 4:
                print(f"  slow: {block.place}: {time.monotonic() - began:.1f} s")
        return DONE
    finally:
        runner.close()
        os.chdir(ROOT)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a page may leave threads behind
