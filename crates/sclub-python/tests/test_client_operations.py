"""Every call of the API's description has a method; those of operators, against real servers."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sclub.client import AsyncClient, Client, Conflict, ConnectionFailed, Event, NotFound, ServiceError
from server import (
    DRINKS,
    REPOSITORY,
    Answering,
    Connect,
    Server,
    connect,
    fresh,
    losing,
    serving,
)

__all__ = ["connect", "fresh"]  # fixtures

CALLS: dict[str, Callable[[Any], object]] = {
    "backup": lambda client: client.backup("/nowhere/backup"),
    "cluster": lambda client: client.cluster(1),
    "clusters": lambda client: client.clusters(),
    "compact": lambda client: client.compact(),
    "delete_space": lambda client: client.delete_space("news"),
    "end_experiment": lambda client: client.end_experiment("trial", "a"),
    "expect": lambda client: client.expect(3),
    "experiments": lambda client: client.experiments(),
    "export": lambda client: list(client.export()),
    "feedback": lambda client: client.feedback("d", 1),
    "feedback_batch": lambda client: client.feedback_many([]),
    "forget": lambda client: client.forget("anna"),
    "history": lambda client: client.history(),
    "item": lambda client: client.item_card("tea"),
    "items": lambda client: client.item_cards(),
    "make_space": lambda client: client.make_space("news"),
    "metrics": lambda client: client.metrics(),
    "nodes": lambda client: client.nodes(),
    "patch_item": lambda client: client.patch_item("tea"),
    "preview": lambda client: client.preview("anna"),
    "put_items": lambda client: client.put_items(DRINKS),
    "readyz": lambda client: client.wait_until_ready(),
    "recent": lambda client: client.recent("anna"),
    "recommend": lambda client: client.recommend("anna"),
    "recommend_batch": lambda client: client.recommend_many(["anna"]),
    "remove_item": lambda client: client.remove_item("tea"),
    "snapshot": lambda client: client.snapshot(),
    "space": lambda client: client.describe_space("news"),
    "spaces": lambda client: client.spaces(),
    "start_experiment": lambda client: client.start_experiment("trial", []),
    "state": lambda client: client.state(),
    "stream": lambda client: list(client.stream()),
    "timeline": lambda client: client.timeline(),
    "user": lambda client: client.user("anna"),
}
"""The call of each operation."""

LEFT_OUT = {"healthz": "says only that the process runs; `ready` says whether it answers calls"}
"""The operations without a method, and why."""


def test_every_call_of_the_description_has_a_method(tmp_path: Path, connect: Connect) -> None:
    paths = json.loads((REPOSITORY / "docs" / "openapi.json").read_text())["paths"]
    operations = {
        call["operationId"]: (method.upper(), path)
        for path, calls in paths.items()
        for method, call in calls.items()
    }
    assert set(operations) == set(CALLS) | set(LEFT_OUT)
    with Answering((418, b"{}")) as server, connect(server.url) as client:
        for name, call in CALLS.items():
            server.requests.clear()
            with pytest.raises(ServiceError) as caught:
                client.backup(tmp_path / "b") if name == "backup" else call(client)
            assert caught.value.status == 418
            [(method, path, _)] = server.requests
            expected, template = operations[name]
            assert method == expected
            assert re.fullmatch(re.sub(r"\{\w+\}", "[a-z0-9]+", template), path.split("?")[0]), name


def test_what_the_server_knows_can_be_looked_at(tmp_path: Path, connect: Connect) -> None:
    with serving(tmp_path / "data", "--policy", "sclub") as server, connect(server.url) as client:
        client.put_items([{"id": "mint", "features": [1, 0], "title": "Mint tea"}, {"id": "cola", "features": [0, 1]}])
        shown = client.recommend("anna", k=2)
        client.feedback(shown, [1, 0])
        assert len(client.preview("anna", k=2)["items"]) == 2
        past = client.recent("anna")[0]["items"]
        assert [(one["id"], one["reward"]) for one in past] == [
            (shown.items[0].id, 1),
            (shown.items[1].id, 0),
        ]
        end = time.monotonic() + 30
        while (found := client.item_cards(search="MINT", counts=True))[0]["counts"]["rewards"] == 0:
            # Items are counted a moment later.
            assert time.monotonic() < end
        assert [(one["title"], one["counts"]["shown"]) for one in found] == [("Mint tea", 1)]
        best = client.item_cards(sort="reward_rate")
        assert [one["id"] for one in best] == [one.id for one in shown.items]
        assert client.item_cards(sort="reward_rate", ascending=True) == best[::-1]
        assert len(client.item_cards(limit=1)) == 1 and "counts" not in client.item_cards()[0]
        assert client.timeline("24h")["step_seconds"] == 60
        assert client.metrics().startswith("# HELP ")
        assert "hash" in client.state(hash=True) and "hash" not in client.state()
        with pytest.raises(NotFound):
            client.nodes()
        with pytest.raises(Conflict):
            client.expect(5)


def test_experiments_are_started_and_ended(fresh: Server, connect: Connect) -> None:
    with connect(fresh.url) as client:
        client.put_items(DRINKS)
        arms = [
            {"name": "a", "policy": "sclub-soft", "share": 50},
            {"name": "b", "policy": "linucb-one", "share": 50},
        ]
        shadows = [{"name": "c", "policy": "linucb-ind"}]
        assert client.start_experiment("trial", arms, shadows=shadows)["name"] == "trial"
        running = client.experiments()["running"]
        assert [arm["name"] for arm in running["arms"]] == ["a", "b", "c"]
        client.feedback(client.recommend("anna"), 1)
        [line] = list(client.export())
        frame = client.export_frame()
        assert [line["experiment"], line["arm"]] == frame[["experiment", "arm"]].iloc[0].tolist()
        assert client.end_experiment("trial", "a")["winner"] == "a"
        assert [one["name"] for one in client.experiments()["past"]] == ["trial"]


def test_the_frame_has_all_columns_that_lines_have(connect: Connect) -> None:
    line = json.dumps({"decision": 1, "user": "u", "item": "a", "reward": 1, "imported": True})
    shown = json.dumps({"decision": 2, "user": "u", "item": "a", "reward": None, "experiment": "trial", "arm": "b"})
    kind = {"Content-Type": "application/x-ndjson"}
    with Answering((200, f"{line}\n{shown}\n".encode(), kind)) as server, connect(server.url) as client:
        frame = client.export_frame()
    assert frame["imported"].tolist() == [True, False]
    assert frame["experiment"].isna().tolist() == [True, False] and frame["arm"].iloc[1] == "b"


def test_spaces_are_made_and_deleted_even_if_the_answer_is_lost(fresh: Server, connect: Connect) -> None:
    with connect(fresh.url) as client:
        assert client.make_space("news", {"dim": 2})["name"] == "news"
        assert client.describe_space("news")["settings"]["dim"] == 2
        with losing(fresh) as proxy, connect(proxy.url, space="news") as other:
            proxy.lose = 1
            other.delete_space("news")
            assert proxy.lose == 0
        assert [space["name"] for space in client.spaces()] == ["default"]
        with pytest.raises(NotFound):
            client.delete_space("news")


def test_a_snapshot_of_a_cluster_has_a_number_for_each_partition(connect: Connect) -> None:
    with Answering((200, b'{"p0": {"at": 5}, "p1": {"at": 7}}')) as server:
        with connect(server.url) as client:
            assert client.snapshot() == {"p0": 5, "p1": 7}


def test_the_stream_has_events_until_it_is_left(fresh: Server) -> None:
    with Client(fresh.url) as client:
        client.put_items(DRINKS)
        event, data = next(client.stream())
        assert event == "state" and data["users"] == 0

    async def work() -> Event:
        async with AsyncClient(fresh.url) as client:
            async for event in client.stream():
                return event
        raise AssertionError("it ended")

    assert asyncio.run(work()).event == "state"


def test_the_stream_ends_with_the_server_and_breaks_with_the_connection(fresh: Server, connect: Connect) -> None:
    with connect(fresh.url) as client:
        later = threading.Timer(0.5, fresh.stop)
        later.start()
        assert all(event == "state" for event, _ in client.stream())
        later.join()
        fresh.start()
        with losing(fresh) as proxy, connect(proxy.url) as other:
            later = threading.Timer(0.5, proxy.close)
            later.start()
            with pytest.raises(ConnectionFailed) as caught:
                list(other.stream())
            assert caught.value.code == "broken"


def test_events_are_read_whatever_they_are_like(connect: Connect) -> None:
    text = ': hello\r\nevent: change\r\ndata: {"to":\r\ndata: "é"}\r\n\r\nretry: 5\n\nevent: missed\ndata: 3\n\nevent: state\ndata: {'
    kind = {"Content-Type": "text/event-stream"}
    with Answering((200, text.encode(), kind)) as server, connect(server.url) as client:
        assert list(client.stream()) == [Event("change", {"to": "é"}), Event("missed", 3)]
