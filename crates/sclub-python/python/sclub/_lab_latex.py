"""Results as a table of LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._sclub import lab_policies

#: Heads of columns.
HEADS = {
    "regret": "Regret",
    "reward": "Reward",
    "clusters": "Clusters",
    "adjusted_rand": "Adjusted Rand",
    "policy_seconds": "Seconds",
}

#: Columns whose best value is the largest or the smallest. The others have no best.
BEST: dict[str, Callable[..., float]] = {"regret": min, "reward": max, "adjusted_rand": max}

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: "\\" + sign for sign in "&%$#_{}"},
}


def escaped(text: str) -> str:
    """A text with LaTeX's special characters escaped."""
    return "".join(_SPECIAL.get(sign, sign) for sign in text)


def latex(
    rows: Sequence[Mapping[str, Any]],
    *,
    columns: Sequence[str] | None,
    bold: bool,
    digits: int,
    caption: str | None,
    label: str | None,
) -> str:
    if columns is None:
        shown = ("regret", "reward", "clusters", "adjusted_rand")
        columns = [name for name in shown if any(row[name] is not None for row in rows)]
    for name in columns:
        if name not in HEADS:
            raise ValueError(f"unknown column '{name}'; use one of {', '.join(HEADS)}")
    # Policies that know the world are not in the competition.
    told = {name for name, _, learns in lab_policies() if not learns}
    best: dict[str, float] = {}
    for name in columns:
        values = [row[name] for row in rows if row[name] is not None and row["policy"] not in told]
        if bold and name in BEST and len(values) > 1:
            best[name] = BEST[name](values)

    def cell(row: Mapping[str, Any], name: str) -> str:
        value = row[name]
        if value is None:
            return "--"
        places = 3 if name == "adjusted_rand" else digits
        is_best = value == best.get(name) and row["policy"] not in told
        text = _number(value, places)
        text = rf"\mathbf{{{text}}}" if is_best else text
        if f"{name}_error" in row and row["seeds"] > 1:
            text += rf" \pm {_number(row[f'{name}_error'], places)}"
        return f"${text}$"

    lines = [
        rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
        r"\toprule",
        " & ".join(["Policy", *(HEADS[name] for name in columns)]) + r" \\",
        r"\midrule",
        *(
            " & ".join([escaped(row["policy"]), *(cell(row, name) for name in columns)]) + r" \\"
            for row in rows
        ),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if caption is not None or label is not None:
        inside = [rf"\caption{{{escaped(caption)}}}"] if caption is not None else []
        inside += [rf"\label{{{label}}}"] if label is not None else []
        lines = [r"\begin{table}", r"\centering", *inside, *lines, r"\end{table}"]
    return "\n".join(lines) + "\n"


def _number(value: float, digits: int) -> str:
    # A comma in braces has no space behind it in formulas.
    return f"{value:,.{digits}f}".replace(",", "{,}")
