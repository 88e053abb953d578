"""Tries a Debian package with systemd: in namespaces of its own, systemd runs as process 1 in a copy of this system that is in memory only.
There the package is installed, used, upgraded, removed and purged. Nothing of it is seen outside. Needs root. check.py starts it.

    unshare --mount --net python3 try_deb.py FILE
"""

import contextlib
import http.server
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
import threading
import traceback
from pathlib import Path

from steps import Failed, run
from trials import Server, raise_loopback, scratch, wait_until

SYSTEMD = "/usr/lib/systemd/systemd"
DATA, LOGS = Path("/var/lib/sclub"), Path("/var/log/sclub")
SETTINGS = Path("/etc/sclub/sclub.toml")
DROP_INS = Path("/etc/systemd/system/sclub.service.d")
TARGET = "trial.target"
# The exit code if this machine does not allow control groups.
NOT_POSSIBLE = 77


def in_own_group(file: Path, base: Path) -> int:
    """Starts the trial in a control group of its own, which systemd divides further."""
    groups = base / "groups"
    groups.mkdir()
    group = groups / f"sclub-trial-{os.getpid()}"
    try:
        run("mount", "-t", "cgroup2", "none", groups, quiet=True)
        group.mkdir()
    except (Failed, OSError) as error:
        print(f"no control group: {error}")
        return NOT_POSSIBLE
    apart = ["unshare", "--pid", "--cgroup", "--ipc", "--uts", "--fork", "--kill-child"]
    enter = lambda: (group / "cgroup.procs").write_text(str(os.getpid()))  # noqa: E731
    try:
        return subprocess.run([*apart, sys.executable, "-B", __file__, file, base], preexec_fn=enter, timeout=900).returncode
    finally:
        for folder, _, _ in os.walk(group, topdown=False):
            wait_until("empty", lambda: not Path(folder, "cgroup.procs").read_text())
            os.rmdir(folder)


def throwaway_system(base: Path) -> None:
    """Changes into a copy of this system whose changes are in memory only. Devices and settings of the kernel cannot be changed from there."""
    mount = lambda *words: run("mount", *words, quiet=True)  # noqa: E731
    upper, work, system = (base / name for name in ("upper", "work", "system"))
    for folder in (upper, work, system):
        folder.mkdir()
    mount("-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={upper},workdir={work}", system)
    mount("-t", "proc", "proc", system / "proc")
    mount("--bind", system / "proc/sys", system / "proc/sys")
    mount("-o", "remount,bind,ro", system / "proc/sys")
    mount("-t", "sysfs", "-o", "ro", "sysfs", system / "sys")
    mount("-t", "cgroup2", "cgroup2", system / "sys/fs/cgroup")
    for folder in ("dev", "run", "tmp", "etc/systemd/system"):
        # No service of this machine is enabled there.
        mount("-t", "tmpfs", "-o", f"mode={'1777' if folder == 'tmp' else '755'}", "tmpfs", system / folder)
    os.umask(0)
    for name, major, minor in [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)]:
        os.mknod(system / "dev" / name, stat.S_IFCHR | 0o666, os.makedev(major, minor))
    os.umask(0o022)
    (system / "dev/pts").mkdir()
    mount("-t", "devpts", "-o", "newinstance,ptmxmode=666", "devpts", system / "dev/pts")
    (system / "dev/ptmx").symlink_to("pts/ptmx")
    # Images of containers forbid packages to start services. An index of all manual pages takes seconds. Small systems have no kill.
    for file in ("usr/sbin/policy-rc.d", "var/lib/man-db/auto-update", "usr/bin/kill"):
        (system / file).unlink(missing_ok=True)
    (system / "etc/systemd/system" / TARGET).write_text("[Unit]\nRequires=basic.target\nAfter=basic.target\n")
    os.chdir(system)
    mount("--move", ".", "/")
    os.chroot(".")


