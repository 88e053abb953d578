"""The lab in Python is the lab of the command line, to the last digit."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sclub
from sclub import lab

SMALL: dict[str, Any] = {"users": 30, "clusters": 3, "dim": 5, "items": 6}


def binary() -> str:
    built = Path(__file__).resolve().parents[3] / "target" / "debug" / "sclub"
    path = os.environ.get("SCLUB_BIN", str(built))
    if not Path(path).exists():
        pytest.skip(f"there is no {path} to compare with; cargo build, or name it with SCLUB_BIN")
    return path


def command_line(folder: Path, *flags: object) -> dict[str, Any]:
    """The output of `sclub run`."""
    out = folder / "run.json"
    command = [binary(), "run", "--quiet", "--no-figure", "--json", str(out), *map(str, flags)]
    subprocess.run(command, check=True, capture_output=True)
    document: dict[str, Any] = json.loads(out.read_text())
    return document


def without_time(document: dict[str, Any]) -> dict[str, Any]:
    for run in document["runs"]:
        del run["policy_seconds"]
    return document


def assert_the_same(results: lab.Results, folder: Path, *flags: object) -> None:
    results.to_json(folder / "python.json")
    ours = json.loads((folder / "python.json").read_text())
    theirs = command_line(folder, *flags)
    assert without_time(ours) == without_time(theirs)


def flags_of(**values: object) -> list[object]:
    return [
        part for name, value in values.items() for part in (f"--{name.replace('_', '-')}", value)
    ]


@pytest.fixture(scope="module")
def ratings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three kinds of users, each with films that it takes more often."""
    draws = random.Random(5)
    lines = ["user,item"]
    for user in range(120):
        for film in range(60):
            if draws.random() < (0.5 if film % 3 == user % 3 else 0.15):
                lines.append(f"u{user},f{film}")
    path = tmp_path_factory.mktemp("data") / "films.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


WORLDS: list[dict[str, object]] = [
    {},
    {"frequencies": "clusters", "sizes": "unequal", "spread": 0.3},
    {"frequencies": "users", "rewards": "gaussian", "noise": 0.3, "change_at": 150},
    {"users_a_round": 2.5, "reward_scale": 0.5},
    {"newcomers_every": 10.0, "rewards": "gaussian"},
    {"misspecified": 0.1, "items_fixed": 60},
    {"corrupted": 0.2, "corrupted_rounds": 300},
    {"items_fixed": 60, "item_clusters": 2},
    {"cascade": 2, "items_fixed": 60},
    {"overlap": 0.5},
    {"smoothed": 0.2},
    {"servers": 3},
]


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: "-".join(world) or "plain")
def test_every_policy_does_as_on_the_command_line(tmp_path: Path, world: dict[str, Any]) -> None:
    results = lab.run(lab.Synthetic(**SMALL, **world), rounds=700, seeds=2, threads=2)
    # One plays in catalogues only, and policies of other papers play when they are asked for.
    everyone = set(lab.policy_names) - {"best-item"}
    assert {"sclub", "club", "linucb-ind", "oracle"} <= {run.policy for run in results} <= everyone
    assert_the_same(results, tmp_path, *flags_of(rounds=700, seeds=2, threads=2, **SMALL, **world))


@pytest.mark.parametrize(
    "constants",
    [
        {"preset": "released"},
        {"preset": "theory", "beta": 0.4},
        {"preset": "released", "graph": "random", "index": "norm", "deviations": ["stale-marks"]},
        {
            "alpha_theta": 1.5,
            "alpha_p": 3.0,
            "beta_scale": 0.2,
            "index": "squared",
            "half_life": 50.0,
        },
    ],
    ids=str,
)
def test_constants_mean_what_they_mean_on_the_command_line(
    tmp_path: Path, constants: dict[str, Any]
) -> None:
    results = lab.run(
        lab.Synthetic(**SMALL), rounds=500, seeds=1, first_seed=9, threads=1, **constants
    )
    flags = {
        name: ",".join(value) if isinstance(value, list) else value
        for name, value in constants.items()
    }
    same = flags_of(rounds=500, seeds=1, first_seed=9, threads=1, **SMALL, **flags)
    assert_the_same(results, tmp_path, *same)


