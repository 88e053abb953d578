"""The table of `sclub field`: policies in many worlds, with ranks and tests."""

from __future__ import annotations

import html
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._lab_output import write_all
from ._lab_results import pandas

if TYPE_CHECKING:
    import pandas as pd

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
    #: The worlds in which it is significantly better than `sclub`, and those in which it is worse.
    against_sclub: tuple[list[str], list[str]]
    #: The same for `sclub-soft`.
    against_sclub_soft: tuple[list[str], list[str]]


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
    def pair(name: str) -> tuple[list[str], list[str]]:
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
