"""One of each policy, and events to feed them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import sclub

DIM = 6

MAKERS: dict[str, Callable[[], sclub.Policy]] = {
    # Every policy of the registry with its defaults, and some with others.
    **{
        name: (lambda kind=kind: kind(dim=DIM)) for name, kind in sclub.policy_classes.items()
    },
    "Sclub": lambda: sclub.Sclub(dim=DIM),
    "Sclub declared": lambda: sclub.Sclub(dim=DIM, users=20, preset="released"),
    "SclubSoft": lambda: sclub.SclubSoft(dim=DIM, first=64),
    "Gaussian": lambda: sclub.SclubSoft(dim=DIM, clusters=False, half_life=50),
    "Club": lambda: sclub.Club(dim=DIM, seed=3),
    "Club complete": lambda: sclub.Club(dim=DIM, users=range(20), graph="complete"),
    "LinUcb": lambda: sclub.LinUcb(dim=DIM),
    "LinUcb shared": lambda: sclub.LinUcb(dim=DIM, shared=True, beta=0.4),
    "LinUcb groups": lambda: sclub.LinUcb(dim=DIM, groups={user: user % 3 for user in range(20)}),
}

# Policies of other papers: they cannot be inspected or saved, and cannot forget.
FOR_COMPARISON = frozenset(
    """ts:club ts:sclub ts:dynucb hier-ts mix-ts uniclub unisclub rclumb rsclumb dyclu bass locb dynucb cab cofiba
    club-cascade fclub dccb""".split()
)

# The others.
KEPT = {name: make for name, make in MAKERS.items() if name not in FOR_COMPARISON}


class Events(NamedTuple):
    """Users, their candidates, and what each candidate would bring."""

    users: list[int]
    items: NDArray[np.float64]
    rewards: NDArray[np.float64]


def events(count: int, seed: int, *, users: int = 25, candidates: int = 7) -> Events:
    """Users of three tastes."""
    rng = np.random.default_rng(seed)
    tastes = rng.normal(size=(3, DIM))
    who = rng.integers(0, users, count)
    items = rng.normal(size=(count, candidates, DIM))
    items /= np.linalg.norm(items, axis=2, keepdims=True)
    means = np.einsum("nld,nd->nl", items, tastes[who % 3])
    return Events(who.tolist(), items, means + 0.1 * rng.normal(size=(count, 1)))


def play(policy: sclub.Policy, what: Events) -> list[int]:
    """Recommends and learns one by one; what was chosen."""
    chosen = []
    for user, items, rewards in zip(what.users, what.items, what.rewards):
        choice = policy.recommend(user, items)
        policy.learn(user, items[choice], rewards[choice])
        chosen.append(choice)
    return chosen
