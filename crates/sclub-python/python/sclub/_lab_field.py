"""The table of `sclub field`: policies in many worlds, with ranks and tests."""

from __future__ import annotations

import html
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._lab_checks import seed_list, text, whole
from ._lab_guests import column_list
from ._lab_output import call_of, stored_results, write_all
from ._lab_progress import Progress, watching
from ._lab_results import pandas
from ._sclub import lab_field, lab_field_defaults

if TYPE_CHECKING:
    import pandas as pd

_worlds, _ranked, _sizes, FIRST_SEED = lab_field_defaults()

#: The worlds of `field`; docs/field.md describes them.
field_worlds: tuple[str, ...] = tuple(_worlds)

#: The built-in policies that `field` ranks by default: all that do not know the world.
field_policies: tuple[str, ...] = tuple(_ranked)

#: The files that are always there; a table of one policy or world has no picture of ranks.
FILES = ("index.html", "field.json", "field.tex", "field.txt")
PICTURE = "ranks.svg"

#: Differences at this level count as significant.
LEVEL = 0.05


@dataclass(frozen=True)
class FieldCell:
    """One policy in one world, over the seeds."""

    #: The name of the world.
    world: str
    #: "regret", the lower the better; or "clicks" for each item shown, the more the better.
    measure: str
    #: The name of the policy.
    policy: str
    #: The mean over the seeds.
    mean: float
    #: Its standard error; NaN with one seed.
    error: float
    #: The values by seed.
    values: list[float]
    #: The rank in the world; None for references, which are not ranked.
    rank: float | None
    #: The mean of the paired differences from the best policy of the world; positive is worse. None for references.
    behind: float | None
    #: The p-value of that difference, corrected for all policies of the world (Holm); None for the best one.
    p: float | None
    #: The time of a round, recommending and learning.
    microseconds: float
    #: (messages, numbers in them) of a policy of several servers or peers; else None.
    messages: tuple[float, float] | None
    #: The size of the state at the end; None if the policy does not tell.
    bytes: float | None
    #: The constants of a built-in policy.
    constants: str

    @property
    def is_among_best(self) -> bool:
        """True for the best policy of the world, and for those that do not differ from it significantly."""
        return self.rank is not None and (self.p is None or self.p > LEVEL)


@dataclass(frozen=True)
class Standing:
    """One policy over all worlds."""

    policy: str
    #: The mean rank over the worlds that it played.
    rank: float
    #: The number of worlds that it played.
    worlds: int
    #: The number of worlds in which it is the best, or does not differ from the best significantly.
    among_best: int
    #: The worlds in which it is significantly better than `sclub`, and those in which it is worse; None if there was nothing to compare.
    against_sclub: tuple[list[str], list[str]] | None
    #: The same for `sclub-soft`.
    against_sclub_soft: tuple[list[str], list[str]] | None


