"""Any policy over a fixed list of arms, with the methods of scikit-learn and MABWiser."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from ._lab_checks import is_or_are, many
from ._policies import policy_classes
from ._sclub import Items, Policy, _check_users, item_id

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["Recommender"]

#: The parameters that are not constants of a policy.
_OWN = ("arms", "features", "policy")


class Recommender:
    """Recommends arms of a fixed list to users, and learns from their rewards.

    The order of arguments is MABWiser's: decisions, rewards, contexts. The contexts are the users.
    Parameters are scikit-learn's: stored as they are given, looked at by `fit`, and copied by
    `sklearn.base.clone`. A bandit recommends before it has learned anything, so nothing has to be
    fitted first.

    Policies get the arms as item ids (`sclub.item_id`), if all arms are numbers, strings, bytes, None or
    tuples of such.

    Parameters
    ----------
    arms : sequence of hashables
        The arms, each once.
    features : array of shape (len(arms), d), or DataFrame
        One row an arm, in the order of `arms`. Rows of a DataFrame whose index holds the arms are
        found by it, in any order.
    policy : str
        The name of a policy, one of `sclub.policy_classes`. Sclub and Club assume that items vary from
        round to round: with the same few arms in every round they are slow to find clusters, and other
        policies do better.
    **constants
        Arguments of the policy's class by name, such as ``beta=0.5``. None stands for its default.

    Attributes
    ----------
    policy_ : Policy
        The policy itself, for example for `policy_.clusters()` and `policy_.explain(user)`.
    arms_ : list
        The arms to choose from.
    features_ : array of shape (n, d), a row for each arm
        Their features.

    Examples
    --------
    >>> from sclub.recommender import Recommender
    >>> drinks = Recommender(["tea", "coffee"], [[1.0, 0.0], [0.0, 1.0]], policy="linucb-ind")
    >>> drinks.partial_fit(["tea", "coffee"] * 5, [1, 0] * 5, ["anna"] * 10)
    Recommender(2 arms, policy='linucb-ind')
    >>> drinks.recommend("anna", k=2)
    ['tea', 'coffee']
    >>> drinks.predict(["anna", "anna"])
    ['tea', 'tea']
    """

    policy_: Policy
    _arms: _Arms

    def __init__(
        self, arms: Any, features: Any, policy: str = "sclub-soft", **constants: Any
    ) -> None:
        self.arms = arms
        self.features = features
        self.policy = policy
        self.constants = constants

    # Parameters.

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name, the constants among them.

        >>> from sclub.recommender import Recommender
        >>> Recommender(["tea"], [[1.0]], policy="sclub", beta=0.5).get_params()
        {'arms': ['tea'], 'features': [[1.0]], 'policy': 'sclub', 'beta': 0.5}
        """
        return {name: getattr(self, name) for name in _OWN} | self.constants

    def set_params(self, **params: Any) -> Recommender:
        """Sets parameters by name. What has been learned stays as it is until the next `fit`."""
        for name in _OWN:
            if name in params:
                setattr(self, name, params.pop(name))
        self.constants = self.constants | params
        return self

    def __repr__(self) -> str:
        try:
            arms = many(len(self.arms), "arm")
        except TypeError:
            arms = f"arms={self.arms!r}"
        constants = "".join(f", {name}={value!r}" for name, value in self.constants.items())
        return f"Recommender({arms}, policy={self.policy!r}{constants})"

    def __sklearn_tags__(self) -> Any:
        # Asked for by scikit-learn alone, from 1.6 on: it need not be there for anything else.
        utils: Any = import_module("sklearn.utils")
        return utils.Tags(estimator_type=None, target_tags=utils.TargetTags(required=True))

    # Learning.

    def fit(
        self, decisions: Iterable[Any], rewards: ArrayLike, contexts: Iterable[Any]
    ) -> Recommender:
        """Starts anew and learns from logged decisions, in their order.

        Parameters
        ----------
        decisions : sequence of n arms
            The arm that was shown.
        rewards : array of n floats
            Its reward.
        contexts : sequence of n hashables
            The user it was shown to.

        Returns
        -------
        Recommender
            Itself.
        """
        arms = _Arms(self.arms, self.features)
        policy = _made(self.policy, arms.items.dim, self.constants)
        _learn(policy, arms, decisions, rewards, contexts)
        # Only now, so that a call that raises has changed nothing.
        self.policy_, self._arms = policy, arms
        return self

    def partial_fit(
        self, decisions: Iterable[Any], rewards: ArrayLike, contexts: Iterable[Any]
    ) -> Recommender:
        """Learns further decisions, each as a round of its own, without starting anew."""
        self._start()
        _learn(self.policy_, self._arms, decisions, rewards, contexts)
        return self

    # Recommending.

    def predict(self, contexts: Iterable[Any]) -> Any:
        """The arm to show to each of some users, all on the same history.

        As in MABWiser the answer is a list for several users, and the arm itself for one. Where the
        number of users is not known beforehand, `policy_.recommend_many` is the method to use, or
        `recommend` for one after another.

        Parameters
        ----------
        contexts : sequence of n hashables
            The users, known or not.

        Returns
        -------
        list of n arms, or one arm

        Examples
        --------
        >>> from sclub.recommender import Recommender
        >>> drinks = Recommender(["tea", "coffee"], [[1.0, 0.0], [0.0, 1.0]], "linucb-ind")
        >>> drinks.fit(["tea", "coffee"], [0.0, 1.0], ["anna", "anna"]).predict(["anna"])
        'coffee'
        """
        chosen = [self._arms.ids[row] for row in self._rows(_users(contexts))]
        return chosen[0] if len(chosen) == 1 else chosen

    def predict_expectations(self, contexts: Iterable[Any]) -> Any:
        """The expected reward of every arm, for each of some users.

        These are means alone. `predict` adds the uncertainty of each mean, and so may choose another
        arm than the one with the highest mean.

        Returns
        -------
        list of n dicts of arm to float, or one dict
            One dict for one user, as in MABWiser.
        """
        self._start()
        arms = self._arms
        means = (self.policy_.scores(user, arms.items).mean for user in _users(contexts))
        expected = [dict(zip(arms.ids, mean.tolist(), strict=True)) for mean in means]
        return expected[0] if len(expected) == 1 else expected

    def recommend(self, user: Hashable, k: int = 10, *, exclude: Iterable[Any] = ()) -> list[Any]:
        """The best `k` arms for a user, the best first.

        Parameters
        ----------
        user : hashable
            Known or not.
        k : int
            The number of arms; fewer are returned where there are fewer.
        exclude : iterable of arms
            Arms to leave out.
        """
        self._start()
        arms = self._arms
        without = arms.find(exclude, "exclude")
        rows = self.policy_.best(user, arms.items, k, exclude=without)
        return [arms.ids[row] for row in rows]

    def score(self, decisions: Iterable[Any], rewards: ArrayLike, contexts: Iterable[Any]) -> float:
        """The mean reward of a decision, estimated by replay.

        The mean reward of the logged decisions that the policy would make too, on its present state.
        Others are left out, and nothing is learned. The estimate is unbiased only where the logged
        decisions were uniformly random; for others see `sclub.ope`. It is noisy with few matching
        decisions, and nan with none.

        Examples
        --------
        >>> from sclub.recommender import Recommender
        >>> drinks = Recommender(["tea", "coffee"], [[1.0, 0.0], [0.0, 1.0]], "linucb-ind")
        >>> drinks = drinks.fit(["tea", "coffee"], [0.0, 1.0], ["anna", "anna"])
        >>> drinks.score(["tea", "coffee", "coffee"], [0.0, 1.0, 0.5], ["anna", "anna", "anna"])
        0.75
        """
        self._start()
        users = _users(contexts)
        logged = self._arms.find(decisions, "decisions")
        earned = _rewards(rewards)
        _same_length(users, decisions=len(logged), rewards=len(earned))
        matched = self._rows(users) == np.asarray(logged, dtype=np.int64)
        return float(earned[matched].mean()) if matched.any() else float("nan")

    # Arms.

    def add_arm(self, arm: Hashable, features: ArrayLike) -> None:
        """Adds an arm, from now on and for fits to come. What has been learned stays.

        Parameters
        ----------
        arm : hashable
        features : array of shape (d,)
        """
        self._start()
        row = np.asarray(features, dtype=np.float64)
        width = self._arms.items.dim
        if row.shape != (width,):
            raise ValueError(f"features: an array of shape ({width},) is expected, got {row.shape}")
        self._change([*self._arms.ids, arm], np.vstack([self._arms.features, row]))

    def remove_arm(self, arm: Hashable) -> None:
        """Removes an arm. What has been learned from it stays: it says something about users."""
        self._start()
        (place,) = self._arms.find([arm], "arm")
        if len(self._arms.ids) == 1:
            raise ValueError(f"arm: {arm!r} is the last one; one arm must stay")
        ids = [kept for kept in self._arms.ids if kept != arm]
        self._change(ids, np.delete(self._arms.features, place, axis=0))

    @property
    def arms_(self) -> list[Any]:
        """The arms to choose from."""
        self._start()
        return list(self._arms.ids)

    @property
    def features_(self) -> NDArray[np.float64]:
        """Their features, one row an arm."""
        self._start()
        return np.array(self._arms.features)

    # Internals.

    def _start(self) -> None:
        """Makes the policy, unless that is done."""
        if not hasattr(self, "policy_"):
            arms = _Arms(self.arms, self.features)
            self.policy_ = _made(self.policy, arms.items.dim, self.constants)
            self._arms = arms

    def _change(self, ids: list[Any], features: NDArray[np.float64]) -> None:
        self._arms = _Arms(ids, features)
        # Fits to come and clones have them too.
        self.arms, self.features = ids, features

    def _rows(self, users: list[Any]) -> NDArray[np.int64]:
        self._start()
        return self.policy_.recommend_many(users, self._arms.items)


