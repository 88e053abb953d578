"""What the steps of a release share: the version, the date, the tools, the running of commands."""

import hashlib
import json
import os
import shlex
import subprocess
import sys
import tarfile
import time
from contextlib import contextmanager
from pathlib import Path

# The names of an architecture: Debian's, and OCI's.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Failed(Exception):
    """The release cannot go on."""


class Skipped(Exception):
    """This machine cannot make or try this part."""


def run(*command, quiet=False, **options) -> str:
    """Runs a command and returns its output. Shows the command unless `quiet`."""
    command = [str(word) for word in command]
    if not quiet:
        print(f"   $ {shlex.join(command)}", flush=True)
    try:
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, **options)
    except OSError as error:
        raise Failed(f"cannot run {command[0]}: {error.strerror}; it is needed for: {shlex.join(command)}") from None
    if done.returncode != 0:
        raise Failed(f"exit code {done.returncode}: {shlex.join(command)}\n{done.stdout}{done.stderr or ''}".rstrip())
    return done.stdout


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def unpack(tar: tarfile.TarFile, folder: Path, **options) -> None:
    """Unpacks an archive of our own as it is: owners and rights too. What Python leaves out, and whether it can be told, depends on its version."""
    tar.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
    tar.extractall(folder, **options)


class Release:
    """A release that is being made."""

    def __init__(self, root: Path, out: Path, is_trial: bool = False):
        self.root, self.out = root, out
        # A trial is packed for speed, a release for size.
        self.level = 1 if is_trial else 9
        self.target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target")).resolve()
        self.work = root / "target/release-work"
        self.work.mkdir(parents=True, exist_ok=True)
        metadata = json.loads(run("cargo", "metadata", "--no-deps", "--format-version=1", "--locked", quiet=True, cwd=root))
        self.version = next(package["version"] for package in metadata["packages"] if package["name"] == "sclub-cli")
        # Files have the date of the commit, so that the same commit gives the same bytes.
        epoch = os.environ.get("SOURCE_DATE_EPOCH") or run("git", "log", "-1", "--format=%ct", quiet=True, cwd=root)
        self.epoch = int(epoch)
        self.skipped: dict[str, str] = {}
        self.warnings: list[str] = []
        self.seconds: dict[str, float] = {}
        self.environment = os.environ | {"SOURCE_DATE_EPOCH": str(self.epoch), "CARGO_TARGET_DIR": str(self.target)}
        # Messages of panics have the same paths wherever the binary was built.
        home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
        paths = [f"--remap-path-prefix={home / 'registry/src'}=/cargo", f"--remap-path-prefix={root}=/sclub"]
        self.build_environment = self.environment | {"CARGO_ENCODED_RUSTFLAGS": "\x1f".join(paths)}

    @contextmanager
    def part(self, name: str):
        """A part that may be skipped if this machine cannot make it."""
        print(f"\n== {name}", flush=True)
        begun = time.monotonic()
        try:
            yield
        except Skipped as reason:
            self.skipped[name] = str(reason)
            print(f"   not made: {reason}", flush=True)
        self.seconds[name] = time.monotonic() - begun

    def warn(self, text: str) -> None:
        """A warning where it arises, and again at the end."""
        print(f"   WARNING: {text}", flush=True)
        self.warnings.append(text)

    def tools(self, only: str = "") -> Path:
        """The folder of the Python tools, or of one of them, installed with pinned versions."""
        lines = (self.root / "packaging/requirements.txt").read_text().splitlines()
        wanted = [line for line in lines if line.startswith(only) and not line.startswith("#")]
        folder = self.root / "target/release-tools" / (only or "python")
        stamp = folder / "installed.txt"
        if not stamp.exists() or stamp.read_text().split() != wanted:
            run(sys.executable, "-m", "venv", "--clear", folder)
            run(folder / "bin/pip", "install", "--quiet", *wanted)
            stamp.write_text("\n".join(wanted))
        return folder / "bin"

    def with_tools(self) -> dict[str, str]:
        """The environment of a build."""
        return self.build_environment | {"PATH": f"{self.tools()}:{os.environ['PATH']}"}

    def need_target(self, target: str) -> None:
        """Installs the standard library of a target if it is missing."""
        folder = run("rustc", "--print", "target-libdir", "--target", target, quiet=True).strip()
        if Path(folder).is_dir():
            return
        try:
            run("rustup", "target", "add", target, cwd=self.root, stderr=subprocess.PIPE)
        except Failed as error:
            raise Skipped(f"there is no Rust standard library for {target} here, and it cannot be installed: {error}") from None
