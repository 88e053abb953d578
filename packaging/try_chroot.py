"""Tries what has its own files only, in namespaces of its own, with its own mounts, processes and network: unpacks it into a folder and runs
its command there, as its user. That is the entry point of an image, or the command of the unit in a Debian package for another
architecture. Needs root. check.py starts it.

    unshare --mount --net --pid --fork --kill-child python3 try_chroot.py FILE
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from build import elf
from steps import run, unpack
from trials import Server, raise_loopback, scratch, wait_until


@dataclass
class Program:
    """A command in a folder that is the root of its file system."""

    system: Path
    command: list[str]
    environment: dict[str, str]
    user: int
    group: int
    folder: str = "/"

    def emulate(self) -> None:
        """Adds what the program needs to run here."""
        binary = self.system / self.command[0].lstrip("/")
        arch, is_static = elf(binary.read_bytes())
        if arch != os.uname().machine:
            shutil.copy(shutil.which(f"qemu-{arch}-static"), self.system / "qemu")
            self.command = ["/qemu", *self.command]
        elif not is_static:
            # A trial of packaging with a debug build, which needs this system's libraries.
            for library in re.findall(r"(/\S+) \(0x", run("ldd", binary, quiet=True)):
                (self.system / library.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(library, self.system / library.lstrip("/"))

    def start(self, **more: str) -> subprocess.Popen:
        def enter() -> None:
            os.chroot(self.system)
            os.chdir(self.folder)
            os.setgroups([])
            os.setgid(self.group)
            os.setuid(self.user)

        return subprocess.Popen(self.command, env=self.environment | more, preexec_fn=enter)


def image(file: Path, system: Path) -> Program:
    with tarfile.open(file) as tar:
        read = lambda name: tar.extractfile(name).read()  # noqa: E731
        [docker] = json.loads(read("manifest.json"))
        config = json.loads(read(docker["Config"]))["config"]
        for layer in docker["Layers"]:
            with tarfile.open(fileobj=tar.extractfile(layer)) as files:
                unpack(files, system, numeric_owner=True)
    environment = dict(variable.split("=", 1) for variable in config["Env"])
    user, group = map(int, config["User"].split(":"))
    return Program(system, config["Entrypoint"] + config["Cmd"], environment, user, group, config["WorkingDir"])


def package(file: Path, system: Path) -> Program:
    """The command of the unit, with the folder that systemd would make for it."""
    run("dpkg-deb", "--extract", file, system, quiet=True)
    unit = (system / "usr/lib/systemd/system/sclub.service").read_text()
    [command] = re.findall(r"^ExecStart=(.*)$", unit, re.M)
    user = group = 990
    data = system / "var/lib/sclub"
    data.mkdir(mode=0o750, parents=True)
    os.chown(data, user, group)
    return Program(system, shlex.split(command), {}, user, group)


def main(file: Path, system: Path) -> None:
    keys, client = {}, Server()
    if file.suffix == ".deb":
        program = package(file, system)
        program.emulate()
    else:
        program = image(file, system)
        program.emulate()
        assert program.start().wait(60) != 0, "it serves other machines without keys"
        client.key = "of-the-trial-0123456789"
        keys["SCLUB_API_KEYS"] = f"admin:test:{client.key}"
    for rounds in (0, 1):
        server = program.start(**keys)
        wait_until("ready", lambda: server.poll() is not None or client.call("/readyz"))
        assert client.rounds() == rounds, "rounds after the start"
        client.one_round()
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0, f"exit code {server.returncode} after SIGTERM"


if __name__ == "__main__":
    run("mount", "--make-rprivate", "/", quiet=True)
    raise_loopback()
    with scratch() as folder:
        main(Path(sys.argv[1]), folder)
