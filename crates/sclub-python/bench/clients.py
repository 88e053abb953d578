"""Requests a second of `Client` with threads and of `AsyncClient` with tasks, at 32 requests at once.

    SCLUB_BIN=target/release/sclub python crates/sclub-python/bench/clients.py

Needs a release build of the server, which runs on the same machine. Both clients take turns and send the
same requests; shown are medians, and the smallest and the largest rate. Bare httpx and aiohttp without a
client of sclub are measured too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import aiohttp
import httpx
import numpy as np

import sclub

ITEMS, DIM, USERS, K = 100, 8, 500, 5


def threads(asked: argparse.Namespace, call: Callable[[int], object]) -> float:
    """Calls a second from several threads."""
    with ThreadPoolExecutor(asked.at_once) as pool:
        start = time.perf_counter()
        for _ in pool.map(call, range(asked.requests)):
            pass
        return asked.requests / (time.perf_counter() - start)


async def tasks(asked: argparse.Namespace, call: Callable[[int], Awaitable[object]]) -> float:
    """Calls a second from several tasks."""

    async def work(numbers: Iterator[int]) -> None:
        for number in numbers:
            await call(number)

    start = time.perf_counter()
    numbers = iter(range(asked.requests))
    await asyncio.gather(*(work(numbers) for _ in range(asked.at_once)))
    return asked.requests / (time.perf_counter() - start)


def client_recommends(asked: argparse.Namespace, url: str) -> float:
    with sclub.Client(url) as client:
        return threads(asked, lambda number: client.recommend(number % USERS, k=K))


async def async_client_recommends(asked: argparse.Namespace, url: str) -> float:
    async with sclub.AsyncClient(url) as client:
        return await tasks(asked, lambda number: client.recommend(number % USERS, k=K))


def client_learns(asked: argparse.Namespace, url: str) -> float:
    with sclub.Client(url) as client:
        shown = decisions(client, asked.requests)
        return threads(asked, lambda number: client.feedback(shown[number], number % 2))


async def async_client_learns(asked: argparse.Namespace, url: str) -> float:
    with sclub.Client(url) as client:
        shown = decisions(client, asked.requests)
    async with sclub.AsyncClient(url) as other:
        return await tasks(asked, lambda number: other.feedback(shown[number], number % 2))


def decisions(client: sclub.Client, count: int) -> list[sclub.Recommendation]:
    users = [number % USERS for number in range(count)]
    parts = [users[start : start + 1000] for start in range(0, count, 1000)]
    return [one for part in parts for one in client.recommend_many(part)]


def body_of(number: int) -> bytes:
    return json.dumps({"user": str(number % USERS), "k": K}).encode()


KIND = {"Content-Type": "application/json"}


def bare_httpx(asked: argparse.Namespace, url: str) -> float:
    with httpx.Client() as http:
        return threads(
            asked,
            lambda number: http.post(
                f"{url}/v1/recommend", content=body_of(number), headers=KIND
            ).json(),
        )


async def bare_httpx_async(asked: argparse.Namespace, url: str) -> float:
    async with httpx.AsyncClient() as http:

        async def call(number: int) -> object:
            said = await http.post(f"{url}/v1/recommend", content=body_of(number), headers=KIND)
            return said.json()

        return await tasks(asked, call)


async def bare_aiohttp(asked: argparse.Namespace, url: str) -> float:
    async with aiohttp.ClientSession() as http:

        async def call(number: int) -> object:
            said = await http.post(f"{url}/v1/recommend", data=body_of(number), headers=KIND)
            return json.loads(await said.read())

        return await tasks(asked, call)


MEASURED: dict[str, Callable[[argparse.Namespace, str], float | Awaitable[float]]] = {
    "Client.recommend, threads": client_recommends,
    "AsyncClient.recommend": async_client_recommends,
    "Client.feedback, threads": client_learns,
    "AsyncClient.feedback": async_client_learns,
    "httpx.Client, threads": bare_httpx,
    "httpx.AsyncClient": bare_httpx_async,
    "aiohttp.ClientSession": bare_aiohttp,
}


async def finished(rate: Awaitable[float]) -> float:
    return await rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=3_000)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=5)
    asked = parser.parse_args()
    program = os.environ.get("SCLUB_BIN", "target/release/sclub")
    rates: dict[str, list[float]] = {name: [] for name in MEASURED}
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "serve", "--data", f"{folder}/data", "--addr", "127.0.0.1:0"]
        server = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[-1]
            features = np.random.default_rng(1).normal(size=(ITEMS, DIM))
            with sclub.Client(url) as client:
                client.put_items([(number, row) for number, row in enumerate(features)])
            for _ in range(asked.repeat):
                for name, measure in MEASURED.items():
                    rate = measure(asked, url)
                    if not isinstance(rate, float):
                        rate = asyncio.run(finished(rate))
                    rates[name].append(rate)
        finally:
            server.terminate()
            server.wait()
    for name, found in rates.items():
        print(f"{name:27} {median(found):7,.0f}/s   ({min(found):,.0f} to {max(found):,.0f})")


if __name__ == "__main__":
    main()
