"""The servers, the collector and their load, and the programs that they need."""

import json
import math
import os
import platform
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target")).resolve()
SCLUB = Path(sys.argv[1] if len(sys.argv) > 1 else TARGET / "debug/sclub").resolve()
ROTEL = "0.0.1a15"
DEADLINE = 60  # seconds for anything that must happen soon

running: list[subprocess.Popen] = []

# The servers are on this machine, whatever proxy it has.
without_proxy = [os.environ.get("no_proxy") or os.environ.get("NO_PROXY"), "127.0.0.1", "localhost"]
os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(filter(None, without_proxy))


def fail(message):
    sys.exit(f"deploy/check: {message}")


def step(name):
    print(f"-- {name}", flush=True)


def check_run(command, **options):
    """Runs a program that must not fail."""
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        fail(done.stdout + done.stderr)
    return done


def find_prometheus():
    """The folder of `prometheus` and `promtool`; None if this machine cannot have them. It is an error if it only failed to get them."""
    found = [shutil.which(name) for name in ("prometheus", "promtool")]
    if all(found):
        return Path(found[0]).parent
    unpacked = TARGET / "prometheus"
    if not (unpacked / "usr/bin/promtool").exists():
        if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
            return None
        unpacked.mkdir(parents=True, exist_ok=True)
        download = ["apt-get", "-qq", "download", "prometheus"]
        if subprocess.run(download, cwd=unpacked, capture_output=True).returncode != 0:
            # Fails unless this is root.
            subprocess.run(["apt-get", "-qq", "update"], capture_output=True)
            if subprocess.run(download, cwd=unpacked).returncode != 0:
                if os.getuid() == 0:
                    fail("the package prometheus of Debian cannot be downloaded")
                return None
        package = next(unpacked.glob("prometheus_*.deb"))
        subprocess.run(["dpkg-deb", "-x", package, unpacked], check=True)
        package.unlink()
    return unpacked / "usr/bin"


def has_collector():
    """There is a package of the collector for this machine."""
    library, version = platform.libc_ver()
    is_linux = library == "glibc" and tuple(map(int, version.split(".")[:2])) >= (2, 34)
    return is_linux and platform.machine() in ("x86_64", "aarch64") and (3, 10) <= sys.version_info < (3, 14)


def find_collector():
    """The collector; None if there is no package for this machine. It is an error if it only failed to get it."""
    folder = TARGET / "rotel"
    program = lambda: next(folder.glob("lib/python3*/site-packages/rotel/rotel-agent"), None)
    if not program() and has_collector():
        shutil.rmtree(folder, ignore_errors=True)
        check_run([sys.executable, "-m", "venv", folder])
        check_run([folder / "bin/pip", "install", "--quiet", f"rotel=={ROTEL}"])
        if not program():
            fail(f"rotel {ROTEL} has no rotel-agent")
    return program()


def find_nats():
    """The path of nats-server: as in crates/sclub-server/tests/common/nats.rs."""
    own = [os.environ.get("SCLUB_NATS_SERVER"), shutil.which("nats-server")]
    own += [TARGET / "nats/bin/nats-server", HERE.parent / "target/nats/bin/nats-server"]
    return next((path for path in own if path and is_new_enough(path)), None)


def is_new_enough(nats):
    try:
        said = subprocess.run([nats, "--version"], capture_output=True, text=True).stdout
    except OSError:
        return False
    version = re.search(r": v(\d+)\.(\d+)", said)
    return bool(version) and tuple(map(int, version.groups())) >= (2, 12)


def free_port(count=1):
    """The first of some ports that are free. The system gives none of this range to others."""
    while True:
        first = random.randrange(20_000, 30_000)
        try:
            for port in range(first, first + count):
                with socket.socket() as listener:
                    listener.bind(("127.0.0.1", port))
            return first
        except OSError:
            pass


def environment(**more):
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SCLUB_", "OTEL_"))}
    return own | more


def start(command, log, **options):
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, **options)
    running.append(process)
    return process


def stop(process):
    running.remove(process)
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(DEADLINE)
    except subprocess.TimeoutExpired:
        process.kill()
        fail(f"{process.args[0]} did not stop")


