"""The time of calls from Python, compared with the same work in a Rust loop.

    python crates/sclub-python/bench/speed.py

Needs a release build. Both sides take turns in one process and do the same work to the same bits;
shown are medians and their ratios.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import numpy as np

import sclub
from sclub import _sclub

DIM, CANDIDATES, USERS = 20, 20, 1000

POLICIES: dict[str, Callable[[], sclub.Policy]] = {
    "Sclub": lambda: sclub.Sclub(dim=DIM),
    "Club": lambda: sclub.Club(dim=DIM),
    "LinUcb": lambda: sclub.LinUcb(dim=DIM),
    "SclubSoft": lambda: sclub.SclubSoft(dim=DIM),
}


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Nothing:
    """A policy written in Python that does nothing."""

    def recommend(self, user: int, items: object) -> int:
        return 0

    def learn(self, user: int, item: object, reward: float) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=7)
    asked = parser.parse_args()
    count = asked.events
    rng = np.random.default_rng(1)
    items = rng.normal(size=(count, CANDIDATES, DIM))
    items /= np.linalg.norm(items, axis=2, keepdims=True)
    users = rng.integers(0, USERS, count)
    shown, rewards = items[:, 0].copy(), rng.random(count)
    numbers = users.tolist()
    some = count // 5
    singly = list(zip(users.tolist()[:some], items[:some]))

    print(f"{count} events, {USERS} users, {CANDIDATES} candidates, {DIM} features")
    print(f"{'':10} {'learn_many':>22} {'recommend_many':>22} {'one recommend':>28}")
    print(f"{'':10} {'Rust us':>9} {'Python':>12} {'Rust us':>9} {'Python':>12} {'Rust us':>9} {'beyond us':>18}")
    for name, make in POLICIES.items():
        learned: list[tuple[float, float]] = []
        many: list[tuple[float, float]] = []
        one: list[tuple[float, float]] = []
        for _ in range(asked.repeat):
            policy, twin = make(), make()
            ours = seconds(lambda: policy.learn_many(users, shown, rewards))
            theirs = _sclub._seconds_in_rust(twin, numbers, shown, rewards.tolist())
            learned.append((ours, theirs))
            assert policy.digest() == twin.digest()
        for _ in range(asked.repeat):
            ours = seconds(lambda: policy.recommend_many(users, items))
            many.append((ours, _sclub._seconds_in_rust(policy, numbers, items)))
        for _ in range(asked.repeat):
            nothing = seconds(lambda: [None for _ in singly])
            ours = seconds(lambda: [policy.recommend(user, x) for user, x in singly]) - nothing
            one.append((ours, _sclub._seconds_in_rust(policy, numbers[:some], items[:some])))
        cells = []
        for pairs in (learned, many):
            rust = median(theirs for _, theirs in pairs) / count * 1e6
            cells.append(f"{rust:9.2f} {median(a / b for a, b in pairs):11.2f}x")
        rust = median(theirs for _, theirs in one) / some * 1e6
        beyond = median(a - b for a, b in one) / some * 1e6
        print(f"{name:10} {cells[0]} {cells[1]} {rust:9.2f} {beyond:18.2f}")
    run = sclub.lab.run(policies=[Nothing()], rounds=count, seeds=1, threads=1, progress=False)[0]
    print(f"A policy in Python that does nothing: {run.policy_seconds / count * 1e6:.2f} us a round")


if __name__ == "__main__":
    main()
