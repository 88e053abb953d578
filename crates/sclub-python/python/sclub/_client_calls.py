"""The calls of applications: requests, and reading of the answers. Nothing here does any I/O."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ._client_attempts import Answer, Attempts, Call, Request
from ._client_downloads import Card
from ._client_errors import ConnectionFailed, ServiceError
from ._client_listing import listed
from ._client_operator_calls import OperatorCalls, card_of, get, path_of, post, reading
from ._client_values import (
    Context,
    Id,
    Items,
    Reward,
    context_of,
    count_of,
    features_of,
    id_of,
    ids_of,
    is_list,
    items_of,
    json_object,
    number_of,
    pieces_of,
    several_of,
    to_json,
    whole_of,
)

PIECE_BYTES = 1 << 20
PIECE_LINES = 5_000
"""The maximum size of one request with items: small enough for any sensible timeout."""


@dataclass(frozen=True)
class Scored:
    """An item to show. ``score = mean + width``: the expected reward, and the bonus for uncertainty.

    ``propensity`` is the probability of the item to be in the list; None unless the server was started
    with ``--propensities``.
    """

    id: str
    score: float
    mean: float
    width: float
    propensity: float | None = None
    slot_propensity: float | None = None


@dataclass(frozen=True)
class Recommendation:
    """The items to show to a user, best first.

    Only ``decision`` is needed to send the reward later. It is a string, and any process may use it for
    as long as the server accepts it (by default a week).
    """

    decision: str = field(repr=False)
    items: tuple[Scored, ...]
    cluster: int
    cluster_users: int
    missing: tuple[str, ...] = ()
    """The candidates that are not in the catalogue."""
    error: str | None = None
    """In a batch, the reason why there is nothing to show: no candidate is left. `items` is empty then."""

    @property
    def item(self) -> str:
        """Id of the first item."""
        if self.error is not None:
            raise LookupError(self.error)
        return self.items[0].id


Asked: TypeAlias = Id | Mapping[str, Any]
"""A request of a batch: a user, or a mapping with the arguments of `recommend`."""

Given: TypeAlias = (
    tuple[str | Recommendation, Reward] | tuple[str | Recommendation, float, Id] | Mapping[str, Any]
)
"""Feedback of a batch: decision, reward and optionally item; or a mapping with these names."""


class Calls(OperatorCalls):
    """The calls, as generators."""

    def __init__(self, attempts: Attempts) -> None:
        super().__init__(attempts)
        self._has_warned = False
        self._is_node: bool | None = None
        """True if the server is a node of a cluster; None if that was not asked yet."""

    def _warn(self, answer: Answer) -> None:
        """Warns once if the server says that nothing can be learned from the rewards."""
        if answer.warning and not self._has_warned:
            self._has_warned = True
            warnings.warn(answer.warning, RuntimeWarning, stacklevel=5)

    def recommend(
        self,
        user: Id,
        k: int,
        candidates: Iterable[Id] | None,
        items: Items | None,
        exclude: Iterable[Id] | None,
        context: Context | None,
        filter: Mapping[str, Any] | None,
        strict: bool,
        seen: int,
        ties: str,
    ) -> Call[Recommendation]:
        body = _asked("", user, k, candidates, items, exclude, context, filter, strict, seen, ties)
        answer = yield from self._ask(post("/v1/recommend", body))
        return reading(answer, _recommendation)

    def recommend_many(self, requests: Iterable[Asked]) -> Call[list[Recommendation]]:
        asked = []
        several = several_of(requests, "requests", "users or mappings")
        for place, request in enumerate(several):
            where = f"requests[{place}]."
            if isinstance(request, Mapping):
                others = "k candidates items exclude context filter strict seen ties".split()
                asked.append(_asked(where, **_named(where, request, ["user"], others)))
            else:
                asked.append(_asked(where, request))
        answer = yield from self._ask(post("/v1/recommend/batch", {"requests": asked}))
        return reading(answer, lambda said: [_recommendation(one) for one in said["decisions"]])

    def feedback(
        self,
        decision: str | Recommendation,
        reward: Reward | None,
        item: Id | None,
        others: float | None,
    ) -> Call[bool]:
        body = _given("", decision, reward, item, others)
        answer = yield from self._ask(post("/v1/feedback", body))
        self._warn(answer)
        applied = reading(answer, lambda said: bool(said["applied"]))
        return applied or answer.lost

    def feedback_many(self, feedback: Iterable[Given]) -> Call[list[bool]]:
        given = []
        several = several_of(feedback, "feedback", "decisions with rewards")
        for place, one in enumerate(several):
            where = f"feedback[{place}]."
            if isinstance(one, Mapping):
                named = _named(where, one, ["decision"], ["reward", "item", "others"])
                given.append(_given(where, **named))
            elif isinstance(one, (tuple, list)) and len(one) in (2, 3):
                given.append(_given(where, *one))
            else:
                raise TypeError(f"feedback[{place}] must be a decision and a reward")
        # Without rewards it is a round each time that it is sent.
        request = post("/v1/feedback/batch", {"feedback": given}, repeatable=bool(given))
        failed: list[ServiceError] = []
        try:
            answer = yield from self._ask(request, failed)
        except ServiceError as error:
            if not error.may_be_done and (yield from self._may_be_in_part(given, failed)):
                error.may_be_done = True
            raise
        self._warn(answer)
        applied = reading(answer, lambda said: [bool(one) for one in said["applied"]])
        if all(applied):
            return applied
        # A server applies a batch as a whole: if the attempt without an answer did so, nothing is new now.
        if answer.lost and not any(applied) or (yield from self._may_be_in_part(given, failed)):
            return [True] * len(applied)
        return applied

    def _may_be_in_part(self, given: list[Card], failed: list[ServiceError]) -> Call[bool]:
        """True if a batch of rewards may have been learned in part by attempts that failed: in a cluster each partition learns
        its part, whatever the others answer."""
        if len(given) < 2 or not any(_is_of_partition(error) for error in failed):
            return False
        if self._is_node is None:
            try:
                yield from self._ask(get("/v1/nodes", tries_again=False))
            except ServiceError as error:
                if error.code != "unknown_path":
                    # It cannot be known now.
                    return True
                self._is_node = False
            else:
                self._is_node = True
        return self._is_node

    def put_items(self, items: Items, id: str | None, raw: bool) -> Call[int]:
        entries = items_of(items, id=id, raw=raw)
        taken = 0
        failed: list[ServiceError] = []
        unknown: set[str] = set()
        for size, lines in pieces_of(entries, PIECE_BYTES, PIECE_LINES):
            request = Request(
                "PUT", "/v1/items", repeatable=True, body=lines, kind="application/x-ndjson"
            )
            try:
                answer = yield from self._ask(request, failed)
            except ServiceError as error:
                if taken or any(_has_taken_some(one, size) for one in failed):
                    error.may_be_done = True
                if error.status in (400, 422):
                    # Lines are counted from the beginning of the piece.
                    first = repr(entries[taken][0])
                    error.message += f"; lines are counted from item {first}, {taken} are before it"
                elif taken:
                    error.message += f"; {taken} items before are in"
                raise
            count, fields = reading(
                answer, lambda said: (int(said["items"]), said.get("unknown_fields", []))
            )
            taken += count
            unknown.update(fields)
        if unknown:
            warnings.warn(
                f"the server makes no features of the fields {', '.join(sorted(unknown))}; if they are not "
                "misspelt, put them into 'data'",
                RuntimeWarning,
                stacklevel=4,
            )
        return taken

    def item(self, id: Id) -> Call[list[float]]:
        answer = yield from self._ask(get(path_of("/v1/items", id, "id")))
        return reading(answer, lambda said: list(said["features"]))

    def item_card(self, id: Id) -> Call[Card]:
        answer = yield from self._ask(get(path_of("/v1/items", id, "id")))
        return reading(answer, card_of)

    def items(self, limit: int | None) -> Call[dict[str, list[float]]]:
        found = yield from listed(self._ask, {}, limit)
        return {item["id"]: item["features"] for item in found}

    def item_cards(
        self, search: str | None, sort: str | None, ascending: bool, counts: bool, limit: int | None
    ) -> Call[list[Card]]:
        asked = {"counts": "true"} if counts else {}
        if search is not None:
            asked["search"] = search
        if sort is not None:
            asked |= {"sort": sort, "ascending": "true" if ascending else "false"}
        return listed(self._ask, asked, limit)

    def patch_item(self, id: Id, fields: Mapping[str, Any]) -> Call[Card]:
        path = path_of("/v1/items", id, "id")
        if "features" in fields:
            fields = {**fields, "features": features_of(fields["features"], "features")}
        request = Request("PATCH", path, repeatable=True, body=to_json(json_object(fields, "fields")))
        answer = yield from self._ask(request)
        return reading(answer, card_of)

    def remove_item(self, id: Id) -> Call[bool]:
        request = Request("DELETE", path_of("/v1/items", id, "id"), repeatable=True)
        answer = yield from self._ask(request)
        return reading(answer, lambda said: bool(said["removed"])) or answer.lost

    def remove_items(self, ids: Iterable[Id]) -> Call[int]:
        removed = 0
        for id in ids_of(ids, "ids"):
            try:
                removed += yield from self.remove_item(id)
            except ServiceError as error:
                error.may_be_done = error.may_be_done or removed > 0
                raise
        return removed

    def user(self, id: Id) -> Call[Card]:
        answer = yield from self._ask(get(path_of("/v1/users", id, "id")))
        return reading(answer, card_of)

    def preview(self, user: Id, k: int) -> Call[Card]:
        path = f"{path_of('/v1/users', user, 'user')}/preview"
        answer = yield from self._ask(get(path, query={"k": str(whole_of(k, "k"))}))
        return reading(answer, card_of)

    def recent(self, user: Id) -> Call[list[Card]]:
        answer = yield from self._ask(get(f"{path_of('/v1/users', user, 'user')}/recent"))
        return reading(answer, lambda said: list(said["decisions"]))

    def forget(self, user: Id) -> Call[bool]:
        request = Request("DELETE", path_of("/v1/users", user, "user"), repeatable=True)
        answer = yield from self._ask(request)
        return reading(answer, lambda said: bool(said["known"])) or answer.lost


def _is_of_partition(error: ServiceError) -> bool:
    """True if an attempt may have failed in one partition only. Other errors come before any partition is asked."""
    if isinstance(error, ConnectionFailed):
        return error.may_be_done
    return (error.status or 0) >= 400 and error.status not in (401, 403, 405, 413, 415, 421, 429)


def _has_taken_some(error: ServiceError, size: int) -> bool:
    """True if some items of a request of this size are in the catalogue, or may be, though it failed."""
    said = re.search(r"; items taken before it: (\d+)$", error.message)
    if said is not None:
        return int(said[1]) > 0
    # The server takes items in parts, and may have become read-only between two.
    return error.status == 503 and error.code != "starting" and size > 1


def _named(where: str, given: Mapping[str, Any], needed: list[str], other: list[str]) -> Card:
    """Arguments that came in a mapping."""
    for name in needed:
        if name not in given:
            raise TypeError(f"{where}{name} is missing")
    for name in given:
        if name not in needed and name not in other:
            raise TypeError(f"{where}{name} is an unknown argument; use one of {', '.join(needed + other)}")
    return dict(given)


def _asked(
    where: str,
    user: Any,
    k: Any = 1,
    candidates: Any = None,
    items: Any = None,
    exclude: Any = None,
    context: Any = None,
    filter: Any = None,
    strict: Any = False,
    seen: Any = 0,
    ties: Any = "draw",
) -> Card:
    asked: Card = {"user": id_of(user, f"{where}user"), "k": whole_of(k, f"{where}k")}
    if candidates is not None:
        asked["candidates"] = ids_of(candidates, f"{where}candidates")
    if items is not None:
        entries = items_of(items, f"{where}items")
        if any(more or features is None for _, features, more in entries):
            raise ValueError(
                f"{where}items: only items of the catalogue have descriptions and raw fields; give features alone"
            )
        asked["items"] = [{"id": id, "features": features} for id, features, _ in entries]
    if exclude is not None:
        asked["exclude"] = ids_of(exclude, f"{where}exclude")
    if context is not None:
        asked["context"] = context_of(context, f"{where}context")
    if filter is not None:
        asked["filter"] = json_object(filter, f"{where}filter")
    if strict:
        asked["strict"] = True
    if seen:
        asked["seen"] = count_of(seen, f"{where}seen")
    if ties not in ("draw", "order"):
        raise ValueError(f"{where}ties is {ties!r}; it must be 'draw' or 'order'")
    if ties == "order":
        asked["ties"] = ties
    return asked


def _given(
    where: str, decision: Any, reward: Any = None, item: Any = None, others: Any = None
) -> Card:
    if isinstance(decision, Recommendation):
        decision = decision.decision
    if not isinstance(decision, str):
        kind = type(decision).__name__
        raise TypeError(f"{where}decision must be a Recommendation or its decision, not {kind}")
    given: Card = {"decision": decision}
    if is_list(reward):
        given["rewards"] = [
            number_of(one, f"{where}reward[{place}]") for place, one in enumerate(reward)
        ]
    elif reward is not None:
        given["reward"] = number_of(reward, f"{where}reward")
    elif others is None or item is not None:
        raise TypeError(f"{where}reward is missing; give it, or only others if nothing was taken")
    if others is not None:
        given["others"] = number_of(others, f"{where}others")
    if item is not None:
        given["item"] = id_of(item, f"{where}item")
    return given


def _recommendation(said: Any) -> Recommendation:
    return Recommendation(
        decision=said["decision"],
        items=tuple(
            Scored(
                one["id"],
                one["score"],
                one["mean"],
                one["width"],
                one.get("propensity"),
                one.get("slot_propensity"),
            )
            for one in said["items"]
        ),
        cluster=said["cluster"],
        cluster_users=said["cluster_users"],
        missing=tuple(said.get("missing", ())),
        error=said["error"]["message"] if "error" in said else None,
    )