@pytest.mark.parametrize("others", ["uniform", "popular"])
def test_ratings_are_played_as_on_the_command_line(
    tmp_path: Path, ratings: Path, others: str
) -> None:
    world = lab.Ratings(ratings, dim=5, items=8, others=others, feature_scale=2.0)
    results = lab.run(world, ["sclub", "sclub-soft", "random"], seeds=2, threads=1)
    assert results[0].by_age and results[0].rounds < 2000
    flags = flags_of(
        world="ratings",
        ratings=ratings,
        dim=5,
        items=8,
        others=others,
        feature_scale=2.0,
        policies="sclub,sclub-soft,random",
        seeds=2,
        threads=1,
    )
    assert_the_same(results, tmp_path, *flags)


def test_the_placebo_is_the_command_lines(tmp_path: Path, ratings: Path) -> None:
    world = lab.Ratings(ratings, dim=5, items=8, placebo=True)
    results = lab.run(world, seeds=1, threads=1, preset="released")
    flags = flags_of(
        world="ratings", ratings=ratings, dim=5, items=8, seeds=1, threads=1, preset="released"
    )
    assert_the_same(results, tmp_path, *flags, "--placebo")


def test_tastes_of_a_file_are_the_command_lines(tmp_path: Path, ratings: Path) -> None:
    with pytest.warns(UserWarning, match="there are 60 items, not 1000"):
        world = lab.Vectors(ratings, users=50, dim=4, items=6, frequencies="users")
    results = lab.run(world, rounds=600, seeds=2, threads=2)
    assert "oracle" not in results.policies
    flags = flags_of(
        world="vectors",
        ratings=ratings,
        users=50,
        dim=4,
        items=6,
        frequencies="users",
        rounds=600,
        seeds=2,
        threads=2,
    )
    assert_the_same(results, tmp_path, *flags)


def test_the_defaults_are_the_command_lines(tmp_path: Path) -> None:
    results = lab.run(policies=["random"], rounds=100, threads=1)
    assert_the_same(results, tmp_path, *flags_of(policies="random", rounds=100, threads=1))


def numbers(results: lab.Results) -> list[object]:
    return [
        (run.policy, run.seed, run.regret, run.reward, run.clusters, run.adjusted_rand, run.curve)
        for run in results
    ]


def test_any_number_of_threads_gives_the_same() -> None:
    world = lab.Synthetic(**SMALL)
    who = {"own": "sclub", "guest": sclub.Sclub(dim=5, users=30), "copy": "linucb-ind"}
    one = lab.run(world, who, rounds=800, seeds=3, threads=1)
    assert numbers(one) == numbers(lab.run(world, who, rounds=800, seeds=3, threads=2))


