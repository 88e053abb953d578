"""Objects of this package in its lab do what they do elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sclub

WORLD = sclub.lab.Synthetic(users=60, clusters=3, dim=5, items=8)


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        (sclub.SclubSoft(dim=5), "sclub-soft"),
        (sclub.SclubSoft(dim=5, clusters=False), "gaussian"),
        (sclub.Sclub(dim=5, users=60), "sclub"),
        (sclub.LinUcb(dim=5), "linucb-ind"),
        (sclub.LinUcb(dim=5, shared=True), "linucb-one"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_object_does_what_the_policy_of_that_name_does(policy: sclub.Policy, name: str) -> None:
    results = sclub.lab.run(
        WORLD, {"object": policy, "name": name}, rounds=4000, seeds=2, progress=False
    )
    objects, names = results.of("object"), results.of("name")
    assert [run.regret for run in objects] == [run.regret for run in names]
    assert [run.curve for run in objects] == [run.curve for run in names]
    assert [run.adjusted_rand for run in objects] == [run.adjusted_rand for run in names]


def test_a_world_that_was_made_is_a_world() -> None:
    made = WORLD.world(seed=1)
    assert repr(made) == "<LabWorld dim=5 users=60>"
    made.draw(7)
    again = sclub.lab.run(made, ["linucb-ind"], rounds=500, seeds=[1], progress=False)
    itself = sclub.lab.run(WORLD, ["linucb-ind"], rounds=500, seeds=[1], progress=False)
    assert again[0].random_regret == itself[0].random_regret


@pytest.mark.parametrize(
    "text",
    [
        "user,item\n7,30\n8,30\n7,31\n",
        "userId,movieId,rating,timestamp\n7,30,4.0,1\n8,30,3.5,2\n7,31,1.0,3\n",
        "7::30::5::978300760\n8::30::3::978302109\n7::31::3::978301968\n",
    ],
    ids=["user,item", "MovieLens CSV", "ratings.dat"],
)
def test_ratings_are_read_in_every_format(text: str, tmp_path: Path) -> None:
    path = tmp_path / "ratings.dat"
    path.write_text(text)
    taken = sclub.lab.read_ratings(path)
    assert (taken.users, taken.items) == (["7", "8"], ["30", "31"])
    np.testing.assert_array_equal(taken.matrix(), [[1, 1], [1, 0]])
    with pytest.raises(FileNotFoundError):
        sclub.lab.read_ratings(tmp_path / "nothing")
