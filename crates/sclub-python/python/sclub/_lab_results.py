"""Results of runs: numbers, tables, plots."""

from __future__ import annotations

import html
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Run:
    """One policy in one world, to the end."""

    #: The name of the policy.
    policy: str
    #: The preset of its constants; None for policies of your own.
    preset: str | None
    #: The seed of the world.
    seed: int
    #: The number of rounds.
    rounds: int
    #: The number of recommendations: one a round, or one for each user who appeared.
    served: int
    #: The cumulative regret: the sum of the best mean minus the mean of the chosen item.
    regret: float
    #: The sum of the rewards.
    reward: float
    #: The expected regret of choosing at random.
    random_regret: float
    #: The number of clusters at the end; None where a policy has no `cluster_of`.
    clusters: int | None
    #: The adjusted Rand index of those and the true ones (1 if equal); None if the world has no true clusters.
    adjusted_rand: float | None
    #: The time spent in recommend and learn.
    policy_seconds: float
    #: (round, regret so far) at powers of two and at the end.
    curve: list[tuple[int, float]] = field(repr=False)
    #: (round, regret so far) at equal distances, for drawing.
    even_curve: list[tuple[int, float]] = field(repr=False)
    #: The `Outlook` of the policy, where it makes fits.
    clustering: dict[str, Any] | None = field(default=None, repr=False)
    #: (recommendations, sum of rewards) by the age of users, 1-5, 6-20, 21-50, 51-100, 101-200 and more
    #: rounds of theirs; empty but of ratings and catalogues.
    by_age: list[tuple[int, float]] = field(default_factory=list, repr=False)
    #: The number of different items shown; None but in a catalogue.
    distinct_items: int | None = None
    #: In a catalogue: items shown, expected and actual clicks by rounds ("from", "to", "shown",
    #: "expected_clicks", "clicks").
    stages: list[dict[str, float]] = field(default_factory=list, repr=False)

    def _json(self) -> dict[str, Any]:
        """As ``sclub run --json`` writes it."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        del values["even_curve"]
        for name in ("clustering", "by_age", "distinct_items", "stages"):
            if not values[name]:
                del values[name]
        return values


def results_of(
    played: Sequence[tuple[str, list[tuple[int, float]], bool, bool]], config: str, file: str | None
) -> Results:
    """Results from the output of `lab_run`."""
    said: dict[str, Any] = json.loads(config)
    if file is not None:
        said["file"] = file
    return Results([_run(*one) for one in played], said)


def _run(text: str, even_curve: list[tuple[int, float]], is_guest: bool, has_clusters: bool) -> Run:
    values: dict[str, Any] = json.loads(text)
    if is_guest:
        values["preset"] = None
    if not has_clusters:
        values["clusters"] = values["adjusted_rand"] = None
    for name in ("curve", "by_age"):
        values[name] = [(count, number) for count, number in values.get(name, [])]
    return Run(even_curve=even_curve, **values)


class Results(Sequence[Run]):
    """Runs by seed, then policy: a sequence of `Run`.

    Examples
    --------
    >>> import sclub
    >>> world = sclub.lab.Synthetic(users=20, clusters=2, dim=4)
    >>> results = sclub.lab.run(world, ["sclub", "random"], rounds=200, seeds=2, progress=False)
    >>> results
    <Results: 2 policies, 2 seeds, 200 rounds>
    >>> results.policies
    ['sclub', 'random']
    >>> results.summary()[["seeds", "clusters"]]
            seeds  clusters
    policy
    sclub       2       1.0
    random      2       1.0
    """

    def __init__(self, runs: Sequence[Run], config: dict[str, Any]) -> None:
        self._runs = tuple(runs)
        #: The configuration, as in the file of ``sclub run --json``.
        self.config = config

    @overload
    def __getitem__(self, place: int) -> Run: ...
    @overload
    def __getitem__(self, place: slice) -> Results: ...
    def __getitem__(self, place: int | slice) -> Run | Results:
        if isinstance(place, slice):
            return Results(self._runs[place], self.config)
        return self._runs[place]

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __repr__(self) -> str:
        def many(count: int, one: str, several: str) -> str:
            return f"{count:,} {one if count == 1 else several}"

        policies = many(len(self.policies), "policy", "policies")
        seeds = many(len({run.seed for run in self}), "seed", "seeds")
        rounds = many(max((run.rounds for run in self), default=0), "round", "rounds")
        return f"<Results: {policies}, {seeds}, {rounds}>"

    @property
    def policies(self) -> list[str]:
        """The names of the policies, in the order of the first seed's runs."""
        return list(dict.fromkeys(run.policy for run in self))

    def of(self, policy: str) -> Results:
        """The runs of one policy."""
        if policy not in self.policies:
            raise KeyError(f"unknown policy '{policy}'; use one of {', '.join(self.policies)}")
        return Results([run for run in self if run.policy == policy], self.config)

    def to_frame(self) -> pd.DataFrame:
        """A DataFrame of one row a run, without curves."""
        pandas = _pandas()
        left_out = {"curve", "even_curve", "clustering", "by_age"}
        names = [item.name for item in fields(Run) if item.name not in left_out]
        rows = [[getattr(run, name) for name in names] for run in self]
        kinds = {"clusters": "Int64", "adjusted_rand": "float64"}
        frame: pd.DataFrame = pandas.DataFrame(rows, columns=names).astype(kinds)
        return frame

    def curves(self) -> pd.DataFrame:
        """A DataFrame of the regret so far at equal distances: policy, seed, round, regret."""
        rows = [
            (run.policy, run.seed, round, regret)
            for run in self
            for round, regret in run.even_curve
        ]
        columns = ["policy", "seed", "round", "regret"]
        frame: pd.DataFrame = _pandas().DataFrame(rows, columns=columns)
        return frame

    def summary(self) -> pd.DataFrame:
        """A DataFrame of one row a policy: means over the seeds, and standard errors of regret and reward.

        A single seed has no standard error: it is NaN.
        """
        rows = self._summary()
        frame: pd.DataFrame = _pandas().DataFrame(rows).set_index("policy")
        return frame

    def _summary(self) -> list[dict[str, Any]]:
        rows = []
        for policy in self.policies:
            runs = [run for run in self if run.policy == policy]
            regret, regret_error = mean_of([run.regret for run in runs])
            reward, reward_error = mean_of([run.reward for run in runs])
            rows.append(
                {
                    "policy": policy,
                    "seeds": len(runs),
                    "regret": regret,
                    "regret_error": regret_error,
                    "reward": reward,
                    "reward_error": reward_error,
                    "random_regret": mean_of([run.random_regret for run in runs])[0],
                    "clusters": _mean_if_all([run.clusters for run in runs]),
                    "adjusted_rand": _mean_if_all([run.adjusted_rand for run in runs]),
                    "policy_seconds": mean_of([run.policy_seconds for run in runs])[0],
                }
            )
        return rows

    def plot(
        self,
        ax: Axes | None = None,
        *,
        value: Literal["regret", "rate"] | None = None,
        scale: Literal["linear", "log"] = "linear",
        band: bool = True,
        legend: bool = True,
    ) -> Axes:
        """Draw each policy's curve: the mean over the seeds, in a band of one standard error.

        Parameters
        ----------
        ax
            The axes to draw in; a new figure by default.
        value
            "regret", the cumulative regret; or "rate", the share of rounds in which the item taken was
            shown, which is the default for `Ratings`.
        scale
            "linear", or "log" for both axes.
        band, legend
            False leaves them out.

        Returns
        -------
        matplotlib.axes.Axes
        """
        from ._lab_plot import draw

        return draw(self, ax, value=value, scale=scale, band=band, legend=legend)

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a file, as ``sclub run --json`` does."""
        document = {
            "complete": True,
            "config": self.config,
            "runs": [run._json() for run in self],
        }
        Path(path).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        rows = self._summary()
        has_rand = any(row["adjusted_rand"] is not None for row in rows)
        heads = ["policy", "regret", "of random", "reward", "clusters"]
        heads += ["adjusted Rand"] if has_rand else []
        heads += ["seconds"]
        lines = []
        for row in rows:
            share = row["regret"] / row["random_regret"] if row["random_regret"] else math.nan
            cells = [
                html.escape(row["policy"]),
                _with_error(row["regret"], row["regret_error"], row["seeds"]),
                f"{100 * share:.1f}%",
                _with_error(row["reward"], row["reward_error"], row["seeds"]),
                "" if row["clusters"] is None else f"{row['clusters']:,.1f}",
            ]
            if has_rand:
                rand = row["adjusted_rand"]
                cells.append("" if rand is None else f"{rand:.3f}")
            cells.append(f"{row['policy_seconds']:.2f}")
            first, *others = cells
            lines.append(
                f"<tr><th style='text-align:left'>{first}</th>"
                + "".join(f"<td>{cell}</td>" for cell in others)
                + "</tr>"
            )
        head = "".join(f"<th>{name}</th>" for name in heads)
        said = html.escape(repr(self).strip("<>").removeprefix("Results: "))
        if any(row["seeds"] > 1 for row in rows):
            said += "; ± standard error"
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
            f"<caption style='caption-side:bottom'>{said}</caption></table>"
        )


def mean_of(values: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error, which a single value does not have: NaN."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, math.nan
    spread = sum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(spread / (len(values) - 1) / len(values))


def _mean_if_all(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean_of(known)[0] if known and len(known) == len(values) else None


def _with_error(mean: float, error: float, seeds: int) -> str:
    return f"{mean:,.1f}" if seeds < 2 else f"{mean:,.1f} ± {error:,.1f}"


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise ImportError("tables need pandas: pip install pandas") from None
    return pandas
