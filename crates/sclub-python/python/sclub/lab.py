"""Policies compared in simulated worlds: the lab of `sclub run`, with policies and worlds of your own.

All policies of a seed get the same users, items and noise. In each round a user appears; a policy gets
some items, shows one, and gets a reward. Its regret is the mean reward of the best items minus that of the
items it showed.

>>> import sclub
>>> world = sclub.lab.Synthetic(users=50, clusters=5, dim=5, items=10)
>>> results = sclub.lab.run(world, ["sclub", "linucb-ind"], rounds=1000, seeds=2, progress=False)
>>> [(run.policy, run.seed) for run in results]
[('sclub', 1), ('linucb-ind', 1), ('sclub', 2), ('linucb-ind', 2)]

A policy of your own is an object with two methods, or a class that is made anew for each seed:

>>> import numpy as np
>>> class FollowTheLeader:
...     def __init__(self, about):
...         self.gram, self.sum = np.eye(about.dim), np.zeros(about.dim)
...     def recommend(self, user, items):
...         return np.argmax(items @ np.linalg.solve(self.gram, self.sum))
...     def learn(self, user, item, reward):
...         self.gram += np.outer(item, item)
...         self.sum += reward * item
>>> results = sclub.lab.run(world, [FollowTheLeader, "linucb-one"], rounds=500, seeds=1, progress=False)
>>> results[0].policy, results[0].regret < results[0].random_regret
('FollowTheLeader', True)
"""

from __future__ import annotations

import json
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ._lab_checks import LIMIT, text, whole
from ._lab_data import Reading, Source, data_of
from ._lab_field import Field, FieldCell, Standing
from ._lab_guests import About, Policy, World, column_list, policy_list, world_maker
from ._lab_output import stored_results
from ._lab_paper import Paper
from ._lab_progress import Progress, watching
from ._lab_results import Results, Run, results_of
from ._lab_statistics import Comparison
from ._lab_worlds import Catalogue, Ratings, Setting, Synthetic, Taken, Vectors, read_ratings
from ._sclub import (
    lab_field,
    lab_field_defaults,
    lab_paper,
    lab_paper_defaults,
    lab_policies,
    lab_run,
)

__all__ = [
    "About",
    "Catalogue",
    "Comparison",
    "Field",
    "FieldCell",
    "Paper",
    "Policy",
    "Ratings",
    "Results",
    "Run",
    "Standing",
    "Synthetic",
    "Taken",
    "Vectors",
    "World",
    "field",
    "field_policies",
    "field_worlds",
    "paper",
    "policy_names",
    "read_ratings",
    "run",
]

#: The built-in policies: those of `sclub.policy_classes`, and the yardsticks that know the world.
policy_names: tuple[str, ...] = tuple(name for name, _, _ in lab_policies())

_worlds, _ranked, _field_sizes = lab_field_defaults()
_parts, _paper_sizes = lab_paper_defaults()

#: The worlds of `field`; docs/field.md describes them.
field_worlds: tuple[str, ...] = tuple(_worlds)

#: The built-in policies that `field` ranks by default: all that do not know the world.
field_policies: tuple[str, ...] = tuple(_ranked)


