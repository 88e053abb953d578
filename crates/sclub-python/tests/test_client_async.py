"""What only `AsyncClient` must do: cancellation, event loops, paths and uploads, against real servers."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sclub._client_async import UNBUFFERED_BODY, _body_of
from sclub._client_base import CONNECTIONS
from sclub._client_limit import Limit
from sclub.client import AsyncClient, Client, ConnectionFailed, TimedOut
from server import DRINKS, Answering, OnLoop, Proxy, Server, beginning, fresh, proxy, rewards, server

__all__ = ["fresh", "proxy", "server"]  # fixtures


@pytest.fixture
def deaf() -> Iterator[str]:
    """The address of a server that takes connections and reads nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_cancelled_call_leaves_the_client_usable(fresh: Server, proxy: Proxy) -> None:
    async def work() -> None:
        async with AsyncClient(proxy.url) as client:
            shown = await client.recommend("anna")
            proxy.holds, proxy.lose = True, 1
            waiting = asyncio.create_task(client.feedback(shown, 1))
            while proxy.lose:
                await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            # The connection whose answer is outstanding is not used again.
            assert (await client.state())["rewards"] == 1
            assert await client.feedback(shown, 1) is False
            with pytest.raises(asyncio.TimeoutError):
                proxy.lose = 1
                await asyncio.wait_for(client.state(), 0.2)
            assert len((await client.recommend("ben", k=3)).items) == 3

    asyncio.run(work())
    assert rewards(fresh.url) == [1]


def test_a_cancellation_at_the_end_of_connecting_is_not_lost(
    deaf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        connect = aiohttp.TCPConnector._create_connection

        async def connected(*arguments: Any) -> Any:
            made = await connect(*arguments)
            asyncio.get_running_loop().call_soon(call.cancel)
            return made

        monkeypatch.setattr(aiohttp.TCPConnector, "_create_connection", connected)
        async with AsyncClient(deaf, retries=0) as client:
            call = asyncio.create_task(client.state())
            await asyncio.wait([call], timeout=30)
            assert call.cancelled()

    asyncio.run(work())


def test_a_cancellation_at_the_end_of_an_upload_is_not_lost() -> None:
    class Writer:
        async def write(self, _: bytes) -> None:
            asyncio.get_running_loop().call_soon(call.cancel)

    async def upload() -> None:
        body = _body_of(b"x" * (UNBUFFERED_BODY + 1), 5.0)
        await body.write_with_length(Writer(), None)
        await asyncio.sleep(60)

    async def work() -> None:
        nonlocal call
        call = asyncio.create_task(upload())
        await asyncio.wait([call], timeout=30)
        assert call.cancelled()

    call: asyncio.Task[None]
    asyncio.run(work())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tasks of Python 3.10 do not count cancellations")
def test_a_cancellation_at_the_same_time_as_a_timeout_is_not_lost() -> None:
    async def work() -> None:
        limits: set[Limit] = set()

        async def limited() -> None:
            async with Limit(60, limits):
                await asyncio.sleep(60)

        for comes_first in (True, False):
            call = asyncio.create_task(limited())
            await asyncio.sleep(0)
            (limit,) = limits
            for cancel in [call.cancel, limit.end] if comes_first else [limit.end, call.cancel]:
                cancel()
            await asyncio.wait([call], timeout=30)
            assert call.cancelled() and not limits

    asyncio.run(work())


@pytest.mark.parametrize("call", ["state", "forget", "put_items"])
def test_aiohttp_itself_sends_nothing_again(proxy: Proxy, call: str) -> None:
    """It would retry GET, PUT and DELETE on a connection that was used before."""
    arguments = {"state": (), "forget": ("anna",), "put_items": ({"water": [0, 0, 1]},)}[call]
    with OnLoop(proxy.url, retries=0) as client:
        client.feedback(client.recommend("anna"), 1)
        before, proxy.lose = proxy.connections, 1
        with pytest.raises(ConnectionFailed) as caught:
            getattr(client, call)(*arguments)
        assert (caught.value.may_be_done, caught.value.code) == (True, "broken")
        assert proxy.connections == before


@pytest.mark.parametrize("size", [10, 50_000_000])
def test_a_server_that_reads_nothing_is_a_timeout(deaf: str, size: int) -> None:
    with OnLoop(deaf, retries=0, timeout=0.3) as client:
        with pytest.raises(TimedOut) as caught:
            client.patch_item("tea", data={"text": "x" * size})
        assert isinstance(caught.value, TimeoutError)
        assert (caught.value.code, caught.value.may_be_done) == ("timeout", True)


def test_a_proxy_that_does_not_answer_is_a_timeout(
    deaf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", deaf)

    async def work() -> None:
        async with AsyncClient("https://sclub.test", retries=0, timeout=0.2) as client:
            with pytest.raises(TimedOut) as caught:
                await asyncio.wait_for(client.compact(timeout=0.2), 20)
            assert (caught.value.code, caught.value.may_be_done) == ("timeout", False)

    asyncio.run(work())


LINE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'9\r\n{"a": 1}\n\r\n'
)


def test_close_ends_calls_that_read_or_wait_for_a_connection() -> None:
    async def work(url: str) -> None:
        client = AsyncClient(url)
        lines = client.export()
        assert await anext(lines) == {"a": 1}
        calls = [asyncio.create_task(client.feedback("d", 1)) for _ in range(CONNECTIONS + 5)]
        calls.append(asyncio.ensure_future(anext(lines)))  # type: ignore[arg-type]
        while len(client._open) < CONNECTIONS:
            await asyncio.sleep(0.01)
        await client.close()
        ended = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 20)
        assert all(isinstance(one, ConnectionFailed) and one.code == "closed" for one in ended)
        # Those without a connection sent nothing.
        assert sum(one.may_be_done for one in ended if isinstance(one, ConnectionFailed)) == CONNECTIONS

    with beginning(LINE) as url:
        asyncio.run(work(url))


