"""The client for asyncio, on aiohttp.

At 32 requests at once, aiohttp is an order of magnitude faster than httpx: ``bench/clients.py``.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import unquote, urlsplit

from ._client_attempts import Answer, Call, Failure, Outcome, Step, Wait, answer_of
from ._client_async_operator import AsyncOperator
from ._client_base import CONNECTIONS, Verify, headers_of, proxy_of
from ._client_calls import Asked, Given, Recommendation
from ._client_downloads import Card, begin_download
from ._client_limit import Limit
from ._client_values import Context, Id, Items, Reward

if TYPE_CHECKING:
    import ssl

    import aiohttp

T = TypeVar("T")

UNBUFFERED_BODY = 1 << 16
"""Larger bodies are not written at once, so writing them needs a timeout."""


class AsyncClient(AsyncOperator):
    """As `Client`, with methods to be awaited. Belongs to one event loop at a time.

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
        import aiohttp
        import yarl

        super().__init__(url, timeout, retries, verify, space)
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: set[aiohttp.ClientResponse] = set()
        limits: set[Limit] = set()
        headers = headers_of(key)
        proxy, password = _parts_of(proxy_of(self._url))
        if urlsplit(self._url).scheme == "http":
            # The proxy reads the request itself. With https it reads a CONNECT before it.
            headers.update(password or {})

        # Only these functions and aiohttp have the key and the password of the proxy, and show neither.
        def connect() -> aiohttp.ClientSession:
            # Headers of a session would go to the proxy too.
            session = aiohttp.ClientSession(connector=_connector(self._trust, limits))
            # `Attempts` decides what is sent again, and must know of it.
            session._retry_connection = False
            return session

        def send(method: str, url: yarl.URL, kind: str | None, **how: Any) -> Awaitable[aiohttp.ClientResponse]:
            assert self._session is not None
            sent = headers if kind is None else {**headers, "Content-Type": kind}
            return self._session.request(
                method, url, headers=sent, proxy=proxy, proxy_headers=password, **how
            )

        self._connect, self._send, self._limits = connect, send, limits
        # Its host is ASCII.
        self._encoded_url = str(yarl.URL(self._url)).rstrip("/")

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
        """As `Client.close`. Calls of other tasks end at once, with `ConnectionFailed`."""
        self._is_closed = True
        if self._session is not None and self._loop is asyncio.get_running_loop():
            import aiohttp

            for response in self._open:
                # Its reader would wait for ever.
                response.content.set_exception(aiohttp.ClientConnectionError("the client is closed"))
            for limit in list(self._limits):
                limit.end()
            # Calls that wait for a connection wake each other.
            self._free.release()
            connector = self._session.connector
            for connection in [] if connector is None else list(connector._acquired):
                # Else it would wait until an upload is sent, perhaps for ever.
                if connection.transport is not None:
                    connection.transport.abort()
            await self._session.close()

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

    async def put_items(self, items: Items, *, id: str | None = None, raw: bool = False) -> int:
        """As `Client.put_items`."""
        return await self._run(self._calls.put_items(items, id, raw))

    async def item(self, id: Id) -> list[float]:
        """As `Client.item`."""
        return await self._run(self._calls.item(id))

    async def item_card(self, id: Id) -> Card:
        """As `Client.item_card`."""
        return await self._run(self._calls.item_card(id))

    async def items(self, *, limit: int | None = None) -> dict[str, list[float]]:
        """As `Client.items`."""
        return await self._run(self._calls.items(limit))

    async def item_cards(
        self,
        *,
        search: str | None = None,
        sort: Literal["shown", "rewards", "reward_rate"] | None = None,
        ascending: bool = False,
        counts: bool = False,
        limit: int | None = None,
    ) -> list[Card]:
        """As `Client.item_cards`."""
        return await self._run(self._calls.item_cards(search, sort, ascending, counts, limit))

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

    async def preview(self, user: Id, *, k: int = 5) -> Card:
        """As `Client.preview`."""
        return await self._run(self._calls.preview(user, k))

    async def recent(self, user: Id) -> list[Card]:
        """As `Client.recent`."""
        return await self._run(self._calls.recent(user))

    async def forget(self, user: Id) -> bool:
        """As `Client.forget`."""
        return await self._run(self._calls.forget(user))

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
            with contextlib.suppress(asyncio.TimeoutError):
                async with Limit(None, self._limits):
                    await asyncio.sleep(step.seconds)
            return None
        if self._is_closed:
            return self._closed()
        import aiohttp
        import yarl

        seconds = self._seconds(step)
        free = self._on_loop()
        # Waiting for a free connection must not count as a timeout of the server.
        await free.acquire()
        is_kept = False
        try:
            if self._is_closed:
                return self._closed()
            response = await self._send(
                step.method,
                yarl.URL(self._encoded_url + self._path(step), encoded=True),
                None if step.body is None else step.kind,
                data=_body_of(step.body, seconds),
                timeout=aiohttp.ClientTimeout(sock_connect=seconds, sock_read=seconds),
                allow_redirects=False,
            )
            self._open.add(response)
            if is_kept := step.streams and 200 <= response.status < 300:
                return Answer(response.status, stream=response)
            try:
                body = await response.read()
            finally:
                self._open.discard(response)
        except (aiohttp.ClientError, asyncio.TimeoutError) as error:
            return self._failed(error)
        finally:
            if not is_kept:
                free.release()
        return answer_of(response.status, body, response.headers)

    async def _download(self, path: str, timeout: float | None) -> AsyncGenerator[bytes, None]:
        import aiohttp

        response: aiohttp.ClientResponse = await self._run(self._calls.download(path, timeout))
        free, failure = self._free, None
        try:
            begin_download(path, response.headers)
            async for part in response.content.iter_any():
                yield part
        except (aiohttp.ClientError, asyncio.TimeoutError) as error:
            failure = self._failed(error)
        finally:
            self._open.discard(response)
            response.close()
            free.release()
        if failure is not None:
            raise failure.error

    def _on_loop(self) -> asyncio.Semaphore:
        """The free connections. Makes a session for an event loop that is new."""
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            if self._loop is not None and self._loop is not loop and not self._loop.is_closed():
                raise RuntimeError(
                    "this AsyncClient is used in another event loop; make one for each loop"
                )
            # It can only be made while the event loop runs. Connections end with their loop.
            self._session, self._loop = self._connect(), loop
            self._free = asyncio.Semaphore(CONNECTIONS)
        return self._free

    def _failed(self, error: Exception) -> Failure:
        """The failure for an error of aiohttp."""
        import aiohttp

        before = (
            aiohttp.ClientConnectorError,
            aiohttp.ConnectionTimeoutError,
            aiohttp.ClientHttpProxyError,
            aiohttp.InvalidURL,
        )
        # A timeout of writing is the cause of the error.
        is_timeout = any(
            isinstance(one, asyncio.TimeoutError) for one in (error, error.__cause__)
        )
        is_sent = not isinstance(error, before)
        failure = self._failure(error, is_sent=is_sent, is_timeout=is_timeout)
        if isinstance(error, aiohttp.ClientResponseError):
            # It shows the headers of the request, and so the key.
            failure.error.__cause__ = None
        return failure


