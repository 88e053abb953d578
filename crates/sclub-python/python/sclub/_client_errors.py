"""Errors of the clients, by what to do about them.

Wrong arguments that a client finds itself, before it sends anything, are a plain ValueError or TypeError.

::

    ServiceError
    ├── Invalid             400, 413, 415, 422   also a ValueError
    ├── Unauthorized        401
    ├── Forbidden           403
    ├── NotFound            404                  also a LookupError
    │   └── NoCandidates    404 no_candidates
    ├── Conflict            409
    ├── Gone                410
    ├── WrongHost           421
    ├── InternalError       500
    ├── Unsupported         501
    ├── Unavailable         408, 502, 503, 504
    │   └── RateLimited     429
    └── ConnectionFailed    no answer
        └── TimedOut        no answer in time    also a TimeoutError
"""

from __future__ import annotations

import json
from typing import Any


class ServiceError(RuntimeError):
    """A call to a server failed. The subclasses say what to do about it.

    This class itself is for all other answers. ``code`` is ``"bad_answer"`` if something else than sclub answered,
    ``"redirect"`` for a redirect, which is not followed, and ``"changing"`` if a listing of items was given up because
    items were removed all the time.

    Attributes
    ----------
    message
        A sentence.
    status
        The HTTP status; None where there was no answer.
    code
        A stable code, such as ``"unknown_item"``.
    field
        The wrong argument, if the error is about one; in a batch with its position, as
        ``"feedback[3].reward"``.
    request_id
        The id of the request, by which the operator finds it in the server's log; None where there was
        no answer.
    retry_after
        The number of seconds to wait before another attempt, if the server gave one.
    may_be_done
        True if the call may have taken effect all the same, or a part of it: an answer was lost, the server
        failed while it worked, or a part was done before the rest was refused. False is certain.
    """

    may_be_done: bool = False
    retry_after: float | None = None

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str = "",
        field: str | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.field = field
        self.request_id = request_id

    def __str__(self) -> str:
        said = [f"in {self.field}"] if self.field else []
        if self.status is not None:
            said.append(f"{self.status} {self.code}".rstrip())
        return f"{self.message} ({', '.join(said)})" if said else self.message


class NotFound(ServiceError, LookupError):
    """There is no such decision, item, user, cluster or space (404); ``code`` says which."""


class NoCandidates(NotFound):
    """The request leaves no item to choose from (404); the message says why.

    ``field`` is the most frequent reason, such as ``"filter"`` or ``"exclude"``.
    """


class Gone(ServiceError):
    """The decision can no longer be answered (410).

    ``code`` is ``"expired"`` where its lifetime is over and ``"forgotten"`` where its user was
    forgotten.
    """


class Invalid(ServiceError, ValueError):
    """The server refuses the request as invalid (400, 413, 415, 422); ``field`` names the argument."""


class Unauthorized(ServiceError):
    """The key is missing or unknown (401)."""


class Forbidden(ServiceError):
    """The key may not do this (403)."""


class Conflict(ServiceError):
    """The request conflicts with the state of the server (409).

    ``code`` is ``"begun"`` where ``expect`` comes after the first round, ``"other_copy"`` where the decision was made by
    another copy of the server's data folder, ``"answered"`` where another call gives the item its reward at the same
    moment, ``"experiment_runs"`` where another experiment is under way, and ``"exists"`` where there is a space of the
    name, with other settings.
    """


class WrongHost(ServiceError):
    """The server does not answer to the host name of the address (421).

    Use its IP address, or start it with ``--host NAME``.
    """


class InternalError(ServiceError):
    """The server failed (500). Its log has the details."""


class Unsupported(ServiceError):
    """The server cannot do this (501), for example because it is a node of a cluster."""


class Unavailable(ServiceError):
    """The server cannot serve the request now; try again later (408, 429, 502, 503, 504)."""


class RateLimited(Unavailable):
    """Too many requests with this key (429); ``retry_after`` says when to try again."""


class ConnectionFailed(ServiceError):
    """No connection, or no complete answer.

    Attributes
    ----------
    url
        The address of the server.
    code
        ``"unreachable"``, ``"tls"`` if there is no trust, ``"timeout"``, ``"broken"``, or ``"closed"`` if the client was closed.
    """

    def __init__(
        self, message: str, *, url: str = "", code: str = "", may_be_done: bool = False
    ) -> None:
        super().__init__(message, code=code)
        self.url = url
        self.may_be_done = may_be_done


class TimedOut(ConnectionFailed, TimeoutError):
    """No connection or no answer within the timeout."""


_BY_STATUS: dict[int, type[ServiceError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    408: Unavailable,
    409: Conflict,
    410: Gone,
    413: Invalid,
    415: Invalid,
    421: WrongHost,
    422: Invalid,
    429: RateLimited,
    500: InternalError,
    501: Unsupported,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}
_BY_CODE: dict[str, type[ServiceError]] = {"no_candidates": NoCandidates}


def error_of(
    status: int, body: bytes, retry_after: str | None, location: str | None = None
) -> ServiceError:
    """The error for an answer that is not a success.

    >>> error_of(404, b'{"error": {"code": "unknown_user", "message": "who?"}}', None)
    NotFound('who?')
    """
    said = _detail(body)
    # A proxy may write anything.
    detail = {name: text for name, text in said.items() if isinstance(text, str) and text}
    code = detail.get("code", "")
    unsaid = f"the server answered with HTTP status {status} and no reason"
    if 300 <= status < 400:
        code = code or "redirect"
        unsaid = (
            f"the server answered with a redirect{f' to {location}' if location else ''}, which is not followed; "
            "give the address that it leads to as url"
        )
    error = _BY_CODE.get(code, _BY_STATUS.get(status, ServiceError))(
        detail.get("message", unsaid), status=status, code=code, field=detail.get("field")
    )
    error.retry_after = seconds_of(retry_after)
    return error


def _detail(body: bytes) -> dict[str, Any]:
    """The error in the body of an answer; empty if a proxy wrote it."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(said, dict):
        return {}
    detail = said.get("error")
    if isinstance(detail, dict):
        return detail
    # `/readyz` has a reason instead.
    return {"message": said.get("reason"), "code": "starting" if "ready" in said else None}


def seconds_of(retry_after: str | None) -> float | None:
    """The seconds of the header Retry-After, which is a number or a date.

    >>> seconds_of("3"), seconds_of("soon"), seconds_of("Thu, 01 Jan 1970 00:00:00 GMT")
    (3.0, None, 0.0)
    """
    if retry_after is None:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    import email.utils
    import time

    try:
        at = email.utils.parsedate_to_datetime(retry_after).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
    return max(0.0, at - time.time())