def test_close_ends_calls_that_look_up_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        begun = asyncio.Event()

        async def never(*_: object, **__: object) -> None:
            begun.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(aiohttp.DefaultResolver, "resolve", never)
        client = AsyncClient("http://sclub.test")
        calls = [asyncio.create_task(client.state()) for _ in range(3)]
        await begun.wait()
        await client.close()
        for one in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(one, ConnectionFailed) and one.code == "closed"

    asyncio.run(work())


@pytest.mark.parametrize("what", ["handshake", "proxy", "pause", "upload"])
def test_close_ends_calls_that_connect_or_pause_or_send(
    deaf: str, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    async def work(url: str) -> None:
        client = AsyncClient(url, timeout=60)
        size = 50_000_000 if what == "upload" else 1
        call = asyncio.create_task(client.patch_item("tea", data={"text": "x" * size}))

        def is_there() -> bool:
            if what == "upload":
                connector = client._session and client._session.connector
                return connector is not None and bool(connector._acquired) and not client._limits
            return bool(client._limits) and (what != "pause" or bool(busy.requests))

        # Only there the call is what the test is about. It takes a while to connect, and to make a large body.
        while not is_there():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        await client.close()
        done, _ = await asyncio.wait([call], timeout=30)
        call.cancel()
        assert done
        with pytest.raises(ConnectionFailed) as caught:
            await call
        assert (caught.value.code, caught.value.may_be_done) == ("closed", what == "upload")

    error = b'{"error": {"code": "overloaded", "message": "no"}}'
    with Answering((503, error, {"Retry-After": "50"})) as busy:
        if what == "proxy":
            monkeypatch.setenv("https_proxy", deaf)
        url = {"handshake": deaf.replace("http", "https"), "proxy": "https://sclub.test", "pause": busy.url}
        asyncio.run(work(url.get(what, deaf)))


def test_a_large_upload_arrives(fresh: Server) -> None:
    rows = {number: [float(number), 0.25, 0.5] for number in range(20_000)}
    with OnLoop(fresh.url) as client:
        assert client.put_items(rows) == 20_000
    with Client(fresh.url) as client:
        assert client.items() == {str(id): features for id, features in rows.items()}


@pytest.mark.parametrize("name", ["a/b", "a b+c", "ä€😀", "%2F", "?x=1#y", ".", "..", "a%", "&", "7"])
def test_any_text_is_an_id(server: Server, name: str) -> None:
    with Client(server.url) as other, OnLoop(server.url) as client:
        client.put_items({name: [0.1, 0.2, 0.3]})
        assert other.item(name) == client.item(name) == [0.1, 0.2, 0.3]
        assert other.remove_item(name) and not client.remove_item(name)


def test_a_client_may_be_made_before_the_loop_and_not_used_after_its_end(server: Server) -> None:
    client = AsyncClient(server.url)

    async def work() -> None:
        assert (await client.recommend("anna")).items
        await client.close()
        await client.close()
        with pytest.raises(RuntimeError, match="closed"):
            await client.recommend("anna")

    asyncio.run(work())


def test_more_calls_than_connections_wait_for_a_free_one(server: Server) -> None:
    async def work() -> int:
        async with AsyncClient(server.url, timeout=5, retries=0) as client:
            return len(await asyncio.gather(*(client.recommend(user) for user in range(400))))

    assert asyncio.run(work()) == 400


def test_calls_at_once_survive_a_killed_server(fresh: Server) -> None:
    """Each reward is learned once while the server is killed and started again."""

    async def work() -> int:
        async with AsyncClient(fresh.url, retries=10_000, timeout=20) as client:
            await client.put_items(DRINKS)
            sent = 0
            killing = threading.Thread(target=lambda: (fresh.kill(), fresh.start()))

            async def one(user: int) -> bool:
                nonlocal sent
                shown = await client.recommend(user)
                sent += 1
                if sent == 100:
                    killing.start()
                return await client.feedback(shown, user % 2)

            applied = await asyncio.gather(*(one(user) for user in range(300)))
            killing.join()
            assert applied == [True] * 300
            return int((await client.state())["rewards"])

    assert asyncio.run(work()) == 300
    assert len(rewards(fresh.url)) == 300
