"""Rounds a second beside MABWiser's and contextualbandits' LinUCB, in one run.

    pip install mabwiser==2.7.4 contextualbandits==0.3.30     # the second is compiled here: minutes
    python bench/rivals.py                                    # --rounds 1000 for a quick look

A round is one user: one of L arms is chosen, and its reward is learned. In batches, so
many users are served on the same history, then learned at once.

The models differ. Theirs has a ridge regression for every arm, over features of the user: L
matrices of d x d, each looked at with one vector. Ours has one for every user (`LinUcb`) or every
cluster of users (`Sclub`), over features of the arms: one matrix, looked at with L vectors.
(`SclubSoft` has several clusters for a user, and fits them anew from time to time.)
Choosing costs L d^2 multiplications either way, and learning updates one matrix of d x d. So the
arithmetic is the same, and what is compared is how fast it is done, calls from Python included.
Their users' features are the true tastes, the best possible; our policies get only the user's name.

The last line of each table is their model computed by sclub: an arm is what `LinUcb` calls a user,
and scores the contexts, one arm after another. It is not meant to be used so, but it is the same sum:
the first check is that it gives MABWiser's numbers. The second check is that all packages learn: their
final reward, as a share of that of the best arms. That is no comparison, for their inputs differ. `Sclub` is slow to find clusters where all
users are shown the same few arms: it assumes that candidates vary, as in the paper's worlds.

All run on one thread. Whatever is passed to a rival is made beforehand in the form that it likes
best: contiguous arrays, arms as integers. contextualbandits runs in float32 without intercept and
with both of its methods, of which the faster one counts. All take turns; the best run counts.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

# Before NumPy is imported: matrices of 20 x 20 are slower on many threads, theirs too.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

import sclub  # noqa: E402

ALPHA = 0.5
USERS = 1_000
CLUSTERS = 10


class World:
    """Tastes of users, features of arms, and the order in which users come."""

    def __init__(self, dim: int, arms: int, rounds: int, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.dim, self.arms, self.rounds = dim, arms, rounds
        tastes = _unit(random.normal(size=(CLUSTERS, dim)))
        self.tastes = np.ascontiguousarray(tastes[np.arange(USERS) % CLUSTERS])
        self.items = _unit(random.normal(size=(arms, dim)))
        self.mean = self.tastes @ self.items.T
        self.noise = 0.1 * random.normal(size=rounds)
        self.who: list[int] = random.integers(USERS, size=rounds).tolist()


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths: NDArray[np.float64] = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / lengths


#: Chooses arms for some users, and learns their rewards.
Choose = Callable[[list[int]], Any]
Learn = Callable[[list[int], Any, Any], None]
#: Both for one user, and both for several.
Player = tuple[Choose, Learn, Choose, Learn]


def ours(world: World, policy: sclub.Policy) -> Player:
    items, table = sclub.Items(world.items), world.items

    def choose_one(users: list[int]) -> Any:
        return (policy.recommend(users[0], items),)

    def learn_one(users: list[int], arms: Any, rewards: Any) -> None:
        policy.learn(users[0], table[arms[0]], rewards[0])

    def choose(users: list[int]) -> Any:
        return policy.recommend_many(users, items)

    def learn(users: list[int], arms: Any, rewards: Any) -> None:
        policy.learn_many(users, table[arms], rewards)

    return choose_one, learn_one, choose, learn


def mabwiser(world: World) -> Player:
    from mabwiser.mab import MAB, LearningPolicy

    model = MAB(list(range(world.arms)), LearningPolicy.LinUCB(alpha=ALPHA, l2_lambda=1.0))
    # It wants a first fit before it predicts: one round with no reward and no features.
    model.fit([0], [0.0], np.zeros((1, world.dim)))
    tastes = world.tastes

    def choose_one(users: list[int]) -> Any:
        return (model.predict(tastes[users]),)

    def learn_one(users: list[int], arms: Any, rewards: Any) -> None:
        model.partial_fit(np.asarray(arms), np.asarray(rewards), tastes[users])

    def choose(users: list[int]) -> Any:
        return np.asarray(model.predict(tastes[users]))

    return choose_one, learn_one, choose, learn_one


def contextualbandits(world: World, method: str) -> Player:
    from contextualbandits.online import LinUCB

    model = LinUCB(
        nchoices=world.arms, alpha=ALPHA, lambda_=1.0, fit_intercept=False, use_float=True,
        method=method, ucb_from_empty=True, random_state=1, njobs=1,
    )  # fmt: skip
    tastes = world.tastes

    def choose(users: list[int]) -> Any:
        return model.predict(tastes[users])

    def learn(users: list[int], arms: Any, rewards: Any) -> None:
        model.partial_fit(tastes[users], np.asarray(arms), np.asarray(rewards))

    # Before anything is learned it does not predict.
    model.fit(np.zeros((1, world.dim)), np.array([0]), np.array([0.0]))
    return choose, learn, choose, learn


def exchanged(world: World) -> Player:
    """The rivals' model computed by sclub: a regression for every arm."""
    policy = sclub.LinUcb(dim=world.dim, beta=ALPHA)
    tastes, arms_ = world.tastes, range(world.arms)

    def choose(users: list[int]) -> Any:
        context = tastes[users]
        scores = [policy.scores(arm, context).score for arm in arms_]
        return np.argmax(scores, axis=0)

    def learn(users: list[int], arms: Any, rewards: Any) -> None:
        policy.learn_many(arms, tastes[users], rewards)

    return choose, learn, choose, learn