def run(
    world: str | Setting | World | Callable[[int], World] = "synthetic",
    policies: Mapping[str, object] | Iterable[object] | None = None,
    rounds: int | None = None,
    seeds: int | Iterable[int] = 3,
    *,
    first_seed: int = 1,
    preset: str = "tuned",
    threads: int | None = None,
    progress: bool | Progress | None = None,
    **constants: object,
) -> Results:
    """Run policies in worlds and measure the regret of each.

    The same seed gives the same results as ``sclub run`` on the command line, to the last digit, with
    any number of threads.

    Parameters
    ----------
    world
        "synthetic" or "catalogue"; a `Synthetic`, `Catalogue`, `Vectors` or `Ratings`; or a world of your own (see `World`): an
        object, which is copied for each seed, or a class or function that is called with the seed.
    policies
        The policies; by default every built-in policy that the world allows. Each is

        - the name of a built-in policy, one of `policy_names`;
        - an object with ``recommend`` and ``learn`` (see `Policy`), also one of this package's, which is
          copied for each seed;
        - a class or function that is called for each seed with an `About` and returns such an object.

        A mapping gives them other names.
    rounds
        The number of rounds; by default 2**17 - 2, 12,000 of a `Catalogue`, and all rounds of `Ratings`.
    seeds
        The number of seeds, counted from `first_seed`; or the seeds themselves.
    preset
        The set of constants that built-in policies start from: "tuned", "released" or "theory".
    threads
        The number of threads; all cores by default. Python code of policies and worlds runs on one
        thread at a time.
    progress
        False shows none. True or None shows a bar (tqdm) if the run takes longer than two seconds. A
        function is called with the rounds played so far and the rounds in all.
    **constants
        Constants of built-in policies by name, such as ``beta=0.5``: those of ``sclub run --help``, with
        ``_`` for ``-``. Each goes to every policy that has it. None stands for the default.

    Raises
    ------
    ValueError
        Names the argument, or the value and the round of a world. An exception of your policy or world
        is raised unchanged.

    Examples
    --------
    >>> import sclub
    >>> results = sclub.lab.run(
    ...     sclub.lab.Synthetic(users=20, clusters=2, dim=4),
    ...     {"as it is": sclub.LinUcb(dim=4), "bold": sclub.LinUcb(dim=4, beta=2.0), "random": "random"},
    ...     rounds=300, seeds=[7], progress=False,
    ... )
    >>> [run.policy for run in results]
    ['as it is', 'bold', 'random']
    """
    if isinstance(world, str):
        named = {"synthetic": Synthetic, "catalogue": Catalogue}
        if world not in named:
            raise ValueError(
                f"unknown world '{world}'; use 'synthetic' or 'catalogue', or make a sclub.lab.Vectors "
                "or a sclub.lab.Ratings from data"
            )
        world = named[world]()
    options = {
        "seeds": _seeds(seeds, first_seed),
        "rounds": whole("rounds", rounds),
        "threads": whole("threads", threads),
        "preset": text("preset", preset),
        "constants": list(constants.items()),
    }
    specs = None if policies is None else policy_list(policies)
    with watching(progress) as watch:
        played, config = lab_run(
            world._setting if isinstance(world, Setting) else world_maker(world),
            specs,
            options,
            watch,
        )
    about = {}
    if isinstance(world, Setting):
        about = {"file": world.file, "like_from": world.like_from}
    return results_of(played, config, about)