class _Arms:
    """Validated arms: their positions, and their features laid out for scoring."""

    def __init__(self, arms: Any, features: Any) -> None:
        self.ids = _plain(arms, "arms", "arms")
        if not self.ids:
            raise ValueError("arms: there must be at least one")
        self.places: dict[Any, int] = {}
        for place, arm in enumerate(self.ids):
            try:
                first = self.places.setdefault(arm, place)
            except TypeError as why:
                raise TypeError(f"arms: {arm!r} cannot be one: {why}") from None
            if first != place:
                raise ValueError(f"arms: {arm!r} is there twice; each arm must be there once")
        if hasattr(features, "reindex") and hasattr(features, "loc"):
            features = _by_label(self.ids, features)
        try:
            # A copy: the caller may change the original, and both scores and learning use these.
            self.features: NDArray[np.float64] = np.array(features, dtype=np.float64)
        except (TypeError, ValueError) as why:
            raise TypeError(f"features: it cannot be made an array of floats: {why}") from None
        shape = self.features.shape
        if len(shape) != 2:
            raise ValueError(f"features: an array of shape (arms, d) is expected, got {shape}")
        if shape[0] != len(self.ids):
            rows, arms = many(shape[0], "row"), many(len(self.ids), "arm")
            raise ValueError(f"features: there {is_or_are(shape[0])} {rows} for {arms}")
        self.items = Items(self.features, _item_ids(self.ids))

    def find(self, wanted: Any, argument: str) -> list[int]:
        """The positions of some arms."""
        places = self.places
        try:
            return [places[arm] for arm in _plain(wanted, argument, "arms")]
        except KeyError as unknown:
            raise ValueError(f"{argument}: unknown arm {unknown.args[0]!r}") from None


