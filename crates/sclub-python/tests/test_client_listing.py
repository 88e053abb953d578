"""Listings of a catalogue that changes while its pages are read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sclub._client_attempts import Answer, Attempts, Request, Wait
from sclub._client_calls import Calls
from sclub.client import Client, NotFound, ServiceError
from server import Server, fresh

__all__ = ["fresh"]  # fixtures

NAMES = [f"i{number}" for number in range(2500)]


@pytest.fixture
def client(fresh: Server) -> Iterator[Client]:
    with Client(fresh.url) as client:
        client.put_items({name: [1.0, 0.0, 0.5] for name in NAMES})
        yield client


def listed(client: Client, call: Any, *changes: Callable[[], object]) -> Any:
    """The result of a call. The changes are made after its first pages, one after each."""
    left, outcome = list(changes), None
    while True:
        try:
            step = call.send(outcome)
        except StopIteration as stop:
            assert not left
            return stop.value
        outcome = client._do(step)
        if not isinstance(step, Wait) and left:
            left.pop(0)()


def cards(
    sort: str | None = None, *, ascending: bool = False, search: str | None = None, limit: int | None = None
) -> Any:
    return Calls(Attempts(0)).item_cards(search, sort, ascending, False, limit)


def ids_of(found: list[dict[str, Any]]) -> list[str]:
    ids = [item["id"] for item in found]
    assert len(set(ids)) == len(ids)
    return ids


def test_items_that_stay_are_listed_while_others_are_removed(client: Client) -> None:
    # The last items move to the places of these, which have been read.
    ids = ids_of(listed(client, cards(), lambda: client.remove_items(NAMES[:100])))
    assert set(ids) >= set(NAMES[100:])
    found = listed(client, Calls(Attempts(0)).items(None), lambda: client.remove_items(NAMES[100:200]))
    assert set(found) >= set(NAMES[200:]) == set(client.items())
    found = listed(client, cards(search="i2"), lambda: client.remove_items(NAMES[200:230]))
    assert set(ids_of(found)) >= {name for name in NAMES[230:] if name.startswith("i2")}


def test_the_item_that_a_page_ends_with_may_be_removed(client: Client) -> None:
    first = ids_of(client.item_cards(limit=1000))
    changes = [lambda: client.remove_item(first[-1]), lambda: client.remove_item(first[-2])]
    assert set(ids_of(listed(client, cards(), *changes))) >= set(NAMES) - set(first[-2:])
    with pytest.raises(NotFound):
        listed(client, client._calls.cluster(10**9, 1, 1))


def shown(client: Client, *names: str) -> None:
    """Shows items until that is counted."""
    shown = {name: [client.recommend("u", candidates=[name]) for _ in range(3)] for name in names}
    end = time.monotonic() + 30
    for name in shown:
        while client.item_cards(search=name, counts=True, limit=1)[0]["counts"]["shown"] < 3:
            assert time.monotonic() < end
            time.sleep(0.05)


@pytest.mark.parametrize("ascending", [False, True])
def test_an_order_by_counts_has_all_items_though_they_move(client: Client, ascending: bool) -> None:
    first = ids_of(client.item_cards(sort="shown", ascending=ascending, limit=1000))
    # The last one of the page moves, and one of the pages after it.
    call = cards("shown", ascending=ascending)
    ids = ids_of(listed(client, call, lambda: shown(client, first[-1], "i2222")))
    assert set(ids) == set(NAMES) and ids[:1000] == first


def test_an_order_by_counts_has_all_items_though_some_are_removed(client: Client) -> None:
    first = ids_of(client.item_cards(sort="shown", limit=1000))
    ids = ids_of(listed(client, cards("shown"), lambda: client.remove_item(first[-1])))
    assert set(ids) >= set(NAMES) - {first[-1]} and ids[:1000] == first


def test_a_limit_holds_while_the_catalogue_changes(client: Client) -> None:
    assert ids_of(client.item_cards(limit=0)) == []
    found = listed(client, cards(limit=1500), lambda: client.remove_item("i999"))
    assert len(ids_of(found)) == 1500
    assert ids_of(client.item_cards(limit=1500)) == list(client.items())[:1500]


def pages(call: Any, page: Callable[[int, dict[str, str]], dict[str, Any]]) -> tuple[Any, int]:
    """The result of a call with the pages of a function, which has the number of the request and its query, and how many were read."""
    outcome, read = None, 0
    while True:
        try:
            step = call.send(outcome)
        except StopIteration as stop:
            return stop.value, read
        assert isinstance(step, Request) and read < 1000
        outcome = Answer(200, json.dumps(page(read, dict(step.query))).encode())
        read += 1


def two_pages(query: dict[str, str]) -> dict[str, Any]:
    is_first = "after" not in query
    items = [{"id": "a" if is_first else "b", "features": [1]}]
    return {"items": items, "next": "a" if is_first else None, "total": 2}


def test_removals_without_end_are_an_error() -> None:
    with pytest.raises(ServiceError, match="read 20 times.*try again later") as caught:
        pages(cards(), lambda number, query: {**two_pages(query), "order_revision": number})
    assert (caught.value.code, caught.value.may_be_done) == ("changing", False)


def test_nodes_of_a_cluster_may_count_removals_differently() -> None:
    def page(number: int, query: dict[str, str]) -> dict[str, Any]:
        return {**two_pages(query), "order_revision": [7, 3][number % 2]}

    found, read = pages(cards(), page)
    assert ids_of(found) == ["a", "b"] and read == 4


def test_items_that_move_to_the_front_without_end_are_listed() -> None:
    def page(_: int, query: dict[str, str]) -> dict[str, Any]:
        said = {**two_pages(query), "order_revision": 1}
        # By counts the first page comes again and again.
        return {**said, **two_pages({})} if "sort" in query else said

    found, read = pages(cards("shown"), page)
    assert ids_of(found) == ["a", "b"] and read < 10
