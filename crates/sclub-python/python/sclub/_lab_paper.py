"""The report of `sclub paper`: the paper's figures and tables, with other policies beside its own."""

from __future__ import annotations

import html
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._lab_output import write_all
from ._lab_results import pandas

if TYPE_CHECKING:
    import pandas as pd


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
