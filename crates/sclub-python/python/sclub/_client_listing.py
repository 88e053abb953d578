"""The listing of a catalogue that may change meanwhile. Nothing here does any I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ._client_attempts import Answer, Call, Request
from ._client_downloads import Card
from ._client_errors import NotFound, ServiceError
from ._client_operator_calls import PAGE, get, reading
from ._client_values import count_of

Ask: TypeAlias = Callable[[Request], Call[Answer]]

PASSES = 20
"""The maximum number of times that the pages are read."""


def listed(ask: Ask, query: Mapping[str, str], limit: int | None) -> Call[list[Card]]:
    """The items of all pages, or the first `limit`: none twice, and every one that is there all the time.

    The removal of an item moves another one, perhaps to a page that was read before. So the pages are read again until no item
    is removed meanwhile. In an order by counts every item that is shown moves, and nothing tells that it did: what
    such pages left out is found in the order of the catalogue.
    """
    most = None if limit is None else count_of(limit, "limit")
    asked = dict(query)
    found: dict[str, Card] = {}
    former: set[int] | None = None
    for _ in range(PASSES):
        pages, revisions = yield from _pass(ask, asked, most, found)
        if _is_full(found, most) or revisions is not None and pages == 1:
            break
        if "sort" not in asked:
            # The nodes of a cluster count differently, but none of them backwards: the same numbers again are those of several nodes.
            if revisions is not None and (len(revisions) == 1 or revisions == former):
                break
            former = revisions
        elif revisions is not None:
            asked = {name: value for name, value in asked.items() if name not in ("sort", "ascending")}
    else:
        raise ServiceError(
            f"the catalogue was read {PASSES} times, and each time items were removed meanwhile, so that others may be "
            "missing; try again later",
            code="changing",
        )
    return list(found.values())[:most]


def _pass(
    ask: Ask, asked: Mapping[str, str], most: int | None, found: dict[str, Card]
) -> Call[tuple[int, set[int] | None]]:
    """Reads the pages once. Returns their number, and the revisions that the order had; None if it had to stop."""
    revisions: set[int] = set()
    pages = read = 0
    query = dict(asked)
    while not _is_full(found, most):
        some = PAGE if most is None or read >= most else min(PAGE, most - read)
        try:
            answer = yield from ask(get("/v1/items", query={**query, "limit": str(some)}))
        except NotFound as error:
            if "after" in query and error.code == "unknown_item":
                # The last item of the page before was removed.
                return pages, None
            raise
        items, after, total, revision = reading(answer, _page)
        for id, item in items.items():
            found.setdefault(id, item)
        revisions.add(revision)
        pages, read = pages + 1, read + len(items)
        # In an order by counts the last item of each page may move to the front, without end.
        if after is None or "sort" in asked and read > total:
            break
        query["after"] = after
    return pages, revisions


def _is_full(found: Mapping[str, Card], most: int | None) -> bool:
    return most is not None and len(found) >= most


def _page(said: Any) -> tuple[dict[str, Card], str | None, int, int]:
    """The items of a page by their ids, the last one if there are more, the number of all items, and the revision of their order."""
    counts = said.get("counts") or [None] * len(said["items"])
    pairs = zip(said["items"], counts, strict=True)
    items = {item["id"]: item if count is None else {**item, "counts": count} for item, count in pairs}
    return items, said["next"], int(said["total"]), int(said.get("order_revision", 0))
