"""The client's errors, keys, TLS and connections, against real servers over real sockets."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import pickle
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import sclub
from sclub._client_attempts import Answer, Attempts
from sclub._client_base import proxy_of
from sclub._client_calls import Calls
from sclub._client_errors import error_of
from sclub.client import (
    AsyncClient,
    Client,
    ConnectionFailed,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Recommendation,
    ServiceError,
    Unauthorized,
)

from server import (
    DRINKS,
    REPOSITORY,
    Answering,
    Connect,
    Proxy,
    Server,
    certificate,
    client,
    connect,
    expired,
    fresh,
    proxy,
    rewards,
    server,
    serving,
    tunnelling,
)

__all__ = ["client", "connect", "fresh", "proxy", "server"]  # fixtures


# Errors


def test_errors_say_what_to_do(client: Client) -> None:
    shown = client.recommend("errors")
    with pytest.raises(NotFound) as caught:
        client.recommend("u", candidates=["nothing"], strict=True)
    error: ServiceError = caught.value
    assert (error.status, error.code, error.field) == (404, "unknown_item", "candidates")
    assert "'nothing'" in error.message and "candidates" in str(error)
    with pytest.raises(Invalid) as refused:
        client.feedback(shown, 1.5)
    assert isinstance(refused.value, ValueError)
    assert (refused.value.status, refused.value.field) == (422, "reward")
    with pytest.raises(NotFound, match="unknown decision"):
        client.feedback("made up", 1)
    with pytest.raises(NotFound) as missing:
        client.feedback(shown, 1, item="nothing")
    assert missing.value.field == "item"
    with pytest.raises(Invalid) as both:
        client.recommend("u", candidates=["tea"], items={"a": [1, 2, 3]})
    assert both.value.field == "candidates"
    with pytest.raises(NotFound) as unknown:
        client.item("nothing")
    assert unknown.value.code == "unknown_item"
    assert pickle.loads(pickle.dumps(unknown.value)).code == "unknown_item"


@pytest.mark.parametrize(
    ("status", "code", "kind", "also"),
    [
        (400, "bad_json", sclub.Invalid, ValueError),
        (401, "unauthorized", sclub.Unauthorized, None),
        (403, "cross_site", sclub.Forbidden, None),
        (404, "unknown_user", sclub.NotFound, LookupError),
        (404, "no_candidates", sclub.NoCandidates, sclub.NotFound),
        (405, "wrong_method", ServiceError, None),
        (408, "timeout", sclub.Unavailable, None),
        (409, "begun", sclub.Conflict, None),
        (410, "forgotten", sclub.Gone, None),
        (413, "too_large", sclub.Invalid, ValueError),
        (415, "wrong_type", sclub.Invalid, ValueError),
        (421, "wrong_host", sclub.WrongHost, None),
        (422, "invalid", sclub.Invalid, ValueError),
        (429, "rate_limited", sclub.RateLimited, sclub.Unavailable),
        (500, "internal", sclub.InternalError, None),
        (501, "unsupported", sclub.Unsupported, None),
        (502, "", sclub.Unavailable, None),
        (503, "overloaded", sclub.Unavailable, None),
        (504, "unknown_outcome", sclub.Unavailable, None),
    ],
)
def test_each_family_of_codes_has_a_class(status: int, code: str, kind: type, also: Any) -> None:
    body = json.dumps({"error": {"code": code, "message": "so it is", "field": "k"}}).encode()
    call = Calls(Attempts(0)).state(False)
    next(call)
    with pytest.raises(ServiceError) as caught:
        call.send(Answer(status, body, "7", request_id="r1"))
    error = caught.value
    assert type(error) is kind and (also is None or isinstance(error, also))
    assert (error.status, error.code, error.message) == (status, code, "so it is")
    assert (error.field, error.request_id, error.retry_after) == ("k", "r1", 7)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind and vars(again) == vars(error)
    assert kind.__name__ in sclub.__all__ and kind.__name__ in sclub.client.__all__


@pytest.mark.parametrize(
    "date",
    [
        "Mon, 99999999999999999999 Jan 2020 00:00:00 GMT",
        "Mon, 01 Jan 0001 00:00:00 -0000",
        "Mon, 01 Jan 2020 00:00:00 +999999999999",
        "Fri, 31 Dec 9999 23:59:59 -2359",
        "soon",
    ],
)
def test_any_date_to_wait_for_is_read_or_ignored(date: str) -> None:
    seconds = error_of(429, b"", date).retry_after
    assert seconds is None or seconds >= 0


def test_every_error_of_the_description_has_a_class() -> None:
    paths = json.loads((REPOSITORY / "docs" / "openapi.json").read_text())["paths"]
    calls = [call for path in paths.values() for call in path.values()]
    statuses = {int(status) for call in calls for status in call["responses"]}
    unknown = [status for status in statuses if type(error_of(status, b"", None)) is ServiceError]
    assert [status for status in unknown if status >= 400] == []


def test_errors_of_a_server_have_their_class_and_request_id(tmp_path: Path, connect: Connect) -> None:
    with serving(tmp_path / "data", "--rate", "20") as server:
        with connect(server.url, retries=0) as client:
            client.put_items(DRINKS)
            with pytest.raises(sclub.NoCandidates) as none:
                client.recommend("anna", filter={"tags": ["cold"]})
            assert none.value.field == "filter"
            with pytest.raises(Invalid) as wrong:
                client.recommend("anna", k=-1)
            assert (wrong.value.status, wrong.value.field) == (422, "k")
            ids = {none.value.request_id, wrong.value.request_id}
            assert len(ids) == 2 and all(isinstance(id, str) and id for id in ids)
            with pytest.raises(sclub.RateLimited) as busy:
                for _ in range(100):
                    client.state()
            assert busy.value.retry_after == 1 and busy.value.request_id not in ids

def test_a_host_name_that_the_server_does_not_serve(
    fresh: Server, monkeypatch: pytest.MonkeyPatch, connect: Connect
) -> None:
    look_up = socket.getaddrinfo

    def here(host: Any, *more: Any, **options: Any) -> Any:
        return look_up("127.0.0.1" if host == "sclub.test" else host, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", here)
    with connect(fresh.url.replace("127.0.0.1", "sclub.test"), retries=0) as client:
        with pytest.raises(sclub.WrongHost) as caught:
            client.state()
        assert (caught.value.status, caught.value.code) == (421, "wrong_host")


def test_a_decision_that_is_too_old_is_gone(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--lifetime", "1") as server, Client(server.url) as client:
        client.put_items(DRINKS)
        shown = client.recommend("anna")
        time.sleep(1.1)
        with pytest.raises(Gone) as caught:
            client.feedback(shown, 1)
        assert caught.value.code == "expired"


def test_nobody_there_is_a_failed_connection(connect: Connect) -> None:
    with connect("http://127.0.0.1:9", retries=0) as client:
        with pytest.raises(ConnectionFailed, match=r"http://127\.0\.0\.1:9") as caught:
            client.recommend("anna")
        assert (caught.value.may_be_done, caught.value.code) == (False, "unreachable")
        assert caught.value.url == "http://127.0.0.1:9" and caught.value.status is None
        assert isinstance(caught.value, ServiceError)
        assert client.ready() is False
        with pytest.raises(ConnectionFailed):
            client.wait_until_ready(timeout=0.2)


def test_a_server_of_another_kind_is_found_out() -> None:
    call = Calls(Attempts(0)).recommend("anna", 1, None, None, None, None, None, False, 0, "draw")
    next(call)
    with pytest.raises(ServiceError, match="not one of an sclub server") as caught:
        call.send(Answer(200, b"<html>"))
    assert caught.value.code == "bad_answer"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("127.0.0.1:8080", "begin with http"),
        ("ftp://x", "begin with http"),
        ("http://", "must have a host"),
        ("http://x/?a=b", "no query"),
        ("http://x?", "no query"),
        ("http://x/#", "no query"),
        ("http://x:y", "port"),
        ("http://me:secretsecret@x", "must not have a user"),
        (" http://x", "spaces"),
        ("http://x\n", "control characters"),
        ("http://x..y", "not a valid name"),
        ("http://1.2.3.999:1", "not a valid name"),
    ],
)
def test_a_url_that_cannot_be_is_refused(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        Client(url)
    assert "secretsecret" not in str(caught.value)


# Keys and TLS

KEYS = "read:r:reader-reader-reader,write:w:writer-writer-writer,admin:a:admin-admin-admin"


def test_keys_are_sent_and_roles_are_told_apart(tmp_path: Path, connect: Connect) -> None:
    with serving(tmp_path / "data", env={"SCLUB_API_KEYS": KEYS}) as server:
        with connect(server.url) as nobody, pytest.raises(Unauthorized):
            nobody.recommend("anna")
        with connect(server.url, key="not-a-key-not-a-key") as stranger:
            with pytest.raises(Unauthorized):
                stranger.state()
            assert stranger.ready()
        with connect(server.url, key="writer-writer-writer") as writer:
            writer.put_items(DRINKS)
            writer.feedback(writer.recommend("anna"), 1)
            with pytest.raises(Forbidden):
                writer.forget("anna")
            with pytest.raises(Forbidden):
                list(writer.export())
        with connect(server.url, key="reader-reader-reader") as reader:
            assert reader.state()["rewards"] == 1
            with pytest.raises(Forbidden):
                reader.recommend("anna")
            with pytest.raises(Forbidden) as caught:
                reader.put_items(DRINKS)
            assert "line" not in caught.value.message
        with connect(server.url, key="admin-admin-admin") as admin:
            assert len(list(admin.export())) == 1
            assert admin.forget("anna")


def test_a_key_is_never_shown(caplog: pytest.LogCaptureFixture, connect: Connect) -> None:
    caplog.set_level(1)
    key = "open-sesame-open-sesame"
    with connect("http://127.0.0.1:9", key=key, retries=1) as client:
        assert repr(client).endswith("Client('http://127.0.0.1:9')")
        with pytest.raises(ConnectionFailed) as caught:
            client.recommend("anna")
        shown = [repr(caught.value), str(caught.value), repr(caught.value.__cause__), caplog.text]
        assert not any(key in text for text in shown)
        assert key not in str(vars(getattr(client, "client", client)))
    with pytest.raises(ValueError, match="key must be") as refused:
        connect("http://127.0.0.1:9", key=key + "\n")
    assert key not in str(refused.value)


def test_https_needs_a_certificate_that_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connect: Connect
) -> None:
    cert, key = certificate(tmp_path)
    flags = ["--tls-cert", str(cert), "--tls-key", str(key)]
    with serving(tmp_path / "data", *flags) as server:
        with connect(server.url, verify=cert) as client:
            client.put_items(DRINKS)
            assert client.feedback(client.recommend("anna"), 1)
        with connect(server.url) as client, monkeypatch.context() as patch:
            # It is not tried again.
            patch.setattr("sclub._client_attempts.Wait", lambda _: pytest.fail("waited"))
            with pytest.raises(ConnectionFailed) as caught:
                client.state()
            assert (caught.value.code, caught.value.may_be_done) == ("tls", False)


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_handshake_that_is_cut_off_is_tried_again(connect: Connect, is_reset: bool) -> None:
    """As by a server that has too many connections."""
    callers = []

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = listener.accept()
                callers.append(caller)
                # What is left unread makes it a reset.
                caller.recv(1 if is_reset else 1 << 16)
                caller.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        with connect(url, retries=2) as client, pytest.raises(ConnectionFailed) as caught:
            client.state()
        assert (caught.value.code, caught.value.may_be_done) == ("unreachable", False)
        assert len(callers) == 3
        listener.shutdown(socket.SHUT_RDWR)


def test_verify_trusts_an_authority_a_context_the_environment_or_anybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connect: Connect
) -> None:
    authority = certificate(tmp_path, "authority", is_ca=True)
    stranger = certificate(tmp_path, "stranger", is_ca=True)
    cert, key = certificate(tmp_path, "sclub.test", by=authority)
    flags = ["--tls-cert", str(cert), "--tls-key", str(key), "--host", "localhost"]

    def rewards_by(verify: Any, url: str) -> int:
        with connect(url, verify=verify, retries=0) as client:
            return int(client.state()["rewards"])

    def is_refused(verify: Any, url: str) -> bool:
        with pytest.raises(ConnectionFailed) as caught:
            rewards_by(verify, url)
        return caught.value.code == "tls"

    with serving(tmp_path / "data", *flags) as server:
        assert rewards_by(authority[0], server.url) == 0
        assert rewards_by(str(authority[0]), server.url) == 0
        assert rewards_by(ssl.create_default_context(cafile=authority[0]), server.url) == 0
        assert rewards_by(False, server.url) == 0
        assert is_refused(stranger[0], server.url)
        assert is_refused(True, server.url)
        # The certificate is for the address 127.0.0.1, and not for this name.
        other_name = server.url.replace("127.0.0.1", "localhost")
        assert is_refused(authority[0], other_name)
        assert rewards_by(False, other_name) == 0
        monkeypatch.setenv("SSL_CERT_FILE", str(authority[0]))
        assert rewards_by(True, server.url) == 0
        assert is_refused(stranger[0], server.url)
    old = expired(cert, key)
    with serving(tmp_path / "old", "--tls-cert", str(old), *flags[2:]) as server:
        assert is_refused(old, server.url)
        assert rewards_by(False, server.url) == 0
    with pytest.raises(FileNotFoundError, match=r"missing\.pem"):
        connect("https://127.0.0.1:9", verify=tmp_path / "missing.pem")


# Proxies


def test_a_proxy_of_the_environment_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connect: Connect
) -> None:
    cert, key = certificate(tmp_path, "sclub.test")
    flags = ["--tls-cert", str(cert), "--tls-key", str(key)]
    host = ["--host", "sclub.test"]
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with serving(tmp_path / "a", *host) as plain, tunnelling(plain) as tunnel:
        monkeypatch.setenv("HTTP_PROXY", tunnel.url)
        with connect("http://sclub.test", retries=0) as client:
            client.put_items(DRINKS)
            assert client.feedback(client.recommend("anna"), 1)
            assert "secret" not in str(vars(getattr(client, "client", client)))
        assert tunnel.requests[0].startswith(b"PUT http://sclub.test/v1/items")
    with serving(tmp_path / "b", *host, *flags) as safe, tunnelling(safe) as tunnel:
        monkeypatch.delenv("HTTP_PROXY")
        monkeypatch.setenv("ALL_PROXY", tunnel.url)
        with connect("https://sclub.test", verify=cert, retries=0) as client:
            assert client.state()["rewards"] == 0
        assert tunnel.requests == [b"CONNECT sclub.test:443 HTTP/1.1"]
        monkeypatch.setenv("ALL_PROXY", tunnel.url.replace("secret", "guess"))
        with connect("https://sclub.test", verify=cert, retries=0) as client:
            with pytest.raises(ConnectionFailed) as caught:
                client.state()
            assert (caught.value.code, caught.value.may_be_done) == ("unreachable", False)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,[::1]")
        with connect(safe.url, verify=cert) as client:
            assert client.state()["rewards"] == 0
        assert len(tunnel.requests) == 2


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("password", ["", "anna:secret"])
def test_a_key_is_for_the_server_and_a_password_for_the_proxy(
    monkeypatch: pytest.MonkeyPatch, connect: Connect, scheme: str, password: str
) -> None:
    with Answering((407, b"")) as proxy:
        url = proxy.url.replace("//", f"//{password}@") if password else proxy.url
        monkeypatch.setenv(f"{scheme}_proxy", url)
        with connect(f"{scheme}://sclub.test", key="open-sesame", retries=0) as client:
            with pytest.raises(ServiceError) as caught:
                client.state()
    (headers,) = proxy.headers
    encoded = base64.b64encode(password.encode()).decode()
    assert headers.get_all("Proxy-Authorization", []) == ([f"Basic {encoded}"] if password else [])
    is_plain = scheme == "http"
    assert headers.get_all("Authorization", []) == (["Bearer open-sesame"] if is_plain else [])
    shown = repr(caught.value.__cause__) + repr(caught.value.__context__)
    assert "open-sesame" not in shown and "secret" not in shown
    assert not password or encoded not in shown


@pytest.mark.parametrize(
    ("exceptions", "direct"),
    [
        ("", []),
        ("*", ["127.0.0.1:80", "a.example", "b.a.example", "[::1]:80"]),
        ("a.example", ["a.example", "b.a.example"]),
        (".example", ["a.example", "b.a.example"]),
        (" A.example , 127.0.0.1", ["127.0.0.1:80", "a.example", "b.a.example"]),
        ("a.example:81,127.0.0.1:80", ["127.0.0.1:80"]),
        ("a.example:80", ["a.example", "b.a.example"]),
        ("127.0.0.0/8", ["127.0.0.1:80"]),
        ("::1", ["[::1]:80"]),
        ("[::1]", ["[::1]:80"]),
        ("[::1]:81,ample", []),
    ],
)
def test_hosts_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch, exceptions: str, direct: list[str]
) -> None:
    for name in ("http_proxy", "all_proxy", "no_proxy", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", "proxy:3128")
    monkeypatch.setenv("NO_PROXY", exceptions)
    hosts = ["127.0.0.1:80", "a.example", "b.a.example", "[::1]:80"]
    assert [host for host in hosts if proxy_of(f"http://{host}") is None] == direct


@pytest.mark.parametrize("proxy", ["socks5://me:secret@proxy:1", "ftp://proxy", "http://", "://"])
def test_a_proxy_of_another_kind_is_refused(
    monkeypatch: pytest.MonkeyPatch, connect: Connect, proxy: str
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with pytest.raises(ValueError, match="must be an HTTP proxy") as caught:
        connect("http://sclub.test")
    assert "secret" not in str(caught.value)


# Many at once


def test_threads_share_a_client(client: Client) -> None:
    def work(place: int) -> None:
        for number in range(20):
            shown = client.recommend(f"t{place}", k=2)
            assert client.feedback(shown, number % 2)
        assert client.user(f"t{place}")["count"] == 20
        done.append(place)

    done: list[int] = []
    threads = [threading.Thread(target=work, args=(place,)) for place in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(16))


def test_fifty_calls_at_once_are_all_answered(fresh: Server, proxy: Proxy, tmp_path: Path) -> None:
    async def work() -> None:
        async with AsyncClient(proxy.url) as client:
            assert repr(client) == f"AsyncClient({proxy.url!r})"
            await client.wait_until_ready()
            users = [f"a{number}" for number in range(50)]
            shown = await asyncio.gather(*(client.recommend(user, k=2) for user in users))
            proxy.lose = 10
            applied = await asyncio.gather(*(client.feedback(one, 1) for one in shown))
            assert applied == [True] * 50
            assert proxy.lose == 0
            cards = await asyncio.gather(*(client.user(user) for user in users))
            assert [card["count"] for card in cards] == [1] * 50

    asyncio.run(work())
    assert rewards(fresh.url) == [1] * 50


def test_the_other_client_has_the_same_methods(fresh: Server, tmp_path: Path) -> None:
    def public(of: type) -> set[str]:
        return {name for name in dir(of) if not name.startswith("_")}

    assert public(Client) == public(AsyncClient)

    async def work() -> None:
        async with AsyncClient(fresh.url) as client:
            assert await client.ready()
            assert await client.expect(3) == 3
            assert await client.put_items(pd.DataFrame(DRINKS).T) == 3
            assert await client.item("tea") == [1, 0, 0.5]
            assert len(await client.items()) == 3
            assert (await client.patch_item("tea", title="Tea"))["title"] == "Tea"
            assert await client.remove_item("tea")
            assert await client.remove_items(["tea", "mate"]) == 1
            shown = await client.recommend_many(["anna", 7])
            assert isinstance(shown[0], Recommendation)
            assert await client.feedback_many([(one, 1) for one in shown]) == [True, True]
            assert await client.feedback_many([]) == []
            assert not await client.feedback(shown[0], 1)
            assert (await client.state())["rounds"] == 2
            assert isinstance(await client.clusters(), list)
            assert await client.history() == []
            assert len([line async for line in client.export()]) == 2
            assert len(await client.export_frame()) == 2
            assert await client.backup(tmp_path / "b") == (tmp_path / "b").stat().st_size
            assert await client.snapshot() > 0
            assert await client.forget("anna")
            assert (await client.compact())["dropped"] > 0
            with pytest.raises(NotFound):
                await client.cluster(10**9)
            with pytest.raises(NotFound):
                await client.user("anna")
            with pytest.raises(TypeError):
                await client.recommend(1.5)  # type: ignore[arg-type]
            async for _ in client.export():
                break

    asyncio.run(work())


def test_connections_are_kept(proxy: Proxy, connect: Connect) -> None:
    with connect(proxy.url) as client:
        for _ in range(20):
            client.state(hash=False)
        assert proxy.connections == 1


def test_http_libraries_are_not_imported_before_a_client_is_made() -> None:
    program = (
        "import sys, sclub.client\n"
        "assert not {'httpx', 'aiohttp', 'pandas'} & set(sys.modules)\n"
        "sclub.client.Client('http://127.0.0.1:9').close()\n"
        "assert {'httpx', 'aiohttp', 'pandas'} & set(sys.modules) == {'httpx'}\n"
        "sclub.client.AsyncClient('http://127.0.0.1:9')\n"
        "assert 'aiohttp' in sys.modules and 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