def _made(policy: str, dim: int, constants: Mapping[str, Any]) -> Policy:
    if not isinstance(policy, str) or policy not in policy_classes:
        raise ValueError(f"policy: unknown policy {policy!r}; use one of {', '.join(policy_classes)}")
    kind = policy_classes[policy]
    given = {name: value for name, value in constants.items() if value is not None}
    if "dim" in given:
        raise TypeError("dim: it cannot be given; it is the number of columns of features")
    known = inspect.signature(kind).parameters
    for name in given:
        if name not in known:
            there = ", ".join(one for one in known if one != "dim")
            raise TypeError(f"{name}: policy {policy!r} has no such parameter; it has {there}")
    try:
        return kind(dim, **given)
    except TypeError as why:
        raise TypeError(f"policy {policy!r}: {why}") from None


def _by_label(arms: list[Any], frame: Any) -> Any:
    """The rows of a DataFrame in the order of the arms."""
    index = frame.index
    labels = index.tolist()
    if labels == arms:
        return frame
    if set(arms) <= set(labels):
        if labels == list(range(len(labels))):
            # A DataFrame that was given no index has this one: it may mean places or arms.
            raise ValueError(
                "features: the arms are numbers of rows in another order; "
                "an array has its rows in the order of arms"
            )
        if not index.is_unique:
            raise ValueError("features: an arm is in the index twice")
        return frame.loc[arms]
    if labels == list(range(len(labels))):
        return frame
    missing = next(arm for arm in arms if arm not in set(labels))
    raise ValueError(f"features: the index does not have the arm {missing!r}")


