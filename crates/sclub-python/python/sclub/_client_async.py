"""The client for asyncio."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, TypeVar

from ._client_attempts import Answer, Call, Failure, Outcome, Step, Wait
from ._client_base import Base, Verify, whole_file
from ._client_calls import (
    LONG,
    Asked,
    Card,
    Given,
    Lines,
    Recommendation,
    to_frame,
    warn_of_missing_nodes,
)
from ._client_values import Context, Id, Items, Reward

T = TypeVar("T")


class AsyncClient(Base):
    """As `Client`, with methods to be awaited. Belongs to one event loop.

    Example::

        async with sclub.AsyncClient("http://127.0.0.1:8080") as client:
            shown = await asyncio.gather(*(client.recommend(user) for user in users))
            async for line in client.export():
                print(line["reward"])
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
        self._http = httpx.AsyncClient(**self._settings(key))

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """As `Client.close`."""
        await self._http.aclose()

    async def recommend(
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
        """As `Client.recommend`."""
        return await self._run(self._calls.recommend(
                user, k, candidates, items, exclude, context, filter, strict, seen, ties
            ))

    async def recommend_many(self, requests: Iterable[Asked]) -> list[Recommendation]:
        """As `Client.recommend_many`."""
        return await self._run(self._calls.recommend_many(requests))

    async def feedback(
        self,
        decision: str | Recommendation,
        reward: Reward | None = None,
        *,
        item: Id | None = None,
        others: float | None = None,
    ) -> bool:
        """As `Client.feedback`."""
        return await self._run(self._calls.feedback(decision, reward, item, others))

    async def feedback_many(self, feedback: Iterable[Given]) -> list[bool]:
        """As `Client.feedback_many`."""
        return await self._run(self._calls.feedback_many(feedback))

    async def put_items(self, items: Items, *, id: str | None = None) -> int:
        """As `Client.put_items`."""
        return await self._run(self._calls.put_items(items, id))

    async def item(self, id: Id) -> list[float]:
        """As `Client.item`."""
        return await self._run(self._calls.item(id))

    async def item_card(self, id: Id) -> Card:
        """As `Client.item_card`."""
        return await self._run(self._calls.item_card(id))

    async def items(self, *, limit: int | None = None) -> dict[str, list[float]]:
        """As `Client.items`."""
        return await self._run(self._calls.items(limit))

    async def patch_item(self, id: Id, **fields: Any) -> Card:
        """As `Client.patch_item`."""
        return await self._run(self._calls.patch_item(id, fields))

    async def remove_item(self, id: Id) -> bool:
        """As `Client.remove_item`."""
        return await self._run(self._calls.remove_item(id))

    async def remove_items(self, ids: Iterable[Id]) -> int:
        """As `Client.remove_items`."""
        return await self._run(self._calls.remove_items(ids))

    async def user(self, id: Id) -> Card:
        """As `Client.user`."""
        return await self._run(self._calls.user(id))

    async def forget(self, user: Id) -> bool:
        """As `Client.forget`."""
        return await self._run(self._calls.forget(user))

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

    async def export(self, *, timeout: float = LONG) -> AsyncGenerator[Card, None]:
        """As `Client.export`."""
        lines = Lines()
        async with contextlib.aclosing(self._download("export", timeout)) as parts:
            async for part in parts:
                for line in lines.feed(part):
                    yield line

    async def export_frame(self, *, timeout: float = LONG) -> Any:
        """As `Client.export_frame`."""
        return to_frame([line async for line in self.export(timeout=timeout)])

    async def backup(self, path: str | os.PathLike[str], *, timeout: float = LONG) -> int:
        """As `Client.backup`. Writing to the file is not awaited."""
        size = 0
        with whole_file(path) as file:
            async with contextlib.aclosing(self._download("backup", timeout)) as parts:
                async for part in parts:
                    size += file.write(part)
        return size

    async def expect(self, users: int) -> int:
        """As `Client.expect`."""
        return await self._run(self._calls.expect(users))

    async def compact(self, *, timeout: float = LONG) -> Card:
        """As `Client.compact`."""
        return await self._run(self._calls.compact(timeout))

    async def snapshot(self, *, timeout: float = LONG) -> int:
        """As `Client.snapshot`."""
        return await self._run(self._calls.snapshot(timeout))

    async def ready(self) -> bool:
        """As `Client.ready`."""
        return await self._run(self._calls.ready())

    async def wait_until_ready(self, timeout: float = 30.0) -> None:
        """As `Client.wait_until_ready`."""
        await self._run(self._calls.wait_until_ready(timeout))

    async def _run(self, call: Call[T]) -> T:
        outcome: Outcome = None
        while True:
            try:
                step = call.send(outcome)
            except StopIteration as stop:
                result: T = stop.value
                return result
            outcome = await self._do(step)

    async def _do(self, step: Step) -> Outcome:
        if isinstance(step, Wait):
            import asyncio

            await asyncio.sleep(step.seconds)
            return None
        import httpx

        try:
            request = self._request(self._http, step)
            response = await self._http.send(request, stream=step.streams)
            if step.streams and response.is_success:
                return Answer(response.status_code, stream=response)
            try:
                body = await response.aread()
            finally:
                await response.aclose()
        except httpx.RequestError as error:
            return Failure(self._failure(error))
        headers = response.headers
        return Answer(
            response.status_code,
            body,
            headers.get("Retry-After"),
            warning=headers.get("x-sclub-warning"),
        )

    async def _download(self, what: str, timeout: float) -> AsyncGenerator[bytes, None]:
        import httpx

        response: httpx.Response = await self._run(self._calls.download(what, timeout))
        warn_of_missing_nodes(response.headers)
        try:
            async for part in response.aiter_bytes():
                yield part
        except httpx.RequestError as error:
            raise self._failure(error) from error
        finally:
            await response.aclose()