class Field:
    """The results of `field`: policies in many worlds.

    Examples
    --------
    >>> import sclub
    >>> table = sclub.lab.field(
    ...     ["linucb-one", "linucb-ind"], ["overlap", "servers"], rounds=200, seeds=2, progress=False
    ... )
    >>> table
    <Field: 2 policies, 2 worlds, 2 seeds>
    >>> table.worlds
    ['overlap', 'servers']
    >>> [standing.worlds for standing in table.standings]
    [2, 2]
    >>> table.cell("overlap", "random").rank is None
    True
    """

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = dict(files)
        #: Everything, as in ``field.json``.
        self.document: dict[str, Any] = json.loads(self._files["field.json"])
        found = self.document["field"]
        #: The names of the worlds.
        self.worlds: list[str] = [row["world"] for row in found["worlds"]]
        #: The ranked policies, the best first.
        self.standings: list[Standing] = [_standing(values) for values in found["standings"]]
        #: The results, world by world; the ranked policies first, then the references.
        self.cells: list[FieldCell] = [
            _cell(row, cell) for row in found["worlds"] for cell in row["cells"]
        ]
        #: The difference from which two mean ranks differ significantly (Nemenyi, level 0.05), among the
        #: policies that played all worlds; None with a single world or policy.
        self.critical_difference: float | None = found["critical_difference"]

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Field:
        """Read the folder of `save`, of ``field(out=...)`` or of the command ``sclub field``."""
        paths = [Path(folder) / name for name in (*FILES, PICTURE)]
        return cls(
            {
                path.name: path.read_text(encoding="utf-8")
                for path in paths
                if path.name != PICTURE or path.exists()
            }
        )

    def __repr__(self) -> str:
        def many(count: int, one: str, several: str) -> str:
            return f"{count:,} {one if count == 1 else several}"

        policies = many(len(self.standings), "policy", "policies")
        worlds = many(len(self.worlds), "world", "worlds")
        seeds = max((len(cell.values) for cell in self.cells), default=0)
        return f"<Field: {policies}, {worlds}, {many(seeds, 'seed', 'seeds')}>"

    @property
    def policies(self) -> list[str]:
        """The names of the ranked policies, the best first."""
        return [standing.policy for standing in self.standings]

    def cell(self, world: str, policy: str) -> FieldCell:
        """The result of a policy in a world."""
        for cell in self.cells:
            if (cell.world, cell.policy) == (world, policy):
                return cell
        raise KeyError(f"policy '{policy}' has no result in world '{world}'")

    def to_frame(self) -> pd.DataFrame:
        """A DataFrame of one row a world and policy."""
        left_out = {"values", "messages"}
        names = [item.name for item in fields(FieldCell) if item.name not in left_out]
        rows = [
            {name: getattr(cell, name) for name in names}
            | {"is_among_best": cell.is_among_best, "seeds": len(cell.values)}
            for cell in self.cells
        ]
        numbers = dict.fromkeys(("rank", "behind", "p", "bytes"), "float64")
        frame: pd.DataFrame = pandas().DataFrame(rows).astype(numbers)
        return frame

    def table(self) -> pd.DataFrame:
        """A DataFrame of the means: one row a world, one column a policy, the best first, then the references.

        A policy that does not play a world has NaN.
        """
        names = list(dict.fromkeys([*self.policies, *(cell.policy for cell in self.cells)]))
        rows = {
            world: {cell.policy: cell.mean for cell in self.cells if cell.world == world}
            for world in self.worlds
        }
        frame: pd.DataFrame = pandas().DataFrame.from_dict(rows, orient="index", columns=None)
        frame = frame[[name for name in names if name in frame]]
        frame.index.name = "world"
        return frame

    def summary(self) -> pd.DataFrame:
        """A DataFrame of one row a ranked policy: mean rank, worlds, how often among the best, and cost.

        The cost is that of the first world that the policy plays.
        """
        frame: pd.DataFrame = pandas().DataFrame(self._summary()).set_index("policy")
        return frame

    def _summary(self) -> list[dict[str, Any]]:
        rows = []
        for standing in self.standings:
            first = next(cell for cell in self.cells if cell.policy == standing.policy)
            rows.append(
                {
                    "policy": standing.policy,
                    "rank": standing.rank,
                    "worlds": standing.worlds,
                    "among_best": standing.among_best,
                    "microseconds": first.microseconds,
                    "megabytes": math.nan if first.bytes is None else first.bytes / 1e6,
                }
            )
        return rows

    def to_latex(self, path: str | os.PathLike[str] | None = None) -> str:
        """A table of LaTeX: one row a world, one column a ranked policy, ± standard errors, in bold the best of a
        world and those that do not differ from it significantly.

        It needs ``\\usepackage{booktabs,graphicx}``.

        Parameters
        ----------
        path
            The file to write to, if any.
        """
        text = self._files["field.tex"]
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write index.html, field.json, field.tex, field.txt and ranks.svg, as the command ``sclub field`` does.

        The folder is made if it is missing.
        """
        write_all(Path(folder), {name: text.encode() for name, text in self._files.items()})

    def _repr_html_(self) -> str:
        """The picture of the ranks and a table, for notebooks."""
        found = {(cell.world, cell.policy): cell for cell in self.cells}

        def shown(world: str, policy: str) -> str:
            cell = found.get((world, policy))
            if cell is None:
                return "<td>–</td>"
            digits = 4 if cell.measure == "clicks" else 1
            text = f"{cell.mean:,.{digits}f}"
            if len(cell.values) > 1:
                text += f" ± {cell.error:,.{digits}f}"
            return f"<td>{f'<b>{text}</b>' if cell.is_among_best else text}</td>"

        heads = ["policy", "mean rank", *self.worlds, "µs a round"]
        lines = [
            f"<tr><th style='text-align:left'>{html.escape(row['policy'])}</th><td>{row['rank']:.2f}</td>"
            + "".join(shown(world, row["policy"]) for world in self.worlds)
            + f"<td>{row['microseconds']:,.1f}</td></tr>"
            for row in self._summary()
        ]
        head = "".join(f"<th>{name}</th>" for name in heads)
        said = "regret, or clicks for each item shown; bold: the best, and those that do not differ significantly"
        return (
            self._files.get(PICTURE, "")
            + f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
            f"<caption style='caption-side:bottom'>{said}</caption></table>"
        )


def _cell(row: Mapping[str, Any], values: Mapping[str, Any]) -> FieldCell:
    behind, messages = values["behind"], values["messages"]
    return FieldCell(
        world=row["world"],
        measure=row["measure"],
        policy=values["policy"],
        mean=values["mean"],
        error=values["error"] if len(values["values"]) > 1 else math.nan,
        values=values["values"],
        rank=values["rank"],
        behind=None if behind is None else behind["mean"],
        p=values["p"],
        microseconds=values["microseconds"],
        messages=None if messages is None else (messages[0], messages[1]),
        bytes=values["bytes"],
        constants=values["constants"],
    )


def _standing(values: Mapping[str, Any]) -> Standing:
    def pair(name: str) -> tuple[list[str], list[str]] | None:
        if values[name] is None:
            return None
        better, worse = values[name]
        return better, worse

    return Standing(
        policy=values["policy"],
        rank=values["rank"],
        worlds=values["worlds"],
        among_best=values["among_best"],
        against_sclub=pair("against_sclub"),
        against_sclub_soft=pair("against_sclub_soft"),
    )


def field(
    policies: Mapping[str, object] | Iterable[object] | None = None,
    worlds: Iterable[str] | None = None,
    rounds: int | None = None,
    seeds: int | Iterable[int] | None = None,
    *,
    first_seed: int = FIRST_SEED,
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
        The number of seeds, counted from `first_seed`, 10 by default; or the seeds themselves. `first_seed` is 5001 by default:
        smaller ones were looked at while policies of this library were made.
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
    default_rounds, default_seeds = _sizes[1 if quick else 0]
    chosen = seed_list(default_seeds if seeds is None else seeds, first_seed, FIRST_SEED)
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
        "command": call_of(
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
