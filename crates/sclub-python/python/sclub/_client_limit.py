"""Timeouts of asyncio that can be ended from outside."""

from __future__ import annotations

import asyncio
import sys
from types import TracebackType


class Limit:
    """Ends what is awaited in it with `asyncio.TimeoutError`, after some seconds or by `end`.

    It is `asyncio.timeout`, which Python 3.10 does not have. `asyncio.wait_for` loses a cancellation that comes when
    its result is there, up to Python 3.11.
    """

    def __init__(self, seconds: float | None, limits: set[Limit]) -> None:
        self._seconds = seconds
        self._limits = limits
        self._timer: asyncio.TimerHandle | None = None
        self._has_ended = False

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        if sys.version_info >= (3, 11):
            self._cancelled_before = task.cancelling()
        if self._seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self.end)
        self._limits.add(self)

    def end(self) -> None:
        """Ends it now."""
        if not self._has_ended:
            self._has_ended = True
            self._task.cancel()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._limits.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if not self._has_ended:
            return
        if sys.version_info >= (3, 11) and self._task.uncancel() > self._cancelled_before:
            # Somebody else cancelled the task too.
            return
        if kind is asyncio.CancelledError:
            raise asyncio.TimeoutError from error
