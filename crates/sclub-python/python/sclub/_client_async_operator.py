"""The methods of `AsyncClient` for operators."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any, Literal, TypeVar

from ._client_attempts import Call
from ._client_base import Base, whole_file
from ._client_downloads import Card, Event, Events, Lines, to_frame
from ._client_operator_calls import LONG

T = TypeVar("T")


class AsyncOperator(Base):
    """As `Operator`, with methods to be awaited."""

    async def _run(self, call: Call[T]) -> T:
        raise NotImplementedError

    def _download(self, path: str, timeout: float | None) -> AsyncGenerator[bytes, None]:
        raise NotImplementedError

    async def state(self, *, hash: bool = False) -> Card:
        """As `Client.state`."""
        return await self._run(self._calls.state(hash))

    async def clusters(self, *, limit: int | None = 100) -> list[Card]:
        """As `Client.clusters`."""
        return await self._run(self._calls.clusters(limit))

    async def cluster(self, id: int, *, items: int = 10, members: int = 20) -> Card:
        """As `Client.cluster`."""
        return await self._run(self._calls.cluster(id, items, members))

    async def history(self, *, limit: int | None = 100) -> list[Card]:
        """As `Client.history`."""
        return await self._run(self._calls.history(limit))

    async def timeline(self, range: Literal["10m", "24h", "60d"] = "10m") -> Card:
        """As `Client.timeline`."""
        return await self._run(self._calls.timeline(range))

    async def stream(self, *, timeout: float | None = None) -> AsyncGenerator[Event, None]:
        """As `Client.stream`."""
        events = Events()
        async with contextlib.aclosing(self._download("/v1/stream", timeout)) as parts:
            async for part in parts:
                for event in events.feed(part):
                    yield event

    async def metrics(self) -> str:
        """As `Client.metrics`."""
        return await self._run(self._calls.metrics())

    async def nodes(self, *, hash: bool = False) -> Card:
        """As `Client.nodes`."""
        return await self._run(self._calls.nodes(hash))

    async def experiments(self) -> Card:
        """As `Client.experiments`."""
        return await self._run(self._calls.experiments())

    async def start_experiment(
        self,
        name: str,
        arms: Iterable[Mapping[str, Any]],
        *,
        shadows: Iterable[Mapping[str, Any]] = (),
    ) -> Card:
        """As `Client.start_experiment`."""
        return await self._run(self._calls.start_experiment(name, arms, shadows))

    async def end_experiment(self, name: str, winner: str) -> Card:
        """As `Client.end_experiment`."""
        return await self._run(self._calls.end_experiment(name, winner))

    async def spaces(self) -> list[Card]:
        """As `Client.spaces`."""
        return await self._run(self._calls.spaces())

    async def describe_space(self, name: str) -> Card:
        """As `Client.describe_space`."""
        return await self._run(self._calls.describe_space(name))

    async def make_space(self, name: str, settings: Mapping[str, Any] | None = None) -> Card:
        """As `Client.make_space`."""
        return await self._run(self._calls.make_space(name, settings or {}))

    async def delete_space(self, name: str) -> None:
        """As `Client.delete_space`."""
        await self._run(self._calls.delete_space(name))

    async def export(self, *, timeout: float = LONG) -> AsyncGenerator[Card, None]:
        """As `Client.export`."""
        lines = Lines()
        async with contextlib.aclosing(self._download("/v1/admin/export", timeout)) as parts:
            async for part in parts:
                for line in lines.feed(part):
                    yield line
        lines.end(self.url)

    async def export_frame(self, *, timeout: float = LONG) -> Any:
        """As `Client.export_frame`."""
        return to_frame([line async for line in self.export(timeout=timeout)])

    async def backup(self, path: str | os.PathLike[str], *, timeout: float = LONG) -> int:
        """As `Client.backup`. Writing to the file is not awaited."""
        size = 0
        with whole_file(path) as file:
            async with contextlib.aclosing(self._download("/v1/admin/backup", timeout)) as parts:
                async for part in parts:
                    size += file.write(part)
        return size

    async def expect(self, users: int) -> int:
        """As `Client.expect`."""
        return await self._run(self._calls.expect(users))

    async def compact(self, *, timeout: float = LONG) -> Card:
        """As `Client.compact`."""
        return await self._run(self._calls.compact(timeout))

    async def snapshot(self, *, timeout: float = LONG) -> int | dict[str, int]:
        """As `Client.snapshot`."""
        return await self._run(self._calls.snapshot(timeout))

    async def ready(self) -> bool:
        """As `Client.ready`."""
        return await self._run(self._calls.ready())

    async def wait_until_ready(self, timeout: float = 30.0) -> None:
        """As `Client.wait_until_ready`."""
        await self._run(self._calls.wait_until_ready(timeout))
