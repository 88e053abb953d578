"""Results of runs: numbers, tables, plots."""

from __future__ import annotations

import html
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from ._lab_checks import many
from ._lab_statistics import Comparison, corrected, paired

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
    #: (messages sent, numbers in them) of a policy of several servers or peers; else None.
    messages: tuple[int, int] | None = None
    #: The size of the policy's final state in bytes; None if the policy does not tell.
    state_bytes: int | None = None

    def _json(self) -> dict[str, Any]:
        """As ``sclub run --json`` writes it."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        del values["even_curve"]
        for name in ("clustering", "by_age", "distinct_items", "stages", "messages", "state_bytes"):
            if values[name] is None or values[name] == []:
                del values[name]
        return values


def results_of(
    played: Sequence[tuple[str, list[tuple[int, float]], bool, bool]],
    config: str,
    about: Mapping[str, object],
) -> Results:
    """Results from the output of `lab_run`, with what else there is to say about the world."""
    said: dict[str, Any] = json.loads(config)
    said.update((name, value) for name, value in about.items() if value is not None)
    return Results([_run(*one) for one in played], said)


def _run(text: str, even_curve: list[tuple[int, float]], is_guest: bool, has_clusters: bool) -> Run:
    values: dict[str, Any] = json.loads(text)
    if is_guest:
        values["preset"] = None
    if not has_clusters:
        values["clusters"] = values["adjusted_rand"] = None
    for name in ("curve", "by_age"):
        values[name] = [(count, number) for count, number in values.get(name, [])]
    if values.get("messages") is not None:
        values["messages"] = tuple(values["messages"])
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
        policies = many(len(self.policies), "policy", "policies")
        seeds = many(len({run.seed for run in self}), "seed")
        rounds = many(max((run.rounds for run in self), default=0), "round")
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

    def __add__(self, other: object) -> Results:
        """The runs of both: more seeds of the same worlds, more policies, or both.

        Runs that are in both are kept once. Policies and worlds of your own are known by their names alone: give a class
        another name when you change it.

        Raises
        ------
        ValueError
            If the worlds or their data differ, or if a policy has other constants or other results in both.

        >>> import sclub
        >>> world = sclub.lab.Synthetic(users=20, clusters=2, dim=4)
        >>> first = sclub.lab.run(world, ["sclub"], rounds=200, seeds=2, progress=False)
        >>> more = sclub.lab.run(world, ["sclub", "random"], rounds=200, seeds=[3], progress=False)
        >>> [(run.seed, run.policy) for run in first + more]
        [(1, 'sclub'), (2, 'sclub'), (3, 'sclub'), (3, 'random')]
        """
        if not isinstance(other, Results):
            return NotImplemented
        from ._lab_files import total

        return Results(*total((self, self.config), (other, other.config)))

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> Results:
        """Read a file of `to_json` or of ``sclub run --json``.

        A file has curves at powers of two only, so `Run.even_curve` is `Run.curve`.
        """
        from ._lab_files import read

        return cls(*read(path))

    @overload
    def compare(
        self, policy: str, other: str, *, value: Literal["regret", "reward"] = "regret"
    ) -> Comparison: ...
    @overload
    def compare(
        self, policy: str, other: None = None, *, value: Literal["regret", "reward"] = "regret"
    ) -> list[Comparison]: ...
    def compare(
        self,
        policy: str,
        other: str | None = None,
        *,
        value: Literal["regret", "reward"] = "regret",
    ) -> Comparison | list[Comparison]:
        """Compare a policy with another, or with all others, by a paired t-test over the seeds.

        All policies of a seed have the same users, items and noise, so differences vary less than values. The seeds of
        `Ratings` are splits of the same users: there a p-value says how sure a difference is for these users, not for others.

        Parameters
        ----------
        policy, other
            The names of the policies. Without `other` the policy is compared with each of the others, and
            `Comparison.p_holm` is corrected for the number of comparisons.
        value
            "regret" or "reward".

        >>> import sclub
        >>> world = sclub.lab.Synthetic(users=20, clusters=2, dim=4)
        >>> results = sclub.lab.run(world, ["sclub", "random"], rounds=1000, seeds=10, progress=False)
        >>> found = results.compare("sclub", "random")
        >>> found.difference < 0 and found.p < 0.01
        True
        """
        if value not in ("regret", "reward"):
            raise ValueError(f"value is {value!r}; it must be 'regret' or 'reward'")
        if other is not None:
            return self._compared(policy, other, value)
        others = [name for name in self.policies if name != policy]
        return corrected([self._compared(policy, name, value) for name in others])

    def _compared(self, policy: str, other: str, value: str) -> Comparison:
        if policy == other:
            raise ValueError(f"policy '{policy}' cannot be compared with itself")
        ours = {run.seed: getattr(run, value) for run in self.of(policy)}
        theirs = {run.seed: getattr(run, value) for run in self.of(other)}
        seeds = [seed for seed in ours if seed in theirs]
        if len(seeds) < 2:
            raise ValueError(
                f"'{policy}' and '{other}' have {many(len(seeds), 'seed')} in common; a paired test needs 2 or more"
            )
        return paired(
            policy, other, value, [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]
        )

    def to_latex(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        columns: Sequence[str] | None = None,
        bold: bool = True,
        digits: int = 1,
        caption: str | None = None,
        label: str | None = None,
    ) -> str:
        """A table of LaTeX: means over the seeds, ± standard errors, the best in bold.

        It needs ``\\usepackage{booktabs}``. Policies that know the world are never in bold.

        Parameters
        ----------
        path
            The file to write to, if any.
        columns
            Some of "regret", "reward", "clusters", "adjusted_rand" and "policy_seconds"; by default the first
            four as far as there are values.
        bold
            False leaves the best values as they are.
        digits
            The number of digits behind the point.
        caption, label
            They make it a ``table`` environment.
        """
        from ._lab_latex import latex

        text = latex(
            self._summary(), columns=columns, bold=bold, digits=digits, caption=caption, label=label
        )
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def to_frame(self) -> pd.DataFrame:
        """A DataFrame of one row a run, without curves."""
        frames = pandas()
        left_out = {"curve", "even_curve", "clustering", "by_age", "messages"}
        names = [item.name for item in fields(Run) if item.name not in left_out]
        rows = [[getattr(run, name) for name in names] for run in self]
        kinds = {"clusters": "Int64", "adjusted_rand": "float64", "state_bytes": "Int64"}
        frame: pd.DataFrame = frames.DataFrame(rows, columns=names).astype(kinds)
        return frame

    def curves(self) -> pd.DataFrame:
        """A DataFrame of the regret so far at equal distances: policy, seed, round, regret."""
        rows = [
            (run.policy, run.seed, round, regret)
            for run in self
            for round, regret in run.even_curve
        ]
        columns = ["policy", "seed", "round", "regret"]
        frame: pd.DataFrame = pandas().DataFrame(rows, columns=columns)
        return frame

    def summary(self) -> pd.DataFrame:
        """A DataFrame of one row a policy: means over the seeds, and standard errors of regret and reward.

        A single seed has no standard error: it is NaN.
        """
        rows = self._summary()
        frame: pd.DataFrame = pandas().DataFrame(rows).set_index("policy")
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
        ax: Axes | str | os.PathLike[str] | None = None,
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
            The axes to draw in; a new figure by default. Or a file to save a new figure to, in the format of
            its ending: "regret.pdf", "regret.svg", "regret.png" and others that matplotlib writes.
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
        from ._lab_plot import draw, saved

        if isinstance(ax, (str, os.PathLike)):
            with saved(ax) as axes:
                return draw(self, axes, value=value, scale=scale, band=band, legend=legend)
        return draw(self, ax, value=value, scale=scale, band=band, legend=legend)

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a file, as ``sclub run --json`` does."""
        document = {
            "complete": len(self) == len(self.policies) * len({run.seed for run in self}),
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


def pandas() -> Any:
    """The module pandas, which is optional."""
    try:
        import pandas as module
    except ImportError:
        raise ImportError("tables need pandas: pip install pandas") from None
    return module
