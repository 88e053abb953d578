"""What other policies would have earned, from the log of a service."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._lab_progress import Progress, watching
from ._sclub import lab_evaluate

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Estimate", "Evaluation", "PolicyValue", "evaluate"]

_ESTIMATORS = ("dr", "snips", "ips", "replay")


@dataclass(frozen=True)
class Estimate:
    """An estimate of the mean reward of an item shown, with its 95% interval."""

    #: The estimate.
    value: float
    #: Its standard error.
    error: float
    #: The lower end of the interval.
    low: float
    #: The upper end of the interval.
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


@dataclass(frozen=True)
class PolicyValue:
    """The estimates of the value of a policy. An estimate is None if the log cannot give it."""

    #: The name of the policy.
    policy: str
    #: Doubly robust.
    dr: Estimate | None
    #: Self-normalised inverse propensity scoring.
    snips: Estimate | None
    #: Inverse propensity scoring.
    ips: Estimate | None
    #: The mean reward of the rounds in which the policy chose what was shown. None for logs with lists.
    replay: Estimate | None
    #: The number of rounds that replay accepted.
    accepted: int
    #: The effective sample size, in rounds.
    effective: float
    #: The number of rewards that decide the width of the intervals.
    deciding: float
    #: The mean weight, near 1 if the log covers the choices of the policy.
    mean_weight: float
    #: The standard error of the mean weight.
    weight_error: float
    #: The reasons why the log cannot tell, in words; empty if it can.
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of several policies on a log."""

    #: The number of decisions.
    decisions: int
    #: The number of users.
    users: int
    #: The number of items.
    items: int
    #: The mean reward of the items that were shown.
    logged: Estimate
    #: What was left out and why, in words.
    notes: tuple[str, ...]
    #: The policies, by name.
    policies: dict[str, PolicyValue]

    def to_frame(self) -> pd.DataFrame:
        """A row for each policy and estimator, as a pandas DataFrame."""
        import pandas as pd

        rows = []
        for policy in self.policies.values():
            for estimator in _ESTIMATORS:
                estimate = getattr(policy, estimator)
                row = {"policy": policy.policy, "estimator": estimator}
                if estimate is not None:
                    row |= vars(estimate)
                rows.append(row | {"effective": policy.effective, "can_tell": not policy.warnings})
        columns = ["policy", "estimator", "value", "error", "low", "high", "effective", "can_tell"]
        return pd.DataFrame(rows, columns=columns)

    def __str__(self) -> str:
        lines = [
            f"{self.decisions} decisions of {self.users} users over {self.items} items; "
            f"the mean reward of an item shown is {self.logged.value:.4f} ± {self.logged.error:.4f}"
        ]
        lines += [f"note: {note}" for note in self.notes]
        head = ["policy", *_ESTIMATORS, "effective rounds"]
        table = [head]
        for policy in self.policies.values():
            estimates = [getattr(policy, estimator) for estimator in _ESTIMATORS]
            cells = ["–" if estimate is None else str(estimate) for estimate in estimates]
            table.append([policy.policy, *cells, f"{policy.effective:.0f}"])
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for row in table:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            lines.append("  ".join(cells).rstrip())
        for policy in self.policies.values():
            lines += [f"{policy.policy}: {warning}" for warning in policy.warnings]
        return "\n".join(lines)


def evaluate(
    log: str | os.PathLike[str],
    policies: str | Sequence[str] = ("sclub-soft", "sclub", "linucb-one", "linucb-ind", "random"),
    *,
    items: str | os.PathLike[str] | None = None,
    unanswered: float | None = None,
    by_position: bool = False,
    seed: int = 1,
    threads: int | None = None,
    progress: bool | Progress | None = None,
) -> Evaluation:
    """Estimates what other policies would have earned, from the log of the one that was in force.

    The same as ``sclub evaluate``, with the same numbers. ``docs/evaluate.md`` explains the estimators, and when a log
    cannot tell.

    Parameters
    ----------
    log : path
        The log: JSON lines as ``sclub export`` writes them, plain, gzip or zstd.
    policies : sequence of str
        The names of built-in policies, or one name.
    items : path, optional
        The catalogue: JSON lines with id, features, and the tags, data and availability that filters look at. Without it
        the items of the log are all there are.
    unanswered : float, optional
        The reward of items shown that have none. By default they are left out.
    by_position : bool
        Count an item only where the policy would have shown it at the same position, for rewards that depend on it.
    seed : int
        The seed of random draws.
    threads : int, optional
        Threads to use; by default all cores. The results are the same with any number.
    progress : bool or function, optional
        False for no bar, or a function that is called with the rounds played and the rounds in all.

    Returns
    -------
    Evaluation

    Raises
    ------
    ValueError
        A line is malformed, a policy is unknown, or no decision has a reward and a propensity.
    OSError
        A file cannot be read.

    Examples
    --------
    >>> import json, pathlib, random, tempfile
    >>> import sclub
    >>> draw, lines = random.Random(1), []
    >>> for decision in range(1000):
    ...     item = draw.choice(["tea", "coffee"])
    ...     reward = float(draw.random() < {"tea": 0.7, "coffee": 0.3}[item])
    ...     features = [1.0, 0.0] if item == "tea" else [0.0, 1.0]
    ...     line = {"decision": decision, "user": "anna", "item": item, "position": 0}
    ...     lines.append(json.dumps(line | {"propensity": 0.5, "features": features, "reward": reward}))
    >>> log = pathlib.Path(tempfile.mkdtemp()) / "log.jsonl"
    >>> _ = log.write_text("\\n".join(lines))
    >>> value = sclub.evaluate(log, ["linucb-one", "random"], progress=False).policies
    >>> value["linucb-one"].dr.low > value["random"].dr.high
    True
    """
    names = _names(policies)
    if unanswered is not None and not math.isfinite(unanswered):
        raise ValueError(f"unanswered is {unanswered}; a finite number is expected")
    options: dict[str, object] = {
        "items": None if items is None else os.fspath(items),
        "unanswered": unanswered,
        "by_position": by_position,
        "seed": seed,
        "threads": threads,
    }
    with watching(progress) as watch:
        report = json.loads(lab_evaluate(os.fspath(log), names, options, watch))
    return Evaluation(
        decisions=report["decisions"],
        users=report["users"],
        items=report["items"],
        logged=Estimate(**report["logged"]),
        notes=tuple(report["notes"]),
        policies={one["policy"]: _value(one) for one in report["policies"]},
    )


def _names(policies: str | Sequence[str]) -> list[str]:
    if isinstance(policies, str):
        return [policies]
    if isinstance(policies, bytes) or not isinstance(policies, Iterable):
        kind = type(policies).__name__
        raise TypeError(f"policies: a list of names is expected, not {kind}")
    names = list(policies)
    if not names:
        raise ValueError("policies is empty; there must be at least one")
    for name in names:
        if not isinstance(name, str):
            kind = f"the class {name.__name__}" if isinstance(name, type) else type(name).__name__
            raise TypeError(
                f"policies: names of built-in policies are expected, such as 'linucb-ind', not {kind}; docs/python-interop.md "
                "has the evaluation of other policies, with sclub.ope"
            )
    return names


def _value(one: dict[str, Any]) -> PolicyValue:
    estimates = {name: one[name] and Estimate(**one[name]) for name in _ESTIMATORS}
    return PolicyValue(**one | estimates | {"warnings": tuple(one["warnings"])})
