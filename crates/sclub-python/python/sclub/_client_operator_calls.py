"""The calls of operators: requests, and reading of the answers. Nothing here does any I/O."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from ._client_attempts import Answer, Attempts, Call, Request, Wait
from ._client_downloads import Card, bad_answer, check_kind
from ._client_errors import ConnectionFailed, NotFound, Unavailable
from ._client_values import count_of, id_of, json_object, to_json

T = TypeVar("T")

PAGE = 1_000
"""The maximum page size of the server."""

LONG = 600.0
"""The timeout in seconds of calls that take long on a large data folder."""


class OperatorCalls:
    """The calls of operators, as generators."""

    def __init__(self, attempts: Attempts) -> None:
        self._ask = attempts.ask

    def state(self, hash: bool) -> Call[Card]:
        answer = yield from self._ask(_hashed("/v1/state", hash))
        return reading(answer, card_of)

    def nodes(self, hash: bool) -> Call[Card]:
        answer = yield from self._ask(_hashed("/v1/nodes", hash))
        return reading(answer, card_of)

    def clusters(self, limit: int | None) -> Call[list[Card]]:
        return self.pages("/v1/clusters", "clusters", "after", limit)

    def cluster(self, id: int, items: int, members: int) -> Call[Card]:
        query = {
            "items": str(count_of(items, "items")),
            "members": str(count_of(members, "members")),
        }
        request = get(f"/v1/clusters/{count_of(id, 'id')}", query=query)
        answer = yield from self._ask(request)
        return reading(answer, card_of)

    def history(self, limit: int | None) -> Call[list[Card]]:
        return self.pages("/v1/history", "changes", "before", limit)

    def timeline(self, range: str) -> Call[Card]:
        answer = yield from self._ask(get("/v1/timeline", query={"range": range}))
        return reading(answer, card_of)

    def metrics(self) -> Call[str]:
        answer = yield from self._ask(get("/metrics"))
        check_kind("/metrics", answer.kind, answer.request_id)
        return answer.body.decode(errors="replace")

    def experiments(self) -> Call[Card]:
        answer = yield from self._ask(get("/v1/experiments"))
        return reading(answer, card_of)

    def start_experiment(
        self, name: str, arms: Iterable[Mapping[str, Any]], shadows: Iterable[Mapping[str, Any]]
    ) -> Call[Card]:
        body: Card = {"name": name, "arms": [json_object(arm, "arms") for arm in arms]}
        others = [json_object(arm, "shadows") for arm in shadows]
        if others:
            body["shadows"] = others
        answer = yield from self._ask(post("/v1/experiments", body, repeatable=False))
        return reading(answer, card_of)

    def end_experiment(self, name: str, winner: str) -> Call[Card]:
        path = f"{path_of('/v1/experiments', name, 'name')}/end"
        answer = yield from self._ask(post(path, {"winner": winner}, repeatable=False))
        return reading(answer, card_of)

    def spaces(self) -> Call[list[Card]]:
        answer = yield from self._ask(get("/v1/spaces"))
        return reading(answer, lambda said: list(said["spaces"]))

    def describe_space(self, name: str) -> Call[Card]:
        answer = yield from self._ask(get(path_of("/v1/spaces", name, "name")))
        return reading(answer, card_of)

    def make_space(self, name: str, settings: Mapping[str, Any]) -> Call[Card]:
        body = to_json(json_object(settings, "settings"))
        path = path_of("/v1/spaces", name, "name")
        answer = yield from self._ask(Request("PUT", path, repeatable=True, body=body))
        return reading(answer, card_of)

    def delete_space(self, name: str) -> Call[None]:
        path = path_of("/v1/spaces", name, "name")
        try:
            yield from self._ask(Request("DELETE", path, repeatable=True, query={"confirm": name}))
        except NotFound as error:
            # The attempt whose answer was lost has deleted it.
            if not error.may_be_done:
                raise

    def expect(self, users: int) -> Call[int]:
        body = {"users": count_of(users, "users")}
        answer = yield from self._ask(post("/v1/admin/expect", body))
        return reading(answer, lambda said: int(said["expected_users"]))

    def compact(self, timeout: float) -> Call[Card]:
        request = Request("POST", "/v1/admin/compact", repeatable=False, timeout=timeout)
        answer = yield from self._ask(request)
        return reading(answer, card_of)

    def snapshot(self, timeout: float) -> Call[int | dict[str, int]]:
        request = Request("POST", "/v1/admin/snapshot", repeatable=True, timeout=timeout)
        answer = yield from self._ask(request)
        return reading(answer, _snapshot)

    def download(self, path: str, timeout: float | None) -> Call[Any]:
        """The answer of the HTTP library, with its body still to be read."""
        answer = yield from self._ask(get(path, streams=True, timeout=timeout))
        return answer.stream

    def ready(self, timeout: float | None = None) -> Call[bool]:
        try:
            yield from self._check_ready(timeout)
        except (ConnectionFailed, Unavailable):
            return False
        return True

    def wait_until_ready(self, timeout: float) -> Call[None]:
        end = time.monotonic() + timeout
        pause = 0.02
        while True:
            try:
                left = max(0.1, end - time.monotonic())
                return (yield from self._check_ready(left))
            except (ConnectionFailed, Unavailable) as error:
                left = end - time.monotonic()
                if left <= 0 or error.code in ("tls", "closed"):
                    raise
            yield Wait(min(pause, left))
            pause = min(1.0, 1.5 * pause)

    def _check_ready(self, timeout: float | None) -> Call[None]:
        answer = yield from self._ask(get("/readyz", timeout=timeout, tries_again=False))
        reading(answer, lambda said: said["ready"])

    def pages(self, path: str, key: str, cursor: str, limit: int | None) -> Call[list[Card]]:
        """The entries of a list, page by page, up to `limit`."""
        left = None if limit is None else count_of(limit, "limit")
        found: list[Card] = []
        query: dict[str, str] = {}
        while left is None or len(found) < left:
            some = PAGE if left is None else min(PAGE, left - len(found))
            answer = yield from self._ask(get(path, query={**query, "limit": str(some)}))
            part, after = reading(answer, lambda said: (list(said[key]), said["next"]))
            found += part
            if after is None:
                break
            query[cursor] = str(after)
        return found


def get(path: str, **how: Any) -> Request:
    return Request("GET", path, repeatable=True, **how)


def post(path: str, body: Any, repeatable: bool = True) -> Request:
    return Request("POST", path, repeatable=repeatable, body=to_json(body))


def _hashed(path: str, hash: bool) -> Request:
    """A request that takes long with a hash."""
    if not hash:
        return get(path)
    return get(path, query={"hash": "true"}, timeout=LONG)


def path_of(folder: str, id: Any, name: str) -> str:
    text = quote(id_of(id, name), safe="")
    # A path with the names . and .. would be taken for a shorter one.
    return f"{folder}/{text.replace('.', '%2E') if not text.strip('.') else text}"


def card_of(said: Any) -> Card:
    if not isinstance(said, dict):
        raise TypeError(f"an object is expected, not {type(said).__name__}")
    return said


def _snapshot(said: Any) -> int | dict[str, int]:
    """The last event; in a cluster, that of each partition."""
    if "at" in said:
        return int(said["at"])
    return {partition: int(one["at"]) for partition, one in said.items()}


def reading(answer: Answer, read: Callable[[Any], T]) -> T:
    """The content of an answer, if it is one of an sclub server."""
    try:
        return read(json.loads(answer.body))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise bad_answer(error, answer.status, answer.request_id) from error
