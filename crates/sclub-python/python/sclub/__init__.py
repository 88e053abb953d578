"""Online clustering of bandits: recommend, and find out on the way who likes the same things.

=====================  ====================================================================
`Sclub`                sets of users, split and merged: the paper's algorithm
`SclubSoft`            clusters by probability, and only as far as they are worth it
`Club`                 connected components of a graph of users
`LinUcb`               each user alone, everybody together, or groups that you know
`Recommender`          any of them over a fixed list of items, with `partial_fit` and `predict`
`lab`                  worlds to compare policies in, also ones that you write
`Client`               a running `sclub serve`; `AsyncClient` is the same for asyncio
=====================  ====================================================================

>>> import numpy as np, sclub
>>> films = np.array([[0.6, 0.8, 1.0], [0.0, 1.0, 1.0]])
>>> policy = sclub.Sclub(dim=3)
>>> shown = policy.recommend("anna", films)
>>> policy.learn("anna", films[shown], reward=1.0)
"""

from __future__ import annotations

from . import lab, ope
from ._sclub import (
    Club,
    Gaussian,
    Items,
    LinUcb,
    LinucbInd,
    LinucbOne,
    Policy,
    Sclub,
    SclubSoft,
    __version__,
    load,
    policy_classes,
)
from ._types import (
    Assumptions,
    Cluster,
    Comparison,
    Explanation,
    Merge,
    Outlook,
    Place,
    Placement,
    Scores,
    Split,
)
from .client import (
    AsyncClient,
    Client,
    Conflict,
    ConnectionFailed,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Recommendation,
    Scored,
    ServiceError,
    Unauthorized,
    Unavailable,
)
from .recommender import Recommender

__all__ = [
    "Assumptions",
    "AsyncClient",
    "Client",
    "Club",
    "Cluster",
    "Comparison",
    "Conflict",
    "ConnectionFailed",
    "Explanation",
    "Forbidden",
    "Gaussian",
    "Gone",
    "Invalid",
    "Items",
    "LinUcb",
    "LinucbInd",
    "LinucbOne",
    "Merge",
    "NotFound",
    "Outlook",
    "Place",
    "Placement",
    "Policy",
    "Recommendation",
    "Recommender",
    "Sclub",
    "SclubSoft",
    "Scored",
    "Scores",
    "ServiceError",
    "Split",
    "Unauthorized",
    "Unavailable",
    "__version__",
    "lab",
    "load",
    "ope",
    "policy_classes",
]

# A class for each policy that is not named above.
for _class in policy_classes.values():
    globals().setdefault(_class.__name__, _class)
    if _class.__name__ not in __all__:
        __all__.append(_class.__name__)
del _class
