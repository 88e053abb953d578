"""Dataclasses that policies take and return."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray


class Assumptions(TypedDict):
    """The assumptions of Theorem 1, for preset ``"theory"``."""

    #: The sub-Gaussian scale of the noise: 1/2 for rewards of 0 or 1.
    noise: float
    #: A lower bound on the eigenvalues of E[x xᵀ], in (0, 1].
    smallest_eigenvalue: float
    #: The number of rounds.
    horizon: int
    #: The number of clusters.
    clusters: int
    #: The number of users.
    users: int


@dataclass(frozen=True, eq=False)
class ShownList:
    """A list of items that a user was shown, and the rewards that came back, for `Policy.learn_lists`.

    >>> import sclub
    >>> films = [[0.6, 0.8], [1.0, 0.0], [0.0, 1.0]]
    >>> shown = sclub.ShownList("anna", films, rewards=[0.0, 1.0, None], looked_at=2)
    """

    user: Hashable
    #: The features of the items, one row an item, in the order in which they were shown.
    items: ArrayLike
    #: The reward of each item; None where it is not known.
    rewards: Sequence[float | None] | ArrayLike
    #: The number of items, from the first, that the user looked at; None where that is not known. Items
    #: behind them are not learned from, unless the policy is one for lists.
    looked_at: int | None = None
    #: The ids of the items, as of `Items`.
    ids: Sequence[Hashable] | None = None


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of some items for a user: ``score = mean + width``, an array each."""

    score: NDArray[np.float64]
    mean: NDArray[np.float64]
    width: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Cluster:
    """Users that the policy treats as alike."""

    #: Its id.
    label: int
    #: Its users.
    users: list[Hashable]
    #: The number of their observations.
    count: int
    #: The weight vector that their recommendations are made from.
    estimate: NDArray[np.float64]

    def __repr__(self) -> str:
        return f"<Cluster {self.label}: {len(self.users)} users, {self.count} observations>"


@dataclass(frozen=True)
class Comparison:
    """The two sides of an inequality."""

    #: The distance between two estimates or frequencies.
    distance: float
    #: The largest distance allowed.
    threshold: float


@dataclass(frozen=True)
class Split:
    """Users left a cluster and form a new one."""

    source: int
    into: int
    users: int
    #: The estimates that were too far apart, if that is why.
    estimates: Comparison | None
    #: The frequencies that were too far apart, if that is why.
    frequencies: Comparison | None


@dataclass(frozen=True)
class Merge:
    """Two clusters became one."""

    kept: int
    gone: int
    estimates: Comparison | None
    frequencies: Comparison | None


@dataclass(frozen=True)
class Place:
    """The probability that a user belongs to a cluster."""

    cluster: int
    #: The probability before any observation of the user.
    share: float
    #: The log likelihood ratio of the user's observations: this cluster against none.
    evidence: float
    #: The probability given both.
    probability: float


@dataclass(frozen=True)
class Placement:
    """The probabilities of the clusters for a user."""

    #: The clusters, the most probable first.
    places: list[Place]
    #: The probability of none of them.
    none: float
    #: Whether recommendations use the clusters.
    used: bool


@dataclass(frozen=True, eq=False)
class Explanation:
    """The state of a user in a policy."""

    user: Hashable
    #: The number of observations of the user.
    count: int
    #: The cluster that a recommendation would be made from; 0 if the policy has no clusters, or none for the user.
    cluster: int
    #: The weight vector that a recommendation would be made from.
    estimate: NDArray[np.float64]
    #: The one from the user's own observations alone; None where the policy keeps none, or the user is new.
    own_estimate: NDArray[np.float64] | None
    #: Probabilities of clusters; None where the policy has none.
    placement: Placement | None
    #: The scores of the items that were asked about; None where there were none.
    scores: Scores | None


@dataclass(frozen=True)
class Outlook:
    """The quality of a clustering as a whole, as of its last fit unless stated otherwise."""

    #: The number of fits so far.
    fits: int
    #: The number of rounds learned when the last one was made.
    fitted_at: int
    #: The number of clusters.
    clusters: int
    #: (rounds, clusters) of fits so far, the oldest thinned out.
    history: list[tuple[int, int]]
    #: The share of users that belong to no cluster with probability 1/2 or more.
    unplaced: float
    #: The effective number of parameters, of users times features.
    effective_parameters: float
    #: The estimated variance of a reward around its mean.
    noise: float
    #: The gain in log likelihood (nats) of recent rewards with clusters over without, as of now.
    gain: float
    #: Whether recommendations use the clusters.
    used: bool
    #: A warning for the operator, such as that clusters do not help; None if there is no warning.
    warning: str | None