def play(world: World, made: Player, batch: int) -> tuple[float, float]:
    """Rounds a second, and what the last tenth of them earned."""
    choose, learn = made[:2] if batch == 1 else made[2:]
    mean, noise, who = world.mean, world.noise, world.who
    got = np.empty(world.rounds)
    best = mean.max(axis=1)[who]
    spent = 0.0
    for start in range(0, world.rounds, batch):
        users = who[start : start + batch]
        begun = time.perf_counter()
        arms = choose(users)
        spent += time.perf_counter() - begun
        # Rewards are the world's work, and not counted.
        rows = np.asarray(arms)
        real = mean[users, rows]
        got[start : start + len(users)] = real
        rewards = real + noise[start : start + len(users)]
        begun = time.perf_counter()
        learn(users, arms, rewards)
        spent += time.perf_counter() - begun
    last = slice(world.rounds * 9 // 10, None)
    return world.rounds / spent, float(got[last].sum() / best[last].sum())


def same_numbers() -> None:
    """Their model and ours with the roles exchanged score alike."""
    from mabwiser.mab import MAB, LearningPolicy

    world = World(dim=5, arms=4, rounds=200)
    random = np.random.default_rng(1)
    arms, contexts = random.integers(4, size=200).tolist(), world.tastes[world.who]
    rewards = world.mean[world.who, arms] + world.noise
    theirs = MAB(list(range(4)), LearningPolicy.LinUCB(alpha=ALPHA, l2_lambda=1.0))
    theirs.fit(arms, rewards, contexts)
    policy = sclub.LinUcb(dim=5, beta=ALPHA)
    policy.learn_many(arms, contexts, rewards)
    expected = [theirs.predict_expectations(contexts[:1])[arm] for arm in range(4)]
    found = [policy.scores(arm, contexts[:1]).score[0] for arm in range(4)]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def players() -> dict[str, list[Callable[[World], Player]]]:
    """The installed packages, each in all ways of which the fastest counts."""
    found: dict[str, list[Callable[[World], Player]]] = {
        "sclub.LinUcb": [lambda world: ours(world, sclub.LinUcb(dim=world.dim, beta=ALPHA))],
        "sclub.Sclub": [lambda world: ours(world, sclub.Sclub(dim=world.dim))],
        "sclub.SclubSoft": [lambda world: ours(world, sclub.SclubSoft(dim=world.dim))],
        "MABWiser LinUCB": [mabwiser],
        "contextualbandits LinUCB": [
            lambda world: contextualbandits(world, "sm"),
            lambda world: contextualbandits(world, "chol"),
        ],
        "sclub.LinUcb, arm by arm": [exchanged],
    }
    for name in list(found):
        module = name.split()[0].lower()
        if not name.startswith("sclub") and find_spec(module) is None:
            print(f"{module} is not installed: left out")
            del found[name]
    return found


def all_learn(packages: dict[str, list[Callable[[World], Player]]]) -> None:
    """Prints the final reward of each package."""
    world = World(dim=10, arms=10, rounds=100_000)
    chance = float(world.mean.mean() / world.mean.max(axis=1).mean())
    print(f"\nEarned at the end of {world.rounds} rounds, L = 10, d = 10 (at random {chance:.0%}):")
    for name, ways in packages.items():
        print(f"{name:<26}{play(world, ways[0](world), 100)[1]:>6.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    help_ = "one by one; in batches five times as many"
    parser.add_argument("--rounds", type=int, default=5_000, help=help_)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()

    packages = players()
    if "MABWiser LinUCB" in packages:
        same_numbers()
        print("The same model gives the same numbers as MABWiser's.")
    all_learn(packages)
    for dim, arms in [(20, 20), (10, 10)]:
        for batch in (1, 100, 1_000):
            world = World(dim, arms, options.rounds * (1 if batch == 1 else 5))
            speeds = dict.fromkeys(packages, 0.0)
            for _ in range(options.repeat):
                for name, ways in packages.items():
                    for make in ways:
                        speeds[name] = max(speeds[name], play(world, make(world), batch)[0])
            kind = "one by one" if batch == 1 else f"batches of {batch}"
            print(f"\nL = {arms}, d = {dim}, {USERS} users, {kind}")
            print(f"{'':<26}{'rounds/s':>10}{'LinUcb is':>12}")
            for name, speed in speeds.items():
                times = speeds["sclub.LinUcb"] / speed
                print(f"{name:<26}{speed:>10,.0f}{times:>10,.1f} x as fast")


if __name__ == "__main__":
    main()
