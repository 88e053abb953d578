"""The value of policies, estimated from the log of another one.

A policy learns from some rounds, then logs others while it shows a random item every so often. From
this log, Open Bandit Pipeline estimates the mean reward of other policies, which learned from the first
rounds alone, and of one that learned nothing. The world is made up: the truth is printed beside.

The inverse propensities (IPS, SNIPS) and the doubly robust estimate (DR) should have the truth in
most of their intervals. The direct method (DM) is as good as its model of the reward. This model does
not know what the logging policy learned on the way: its estimate is wrong, with a narrow interval.

Open Bandit Pipeline 0.5.7 asks for Python below 3.11, for versions of 2022, and for torch, which
its estimators do not use. In an environment of its own this is enough (tried on Python 3.10, 3.11
and 3.13), and takes a minute and half a gigabyte:

    python -m venv obp
    obp/bin/pip install --only-binary :all: -r requirements-obp.txt
    obp/bin/pip install --no-deps --ignore-requires-python obp==0.5.7
    obp/bin/pip install --no-deps sclub-*.whl
    obp/bin/python open_bandit_pipeline.py
"""

from __future__ import annotations

import copy
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from unittest.mock import MagicMock

import numpy as np
from numpy.typing import NDArray

import sclub
from sclub.ope import Explorer, action_dist

USERS, CLUSTERS, DIM, ITEMS = 200, 5, 6, 10
EPSILON = 0.3


def open_bandit_pipeline() -> Any:
    """The module `obp.ope`, also where there is no torch.

    `import obp` imports torch for its neural policies. If torch is missing, an empty stand-in replaces it
    during the import.
    """
    if find_spec("torch") is not None or "obp" in sys.modules:
        return import_module("obp.ope")
    nothing = type("Nothing", (), {})
    torch = MagicMock(Tensor=nothing)
    torch.nn.Module = torch.utils.data.Dataset = nothing
    stand_ins = {
        "torch": torch,
        "torch.nn": torch.nn,
        "torch.nn.functional": torch.nn.functional,
        "torch.optim": torch.optim,
    }
    sys.modules.update(stand_ins)
    try:
        return import_module("obp.ope")
    finally:
        for name in stand_ins:
            del sys.modules[name]


class World:
    """Users in clusters, and the probability of a click of each user on each item."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        items = self.random.normal(size=(ITEMS, DIM - 1))
        items /= np.linalg.norm(items, axis=1, keepdims=True)
        tastes = self.random.normal(size=(CLUSTERS, DIM - 1))
        tastes /= np.linalg.norm(tastes, axis=1, keepdims=True)
        self.truth = 0.5 + 0.5 * tastes[np.arange(USERS) % CLUSTERS] @ items.T
        # The last feature is a constant: the overall rate of clicks.
        self.items = np.c_[items, np.ones(ITEMS)]

    def user(self) -> int:
        return int(self.random.integers(USERS))

    def click(self, user: int, item: int) -> float:
        return float(self.random.random() < self.truth[user, item])

    def value(self, users: list[Any], dist: NDArray[np.float64]) -> float:
        """The true mean reward of a policy for these users."""
        return float((self.truth[users] * dist[:, :, 0]).sum(axis=1).mean())


def taught(world: World, policies: dict[str, sclub.Policy], rounds: int) -> None:
    """Lets all of them learn the same random decisions."""
    users = [world.user() for _ in range(rounds)]
    shown = world.random.integers(ITEMS, size=rounds)
    clicks = [world.click(user, item) for user, item in zip(users, shown, strict=True)]
    for policy in policies.values():
        policy.learn_many(users, world.items[shown], clicks)


def run(seed: int = 1, logged_rounds: int = 20_000) -> list[dict[str, Any]]:
    """One row for each policy and estimator: the truth, the estimate and its interval."""
    ope = open_bandit_pipeline()
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures

    world = World(seed)
    policies: dict[str, sclub.Policy] = {
        "sclub-soft": sclub.SclubSoft(dim=DIM),
        "linucb-ind": sclub.LinUcb(dim=DIM),
        "linucb-one": sclub.LinUcb(dim=DIM, shared=True),
    }
    taught(world, policies, rounds=4_000)

    # The log is made by a copy that goes on learning. Those that are judged stay as they are: they
    # have learned nothing from the log that they are judged by.
    explorer = Explorer(
        copy.deepcopy(policies["sclub-soft"]), world.items, EPSILON, seed=seed + 1
    )
    for _ in range(logged_rounds):
        user = world.user()
        choice = explorer.recommend(user)
        explorer.learn(choice, world.click(user, choice.row))

    # A model of the reward sees what was known of a user before the log, times the item's features.
    known = {user: policies["sclub-soft"].estimate(user) for user in set(explorer.users)}
    log = explorer.feedback(context=known)
    model = ope.RegressionModel(
        base_model=make_pipeline(PolynomialFeatures(2, interaction_only=True), Ridge()),
        n_actions=log["n_actions"],
        action_context=log["action_context"],
    )
    rewards = model.fit_predict(
        context=log["context"],
        action=log["action"],
        reward=log["reward"],
        n_folds=2,
        random_state=seed,
    )

    judge = ope.OffPolicyEvaluation(
        bandit_feedback=log,
        ope_estimators=[
            ope.InverseProbabilityWeighting(estimator_name="IPS"),
            ope.SelfNormalizedInverseProbabilityWeighting(estimator_name="SNIPS"),
            ope.DirectMethod(estimator_name="DM"),
            ope.DoublyRobust(estimator_name="DR"),
        ],
    )
    dists = {name: action_dist(one, explorer.users, world.items) for name, one in policies.items()}
    dists["random"] = np.full_like(log["pi_b"], 1.0 / ITEMS)
    rows = []
    for name, dist in dists.items():
        # DM and DR take the same predictions; IPS and SNIPS take none.
        values = judge.estimate_policy_values(dist, estimated_rewards_by_reg_model=rewards)
        intervals = judge.estimate_intervals(
            dist, estimated_rewards_by_reg_model=rewards, n_bootstrap_samples=200, random_state=seed
        )
        for estimator, value in values.items():
            interval = intervals[estimator]
            rows.append(
                {
                    "policy": name,
                    "truth": world.value(explorer.users, dist),
                    "estimator": estimator,
                    "estimate": float(value),
                    "low": float(interval["95.0% CI (lower)"]),
                    "high": float(interval["95.0% CI (upper)"]),
                }
            )
    print(f"logged: {log['n_rounds']} rounds, {log['reward'].mean():.3f} clicks a round")
    return rows


def main() -> None:
    rows = run()
    print(f"{'policy':<12}{'truth':>7}  {'estimator':<10}{'estimate':>8}   95 % interval")
    for row in rows:
        inside = "" if row["low"] <= row["truth"] <= row["high"] else "   truth outside"
        print(
            f"{row['policy']:<12}{row['truth']:>7.3f}  {row['estimator']:<10}"
            f"{row['estimate']:>8.3f}   {row['low']:.3f} to {row['high']:.3f}{inside}"
        )


if __name__ == "__main__":
    main()