def _learn(policy: Policy, arms: _Arms, decisions: Any, rewards: Any, contexts: Any) -> None:
    users = _users(contexts)
    rows = arms.find(decisions, "decisions")
    earned = _rewards(rewards)
    _same_length(users, decisions=len(rows), rewards=len(earned))
    if rows:
        ids = arms.items.ids
        shown = None if ids is None else [ids[row] for row in rows]
        policy.learn_many(users, arms.features[rows], earned, ids=shown)


def _item_ids(arms: list[Any]) -> list[int] | None:
    """The item ids of the arms; None where an arm is an object that cannot be one."""
    try:
        return [item_id(arm) for arm in arms]
    except (TypeError, ValueError):
        return None


def _plain(several: Any, argument: str, what: str) -> list[Any]:
    """A list of plain Python objects."""
    if isinstance(several, str | bytes):
        raise TypeError(f"{argument}: several {what} are expected, not one string")
    dimensions = getattr(several, "ndim", 1)
    if dimensions == 2 and several.shape[1] == 1:
        # One column, as contexts are elsewhere.
        several = np.asarray(several)[:, 0]
    elif dimensions != 1:
        raise ValueError(f"{argument}: one of the {what} a row is expected, got {several.shape}")
    if hasattr(several, "tolist"):
        return list(several.tolist())
    try:
        return list(several)
    except TypeError:
        raise TypeError(f"{argument}: several {what} are expected, got {several!r}") from None


def _users(contexts: Any) -> list[Any]:
    users = _plain(contexts, "contexts", "users")
    for user in users:
        try:
            hash(user)
        except TypeError as why:
            raise TypeError(f"contexts: {user!r} cannot be a user: {why}") from None
    _check_users(users, "contexts")
    return users


def _rewards(rewards: Any) -> NDArray[np.float64]:
    try:
        earned = np.asarray(rewards, dtype=np.float64)
    except (TypeError, ValueError) as why:
        raise TypeError(f"rewards: it cannot be made an array of floats: {why}") from None
    if earned.ndim != 1:
        raise ValueError(f"rewards: an array of shape (n,) is expected, got {earned.shape}")
    wrong = np.flatnonzero(~np.isfinite(earned))
    if len(wrong):
        raise ValueError(f"rewards: number {wrong[0]} is {earned[wrong[0]]}")
    return earned


def _same_length(users: list[Any], **lengths: int) -> None:
    for argument, length in lengths.items():
        if length != len(users):
            contexts = many(len(users), "context")
            raise ValueError(f"{argument}: there {is_or_are(length)} {length} for {contexts}")
