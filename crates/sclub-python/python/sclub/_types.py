"""What policies say about themselves."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Assumptions(TypedDict):
    """What Theorem 1 supposes known, for preset ``"theory"``."""

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
class Scores:
    """How some items are ranked for a user: ``score = mean + width``, an array each."""

    score: NDArray[np.float64]
    mean: NDArray[np.float64]
    width: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Cluster:
    """Users who are believed alike."""

    #: Its number; a number is never used again.
    label: int
    #: Who belongs to it.
    users: list[Hashable]
    #: Observations of all of them.
    count: int
    #: The weight vector that they are recommended from.
    estimate: NDArray[np.float64]

    def __repr__(self) -> str:
        return f"<Cluster {self.label}: {len(self.users)} users, {self.count} observations>"


@dataclass(frozen=True)
class Comparison:
    """The two sides of an inequality."""

    #: How far apart two things are.
    distance: float
    #: How far apart they may be.
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
    """How much a user seems to belong to one cluster."""

    cluster: int
    #: How probable it is before any of her observations.
    share: float
    #: What her observations say: the logarithm of how many times likelier they are in this cluster
    #: than in none.
    evidence: float
    #: How probable it is given both.
    probability: float


@dataclass(frozen=True)
class Placement:
    """Where a user seems to belong."""

    #: The clusters, the most probable first.
    places: list[Place]
    #: The probability that she is in none of them.
    none: float
    #: Whether recommendations use the clusters.
    used: bool


@dataclass(frozen=True, eq=False)
class Explanation:
    """What a policy knows and thinks about a user."""

    user: Hashable
    #: How often she has appeared.
    count: int
    #: The cluster that a recommendation would be made from; 0 where there is none.
    cluster: int
    #: The weight vector that a recommendation would be made from.
    estimate: NDArray[np.float64]
    #: The one from her own observations alone, where a policy keeps it and she has appeared.
    own_estimate: NDArray[np.float64] | None
    #: Probabilities of clusters, where a policy knows them.
    placement: Placement | None
    #: How the items that were asked about are ranked.
    scores: Scores | None


@dataclass(frozen=True)
class Outlook:
    """How a clustering does as a whole, as of its last fit unless said."""

    #: Fits taken so far.
    fits: int
    #: Rounds learned when the last one was made.
    fitted_at: int
    #: Clusters found.
    clusters: int
    #: (rounds, clusters) of fits so far, the oldest thinned out.
    history: list[tuple[int, int]]
    #: Share of the users whom no cluster has with a probability of one half or more.
    unplaced: float
    #: How many numbers the data have settled, of users times features.
    effective_parameters: float
    #: The variance of a reward around its mean, as estimated.
    noise: float
    #: By how many nats recent rewards were better predicted with clusters than without, as of now.
    gain: float
    #: Whether recommendations use the clusters.
    used: bool
    #: What somebody should know, such as that clustering is buying nothing.
    warning: str | None