@pytest.mark.parametrize("several", [None, 3.0])
def test_a_wrapper_around_a_policy_does_what_the_policy_does(several: float | None) -> None:
    class Wrapper:
        def __init__(self, about: lab.About) -> None:
            self.inner = sclub.LinUcb(dim=about.dim)
            self.seen = 0

        def recommend(self, user: int, items: np.ndarray) -> int:
            assert items.shape == (6, 5) and items.dtype == np.float64
            assert items.flags.c_contiguous and not items.flags.writeable
            return int(self.inner.recommend(user, items))

        def learn(self, user: int, item: np.ndarray, reward: float) -> None:
            assert item.shape == (5,) and not item.flags.writeable
            self.inner.learn(user, item, reward)

    class ByRound(Wrapper):
        def learn_round(self, users: list[int], items: np.ndarray, rewards: np.ndarray) -> None:
            assert items.shape == (len(users), 5) and rewards.shape == (len(users),)
            self.inner.learn_round(users, items, rewards)

    world = lab.Synthetic(**SMALL, users_a_round=several)
    guest = Wrapper if several is None else ByRound
    results = lab.run(world, {"own": "linucb-ind", "guest": guest}, rounds=900, seeds=2)
    own, guests = results.of("own"), results.of("guest")
    assert [run.regret for run in own] == [run.regret for run in guests]
    assert [run.curve for run in own] == [run.curve for run in guests]
    assert [run.clusters for run in guests] == [None, None]
    assert [run.adjusted_rand for run in guests] == [None, None]


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("sclub", sclub.Sclub(dim=5, users=30)),
        ("sclub-soft", sclub.SclubSoft(dim=5)),
        ("linucb-ind", sclub.LinUcb(dim=5)),
        ("linucb-one", sclub.LinUcb(dim=5, shared=True)),
    ],
)
def test_an_object_of_the_package_does_as_the_built_in_one(name: str, policy: sclub.Policy) -> None:
    before = policy.digest()
    results = lab.run(lab.Synthetic(**SMALL), {"own": name, "guest": policy}, rounds=2000, seeds=2)
    for own, guest in zip(results.of("own"), results.of("guest")):
        assert (own.regret, own.curve, own.clusters) == (guest.regret, guest.curve, guest.clusters)
        assert own.adjusted_rand == guest.adjusted_rand
    assert policy.digest() == before, "it is copied for each seed"


@pytest.mark.parametrize("world", [{}, {"rewards": "gaussian", "noise": 0.2}], ids=str)
def test_a_world_that_replays_another_gives_the_same(world: dict[str, Any]) -> None:
    setting = lab.Synthetic(**SMALL, **world)

    def replay(seed: int) -> lab.World:
        return setting.world(seed)

    class Recorded:
        """The same in plain Python."""

        dim, users = 5, 30

        def __init__(self, seed: int) -> None:
            world = setting.world(seed)
            self.clusters = np.asarray(world.clusters).tolist()
            self.noise = world.noise
            self.length = 600
            self.rounds = [world.draw(round) for round in range(600)]

        def draw(self, round: int) -> Any:
            user, items, means = self.rounds[round]
            return np.int64(user), np.asfortranarray(items), list(means)

    who = ["sclub", "sclub-soft", "club", "linucb-ind", "oracle", "random"]
    own = lab.run(setting, who, rounds=600, seeds=2, threads=1)
    assert numbers(own) == numbers(lab.run(replay, who, rounds=600, seeds=2, threads=2))
    recorded = lab.run(Recorded, who, rounds=10_000, seeds=2)
    assert numbers(own) == numbers(recorded)
    assert recorded[0].rounds == 600


def test_a_catalogue_is_that_of_the_command_line():
    shop = sclub.lab.Catalogue(items=40, users=30, slots=2, delay=5, link="linear", visits="zipf")
    names = ["linucb-one", "informed", "best-item", "random"]
    results = sclub.lab.run(shop, names, rounds=2500, seeds=1, progress=False)
    assert [run.policy for run in results] == names
    for run in results:
        assert run.served == 5000
        assert [(stage["from"], stage["to"]) for stage in run.stages] == [(0, 2000), (2000, 2500)]
        assert sum(stage["clicks"] for stage in run.stages) == run.reward
        assert sum(shown for shown, _ in run.by_age) == 5000
    assert [run.distinct_items for run in results][2:] == [2, 40]
    user, items, means = shop.world(seed=1).draw(3)
    assert items.shape == (40, 16) and means.shape == (40,)
    assert results.config["world"] == "catalogue"
    with pytest.raises(ValueError, match="slots is 41; it must be between 1 and the number of items, 40"):
        sclub.lab.Catalogue(items=40, slots=41)
    with pytest.raises(ValueError, match="plays only in a catalogue"):
        sclub.lab.run("synthetic", ["best-item"], rounds=10, progress=False)