def field(
    policies: Mapping[str, object] | Iterable[object] | None = None,
    worlds: Iterable[str] | None = None,
    rounds: int | None = None,
    seeds: int | Iterable[int] | None = None,
    *,
    first_seed: int = 1,
    quick: bool = False,
    constants: str | os.PathLike[str] = "tuned",
    out: str | os.PathLike[str] | None = None,
    fresh: bool = False,
    threads: int | None = None,
    progress: bool | Progress | None = None,
) -> Field:
    """Compare policies in many worlds: the table of ``sclub field``, with policies of your own as columns.

    All policies of a world and seed get the same users, items and noise. Built-in policies have the results of the
    command, to the last digit. Policies of your own are ranked and tested with them. The references `oracle`, `informed` and
    `random` play too, and are not ranked.

    Parameters
    ----------
    policies
        The policies to rank, as in `run`; by default all of `field_policies`. ``[Mine, *sclub.lab.field_policies]`` is yours
        beside all of them. A class or function is called once for each world before anything runs, and then for each world and
        seed, with an `About`. A policy without ``recommend_list`` is left out of the worlds that show lists. A function can leave a
        policy out of a world by returning None.
    worlds
        The names of the worlds, some of `field_worlds`; by default all.
    rounds
        The number of rounds, 2**15 by default; shops have at most 12,000.
    seeds
        The number of seeds, counted from `first_seed`, 10 by default; or the seeds themselves.
    quick
        True for a first look: 2**11 rounds and 2 seeds, where they are not given.
    constants
        The constants of built-in policies: "tuned", those that this release has chosen for all worlds by one procedure; "default";
        "released", those of published code; or a file that ``sclub tune`` has written.
    out
        A folder to write the page (index.html) and the other files to. It also gets the results of built-in policies as soon as a
        world is played: the same call goes on where an interrupted one stopped. The command ``sclub field --out`` can use the
        same folder. Policies of your own are run again by each call.
    fresh
        True deletes the stored results of `out` first.
    threads, progress
        As in `run`.

    Raises
    ------
    ValueError
        Names the argument. An exception of your policy is raised unchanged.

    Examples
    --------
    >>> import numpy as np, sclub
    >>> class Greedy:
    ...     def __init__(self, about):
    ...         self.gram, self.sum = np.eye(about.dim), np.zeros(about.dim)
    ...     def recommend(self, user, items):
    ...         return np.argmax(items @ np.linalg.solve(self.gram, self.sum))
    ...     def learn(self, user, item, reward):
    ...         self.gram += np.outer(item, item)
    ...         self.sum += reward * item
    >>> table = sclub.lab.field(
    ...     [Greedy, "linucb-one"], ["servers", "cascade"], rounds=200, seeds=2, progress=False
    ... )
    >>> sorted(table.policies)
    ['Greedy', 'linucb-one']
    >>> [cell.policy for cell in table.cells if cell.world == "cascade"]  # Greedy has no recommend_list
    ['linucb-one', 'oracle', 'informed', 'random']
    """
    if isinstance(worlds, str):
        worlds = [worlds]
    default_rounds, default_seeds = _field_sizes[1 if quick else 0]
    chosen = _seeds(default_seeds if seeds is None else seeds, first_seed)
    columns = column_list(field_policies if policies is None else policies)
    if not columns:
        raise ValueError("policies is empty; there must be at least one")
    names = [] if worlds is None else [text("a world", world) for world in worlds]
    for name in names:
        if name not in field_worlds:
            raise ValueError(f"unknown world '{name}'; use some of {', '.join(field_worlds)}")
    if worlds is not None and not names:
        raise ValueError("worlds is empty; there must be at least one")
    rounds = default_rounds if rounds is None else whole("rounds", rounds)
    options = {
        "worlds": names,
        "rounds": rounds,
        "seeds": chosen,
        "threads": whole("threads", threads),
        "constants": _constants(constants),
        "command": _call(
            "field",
            policies=None if policies is None else [label for label, _, _ in columns],
            worlds=names or None,
            rounds=rounds,
            seeds=chosen,
            constants=None if constants == "tuned" else os.fspath(constants),
        ),
        "cells": stored_results(out, fresh),
    }
    with watching(progress) as watch:
        files, _ = lab_field(columns, options, watch)
    made = Field(dict(files))
    if out is not None:
        made.save(out)
    return made


