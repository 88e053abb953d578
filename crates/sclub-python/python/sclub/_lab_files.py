"""Results from files, and sums of results."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from ._lab_results import Run

#: Parts of a configuration that are not about the world.
NOT_WORLD = {
    "constants",
    "first_seed",
    "overrides",
    "policies",
    "preset",
    "seeds",
    "threads",
    "version",
}


def read(path: str | os.PathLike[str]) -> tuple[list[Run], dict[str, Any]]:
    """The runs and the configuration of a file of ``sclub run --json``."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a JSON file: {error}") from None
    if not (
        isinstance(document, dict)
        and isinstance(document.get("runs"), list)
        and isinstance(document.get("config"), dict)
    ):
        raise ValueError(
            f"{path} has no results of runs; a file of `sclub run --json` or `Results.to_json` is expected"
        )
    if document.get("complete") is False:
        warnings.warn(f"{path} is of a run that was stopped before its end", stacklevel=3)
    runs = [_run(values, f"{path}, run {at}") for at, values in enumerate(document["runs"], 1)]
    return runs, document["config"]


def _run(values: Any, place: str) -> Run:
    if not isinstance(values, dict):
        raise ValueError(f"{place}: an object is expected, not {type(values).__name__}")
    values = dict(values)
    try:
        for name in ("curve", "by_age"):
            values[name] = [(count, number) for count, number in values.get(name, [])]
    except (TypeError, ValueError):
        raise ValueError(f"{place}: {name} is not a list of pairs") from None
    if isinstance(values.get("messages"), list):
        values["messages"] = tuple(values["messages"])
    # Files have no curves at equal distances.
    values["even_curve"] = values["curve"]
    known = {}
    for item in fields(Run):
        required = item.default is MISSING and item.default_factory is MISSING
        if item.name in values:
            known[item.name] = values[item.name]
        elif required:
            raise ValueError(f"{place}: there is no {item.name}")
    return Run(**known)


def total(
    one: tuple[Sequence[Run], Mapping[str, Any]], two: tuple[Sequence[Run], Mapping[str, Any]]
) -> tuple[list[Run], dict[str, Any]]:
    """The runs of both, by seed and policy, with one configuration."""
    (runs, config), (more, other) = one, two
    for name in [*config, *(name for name in other if name not in config)]:
        if name not in NOT_WORLD and config.get(name) != other.get(name):
            raise ValueError(
                f"these results are not of the same worlds: {name} is {config.get(name)!r} in one and "
                f"{other.get(name)!r} in the other"
            )
    if config.get("version") != other.get("version"):
        warnings.warn(
            f"these results are of versions {config.get('version')} and {other.get('version')}",
            stacklevel=4,
        )
    _same_constants(config, other)
    _same_worlds([*runs, *more])

    merged = {(run.policy, run.seed): run for run in runs}
    for run in more:
        before = merged.setdefault((run.policy, run.seed), run)
        if (before.preset, before.regret, before.reward, before.curve) != (
            run.preset,
            run.regret,
            run.reward,
            run.curve,
        ):
            raise ValueError(
                f"policy '{run.policy}' has other results for seed {run.seed} in both; give one of them another "
                "name, with a mapping of policies"
            )
    policies = list(dict.fromkeys(run.policy for run in [*runs, *more]))
    seeds = sorted({run.seed for run in merged.values()})
    ordered = [
        merged[policy, seed] for seed in seeds for policy in policies if (policy, seed) in merged
    ]
    summed = {
        **config,
        "policies": policies,
        "seeds": len(seeds),
        "first_seed": seeds[0] if seeds else None,
    }
    for name in ("constants", "overrides"):
        summed[name] = {**other.get(name, {}), **config.get(name, {})}
    for name in ("preset", "version"):
        if config.get(name) != other.get(name):
            summed[name] = None
    return ordered, summed


def _same_constants(config: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    ours, theirs = config.get("constants", {}), other.get("constants", {})
    for policy in config.get("policies", []):
        if policy not in other.get("policies", []):
            continue
        if (policy in ours) != (policy in theirs):
            # Files of earlier versions do not have the constants of all policies.
            if config.get("version") != other.get("version"):
                continue
            raise ValueError(
                f"the constants of policy '{policy}' are known in one of them only, so they may be two policies; give "
                "one of them another name, with a mapping of policies"
            )
        for name in [*ours.get(policy, {}), *theirs.get(policy, {})]:
            one, two = ours[policy].get(name), theirs[policy].get(name)
            if one != two and name == "state":
                raise ValueError(
                    f"policy '{policy}' had learned before one of the runs, or was not made from its constants alone; "
                    "give one of them another name, with a mapping of policies"
                )
            if one != two:
                raise ValueError(
                    f"policy '{policy}' has other constants in both: {name} is {one} and {two}; give one of them "
                    "another name, with a mapping of policies"
                )


def _same_worlds(runs: Sequence[Run]) -> None:
    """The regret of a random choice is the same for all policies in a world."""
    first: dict[int, Run] = {}
    for run in runs:
        before = first.setdefault(run.seed, run)
        if run.rounds != before.rounds:
            raise ValueError(
                f"these results are not of the same number of rounds: {before.rounds:,} and {run.rounds:,}"
            )
        if not math.isclose(run.random_regret, before.random_regret, rel_tol=1e-9, abs_tol=1e-9):
            raise ValueError(
                f"these results are not of the same worlds: with seed {run.seed} a random choice has a regret of "
                f"{before.random_regret:,.3f} in one and {run.random_regret:,.3f} in the other"
            )
