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

from collections.abc import Callable, Iterable, Mapping

from ._lab_checks import seed_list, text, whole
from ._lab_field import Field, FieldCell, Standing, field, field_policies, field_worlds
from ._lab_guests import (
    About,
    Constants,
    Policy,
    World,
    named_constants,
    policy_list,
    world_maker,
)
from ._lab_paper import Paper, paper
from ._lab_progress import Progress, watching
from ._lab_results import Results, Run, results_of
from ._lab_statistics import Comparison
from ._lab_worlds import Catalogue, Ratings, Setting, Synthetic, Taken, Vectors, read_ratings
from ._sclub import lab_policies, lab_run

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
        "seeds": seed_list(seeds, first_seed),
        "rounds": whole("rounds", rounds),
        "threads": whole("threads", threads),
        "preset": text("preset", preset),
        "constants": list(constants.items()),
    }
    told: Constants = {}
    specs = None if policies is None else policy_list(policies, told)
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
    results = results_of(played, config, about)
    found = results.config["constants"]
    found.update({**named_constants(specs or [], found), **told})
    return results