def boot(trial) -> None:
    """Makes this process systemd. The trial runs in another one and ends systemd with its outcome."""
    if os.fork() != 0:
        os.execve(SYSTEMD, [SYSTEMD, f"--unit={TARGET}", "--log-target=journal"], {"container": "sclub-trial", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
    code = 1
    try:
        is_up = ["systemctl", "is-active", "--quiet", TARGET]
        wait_until("booted", lambda: subprocess.run(is_up, stderr=subprocess.DEVNULL).returncode == 0)
        trial()
        code = 0
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        subprocess.run(["journalctl", "--no-pager", "--lines=50"])
    finally:
        sys.stdout.flush()
        subprocess.run(["systemctl", "exit", str(code)])
        os._exit(code)


def systemctl(*words: str) -> str:
    return run("systemctl", *words, quiet=True).strip()


def shown(name: str) -> str:
    return systemctl("show", "--property", name, "--value", "sclub")


def is_refused(*words: str) -> bool:
    return subprocess.run(["systemctl", *words], stderr=subprocess.DEVNULL).returncode != 0


def in_journal(priority: str) -> str:
    """The lines of the server of at least a priority."""
    return run("journalctl", "_COMM=sclub", f"--priority={priority}", "--no-pager", "--output=cat", "--quiet", quiet=True)


def collector() -> list[str]:
    """Receives traces, and lists the paths that they were sent to."""
    received = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.path)
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_) -> None:
            pass

    listening = http.server.HTTPServer(("127.0.0.1", 4318), Handler)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    return received


def certificate(name: str) -> None:
    """A new certificate and its key, as the settings' comments say."""
    parts = [f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    files = ["-keyout", "/etc/sclub/key.pem", "-out", "/etc/sclub/cert.pem"]
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *files, "-subj", *parts, quiet=True, stderr=subprocess.PIPE)
    for_group("/etc/sclub/key.pem")


def for_group(path: str) -> None:
    shutil.chown(path, "root", "sclub")
    os.chmod(path, 0o640)


def try_work(server: Server) -> None:
    """What the hardening could forbid: fits at low priority, snapshots, compactions, backups, metrics of the process."""
    while server.rounds() < 40:
        server.one_round()
    value = lambda name: re.search(rf"^{name}(?:{{.*}})? (.*)$", server.call("/metrics").decode(), re.M)  # noqa: E731
    wait_until("fitted", lambda: float(value("sclub_fits_total")[1]) > 0)
    for name in ["process_start_time_seconds", "process_open_fds", "process_resident_memory_bytes", "process_cpu_seconds_total", "sclub_disk_free_bytes"]:
        assert value(name) and float(value(name)[1]) > 0, f"no metric {name}"
    tasks = Path("/proc", shown("MainPID"), "task").iterdir()
    niceness = {}
    for task in tasks:
        # A thread may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            niceness[(task / "comm").read_text().strip()] = int((task / "stat").read_text().rsplit(")", 1)[1].split()[16])
    # The trial itself may have a low priority.
    own = os.nice(0)
    assert niceness["sclub-fit"] == max(own, 10) and niceness["sclub"] == own, niceness
    server.call("/v1/admin/snapshot", b"", "POST")
    server.call("/v1/admin/compact", b"", "POST")
    assert len(server.call("/v1/admin/backup")) > 1000
    assert any((DATA / "snapshots").iterdir())


def try_settings(rounds: int) -> Server:
    """Keys, a certificate, an audit log and traces, and what a reload changes. A system call that is refused ends the server."""
    DROP_INS.mkdir()
    (DROP_INS / "strict.conf").write_text("[Service]\nSystemCallErrorNumber=kill\n")
    systemctl("daemon-reload")
    certificate("first")
    keys = Path("/etc/sclub/keys")
    keys.write_text("admin first first-0123456789abcdef\n")
    for_group(keys)
    audit = LOGS / "audit.jsonl"
    settings = SETTINGS.read_text().replace('\naddr = "127.0.0.1:8080"', "")
    # The lines that the file offers.
    settings = re.sub(r'^# (\S+ = ".*")$', r"\1", settings, flags=re.M)
    SETTINGS.write_text(settings + '\notel-endpoint = "http://127.0.0.1:4318"\notel-sample-ratio = 1\n')
    systemctl("restart", "sclub")
    server = Server("https://127.0.0.1:8443", "first-0123456789abcdef", "/etc/sclub/cert.pem")
    assert server.rounds() == rounds
    try_work(server)
    assert "/v1/admin/snapshot" in audit.read_text()
    assert not in_journal("warning"), in_journal("warning")

    certificate("second")
    keys.write_text("admin second second-0123456789abcdef\n")
    audit.rename(LOGS / "audit.jsonl.1")
    process = shown("MainPID")
    systemctl("reload", "sclub")
    server.key = "second-0123456789abcdef"
    wait_until("reloaded", lambda: server.call("/v1/state"))
    assert shown("MainPID") == process and audit.exists()

    keys.write_text("admin third short\n")
    systemctl("reload", "sclub")
    wait_until("an error in the journal", lambda: "/etc/sclub/keys" in in_journal("err"))
    keys.write_text(f"admin second {server.key}\n")
    assert server.rounds()
    return server


