"""Answers that no sclub server gives, and clients that are closed, forked or moved to another event loop."""

from __future__ import annotations

import array
import asyncio
import enum
import gc
import os
import socket
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sclub
from sclub.client import AsyncClient, Client, ConnectionFailed, ServiceError, TimedOut, Unavailable
from server import DRINKS, Answering, Connect, Server, beginning, connect, fresh, server

__all__ = ["connect", "fresh", "server"]  # fixtures


@pytest.mark.parametrize("body", [b"<html>\xff", b"", b"null", b"{}", b"[]", b'{"appl', b"[" * 100_000])
def test_after_an_answer_of_something_else_the_call_may_be_done(body: bytes, connect: Connect) -> None:
    with Answering((200, body, {"x-request-id": "r1"})) as server, connect(server.url) as client:
        calls = [
            lambda: client.feedback("d", 1),
            lambda: client.feedback_many([("d", 1)]),
            lambda: client.recommend("anna"),
            lambda: client.recommend_many(["anna"]),
            lambda: client.remove_item("tea"),
            lambda: client.forget("anna"),
            lambda: client.put_items(DRINKS),
        ]
        for call in calls:
            with pytest.raises(ServiceError) as caught:
                call()
            error = caught.value
            assert (error.code, error.request_id, error.may_be_done) == ("bad_answer", "r1", True)
        assert len(server.requests) == len(calls)


@pytest.mark.parametrize(
    "body", [b"<html>", b"null", b"[" * 100_000, b'{"error": "no"}', b'{"error": {"code": [], "message": {}, "field": 7}}']
)
def test_errors_of_proxies_may_be_anything(body: bytes, connect: Connect) -> None:
    with Answering((502, body)) as server, connect(server.url, retries=0) as client:
        with pytest.raises(Unavailable, match="HTTP status 502") as caught:
            client.feedback("d", 1)
        assert (caught.value.code, caught.value.field, caught.value.may_be_done) == ("", None, True)


def test_a_redirect_is_not_followed(connect: Connect) -> None:
    answer = (302, b"", {"Location": "https://sclub.example/"})
    with Answering(answer) as server, connect(server.url) as client:
        for call in (client.state, client.export_frame):
            with pytest.raises(ServiceError, match=r"redirect to https://sclub\.example/") as caught:
                call()
            assert (caught.value.code, caught.value.may_be_done) == ("redirect", False)
        assert len(server.requests) == 2


@pytest.mark.parametrize(("body", "code"), [(b'{"a": 1}\n<html>\n', "bad_answer"), (b'{"a": 1}\n{"b"', "broken")])
def test_an_export_of_something_else_is_an_error(body: bytes, code: str, connect: Connect) -> None:
    kind = {"Content-Type": "application/x-ndjson"}
    with Answering((200, body, kind)) as server, connect(server.url) as client:
        with pytest.raises(ServiceError) as caught:
            list(client.export())
        assert caught.value.code == code


