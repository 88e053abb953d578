"""The report of `sclub paper`: the paper's figures and tables, with other policies beside its own."""

from __future__ import annotations

import html
import json
import math
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._lab_checks import seed_list, text, whole
from ._lab_data import Reading, Source, data_of
from ._lab_guests import column_list
from ._lab_output import call_of, stored_results, write_all
from ._lab_progress import Progress, watching
from ._lab_results import pandas
from ._sclub import lab_paper, lab_paper_defaults

if TYPE_CHECKING:
    import pandas as pd

_parts, _sizes = lab_paper_defaults()


class Paper:
    """The result of `paper`: the panels of the paper's Figure 1 with Tables 1 and 2, and other parts if they were asked for.

    Examples
    --------
    >>> import sclub
    >>> report = sclub.lab.paper(["dynucb"], rounds=100, seeds=1, progress=False)
    >>> report.policies
    ['club', 'linucb-ind', 'linucb-one', 'sclub', 'sclub-soft', 'dynucb']
    >>> report.panels
    ['1a', '1b', '1c']
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = dict(files)
        #: Everything, as in ``results.json``.
        self.document: dict[str, Any] = json.loads(self._files["results.json"])

    @property
    def _cells(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        panels = self.document["panels"]
        return [(panel, cell) for panel in panels for cell in panel["cells"]]

    @property
    def panels(self) -> list[str]:
        """The panels with results: "1a" to "1c" are synthetic, "2a" to "2d" need data."""
        return list(dict.fromkeys(panel["id"] for panel, _ in self._cells))

    @property
    def policies(self) -> list[str]:
        """The names of the policies: the paper's four, sclub-soft, and those that were added."""
        return list(dict.fromkeys(cell["policy"] for _, cell in self._cells))

    def __repr__(self) -> str:
        origin = self.document["origin"]
        seeds = len(origin["seeds"])
        return (
            f"<Paper: {len(self.panels)} panels, {len(self.policies)} policies, "
            f"{seeds} {'seed' if seeds == 1 else 'seeds'}, {origin['rounds']:,} rounds>"
        )

    def to_frame(self) -> pd.DataFrame:
        """A DataFrame of one row a panel and policy: the cells of Tables 1 and 2, measured and published.

        What the paper does not have is NaN, and so are errors of a single seed.
        """
        frame: pd.DataFrame = pandas().DataFrame(self._rows()).astype(
            dict.fromkeys(("published_regret", "published_seconds"), "float64")
        )
        return frame

    def _rows(self) -> list[dict[str, Any]]:
        return [
            {
                "panel": panel["id"],
                "policy": cell["policy"],
                "seeds": cell["seeds"],
                "regret": cell["regret"]["mean"],
                "regret_error": _error(cell, "regret"),
                "published_regret": cell["published_regret"],
                "seconds": cell["seconds"]["mean"],
                "seconds_error": _error(cell, "seconds"),
                "published_seconds": cell["published_seconds"],
                "clusters": cell["clusters"],
            }
            for panel, cell in self._cells
        ]

    def table(self) -> pd.DataFrame:
        """A DataFrame of the regret at the end: one row a policy, one column a panel."""
        frame: pd.DataFrame = self.to_frame().pivot(
            index="policy", columns="panel", values="regret"
        )
        return frame.loc[self.policies]

    def curves(self) -> pd.DataFrame:
        """A DataFrame of the regret so far at equal distances: panel, policy, round, regret, error."""
        rows = [
            (panel["id"], cell["policy"], round, regret["mean"], regret["error"])
            for panel, cell in self._cells
            for round, regret in cell["curve"]
        ]
        columns = ["panel", "policy", "round", "regret", "error"]
        frame: pd.DataFrame = pandas().DataFrame(rows, columns=columns)
        return frame

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write index.html, results.json and the figures (SVG and PNG), as the command ``sclub paper`` does.

        The folder is made if it is missing.
        """
        write_all(Path(folder), self._files)

    def _repr_html_(self) -> str:
        """A table of the regrets, for notebooks."""
        found = {(row["panel"], row["policy"]): row for row in self._rows()}

        def shown(panel: str, policy: str) -> str:
            row = found.get((panel, policy))
            if row is None:
                return "–"
            error = row["regret_error"]
            return f"{row['regret']:,.0f}" + ("" if math.isnan(error) else f" ± {error:,.0f}")

        lines = [
            f"<tr><th style='text-align:left'>{html.escape(policy)}</th>"
            + "".join(f"<td>{shown(panel, policy)}</td>" for panel in self.panels)
            + "</tr>"
            for policy in self.policies
        ]
        head = "".join(f"<th>{name}</th>" for name in ["regret", *self.panels])
        said = html.escape(repr(self).strip("<>").removeprefix("Paper: "))
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
            f"<caption style='caption-side:bottom'>{said}</caption></table>"
        )


def _error(cell: Mapping[str, Any], name: str) -> float:
    error: float = cell[name]["error"]
    return error if cell["seeds"] > 1 else math.nan


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
    default_rounds, default_seeds = _sizes[1 if quick else 0]
    chosen = seed_list(default_seeds if seeds is None else seeds, first_seed)
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
        "command": call_of(
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
