"""Online clustering of bandits: recommend items, and learn on the way which users are alike.

=====================  ====================================================================
`policy_classes`       a class for each policy, by the policy's name; a list of them is below
`LinUcb`               LinUCB for each user, for all users together, or for groups that you know
`ItemFeatures`         vectors of items from titles, tags and prices
`Recommender`          any of them over a fixed list of items, with `partial_fit` and `predict`
`evaluate`             what other policies would have earned, from the log of a service
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

from . import _policies, lab, ope
from ._evaluate import Estimate, Evaluation, PolicyValue, evaluate
from ._policies import *
from ._sclub import Items, LinUcb, Policy, __version__, item_id, load
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
    ShownList,
    Split,
)
from .client import (
    AsyncClient,
    Client,
    Conflict,
    ConnectionFailed,
    Event,
    Forbidden,
    Gone,
    InternalError,
    Invalid,
    NoCandidates,
    NotFound,
    RateLimited,
    Recommendation,
    Scored,
    ServiceError,
    TimedOut,
    Unauthorized,
    Unavailable,
    Unsupported,
    WrongHost,
)
from .features import ItemFeatures
from .recommender import Recommender

__all__ = [
    "Assumptions",
    "AsyncClient",
    "Client",
    "Cluster",
    "Comparison",
    "Conflict",
    "ConnectionFailed",
    "Estimate",
    "Evaluation",
    "Event",
    "Explanation",
    "Forbidden",
    "Gone",
    "InternalError",
    "Invalid",
    "ItemFeatures",
    "Items",
    "LinUcb",
    "Merge",
    "NoCandidates",
    "NotFound",
    "Outlook",
    "Place",
    "Placement",
    "Policy",
    "PolicyValue",
    "RateLimited",
    "Recommendation",
    "Recommender",
    "Scored",
    "Scores",
    "ServiceError",
    "ShownList",
    "Split",
    "TimedOut",
    "Unauthorized",
    "Unavailable",
    "Unsupported",
    "WrongHost",
    "__version__",
    "evaluate",
    "item_id",
    "lab",
    "load",
    "ope",
]
__all__ += _policies.__all__
__doc__ = f"{__doc__}\n{_policies.__doc__}"
