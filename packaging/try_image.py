"""Tries an image in namespaces of its own, with its own mounts, processes and network: unpacks it into a folder and runs its entry point
there, as its user. Needs root. check.py starts it.

    unshare --mount --net --pid --fork --kill-child python3 try_image.py FILE
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

from build import elf
from steps import run, unpack
from trials import Server, raise_loopback, scratch, wait_until


def main(file: Path, system: Path) -> None:
    with tarfile.open(file) as tar:
        read = lambda name: tar.extractfile(name).read()  # noqa: E731
        [docker] = json.loads(read("manifest.json"))
        config = json.loads(read(docker["Config"]))["config"]
        for layer in docker["Layers"]:
            with tarfile.open(fileobj=tar.extractfile(layer)) as files:
                unpack(files, system, numeric_owner=True)
    binary = system / config["Entrypoint"][0].lstrip("/")
    arch, is_static = elf(binary.read_bytes())
    emulator = []
    if arch != os.uname().machine:
        shutil.copy(shutil.which(f"qemu-{arch}-static"), system / "qemu")
        emulator = ["/qemu"]
    elif not is_static:
        # A trial of packaging with a debug build, which needs this system's libraries.
        for library in re.findall(r"(/\S+) \(0x", run("ldd", binary, quiet=True)):
            (system / library.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, system / library.lstrip("/"))
    environment = dict(variable.split("=", 1) for variable in config["Env"])
    user, group = map(int, config["User"].split(":"))

    def start(more: dict[str, str]) -> subprocess.Popen:
        def enter() -> None:
            os.chroot(system)
            os.chdir(config["WorkingDir"])
            os.setgroups([])
            os.setgid(group)
            os.setuid(user)

        return subprocess.Popen(emulator + config["Entrypoint"] + config["Cmd"], env=environment | more, preexec_fn=enter)

    assert start({}).wait(60) != 0, "it serves other machines without keys"
    client = Server(key="of-the-trial-0123456789")
    for rounds in (0, 1):
        server = start({"SCLUB_API_KEYS": f"admin:test:{client.key}"})
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
