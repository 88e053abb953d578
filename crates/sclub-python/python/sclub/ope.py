"""Off-policy evaluation: the value of a policy, estimated from the log of another one.

A policy of this package always chooses the item with the largest score, so that its log says nothing
about the other items. An `Explorer` shows a random item every so often and logs the probability of each
choice. From its log the value of other policies can be estimated, with the estimators of Open Bandit
Pipeline (https://github.com/st-tech/zr-obp): `Explorer.feedback` and `bandit_feedback` return its
`bandit_feedback`, and `action_dist` its `action_dist`. It need not be installed.

Limits of such an estimate:

- It holds for a policy that does not change. Evaluate a copy that has stopped learning
  (`copy.deepcopy`), on the users of the log.
- It is unbiased only for a policy that did not learn from the same log. Train it on other rounds.
- The policy that made the log may have learned meanwhile. Each logged probability must be the one at
  the time of the choice.
- Its variance grows with one over the smallest probability of a choice, epsilon / L. A small epsilon
  costs little reward, and gives a noisy estimate.
- Bootstrap intervals assume independent rounds. Returning users and a learning policy violate that a
  little.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ._lab_checks import is_or_are, many
from ._sclub import Items, Policy

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["Choice", "Explorer", "action_dist", "bandit_feedback"]


class Choice(NamedTuple):
    """A logged choice and its probability."""

    #: The row of the item.
    row: int
    #: The probability with which it was chosen.
    propensity: float
    #: Its position in the log.
    number: int


class Explorer:
    """A policy that shows a random item every so often, and keeps a log.

    With probability `epsilon` an item is drawn uniformly; else the policy chooses. The draw may be the
    policy's own choice too: its probability is 1 - epsilon + epsilon / L, and that of every other item
    epsilon / L.

    Parameters
    ----------
    policy : Policy
        The policy that chooses and learns. It is not copied.
    items : array of shape (L, d), or Items
        The candidates, the same in every round.
    epsilon : float
        The probability of a random item, above 0 and at most 1.
    seed : int or None
        The seed of the draws; None for another one every time.

    Examples
    --------
    >>> import sclub
    >>> from sclub.ope import Explorer
    >>> policy = sclub.LinUcb(dim=2)
    >>> explorer = Explorer(policy, [[1.0, 0.0], [0.0, 1.0]], epsilon=0.5, seed=7)
    >>> for _ in range(100):
    ...     choice = explorer.recommend("anna")
    ...     explorer.learn(choice, reward=float(choice.row))
    >>> explorer
    <Explorer of LinUcb epsilon=0.5 rounds=100 rewards=100>
    >>> log = explorer.feedback()
    >>> log["n_rounds"], log["n_actions"], sorted(set(log["pscore"].tolist()))
    (100, 2, [0.25, 0.75])

    The value of always showing the second item, by inverse propensities; the truth is 1:

    >>> bool(abs((log["reward"] * (log["action"] == 1) / log["pscore"]).mean() - 1.0) < 0.2)
    True
    """

    def __init__(
        self, policy: Policy, items: ArrayLike | Items, epsilon: float, seed: int | None = 0
    ) -> None:
        if not 0.0 < _number(epsilon, "epsilon") <= 1.0:
            raise ValueError(f"epsilon: it is {epsilon}; it must be above 0 and at most 1")
        self.policy = policy
        self.items = items if isinstance(items, Items) else Items(np.asarray(items))
        if len(self.items) == 0:
            raise ValueError("items: there must be at least one")
        self.epsilon = float(epsilon)
        self._random = np.random.default_rng(seed)
        self._features = self.items.to_numpy()
        self._users: list[Hashable] = []
        self._shown: list[int] = []
        self._greedy: list[int] = []
        self._rewards: list[float] = []

    def recommend(self, user: Hashable) -> Choice:
        """Chooses an item for a user, and logs the choice."""
        greedy = int(self.policy.recommend(user, self.items))
        row = greedy
        if self._random.random() < self.epsilon:
            row = int(self._random.integers(len(self.items)))
        self._users.append(user)
        self._shown.append(row)
        self._greedy.append(greedy)
        self._rewards.append(np.nan)
        return Choice(row, self._probability(row == greedy), len(self._users) - 1)

    def learn(self, choice: Choice, reward: float) -> None:
        """Learns the reward of a choice, once; rewards may come in any order."""
        number = choice.number
        if not 0 <= number < len(self._users) or self._shown[number] != choice.row:
            raise ValueError(f"choice: {choice} is not in this log; pass what recommend returned")
        if not np.isnan(self._rewards[number]):
            raise ValueError(f"choice: number {number} has its reward already")
        ids = self.items.ids
        item_id = None if ids is None else ids[choice.row]
        self.policy.learn(self._users[number], self._features[choice.row], reward, id=item_id)
        self._rewards[number] = float(reward)

    @property
    def users(self) -> list[Hashable]:
        """The user of each logged choice with a reward."""
        return [self._users[number] for number in self._known()]

    def feedback(
        self, context: Mapping[Any, ArrayLike] | Callable[[Any], ArrayLike] | None = None
    ) -> dict[str, Any]:
        """The log as Open Bandit Pipeline's `bandit_feedback`, in the order of the choices.

        Choices without a reward are left out. That is right where rewards are missing at random, such
        as those still to come. Where a missing reward means no click, learn a reward of 0.

        Parameters
        ----------
        context : mapping of user to vector, or function, optional
            The features of a user. Only models of the reward use them (the direct method, doubly
            robust). The default is one column with a number for each user, which models can make little of.

        Returns
        -------
        dict
            As `bandit_feedback` makes it, with the features of the items as `action_context` and
            all probabilities of every round as `pi_b`.

        Raises
        ------
        ValueError
            Where no choice has a reward yet.
        """
        rewards = np.array(self._rewards, dtype=np.float64)
        known = self._known()
        if not known:
            raise ValueError("the log has no rewards yet; call learn first")
        users = self.users
        shown = np.array(self._shown, dtype=np.int64)[known]
        greedy = np.array(self._greedy, dtype=np.int64)[known]
        pi_b = _epsilon_greedy(greedy, len(self.items), self.epsilon)
        if context is None:
            numbers: dict[Hashable, int] = {}
            rows: list[Any] = [[float(numbers.setdefault(user, len(numbers)))] for user in users]
        else:
            of = context.__getitem__ if isinstance(context, Mapping) else context
            rows = [of(user) for user in users]
        return bandit_feedback(
            shown,
            rewards[known],
            pi_b[np.arange(len(shown)), shown, 0],
            context=np.array(rows, dtype=np.float64).reshape(len(rows), -1),
            action_context=self._features,
            pi_b=pi_b,
        )

    def _known(self) -> list[int]:
        """The numbers of the choices that have their reward."""
        return [number for number, reward in enumerate(self._rewards) if reward == reward]

    def _probability(self, greedy: bool) -> float:
        drawn = self.epsilon / len(self.items)
        return 1.0 - self.epsilon + drawn if greedy else drawn

    def __len__(self) -> int:
        return len(self._users)

    def __repr__(self) -> str:
        name = type(self.policy).__name__
        known = len(self._known())
        return f"<Explorer of {name} epsilon={self.epsilon} rounds={len(self)} rewards={known}>"


def bandit_feedback(
    action: ArrayLike,
    reward: ArrayLike,
    propensity: ArrayLike,
    *,
    context: ArrayLike,
    action_context: ArrayLike,
    pi_b: ArrayLike | None = None,
) -> dict[str, Any]:
    """Logged decisions of any source as Open Bandit Pipeline's `bandit_feedback`.

    Parameters
    ----------
    action : array of n ints
        The row of the item that was shown.
    reward : array of n floats
    propensity : array of n floats
        The probability with which it was shown: above 0, at most 1.
    context : array of shape (n, c)
        The features of the user.
    action_context : array of shape (L, d)
        The features of the items.
    pi_b : array of shape (n, L, 1), optional
        The probabilities of all items, for estimators that need more than that of the one shown.

    Examples
    --------
    >>> from sclub.ope import bandit_feedback
    >>> log = bandit_feedback([0, 1], [1.0, 0.0], [0.9, 0.1], context=[[30.0], [41.0]],
    ...                       action_context=[[1.0, 0.0], [0.0, 1.0]])
    >>> log["n_rounds"], log["n_actions"], log["position"].tolist()
    (2, 2, [0, 0])
    """
    features = _floats(action_context, "action_context", 2)
    shown = np.asarray(action)
    if shown.ndim != 1 or not (np.issubdtype(shown.dtype, np.integer) or shown.size == 0):
        raise TypeError("action: rows of items are expected, one a round")
    n, items = len(shown), len(features)
    if n and not (0 <= shown.min() and shown.max() < items):
        raise ValueError(f"action: one of them is not a row of the items, 0 to {items - 1}")
    log: dict[str, Any] = {
        "n_rounds": n,
        "n_actions": items,
        "action": shown.astype(np.int64),
        "position": np.zeros(n, dtype=np.int64),
        "reward": _floats(reward, "reward", 1),
        "pscore": _floats(propensity, "propensity", 1),
        "context": _floats(context, "context", 2),
        "action_context": features,
    }
    for key, argument in [("reward", "reward"), ("pscore", "propensity"), ("context", "context")]:
        if len(log[key]) != n:
            there = len(log[key])
            raise ValueError(f"{argument}: there {is_or_are(there)} {there} for {many(n, 'action')}")
    if n and not (log["pscore"].min() > 0.0 and log["pscore"].max() <= 1.0):
        raise ValueError("propensity: it must be above 0 and at most 1")
    if pi_b is not None:
        log["pi_b"] = _floats(pi_b, "pi_b", 3)
        if log["pi_b"].shape != (n, items, 1):
            raise ValueError(f"pi_b: shape ({n}, {items}, 1) is expected, got {log['pi_b'].shape}")
    return log


def action_dist(
    policy: Policy, users: Sequence[Hashable], items: ArrayLike | Items, epsilon: float = 0.0
) -> NDArray[np.float64]:
    """With which probability a policy, as it is now, would show each item to each user.

    It is 1 for what the policy chooses and 0 for all else, or with `epsilon` what an `Explorer`
    around it would do. The policy learns nothing.

    Returns
    -------
    array of shape (n, L, 1)
        Open Bandit Pipeline's `action_dist`.

    Examples
    --------
    >>> import sclub
    >>> from sclub.ope import action_dist
    >>> action_dist(sclub.LinUcb(dim=1), ["anna"], [[1.0], [2.0]], epsilon=0.5)[:, :, 0]
    array([[0.25, 0.75]])
    """
    if not 0.0 <= _number(epsilon, "epsilon") <= 1.0:
        raise ValueError(f"epsilon: it is {epsilon}; it must be from 0 to 1")
    items = items if isinstance(items, Items) else Items(np.asarray(items))
    return _epsilon_greedy(policy.recommend_many(users, items), len(items), epsilon)


def _epsilon_greedy(greedy: NDArray[np.int64], items: int, epsilon: float) -> NDArray[np.float64]:
    probabilities = np.full((len(greedy), items, 1), epsilon / items)
    probabilities[np.arange(len(greedy)), greedy, 0] += 1.0 - epsilon
    return probabilities


def _number(value: object, argument: str) -> float:
    try:
        return float(value.__float__())  # type: ignore[attr-defined]
    except (AttributeError, TypeError):
        raise TypeError(f"{argument}: a number is expected, not {value!r}") from None


def _floats(values: ArrayLike, argument: str, dimensions: int) -> NDArray[np.float64]:
    array: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    if array.ndim != dimensions:
        raise ValueError(f"{argument}: {dimensions} dimensions are expected, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{argument}: it has a value that is no number")
    return array