def paper(
    policies: Mapping[str, object] | Iterable[object] = (),
    rounds: int | None = None,
    seeds: int | Iterable[int] | None = None,
    *,
    first_seed: int = 1,
    quick: bool = False,
    parts: Iterable[str] = ("panels",),
    movielens: Source | None = None,
    yelp: Source | None = None,
    out: str | os.PathLike[str] | None = None,
    fresh: bool = False,
    threads: int | None = None,
    progress: bool | Progress | None = None,
) -> Paper:
    """Run the SCLUB paper's experiments, with policies of your own beside its four and ``sclub-soft``.

    The results are those of the command ``sclub paper``, to the last digit.

    Parameters
    ----------
    policies
        The policies to add, as in `run`. They get curves and rows in the panels, and rows in the held-out choices. Built-in ones
        have their default constants.
    rounds
        The number of rounds of the panels, the audit and the theorems; 2**20 - 2 by default, as in the paper. A policy in
        Python that takes 0.1 ms a round needs about an hour for 10 seeds of the three synthetic panels.
    seeds
        The number of seeds, counted from `first_seed`, 10 by default; or the seeds themselves.
    quick
        True for a short version: 2**18 - 2 rounds and 2 seeds, where they are not given.
    parts
        Parts of the report: "panels" (Figure 1 with Tables 1 and 2), "audit", "theorems", and "choices", which needs data.
    movielens, yelp
        Ratings for the panels 2a to 2d and for the choices: a file or a table, as in `Vectors`.
    out, fresh
        As in `field`. The command ``sclub paper --out`` can use the same folder.
    threads, progress
        As in `run`.

    Raises
    ------
    ValueError
        Names the argument. An exception of your policy is raised unchanged.
    """
    default_rounds, default_seeds = _paper_sizes[1 if quick else 0]
    chosen = _seeds(default_seeds if seeds is None else seeds, first_seed)
    columns = column_list(policies)
    parts = [parts] if isinstance(parts, str) else [text("a part", part) for part in parts]
    if not parts:
        raise ValueError(f"parts is empty; use some of {', '.join(_parts)}")
    if parts == ["choices"] and movielens is None and yelp is None:
        raise ValueError("part choices needs real users; give movielens or yelp")
    reading = Reading(None, None, None, None, rating_values=False, skip_bad_lines=False)
    data = {
        name: None if source is None else data_of(source, reading)[0]
        for name, source in (("movielens", movielens), ("yelp", yelp))
    }
    rounds = default_rounds if rounds is None else whole("rounds", rounds)
    options = {
        "rounds": rounds,
        "seeds": chosen,
        "quick": bool(quick),
        "parts": parts,
        **data,
        "threads": whole("threads", threads),
        "command": _call(
            "paper",
            policies=[label for label, _, _ in columns],
            rounds=rounds,
            seeds=chosen,
            quick=quick or None,
            parts=parts,
            **{name: "..." for name, source in data.items() if source is not None},
        ),
        "cells": stored_results(out, fresh),
    }
    # A function is called with rounds only.
    shown = False if callable(progress) else progress
    with watching(shown, "B") as watch_reading, watching(progress) as watch:
        (files, _), said = lab_paper(columns, options, watch_reading, watch)
    for warning in said:
        warnings.warn(warning, stacklevel=2)
    made = Paper(dict(files))
    if out is not None:
        made.save(out)
    return made


def _call(name: str, **arguments: object) -> str:
    """A call of a function of this module, without arguments that are None."""
    given = [f"{key}={value!r}" for key, value in arguments.items() if value is not None]
    return f"sclub.lab.{name}({', '.join(given)})"


def _constants(constants: str | os.PathLike[str]) -> str:
    """A name, or the content of a file of ``sclub tune``."""
    if constants in ("tuned", "default", "released"):
        return str(constants)
    if not isinstance(constants, (str, os.PathLike)):
        raise TypeError(
            f"constants is {constants!r}; 'tuned', 'default', 'released' or a file is expected"
        )
    content = Path(constants).read_text(encoding="utf-8")
    try:
        json.loads(content)["constants"]
    except (ValueError, TypeError, KeyError):
        raise ValueError(f"{os.fspath(constants)} is not a result of `sclub tune`") from None
    return content


def _seeds(seeds: int | Iterable[int], first_seed: int) -> list[int]:
    if isinstance(seeds, Iterable):
        numbers = [whole("a seed", seed) for seed in seeds]
        if first_seed != 1:
            raise ValueError(
                f"first_seed is {first_seed}, and seeds are given one by one; give a number of seeds"
            )
        for number, count in Counter(numbers).items():
            if count > 1:
                raise ValueError(f"seed {number} is there twice")
        return numbers
    first = whole("first_seed", first_seed)
    count = whole("seeds", seeds)
    if first + count > LIMIT:
        raise ValueError(f"the last seed is {first + count - 1}; it must be below {LIMIT - 1}")
    return list(range(first, first + count))