def _connector(trust: ssl.SSLContext, limits: set[Limit]) -> aiohttp.TCPConnector:
    """A connector without a limit: the client waits for free connections itself, so that it can stop waiting."""
    import aiohttp

    class Connector(aiohttp.TCPConnector):
        async def _create_connection(
            self, req: Any, traces: Any, timeout: aiohttp.ClientTimeout
        ) -> Any:
            # The timeout of aiohttp itself does not cover the answer of a proxy to CONNECT.
            async with Limit(timeout.sock_connect, limits):
                return await super()._create_connection(req, traces, timeout)

    return Connector(limit=0, ssl=trust)


def _body_of(body: bytes | None, seconds: float | None) -> Any:
    """A body for aiohttp, which itself has no timeout for writing."""
    if body is None or len(body) <= UNBUFFERED_BODY:
        return body
    import aiohttp.abc

    class Upload(aiohttp.BytesPayload):
        async def write_with_length(
            self, writer: aiohttp.abc.AbstractStreamWriter, content_length: int | None
        ) -> None:
            async with Limit(seconds, set()):
                await super().write_with_length(writer, content_length)

    return Upload(body)


def _parts_of(proxy: str | None) -> tuple[str | None, dict[str, str] | None]:
    """The address of a proxy, and the header with its password."""
    if proxy is None:
        return None, None
    named = urlsplit(proxy)
    address = f"{named.scheme}://{named.netloc.rpartition('@')[2]}"
    if named.username is None:
        return address, None
    pair = f"{unquote(named.username)}:{unquote(named.password or '')}".encode()
    return address, {"Proxy-Authorization": f"Basic {base64.b64encode(pair).decode()}"}
