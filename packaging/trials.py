"""What the trials of the Debian package and of the image share: the calls of a client."""

import fcntl
import json
import socket
import ssl
import struct
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

from steps import run

CATALOGUE = b'{"id": "tea", "features": [1, 0, 0.5]}\n{"id": "coffee", "features": [0, 1, 0.5]}\n'


def raise_loopback() -> None:
    """A network namespace begins without."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        SIOCSIFFLAGS, IFF_UP = 0x8914, 1
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))


@contextmanager
def scratch():
    """A folder in memory that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", folder, quiet=True)
        try:
            yield Path(folder)
        finally:
            run("umount", "--lazy", folder, quiet=True)


class Server:
    """A server that runs."""

    def __init__(self, url: str = "http://127.0.0.1:8080", key: str | None = None, certificate: str | None = None):
        self.url, self.key, self.certificate = url, key, certificate

    def call(self, path: str, body: bytes | None = None, method: str | None = None) -> bytes:
        request = urllib.request.Request(self.url + path, body, {"content-type": "application/json"}, method=method)
        if self.key:
            request.add_header("authorization", f"Bearer {self.key}")
        trusted = ssl.create_default_context(cafile=self.certificate) if self.certificate else None
        with urllib.request.urlopen(request, timeout=30, context=trusted) as answer:
            return answer.read()

    def ask(self, path: str, body: bytes | None = None, method: str | None = None) -> dict:
        return json.loads(self.call(path, body, method))

    def rounds(self) -> int:
        return self.ask("/v1/state")["rounds"]

    def one_round(self) -> None:
        """A recommendation and its reward."""
        before = self.rounds()
        if before == 0:
            self.ask("/v1/items", CATALOGUE, "PUT")
        answer = self.ask("/v1/recommend", b'{"user": "anna"}')
        assert answer["items"][0]["id"] in ("tea", "coffee"), answer
        feedback = json.dumps({"decision": answer["decision"], "reward": 1}).encode()
        assert self.ask("/v1/feedback", feedback)["applied"] is True
        assert self.rounds() == before + 1, "rounds after a reward"


def wait_until(what: str, holds) -> None:
    """Waits until a function returns a value that is true. Until then it may also fail to connect."""
    for _ in range(600):
        try:
            if holds():
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit(f"after 60 s: not {what}")
