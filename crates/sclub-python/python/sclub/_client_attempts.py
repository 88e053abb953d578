"""Requests, answers and retries. Nothing here does any I/O.

A call is a generator: it yields a `Request` or a `Wait`, is sent the outcome, and returns the result of
the call. `Client` and `AsyncClient` run it.

Retries. A request without an answer may have taken effect or not, so it is sent again only if it is
idempotent. By the rules of the server's engine:

- A reward counts once for each item shown. A batch is one event of the log: either all of it was
  applied, and then the same batch is not a round again, or nothing was. In a cluster that holds for its part in each partition.
- A batch *without* rewards is a round each time. It is sent again only if it surely had no effect.
- Putting and removing items, forgetting users and setting the number of expected users are idempotent.
  A second compaction would repeat the work and answer that there was nothing to do, and a second start or
  end of an experiment would be an error: they are treated like a batch without rewards.
- Everything else only reads. A recommendation whose answer was lost is a decision without feedback.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from ._client_errors import ConnectionFailed, ServiceError, Unavailable, error_of

T = TypeVar("T")

FIRST_WAIT = 0.1
"""The maximum of seconds before the second attempt; doubled before each further one."""

MAX_WAIT = 5.0
"""The maximum of seconds before any attempt, unless the server gives a time."""

MAX_RETRY_AFTER = 60.0
"""The maximum of Retry-After seconds that are waited for."""

UNDONE = frozenset({"starting", "overloaded", "read_only"})
"""Codes of 503 that mean the request had no effect. A server that is not sure answers 504."""


@dataclass(frozen=True)
class Request:
    """A request to be sent."""

    method: str
    path: str
    repeatable: bool
    """True if the request is idempotent."""
    body: bytes | None = field(default=None, repr=False)
    kind: str = "application/json"
    query: Mapping[str, str] = field(default_factory=dict)
    streams: bool = False
    """True if the body of the answer is left for the client to read."""
    timeout: float | None = None
    """Seconds; None for the timeout of the client."""
    tries_again: bool = True


@dataclass(frozen=True)
class Wait:
    """A pause."""

    seconds: float


@dataclass(frozen=True)
class Answer:
    """An answer of the server."""

    status: int
    body: bytes = b""
    retry_after: str | None = None
    stream: Any = None
    """The answer of the HTTP library, if its body is left to read."""
    warning: str | None = None
    """A warning of the server about the rewards."""
    request_id: str | None = None
    """The id that the server gave the request."""
    location: str | None = None
    """Where a redirect leads to."""
    kind: str = ""
    """The content type."""
    lost: bool = False
    """True if an earlier attempt may have taken effect without an answer."""


@dataclass(frozen=True)
class Failure:
    """No answer."""

    error: ConnectionFailed


Step: TypeAlias = Request | Wait
Outcome: TypeAlias = Answer | Failure | None
Call: TypeAlias = Generator[Step, Outcome, T]


class Attempts:
    """Retries of requests, where they are safe and can help."""

    def __init__(
        self, retries: int, uniform: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._retries = retries
        self._uniform = uniform

    def ask(self, request: Request, failed: list[ServiceError] | None = None) -> Call[Answer]:
        """The answer to a request. Raises the error that the last attempt ended with.

        The errors of all attempts are appended to `failed`.
        """
        lost: ServiceError | None = None
        attempt = 0
        while True:
            outcome = yield request
            error = _error(outcome)
            if error is None:
                assert isinstance(outcome, Answer)
                return replace(outcome, lost=lost is not None)
            if failed is not None:
                failed.append(error)
            is_undone = _is_undone(error)
            pause = self._pause(attempt, error)
            if (
                not request.tries_again
                or attempt >= self._retries
                or not _may_pass(error)
                or not (request.repeatable or is_undone)
                or (error.retry_after or 0.0) > MAX_RETRY_AFTER
            ):
                error.may_be_done = not is_undone or lost is not None
                error.__cause__ = error.__cause__ or lost
                raise error
            if not is_undone:
                lost = error
            yield Wait(pause)
            attempt += 1

    def _pause(self, attempt: int, error: ServiceError) -> float:
        """The seconds before the next attempt, random so that clients that failed together do not retry
        together."""
        most = min(MAX_WAIT, FIRST_WAIT * 2.0 ** min(attempt, 30))
        return (error.retry_after or 0.0) + self._uniform(0.0, most)


def _error(outcome: Outcome) -> ServiceError | None:
    if isinstance(outcome, Failure):
        return outcome.error
    assert isinstance(outcome, Answer)
    if 200 <= outcome.status < 300:
        return None
    error = error_of(outcome.status, outcome.body, outcome.retry_after, outcome.location)
    error.request_id = outcome.request_id
    return error


def answer_of(status: int, body: bytes, headers: Mapping[str, str]) -> Answer:
    """An answer that was read to its end. `headers` ignores the case of names."""
    return Answer(
        status,
        body,
        headers.get("Retry-After"),
        warning=headers.get("x-sclub-warning"),
        request_id=headers.get("x-request-id"),
        location=headers.get("Location"),
        kind=headers.get("Content-Type", ""),
    )


def _may_pass(error: ServiceError) -> bool:
    """True if a retry may succeed."""
    if isinstance(error, ConnectionFailed):
        # A certificate that is not trusted now will not be in a second, and a closed client stays closed.
        return error.code not in ("tls", "closed")
    return isinstance(error, Unavailable)


def _is_undone(error: ServiceError) -> bool:
    """True if the request surely had no effect."""
    if isinstance(error, ConnectionFailed):
        return not error.may_be_done
    status = error.status or 0
    return (status < 500 and status != 408) or (status == 503 and error.code in UNDONE)
