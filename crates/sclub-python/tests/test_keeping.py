"""Policies that are kept and come back."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pytest
from policies import DIM, KEPT, MAKERS, events, play

import sclub

Make = Callable[[], sclub.Policy]
every_policy = pytest.mark.parametrize("make", KEPT.values(), ids=list(KEPT))


def through_a_file(policy: sclub.Policy, folder: Path) -> sclub.Policy:
    policy.save(folder / "state")
    return sclub.load(folder / "state")


@every_policy
@pytest.mark.parametrize("way", ["pickle", "deepcopy", "copy", "file", "file of the class"])
def test_a_copy_goes_on_to_the_same_bits(make: Make, way: str, tmp_path: Path) -> None:
    policy = make()
    play(policy, events(333, 1))
    if not isinstance(policy, sclub.Club):
        policy.forget(5)
    if way == "pickle":
        again = pickle.loads(pickle.dumps(policy))
    elif way == "deepcopy":
        again = copy.deepcopy(policy)
    elif way == "copy":
        again = copy.copy(policy)
    elif way == "file":
        again = through_a_file(policy, tmp_path)
    else:
        policy.save(str(tmp_path / "state"))
        again = type(policy).load(tmp_path / "state")
    assert type(again) is type(policy)
    assert again.users == policy.users
    assert again.digest() == policy.digest()
    more = events(333, 2, users=40)
    assert play(again, more) == play(policy, more)
    assert again.digest() == policy.digest()
    assert again.users == policy.users
    # They are two: what one learns the other does not.
    again.learn("late", np.ones(DIM), 1.0)
    assert policy.explain("late").count == 0


def test_users_of_a_file_are_plain_and_come_back(tmp_path: Path) -> None:
    policy = sclub.LinUcb(dim=1)
    people = ["ä", "", 7, -(2**90), (1, ("b", None)), None, b"\0", True, 0.1, float("inf"), ()]
    for user in people:
        policy.learn(user, [1.0], 1.0)
    policy.learn(np.int64(99), [1.0], 1.0)
    again = through_a_file(policy, tmp_path)
    assert again.users == [*people, 99]
    assert [type(user) for user in again.users] == [*map(type, people), int]


def test_users_who_are_not_plain_are_for_pickle(tmp_path: Path) -> None:
    policy = sclub.LinUcb(dim=1)
    policy.learn(frozenset({1}), [1.0], 1.0)
    with pytest.raises(TypeError, match=r"user frozenset\(\{1\}\) cannot be saved.*use pickle"):
        policy.save(tmp_path / "state")
    assert not list(tmp_path.iterdir())
    assert pickle.loads(pickle.dumps(policy)).users == [frozenset({1})]


class Mine(sclub.Sclub):
    """A policy with something of its own."""

    note: str


def test_a_subclass_keeps_what_it_has_added(tmp_path: Path) -> None:
    policy = Mine(dim=2)
    policy.note = "mine"
    policy.learn("anna", [1.0, 0.0], 1.0)
    again = pickle.loads(pickle.dumps(policy))
    assert type(again) is Mine
    assert again.note == "mine"
    assert again.digest() == policy.digest()
    policy.save(tmp_path / "state")
    assert type(Mine.load(tmp_path / "state")) is Mine
    assert type(sclub.load(tmp_path / "state")) is sclub.Sclub


def test_a_file_of_another_class_is_refused(tmp_path: Path) -> None:
    sclub.LinUcb(dim=2).save(tmp_path / "state")
    with pytest.raises(TypeError, match="holds a LinUcb, not a Sclub"):
        sclub.Sclub.load(tmp_path / "state")
    with pytest.raises(FileNotFoundError):
        sclub.load(tmp_path / "nothing")


@pytest.mark.parametrize("name", ["Sclub", "Club", "SclubSoft"])
def test_a_damaged_file_is_refused(name: str, tmp_path: Path) -> None:
    policy = MAKERS[name]()
    play(policy, events(100, 3))
    path = tmp_path / "state"
    policy.save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for cut in [*rng.integers(0, len(whole), 60).tolist(), 0, len(whole) - 1]:
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError):
            sclub.load(path)
    differences = 0
    for at in rng.integers(0, len(whole), 300).tolist():
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            loaded = sclub.load(path)
        except (ValueError, TypeError):
            differences += 1
        else:
            # A changed bit in a user's name is another name.
            assert loaded.digest() == policy.digest()
    assert differences > 250


def test_a_file_stays_whole_until_the_next_one_is(tmp_path: Path) -> None:
    policy = sclub.LinUcb(dim=1)
    policy.save(tmp_path / "state")
    policy.learn(object(), [1.0], 1.0)
    with pytest.raises(TypeError):
        policy.save(tmp_path / "state")
    assert sclub.load(tmp_path / "state").rounds == 0
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        sclub.LinUcb(dim=1).save(tmp_path / "folder")


@pytest.mark.skipif(os.name == "nt", reason="signals are sent to the process itself")
def test_ctrl_c_stops_learning_between_two_rounds() -> None:
    policy = sclub.Sclub(dim=30)
    count = 3_000_000
    row = np.random.default_rng(0).normal(size=(1, 30))
    rows = np.broadcast_to(row, (count, 30))
    users = np.arange(count) % 100_000
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        policy.learn_many(users, rows, np.ones(count))
        pytest.fail("it had learned all before it was stopped")
    assert 0 < policy.rounds < count
    assert len(policy.users) == min(policy.rounds, 100_000)
    # It goes on as if the rest had never been asked for.
    policy.learn("anna", row[0], 1.0)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there is no such timer")
def test_a_signal_may_save_a_policy_that_is_learning(tmp_path: Path) -> None:
    policy = sclub.SclubSoft(dim=20)
    count = 200_000
    rows = np.random.default_rng(0).normal(size=(count, 20))
    saved = []

    def save(*_: object) -> None:
        policy.save(tmp_path / "state")
        saved.append(policy.rounds)

    before = signal.signal(signal.SIGALRM, save)
    signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
    try:
        policy.learn_many(np.arange(count) % 500, rows, np.ones(count))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert policy.rounds == count
    assert any(0 < rounds < count for rounds in saved)
    again = sclub.load(tmp_path / "state")
    rest = slice(again.rounds, None)
    again.learn_many((np.arange(count) % 500)[rest], rows[rest], np.ones(count)[rest])
    assert again.digest() == policy.digest()


def test_an_error_of_a_file_names_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as nothing:
        sclub.load(tmp_path / "nothing")
    assert nothing.value.filename == str(tmp_path / "nothing")
    policy = sclub.LinUcb(dim=1)
    policy.save(tmp_path / "state")
    damaged = bytearray((tmp_path / "state").read_bytes())
    damaged[-20] ^= 1
    (tmp_path / "state").write_bytes(damaged)
    with pytest.raises(ValueError, match="state: this is not a saved policy"):
        sclub.load(tmp_path / "state")
    policy.learn("\ud800", [1.0], 1.0)
    with pytest.raises(TypeError, match="cannot be saved; .* valid strings"):
        policy.save(tmp_path / "state")


def test_importing_takes_only_numpy_along() -> None:
    script = (
        "import sys, sclub\n"
        "heavy = {'pandas', 'matplotlib', 'sklearn', 'httpx', 'aiohttp', 'tqdm'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("name", sclub.policy_classes)
def test_constants_can_be_read_and_make_the_same_policy(name: str) -> None:
    kind: Any = sclub.policy_classes[name]
    signature = inspect.signature(kind).parameters
    for preset in get_args(eval(signature["preset"].annotation, {"Literal": Literal})):
        if preset == "theory":
            continue
        policy = kind(3, preset=preset, users=5)
        assert set(policy.constants) == set(signature) - {"dim", "users", "seed", "assumptions"}
        again = kind(3, users=5, **policy.constants)
        assert again.constants == policy.constants and again.digest() == policy.digest()


@every_policy
def test_a_copy_has_the_constants_too(make: Make, tmp_path: Path) -> None:
    policy = make()
    assert policy.constants
    for again in (pickle.loads(pickle.dumps(policy)), copy.deepcopy(policy), through_a_file(policy, tmp_path)):
        assert again.constants == policy.constants and repr(again) == repr(policy)


def preset_of(name: str) -> str:
    preset: str = inspect.signature(sclub.policy_classes[name]).parameters["preset"].default
    return preset


def test_constants_are_those_of_the_configuration_of_a_run() -> None:
    names = ["sclub", "sclub-soft", "linucb-ind", "locb"]
    world = sclub.lab.Synthetic(users=5, clusters=2, dim=3, items=4)
    config = sclub.lab.run(world, names, rounds=2, seeds=1, progress=False).config
    for name in names:
        assert sclub.policy_classes[name](3).constants == {**config["constants"][name], "preset": preset_of(name)}


def test_constants_are_for_reading_only_and_repr_has_those_that_are_not_the_defaults() -> None:
    policy = sclub.LinUcb(dim=2, shared=True, beta=0.25)
    assert policy.constants is not None
    wanted = {"beta": 0.25, "beta_scale": None, "index": "norm", "preset": "tuned", "shared": True}
    assert policy.constants == wanted
    policy.constants["beta"] = 1.0
    assert policy.constants["beta"] == 0.25
    with pytest.raises(AttributeError):
        policy.constants = {}  # type: ignore[misc]
    assert repr(policy) == "<LinUcb dim=2 rounds=0 users=0 clusters=1 beta=0.25 shared=True>"
    assert repr(sclub.LinUcb(dim=2)) == "<LinUcb dim=2 rounds=0 users=0 clusters=0>"
    assert repr(sclub.Sclub(dim=2, preset="released", beta=0.5)).endswith(" preset='released' beta=0.5>")
    assert repr(sclub.SclubSoft(dim=2, clusters=False)).endswith(" clusters=False>")


def test_a_file_of_an_earlier_version_has_no_constants(tmp_path: Path) -> None:
    policy = sclub.LinUcb(dim=2, beta=0.25)
    policy.learn("anna", [1.0, 0.0], 1.0)
    function, (kind, state, users, numbers), *_ = policy.__reduce__()  # type: ignore[misc]
    length = int.from_bytes(state[1:9], "little")
    before = b"\0" + state[17 + length :]
    again = function(kind, before, users, numbers)
    assert again.constants is None and again.digest() == policy.digest()
    assert repr(again) == repr(sclub.LinUcb(dim=2)).replace("rounds=0 users=0", "rounds=1 users=1").replace("clusters=0", "clusters=1")
    twice = through_a_file(again, tmp_path)
    assert twice.constants is None and twice.digest() == policy.digest()