@pytest.mark.parametrize("kind", [{"Content-Type": "text/html; charset=utf-8"}, {}])
def test_a_page_is_no_download_and_not_ready(
    kind: dict[str, str], connect: Connect, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    kept.write_bytes(b"a good backup")
    with Answering((200, b"<html>log in</html>", kind)) as server, connect(server.url) as client:
        calls = [
            lambda: list(client.stream()),
            lambda: list(client.export()),
            lambda: client.backup(kept),
            lambda: client.metrics(),
            lambda: client.ready(),
            lambda: client.wait_until_ready(5),
        ]
        for call in calls:
            with pytest.raises(ServiceError, match="not one of an sclub server") as caught:
                call()
            assert caught.value.code == "bad_answer"
        assert len(server.requests) == len(calls)
    assert kept.read_bytes() == b"a good backup" and os.listdir(tmp_path) == ["kept"]


def test_a_warning_that_is_an_error_keeps_no_connection(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sclub.client.CONNECTIONS", "sclub._client_async.CONNECTIONS", "sclub.client.LONG"):
        monkeypatch.setattr(name, 1)
    headers = {"Content-Type": "application/x-ndjson", "sclub-missing-nodes": "node2"}
    lines = b"{}\n" * 2_000_000
    with Answering((200, lines, headers)) as server, connect(server.url, retries=0) as client:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(3):
                with pytest.raises(RuntimeWarning, match="not complete"):
                    list(client.export())


def test_the_cause_of_an_error_does_not_show_the_key(connect: Connect) -> None:
    with beginning(b"\0 nonsense\r\n\r\n") as url, connect(url, key="open-sesame", retries=0) as client:
        with pytest.raises(ConnectionFailed) as caught:
            client.state()
        shown = repr(caught.value) + repr(caught.value.__cause__) + repr(caught.value.__context__)
        assert "open-sesame" not in shown


def test_members_of_an_enum_are_sent_as_their_texts(connect: Connect) -> None:
    class Name(str, enum.Enum):
        ANNA = "anna"
        PHONE = "phone"

    with Answering((200, b"{}")) as server, connect(server.url) as client:
        with pytest.raises(ServiceError):
            client.recommend(Name.ANNA, candidates=[Name.PHONE], context={"device": Name.PHONE})
        assert server.requests[0][2] == (
            b'{"user":"anna","k":1,"candidates":["phone"],"context":{"device":"phone"}}'
        )


def test_any_sequence_of_numbers_is_a_list_of_rewards(connect: Connect) -> None:
    with Answering((200, b'{"applied": true}')) as server, connect(server.url) as client:
        for rewards in (range(2), array.array("d", [0, 1]), np.array([0, 1]), (0, 1)):
            client.feedback("d", rewards)
        assert {body for _, _, body in server.requests} == {b'{"decision":"d","rewards":[0.0,1.0]}'}
        for text in ("01", b"01"):
            with pytest.raises(TypeError, match="reward must be a number"):
                client.feedback("d", text)  # type: ignore[arg-type]


def test_data_that_is_nested_too_deeply_is_refused(connect: Connect, server: Server) -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with connect(server.url) as client:
        with pytest.raises(ValueError, match="data cannot be sent as JSON: it is nested too deeply"):
            client.put_items([{"id": "tea", "features": [1, 0, 0], "data": deep}])
        with pytest.raises(ValueError, match="nested too deeply"):
            client.patch_item("tea", data=deep)
    # Python itself would recurse to free it.
    while deep:
        deep = deep.pop("a")


def test_a_whole_number_beyond_64_bits_is_no_id(connect: Connect, server: Server) -> None:
    with connect(server.url) as client:
        for id in (2**64 - 1, -(2**63), str(2**64)):
            client.put_items([(id, [1, 0, 0])])
            assert client.item_card(id)["id"] == str(id) and client.remove_item(id)
        for id in (2**64, -(2**63) - 1, 1e22):
            with pytest.raises(ValueError, match=r"user: an id that is a number must be from -2\^63 to 2\^64-1"):
                client.recommend(id)


def test_numbers_of_numpy_are_sent_wherever_json_is(connect: Connect) -> None:
    done = b'{"decision": "d", "items": [], "cluster": 0, "cluster_users": 0}'
    with Answering((200, done)) as server, connect(server.url) as client:
        client.recommend(np.int64(2**62), filter={"price": {"max": np.float32(0.5)}, "id": np.array([1, 2])})
        client.recommend(2**63)
        assert server.requests[0][2] == b'{"user":"4611686018427387904","k":1,"filter":{"price":{"max":0.5},"id":[1,2]}}'
        assert b'"9223372036854775808"' in server.requests[1][2]
        for wrong in (np.float32("nan"), np.datetime64("2024-01-01"), object()):
            with pytest.raises((TypeError, ValueError), match="filter cannot be sent as JSON"):
                client.recommend("anna", filter={"price": wrong})
        assert len(server.requests) == 2


@pytest.mark.parametrize("timeout", [float("inf"), 1e10, 1e7])
def test_long_timeouts_are_none(server: Server, connect: Connect, timeout: float) -> None:
    with connect(server.url, timeout=timeout) as client:
        assert client.state()["items"] == 3
        client.wait_until_ready(timeout)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "5", None, True])
def test_other_timeouts_are_refused(connect: Connect, server: Server, timeout: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="timeout"):
        connect(server.url, timeout=timeout)
    if timeout is not None:
        with connect(server.url) as client, pytest.raises((TypeError, ValueError), match="timeout"):
            client.compact(timeout=timeout)


def test_the_state_has_the_timeout_of_the_client(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        with connect(url, timeout=0.2, retries=0) as client, pytest.raises(TimedOut):
            client.state()


def test_children_of_a_fork_do_not_read_the_answers_of_others(server: Server) -> None:
    """Processes that share a connection would."""
    with Client(server.url) as client:
        client.state()
        children = []
        for name in ("tea", "mate", "coffee"):
            # A thread of pytest may hold a lock, and the child only makes calls.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                wrong = 1
                try:
                    wrong = sum(client.item_card(name)["id"] != name for _ in range(100))
                finally:
                    os._exit(min(wrong, 100))
            children.append(child)
        assert all(client.item_card("tea")["id"] == "tea" for _ in range(100))
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]


def test_a_closed_client_says_so(server: Server, connect: Connect) -> None:
    client = connect(server.url, retries=20)
    with client:
        client.state()
    closed = getattr(client, "client", client)
    begun = time.monotonic()
    with pytest.raises(ConnectionFailed, match="the client is closed") as caught:
        result = closed.state()
        if not isinstance(result, dict):
            asyncio.run(result)
    assert (caught.value.code, caught.value.may_be_done) == ("closed", False)
    assert time.monotonic() < begun + 2


def test_a_call_whose_client_is_closed_may_be_done() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"

        async def work() -> None:
            client = AsyncClient(url, retries=0)
            call = asyncio.create_task(client.feedback("d", 1))
            await asyncio.sleep(1)
            await client.close()
            with pytest.raises(ConnectionFailed) as caught:
                await call
            assert (caught.value.code, caught.value.may_be_done) == ("closed", True)

        asyncio.run(work())
        client = Client(url, timeout=2, retries=0)
        later = threading.Timer(1, client.close)
        later.start()
        with pytest.raises(ConnectionFailed) as caught:
            client.feedback("d", 1)
        later.join()
        assert (caught.value.code, caught.value.may_be_done) == ("closed", True)


