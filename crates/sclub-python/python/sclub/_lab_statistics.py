"""Paired tests of policies over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Comparison:
    """Two policies in the same worlds, seed by seed. `Results.compare` makes it."""

    #: The policy.
    policy: str
    #: The policy that it is compared with.
    other: str
    #: The value that is compared: "regret" or "reward".
    value: str
    #: The number of seeds that both policies have.
    seeds: int
    #: The mean over seeds of the policy's value minus the other's.
    difference: float
    #: The standard error of the difference.
    error: float
    #: The t statistic: the difference divided by its standard error.
    t: float
    #: The two-sided p-value of a paired t-test with ``seeds - 1`` degrees of freedom.
    p: float
    #: The p-value after Holm's correction for all comparisons made together.
    p_holm: float


def paired(
    policy: str, other: str, value: str, ours: Sequence[float], theirs: Sequence[float]
) -> Comparison:
    """The comparison of values that belong to the same seeds, place by place."""
    differences = [one - two for one, two in zip(ours, theirs)]
    count = len(differences)
    mean = math.fsum(differences) / count
    spread = math.fsum((difference - mean) ** 2 for difference in differences)
    error = math.sqrt(spread / (count - 1) / count)
    if error > 0:
        t = mean / error
        p = student_p(t, count - 1)
    else:
        # All differences are equal.
        t, p = (0.0, 1.0) if mean == 0 else (math.copysign(math.inf, mean), 0.0)
    return Comparison(policy, other, value, count, mean, error, t, p, p)


def corrected(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons with p-values by Holm's method, in the same order."""
    return [
        replace(one, p_holm=p) for one, p in zip(comparisons, holm([one.p for one in comparisons]))
    ]


def holm(values: Sequence[float]) -> list[float]:
    """Holm's step-down correction of p-values, in the same order."""
    order = sorted(range(len(values)), key=lambda place: values[place])
    result = [0.0] * len(values)
    highest = 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(values) - rank) * values[place]))
        result[place] = highest
    return result


def student_p(t: float, degrees: int) -> float:
    """The probability that Student's t is as far from 0 as this, on either side."""
    total = degrees + t * t
    return _incomplete_beta(degrees / 2, 0.5, degrees / total, t * t / total)


def _incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """The regularised incomplete beta function. `rest` is 1 - x, which may be too small to see in x."""
    if x <= 0:
        return 0.0
    if rest <= 0:
        return 1.0
    # The fraction converges fast on this side of the mean; the other side is its complement.
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, rest, x)
    logarithm = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)
    )
    return math.exp(logarithm) * _fraction(a, b, x) / a


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 + term * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + term / c
            c = c if abs(c) > tiny else tiny
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value
