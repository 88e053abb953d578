"""The client's errors, keys, TLS and connections, against real servers over real sockets."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import pandas as pd
import pytest
from sclub._client_attempts import Answer, Attempts
from sclub._client_calls import Calls
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
    Proxy,
    Server,
    certificate,
    client,
    fresh,
    proxy,
    rewards,
    server,
    serving,
)

__all__ = ["client", "fresh", "proxy", "server"]  # fixtures


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


def test_a_decision_that_is_too_old_is_gone(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--lifetime", "1") as server, Client(server.url) as client:
        client.put_items(DRINKS)
        shown = client.recommend("anna")
        time.sleep(1.1)
        with pytest.raises(Gone) as caught:
            client.feedback(shown, 1)
        assert caught.value.code == "expired"


def test_nobody_there_is_a_failed_connection() -> None:
    with Client("http://127.0.0.1:9", retries=0) as client:
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
        ("http://x:y", "port"),
        ("http://me:secretsecret@x", "must not have a user"),
    ],
)
def test_a_url_that_cannot_be_is_refused(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        Client(url)
    assert "secretsecret" not in str(caught.value)


# Keys and TLS

KEYS = "read:r:reader-reader-reader,write:w:writer-writer-writer,admin:a:admin-admin-admin"


def test_keys_are_sent_and_roles_are_told_apart(tmp_path: Path) -> None:
    with serving(tmp_path / "data", env={"SCLUB_API_KEYS": KEYS}) as server:
        with Client(server.url) as nobody, pytest.raises(Unauthorized):
            nobody.recommend("anna")
        with Client(server.url, key="not-a-key-not-a-key") as stranger:
            with pytest.raises(Unauthorized):
                stranger.state()
            assert stranger.ready()
        with Client(server.url, key="writer-writer-writer") as writer:
            writer.put_items(DRINKS)
            writer.feedback(writer.recommend("anna"), 1)
            with pytest.raises(Forbidden):
                writer.forget("anna")
            with pytest.raises(Forbidden):
                list(writer.export())
        with Client(server.url, key="reader-reader-reader") as reader:
            assert reader.state()["rewards"] == 1
            with pytest.raises(Forbidden):
                reader.recommend("anna")
            with pytest.raises(Forbidden) as caught:
                reader.put_items(DRINKS)
            assert "line" not in caught.value.message
        with Client(server.url, key="admin-admin-admin") as admin:
            assert len(list(admin.export())) == 1
            assert admin.forget("anna")


def test_a_key_is_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    key = "open-sesame-open-sesame"
    with Client("http://127.0.0.1:9", key=key, retries=1) as client:
        assert repr(client) == "Client('http://127.0.0.1:9')"
        with pytest.raises(ConnectionFailed) as caught:
            client.recommend("anna")
        shown = [repr(caught.value), str(caught.value), repr(caught.value.__cause__), caplog.text]
        assert not any(key in text for text in shown)
        assert key not in str(vars(client))
    with pytest.raises(ValueError, match="key must be") as refused:
        Client("http://127.0.0.1:9", key=key + "\n")
    assert key not in str(refused.value)


def test_https_needs_a_certificate_that_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = certificate(tmp_path)
    if made is None:
        pytest.skip("there is no openssl")
    cert, key = made
    flags = ["--tls-cert", str(cert), "--tls-key", str(key)]
    with serving(tmp_path / "data", *flags) as server:
        with Client(server.url, verify=cert) as client:
            client.put_items(DRINKS)
            assert client.feedback(client.recommend("anna"), 1)
        with Client(server.url) as client, monkeypatch.context() as patch:
            # It is not tried again.
            patch.setattr(time, "sleep", lambda seconds: pytest.fail("waited"))
            with pytest.raises(ConnectionFailed) as caught:
                client.state()
            assert (caught.value.code, caught.value.may_be_done) == ("tls", False)

        async def trusting() -> int:
            async with AsyncClient(server.url, verify=str(cert)) as client:
                return int((await client.state())["rewards"])

        assert asyncio.run(trusting()) == 1


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


def test_connections_are_kept(proxy: Proxy) -> None:
    with Client(proxy.url) as client:
        for _ in range(20):
            client.state(hash=False)
        assert proxy.connections == 1


def test_httpx_is_not_imported_before_a_client_is_made() -> None:
    program = (
        "import sys, sclub.client\n"
        "assert 'httpx' not in sys.modules and 'pandas' not in sys.modules\n"
        "sclub.client.Client('http://127.0.0.1:9').close()\n"
        "assert 'httpx' in sys.modules and 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
