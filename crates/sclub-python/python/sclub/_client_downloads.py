"""Answers that come in parts: lines, events, and the table of an export. Nothing here does any I/O."""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Generator, Mapping
from typing import Any, NamedTuple, TypeAlias

from ._client_errors import ConnectionFailed, ServiceError

Card: TypeAlias = dict[str, Any]
"""A JSON object of the API."""


class Event(NamedTuple):
    """An event of `Client.stream`: ``"state"``, ``"change"`` or ``"missed"``, and what it is about."""

    event: str
    data: Any


def bad_answer(
    error: Exception, status: int = 200, request_id: str | None = None
) -> ServiceError:
    """The error for an answer that no sclub server gives. The request may have taken effect."""
    said = f"the answer is not one of an sclub server: {error}"
    failed = ServiceError(said, status=status, code="bad_answer", request_id=request_id)
    failed.may_be_done = True
    failed.__cause__ = error
    return failed


class Lines:
    """JSON lines that come in parts."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, part: bytes) -> Generator[Card, None, None]:
        """The lines that are complete."""
        *lines, self._rest = (self._rest + part).split(b"\n")
        for line in lines:
            yield _parsed(line)

    def end(self, url: str) -> None:
        """Raises an error if the last line is not complete."""
        if self._rest:
            said = "the export broke off in the middle of a line"
            raise ConnectionFailed(said, url=url, code="broken", may_be_done=True)


class Events:
    """Server-sent events that come in parts. One that breaks off is left out.

    >>> list(Events().feed(b'event: missed\\ndata: 3\\n\\nevent: state\\ndata: {'))
    [Event(event='missed', data=3)]
    """

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, part: bytes) -> Generator[Event, None, None]:
        """The events that are complete."""
        *lines, self._rest = (self._rest + part).split(b"\n")
        for line in lines:
            name, _, value = line.removesuffix(b"\r").partition(b":")
            value = value.removeprefix(b" ")
            if name == b"event":
                self._name = value.decode(errors="replace")
            elif name == b"data":
                self._data.append(value)
            elif not line.strip():
                if self._data:
                    yield Event(self._name, _parsed(b"\n".join(self._data)))
                self._name, self._data = "", []


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise bad_answer(error) from error


KINDS = {
    "/metrics": "text/plain",
    "/v1/admin/backup": "application/octet-stream",
    "/v1/admin/export": "application/x-ndjson",
    "/v1/stream": "text/event-stream",
}
"""Answers that are not JSON, and their content types."""


def check_kind(path: str, kind: str, request_id: str | None) -> None:
    """Raises an error if an answer has not the content type that it has from an sclub server."""
    if kind.partition(";")[0].strip().lower() != KINDS[path]:
        wrong = TypeError(f"its content type is {kind!r} and not {KINDS[path]!r}")
        raise bad_answer(wrong, request_id=request_id)


def begin_download(path: str, headers: Mapping[str, str]) -> None:
    """Raises an error if a download is not one of an sclub server.

    Warns if an export has no lines of some nodes of a cluster, which are not running, and if a backup lacks the last decisions.
    """
    check_kind(path, headers.get("Content-Type", ""), headers.get("x-request-id"))
    warning = headers.get("x-sclub-warning")
    if warning:
        warnings.warn(warning, RuntimeWarning, stacklevel=4)
    nodes = headers.get("sclub-missing-nodes")
    if nodes:
        warnings.warn(
            f"the export is not complete: {nodes} did not take part, and may have decisions that no other node has; "
            "repeat it when all nodes are running",
            RuntimeWarning,
            stacklevel=4,
        )


def to_frame(lines: list[Card]) -> Any:
    """The lines of an export as a DataFrame, times as times."""
    # By name, so that types are checked alike with and without the stubs of pandas.
    pandas: Any = importlib.import_module("pandas")
    names = "decision user item position propensity features".split()
    if any("context" in line for line in lines):
        names.append("context")
    names += "score cluster reward decided rewarded".split()
    optional = "slot_propensity assumed imported experiment arm draw candidates catalogue".split()
    names += [name for name in optional if any(name in line for line in lines)]
    frame = pandas.DataFrame(lines, columns=names)
    for name in ("propensity", "reward"):
        frame[name] = frame[name].astype("float64")
    frame["position"] = frame["position"].astype("Int64")
    for name in ("assumed", "imported"):
        if name in names:
            frame[name] = frame[name].eq(True)
    for name in ("decided", "rewarded"):
        frame[name] = pandas.to_datetime(frame[name], unit="ms", utc=True)
    return frame
