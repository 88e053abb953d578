"""Clients for a server that runs `sclub serve`.

Example::

    import sclub

    with sclub.Client("http://127.0.0.1:8080") as client:
        client.put_items({"tea": [1, 0, 0.5], "coffee": [0, 1, 0.5]})
        shown = client.recommend("anna")
        print(shown.item)
        client.feedback(shown, reward=1)

`AsyncClient` has the same methods, to be awaited.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, TypeVar

from ._client_async import AsyncClient
from ._client_attempts import Answer, Call, Failure, Outcome, Step, Wait, answer_of
from ._client_base import CONNECTIONS, Verify, headers_of, proxy_of
from ._client_calls import Asked, Given, Recommendation, Scored
from ._client_downloads import Card, Event, begin_download
from ._client_errors import (
    Conflict,
    ConnectionFailed,
    Forbidden,
    Gone,
    InternalError,
    Invalid,
    NoCandidates,
    NotFound,
    RateLimited,
    ServiceError,
    TimedOut,
    Unauthorized,
    Unavailable,
    Unsupported,
    WrongHost,
)
from ._client_operator import Operator
from ._client_operator_calls import LONG
from ._client_values import Context, Id, Items, Reward

__all__ = [
    "AsyncClient",
    "Client",
    "Conflict",
    "ConnectionFailed",
    "Event",
    "Forbidden",
    "Gone",
    "InternalError",
    "Invalid",
    "NoCandidates",
    "NotFound",
    "RateLimited",
    "Recommendation",
    "Scored",
    "ServiceError",
    "TimedOut",
    "Unauthorized",
    "Unavailable",
    "Unsupported",
    "WrongHost",
]

T = TypeVar("T")


class Client(Operator):
    """A client for a server. Several threads may share one, and so may processes made by ``fork``.

    Parameters
    ----------
    url
        The address of the server, as ``"http://127.0.0.1:8080"``.
    key
        The secret of a key, if the server requires one.
    timeout
        Seconds to wait for a connection, and for each part of an answer.
    retries
        The maximum number of retries of a call. A call is retried when the server cannot be reached
        or is busy. It is also retried when its answer was lost, unless it is a batch without rewards or
        a compaction, which are not idempotent.
    verify
        Certificates to trust over https. True: those of the usual authorities (the package certifi), or of
        ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` if the environment has them. A path: only those in this PEM file,
        such as the certificate of your own authority, or a self-signed one of the server. An
        ``ssl.SSLContext``: whatever it says, also client certificates. False: any, without any protection
        against an attacker in between; for trials only.
    space
        The space of all calls, for a server with several catalogues; None for the default one.

    Raises
    ------
    ServiceError
        From every method; the classes below it say what to do.

    Example::

        with sclub.Client("https://sclub.example", key="…", verify="ca.pem") as client:
            shown = client.recommend("anna", k=3)
            client.feedback(shown, 1, item=shown.items[1].id)
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: float = 30.0,
        retries: int = 4,
        verify: Verify = True,
        space: str | None = None,
    ) -> None:
        import httpx

        super().__init__(url, timeout, retries, verify, space)
        headers, proxy = headers_of(key), proxy_of(self._url)

        # Only this function and httpx have the key and the password of the proxy, and show neither.
        def connect() -> httpx.Client:
            # The client waits for free connections itself, so that it can stop waiting.
            return httpx.Client(
                headers=headers,
                verify=self._trust,
                proxy=proxy,
                trust_env=False,
                limits=httpx.Limits(max_keepalive_connections=CONNECTIONS),
            )

        self._connect = connect
        self._begin()

    def _begin(self) -> None:
        """Makes what a process has of its own: its connections, and what its threads wait for."""
        self._http = self._connect()
        self._free = threading.Semaphore(CONNECTIONS)
        self._closing = threading.Event()
        self._process = os.getpid()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. No call can be made afterwards.

        A call of another thread that waits for a connection or for its next attempt ends at once. One that was sent ends at its
        timeout at the latest, and is not retried.
        """
        self._is_closed = True
        # After a fork nobody waits, and a thread of the parent may have a lock.
        if self._process == os.getpid():
            self._closing.set()
            # Calls that wait for a connection wake each other.
            self._free.release()
        self._http.close()

    def recommend(
        self,
        user: Id,
        *,
        k: int = 1,
        candidates: Iterable[Id] | None = None,
        items: Items | None = None,
        exclude: Iterable[Id] | None = None,
        context: Context | None = None,
        filter: Mapping[str, Any] | None = None,
        strict: bool = False,
        seen: int = 0,
        ties: Literal["draw", "order"] = "draw",
    ) -> Recommendation:
        """Recommends items to a user.

        Parameters
        ----------
        user
            The id of the user. Users need no registration.
        k
            The number of items to show.
        candidates
            The ids of the catalogue items to choose from.
        items
            Items outside the catalogue to choose from: a mapping from ids to features, a DataFrame (see
            `put_items`), or a list of ``{"id": …, "features": …}``.
        exclude
            Ids to leave out.
        context
            Values of the context features that the server was started with, such as
            ``{"hour": 0.75, "device": "phone"}``. Those that are left out are 0.
        filter
            Conditions on ``id``, ``tags`` and the fields of ``data`` of catalogue items: a value, a list of
            values of which one must be there, or a mapping with ``any``, ``all``, ``none``, ``min`` and ``max``.
        strict
            True to raise `NotFound` if a candidate is not in the catalogue. By default it is skipped and named in
            ``missing``.
        seen
            Leaves out what the user was shown in the last so many decisions.
        ties
            The order of items of equal score: ``"draw"`` by the decision's random number, ``"order"`` as the
            candidates are given.

        Example::

            client.recommend("anna", k=2, exclude=["tea"])
            client.recommend("anna", filter={"tags": ["hot"], "price": {"max": 4}}, seen=3)
            client.recommend("anna", items={"a": [0.6, 0.8], "b": [1.0, 0.0]})
        """
        return self._run(self._calls.recommend(
                user, k, candidates, items, exclude, context, filter, strict, seen, ties
            ))

    def recommend_many(self, requests: Iterable[Asked]) -> list[Recommendation]:
        """Recommends items to several users on the same history.

        Each request is a user, or a mapping with the arguments of `recommend`. The limit is 1,000; a
        longer list is refused, not split, because a batch is a round.

        Example::

            client.recommend_many(["anna", {"user": "ben", "k": 3}])
        """
        return self._run(self._calls.recommend_many(requests))

    def feedback(
        self,
        decision: str | Recommendation,
        reward: Reward | None = None,
        *,
        item: Id | None = None,
        others: float | None = None,
    ) -> bool:
        """Sends the reward of an item that was shown. It is on the server's disk afterwards.

        Parameters
        ----------
        decision
            The result of `recommend`, or its ``decision``.
        reward
            Within the server's range, by default 0 to 1. True is 1. A list has the rewards of the items
            shown, in order from the first, as far as the user looked; it is learned as one round.
        item
            The id of the item; by default the first one shown. Each takes one reward.
        others
            The reward of all other items of the list, such as 0 for those that were not clicked. With `reward` left
            out, nothing was clicked. A click that comes later replaces it, if the server's policy can correct
            rewards.

        Returns
        -------
        bool
            False if the item had its reward before; then nothing changed. If the answer to an earlier
            attempt was lost and the item has a reward now, True is returned: the reward is most likely
            this one, but may have come from another call.

        Example::

            client.feedback(shown, 1, item="tea", others=0)  # clicked tea, and nothing else
            client.feedback(shown, [0, 1])  # the second was clicked, the rest not looked at
        """
        return self._run(self._calls.feedback(decision, reward, item, others))

    def feedback_many(self, feedback: Iterable[Given]) -> list[bool]:
        """Sends the rewards of several users as one round: all are learned, or an error is raised.

        In a cluster they are one round in each partition. If one refuses its part, the others may have learned theirs: then the error
        has ``may_be_done``.

        Each is a pair of decision and reward, a triple with an item, or a mapping with these names and ``others``.
        The limit is 1,000; a longer list is refused, not split, because a batch is a round.

        An empty list is a round without rewards: time passes. If its answer is lost
        it is *not* sent again, and `ConnectionFailed` with ``may_be_done`` True is raised.

        Returns
        -------
        list of bool
            True for each reward that was new, as in `feedback`. In a cluster all are True if an earlier attempt may have been
            learned in some partitions.

        Example::

            client.feedback_many([(first, 1), (second, 0)])
        """
        return self._run(self._calls.feedback_many(feedback))

    def put_items(self, items: Items, *, id: str | None = None, raw: bool = False) -> int:
        """Puts items into the catalogue, in place of those with the same ids.

        An item is replaced as a whole; `patch_item` changes some of its fields.

        Parameters
        ----------
        items
            A DataFrame, a mapping from ids to features, pairs of ids and features, or a list of
            ``{"id": …, "features": …}``, which may also have ``title``, ``tags``, ``available`` and ``data`` (any JSON
            object). In a
            DataFrame the ids are the column `id`, or a column called ``"id"`` if there is one, or
            the index; all other columns are features, in their order, and must be numeric.

            A server that was started with ``--features FILE`` also takes items without features. They have the
            raw fields of the catalogue instead, such as ``{"id": "tea", "title": "Green tea", "price": 4.5}``, or
            ``{"tea": {"title": …}}``. A field that is None is left out.
        id
            Name of the column with the ids.
        raw
            True if the columns of a DataFrame are raw fields, not features. Missing values are left out.

        Returns
        -------
        int
            The number of items.

        Raises
        ------
        ValueError
            If a value is missing or not a number, or an id is there twice. Nothing was sent then.

        Warns
        -----
        RuntimeWarning
            If the server makes no features of some raw fields. They are kept in the items' ``data``. Fields that
            were sent in ``data`` are not named.

        Notes
        -----
        Many items are sent in several requests. If one of them fails, or the server refuses an item, the items before it stay,
        and the error has ``may_be_done``. To put the same items again is harmless.

        Example::

            client.put_items(pandas.read_csv("drinks.csv"), id="name")
            client.put_items([{"id": "tea", "title": "Green tea", "tags": ["hot"], "price": 4.5}])
            client.put_items(pandas.read_csv("catalogue.csv"), id="sku", raw=True)
        """
        return self._run(self._calls.put_items(items, id, raw))

    def item(self, id: Id) -> list[float]:
        """The features of an item of the catalogue."""
        return self._run(self._calls.item(id))

    def item_card(self, id: Id) -> Card:
        """An item of the catalogue: features, title, tags, availability and data."""
        return self._run(self._calls.item_card(id))

    def items(self, *, limit: int | None = None) -> dict[str, list[float]]:
        """Items of the catalogue and their features: all, or the first `limit`.

        They come in parts of 1,000, and the catalogue may change meanwhile: see `item_cards`.
        """
        return self._run(self._calls.items(limit))

    def item_cards(
        self,
        *,
        search: str | None = None,
        sort: Literal["shown", "rewards", "reward_rate"] | None = None,
        ascending: bool = False,
        counts: bool = False,
        limit: int | None = None,
    ) -> list[Card]:
        """Items of the catalogue with all their fields: all, or the first `limit`.

        They come in parts of 1,000. The catalogue may change meanwhile: no item is there twice, and every item that is in the
        catalogue all the time is there. Those that a removal, or with `sort` a new count, has moved to a part that was read
        before are the last ones.

        Parameters
        ----------
        search
            Only items whose id, title, tags or texts in ``data`` contain all these words, in any order. Case and accents are ignored.
        sort
            The order: by how often items were shown, by their number of rewards or by their mean reward, the largest first.
            None for the order of the catalogue. Not in a cluster.
        ascending
            True for the smallest first.
        counts
            True to include ``"counts"``: how often each item was shown, and its rewards.
        limit
            The maximum number of items; None for all.

        Raises
        ------
        ServiceError
            With the code ``"changing"`` if items were removed each of the 20 times that the parts were read.
        """
        return self._run(self._calls.item_cards(search, sort, ascending, counts, limit))

    def patch_item(self, id: Id, **fields: Any) -> Card:
        """Changes some fields of an item of the catalogue. Returns the item.

        Parameters
        ----------
        id
            The item.
        fields
            ``title``, ``tags``, ``available``, ``features`` and ``data``. Those that are not given stay as they are.
            ``data`` is merged: a field that is None is removed. On a server with a transform the raw fields that it
            makes features from can be given too, such as ``price``; it makes the features anew.

        Raises
        ------
        NotFound
            If the item is not in the catalogue.

        Example::

            client.patch_item("tea", available=False, data={"price": 4.5})
        """
        return self._run(self._calls.patch_item(id, fields))

    def remove_item(self, id: Id) -> bool:
        """Removes an item from the catalogue. Returns True if it was there.

        Decisions that showed it can still be answered.
        """
        return self._run(self._calls.remove_item(id))

    def remove_items(self, ids: Iterable[Id]) -> int:
        """Removes items from the catalogue, one by one. Returns the number that were there."""
        return self._run(self._calls.remove_items(ids))

    def user(self, id: Id) -> Card:
        """The state of a user: rewards, estimate, cluster and placement."""
        return self._run(self._calls.user(id))

    def preview(self, user: Id, *, k: int = 5) -> Card:
        """What the user would be recommended now, and the scores. It is no decision: nothing is recorded."""
        return self._run(self._calls.preview(user, k))

    def recent(self, user: Id) -> list[Card]:
        """The last decisions of a user, newest first, with the rewards of their items. These come a moment later."""
        return self._run(self._calls.recent(user))

    def forget(self, user: Id) -> bool:
        """Forgets a user. Returns True if the user was known.

        Decisions made for the user can no longer be answered. `compact` then removes the user from the
        data folder.
        """
        return self._run(self._calls.forget(user))

    def _run(self, call: Call[T]) -> T:
        outcome: Outcome = None
        while True:
            try:
                step = call.send(outcome)
            except StopIteration as stop:
                result: T = stop.value
                return result
            outcome = self._do(step)

    def _do(self, step: Step) -> Outcome:
        if isinstance(step, Wait):
            self._closing.wait(step.seconds)
            return None
        import httpx

        if self._is_closed:
            return self._closed()
        if self._process != os.getpid():
            # After a fork the connections belong to the parent: each would read answers of the other.
            self._begin()
        seconds = self._seconds(step)
        free = self._free
        # Waiting for a free connection must not count as a timeout of the server.
        if not free.acquire(timeout=LONG):
            return self._failure(TimeoutError("no connection is free"), is_sent=False, is_timeout=True)
        is_kept = False
        try:
            if self._is_closed:
                return self._closed()
            request = self._http.build_request(
                step.method,
                self._url + self._path(step),
                content=step.body,
                headers=None if step.body is None else {"Content-Type": step.kind},
                timeout=httpx.Timeout(seconds),
            )
            response = self._http.send(request, stream=step.streams)
            if is_kept := step.streams and response.is_success:
                return Answer(response.status_code, stream=response)
            try:
                body = response.read()
            finally:
                response.close()
        except httpx.RequestError as error:
            return self._failed(error)
        except RuntimeError as error:
            # Another thread has just closed the client, so httpx has not begun to send.
            if not self._is_closed or type(error) is not RuntimeError:
                raise
            return self._closed()
        finally:
            if not is_kept:
                free.release()
        return answer_of(response.status_code, body, response.headers)

    def _download(self, path: str, timeout: float | None) -> Generator[bytes, None, None]:
        import httpx

        response: httpx.Response = self._run(self._calls.download(path, timeout))
        free = self._free
        try:
            begin_download(path, response.headers)
            yield from response.iter_bytes()
        except httpx.RequestError as error:
            raise self._failed(error).error from error
        finally:
            response.close()
            free.release()

    def _failed(self, error: Exception) -> Failure:
        """The failure for an error of httpx."""
        import httpx

        before = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError)
        is_timeout = isinstance(error, httpx.TimeoutException)
        return self._failure(error, is_sent=not isinstance(error, before), is_timeout=is_timeout)
