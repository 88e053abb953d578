"""Tries a Debian package or an image in namespaces of its own: with its own mounts, processes and network. Nothing that it installs,
writes or listens on is seen outside. Needs root. check.py starts it.

    unshare --mount --net --pid --fork --kill-child python3 isolated.py deb FILE
"""

import fcntl
import json
import os
import pwd
import re
import resource
import shlex
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from pathlib import Path

from build import elf
from steps import run

CATALOGUE = b'{"id": "tea", "features": [1, 0, 0.5]}\n{"id": "coffee", "features": [0, 1, 0.5]}\n'


def raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        SIOCSIFFLAGS, IFF_UP = 0x8914, 1
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))


def call(port: int, path: str, body: bytes | None = None, method: str | None = None, key: str | None = None) -> dict:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, method=method)
    request.add_header("content-type", "application/json")
    if key:
        request.add_header("authorization", f"Bearer {key}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read()
    return json.loads(text) if text.startswith(b"{") else {}


def wait_until_ready(server: subprocess.Popen, port: int) -> None:
    for _ in range(600):
        if server.poll() is not None:
            raise SystemExit(f"the server ended with {server.returncode} at its start")
        try:
            call(port, "/readyz")
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server is not ready after 60 s")


def serve_and_stop(server: subprocess.Popen, rounds: int, key: str | None = None) -> None:
    """One recommendation and its reward, on a server that has learned `rounds` before; then SIGTERM."""
    wait_until_ready(server, 8080)
    call(8080, "/healthz")
    if rounds == 0:
        call(8080, "/v1/items", CATALOGUE, "PUT", key)
    assert call(8080, "/v1/state", key=key)["rounds"] == rounds, "rounds after the start"
    answer = call(8080, "/v1/recommend", b'{"user": "anna"}', key=key)
    assert answer["items"][0]["id"] in ("tea", "coffee"), answer
    feedback = json.dumps({"decision": answer["decision"], "reward": 1}).encode()
    assert call(8080, "/v1/feedback", feedback, key=key)["applied"] is True
    assert call(8080, "/v1/state", key=key)["rounds"] == rounds + 1, "rounds after a reward"
    server.send_signal(signal.SIGHUP)
    call(8080, "/healthz")
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0, f"exit code {server.returncode} after SIGTERM"


def throwaway_system() -> None:
    """Changes into a copy of this system that is in memory only."""
    base = Path(tempfile.mkdtemp())
    run("mount", "-t", "tmpfs", "tmpfs", base, quiet=True)
    upper, work, system = (base / name for name in ("upper", "work", "system"))
    for folder in (upper, work, system):
        folder.mkdir()
    run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={upper},workdir={work}", system, quiet=True)
    run("mount", "-t", "proc", "proc", system / "proc", quiet=True)
    run("mount", "--rbind", "/dev", system / "dev", quiet=True)
    run("mount", "-t", "tmpfs", "tmpfs", system / "tmp", quiet=True)
    run("mount", "-t", "tmpfs", "tmpfs", system / "run", quiet=True)
    os.chroot(system)
    os.chdir("/")


def unit_settings() -> dict[str, str]:
    lines = Path("/usr/lib/systemd/system/sclub.service").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def start_unit() -> subprocess.Popen:
    """Starts the command line of the unit as systemd would: its user, its folders, no capabilities, its limits."""
    unit = unit_settings()
    user = pwd.getpwnam(unit["User"])
    for base, name, mode in [("/var/lib", unit["StateDirectory"], unit["StateDirectoryMode"]), ("/var/log", unit["LogsDirectory"], unit["LogsDirectoryMode"])]:
        folder = Path(base, name)
        folder.mkdir(exist_ok=True)
        folder.chmod(int(mode, 8))
        os.chown(folder, user.pw_uid, user.pw_gid)
    # A container may allow fewer.
    files = min(int(unit["LimitNOFILE"]), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    confined = ["prlimit", f"--nofile={files}", "setpriv", f"--reuid={unit['User']}", f"--regid={unit['Group']}", "--init-groups", "--no-new-privs"]
    confined += ["--bounding-set=-all", "--inh-caps=-all", "--"]
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    return subprocess.Popen(confined + shlex.split(unit["ExecStart"]), env=environment, cwd="/", umask=int(unit["UMask"], 8))


def upgraded(package: Path) -> Path:
    """The same package as a later version."""
    folder = Path("/tmp/upgrade")
    run("dpkg-deb", "-R", package, folder, quiet=True)
    control = folder / "DEBIAN/control"
    control.write_text(re.sub(r"^Version: (.*)$", r"Version: \1+1", control.read_text(), flags=re.M))
    run("dpkg-deb", "--build", "-Zgzip", "-z1", folder, "/tmp/upgrade.deb", quiet=True)
    return Path("/tmp/upgrade.deb")


def try_deb(file: Path) -> None:
    data = file.read_bytes()
    throwaway_system()
    package = Path("/tmp/sclub.deb")
    package.write_bytes(data)
    settings, folder = Path("/etc/sclub/sclub.toml"), Path("/var/lib/sclub")
    run("dpkg", "--install", package)
    print(run("sclub", "--version", quiet=True), end="")
    assert pwd.getpwnam("sclub").pw_shell.endswith("nologin")
    assert " /etc/sclub/sclub.toml " in run("dpkg-query", "-W", "-f=${Conffiles}\n", "sclub", quiet=True)
    assert os.path.islink("/etc/systemd/system/multi-user.target.wants/sclub.service"), "the service is not enabled"
    if shutil.which("systemd-analyze"):
        run("systemd-analyze", "verify", "--man=no", "sclub.service")
        # In tenths: 1.5 of 10.
        rated = run("systemd-analyze", "security", "--offline=yes", "--threshold=15", "/usr/lib/systemd/system/sclub.service")
        print(rated.strip().splitlines()[-1])
    serve_and_stop(start_unit(), 0)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750

    edited = settings.read_text() + "\n# Edited.\nmax-k = 7\n"
    settings.write_text(edited)
    run("dpkg", "--install", upgraded(package))
    assert settings.read_text() == edited, "the upgrade changed the settings"
    assert "max-k = 7" in run("sclub", "serve", "--config", settings, "--print-config", quiet=True)
    serve_and_stop(start_unit(), 1)

    run("dpkg", "--remove", "sclub")
    assert not Path("/usr/bin/sclub").exists() and settings.exists() and any(folder.iterdir()), "after the removal"
    run("dpkg", "--purge", "sclub")
    left = [path for path in ("/etc/sclub", "/var/lib/sclub", "/var/log/sclub", "/etc/systemd/system/multi-user.target.wants/sclub.service") if os.path.lexists(path)]
    assert not left, f"left after the purge: {left}"


def try_image(file: Path) -> None:
    """Unpacks the image into a folder and runs its entry point there, as its user."""
    system = Path(tempfile.mkdtemp())
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", system, quiet=True)
    with tarfile.open(file) as tar:
        read = lambda name: tar.extractfile(name).read()  # noqa: E731
        [docker] = json.loads(read("manifest.json"))
        config = json.loads(read(docker["Config"]))["config"]
        for layer in docker["Layers"]:
            with tarfile.open(fileobj=tar.extractfile(layer)) as files:
                files.extractall(system, numeric_owner=True)
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
    keys = {"SCLUB_API_KEYS": "admin:test:of-the-trial-0123456789"}
    for rounds in (0, 1):
        serve_and_stop(start(keys), rounds, "of-the-trial-0123456789")


if __name__ == "__main__":
    run("mount", "--make-rprivate", "/", quiet=True)
    raise_loopback()
    {"deb": try_deb, "image": try_image}[sys.argv[1]](Path(sys.argv[2]))