@pytest.mark.parametrize("what", ["pause", "connection"])
def test_close_ends_calls_of_threads_that_pause_or_wait_for_a_connection(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr("sclub.client.CONNECTIONS", 1)
    ended: list[tuple[str, bool, float]] = []

    def call(client: Client) -> None:
        begun = time.monotonic()
        with pytest.raises(ConnectionFailed) as caught:
            client.feedback("d", 1)
        ended.append((caught.value.code, caught.value.may_be_done, time.monotonic() - begun))

    error = b'{"error": {"code": "overloaded", "message": "no"}}'
    with Answering((503, error, {"Retry-After": "50"})) as busy, beginning(b"") as deaf:
        client = Client(busy.url if what == "pause" else deaf, timeout=10, retries=1)
        threads = [threading.Thread(target=call, args=(client,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(2)
        client.close()
        for thread in threads:
            thread.join()
        at_once = [one[:2] for one in ended if one[2] < 8]
        assert at_once == [("closed", False)] * (3 if what == "pause" else 2)
        # The one that was sent ends at its timeout.
        assert [one[:2] for one in ended if one[2] >= 8] == [("closed", True)] * (what == "connection")
        assert len(busy.requests) == (3 if what == "pause" else 0)


def test_a_client_that_is_closed_just_before_it_sends_says_so(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(server.url)
    make = client._http.build_request

    def made(*arguments: Any, **options: Any) -> Any:
        client.close()
        return make(*arguments, **options)

    monkeypatch.setattr(client._http, "build_request", made)
    with pytest.raises(ConnectionFailed) as caught:
        client.state()
    assert (caught.value.code, caught.value.may_be_done) == ("closed", False)


def test_a_download_keeps_its_connection_until_it_is_left(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sclub.client.CONNECTIONS", "sclub.client.LONG"):
        monkeypatch.setattr(name, 1)
    with Client(server.url, retries=0) as client:
        for _ in range(3):
            events = client.stream()
            next(events)
            with pytest.raises(TimedOut) as caught:
                client.state()
            assert (caught.value.code, caught.value.may_be_done) == ("timeout", False)
            events.close()
            assert client.state()["items"] == 3


def test_a_client_may_be_used_in_one_event_loop_after_the_other(server: Server) -> None:
    client = AsyncClient(server.url)
    for _ in range(3):
        assert asyncio.run(client.recommend("anna")).items
    with warnings.catch_warnings():
        # The connections of the earlier loops were not closed.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()

    async def work() -> None:
        said: list[BaseException] = []

        def elsewhere() -> None:
            try:
                asyncio.run(client.recommend("ben"))
            except RuntimeError as error:
                said.append(error)

        await client.recommend("anna")
        await asyncio.to_thread(elsewhere)
        assert "another event loop" in str(said[0])
        assert (await client.recommend("anna")).items
        await client.close()

    asyncio.run(work())


def test_nothing_is_left_behind(server: Server, tmp_path: Path) -> None:
    """No warning of Python's development mode about sockets, sessions or tasks."""
    program = f"""
import asyncio, sclub
with sclub.Client({server.url!r}) as client:
    client.recommend("anna")
    next(client.stream())
    for line in client.export(): break
async def main():
    async with sclub.AsyncClient({server.url!r}) as client:
        await asyncio.gather(*(client.recommend(user) for user in range(200)))
        for _ in range(20):
            call = asyncio.create_task(client.recommend("anna"))
            await asyncio.sleep(0.001)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        async for event in client.stream(): break
        async for line in client.export(): break
        # The loop itself closes generators that were left, a moment later.
        for _ in range(500):
            if len(asyncio.all_tasks()) == 1 and not client._session.connector._acquired: break
            await asyncio.sleep(0.01)
        else:
            raise AssertionError(asyncio.all_tasks())
asyncio.run(main())
"""
    options = ["-X", "dev", "-W", "error::ResourceWarning"]
    run = subprocess.run([sys.executable, *options, "-c", program], capture_output=True, text=True)
    said = [line for line in run.stderr.splitlines() if not line.startswith("Executing ")]
    assert not said and run.returncode == 0, run.stderr


def test_errors_say_where_and_why() -> None:
    error = sclub.Invalid("no", status=422, code="invalid", field="reward")
    assert str(error) == "no (in reward, 422 invalid)" and repr(error) == "Invalid('no')"


def test_a_server_that_restarts_is_found_again_on_kept_connections(fresh: Server, connect: Connect) -> None:
    with connect(fresh.url) as client:
        client.put_items(DRINKS)
        for _ in range(3):
            fresh.stop()
            fresh.start()
            time.sleep(0.01)
            assert client.feedback(client.recommend("anna"), 1)
        assert client.user("anna")["count"] == 3
