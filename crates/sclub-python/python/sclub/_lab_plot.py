"""Curves, drawn with matplotlib in the colours of `sclub run`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from ._lab_results import Results, Run, mean_of
from ._sclub import lab_policies

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The colour of each built-in policy, the same as in `sclub run`.
COLOURS = {name: colour for name, colour, _ in lab_policies()}

#: Policies for comparison: they learn nothing, or know the world.
YARDSTICKS = {name for name, _, learns in lab_policies() if not learns}


def draw(
    results: Results,
    ax: Axes | None,
    *,
    value: Literal["regret", "rate"] | None,
    scale: Literal["linear", "log"],
    band: bool,
    legend: bool,
) -> Axes:
    if value is None:
        config = results.config
        # Values are not hits, of which a rate is the share.
        is_rate = config.get("world") == "ratings" and not config.get("rating_values")
        value = "rate" if is_rate else "regret"
    if value not in ("regret", "rate"):
        raise ValueError(f"value is {value!r}; it must be 'regret' or 'rate'")
    if scale not in ("linear", "log"):
        raise ValueError(f"scale is {scale!r}; it must be 'linear' or 'log'")
    pyplot = _pyplot()
    if ax is None:
        _, made = pyplot.subplots(figsize=(8.2, 5.2), layout="constrained")
        ax = made
    assert ax is not None
    spare = iter(_spare(results))
    for policy in results.policies:
        colour = COLOURS.get(policy) or next(spare)
        rounds, means, errors = _curve(results.of(policy), value, scale)
        style = "--" if policy in YARDSTICKS else "-"
        ax.plot(rounds, means, style, color=colour, label=policy, linewidth=1.8)
        # A single seed has none: NaN is not above 0.
        if band and any(error > 0 for error in errors):
            low = [mean - error for mean, error in zip(means, errors)]
            high = [mean + error for mean, error in zip(means, errors)]
            ax.fill_between(rounds, low, high, color=colour, alpha=0.18, linewidth=0)
    ax.set_xlabel("round")
    ax.set_ylabel("cumulative regret" if value == "regret" else "rate so far")
    if scale == "log":
        ax.set_xscale("log")
        ax.set_yscale("log")
    else:
        ax.set_xlim(left=0)
        ax.set_ylim(bottom=0)
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
        if value == "regret":
            ax.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}")
    if value == "rate":
        ax.yaxis.set_major_formatter(lambda y, _: f"{100 * y:g}%")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.2)
    if legend:
        ax.legend(frameon=False)
    return ax


def _curve(
    runs: Sequence[Run], value: str, scale: str
) -> tuple[list[float], list[float], list[float]]:
    """Rounds, means and standard errors at the points of the curves."""
    # At powers of two the points of a logarithmic axis are as far from each other as they can be.
    curves = [run.curve if scale == "log" else run.even_curve for run in runs]
    rounds, means, errors = [], [], []
    for points in zip(*curves):
        at = sum(round for round, _ in points) / len(points)
        if at == 0 and value == "rate":
            continue
        values = [
            regret if value == "regret" else 1 - regret / max(round, 1) for round, regret in points
        ]
        mean, error = mean_of(values)
        if scale == "log" and mean <= 0:
            continue
        rounds.append(at)
        means.append(mean)
        errors.append(error)
    return rounds, means, errors


def _spare(results: Results) -> list[str]:
    """Colours for policies without one: first those of built-in policies that do not play."""
    free = [colour for name, colour in COLOURS.items() if name not in results.policies]
    others = ["#7F3C00", "#B8860B", "#4B0082", "#708090", "#2F4F4F", "#8B0000"]
    count = len(results.policies)
    return [(free + others)[place % len(free + others)] for place in range(count)]


@contextmanager
def saved(path: str | os.PathLike[str]) -> Iterator[Axes]:
    """Axes of a new figure, which is saved in the format of the file's ending."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(8.2, 5.2), layout="constrained")
    try:
        yield axes
        # Fonts as text: journals refuse the default, Type 3.
        with pyplot.rc_context({"pdf.fonttype": 42, "ps.fonttype": 42}):
            figure.savefig(path)
    finally:
        pyplot.close(figure)


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError("plots need matplotlib: pip install matplotlib") from None
    return pyplot
