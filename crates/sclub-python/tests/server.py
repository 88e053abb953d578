"""Real servers for tests, one that answers what it is told, proxies, and both clients under one interface."""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest

from sclub.client import AsyncClient, Client

DRINKS = {"tea": [1, 0, 0.5], "coffee": [0, 1, 0.5], "mate": [0.6, 0.8, 0]}
REPOSITORY = Path(__file__).resolve().parents[3]


def binary() -> str:
    """The program: ``SCLUB_BIN``, or what a build in this repository made."""
    named = os.environ.get("SCLUB_BIN")
    if named:
        return named
    for kind in ("debug", "release"):
        found = REPOSITORY / "target" / kind / "sclub"
        if found.exists():
            return str(found)
    raise FileNotFoundError("there is no sclub to test with: cargo build, or set SCLUB_BIN")


def free_port() -> int:
    """A port that is free. Systems give none of this range to outgoing connections, so a server that is started again finds it free;
    tests in Rust and pages of the documentation draw from others."""
    while True:
        port = random.randrange(12_500, 15_000)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


class Server:
    """A process of ``sclub serve`` on a folder, at one address for as long as it is used."""

    def __init__(self, data: Path, *flags: str, env: dict[str, str] | None = None) -> None:
        self.data = data
        self.flags = flags
        self.scheme = "https" if "--tls-cert" in flags else "http"
        self.port = 0
        self._env = {**os.environ, **(env or {})}
        self._log = data.with_suffix(".log")
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def start(self) -> Server:
        """Returns once it answers."""
        is_first = self.port == 0
        end = time.monotonic() + 60
        while True:
            port = free_port() if is_first else self.port
            command = [binary(), "serve", "--data", str(self.data), "--addr", f"127.0.0.1:{port}"]
            with open(self._log, "a") as log:
                begin = log.tell()
                self._process = subprocess.Popen(
                    [*command, *self.flags],
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env=self._env,
                )
            assert self._process.stdout is not None
            if "listens on" in self._process.stdout.readline():
                self.port = port
                return self
            self._end(signal.SIGKILL)
            said = self._log.read_bytes()[begin:].decode(errors="replace")
            # Another program was faster, or looks for a free port at this moment.
            if "Address already in use" not in said or time.monotonic() > end:
                raise RuntimeError(f"the server did not start: {said}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Ends it without a word, as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ends it in good order, if it runs."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()

    def run(self, *arguments: str) -> str:
        """The output of the program with other arguments."""
        done = subprocess.run(
            [binary(), *arguments], capture_output=True, text=True, env=self._env, check=True
        )
        return done.stdout


@contextmanager
def serving(data: Path, *flags: str, env: dict[str, str] | None = None) -> Iterator[Server]:
    """A server until the end of the block."""
    server = Server(data, *flags, env=env).start()
    try:
        yield server
    finally:
        server.stop()


class Proxy:
    """Stands before a server. Loses as many of the next answers as it is told: the request goes
    through, the answer comes, and the caller does not get it."""

    def __init__(self, port: int) -> None:
        self.lose = 0
        """The number of next answers to lose."""
        self.passes = 0
        """The number of parts that pass before the first that is lost."""
        self.holds = False
        """True if the connection stays open when an answer is lost, so that the caller waits."""
        self.connections = 0
        """The number of requests so far."""
        self._to = port
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = {self._listener}
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        with self._lock:
            for one in self._open:
                _shut(one)

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                _shut(caller)
                continue
            with self._lock:
                self._open |= {caller, server}
                self.connections += 1
            threading.Thread(target=self._forward, args=(caller, server), daemon=True).start()
            threading.Thread(target=self._answer, args=(server, caller), daemon=True).start()

    def _forward(self, caller: socket.socket, server: socket.socket) -> None:
        try:
            while part := caller.recv(1 << 16):
                server.sendall(part)
        except OSError:
            pass
        _shut(server)

    def _answer(self, server: socket.socket, caller: socket.socket) -> None:
        try:
            while part := server.recv(1 << 16):
                with self._lock:
                    is_lost = self.lose > 0 and self.passes == 0
                    self.lose -= is_lost
                    self.passes -= self.passes > 0
                if is_lost and self.holds:
                    continue
                if is_lost:
                    break
                caller.sendall(part)
        except OSError:
            pass
        _shut(caller)
        _shut(server)


def _shut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


@contextmanager
def losing(server: Server) -> Iterator[Proxy]:
    """A proxy before a server until the end of the block."""
    proxy = Proxy(server.port)
    try:
        yield proxy
    finally:
        proxy.close()


class Answering:
    """A server that gives the answers of a list, one after the other, and keeps the requests."""

    def __init__(self, *answers: tuple[int, bytes] | tuple[int, bytes, dict[str, str]]) -> None:
        self.requests: list[tuple[str, str, bytes]] = []
        self.headers: list[Message] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                outer.requests.append((self.command, self.path, body))
                outer.headers.append(self.headers)
                status, said, *headers = answers[min(len(outer.requests), len(answers)) - 1]
                self.send_response(status)
                for name, value in (headers[0] if headers else {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_CONNECT = answer

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Answering:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def beginning(answer: bytes) -> Iterator[str]:
    """The address of a server that sends the beginning of an answer, and then nothing."""
    callers: list[socket.socket] = []

    def accept() -> None:
        with suppress(OSError):
            while True:
                caller, _ = listener.accept()
                callers.append(caller)
                caller.recv(1 << 16)
                caller.sendall(answer)

    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        for one in (listener, *callers):
            _shut(one)


class Tunnel:
    """A proxy for HTTP with a password, as in ``HTTP_PROXY``: any address is that of one server."""

    PASSWORD = b"Proxy-Authorization: Basic YW5uYTpzZWNyZXQ="  # anna:secret

    def __init__(self, port: int) -> None:
        self.requests: list[bytes] = []
        """The first line of each connection, and whether the password was right."""
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://anna:secret@127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        _shut(self._listener)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += caller.recv(1 << 16)
        self.requests.append(head.split(b"\r\n")[0])
        if self.PASSWORD.lower() not in head.lower():
            caller.sendall(b"HTTP/1.1 407 Who?\r\nContent-Length: 0\r\n\r\n")
            return _shut(caller)
        server = socket.create_connection(("127.0.0.1", self._to))
        if head.startswith(b"CONNECT"):
            caller.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            server.sendall(head)
        threading.Thread(target=_pass, args=(caller, server), daemon=True).start()
        _pass(server, caller)


def _pass(giver: socket.socket, taker: socket.socket) -> None:
    with suppress(OSError):
        while part := giver.recv(1 << 16):
            taker.sendall(part)
    _shut(giver)
    _shut(taker)


@contextmanager
def tunnelling(server: Server) -> Iterator[Tunnel]:
    """A proxy for HTTP before a server until the end of the block."""
    tunnel = Tunnel(server.port)
    try:
        yield tunnel
    finally:
        tunnel.close()


def certificate(
    folder: Path, name: str = "localhost", by: tuple[Path, Path] | None = None, is_ca: bool = False
) -> tuple[Path, Path]:
    """A certificate for this machine and its key; signed by itself, or by an authority."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl")
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name}"
    more = ["-addext", f"basicConstraints=critical,CA:{str(is_ca).upper()}"]
    if is_ca:
        more += ["-addext", "keyUsage=critical,keyCertSign"]
    else:
        more += ["-addext", f"subjectAltName=DNS:{name},IP:127.0.0.1"]
    if by is not None:
        more += ["-CA", str(by[0]), "-CAkey", str(by[1])]
    files = ["-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command.split(), *more, *files], check=True, capture_output=True)
    return cert, key


def expired(cert: Path, key: Path) -> Path:
    """The same certificate, signed by itself, whose time is over."""
    made = cert.with_name(f"expired-{cert.name}")
    files = ["-in", str(cert), "-signkey", str(key), "-out", str(made)]
    subprocess.run(["openssl", "x509", "-days", "-1", *files], check=True, capture_output=True)
    return made


class OnLoop:
    """An `AsyncClient` for tests that are written for a `Client`: its methods return results."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.client = AsyncClient(*arguments, **options)
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> OnLoop:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run_until_complete(self.client.close())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def __repr__(self) -> str:
        return repr(self.client)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.client, name)

        def call(*arguments: Any, **options: Any) -> Any:
            return self._loop.run_until_complete(self._result(method(*arguments, **options)))

        return call if callable(method) else method

    async def _result(self, given: Any) -> Any:
        return await given if inspect.isawaitable(given) else [one async for one in given]


Connect: TypeAlias = Callable[..., Client]
"""Makes a client, as the class `Client` does."""


@pytest.fixture(params=[Client, OnLoop], ids=["Client", "AsyncClient"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Both clients in turn."""
    return cast(Connect, request.param)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with drinks, for tests that leave nothing behind that others would notice."""
    with serving(tmp_path_factory.mktemp("shared") / "data") as server:
        with Client(server.url) as client:
            client.put_items(DRINKS)
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own, without items."""
    with serving(tmp_path / "data") as server:
        yield server


@pytest.fixture
def proxy(fresh: Server) -> Iterator[Proxy]:
    with Client(fresh.url) as client:
        client.put_items(DRINKS)
    with losing(fresh) as proxy:
        yield proxy


def rewards(url: str) -> list[float]:
    """All rewards that a server has learned, from its export."""
    with Client(url) as client:
        return [line["reward"] for line in client.export() if line["reward"] is not None]