def try_failures(server: Server) -> None:
    """A killed server is started again. Settings with an error are an error of systemctl, and no obstacle once they are mended."""
    rounds = server.rounds()
    os.kill(int(shown("MainPID")), 9)
    wait_until("restarted", lambda: server.rounds() == rounds)
    assert shown("NRestarts") == "1"
    settings = SETTINGS.read_text()
    SETTINGS.write_text(settings + "\nno-such-setting = 7\n")
    for _ in range(6):
        assert is_refused("restart", "sclub"), "a server with wrong settings counts as started"
    SETTINGS.write_text(settings)
    systemctl("restart", "sclub")
    assert server.rounds() == rounds


def upgraded(package: Path) -> Path:
    """The same package as a later version."""
    folder = Path("/tmp/upgrade")
    run("dpkg-deb", "-R", package, folder, quiet=True)
    control = folder / "DEBIAN/control"
    control.write_text(re.sub(r"^Version: (.*)$", r"Version: \1+1", control.read_text(), flags=re.M))
    run("dpkg-deb", "--build", "-Zgzip", "-z1", folder, "/tmp/upgrade.deb", quiet=True)
    return Path("/tmp/upgrade.deb")


def try_package(data: bytes) -> None:
    package = Path("/tmp/sclub.deb")
    package.write_bytes(data)
    run("dpkg", "--install", package)
    # It answers as soon as it is installed.
    server = Server()
    server.one_round()
    print(run("sclub", "--version", quiet=True), end="")
    assert pwd.getpwnam("sclub").pw_shell.endswith("nologin")
    assert " /etc/sclub/sclub.toml " in run("dpkg-query", "-W", "-f=${Conffiles}\n", "sclub", quiet=True)
    assert systemctl("is-enabled", "sclub") == "enabled"
    for folder in (DATA, LOGS):
        assert (stat.S_IMODE(folder.stat().st_mode), folder.owner()) == (0o750, "sclub"), folder
    run("systemd-analyze", "verify", "--man=no", "sclub.service")
    # In tenths: 1.5 of 10.
    print(run("systemd-analyze", "security", "--threshold=15", "sclub.service").strip().splitlines()[-1])

    traces = collector()
    server = try_settings(1)
    try_failures(server)
    assert set(traces) == {"/v1/traces"}, traces

    rounds, process, settings = server.rounds(), shown("MainPID"), SETTINGS.read_text()
    run("dpkg", "--install", upgraded(package))
    assert SETTINGS.read_text() == settings, "the upgrade changed the settings"
    assert shown("MainPID") != process and server.rounds() == rounds, "after the upgrade"
    server.one_round()

    systemctl("stop", "sclub")
    assert (shown("ActiveState"), shown("Result"), shown("ExecMainStatus")) == ("inactive", "success", "0")
    systemctl("disable", "--quiet", "sclub")
    run("dpkg", "--install", package, stderr=subprocess.DEVNULL)
    assert shown("ActiveState") == "inactive", "a package that is installed again starts a service that is disabled"
    systemctl("enable", "--quiet", "--now", "sclub")

    run("dpkg", "--remove", "sclub")
    assert shown("ActiveState") == "inactive"
    assert not Path("/usr/bin/sclub").exists() and SETTINGS.exists() and any(DATA.iterdir()), "after the removal"
    run("dpkg", "--purge", "sclub", stderr=subprocess.DEVNULL)
    links = "/etc/systemd/system/multi-user.target.wants/sclub.service"
    left = [path for path in ("/etc/sclub", DATA, LOGS, links) if os.path.lexists(path)]
    assert not left, f"left after the purge: {left}"


if __name__ == "__main__":
    file = Path(sys.argv[1])
    if len(sys.argv) == 3:
        data = file.read_bytes()
        throwaway_system(Path(sys.argv[2]))
        boot(lambda: try_package(data))
    run("mount", "--make-rprivate", "/", quiet=True)
    raise_loopback()
    with scratch() as base:
        code = in_own_group(file, base)
    sys.exit(code)
