"""The classes that are written when the package is built are those of the registry in it."""

from __future__ import annotations

import inspect
import re

import mypy.api
import numpy as np
import pytest

import sclub
from sclub import _sclub

NAMES = list(sclub.policy_classes)


def constants(kind: type[sclub.Policy]) -> list[str]:
    """The constants in the signature of a class."""
    shared = {"dim", "users", "preset", "seed", "assumptions"}
    return [name for name in inspect.signature(kind).parameters if name not in shared]


def test_there_is_a_class_for_each_policy_of_the_registry() -> None:
    compiled = [name for name, _, learns in _sclub.lab_policies() if learns]
    assert NAMES == compiled
    for name, kind in sclub.policy_classes.items():
        assert getattr(sclub, kind.__name__) is kind
        assert kind.__name__ in sclub.__all__
        assert f"`{kind.__name__}`" in (sclub.__doc__ or "")
        assert name in sclub.lab.policy_names


@pytest.mark.parametrize("name", NAMES)
def test_a_class_has_the_constants_and_presets_of_its_policy(name: str) -> None:
    kind = sclub.policy_classes[name]
    with pytest.raises(TypeError, match="no_such_constant") as refused:
        sclub.Policy.__new__(kind, 2, no_such_constant=1)
    known = str(refused.value).split("use one of ")[1].split(", ")
    assert constants(kind) == known
    with pytest.raises(ValueError, match="preset") as unknown:
        sclub.Policy.__new__(kind, 2, preset="none of them")
    presets = str(unknown.value).split("use one of ")[1].split(", ")
    signature = inspect.signature(kind).parameters["preset"]
    assert signature.default == presets[0]
    assert re.findall(r"[\"']([^\"']+)[\"']", str(signature.annotation)) == presets


def test_every_policy_is_typed() -> None:
    """mypy takes what fits the constants of a policy, and nothing else."""
    kinds = [kind.__name__ for kind in sclub.policy_classes.values()]
    lines = ["import sclub", f"from sclub import {', '.join(kinds)}"]
    wrong = []
    for kind in sclub.policy_classes.values():
        name = kind.__name__
        nothing = ", ".join(f"{constant}=None" for constant in constants(kind))
        lines.append(f"_{name}: {name} = sclub.{name}(3, users=['anna'], {nothing})")
        for argument in ["no_such_constant=1", *(f"{one}=b''" for one in constants(kind))]:
            lines.append(f"sclub.{name}(3, {argument})")
            wrong.append(len(lines))
    said, _, _ = mypy.api.run(["--strict", "-c", "\n".join(lines)])
    assert [int(line) for line in re.findall(r"<string>:(\d+): error", said)] == wrong, said


def test_decisions_have_draws_of_their_own():
    items = np.eye(3)
    for policy in [sclub.Lints(dim=3), sclub.SclubSoft(dim=3)]:
        shown = {policy.recommend("anna", items, draw=n) for n in range(50)}
        assert len(shown) > 1
        for draw in range(10):
            chosen = policy.recommend("anna", items, draw=draw)
            assert chosen == policy.recommend("anna", items, draw=draw)
            assert chosen == np.argmax(policy.scores("anna", items, draw=draw).score)
            assert chosen == policy.recommend_list("anna", items, 2, draw=draw)[0]
    policy = sclub.LinUcb(dim=3)
    assert {policy.recommend("anna", items, draw=n) for n in range(9)} == {0}
