"""Requests and what comes of them, and which may be tried again. Nothing here does any I/O.

A call is a generator: it yields a `Request` or a `Wait`, is sent what came of it, and returns what
the caller gets. Who runs it, `Client` or `AsyncClient`, needs to know no more than that.

What may be tried again. A call that nobody answered may have been done or not, so it is repeated
only if doing it twice is doing it once. That is so, by what the server's engine does:

- A reward is taken once for each item shown. A batch is one event of the log: either all of it
  was done, and then the same batch again finds nothing new and is no round, or nothing was.
- A batch *without* rewards is a round each time. It is repeated only where it was surely not done.
- Items are put and removed by id, users are forgotten by id, and the number of expected users is
  set: again is the same. A compaction again is the work again, and its answer would say that there
  was nothing to do: it is treated like a batch without rewards.
- Everything else only looks. A recommendation whose answer was lost is a decision that nobody got.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from ._client_errors import ConnectionFailed, ServiceError, Unavailable, error_of

T = TypeVar("T")

FIRST_WAIT = 0.1
"""Most seconds before the second attempt; twice as many before each further one."""

MOST_WAIT = 5.0
"""Most seconds before any attempt, unless the server says when."""

MOST_RETRY_AFTER = 60.0
"""A server that wants more seconds than this is not waited for."""

UNDONE = frozenset({"starting", "overloaded", "read_only"})
"""Codes of 503 after which nothing was written and nothing will be. Where a server cannot tell, it
answers 504."""


@dataclass(frozen=True)
class Request:
    """A request to be sent."""

    method: str
    path: str
    repeatable: bool
    """Whether doing it twice is doing it once."""
    body: bytes | None = field(default=None, repr=False)
    kind: str = "application/json"
    query: Mapping[str, str] = field(default_factory=dict)
    streams: bool = False
    """Whether the body of the answer is left to be read by who runs the call."""
    timeout: float | None = None
    """Seconds, where they are not those of the client."""
    tries_again: bool = True


@dataclass(frozen=True)
class Wait:
    """Some time to let pass."""

    seconds: float


@dataclass(frozen=True)
class Answer:
    """What the server said."""

    status: int
    body: bytes = b""
    retry_after: str | None = None
    stream: Any = None
    """The answer as httpx has it, where its body is to be read."""
    lost: bool = False
    """Whether an earlier attempt may have been done without an answer."""


@dataclass(frozen=True)
class Failure:
    """No answer, and why."""

    error: ConnectionFailed


Step: TypeAlias = Request | Wait
Outcome: TypeAlias = Answer | Failure | None
Call: TypeAlias = Generator[Step, Outcome, T]


class Attempts:
    """Tries requests again where that can help and cannot harm."""

    def __init__(
        self, retries: int, uniform: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._retries = retries
        self._uniform = uniform

    def ask(self, request: Request) -> Call[Answer]:
        """The answer to a request. Raises the error that the last attempt ended with."""
        lost: ServiceError | None = None
        attempt = 0
        while True:
            outcome = yield request
            error = _error(outcome)
            if error is None:
                assert isinstance(outcome, Answer)
                return replace(outcome, lost=lost is not None)
            is_undone = _is_undone(error)
            pause = self._pause(attempt, error)
            if (
                not request.tries_again
                or attempt >= self._retries
                or not _may_pass(error)
                or not (request.repeatable or is_undone)
                or pause > MOST_RETRY_AFTER
            ):
                error.may_be_done = not is_undone or lost is not None
                error.__cause__ = error.__cause__ or lost
                raise error
            if not is_undone:
                lost = error
            yield Wait(pause)
            attempt += 1

    def _pause(self, attempt: int, error: ServiceError) -> float:
        """Seconds before the next attempt: at random, so that many who failed together do not come
        back together."""
        most = min(MOST_WAIT, FIRST_WAIT * 2.0 ** min(attempt, 30))
        asked = error.retry_after if isinstance(error, Unavailable) else None
        return (asked or 0.0) + self._uniform(0.0, most)


def _error(outcome: Outcome) -> ServiceError | None:
    if isinstance(outcome, Failure):
        return outcome.error
    assert isinstance(outcome, Answer)
    if 200 <= outcome.status < 300:
        return None
    return error_of(outcome.status, outcome.body, outcome.retry_after)


def _may_pass(error: ServiceError) -> bool:
    """Whether the same request may get another answer later."""
    if isinstance(error, ConnectionFailed):
        # A certificate that is not trusted now will not be in a second.
        return error.code != "tls"
    return isinstance(error, Unavailable)


def _is_undone(error: ServiceError) -> bool:
    """Whether what was asked for was surely not done."""
    if isinstance(error, ConnectionFailed):
        return not error.may_be_done
    status = error.status or 0
    return (status < 500 and status != 408) or (status == 503 and error.code in UNDONE)