def call(url, body=None, method=None, headers=(), expect=200):
    """The answer to a request: JSON if it is, else text."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, dict(headers), method=method)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            status, text = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read().decode()
    if status != expect:
        fail(f"{url} answered {status}, not {expect}: {text}")
    try:
        return json.loads(text)
    except ValueError:
        return text


def wait_for(what, is_there, log=None):
    begun = time.monotonic()
    while time.monotonic() < begun + DEADLINE:
        try:
            if found := is_there():
                return found
        except (OSError, urllib.error.URLError):
            pass
        time.sleep(0.1)
    said = log.read_text() if log else ""
    fail(f"no {what} within {DEADLINE} s\n{said}")


def is_ready(url):
    # Another status is an error that `wait_for` ignores.
    return urllib.request.urlopen(url, timeout=DEADLINE).status == 200


def inline(number):
    return [{"id": f"i{item}", "features": [1, math.sin(item + number), math.cos(item * number)]} for item in range(5)]


class Load(threading.Thread):
    """Requests of every kind, until the end: decisions, rewards, batches and errors."""

    def __init__(self, base, has_errors=True):
        super().__init__(daemon=True)
        self.base, self.has_errors, self.is_over, self.rounds, self.error = base, has_errors, False, 0, None

    def run(self):
        try:
            while not self.is_over:
                self.round()
                time.sleep(0.01)
        except BaseException as error:
            self.error = error

    def end(self):
        self.is_over = True
        self.join()
        if self.error:
            fail(f"{self.base} under load: {self.error}")

    def round(self):
        self.rounds += 1
        number = self.rounds
        user = f"u{number % 150}"
        shown = call(f"{self.base}/recommend", {"user": user, "items": inline(number), "k": 2})
        reward = int(shown["items"][0]["id"] in ("i1", "i3") and number % 3 > 0)
        call(f"{self.base}/feedback", {"decision": shown["decision"], "reward": reward, "others": 0})
        if number % 20 == 0:
            shown = call(f"{self.base}/recommend/batch", {"requests": [{"user": user, "items": inline(number)}]})
            given = [{"decision": one["decision"], "reward": reward} for one in shown["decisions"]]
            call(f"{self.base}/feedback/batch", {"feedback": given})
        if self.has_errors and number % 10 == 0:
            call(f"{self.base}/recommend", b"{", expect=400)
            call(f"{self.base}/feedback", {"decision": "none", "reward": 1}, expect=404)


def load_server(url):
    """Gives every metric of a single server a reason to move."""
    base = f"{url}/v1"
    lines = "\n".join(json.dumps({"id": f"c{n}", "features": [1, n / 10, -n / 10]}) for n in range(10))
    call(f"{base}/items", lines.encode(), "PUT", {"content-type": "application/x-ndjson"})
    arms = [{"name": "control", "policy": "linucb-one", "share": 50}, {"name": "test", "policy": "sclub-soft", "share": 50}]
    call(f"{base}/experiments", {"name": "x", "arms": arms})
    # A space that gets clicks only.
    call(f"{base}/spaces/clicks", {"dim": 3}, "PUT", expect=201)
    for number in range(110):
        shown = call(f"{base}/spaces/clicks/recommend", {"user": f"u{number}", "items": inline(number)})
        call(f"{base}/spaces/clicks/feedback", {"decision": shown["decision"], "reward": 1})
    call(f"{url}/nothing", expect=404)
    load = Load(base)
    for _ in range(400):
        load.round()
    call(f"{base}/admin/snapshot", b"", "POST")
    load.start()
    return load


def start_cluster(work, nats, traced):
    port = free_port(2)
    command = [SCLUB, "cluster", "up", "--nodes", "2", "--nats", "1", "--partitions", "4", "--data", work / "cluster"]
    command += ["--port", str(port), "--nats-server", nats, "--", *traced]
    process = start(command, (work / "cluster.log").open("w"), env=environment(OTEL_BSP_SCHEDULE_DELAY="60000"))
    nodes = [f"http://127.0.0.1:{port + number}" for number in range(2)]
    for node in nodes:
        wait_for(f"node {node}", lambda: is_ready(f"{node}/readyz"), work / "cluster.log")
    load = Load(f"{nodes[0]}/v1", has_errors=False)
    load.start()
    return process, nodes, load


def start_server(work, collector):
    port = free_port()
    rotel, more = None, []
    if collector:
        addresses = ["--otlp-http-endpoint", f"127.0.0.1:{port}", "--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}"]
        command = [collector, "start", *addresses, "--debug-log", "traces", "--debug-log-verbosity", "detailed"]
        command += ["--exporter", "blackhole", "--pid-file", work / "rotel.pid"]
        rotel = start(command, (work / "rotel.log").open("w"), env=environment())
        wait_for("collector", lambda: socket.create_connection(("127.0.0.1", port), 1))
        # Nothing is sent for a minute: the last spans are sent by the shutdown.
        more = ["--otel-endpoint", f"http://127.0.0.1:{port}"]
    command = [SCLUB, "serve", "--addr", "127.0.0.1:0", "--data", work / "data", "--snapshot-every", "100", *more]
    log = (work / "server.log").open("w")
    # Fits, snapshots and one request in a hundred must fit into one queue.
    server = start(command, log, env=environment(OTEL_SERVICE_NAME="shop", OTEL_BSP_SCHEDULE_DELAY="60000"))
    said = work / "server.log"
    listens = lambda: re.search(r"listens on (\S+)", said.read_text())
    return server, rotel, wait_for("server", listens, said)[1], more


def start_idle(work):
    """A server that nobody uses."""
    said = work / "idle.log"
    command = [SCLUB, "serve", "--addr", "127.0.0.1:0", "--data", work / "idle"]
    server = start(command, said.open("w"), env=environment())
    listens = lambda: re.search(r"listens on (\S+)", said.read_text())
    return server, wait_for("idle server", listens, said)[1]
